#include "cli/core/wait_display.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/saturate.h"
#include "cli/output/print.h"

struct wait_display {
    const char *key; /* borrowed; not escaped */
    bool on_terminal;
    pthread_t ticker;
    bool ticking;

    pthread_mutex_t mutex; /* guards the rest */
    pthread_cond_t changed;
    bool done;
    bool shown; /* a line was printed */
    int attempt;
    struct buf holder;
    struct buf frozen; /* why the key is frozen; empty: it is not */
    size_t position;
    int64_t ends_boot_ms; /* of the holder's lease */
    int64_t retry_boot_ms;
};

struct wait_display *wait_display_new(const struct cli_context *context, const char *key)
{
    struct wait_display *display = context->quiet || context->json ? NULL : calloc(1, sizeof *display);

    if (display != NULL) {
        display->key = key;
        display->holder = (struct buf)BUF_INIT(4096);
        display->frozen = (struct buf)BUF_INIT(4096);
        (void)pthread_mutex_init(&display->mutex, NULL);
        (void)pthread_cond_init(&display->changed, NULL);
    }
    return display;
}

/* Rounded up, like a countdown: "1s" until it is over. */
static char *whole_seconds(char out[CLOCK_TEXT_SIZE], int64_t ms)
{
    return clock_format_span(out, (ms + 999) / 1000 * 1000);
}

/*
 * "Lock held, 4m 12s left, 2 ahead in the queue, retrying in 5s… 'key' by alice": what changes comes first, so that
 * a narrow terminal truncates the names.
 */
static void rewrite_line(struct wait_display *display)
{
    struct buf text = BUF_INIT(1 << 16);
    struct buf line = BUF_INIT(1 << 16);
    char span[CLOCK_TEXT_SIZE];
    int64_t now = clock_boot_ms();
    size_t columns = print_columns(STDERR_FILENO);

    buf_adds(&text, display->frozen.len > 0 ? "Lock frozen" : "Lock held");
    if (display->ends_boot_ms > now) {
        buf_addf(&text, ", %s left", whole_seconds(span, display->ends_boot_ms - now));
    }
    if (display->position > 0) {
        buf_addf(&text, ", %zu ahead in the queue", display->position);
    }
    if (display->retry_boot_ms > now) {
        buf_addf(&text, ", retrying in %s", whole_seconds(span, display->retry_boot_ms - now));
    }
    buf_adds(&text, "… '");
    if (display->frozen.len > 0) {
        text.len--; /* the text has the key */
        buf_adds(&text, display->frozen.data);
    } else {
        escape_text(&text, display->key);
        buf_addf(&text, "' by %s", display->holder.data == NULL ? "?" : display->holder.data);
    }
    /* Leave the last column free: some terminals wrap when it is written. */
    truncate_text(&line, text.failed ? "Lock held" : text.data, columns > 1 ? columns - 1 : 1);
    if (!line.failed) {
        (void)fprintf(stderr, "\r\033[K%s", line.data);
        (void)fflush(stderr);
        display->shown = true;
    }
    buf_release(&line);
    buf_release(&text);
}

static void *tick(void *context)
{
    struct wait_display *display = context;

    (void)pthread_mutex_lock(&display->mutex);
    while (!display->done) {
        struct timespec until;

        rewrite_line(display);
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        (void)pthread_cond_timedwait(&display->changed, &display->mutex, &until);
    }
    (void)pthread_mutex_unlock(&display->mutex);
    return NULL;
}

/* The thread that waits handles signals; the ticker blocks them. */
static void start_ticker(struct wait_display *display)
{
    sigset_t all;
    sigset_t before;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    display->ticking = pthread_create(&display->ticker, NULL, tick, display) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void print_line_per_attempt(struct wait_display *display, const struct belay_wait_info *now)
{
    char span[CLOCK_TEXT_SIZE];

    if (display->shown && display->attempt == now->attempt) {
        return;
    }
    if (!display->shown && display->frozen.len > 0) {
        (void)fprintf(stderr, "belay: waiting for %s\n", display->frozen.data);
    } else if (!display->shown) {
        (void)fputs("belay: waiting for '", stderr);
        print_escaped(stderr, display->key);
        (void)fprintf(stderr, "', held by %s\n", display->holder.data == NULL ? "?" : display->holder.data);
    }
    if (now->retry_ms > 0) {
        (void)fprintf(stderr, "Lock %s, retrying in %s…\n", display->frozen.len > 0 ? "frozen" : "held",
                      whole_seconds(span, now->retry_ms));
    }
    display->shown = true;
    display->attempt = now->attempt;
}

void wait_display_update(void *context, const struct belay_wait_info *now)
{
    struct wait_display *display = context;
    int64_t boot_ms = clock_boot_ms();

    if (display == NULL) {
        return;
    }
    display->on_terminal = print_columns(STDERR_FILENO) > 0;
    (void)pthread_mutex_lock(&display->mutex);
    buf_release(&display->holder);
    buf_release(&display->frozen);
    if (now->frozen != NULL) {
        escape_text(&display->frozen, now->frozen);
        display->ends_boot_ms = 0;
    }
    if (now->holder != NULL) {
        print_holder_short(&display->holder, now->holder);
        display->ends_boot_ms = add_saturated(boot_ms, now->holder->expires_in_ms);
    }
    display->position = now->position;
    display->retry_boot_ms = add_saturated(boot_ms, now->retry_ms);
    if (!display->on_terminal) {
        print_line_per_attempt(display, now);
    }
    (void)pthread_cond_signal(&display->changed);
    (void)pthread_mutex_unlock(&display->mutex);
    if (display->on_terminal && !display->ticking) {
        start_ticker(display);
    }
}

void wait_display_free(struct wait_display *display)
{
    if (display == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&display->mutex);
    display->done = true;
    (void)pthread_cond_signal(&display->changed);
    (void)pthread_mutex_unlock(&display->mutex);
    if (display->ticking) {
        (void)pthread_join(display->ticker, NULL);
    }
    if (display->on_terminal && display->shown) {
        (void)fputs("\r\033[K", stderr);
    }
    (void)pthread_cond_destroy(&display->changed);
    (void)pthread_mutex_destroy(&display->mutex);
    buf_release(&display->holder);
    buf_release(&display->frozen);
    free(display);
}
