#include "cli/run/supervise.h"

#include <assert.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/run/command_process.h"

enum {
    OVERDUE_MS = 200,   /* a guardian that has not killed COMMAND by then is stopped: belay kills it */
    KEEP_AFTER_MS = 20, /* renewal needs a thread only after this time */
    STUCK_MS = 5000     /* give up: COMMAND may run as another user */
};

/* Faults of belay itself must still end it. */
static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS };

void supervise_block_signals(struct supervise *supervise)
{
    (void)sigfillset(&supervise->signals);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        (void)sigdelset(&supervise->signals, faults[i]);
    }
    (void)pthread_sigmask(SIG_BLOCK, &supervise->signals, NULL);
}

/* ---- the lease ----------------------------------------------------------- */

static int64_t kill_after_ms(const struct supervise *supervise)
{
    return supervise->guardian->shared->job.kill_after_ms;
}

static void publish_deadline(struct supervise *supervise)
{
    int64_t deadline_ms;

    if (supervise->lock == NULL || atomic_load(&supervise->lost)) {
        return;
    }
    deadline_ms = belay_lock_deadline_boot_ms(supervise->lock);
    /* The deadline of a lost lease is in the past; COMMAND gets its kill_after from the last valid one. */
    if (deadline_ms > belay_now_boot_ms()) {
        atomic_store(&supervise->guardian->shared->deadline_boot_ms, deadline_ms);
    }
}

/* Renew the lease. True if it is valid. */
static bool renew_lease(struct supervise *supervise)
{
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_code code;
    bool is_valid;

    if (supervise->lock == NULL) {
        return true;
    }
    code = belay_lock_renew(supervise->lock, &err);
    /* If the store is unreachable, the lease is valid until the deadline of its last renewal. */
    is_valid = code == BELAY_OK || (code != BELAY_LOST && belay_lock_is_mine(supervise->lock));
    if (code != BELAY_OK) {
        cli_note(supervise->context, "%s", err.text);
    }
    belay_error_release(&err);
    publish_deadline(supervise);
    return is_valid;
}

/* ---- signals, and the terminal ------------------------------------------- */

/* Stop our process group as COMMAND was stopped, so that the shell notices. False if that is impossible. */
static bool stop_ourselves(int number)
{
    sigset_t stop;
    sigset_t pending;

    (void)sigemptyset(&stop);
    (void)sigaddset(&stop, number);
    (void)pthread_sigmask(SIG_UNBLOCK, &stop, NULL);
    (void)kill(0, number);
    (void)pthread_sigmask(SIG_BLOCK, &stop, NULL);
    /* A pending SIGCONT means that we were stopped. The kernel does not stop an orphaned group. */
    return sigpending(&pending) == 0 && sigismember(&pending, SIGCONT) == 1;
}

static void note_stopped(const struct supervise *supervise)
{
    char span[CLOCK_TEXT_SIZE];
    int64_t left_ms;

    if (supervise->lock != NULL) {
        left_ms = atomic_load(&supervise->guardian->shared->deadline_boot_ms) - belay_now_boot_ms() -
                  kill_after_ms(supervise);
        cli_note(
            supervise->context,
            "stopped; the command is ended in %s, when the lease of '%s' runs out, unless it is continued",
            clock_format_span(span, left_ms < 0 ? 0 : left_ms / 1000 * 1000),
            belay_lock_key(supervise->lock));
    }
}

static void on_command_stopped(struct supervise *supervise, int number)
{
    const struct guardian *guardian = supervise->guardian;
    bool wants_terminal = number == SIGTTIN || number == SIGTTOU;

    if (!wants_terminal && !terminal_has_group(guardian->tty, supervise->command)) {
        return; /* COMMAND alone was stopped: do not stop the script around belay, or the renewals */
    }
    if (wants_terminal && terminal_has_group(guardian->tty, guardian->belay_group)) {
        /* The shell brought us to the foreground while COMMAND ran in the background. */
        guardian_send(guardian, GUARDIAN_CONTINUE, 0);
        return;
    }
    terminal_hand_over(guardian->tty, supervise->command, guardian->belay_group);
    if (!renew_lease(supervise)) { /* so that the stopped COMMAND gets a whole ttl */
        guardian_send(guardian, GUARDIAN_END, 0);
        return;
    }
    note_stopped(supervise);
    if (stop_ourselves(number == SIGSTOP ? SIGTSTP : number)) {
        return; /* forward_signal() reads the SIGCONT */
    }
    /* The kernel treats a stopped orphaned group the same way. */
    if (wants_terminal) {
        guardian_send(guardian, GUARDIAN_SIGNAL, SIGHUP);
    }
    if (number != SIGSTOP) {
        guardian_send(guardian, GUARDIAN_CONTINUE, 0);
    }
}

static void on_continued(struct supervise *supervise)
{
    if (renew_lease(supervise)) {
        guardian_send(supervise->guardian, GUARDIAN_CONTINUE, 0);
    } else {
        guardian_send(supervise->guardian, GUARDIAN_END, 0);
    }
}

static void forward_signal(struct supervise *supervise, int number)
{
    switch (number) {
    case SIGCONT:
        on_continued(supervise);
        break;
    case SIGCHLD:
    case SIGPIPE:
    case SIGTTIN: /* belay itself does not use the terminal */
    case SIGTTOU:
        break;
    default:
        guardian_send(supervise->guardian, GUARDIAN_SIGNAL, number);
        break;
    }
}

/* ---- the guardian -------------------------------------------------------- */

static void on_guardian_died(struct supervise *supervise)
{
    assert(!supervise->guardian_died);
    supervise->guardian_died = true;
    supervise->end = SUPERVISE_STATUS_UNKNOWN;
    cli_warn(supervise->context, "the guardian process was killed; ending the command");
    /* Without STARTED there may still be a COMMAND: the guardian may have died before it sent the message. */
    if (guardian_take_over(supervise->guardian, supervise->command, &supervise->status)) {
        supervise->end = SUPERVISE_ENDED;
    }
}

static void note_ending(struct supervise *supervise)
{
    const char *key = supervise->lock == NULL ? "" : belay_lock_key(supervise->lock);

    supervise->was_ended = true;
    if (atomic_load(&supervise->lost)) {
        cli_note(supervise->context, "lost the lock '%s': %s; ending the command", key, supervise->why);
    } else {
        cli_note(supervise->context, "the lease of '%s' could not be renewed; ending the command", key);
    }
}

/* True when COMMAND has ended. */
static bool on_guardian_message(struct supervise *supervise, const struct guardian_message *message)
{
    switch (message->type) {
    case GUARDIAN_STARTED:
        assert(supervise->command == 0 && message->value > 0);
        supervise->command = message->value;
        return false;
    case GUARDIAN_STOPPED:
        assert(supervise->command > 0);
        on_command_stopped(supervise, message->value);
        return false;
    case GUARDIAN_ENDING:
        note_ending(supervise);
        return false;
    case GUARDIAN_NOT_STARTED:
        assert(supervise->command == 0);
        supervise->end = SUPERVISE_NOT_STARTED;
        supervise->failure = message->value;
        return true;
    case GUARDIAN_ENDED:
        assert(supervise->command > 0);
        supervise->end = SUPERVISE_ENDED;
        supervise->status = message->value;
        return true;
    default:
        assert(!"a message of belay to the guardian");
        return false;
    }
}

/* True if COMMAND should have ended long ago and cannot be killed. */
static bool is_stuck(struct supervise *supervise, int64_t *end_by_ms)
{
    int64_t now_ms = belay_now_boot_ms();

    if (!supervise->was_ended && !atomic_load(&supervise->lost)) {
        return false;
    }
    if (*end_by_ms == 0) {
        *end_by_ms = now_ms + kill_after_ms(supervise);
    }
    if (now_ms > *end_by_ms + OVERDUE_MS && supervise->command > 0) {
        (void)kill(-supervise->command, SIGKILL);
    }
    supervise->end = SUPERVISE_STUCK;
    return now_ms > *end_by_ms + STUCK_MS;
}

/* A command that ends soon needs no thread that renews its lease. */
static void start_renewal(struct supervise *supervise, bool *kept)
{
    struct belay_error err = BELAY_ERROR_INIT;

    if (supervise->lock == NULL || *kept) {
        return;
    }
    *kept = true;
    if (belay_lock_start_heartbeat(supervise->lock, &err) != BELAY_OK) {
        cli_warn(supervise->context, "%s", err.text);
    }
    belay_error_release(&err);
}

static void supervise_loop(struct supervise *supervise, int signals)
{
    struct pollfd fds[] = { { supervise->guardian->socket, POLLIN, 0 }, { signals, POLLIN, 0 } };
    struct guardian_message message;
    struct signalfd_siginfo info;
    int64_t end_by_ms = 0;
    int64_t began_ms = belay_now_boot_ms();
    bool kept = false;

    do {
        int64_t wait_ms = supervise->lock == NULL ? -1 : supervise->publish_ms;

        assert(wait_ms >= -1);
        wait_ms = kept || wait_ms < KEEP_AFTER_MS ? wait_ms : KEEP_AFTER_MS;
        (void)poll(fds, 2, (int)wait_ms);
        if (belay_now_boot_ms() - began_ms >= KEEP_AFTER_MS) {
            start_renewal(supervise, &kept);
        }
        publish_deadline(supervise);
        if (fds[1].revents != 0 && read(signals, &info, sizeof info) == sizeof info) {
            forward_signal(supervise, (int)info.ssi_signo);
        }
        if (fds[0].revents != 0) {
            if (!guardian_receive(supervise->guardian, &message)) {
                on_guardian_died(supervise);
                return;
            }
            if (on_guardian_message(supervise, &message)) {
                return;
            }
        }
    } while (!is_stuck(supervise, &end_by_ms));
}

/*
 * Ctrl-C reached COMMAND's group only. A script that runs belay would continue with its next line, so send the
 * signal to our group too, as the terminal would have. belay itself blocks it.
 */
static void forward_interrupt(struct supervise *supervise)
{
    int status = supervise->status;
    int number = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) - 128;

    assert(supervise->end == SUPERVISE_ENDED);
    if (number != SIGINT && number != SIGQUIT) {
        return;
    }
    (void)kill(0, number);
    /* A shell without job control acts on the signal only if its child died of it. */
    if (getpgid(getppid()) == supervise->guardian->belay_group) {
        supervise->die_by_signal = number;
    }
}

void supervise_die_by_signal(int number)
{
    sigset_t set;

    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* a core dump would be COMMAND's business */
    (void)signal(number, SIG_DFL);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, number);
    (void)raise(number);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

void supervise_run(struct supervise *supervise)
{
    const struct guardian *guardian = supervise->guardian;
    int signals = fd_above_standard(signalfd(-1, &supervise->signals, SFD_CLOEXEC | SFD_NONBLOCK));

    supervise_loop(supervise, signals);
    (void)close(signals);
    if (supervise->end == SUPERVISE_STUCK && guardian->pid > 0) {
        /* If it was stopped, it would outlive belay. The kernel continues it, except in a container. */
        (void)kill(guardian->pid, SIGCONT);
    }
    if (supervise->command > 0 && terminal_has_group(guardian->tty, supervise->command)) {
        terminal_hand_over(guardian->tty, supervise->command, guardian->belay_group);
        if (supervise->end != SUPERVISE_ENDED || WIFSIGNALED(supervise->status)) {
            terminal_restore(guardian->tty, &supervise->mode);
        }
        if (supervise->end == SUPERVISE_ENDED) {
            forward_interrupt(supervise);
        }
    }
}
