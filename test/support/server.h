/* A server that a test talks to, which ends with the test. */
#ifndef SUPPORT_SERVER_H
#define SUPPORT_SERVER_H

#include <stdbool.h>
#include <sys/types.h>

struct server {
    pid_t pid;
    int stdin_fd; /* closed, it ends */
    int port;
};

/* Start `script argument` (NULL: none; words are several), which prints the port it listens on. */
bool server_start(struct server *server, const char *script, const char *argument);
void server_stop(struct server *server);

#endif
