/*
 * The guardian's own life (guardian.h has the tree of processes).
 *
 *     WAITING --go--> RUNNING --COMMAND ends---------------> ENDED --done--> OVER
 *        |               |                                     ^
 *   done, or belay       | the deadline less kill_after,       | nobody is left
 *        is dead         | the lease is lost, or               |
 *        |               | belay is dead                       |
 *        v               v                                     |
 *      OVER           ENDING: TERM was sent --kill_at_ms--> KILLING
 *
 * ENDING goes to ENDED too if nobody is left before kill_at_ms. Should belay be
 * dead once COMMAND is gone, the guardian releases the lock in its stead.
 */
#include "cli/run/guardian.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/run/process_tree.h"
#include "cli/run/spawn.h"
#include "cli/run/terminal.h"

enum { KILL_AGAIN_MIN_MS = 2, KILL_AGAIN_MAX_MS = 500 };

enum state { WAITING, RUNNING, ENDING, KILLING, ENDED, OVER };

struct watch {
    struct guardian *guardian; /* borrowed */
    struct spawn spawn;
    char *config_path; /* owned; NULL: none */
    int signals;       /* readable when a child has changed */
    int timer;
    enum state state;
    bool belay_is_dead;
    pid_t command;         /* 0 once it is reaped: the number may be another's then */
    pid_t last_group;      /* COMMAND's, alive or not */
    bool was_ended;        /* by us */
    int status;            /* of COMMAND, once it is reaped */
    int64_t kill_at_ms;    /* boot clock; ENDING and KILLING */
    int64_t kill_again_ms; /* KILLING: until the next try */
    int64_t timer_ms;      /* what the timer is set to */
};

/* ---- COMMAND ------------------------------------------------------------ */

static void set_or_unset(const char *name, const char *value)
{
    if (value[0] != '\0') {
        (void)setenv(name, value, 1);
    } else {
        (void)unsetenv(name); /* an outer belay's must not pass for ours */
    }
}

static void set_environment(const struct guardian_job *job)
{
    char token[24] = "";

    if (job->token != 0) {
        (void)snprintf(token, sizeof token, "%llu", (unsigned long long)job->token);
    }
    set_or_unset("BELAY_KEY", job->key);
    set_or_unset("BELAY_LOCK_ID", job->lock_id);
    set_or_unset("BELAY_TOKEN", token);
    if (job->store_url[0] != '\0') {
        (void)setenv("BELAY_STORE", job->store_url, 1);
    }
    /* An outer deployment's stay: COMMAND is part of it. */
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
 * Not to be hit together with belay by `pkill -f 'belay run'`, and to be told
 * apart from it in ps: write another title over our copy of the arguments.
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

static void start_command(struct watch *watch)
{
    const struct guardian_job *job = &watch->guardian->page->job;
    int failure;

    set_environment(job);
    failure = spawn_command(&watch->spawn, &watch->command);
    if (failure != 0) {
        watch->status = 127 << 8;
        watch->state = ENDED;
        guardian_tell(watch->guardian, GUARDIAN_NOT_STARTED, failure);
        return;
    }
    watch->state = RUNNING;
    watch->last_group = watch->command;
    guardian_tell(watch->guardian, GUARDIAN_STARTED, (int)watch->command);
    retitle(watch->spawn.argv, job->key);
}

static void begin_ending(struct watch *watch)
{
    const struct guardian_page *page = watch->guardian->page;
    int64_t deadline_ms = atomic_load(&page->deadline_boot_ms);
    int64_t grace_ends_ms = belay_now_boot_ms() + page->job.kill_after_ms;

    watch->state = ENDING;
    watch->was_ended = true;
    guardian_tell(watch->guardian, GUARDIAN_ENDING, 0);
    watch->kill_at_ms = grace_ends_ms < deadline_ms ? grace_ends_ms : deadline_ms;
    tree_signal(watch->command, SIGTERM);
    tree_signal(watch->command, SIGCONT); /* who is stopped does not hear TERM */
}

static void kill_all(struct watch *watch)
{
    if (watch->state != KILLING) {
        watch->state = KILLING;
        watch->kill_again_ms = KILL_AGAIN_MIN_MS;
    } else if (watch->kill_again_ms < KILL_AGAIN_MAX_MS) {
        watch->kill_again_ms *= 2;
    }
    watch->kill_at_ms = belay_now_boot_ms() + watch->kill_again_ms;
    tree_signal(watch->command, SIGKILL);
}

static void has_ended(struct watch *watch)
{
    struct guardian *guardian = watch->guardian;

    if (watch->belay_is_dead) {
        watch->state = OVER;
        return;
    }
    watch->state = ENDED;
    guardian_tell(guardian, GUARDIAN_ENDED, watch->status);
}

static void on_command_changed(struct watch *watch, int status)
{
    if (WIFSTOPPED(status)) {
        guardian_tell(watch->guardian, GUARDIAN_STOPPED, WSTOPSIG(status));
        return;
    }
    atomic_store(&watch->guardian->page->ended_boot_ms, belay_now_boot_ms());
    watch->command = 0;
    watch->status = status;
    if (watch->state == RUNNING) {
        has_ended(watch); /* what it left running in the background is its own affair */
    }
}

static void reap(struct watch *watch)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
        if (pid == watch->command) {
            on_command_changed(watch, status);
        }
    }
    if (pid < 0 && errno == ECHILD && (watch->state == ENDING || watch->state == KILLING)) {
        has_ended(watch);
    }
}

/* ---- belay --------------------------------------------------------------- */

static void on_belay_dead(struct watch *watch)
{
    (void)close(watch->guardian->socket);
    watch->guardian->socket = -1;
    watch->belay_is_dead = true;
    if (watch->state == RUNNING) {
        begin_ending(watch);
    } else if (watch->state == WAITING || watch->state == ENDED) {
        watch->state = OVER;
    }
}

static void on_message(struct watch *watch, const struct guardian_message *message)
{
    struct guardian *guardian = watch->guardian;

    switch (message->word) {
    case GUARDIAN_GO:
        if (watch->state == WAITING) {
            start_command(watch);
        }
        break;
    case GUARDIAN_SIGNAL:
        if (watch->command > 0) {
            (void)kill(-watch->command, message->value);
        }
        break;
    case GUARDIAN_CONTINUE:
        if (watch->command > 0) {
            terminal_pass(guardian->tty, guardian->belay_group, watch->command);
            (void)kill(-watch->command, SIGCONT);
        }
        break;
    case GUARDIAN_END:
        if (watch->state == RUNNING) {
            begin_ending(watch);
        }
        break;
    case GUARDIAN_DONE:
        watch->state = OVER;
        break;
    default:
        break;
    }
}

/* ---- time and the loop --------------------------------------------------- */

/* When something is due, on the boot clock; INT64_MAX: never. */
static int64_t next_due_ms(const struct watch *watch)
{
    const struct guardian_page *page = watch->guardian->page;
    int64_t deadline_ms = atomic_load(&page->deadline_boot_ms);

    switch (watch->state) {
    case RUNNING:
        return deadline_ms == INT64_MAX ? INT64_MAX : deadline_ms - page->job.kill_after_ms;
    case ENDING:
    case KILLING:
        return watch->kill_at_ms;
    default:
        return INT64_MAX;
    }
}

/* The boot clock goes on while the machine sleeps, so a lease that ended then is noticed on waking. */
static void set_timer(struct watch *watch, int64_t due_ms)
{
    struct itimerspec when = { { 0, 0 }, { 0, 0 } };

    if (watch->timer_ms == due_ms) {
        return;
    }
    watch->timer_ms = due_ms;
    if (due_ms != INT64_MAX) {
        due_ms = due_ms < 1 ? 1 : due_ms; /* 0 would mean never */
        when.it_value.tv_sec = due_ms / 1000;
        when.it_value.tv_nsec = due_ms % 1000 * 1000000;
    }
    (void)timerfd_settime(watch->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

static void on_time(struct watch *watch)
{
    if (belay_now_boot_ms() < next_due_ms(watch)) {
        return; /* the lease was renewed meanwhile */
    }
    if (watch->state == RUNNING) {
        begin_ending(watch);
    } else if (watch->state == ENDING || watch->state == KILLING) {
        kill_all(watch);
    }
}

static void wait_for_something(struct watch *watch)
{
    struct pollfd fds[] = { { watch->guardian->socket, POLLIN, 0 },
                            { watch->signals, POLLIN, 0 },
                            { watch->timer, POLLIN, 0 } };
    struct guardian_message message;
    struct signalfd_siginfo info;

    set_timer(watch, next_due_ms(watch));
    (void)poll(fds, sizeof fds / sizeof fds[0], -1);
    if (fds[1].revents != 0) {
        (void)!read(watch->signals, &info, sizeof info);
        reap(watch);
    }
    if (fds[0].revents != 0) {
        if (guardian_hear(watch->guardian, &message)) {
            on_message(watch, &message);
        } else {
            on_belay_dead(watch);
        }
    }
    on_time(watch);
}

static bool watch_init(struct watch *watch, struct guardian *guardian)
{
    struct sigaction action = { 0 };
    sigset_t child;

    *watch = (struct watch){ .guardian = guardian, .timer_ms = INT64_MAX };
    action.sa_handler = SIG_DFL; /* if it were ignored there would be nothing to reap */
    (void)sigaction(SIGCHLD, &action, &watch->spawn.sigchld);
    (void)sigemptyset(&child);
    (void)sigaddset(&child, SIGCHLD);
    watch->signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    watch->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    return watch->signals >= 0 && watch->timer >= 0;
}

/* The lock may be had from now on, and no sooner: COMMAND is surely gone. */
static void release_lock(const struct watch *watch)
{
    const struct guardian_job *job = &watch->guardian->page->job;
    bool completed = watch->status == 0 && !watch->was_ended;
    char *argv[] = { "belay",
                     "release",
                     "--quiet",
                     "--id",
                     (char *)job->lock_id,
                     "--outcome",
                     completed ? "completed" : "failed",
                     watch->config_path != NULL ? "--config" : "--",
                     watch->config_path != NULL ? watch->config_path : (char *)job->key,
                     watch->config_path != NULL ? "--" : NULL,
                     (char *)job->key,
                     NULL };

    set_environment(job);
    (void)sigprocmask(SIG_SETMASK, &watch->spawn.mask, NULL);
    (void)execv("/proc/self/exe", argv);
}

_Noreturn void guardian_main(struct guardian *guardian, const struct guardian_setup *setup,
                             const sigset_t *mask)
{
    const struct guardian_page *page = guardian->page;
    struct watch watch;

    (void)setpgid(0, 0);
    (void)prctl(PR_SET_NAME, "lease-guardian", 0, 0, 0);
    tree_become_root();
    if (!watch_init(&watch, guardian)) {
        _exit(1);
    }
    watch.spawn.argv = setup->argv;
    watch.spawn.mask = *mask;
    watch.spawn.sigpipe = setup->old_sigpipe;
    watch.spawn.tty = guardian->tty;
    watch.spawn.belay_group = guardian->belay_group;
    watch.config_path = setup->config_path == NULL ? NULL : strdup(setup->config_path);
    watch.status = 127 << 8;
    while (watch.state != OVER) {
        wait_for_something(&watch);
    }
    if (watch.belay_is_dead && atomic_load(&page->has_job)) {
        terminal_pass(guardian->tty, watch.last_group, guardian->belay_group);
        if (page->job.release) {
            release_lock(&watch);
        }
    }
    _exit(0);
}

bool guardian_replace(struct guardian *guardian, pid_t command, int *out_status)
{
    struct watch watch;

    (void)close(guardian->socket);
    guardian->socket = -1;
    if (!guardian->alone || !watch_init(&watch, guardian)) {
        if (command > 0) {
            (void)kill(-command, SIGKILL); /* we could not tell our children from COMMAND's */
        }
        return false;
    }
    watch.command = command;
    watch.belay_is_dead = true; /* nobody to report to */
    begin_ending(&watch);
    reap(&watch);
    while (watch.state != OVER) {
        wait_for_something(&watch);
    }
    (void)close(watch.signals);
    (void)close(watch.timer);
    *out_status = watch.status;
    return command > 0 && watch.command == 0;
}
