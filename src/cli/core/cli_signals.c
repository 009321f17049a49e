/* Signals that end a command: they request its cancellation. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli/core/cli.h"

enum { LEAVE_HINT_S = 1 };

static const int ending_signals[] = { SIGINT, SIGTERM, SIGHUP };
enum { N_ENDING = sizeof ending_signals / sizeof ending_signals[0] };

static volatile sig_atomic_t caught_signal;
static struct belay_cancel *signal_cancel;
static struct sigaction old_actions[N_ENDING];

static volatile sig_atomic_t may_leave;

static void catch_signal(int number)
{
    int saved = errno;

    if (may_leave && caught_signal == 0) {
        (void)alarm(LEAVE_HINT_S);
    } else if (may_leave) {
        (void)signal(number, SIG_DFL);
        (void)raise(number); /* it ends the process when this handler returns */
    }
    caught_signal = number;
    belay_cancel_request(signal_cancel);
    errno = saved;
}

struct belay_cancel *cli_cancel(struct cli_context *context)
{
    struct sigaction action;

    if (context->cancel != NULL) {
        return context->cancel;
    }
    context->cancel = belay_cancel_new();
    if (context->cancel == NULL) {
        return NULL;
    }
    assert(signal_cancel == NULL); /* one context per process */
    signal_cancel = context->cancel;
    memset(&action, 0, sizeof action);
    action.sa_handler = catch_signal;
    for (size_t i = 0; i < N_ENDING; i++) {
        (void)sigaction(ending_signals[i], NULL, &old_actions[i]);
        /* A signal that nohup or a background job ignores stays ignored. */
        if (old_actions[i].sa_handler != SIG_IGN) {
            (void)sigaction(ending_signals[i], &action, NULL);
        }
    }
    return context->cancel;
}

static void hint_to_leave(int number)
{
    static const char text[] =
        "belay: interrupted: waiting for the store to answer; interrupt again to leave at once\n";
    int saved = errno;

    (void)number;
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    errno = saved;
}

void cli_allow_leaving(void)
{
    struct sigaction action = { .sa_handler = hint_to_leave, .sa_flags = SA_RESTART };

    (void)sigaction(SIGALRM, &action, NULL);
    may_leave = 1;
}

void cli_forbid_leaving(void)
{
    may_leave = 0;
    (void)alarm(0);
}

int cli_signal(void)
{
    return caught_signal;
}

void cli_restore_signals(struct cli_context *context)
{
    if (context->cancel == NULL) {
        return;
    }
    for (size_t i = 0; i < N_ENDING; i++) {
        (void)sigaction(ending_signals[i], &old_actions[i], NULL);
    }
    signal_cancel = NULL;
    belay_cancel_free(context->cancel);
    context->cancel = NULL;
}
