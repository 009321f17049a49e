/* Start COMMAND as if the shell had started it itself, but in a process group of its own. */
#ifndef CLI_RUN_SPAWN_H
#define CLI_RUN_SPAWN_H

#include <signal.h>
#include <sys/types.h>

struct spawn {
    char **argv;              /* borrowed */
    sigset_t mask;            /* COMMAND finds signals as belay found them */
    struct sigaction sigpipe; /* belay ignores it */
    struct sigaction sigchld;
    int tty;           /* -1: no terminal */
    pid_t belay_group; /* COMMAND gets the terminal if this group has it */
};

/* 0, or the errno of why it could not be started. All signals must be blocked. */
int spawn_command(const struct spawn *spawn, pid_t *out_pid);

#endif
