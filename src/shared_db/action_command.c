/*
 * A command as an action. It runs in its own process group, with its output on our
 * standard error. It gets TERM and then KILL on timeout, on loss of the lease and on
 * cancellation. If this process is killed, the kernel kills the command: nothing
 * would renew the lease any more.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "belay/store.h"
#include "shared_db/shared_db_internal.h"

enum { TICK_MS = 50, GRACE_MS = 5000, GRACE_LOST_MS = 1000, OWN_VARIABLES = 7, CANNOT_RUN = 127 };

/* ---- the environment ---- */

static const char *const own_names[OWN_VARIABLES] = {
    "BELAY_DATABASE=", "BELAY_DATABASE_KIND=", "BELAY_KEY=",   "BELAY_LOCK_ID=",
    "BELAY_TOKEN=",    "BELAY_STORE=",         "BELAY_TOKENS=" /* an outer belay's is not this lock's */
};

static char *variable(const char *name, const char *value)
{
    char *text;

    return asprintf(&text, "%s%s", name, value) < 0 ? NULL : text;
}

static bool is_own_variable(const char *entry)
{
    for (size_t i = 0; i < OWN_VARIABLES; i++) {
        if (text_has_prefix(entry, own_names[i])) {
            return true;
        }
    }
    return false;
}

static void environment_free(char **made, size_t n_own)
{
    for (size_t i = 0; made != NULL && i < n_own; i++) {
        free(made[i]);
    }
    free(made);
}

/* The first *out_own entries are owned, the others borrowed. NULL: no memory. */
static char **environment_make(const struct action_context *context, size_t *out_own)
{
    struct belay_lock *lock = context->lock;
    uint64_t token = lock == NULL ? 0 : belay_lock_token(lock);
    char token_text[24];
    const char *values[OWN_VARIABLES] = { context->database,
                                          context->kind,
                                          lock == NULL ? NULL : belay_lock_key(lock),
                                          lock == NULL ? NULL : belay_lock_id(lock),
                                          token == 0 ? NULL : token_text,
                                          context->store_url,
                                          NULL };
    size_t n = 0, at = 0;
    char **made;

    (void)snprintf(token_text, sizeof token_text, "%llu", (unsigned long long)token);
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        n++;
    }
    made = calloc(n + OWN_VARIABLES + 1, sizeof *made);
    for (size_t i = 0; made != NULL && i < OWN_VARIABLES; i++) {
        if (values[i] != NULL && (made[at++] = variable(own_names[i], values[i])) == NULL) {
            environment_free(made, at);
            return NULL;
        }
    }
    *out_own = at;
    for (size_t i = 0; made != NULL && i < n; i++) {
        if (!is_own_variable(environ[i])) {
            made[at++] = environ[i];
        }
    }
    return made;
}

/* ---- the process ---- */

/* Between fork() and exec(): async-signal-safe functions only. */
static void become(const struct action_step *step, char **environment, pid_t parent)
{
    sigset_t none;
    int null = open("/dev/null", O_RDONLY);

    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(CANNOT_RUN); /* the parent died before prctl() */
    }
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)dup2(null, STDIN_FILENO);
    (void)dup2(STDERR_FILENO, STDOUT_FILENO); /* standard output is for belay's own output */
    (void)close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    (void)execvpe(step->argv[0], (char *const *)step->argv, environment);
    _exit(CANNOT_RUN);
}

/* True, with *out_status, if the process ended within the timeout. */
static bool await_exit(pid_t pid, int fd, int timeout_ms, int *out_status)
{
    struct pollfd ready = { .fd = fd, .events = POLLIN };

    (void)poll(&ready, 1, timeout_ms);
    return waitpid(pid, out_status, WNOHANG) == pid;
}

/* TERM, a grace period, KILL; to the whole group. */
static void end_group(pid_t pid, int fd, int grace_ms)
{
    int status;

    (void)kill(-pid, SIGTERM);
    if (!await_exit(pid, fd, grace_ms, &status)) {
        (void)kill(-pid, SIGKILL);
        (void)waitpid(pid, &status, 0);
    } else {
        (void)kill(-pid, SIGKILL); /* its children may still run */
    }
}

static enum belay_code explain_status(const struct action_step *step, int status, struct belay_error *err)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return BELAY_OK;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT_RUN) {
        return error_set(err, BELAY_CONFIG, "command '%.100s' cannot be run", step->argv[0]);
    }
    if (WIFEXITED(status)) {
        return error_set(err, BELAY_UNREACHABLE, "command '%.100s' exited with %d", step->argv[0],
                         WEXITSTATUS(status));
    }
    return error_set(err, BELAY_UNREACHABLE, "command '%.100s' was killed by signal %d", step->argv[0],
                     WTERMSIG(status));
}

static enum belay_code watch(const struct action_step *step, const struct action_context *context, pid_t pid,
                             int fd, int64_t end_ms, struct belay_error *err)
{
    char limit[CLOCK_TEXT_SIZE];
    int64_t began_ms = clock_boot_ms();
    int status = 0;

    while (!await_exit(pid, fd, TICK_MS, &status)) {
        if (atomic_load(context->lost)) {
            end_group(pid, fd, GRACE_LOST_MS);
            return error_set(err, BELAY_LOST, "the lease was lost while command '%.100s' ran; it was stopped",
                             step->argv[0]);
        }
        if (context->cancel != NULL && belay_cancel_requested(context->cancel)) {
            end_group(pid, fd, GRACE_MS);
            return error_set(err, BELAY_CANCELLED, "command '%.100s' was stopped on request", step->argv[0]);
        }
        if (clock_boot_ms() >= end_ms) {
            end_group(pid, fd, GRACE_MS);
            return error_set(err, BELAY_UNREACHABLE, "command '%.100s' took longer than %s; it was stopped",
                             step->argv[0], clock_format_duration(limit, end_ms - began_ms));
        }
    }
    return explain_status(step, status, err);
}

enum belay_code action_run_command(const struct action_step *step, const struct action_context *context,
                                   int64_t timeout_ms, struct belay_error *err)
{
    size_t n_own = 0;
    char **environment = environment_make(context, &n_own);
    pid_t parent = getpid();
    enum belay_code code;
    pid_t pid;
    int fd;

    if (environment == NULL) {
        return error_no_memory(err);
    }
    pid = fork();
    if (pid == 0) {
        become(step, environment, parent);
    }
    if (pid < 0) {
        code = error_set(err, BELAY_UNREACHABLE, "command '%.100s' cannot be started: %s", step->argv[0],
                         strerror(errno));
    } else {
        (void)setpgid(pid, pid);                   /* parent and child both set it: either may be first */
        fd = (int)syscall(SYS_pidfd_open, pid, 0); /* glibc 2.36 has the function; belay runs with 2.34 */
        code = watch(step, context, pid, fd, clock_boot_ms() + timeout_ms, err);
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    environment_free(environment, n_own);
    return code;
}
