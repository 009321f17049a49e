#include "cli/core/waiting.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/saturate.h"
#include "cli/output/print.h"

struct waiting {
    char *key; /* owned; escaped */
    bool on_terminal;
    pthread_t ticker;
    bool ticking;

    pthread_mutex_t mutex; /* guards the rest */
    pthread_cond_t changed;
    bool done;
    bool shown; /* there is a line to take away */
    int attempt;
    struct buf holder;
    size_t position;
    int64_t ends_boot_ms; /* of the holder's lease */
    int64_t retry_boot_ms;
};

struct waiting *waiting_new(const struct cli_context *context, const char *key)
{
    struct waiting *waiting;
    struct buf escaped = BUF_INIT(1 << 16);

    if (context->quiet || context->json) {
        return NULL;
    }
    waiting = calloc(1, sizeof *waiting);
    print_escape(&escaped, key);
    if (waiting == NULL || (waiting->key = buf_take(&escaped)) == NULL) {
        buf_release(&escaped);
        free(waiting);
        return NULL;
    }
    waiting->on_terminal = print_columns(STDERR_FILENO) > 0;
    waiting->holder = (struct buf)BUF_INIT(4096);
    (void)pthread_mutex_init(&waiting->mutex, NULL);
    (void)pthread_cond_init(&waiting->changed, NULL);
    return waiting;
}

/* Rounded up, as a countdown is: it says 1s until it is over. */
static char *whole_seconds(char out[CLOCK_TEXT_SIZE], int64_t ms)
{
    return clock_format_span(out, (ms + 999) / 1000 * 1000);
}

/*
 * "Lock held, 4m 12s left, 2 before us, retrying in 5s… 'key' by alice" in one
 * row: what changes comes first, so that a narrow terminal cuts the names.
 */
static void rewrite(struct waiting *waiting)
{
    struct buf text = BUF_INIT(1 << 16);
    struct buf line = BUF_INIT(1 << 16);
    char span[CLOCK_TEXT_SIZE];
    int64_t now = clock_boot_ms();
    size_t columns = print_columns(STDERR_FILENO);

    buf_adds(&text, "Lock held");
    if (waiting->ends_boot_ms > now) {
        buf_addf(&text, ", %s left", whole_seconds(span, waiting->ends_boot_ms - now));
    }
    if (waiting->position > 0) {
        buf_addf(&text, ", %zu before us", waiting->position);
    }
    if (waiting->retry_boot_ms > now) {
        buf_addf(&text, ", retrying in %s", whole_seconds(span, waiting->retry_boot_ms - now));
    }
    buf_addf(&text, "… '%s' by %s", waiting->key, waiting->holder.data == NULL ? "?" : waiting->holder.data);
    /* The last column stays free: some terminals wrap as soon as it is written. */
    print_cut(&line, text.failed ? waiting->key : text.data, columns > 1 ? columns - 1 : 1);
    if (!line.failed) {
        (void)fprintf(stderr, "\r\033[K%s", line.data);
        (void)fflush(stderr);
        waiting->shown = true;
    }
    buf_release(&line);
    buf_release(&text);
}

static void *tick(void *context)
{
    struct waiting *waiting = context;

    (void)pthread_mutex_lock(&waiting->mutex);
    while (!waiting->done) {
        struct timespec until;

        rewrite(waiting);
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        (void)pthread_cond_timedwait(&waiting->changed, &waiting->mutex, &until);
    }
    (void)pthread_mutex_unlock(&waiting->mutex);
    return NULL;
}

/* Signals belong to the thread that waits: the ticker takes none. */
static void start_ticker(struct waiting *waiting)
{
    sigset_t all;
    sigset_t before;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    waiting->ticking = pthread_create(&waiting->ticker, NULL, tick, waiting) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void say_line(struct waiting *waiting, const struct belay_wait_info *now)
{
    char span[CLOCK_TEXT_SIZE];

    if (waiting->shown && waiting->attempt == now->attempt) {
        return;
    }
    if (!waiting->shown) {
        (void)fprintf(stderr, "belay: waiting for '%s', held by %s\n", waiting->key,
                      waiting->holder.data == NULL ? "?" : waiting->holder.data);
    }
    if (now->retry_ms > 0) {
        (void)fprintf(stderr, "Lock held, retrying in %s…\n", whole_seconds(span, now->retry_ms));
    }
    waiting->shown = true;
    waiting->attempt = now->attempt;
}

void waiting_show(void *context, const struct belay_wait_info *now)
{
    struct waiting *waiting = context;
    int64_t boot_ms = clock_boot_ms();

    if (waiting == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&waiting->mutex);
    buf_release(&waiting->holder);
    if (now->holder != NULL) {
        print_holder_short(&waiting->holder, now->holder);
        waiting->ends_boot_ms = add_saturated(boot_ms, now->holder->expires_in_ms);
    }
    waiting->position = now->position;
    waiting->retry_boot_ms = add_saturated(boot_ms, now->retry_ms);
    if (!waiting->on_terminal) {
        say_line(waiting, now);
    }
    (void)pthread_cond_signal(&waiting->changed);
    (void)pthread_mutex_unlock(&waiting->mutex);
    if (waiting->on_terminal && !waiting->ticking) {
        start_ticker(waiting);
    }
}

void waiting_free(struct waiting *waiting)
{
    if (waiting == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&waiting->mutex);
    waiting->done = true;
    (void)pthread_cond_signal(&waiting->changed);
    (void)pthread_mutex_unlock(&waiting->mutex);
    if (waiting->ticking) {
        (void)pthread_join(waiting->ticker, NULL);
    }
    if (waiting->on_terminal && waiting->shown) {
        (void)fputs("\r\033[K", stderr);
    }
    (void)pthread_cond_destroy(&waiting->changed);
    (void)pthread_mutex_destroy(&waiting->mutex);
    buf_release(&waiting->holder);
    free(waiting->key);
    free(waiting);
}
