#include "cli/run/spawn.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "cli/run/terminal.h"

/* In the child, which shares our memory until it runs another program. */
static void become_command(const struct spawn *spawn, bool in_foreground, pid_t guardian)
{
    (void)setpgid(0, 0);
    if (in_foreground) {
        (void)tcsetpgrp(spawn->tty, getpid());
    }
    /* The last resort, should belay and the guardian both be killed at once. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != guardian) {
        return; /* it was killed before we asked for that */
    }
    (void)sigaction(SIGPIPE, &spawn->sigpipe, NULL);
    (void)sigaction(SIGCHLD, &spawn->sigchld, NULL);
    (void)sigprocmask(SIG_SETMASK, &spawn->mask, NULL);
    (void)execvp(spawn->argv[0], spawn->argv);
}

int spawn_command(const struct spawn *spawn, pid_t *out_pid)
{
    bool in_foreground = terminal_has_group(spawn->tty, spawn->belay_group);
    pid_t guardian = getpid();
    volatile int failure = 0;
    /* vfork: nothing is copied, and when it returns here COMMAND runs or its failure is known. */
    pid_t pid = vfork();

    if (pid == 0) {
        become_command(spawn, in_foreground, guardian);
        failure = errno;
        _exit(127);
    }
    if (pid < 0) {
        return errno;
    }
    if (failure != 0) {
        terminal_hand_over(spawn->tty, pid, spawn->belay_group);
        return failure; /* the child is reaped with all others */
    }
    *out_pid = pid;
    return 0;
}
