#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/event_line.h"

static bool on_event(void *context, const struct belay_event *event)
{
    const struct cli_context *cli = context;

    event_line(stdout, event, cli->json, cli->color_out);
    /* Whoever reads a pipe wants it now. */
    return fflush(stdout) == 0;
}

/* When events are rare, a reader that went away would be noticed only by the second next one. */
static void *watch_reader(void *context)
{
    struct pollfd reader = { .fd = STDOUT_FILENO, .events = 0 };

    while (poll(&reader, 1, -1) >= 0) {
        if ((reader.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) {
            belay_cancel_request(context);
            break;
        }
    }
    return NULL;
}

static bool start_reader_watch(struct belay_cancel *cancel, pthread_t *out_thread)
{
    sigset_t all;
    sigset_t before;
    bool started;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    started = pthread_create(out_thread, NULL, watch_reader, cancel) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

static int end_watch(const struct cli_context *context, enum belay_code code, const struct belay_error *err)
{
    /* Ctrl-C is how one ends a watch, and a closed pipe is too: neither is worth a message. */
    if (code == BELAY_CANCELLED || ferror(stdout)) {
        return cli_signal() == 0 ? CLI_UNKNOWN : cli_exit_code(BELAY_CANCELLED);
    }
    return code == BELAY_OK ? CLI_OK : cli_error(context, err);
}

static int exec_watch(struct cli_context *context, const struct options *options)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_client *client;
    struct belay_cancel *cancel;
    pthread_t reader;
    bool watching;
    int code;

    if (cli_client(context, &client, &err) != BELAY_OK) {
        code = cli_error(context, &err);
        belay_error_release(&err);
        return code;
    }
    cancel = cli_cancel(context);
    watching = cancel != NULL && start_reader_watch(cancel, &reader);
    code = end_watch(context,
                     belay_watch(client, options_text(options, "prefix"), 0, on_event, context, cancel, &err),
                     &err);
    if (watching) {
        (void)pthread_cancel(reader);
        (void)pthread_join(reader, NULL);
    }
    belay_error_release(&err);
    return code;
}

static const struct option_def defs[] = {
    { .name = "prefix",
      .kind = OPTION_TEXT,
      .value = "P",
      .complete = COMPLETE_KEY,
      .help = "only locks whose key begins with P" },
    { .name = NULL },
};
static const struct option_group group = { "Options", defs };

const struct cli_command cmd_watch = {
    .name = "watch",
    .synopsis = "[--prefix P]",
    .summary = "show what happens to locks, as it happens",
    .about =
        "Prints one line for every event from now on: acquired, renewed, released, refused, lost, forced, "
        "and the begin and end of every wait. With --json each line is an object with the fields of "
        "'belay history'. It ends with Ctrl-C, or when nobody reads its output any more.",
    .groups = { &group },
    .exits = { { 64, "the command line is wrong" },
               { 69, "the store could not be reached" },
               { 74, "standard output could not be written" },
               { 130, "ended by Ctrl-C" } },
    .examples = { { "belay watch --prefix deploy-", "follow the deploys" },
                  { "belay watch --json | jq -r .event", "for a program" } },
    .exec = exec_watch,
};
