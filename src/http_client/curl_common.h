/*
 * The file of certificates that TLS trusts. libcurl has one name built in, that of the system it was built on; the
 * tarball (docs/install.md) runs on others.
 */
#ifndef HTTP_CLIENT_CA_FILE_H
#define HTTP_CLIENT_CA_FILE_H

/* The system's file if it is not where Debian has it; NULL: Debian's, which needs no setting. */
const char *ca_file_of_system(void);

#endif
