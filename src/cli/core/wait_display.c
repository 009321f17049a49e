#include "cli/core/wait_display.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/pool.h"
#include "base/saturate.h"
#include "base/text.h"
#include "cli/core/deploy_info.h"
#include "cli/output/print.h"

enum { EVERY_MS = 60000, SOON_MS = 100, TURNS_MAX = 1000 };

/*
 * A request for the past holds of a lock. It has a thread of its own, because a store that hangs must delay neither the
 * line nor the end of the wait. The display or the thread frees it, whichever is done with it last.
 */
struct holds_query {
    struct cli_context *context; /* borrowed; its client stays open until the thread has ended */
    char *key;                   /* owned */
    pthread_mutex_t mutex;       /* guards the rest */
    bool is_done;
    bool is_abandoned;
    struct belay_holds holds;
};

struct wait_display {
    const char *key; /* borrowed; not escaped */
    enum wait_kind kind;
    struct cli_context *context; /* borrowed */
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
    struct belay_info lock;    /* in the way: what the estimate needs, without texts; its holders are owned */
    struct buf lock_key;       /* of that lock; empty: not known */
    struct holds_query *query; /* owned, see there; NULL: none */
};

/* A wait must not fail because of a wrong value: that is only a warning. */
static int64_t progress_every_ms(const struct cli_context *context)
{
    const char *text = env_text("BELAY_PROGRESS_EVERY");
    int64_t ms = EVERY_MS;

    if (text != NULL && (!belay_parse_duration(text, &ms) || ms < 100)) {
        cli_warn(context,
                 "BELAY_PROGRESS_EVERY: '%.60s' is not a duration of at least 100ms, such as 30s: it is 1m",
                 text);
        ms = EVERY_MS;
    }
    return ms;
}

struct wait_display *wait_display_new(struct cli_context *context, const char *key, enum wait_kind kind)
{
    struct wait_display *display = context->quiet || context->json ? NULL : calloc(1, sizeof *display);

    if (display != NULL) {
        display->key = key;
        display->kind = kind;
        display->context = context;
        display->in_ci = deploy_info_in_ci();
        display->every_ms = progress_every_ms(context);
        display->holder = (struct buf)BUF_INIT(4096);
        display->frozen = (struct buf)BUF_INIT(4096);
        display->url = (struct buf)BUF_INIT(4096);
        display->lock_key = (struct buf)BUF_INIT(4096);
        (void)pthread_mutex_init(&display->mutex, NULL);
        cond_init(&display->changed);
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

static bool has_place(const struct wait_display *display)
{
    return display->kind != WAIT_UNQUEUED && display->position != BELAY_POSITION_UNKNOWN;
}

static void add_held_for(struct buf *text, const struct wait_display *display)
{
    int64_t held_ms = clock_unix_ms() - display->since_unix_ms;
    char span[CLOCK_TEXT_SIZE];

    if (display->since_unix_ms > 0) {
        buf_addf(text, " for %s", clock_format_span(span, held_ms < 0 ? 0 : held_ms / 1000 * 1000));
    }
}

/* ", about 4m to go (estimate)", or ", longer than usual"; nothing if too little is known. */
static void add_estimate(struct buf *text, const struct wait_display *display)
{
    size_t n = display->position < TURNS_MAX ? display->position + 1 : TURNS_MAX;
    int64_t turns_ms[TURNS_MAX];
    struct belay_holds holds = { 0 };
    char span[CLOCK_TEXT_SIZE];

    if (display->query != NULL) {
        (void)pthread_mutex_lock(&display->query->mutex);
        holds = display->query->holds;
        (void)pthread_mutex_unlock(&display->query->mutex);
    }
    belay_estimate_turns(&holds, &display->lock, clock_unix_ms(), turns_ms, n);
    if (turns_ms[n - 1] == BELAY_TURN_OVERDUE) {
        buf_adds(text, ", longer than usual");
    } else if (turns_ms[n - 1] != BELAY_TURN_UNKNOWN && display->position < TURNS_MAX) {
        buf_addf(text, ", about %s to go (estimate)", whole_seconds(span, turns_ms[n - 1]));
    }
}

/*
 * "2nd in the queue, about 5m to go (estimate), held for 4m 10s by alice (3m 2s left) 'key'": what changes comes first,
 * so that a narrow terminal truncates the names.
 */
static void rewrite_line(struct wait_display *display)
{
    struct buf text = BUF_INIT(1 << 16);
    struct buf line = BUF_INIT(1 << 16);
    char span[CLOCK_TEXT_SIZE];
    int64_t now = clock_boot_ms();
    size_t columns = print_columns(STDERR_FILENO);

    if (!has_place(display)) {
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

    if (has_place(display)) {
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

/* ---- past holds ---- */

static void query_free(struct holds_query *query)
{
    (void)pthread_mutex_destroy(&query->mutex);
    free(query->key);
    free(query);
}

static void *query_thread(void *argument)
{
    struct holds_query *query = argument;
    struct cli_context *context = query->context;
    struct belay_holds holds = { 0 };
    bool is_abandoned;

    (void)belay_past_holds(context->client, query->key, &holds, NULL);
    (void)pthread_mutex_lock(&query->mutex);
    query->holds = holds;
    query->is_done = true;
    is_abandoned = query->is_abandoned;
    (void)pthread_mutex_unlock(&query->mutex);
    if (is_abandoned) {
        query_free(query);
    }
    cli_client_left(context);
    return NULL;
}

static bool query_is_done(struct holds_query *query)
{
    bool is_done;

    (void)pthread_mutex_lock(&query->mutex);
    is_done = query->is_done;
    (void)pthread_mutex_unlock(&query->mutex);
    return is_done;
}

static void query_abandon(struct wait_display *display)
{
    struct holds_query *query = display->query;
    bool is_done;

    if (query == NULL) {
        return;
    }
    display->query = NULL;
    (void)pthread_mutex_lock(&query->mutex);
    query->is_abandoned = true;
    is_done = query->is_done;
    (void)pthread_mutex_unlock(&query->mutex);
    if (is_done) {
        query_free(query);
    }
}

/* Ask how long the lock in the way was held before, once for each such lock. */
static void query_start(struct wait_display *display)
{
    struct holds_query *query;

    if (display->lock_key.len == 0 ||
        (display->query != NULL && strcmp(display->query->key, display->lock_key.data) == 0)) {
        return;
    }
    query_abandon(display);
    query = calloc(1, sizeof *query);
    if (query == NULL) {
        return;
    }
    query->context = display->context;
    query->key = strdup(display->lock_key.data);
    (void)pthread_mutex_init(&query->mutex, NULL);
    cli_client_entered(display->context);
    if (query->key == NULL || !thread_start_detached(query_thread, query)) {
        cli_client_left(display->context);
        query_free(query);
        return;
    }
    display->query = query;
}

/* ---- the thread that prints ---- */

static void *print_thread(void *context)
{
    struct wait_display *display = context;
    int64_t next_boot_ms = clock_boot_ms() + display->every_ms;

    (void)pthread_mutex_lock(&display->mutex);
    while (!display->done) {
        int64_t left_ms = next_boot_ms - clock_boot_ms();

        if (display->on_terminal) {
            rewrite_line(display);
            left_ms = display->query != NULL && !query_is_done(display->query) ? SOON_MS : 1000;
        } else if (left_ms <= 0) {
            print_line(display);
            left_ms = display->every_ms;
            next_boot_ms = clock_boot_ms() + left_ms;
        }
        cond_wait_for(&display->changed, &display->mutex, left_ms);
    }
    (void)pthread_mutex_unlock(&display->mutex);
    return NULL;
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

/* Keep what an estimate needs of the lock in the way. */
static void remember_lock(struct wait_display *display, const struct belay_info *lock)
{
    struct belay_info *kept = &display->lock;

    free(kept->holders);
    *kept = (struct belay_info){ .mode = lock->mode,
                                 .slots = lock->slots,
                                 .status = lock->status,
                                 .locked_at_unix_ms = lock->locked_at_unix_ms };
    buf_release(&display->lock_key);
    if (lock->n_holders > 0 && (kept->holders = calloc(lock->n_holders, sizeof *kept->holders)) == NULL) {
        return;
    }
    for (; kept->n_holders < lock->n_holders; kept->n_holders++) {
        const struct belay_info *holder = &lock->holders[kept->n_holders];

        kept->holders[kept->n_holders] =
            (struct belay_info){ .status = holder->status, .locked_at_unix_ms = holder->locked_at_unix_ms };
    }
    if (lock->mode == BELAY_EXCLUSIVE || lock->n_holders > 0) {
        buf_adds(&display->lock_key, lock->key);
    }
}

/* The holder as it is known, for the line that is printed now or in a minute. */
static void remember_holder(struct wait_display *display, const struct belay_info *holder, int64_t boot_ms)
{
    const char *url = meta_find(holder->metadata, holder->n_metadata, "ci_url");

    buf_release(&display->url);
    remember_lock(display, holder);
    print_holder_short(&display->holder, holder);
    display->ends_boot_ms = add_saturated(boot_ms, holder->expires_in_ms);
    display->since_unix_ms = holder->locked_at_unix_ms;
    if (url != NULL) {
        escape_text(&display->url, url);
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
        remember_holder(display, now->holder, boot_ms);
    }
    display->position = now->position;
    display->retry_boot_ms = add_saturated(boot_ms, now->retry_ms);
    if (display->on_terminal) {
        query_start(display);
    } else {
        print_line_per_attempt(display, now);
    }
    (void)pthread_cond_signal(&display->changed);
    (void)pthread_mutex_unlock(&display->mutex);
    if (!display->ticking) {
        display->ticking = thread_start(&display->ticker, print_thread, display);
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
    query_abandon(display);
    (void)pthread_cond_destroy(&display->changed);
    (void)pthread_mutex_destroy(&display->mutex);
    buf_release(&display->holder);
    buf_release(&display->frozen);
    buf_release(&display->url);
    buf_release(&display->lock_key);
    free(display->lock.holders);
    free(display);
}
