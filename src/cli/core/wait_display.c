#include "cli/core/wait_display.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/saturate.h"
#include "cli/core/deploy_info.h"
#include "cli/output/print.h"

enum { EVERY_MS = 60000, HOLDS_MIN = 3 };

struct wait_display {
    const char *key; /* borrowed; not escaped */
    enum wait_kind kind;
    struct belay_client *client; /* borrowed */
    bool in_ci;                  /* a CI job may have a terminal, but people read its log */
    bool on_terminal;
    int64_t every_ms; /* without a terminal: between two lines */
    pthread_t ticker;
    bool ticking;

    pthread_mutex_t mutex; /* guards the rest */
    pthread_cond_t changed;
    bool done;
    bool shown; /* a line was printed */
    int attempt;
    struct buf holder;
    struct buf frozen;     /* why the key is frozen; empty: it is not */
    struct buf url;        /* of the holder's CI job; empty: not known */
    int64_t since_unix_ms; /* when the holder acquired the lock */
    size_t position;
    int64_t ends_boot_ms; /* of the holder's lease */
    int64_t retry_boot_ms;
    struct buf holder_key;  /* of the lock in the way; empty: it may have several holders */
    struct buf counted_key; /* whose hold times `held` are */
    struct belay_durations held;
};

/* A value that is no duration, or none that makes sense, is as if there were none: a wait must not fail for it. */
static int64_t progress_every_ms(void)
{
    const char *text = getenv("BELAY_PROGRESS_EVERY");
    int64_t ms;

    return text != NULL && belay_parse_duration(text, &ms) && ms >= 100 ? ms : EVERY_MS;
}

static bool is_ci_job(void)
{
    char *owner = deploy_info_ci_owner();
    bool is_job = owner != NULL;

    free(owner);
    return is_job;
}

struct wait_display *wait_display_new(const struct cli_context *context, const char *key, enum wait_kind kind)
{
    struct wait_display *display = context->quiet || context->json ? NULL : calloc(1, sizeof *display);

    if (display != NULL) {
        display->key = key;
        display->kind = kind;
        display->in_ci = is_ci_job();
        display->client = context->client;
        display->every_ms = progress_every_ms();
        display->holder = (struct buf)BUF_INIT(4096);
        display->frozen = (struct buf)BUF_INIT(4096);
        display->url = (struct buf)BUF_INIT(4096);
        display->holder_key = (struct buf)BUF_INIT(4096);
        display->counted_key = (struct buf)BUF_INIT(4096);
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

static void add_ordinal(struct buf *line, size_t n)
{
    size_t unit = n % 100 / 10 == 1 ? 0 : n % 10; /* 11th, 12th, 13th */

    buf_addf(line, "%zu%s", n, unit == 1 ? "st" : unit == 2 ? "nd" : unit == 3 ? "rd" : "th");
}

static void add_held_for(struct buf *text, const struct wait_display *display)
{
    int64_t held_ms = clock_unix_ms() - display->since_unix_ms;
    char span[CLOCK_TEXT_SIZE];

    if (display->since_unix_ms > 0) {
        buf_addf(text, " for %s", clock_format_span(span, held_ms < 0 ? 0 : held_ms / 1000 * 1000));
    }
}

/* ", about 4m to go (estimate)": the holder, then each waiter ahead, is taken to need the median of earlier holds. */
static void add_estimate(struct buf *text, const struct wait_display *display)
{
    int64_t so_far_ms = clock_unix_ms() - display->since_unix_ms;
    int64_t median_ms = display->held.median_ms;
    char span[CLOCK_TEXT_SIZE];

    if (display->held.count < HOLDS_MIN || display->since_unix_ms <= 0 || so_far_ms < 0 ||
        display->holder_key.len == 0) {
        return;
    }
    if (so_far_ms >= median_ms) {
        buf_adds(text, ", longer than usual");
        return;
    }
    buf_addf(
        text, ", about %s to go (estimate)",
        whole_seconds(span, add_saturated(median_ms - so_far_ms, (int64_t)display->position * median_ms)));
}

/*
 * "2nd in the queue, about 5m to go (estimate), held for 4m 10s by alice (3m 2s left) 'key'": what changes comes first, so that a narrow
 * terminal truncates the names.
 */
static void rewrite_line(struct wait_display *display)
{
    struct buf text = BUF_INIT(1 << 16);
    struct buf line = BUF_INIT(1 << 16);
    char span[CLOCK_TEXT_SIZE];
    int64_t now = clock_boot_ms();
    size_t columns = print_columns(STDERR_FILENO);

    if (display->kind == WAIT_UNQUEUED) {
        buf_adds(&text, "Waiting");
    } else {
        add_ordinal(&text, display->position + 1);
        buf_adds(&text, " in the queue");
    }
    if (display->kind == WAIT_COUNTED && display->retry_boot_ms > now) {
        buf_addf(&text, ", retrying in %s", whole_seconds(span, display->retry_boot_ms - now));
    }
    if (display->frozen.len > 0) {
        buf_addf(&text, ": %s", display->frozen.data);
    } else {
        add_estimate(&text, display);
        buf_adds(&text, ", held");
        add_held_for(&text, display);
        buf_addf(&text, " by %s", display->holder.data == NULL ? "?" : display->holder.data);
        if (display->ends_boot_ms > now) {
            buf_addf(&text, " (%s left)", whole_seconds(span, display->ends_boot_ms - now));
        }
        buf_adds(&text, " '");
        escape_text(&text, display->key);
        buf_adds(&text, "'");
    }
    /* Leave the last column free: some terminals wrap when it is written. */
    truncate_text(&line, text.failed ? "Waiting" : text.data, columns > 1 ? columns - 1 : 1);
    if (!line.failed) {
        (void)fprintf(stderr, "\r\033[K%s", line.data);
        (void)fflush(stderr);
        display->shown = true;
    }
    buf_release(&line);
    buf_release(&text);
}

/* "2nd in the queue for 'key', held by alice for 4m 10s (https://ci.example/812)" */
static void print_line(struct wait_display *display)
{
    struct buf line = BUF_INIT(1 << 16);

    if (display->kind != WAIT_UNQUEUED) {
        add_ordinal(&line, display->position + 1);
        buf_adds(&line, " in the queue for ");
    } else {
        buf_adds(&line, "waiting for ");
    }
    if (display->frozen.len > 0) {
        buf_adds(&line, display->frozen.data);
    } else {
        buf_adds(&line, "'");
        escape_text(&line, display->key);
        buf_addf(&line, "', held by %s", display->holder.data == NULL ? "?" : display->holder.data);
        add_held_for(&line, display);
        if (display->url.len > 0) {
            buf_addf(&line, " (%s)", display->url.data);
        }
    }
    if (!line.failed) {
        (void)fprintf(stderr, "belay: %s\n", line.data);
        (void)fflush(stderr);
    }
    buf_release(&line);
}

static void pause_ms(struct wait_display *display, int64_t ms)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&display->changed, &display->mutex, &until);
}

/* Read how long the lock in the way was held before. False: nothing new. With the mutex, which is free meanwhile. */
static bool count_holds(struct wait_display *display)
{
    struct belay_stats_query query = BELAY_STATS_QUERY_INIT;
    struct belay_stats *stats = NULL;

    if (display->holder_key.len == 0 || !belay_client_is_local(display->client) ||
        belay_client_server_pid(display->client) != 0 ||
        (display->counted_key.len > 0 && strcmp(display->counted_key.data, display->holder_key.data) == 0)) {
        return false;
    }
    buf_release(&display->counted_key);
    buf_adds(&display->counted_key, display->holder_key.data);
    query.key = display->counted_key.data;
    (void)pthread_mutex_unlock(&display->mutex);
    if (query.key != NULL) {
        (void)belay_stats(display->client, &query, &stats, NULL);
    }
    (void)pthread_mutex_lock(&display->mutex);
    display->held.count = 0;
    if (stats != NULL) {
        display->held = stats->total.held;
    }
    belay_stats_free(stats);
    return true;
}

static void *tick(void *context)
{
    struct wait_display *display = context;
    int64_t next_boot_ms = clock_boot_ms() + display->every_ms;

    (void)pthread_mutex_lock(&display->mutex);
    while (!display->done) {
        int64_t left_ms = next_boot_ms - clock_boot_ms();

        if (display->on_terminal) {
            rewrite_line(display);
            if (count_holds(display)) {
                rewrite_line(display);
            }
            left_ms = 1000;
        } else if (left_ms <= 0) {
            print_line(display);
            left_ms = display->every_ms;
            next_boot_ms = clock_boot_ms() + left_ms;
        }
        pause_ms(display, left_ms);
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
    if (!display->shown) {
        print_line(display);
    }
    if (display->kind == WAIT_COUNTED && now->retry_ms > 0) {
        (void)fprintf(stderr, "Lock %s, retrying in %s…\n", display->frozen.len > 0 ? "frozen" : "held",
                      whole_seconds(span, now->retry_ms));
    }
    display->shown = true;
    display->attempt = now->attempt;
}

/* What is known of the holder, for the line that is printed now or in a minute. */
static void take_holder(struct wait_display *display, const struct belay_info *holder, int64_t boot_ms)
{
    buf_release(&display->url);
    buf_release(&display->holder_key);
    if (holder->mode == BELAY_EXCLUSIVE) {
        buf_adds(&display->holder_key, holder->key);
    }
    print_holder_short(&display->holder, holder);
    display->ends_boot_ms = add_saturated(boot_ms, holder->expires_in_ms);
    display->since_unix_ms = holder->locked_at_unix_ms;
    for (size_t i = 0; i < holder->n_metadata; i++) {
        if (strcmp(holder->metadata[i].name, "ci_url") == 0) {
            escape_text(&display->url, holder->metadata[i].value);
        }
    }
}

void wait_display_update(void *context, const struct belay_wait_info *now)
{
    struct wait_display *display = context;
    int64_t boot_ms = clock_boot_ms();

    if (display == NULL) {
        return;
    }
    display->on_terminal = !display->in_ci && print_columns(STDERR_FILENO) > 0;
    (void)pthread_mutex_lock(&display->mutex);
    buf_release(&display->holder);
    buf_release(&display->frozen);
    if (now->frozen != NULL) {
        escape_text(&display->frozen, now->frozen);
        display->ends_boot_ms = 0;
    }
    if (now->holder != NULL) {
        take_holder(display, now->holder, boot_ms);
    }
    display->position = now->position;
    display->retry_boot_ms = add_saturated(boot_ms, now->retry_ms);
    if (!display->on_terminal) {
        print_line_per_attempt(display, now);
    }
    (void)pthread_cond_signal(&display->changed);
    (void)pthread_mutex_unlock(&display->mutex);
    if (!display->ticking) {
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
    buf_release(&display->url);
    buf_release(&display->holder_key);
    buf_release(&display->counted_key);
    free(display);
}
