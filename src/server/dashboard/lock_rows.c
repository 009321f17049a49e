#include "server/dashboard/lock_rows.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "server/core/server.h"
#include "json/json_write.h"

/* A lock as in a list, without metadata and lock ids; of holders and waiters their number. */
static json_t *row_json(const struct belay_info *info)
{
    struct belay_info shown = *info;
    json_t *row;

    shown.n_waiters = 0; /* only their number is sent */
    row = wire_lock(&shown);

    if (row != NULL) {
        (void)json_object_del(row, "metadata");
        (void)json_object_del(row, "lock_id");
        (void)json_object_set_new(row, "waiting", json_integer((json_int_t)info->n_waiters));
        (void)json_object_set_new(row, "holders", json_integer((json_int_t)count_active(info)));
    }
    return row;
}

/* The lock of the key; NULL if the store does not answer or there is no memory. */
static json_t *row_of(struct belay_client *client, const char *key)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_info *info = NULL;
    enum belay_code code = belay_get(client, key, &info, &err);
    json_t *row = NULL;

    if (code == BELAY_OK) {
        row = row_json(info);
    } else if (code == BELAY_NOT_FOUND) {
        row = json_pack("{s:o, s:n}", "key", wire_text(key), "status");
    }
    belay_info_free(info);
    belay_error_release(&err);
    return row;
}

static bool on_stale(void *context, const struct belay_info *info)
{
    struct lock_rows *rows = context;
    char *key = strdup(info->key);

    assert(rows->n_stale < LOCK_ROWS_STALE);
    if (key != NULL) {
        rows->stale[rows->n_stale++] = key;
    }
    return rows->n_stale < LOCK_ROWS_STALE;
}

static void read_rows(struct work *work)
{
    struct lock_rows *rows = CONTAINER_OF(work, struct lock_rows, work);
    struct belay_query query = BELAY_QUERY_INIT;

    assert(rows->json == NULL && rows->n_keys <= LOCK_ROWS_KEYS);
    rows->json = json_array();
    for (size_t i = 0; i < rows->n_keys; i++) {
        (void)json_array_append_new(rows->json, row_of(rows->client, rows->keys[i]));
    }
    if (rows->wants_stale) {
        query.stale_only = true;
        query.limit = LOCK_ROWS_STALE;
        (void)belay_list(rows->client, &query, on_stale, rows, NULL, NULL);
    }
}

void lock_rows_init(struct lock_rows *rows, struct belay_client *client, work_fn *done)
{
    rows->client = client;
    rows->work.work = read_rows;
    rows->work.done = done;
}

void lock_rows_take(struct lock_rows *rows, struct changes *changes)
{
    char key[BELAY_KEY_MAX + 1];
    size_t bytes = 0;

    while (rows->n_keys < LOCK_ROWS_KEYS && bytes < LOCK_ROWS_BYTES && changes_take(changes, key)) {
        char *copy = strdup(key);

        bytes += 400 + strlen(key);
        if (copy == NULL) {
            changes->overrun = true; /* a key is missing: viewers read the whole list */
            return;
        }
        rows->keys[rows->n_keys++] = copy;
    }
}

void lock_rows_clear(struct lock_rows *rows)
{
    assert(!work_is_pending(&rows->work));
    while (rows->n_keys > 0) {
        free(rows->keys[--rows->n_keys]);
    }
    while (rows->n_stale > 0) {
        free(rows->stale[--rows->n_stale]);
    }
    json_decref(rows->json);
    rows->json = NULL;
    rows->wants_stale = false;
    rows->tells = false;
}
