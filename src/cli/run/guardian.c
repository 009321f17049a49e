/*
 * guardian.h draws the processes. The states of the guardian:
 *
 *     WAITING --START--> RUNNING --COMMAND ends--------------> ENDED --DONE--> OVER
 *        |                  |                                    ^
 *     DONE, or              | deadline - kill_after, END, or     | no descendant is left
 *     belay is dead         | belay is dead                      |
 *        v                  v                                    |
 *      OVER              ENDING: TERM was sent --kill_at_ms--> KILLING
 *
 * ENDING goes to ENDED directly if no descendant is left before kill_at_ms. If belay is dead by then, the
 * guardian goes to OVER and releases the lock.
 */
#include "cli/run/guardian.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/run/command_process.h"

enum { KILL_AGAIN_MIN_MS = 2, KILL_AGAIN_MAX_MS = 500 };

enum guardian_state { WAITING, RUNNING, ENDING, KILLING, ENDED, OVER };

struct guardian_process {
    struct guardian *guardian; /* borrowed */
    char **argv;               /* COMMAND; borrowed */
    /* The signal mask and the actions that belay was started with: COMMAND gets them. */
    sigset_t mask;
    struct sigaction sigpipe;
    struct sigaction sigchld;
    char *config_path; /* owned; NULL: none */
    int signals;       /* signalfd: SIGCHLD */
    int timer;
    enum guardian_state state;
    bool belay_is_dead;
    pid_t command;         /* 0 once it is reaped: the number may be reused */
    pid_t last_group;      /* COMMAND's, also once it is reaped */
    bool was_ended;        /* by the guardian */
    int status;            /* of COMMAND, once it is reaped */
    int64_t kill_at_ms;    /* boot clock; ENDING and KILLING */
    int64_t kill_again_ms; /* KILLING: delay until the next try */
    int64_t timer_ms;      /* what the timer is set to, or INT64_MAX */
};

/* ---- the link, in both processes ----------------------------------------- */

void guardian_send(const struct guardian *guardian, enum guardian_message_type type, int value)
{
    struct guardian_message message = { (int32_t)type, value };

    assert(type <= GUARDIAN_ENDED);
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

/* ---- the states ----------------------------------------------------------- */

static void enter_state(struct guardian_process *process, enum guardian_state next)
{
    static const unsigned allowed[] = {
        [WAITING] = 1U << RUNNING | 1U << ENDED | 1U << OVER, /* ENDED: COMMAND could not be started */
        [RUNNING] = 1U << ENDING | 1U << ENDED,
        [ENDING] = 1U << KILLING | 1U << ENDED | 1U << OVER,
        [KILLING] = 1U << ENDED | 1U << OVER,
        [ENDED] = 1U << OVER,
        [OVER] = 0,
    };

    assert((allowed[process->state] >> next & 1) != 0);
    assert(next != RUNNING || process->command > 0);
    assert(next != ENDED || !process->belay_is_dead);
    process->state = next;
}

/* ---- COMMAND ------------------------------------------------------------ */

static void set_or_unset(const char *name, const char *value)
{
    if (value[0] != '\0') {
        (void)setenv(name, value, 1);
    } else {
        (void)unsetenv(name); /* an outer belay's value is not this lock's */
    }
}

enum { TOKEN_SIZE = 24, TOKENS_SIZE = BELAY_KEYS_MAX * (BELAY_KEY_MAX + TOKEN_SIZE) };

static size_t add_token(char *to, size_t size, uint64_t token, const char *key)
{
    return (size_t)snprintf(to, size, "%llu %s\n", (unsigned long long)token, key);
}

/* "TOKEN KEY" for each of several keys, one per line; keys have no control characters. Empty for one key. */
static void format_tokens(const struct guardian_job *job, char out[TOKENS_SIZE])
{
    size_t len;

    out[0] = '\0';
    if (job->n_more_keys == 0 || job->lock_id[0] == '\0') {
        return;
    }
    len = add_token(out, TOKENS_SIZE, job->token, job->key);
    for (size_t i = 0; i < job->n_more_keys; i++) {
        len += add_token(out + len, TOKENS_SIZE - len, job->more_tokens[i], job->more_keys[i]);
    }
    assert(len < TOKENS_SIZE);
    out[len - 1] = '\0'; /* without the last newline */
}

static void set_environment(const struct guardian_job *job)
{
    char tokens[TOKENS_SIZE];
    char token[TOKEN_SIZE] = "";

    if (job->token != 0) {
        (void)snprintf(token, sizeof token, "%llu", (unsigned long long)job->token);
    }
    set_or_unset("BELAY_KEY", job->key);
    set_or_unset("BELAY_LOCK_ID", job->lock_id);
    set_or_unset("BELAY_TOKEN", token);
    format_tokens(job, tokens);
    set_or_unset("BELAY_TOKENS", tokens);
    if (job->store_url[0] != '\0') {
        (void)setenv("BELAY_STORE", job->store_url, 1);
    }
    /* The variables of an outer `belay deploy` stay: COMMAND is part of it. */
    if (job->state_file[0] != '\0') {
        (void)setenv("BELAY_STATE_FILE", job->state_file, 1);
        (void)setenv("BELAY_STATE_OUT", job->state_out, 1);
        (void)setenv("BELAY_STATE_STORE", job->state_url, 1);
    }
    if (job->traceparent[0] != '\0') {
        (void)setenv("TRACEPARENT", job->traceparent, 1);
    }
}

/*
 * Overwrite our copy of the arguments, so that `pkill -f 'belay run'` does not hit belay and the guardian at
 * once, and ps shows which is which.
 */
static void retitle(char **argv, const char *key)
{
    char *start = program_invocation_name;
    char *end = argv[0];

    for (; *argv != NULL; argv++) {
        end = *argv + strlen(*argv) + 1;
    }
    if (start < end) {
        memset(start, 0, (size_t)(end - start));
        (void)snprintf(start, (size_t)(end - start), "lease-guardian %s", key);
    }
}

/* In the child, which shares our memory until it executes another program. */
static void become_command(const struct guardian_process *process, pid_t parent)
{
    const struct guardian *guardian = process->guardian;
    bool in_foreground = terminal_has_group(guardian->tty, guardian->belay_group);

    (void)setpgid(0, 0);
    if (in_foreground) {
        (void)tcsetpgrp(guardian->tty, getpid());
    }
    /* The last resort, should belay and the guardian both be killed at once. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (getppid() != parent) {
        return; /* the guardian was killed before the prctl() */
    }
    (void)sigaction(SIGPIPE, &process->sigpipe, NULL);
    (void)sigaction(SIGCHLD, &process->sigchld, NULL);
    (void)sigprocmask(SIG_SETMASK, &process->mask, NULL);
    (void)execvp(process->argv[0], process->argv);
}

/*
 * Run COMMAND as if the shell had started it, but in a process group of its own, and in the foreground if belay is
 * there. Returns 0, or the errno that prevented the start. All signals are blocked.
 */
static int spawn_command(struct guardian_process *process)
{
    const struct guardian *guardian = process->guardian;
    pid_t parent = getpid();
    volatile int failure = 0;
    /* vfork: nothing is copied, and when it returns here COMMAND runs or its failure is known. */
    pid_t pid = vfork();

    if (pid == 0) {
        become_command(process, parent);
        failure = errno;
        _exit(127);
    }
    if (pid < 0) {
        return errno;
    }
    if (failure != 0) {
        terminal_hand_over(guardian->tty, pid, guardian->belay_group);
        return failure; /* reap_children() reaps the child with the others */
    }
    process->command = process->last_group = pid;
    return 0;
}

static void start_command(struct guardian_process *process)
{
    const struct guardian_job *job = &process->guardian->shared->job;
    int failure;

    assert(process->state == WAITING && process->command == 0);
    assert(atomic_load(&process->guardian->shared->has_job) && job->n_more_keys < BELAY_KEYS_MAX);
    set_environment(job);
    failure = spawn_command(process);
    if (failure != 0) {
        process->status = 127 << 8;
        enter_state(process, ENDED);
        guardian_send(process->guardian, GUARDIAN_NOT_STARTED, failure);
        return;
    }
    enter_state(process, RUNNING);
    guardian_send(process->guardian, GUARDIAN_STARTED, (int)process->command);
    retitle(process->argv, job->key);
}

static void begin_ending(struct guardian_process *process)
{
    const struct guardian_shared *shared = process->guardian->shared;
    int64_t deadline_ms = atomic_load(&shared->deadline_boot_ms);
    int64_t grace_ends_ms = belay_now_boot_ms() + shared->job.kill_after_ms;

    assert(shared->job.kill_after_ms >= 0);
    enter_state(process, ENDING);
    process->was_ended = true;
    guardian_send(process->guardian, GUARDIAN_ENDING, 0);
    process->kill_at_ms = grace_ends_ms < deadline_ms ? grace_ends_ms : deadline_ms;
    process_tree_signal(process->command, SIGTERM);
    process_tree_signal(process->command, SIGCONT); /* a stopped process does not act on TERM */
}

static void kill_all(struct guardian_process *process)
{
    if (process->state != KILLING) {
        enter_state(process, KILLING);
        process->kill_again_ms = KILL_AGAIN_MIN_MS;
    } else if (process->kill_again_ms < KILL_AGAIN_MAX_MS) {
        process->kill_again_ms *= 2;
    }
    assert(process->kill_again_ms >= KILL_AGAIN_MIN_MS && process->kill_again_ms < 2 * KILL_AGAIN_MAX_MS);
    process->kill_at_ms = belay_now_boot_ms() + process->kill_again_ms;
    process_tree_signal(process->command, SIGKILL);
}

static void reap_children(struct guardian_process *process)
{
    bool has_ended = false;
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
        if (pid != process->command) {
            continue;
        }
        if (WIFSTOPPED(status)) {
            guardian_send(process->guardian, GUARDIAN_STOPPED, WSTOPSIG(status));
            continue;
        }
        atomic_store(&process->guardian->shared->ended_boot_ms, belay_now_boot_ms());
        process->command = 0;
        process->status = status;
        has_ended = process->state == RUNNING; /* background processes of COMMAND are left running */
    }
    if (pid < 0 && errno == ECHILD && (process->state == ENDING || process->state == KILLING)) {
        has_ended = true;
    }
    if (has_ended) {
        enter_state(process, process->belay_is_dead ? OVER : ENDED);
    }
    if (has_ended && !process->belay_is_dead) {
        guardian_send(process->guardian, GUARDIAN_ENDED, process->status);
    }
}

/* ---- belay --------------------------------------------------------------- */

static void on_belay_dead(struct guardian_process *process)
{
    assert(!process->belay_is_dead && process->state != OVER);
    (void)close(process->guardian->socket);
    process->guardian->socket = -1;
    process->belay_is_dead = true;
    if (process->state == RUNNING) {
        begin_ending(process);
    } else if (process->state == WAITING || process->state == ENDED) {
        enter_state(process, OVER);
    }
}

static void on_belay_message(struct guardian_process *process, const struct guardian_message *message)
{
    struct guardian *guardian = process->guardian;

    switch (message->type) {
    case GUARDIAN_START:
        assert(process->state == WAITING);
        start_command(process);
        break;
    case GUARDIAN_SIGNAL:
        if (process->command > 0) {
            (void)kill(-process->command, message->value);
        }
        break;
    case GUARDIAN_CONTINUE:
        if (process->command > 0) {
            terminal_hand_over(guardian->tty, guardian->belay_group, process->command);
            (void)kill(-process->command, SIGCONT);
        }
        break;
    case GUARDIAN_END:
        if (process->state == RUNNING) {
            begin_ending(process);
        }
        break;
    case GUARDIAN_DONE:
        enter_state(process, OVER);
        break;
    default:
        break;
    }
}

/* ---- time and the loop --------------------------------------------------- */

/* When the next timeout is due, on the boot clock; INT64_MAX: never. */
static int64_t next_due_ms(const struct guardian_process *process)
{
    const struct guardian_shared *shared = process->guardian->shared;
    int64_t deadline_ms = atomic_load(&shared->deadline_boot_ms);

    switch (process->state) {
    case RUNNING:
        return deadline_ms == INT64_MAX ? INT64_MAX : deadline_ms - shared->job.kill_after_ms;
    case ENDING:
    case KILLING:
        return process->kill_at_ms;
    default:
        return INT64_MAX;
    }
}

/* The boot clock counts while the machine sleeps, so a lease that expired then is noticed on waking. */
static void set_timer(struct guardian_process *process, int64_t due_ms)
{
    struct itimerspec when = { { 0, 0 }, { 0, 0 } };

    if (process->timer_ms == due_ms) {
        return;
    }
    process->timer_ms = due_ms;
    if (due_ms != INT64_MAX) {
        due_ms = due_ms < 1 ? 1 : due_ms; /* 0 would mean never */
        when.it_value.tv_sec = due_ms / 1000;
        when.it_value.tv_nsec = due_ms % 1000 * 1000000;
    }
    (void)timerfd_settime(process->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

static void wait_for_something(struct guardian_process *process)
{
    struct pollfd fds[] = { { process->guardian->socket, POLLIN, 0 },
                            { process->signals, POLLIN, 0 },
                            { process->timer, POLLIN, 0 } };
    struct guardian_message message;
    struct signalfd_siginfo info;

    set_timer(process, next_due_ms(process));
    (void)poll(fds, sizeof fds / sizeof fds[0], -1);
    if (fds[1].revents != 0) {
        (void)!read(process->signals, &info, sizeof info);
        reap_children(process);
    }
    if (fds[0].revents != 0) {
        if (guardian_receive(process->guardian, &message)) {
            on_belay_message(process, &message);
        } else {
            on_belay_dead(process);
        }
    }
    if (belay_now_boot_ms() < next_due_ms(process)) {
        return; /* nothing is due: the lease was perhaps renewed */
    }
    if (process->state == RUNNING) {
        begin_ending(process);
    } else if (process->state == ENDING || process->state == KILLING) {
        kill_all(process);
    }
}

static bool process_init(struct guardian_process *process, struct guardian *guardian)
{
    struct sigaction action = { 0 };
    sigset_t child;

    *process = (struct guardian_process){ .guardian = guardian, .timer_ms = INT64_MAX };
    action.sa_handler = SIG_DFL; /* ignored children could not be reaped */
    (void)sigaction(SIGCHLD, &action, &process->sigchld);
    (void)sigemptyset(&child);
    (void)sigaddset(&child, SIGCHLD);
    process->signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    process->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    return process->signals >= 0 && process->timer >= 0;
}

/* Only now, when COMMAND is gone, may another client get the lock. */
static void become_release(const struct guardian_process *process)
{
    const struct guardian_job *job = &process->guardian->shared->job;
    bool completed = process->status == 0 && !process->was_ended;
    char *argv[11 + BELAY_KEYS_MAX] = { "belay",
                                        "release",
                                        "--quiet",
                                        "--id",
                                        (char *)job->lock_id,
                                        "--outcome",
                                        completed ? "completed" : "failed" };
    size_t n = 7;

    if (process->config_path != NULL) {
        argv[n++] = "--config";
        argv[n++] = process->config_path;
    }
    assert(job->lock_id[0] != '\0' && job->n_more_keys < BELAY_KEYS_MAX);
    argv[n++] = "--";
    argv[n++] = (char *)job->key;
    for (size_t i = 0; i < job->n_more_keys; i++) {
        argv[n++] = (char *)job->more_keys[i];
    }
    assert(n < sizeof argv / sizeof argv[0]); /* the last is NULL */
    set_environment(job);
    if (job->release_url[0] != '\0') {
        (void)setenv("BELAY_STORE", job->release_url, 1);
    }
    (void)sigprocmask(SIG_SETMASK, &process->mask, NULL);
    (void)execv("/proc/self/exe", argv);
}

static _Noreturn void guardian_main(struct guardian *guardian, const struct guardian_setup *setup,
                                    const sigset_t *mask)
{
    const struct guardian_shared *shared = guardian->shared;
    struct guardian_process process;

    (void)setpgid(0, 0);
    (void)prctl(PR_SET_NAME, "lease-guardian", 0, 0, 0);
    process_adopt_orphans();
    if (!process_init(&process, guardian)) {
        _exit(1);
    }
    process.argv = setup->argv;
    process.mask = *mask;
    process.sigpipe = setup->old_sigpipe;
    process.config_path = setup->config_path == NULL ? NULL : strdup(setup->config_path);
    process.status = 127 << 8;
    while (process.state != OVER) {
        wait_for_something(&process);
    }
    if (process.belay_is_dead && atomic_load(&shared->has_job)) {
        terminal_hand_over(guardian->tty, process.last_group, guardian->belay_group);
        if (shared->job.release) {
            become_release(&process);
        }
    }
    _exit(0);
}

/* ---- belay's end of the link ------------------------------------------------ */

/* `sh -c 'sleep 9 & exec belay run …'`: children from before the exec are not ours. */
static bool has_no_children(void)
{
    siginfo_t info;

    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD;
}

bool guardian_start(struct guardian *guardian, const struct guardian_setup *setup)
{
    sigset_t all;
    sigset_t mask;
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
        process_adopt_orphans(); /* if the guardian dies, its children become ours */
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        return false;
    }
    ends[0] = fd_above_standard(ends[0]);
    ends[1] = fd_above_standard(ends[1]);
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, &mask);
    guardian->pid = fork();
    if (guardian->pid == 0) {
        (void)close(ends[0]);
        guardian->socket = ends[1];
        guardian_main(guardian, setup, &mask);
    }
    failure = errno;
    (void)sigprocmask(SIG_SETMASK, &mask, NULL);
    if (guardian->pid < 0) {
        (void)close(ends[0]);
        (void)close(ends[1]);
        errno = failure;
        return false;
    }
    (void)close(ends[1]);
    guardian->socket = ends[0];
    return true;
}

void guardian_abandon(struct guardian *guardian)
{
    assert(guardian->socket >= 0);
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

bool guardian_take_over(struct guardian *guardian, pid_t command, int *out_status)
{
    struct guardian_process process;

    (void)close(guardian->socket);
    guardian->socket = -1;
    if (!guardian->alone || !process_init(&process, guardian)) {
        if (command > 0) {
            (void)kill(-command, SIGKILL); /* belay's other children cannot be told from COMMAND's */
        }
        return false;
    }
    process.state = RUNNING;
    process.command = command;
    process.belay_is_dead = true; /* there is no peer to report to */
    begin_ending(&process);
    reap_children(&process);
    while (process.state != OVER) {
        wait_for_something(&process);
    }
    (void)close(process.signals);
    (void)close(process.timer);
    *out_status = process.status;
    return command > 0 && process.command == 0;
}
