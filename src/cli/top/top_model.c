#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/pool.h"
#include "cli/output/print.h"
#include "cli/top/top.h"

enum {
    EVENT_MS = 500, /* after an event; the list is not read more often */
    IDLE_MS = 3000, /* without events: a missed heartbeat and a dead server cause none */
    POLL_MS = 5000, /* on a store without events, where each list may cost money */
    CLOSE_MS = 300  /* wait at the end for a list in progress */
};

/* ---- rows ---- */

static void row_release(struct top_row *row)
{
    free(row->key);
    free(row->shown);
    free(row->holder);
}

static void free_rows(struct top_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        row_release(&rows[i]);
    }
    free(rows);
}

static bool matches(const char *filter, const struct top_row *row)
{
    return filter[0] == '\0' || strcasestr(row->shown, filter) != NULL ||
           strcasestr(row->holder, filter) != NULL;
}

static bool fill_row(struct top_row *row, const struct belay_info *info)
{
    struct buf shown = BUF_INIT(1 << 16);
    struct buf holder = BUF_INIT(1 << 16);

    escape_text(&shown, info->key);
    print_holders_short(&holder, info);
    *row = (struct top_row){
        .key = strdup(info->key),
        .shown = buf_take(&shown),
        .holder = buf_take(&holder),
        .status = info->status,
        .is_stale = info->is_stale,
        .locked_at_unix_ms = info->locked_at_unix_ms,
        .ends_boot_ms = clock_boot_ms() + info->expires_in_ms,
        .n_waiters = info->n_waiters,
    };
    buf_release(&shown);
    buf_release(&holder);
    return row->key != NULL && row->shown != NULL && row->holder != NULL;
}

/* A list, handed over from the reader to the main loop. */
struct top_result {
    struct top_row *rows; /* owned */
    size_t n;
    size_t cap;
    bool failed;
    char filter[128];
    char problem[700]; /* "": none */
};

static void result_free(struct top_result *result)
{
    if (result != NULL) {
        free_rows(result->rows, result->n);
        free(result);
    }
}

static bool add_lock(void *context, const struct belay_info *info)
{
    struct top_result *result = context;
    struct top_row *rows = array_grow(result->rows, sizeof *rows, result->n + 1, &result->cap);
    struct top_row row = { 0 };

    if (rows == NULL) {
        result->failed = true;
        return false;
    }
    result->rows = rows;
    if (!fill_row(&row, info)) {
        result->failed = true;
    }
    if (result->failed || !matches(result->filter, &row)) {
        row_release(&row);
    } else {
        result->rows[result->n++] = row;
    }
    return !result->failed;
}

/* NULL if out of memory. */
static struct top_result *list_rows(const struct top_model *model, const char *filter)
{
    struct top_result *result = calloc(1, sizeof *result);
    struct belay_query query = BELAY_QUERY_INIT;
    struct belay_error err = BELAY_ERROR_INIT;

    if (result == NULL) {
        return NULL;
    }
    (void)snprintf(result->filter, sizeof result->filter, "%s", filter);
    query.prefix = model->prefix;
    if (belay_list(model->client, &query, add_lock, result, NULL, &err) != BELAY_OK || result->failed) {
        (void)snprintf(result->problem, sizeof result->problem, "%s",
                       result->failed ? "out of memory" : err.text);
    }
    belay_error_release(&err);
    return result;
}

static void *list_thread(void *context)
{
    struct top_model *model = context;
    char filter[sizeof model->wanted_filter];
    struct top_result *result;

    (void)pthread_mutex_lock(&model->mutex);
    while (!model->is_closing) {
        if (!model->is_wanted) {
            (void)pthread_cond_wait(&model->changed, &model->mutex);
            continue;
        }
        assert(!model->is_reading);
        model->is_wanted = false;
        model->is_reading = true;
        memcpy(filter, model->wanted_filter, sizeof filter);
        (void)pthread_mutex_unlock(&model->mutex);
        result = list_rows(model, filter);
        (void)pthread_mutex_lock(&model->mutex);
        assert(model->is_reading);
        model->is_reading = false;
        result_free(model->result);
        model->result = result;
        (void)!write(model->pipe[1], &(char){ TOP_WAKE_LIST }, 1);
        (void)pthread_cond_broadcast(&model->changed);
    }
    (void)pthread_mutex_unlock(&model->mutex);
    return NULL;
}

void top_model_request(struct top_model *model)
{
    model->listed_boot_ms = clock_boot_ms();
    model->is_pending = true;
    (void)pthread_mutex_lock(&model->mutex);
    model->is_wanted = true;
    memcpy(model->wanted_filter, model->filter, sizeof model->filter);
    (void)pthread_cond_broadcast(&model->changed);
    (void)pthread_mutex_unlock(&model->mutex);
}

bool top_model_collect(struct top_model *model)
{
    struct top_result *result;
    bool is_done;

    (void)pthread_mutex_lock(&model->mutex);
    result = model->result;
    model->result = NULL;
    model->is_pending = model->is_wanted || model->is_reading;
    (void)pthread_mutex_unlock(&model->mutex);
    if (result == NULL) {
        return false;
    }
    model->listed_boot_ms = clock_boot_ms();
    is_done = result->problem[0] == '\0';
    memcpy(model->problem, result->problem, sizeof model->problem);
    if (is_done) {
        free_rows(model->rows, model->n);
        model->rows = result->rows;
        model->n = result->n;
        model->is_listed = true;
        result->rows = NULL;
        result->n = 0;
        top_model_sort(model);
    }
    result_free(result);
    return is_done;
}

int64_t top_row_left_ms(const struct top_row *row)
{
    int64_t left_ms = row->ends_boot_ms - clock_boot_ms();

    return row->status != BELAY_STATUS_ACTIVE || left_ms < 0 ? 0 : left_ms;
}

enum belay_status top_row_status(const struct top_row *row)
{
    return row->status == BELAY_STATUS_ACTIVE && top_row_left_ms(row) == 0 ? BELAY_STATUS_EXPIRED
                                                                           : row->status;
}

/* ---- order ---- */

static int compare_numbers(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b ? 1 : 0;
}

/* A stale lock blocks others; an expired one was not released, which its holder may not know. */
static int attention(const struct top_row *row)
{
    return row->is_stale ? 2 : top_row_status(row) == BELAY_STATUS_EXPIRED;
}

static int compare_rows(const void *left, const void *right, void *context)
{
    const struct top_row *a = left;
    const struct top_row *b = right;
    const struct top_model *model = context;
    int order = 0;

    switch (model->sort) {
    case TOP_BY_ATTENTION:
        order = compare_numbers(attention(b), attention(a));
        order = order != 0 ? order : compare_numbers((int64_t)b->n_waiters, (int64_t)a->n_waiters);
        break;
    case TOP_BY_HOLDER:
        order = strcasecmp(a->holder, b->holder);
        break;
    case TOP_BY_AGE: /* the oldest first */
        order = compare_numbers(a->locked_at_unix_ms, b->locked_at_unix_ms);
        break;
    case TOP_BY_LEFT:
        order = compare_numbers(a->ends_boot_ms, b->ends_boot_ms);
        break;
    case TOP_BY_STATUS: /* stale first: it may need attention */
        order = compare_numbers(b->is_stale, a->is_stale);
        order = order != 0 ? order : compare_numbers((int64_t)b->status, (int64_t)a->status);
        break;
    case TOP_BY_QUEUE:
        order = compare_numbers((int64_t)b->n_waiters, (int64_t)a->n_waiters);
        break;
    case TOP_BY_KEY:
    case TOP_SORTS:
        break;
    }
    order = order != 0 ? order : strcmp(a->key, b->key);
    return model->is_reversed ? -order : order;
}

void top_model_sort(struct top_model *model)
{
    if (model->n > 1) {
        qsort_r(model->rows, model->n, sizeof model->rows[0], compare_rows, model);
    }
}

/* ---- the threads ---- */

static bool wake_on_event(void *context, const struct belay_event *event)
{
    const struct top_model *model = context;

    (void)event;
    (void)!write(model->pipe[1], &(char){ TOP_WAKE_EVENT }, 1); /* a full pipe wakes the loop anyway */
    return true;
}

static void *watch_thread(void *context)
{
    struct top_model *model = context;

    if (belay_watch(model->client, model->prefix, 0, wake_on_event, model, model->cancel, NULL) != BELAY_OK) {
        (void)!write(model->pipe[1], &(char){ TOP_WAKE_NO_EVENTS }, 1);
    }
    return NULL;
}

bool top_model_open(struct top_model *model)
{
    model->pipe[0] = model->pipe[1] = -1;
    model->cancel = belay_cancel_new();
    (void)pthread_mutex_init(&model->mutex, NULL);
    cond_init(&model->changed);
    if (model->cancel == NULL || pipe2(model->pipe, O_CLOEXEC | O_NONBLOCK) != 0) {
        return false;
    }
    model->has_reader = thread_start(&model->reader, list_thread, model);
    model->has_watcher = thread_start(&model->watcher, watch_thread, model);
    model->has_events = model->has_watcher;
    return model->has_reader;
}

/* False: it is still blocked in the store. */
static bool join_reader(struct top_model *model)
{
    struct timespec until = cond_deadline(CLOSE_MS);
    bool is_reading;

    (void)pthread_mutex_lock(&model->mutex);
    model->is_closing = true;
    (void)pthread_cond_broadcast(&model->changed);
    while (model->is_reading && pthread_cond_timedwait(&model->changed, &model->mutex, &until) == 0) {
    }
    is_reading = model->is_reading;
    (void)pthread_mutex_unlock(&model->mutex);
    return !is_reading && pthread_join(model->reader, NULL) == 0;
}

bool top_model_close(struct top_model *model)
{
    if (model->has_reader && !join_reader(model)) {
        return false;
    }
    if (model->has_watcher) {
        belay_cancel_request(model->cancel);
        (void)pthread_join(model->watcher, NULL);
    }
    belay_cancel_free(model->cancel);
    free_rows(model->rows, model->n);
    result_free(model->result);
    if (model->pipe[0] >= 0) {
        (void)close(model->pipe[0]);
        (void)close(model->pipe[1]);
    }
    (void)pthread_cond_destroy(&model->changed);
    (void)pthread_mutex_destroy(&model->mutex);
    return true;
}

int64_t top_model_due_ms(const struct top_model *model, bool is_changed)
{
    int64_t pause_ms = is_changed ? EVENT_MS : model->has_events ? IDLE_MS : POLL_MS;
    int64_t due_ms = model->listed_boot_ms + pause_ms - clock_boot_ms();

    return model->is_pending ? INT64_MAX : due_ms < 0 ? 0 : due_ms;
}
