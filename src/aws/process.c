#include "aws/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

struct pipes {
    int out[2];
    int errors[2];
};

static void close_all(struct pipes *pipes)
{
    int *all[] = { &pipes->out[0], &pipes->out[1], &pipes->errors[0], &pipes->errors[1] };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (*all[i] >= 0) {
            (void)close(*all[i]);
            *all[i] = -1;
        }
    }
}

static int spawn(char *const arguments[], const struct pipes *pipes, pid_t *out_pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigset_t defaults;
    int rc;

    (void)sigemptyset(&none);
    (void)sigemptyset(&defaults);
    (void)sigaddset(&defaults, SIGPIPE);
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawnattr_init(&attributes);
    /* In the same process group: it may prompt on the terminal, and Ctrl-C ends both. */
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    (void)posix_spawnattr_setsigmask(&attributes, &none);
    (void)posix_spawnattr_setsigdefault(&attributes, &defaults);
    rc = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (rc == 0) {
        rc = posix_spawn_file_actions_adddup2(&actions, pipes->out[1], 1);
    }
    if (rc == 0) {
        rc = posix_spawn_file_actions_adddup2(&actions, pipes->errors[1], 2);
    }
    if (rc == 0) {
        rc = posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    }
    if (rc == 0) {
        rc = posix_spawnp(out_pid, arguments[0], &actions, &attributes, arguments, environ);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)posix_spawnattr_destroy(&attributes);
    return rc;
}

/* Reads some bytes of one pipe; false at its end. `keep_all`: more bytes than fit are an error. */
static bool drain(int fd, struct buf *into, bool keep_all, bool *out_overflow)
{
    char block[4096];
    ssize_t n = read(fd, block, sizeof block);
    size_t room = into->max - into->len;
    bool fits = n <= 0 || (size_t)n <= room;

    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
        return true;
    }
    if (n > 0) {
        buf_add(into, block, fits ? (size_t)n : room);
    }
    explicit_bzero(block, sizeof block); /* it may contain a secret */
    *out_overflow = *out_overflow || (!fits && keep_all);
    return n > 0 && (fits || !keep_all);
}

/* Reads both pipes to their ends; false after the deadline. */
static bool read_both(const struct pipes *pipes, int64_t deadline_ms, struct buf *out, struct buf *errors,
                      bool *out_overflow)
{
    struct pollfd fds[2] = { { pipes->out[0], POLLIN, 0 }, { pipes->errors[0], POLLIN, 0 } };

    while ((fds[0].fd >= 0 || fds[1].fd >= 0) && !*out_overflow) {
        int64_t left = deadline_ms - clock_boot_ms();
        int n = left <= 0 ? 0 : poll(fds, 2, (int)left);

        if (left <= 0 || (n < 0 && errno != EINTR)) {
            return false;
        }
        for (int i = 0; n > 0 && i < 2; i++) {
            if (fds[i].revents != 0 && !drain(fds[i].fd, i == 0 ? out : errors, i == 0, out_overflow)) {
                fds[i].fd = -1; /* poll() ignores it from now on */
            }
        }
    }
    return true;
}

/* Waits for its end; kills it after the deadline. Returns its status. */
static int process_reap(pid_t pid, bool in_time, int64_t deadline_ms)
{
    int status = 0;

    while (in_time) {
        pid_t done = waitpid(pid, &status, WNOHANG);

        if (done == pid || (done < 0 && errno != EINTR)) {
            break;
        }
        in_time = clock_boot_ms() < deadline_ms;
        (void)poll(NULL, 0, 5);
    }
    if (!in_time) {
        (void)kill(pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

enum belay_code process_run(char *const arguments[], int64_t timeout_ms, struct buf *out, struct buf *errors,
                            int *out_status, struct belay_error *err)
{
    struct pipes pipes = { { -1, -1 }, { -1, -1 } };
    int64_t deadline_ms = clock_boot_ms() + timeout_ms;
    enum belay_code code = BELAY_OK;
    bool overflow = false;
    bool in_time;
    pid_t pid;
    int rc;

    if (pipe2(pipes.out, O_CLOEXEC) < 0 || pipe2(pipes.errors, O_CLOEXEC) < 0) {
        code = error_set(err, BELAY_UNREACHABLE, "cannot run '%s': %s", arguments[0], strerror(errno));
        goto done;
    }
    rc = spawn(arguments, &pipes, &pid);
    if (rc != 0) {
        code = error_set(err, BELAY_CONFIG, "cannot run '%s': %s", arguments[0], strerror(rc));
        goto done;
    }
    (void)close(pipes.out[1]);
    (void)close(pipes.errors[1]);
    pipes.out[1] = pipes.errors[1] = -1;
    in_time = read_both(&pipes, deadline_ms, out, errors, &overflow);
    *out_status = process_reap(pid, in_time && !overflow, deadline_ms);
    if (overflow) {
        code = error_set(err, BELAY_BAD_CONTENT, "'%s' printed more than %zu bytes", arguments[0], out->max);
    } else if (!in_time) {
        code = error_set(err, BELAY_UNREACHABLE, "'%s' did not end within %lld s", arguments[0],
                         (long long)timeout_ms / 1000);
    } else if (out->failed) {
        code = error_no_memory(err);
    }

done:
    close_all(&pipes);
    return code;
}
