#include "support/server.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void become(const char *script, const char *argument, int in, int out)
{
    (void)dup2(in, STDIN_FILENO);
    (void)dup2(out, STDOUT_FILENO);
    /* The shell takes the argument apart, if it is several. */
    (void)execl("/bin/sh", "sh", "-c", "exec \"$0\" $1", script, argument == NULL ? "" : argument,
                (char *)NULL);
    _exit(127);
}

static int read_port(int fd)
{
    FILE *file = fdopen(fd, "r");
    char line[32] = "";

    if (file != NULL && fgets(line, sizeof line, file) == NULL) {
        line[0] = '\0';
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return (int)strtol(line, NULL, 10);
}

bool server_start(struct server *server, const char *script, const char *argument)
{
    int in[2], out[2];

    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) {
        return false;
    }
    server->pid = fork();
    if (server->pid == 0) {
        become(script, argument, in[0], out[1]);
    }
    (void)close(in[0]);
    (void)close(out[1]);
    server->stdin_fd = in[1];
    server->port = read_port(out[0]);
    return server->pid > 0 && server->port > 0;
}

void server_stop(struct server *server)
{
    if (server->pid > 0) {
        (void)close(server->stdin_fd);
        (void)waitpid(server->pid, NULL, 0);
        server->pid = 0;
    }
}
