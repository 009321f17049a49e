/* What a service manager asks for, spoken directly: no library is needed for a datagram and two variables. */
#ifndef SERVER_SYSTEMD_H
#define SERVER_SYSTEMD_H

#include <stddef.h>

enum { SYSTEMD_FD_FIRST = 3, SYSTEMD_FDS_MAX = 16 };

/* How many listening sockets were handed over, from SYSTEMD_FD_FIRST on. Forgets the variables. */
size_t systemd_listen_fds(void);

/* "READY=1" and the like, if somebody listens. */
void systemd_notify(const char *state);
/* RELOADING=1 with the time that goes with it. */
void systemd_notify_reloading(void);

#endif
