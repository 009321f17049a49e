/* The protocol of systemd, without its library: one datagram and two environment variables. */
#ifndef SERVER_SYSTEMD_H
#define SERVER_SYSTEMD_H

#include <stddef.h>

enum { SYSTEMD_FD_FIRST = 3, SYSTEMD_FDS_MAX = 16 };

/* How many listening sockets systemd passed, from SYSTEMD_FD_FIRST on. Unsets the variables. */
size_t systemd_listen_fds(void);

/* Send "READY=1" and the like, if systemd listens. */
void systemd_notify(const char *state);
/* Send RELOADING=1 with its timestamp. */
void systemd_notify_reloading(void);

#endif
