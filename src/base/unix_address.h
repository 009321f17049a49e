/* The address of a unix socket, however long its path is. */
#ifndef BASE_UNIX_ADDRESS_H
#define BASE_UNIX_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>

/*
 * An address has room for 107 bytes of path. What is longer is named through
 * its folder's descriptor, /proc/self/fd/N/NAME: *out_folder is then to be
 * closed after bind() or connect(); else it is -1. False with errno set.
 */
bool unix_address(const char *path, struct sockaddr_un *out, int *out_folder);

#endif
