#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/print.h"
#include "cli/top.h"

enum {
    BUSY_MS = 500,   /* however much happens, it is read no more often */
    IDLE_MS = 10000, /* a heartbeat that is missing is no event */
    DEAF_MS = 5000   /* on a store that keeps no events; each list costs there */
};

/* ---- rows ---- */

static void free_rows(struct top_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(rows[i].key);
        free(rows[i].shown);
        free(rows[i].holder);
    }
    free(rows);
}

static bool fits(const struct top_model *model, const struct top_row *row)
{
    return model->filter[0] == '\0' || strcasestr(row->shown, model->filter) != NULL ||
           strcasestr(row->holder, model->filter) != NULL;
}

static char *escaped(const char *text)
{
    struct buf out = BUF_INIT(1 << 16);

    buf_adds(&out, "");
    print_escape(&out, text);
    return buf_take(&out);
}

static bool fill_row(struct top_row *row, const struct belay_info *info)
{
    struct buf holder = BUF_INIT(1 << 16);

    print_holder_short(&holder, info);
    *row = (struct top_row){
        .key = strdup(info->key),
        .shown = escaped(info->key),
        .holder = escaped(holder.failed || holder.data == NULL ? "?" : holder.data),
        .status = info->status,
        .is_stale = info->is_stale,
        .locked_at_unix_ms = info->locked_at_unix_ms,
        .ends_boot_ms = clock_boot_ms() + info->expires_in_ms,
        .n_waiters = info->n_waiters,
    };
    buf_release(&holder);
    return row->key != NULL && row->shown != NULL && row->holder != NULL;
}

struct reading {
    const struct top_model *model;
    struct top_row *rows;
    size_t n;
    size_t cap;
    bool failed;
};

static bool on_lock(void *context, const struct belay_info *info)
{
    struct reading *reading = context;
    struct top_row row = { 0 };

    if (reading->n == reading->cap) {
        size_t cap = reading->cap == 0 ? 64 : 2 * reading->cap;
        struct top_row *rows = realloc(reading->rows, cap * sizeof *rows);

        if (rows == NULL) {
            reading->failed = true;
            return false;
        }
        reading->rows = rows;
        reading->cap = cap;
    }
    if (!fill_row(&row, info)) {
        reading->failed = true;
    }
    if (reading->failed || !fits(reading->model, &row)) {
        free(row.key);
        free(row.shown);
        free(row.holder);
    } else {
        reading->rows[reading->n++] = row;
    }
    return !reading->failed;
}

void top_model_list(struct top_model *model)
{
    struct reading reading = { .model = model };
    struct belay_query query = BELAY_QUERY_INIT;
    struct belay_error err = BELAY_ERROR_INIT;

    query.prefix = model->prefix;
    model->listed_boot_ms = clock_boot_ms();
    if (belay_list(model->client, &query, on_lock, &reading, NULL, &err) != BELAY_OK || reading.failed) {
        (void)snprintf(model->problem, sizeof model->problem, "%s",
                       reading.failed ? "out of memory" : err.text);
        free_rows(reading.rows, reading.n);
    } else {
        free_rows(model->rows, model->n);
        model->rows = reading.rows;
        model->n = reading.n;
        model->problem[0] = '\0';
        top_model_sort(model);
    }
    belay_error_release(&err);
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

static int compare(const void *left, const void *right, void *context)
{
    const struct top_row *a = left;
    const struct top_row *b = right;
    const struct top_model *model = context;
    int order = 0;

    switch (model->sort) {
    case TOP_BY_HOLDER:
        order = strcasecmp(a->holder, b->holder);
        break;
    case TOP_BY_AGE: /* the oldest first */
        order = compare_numbers(a->locked_at_unix_ms, b->locked_at_unix_ms);
        break;
    case TOP_BY_LEFT:
        order = compare_numbers(a->ends_boot_ms, b->ends_boot_ms);
        break;
    case TOP_BY_STATUS: /* what may need somebody first */
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
        qsort_r(model->rows, model->n, sizeof model->rows[0], compare, model);
    }
}

/* ---- hearing of changes ---- */

static bool on_event(void *context, const struct belay_event *event)
{
    const struct top_model *model = context;

    (void)event;
    (void)!write(model->pipe[1], "e", 1); /* full: there is one in it already */
    return true;
}

static void *watch(void *context)
{
    struct top_model *model = context;

    if (belay_watch(model->client, model->prefix, 0, on_event, model, model->cancel, NULL) != BELAY_OK) {
        (void)!write(model->pipe[1], "d", 1); /* deaf */
    }
    return NULL;
}

bool top_model_open(struct top_model *model)
{
    sigset_t all;
    sigset_t before;

    model->pipe[0] = model->pipe[1] = -1;
    model->cancel = belay_cancel_new();
    if (model->cancel == NULL || pipe2(model->pipe, O_CLOEXEC | O_NONBLOCK) != 0) {
        return false;
    }
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    model->has_thread = pthread_create(&model->thread, NULL, watch, model) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    model->hears = model->has_thread;
    return true;
}

void top_model_close(struct top_model *model)
{
    if (model->has_thread) {
        belay_cancel_request(model->cancel);
        (void)pthread_join(model->thread, NULL);
    }
    belay_cancel_free(model->cancel);
    free_rows(model->rows, model->n);
    if (model->pipe[0] >= 0) {
        (void)close(model->pipe[0]);
        (void)close(model->pipe[1]);
    }
}

int64_t top_model_due_ms(const struct top_model *model, bool is_changed)
{
    int64_t pause_ms = is_changed ? BUSY_MS : model->hears ? IDLE_MS : DEAF_MS;
    int64_t due_ms = model->listed_boot_ms + pause_ms - clock_boot_ms();

    return due_ms < 0 ? 0 : due_ms;
}
