#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "base/pool.h"
#include "cli/commands/commands.h"
#include "cli/core/lock_options.h"
#include "cli/output/print.h"

static bool watch_event(void *context, const struct belay_event *event)
{
    const struct cli_context *cli = context;

    print_event(stdout, event, cli->json, cli->color_out);
    /* The reader of a pipe wants each event at once. */
    return fflush(stdout) == 0;
}

/*
 * A thread polls the output pipe: if events are rare, a write would notice only much later that the reader is
 * gone.
 */
struct reader_watch {
    struct belay_cancel *cancel; /* borrowed */
    int stop_pipe[2];            /* closing its write end stops the thread */
    pthread_t thread;
    bool started;
};

static void *watch_reader(void *context)
{
    const struct reader_watch *watch = context;
    struct pollfd ends[2] = { { .fd = STDOUT_FILENO, .events = 0 },
                              { .fd = watch->stop_pipe[0], .events = POLLIN } };

    while (poll(ends, 2, -1) >= 0 || errno == EINTR) {
        if (ends[1].revents != 0) {
            break;
        }
        if ((ends[0].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) {
            belay_cancel_request(watch->cancel);
            break;
        }
    }
    return NULL;
}

static void start_reader_watch(struct reader_watch *watch, struct belay_cancel *cancel)
{
    watch->cancel = cancel;
    watch->started = false;
    if (cancel == NULL || pipe2(watch->stop_pipe, O_CLOEXEC) != 0) {
        return;
    }
    watch->started = thread_start(&watch->thread, watch_reader, watch);
    if (!watch->started) {
        (void)close(watch->stop_pipe[0]);
        (void)close(watch->stop_pipe[1]);
    }
}

static void stop_reader_watch(struct reader_watch *watch)
{
    if (watch->started) {
        (void)close(watch->stop_pipe[1]);
        (void)pthread_join(watch->thread, NULL);
        (void)close(watch->stop_pipe[0]);
    }
}

/* Ctrl-C and a closed pipe are the normal ends of a watch: no message, even if the store did not answer. */
static int end_watch(const struct cli_context *context, enum belay_code code, const struct belay_error *err)
{
    if (code != BELAY_OK && code != BELAY_CANCELLED && cli_signal() == 0) {
        return cli_error(context, err);
    }
    return cli_signal() == 0 ? CLI_UNKNOWN : cli_exit_code(BELAY_CANCELLED);
}

static int exec_watch(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    struct belay_client *client;
    struct belay_cancel *cancel;
    struct reader_watch reader;
    enum belay_code code;
    int status;

    if (cli_existing_client(context, &client, err) != BELAY_OK) {
        status = cli_error(context, err);
    } else {
        cancel = cli_cancel(context);
        start_reader_watch(&reader, cancel);
        cli_allow_leaving();
        code = belay_watch(client, options_text(options, "prefix"), 0, watch_event, context, cancel, err);
        cli_forbid_leaving();
        stop_reader_watch(&reader);
        status = end_watch(context, code, err);
    }
    return status;
}

const struct cli_command cmd_watch = {
    .name = "watch",
    .synopsis = "[--prefix P]",
    .summary = "print events as they happen",
    .about = "Prints one line for every event from now on: acquired, adopted, reentered, renewed, released, "
             "refused, taken over, stale, lost, forced, the start and end of every wait and of every freeze, "
             "and stops and starts of shared databases. On PostgreSQL, events of other processes come up to "
             "half a second late. With --json each line is an object with the "
             "fields of 'belay history'. It runs until Ctrl-C, or until the reader of its output is gone.",
    .groups = { &prefix_group },
    .exits = { CLI_EXIT_USAGE,
               { 66, "the store keeps no events, or its path does not exist" },
               CLI_EXIT_UNREACHABLE,
               { 74, "standard output cannot be written" },
               { 130, "ended by Ctrl-C" } },
    .examples = { { "belay watch --prefix deploy-", "follow the deployments" },
                  { "belay watch --json | jq -r .event", "for a program" } },
    .exec = exec_watch,
};
