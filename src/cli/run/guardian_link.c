/* belay's end of the link to the guardian. */
#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/run/descriptor.h"
#include "cli/run/guardian.h"
#include "cli/run/process_tree.h"
#include "cli/run/terminal.h"

/* `sh -c 'sleep 9 & exec belay run …'`: children from before are none of our business. */
static bool has_no_children(void)
{
    siginfo_t info;

    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD;
}

static bool fork_guardian(struct guardian *guardian, const struct guardian_setup *setup, const int ends[2])
{
    sigset_t all;
    sigset_t mask;

    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, &mask);
    guardian->pid = fork();
    if (guardian->pid == 0) {
        (void)close(ends[0]);
        guardian->socket = ends[1];
        guardian_main(guardian, setup, &mask);
    }
    (void)sigprocmask(SIG_SETMASK, &mask, NULL);
    return guardian->pid > 0;
}

bool guardian_start(struct guardian *guardian, const struct guardian_setup *setup)
{
    int ends[2];
    int failure;

    *guardian = (struct guardian){ .socket = -1, .tty = -1 };
    guardian->shared =
        mmap(NULL, sizeof *guardian->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (guardian->shared == MAP_FAILED) {
        guardian->shared = NULL;
        return false;
    }
    atomic_init(&guardian->shared->deadline_boot_ms, INT64_MAX);
    guardian->belay_group = getpgrp();
    guardian->tty = terminal_open();
    guardian->alone = has_no_children();
    if (guardian->alone) {
        process_adopt_orphans(); /* should the guardian die, its children come to us */
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        return false;
    }
    ends[0] = fd_above_standard(ends[0]);
    ends[1] = fd_above_standard(ends[1]);
    if (!fork_guardian(guardian, setup, ends)) {
        failure = errno;
        (void)close(ends[0]);
        (void)close(ends[1]);
        errno = failure;
        return false;
    }
    (void)close(ends[1]);
    guardian->socket = ends[0];
    return true;
}

void guardian_send(const struct guardian *guardian, enum guardian_message_type type, int value)
{
    struct guardian_message message = { (int32_t)type, value };

    (void)send(guardian->socket, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool guardian_receive(const struct guardian *guardian, struct guardian_message *out_message)
{
    ssize_t n;

    do {
        n = recv(guardian->socket, out_message, sizeof *out_message, 0);
    } while (n < 0 && errno == EINTR);
    return n == sizeof *out_message;
}

void guardian_abandon(struct guardian *guardian)
{
    (void)close(guardian->socket);
    guardian->socket = -1;
    guardian->pid = 0;
}

void guardian_stop(struct guardian *guardian)
{
    if (guardian->socket >= 0) {
        guardian_send(guardian, GUARDIAN_DONE, 0);
        (void)close(guardian->socket);
        guardian->socket = -1;
    }
    if (guardian->pid > 0) {
        while (waitpid(guardian->pid, NULL, 0) < 0 && errno == EINTR) {
        }
        guardian->pid = 0;
    }
    if (guardian->tty >= 0) {
        (void)close(guardian->tty);
        guardian->tty = -1;
    }
    if (guardian->shared != NULL) {
        (void)munmap(guardian->shared, sizeof *guardian->shared);
        guardian->shared = NULL;
    }
}
