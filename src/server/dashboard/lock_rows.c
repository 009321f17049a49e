#include "server/dashboard/lock_rows.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "json/json_write.h"

/* As in a list, without what only a page of its own needs. Nobody's lock id is in it. */
static json_t *row_json(const struct belay_info *info)
{
    json_t *row = wire_lock(info);

    if (row != NULL) {
        (void)json_object_del(row, "metadata");
        (void)json_object_del(row, "lock_id");
        (void)json_object_set_new(row, "waiting", json_integer((json_int_t)info->n_waiters));
    }
    return row;
}

/* What the key is now; NULL if the store does not answer or there is no memory. */
static json_t *look_at(struct belay_client *client, const char *key)
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
    struct look *look = context;
    char *key = strdup(info->key);

    if (key != NULL) {
        look->stale[look->n_stale++] = key;
    }
    return look->n_stale < LOOK_STALE;
}

static void read_rows(struct work *work)
{
    struct look *look = (struct look *)(void *)((char *)work - offsetof(struct look, work));
    struct belay_query query = BELAY_QUERY_INIT;

    look->rows = json_array();
    for (size_t i = 0; i < look->n_keys; i++) {
        (void)json_array_append_new(look->rows, look_at(look->client, look->keys[i]));
    }
    if (look->wants_stale) {
        query.stale_only = true;
        query.limit = LOOK_STALE;
        (void)belay_list(look->client, &query, on_stale, look, NULL, NULL);
    }
}

void look_init(struct look *look, struct belay_client *client, work_fn *done)
{
    look->client = client;
    look->work.work = read_rows;
    look->work.done = done;
}

void look_take(struct look *look, struct changes *changes)
{
    char key[BELAY_KEY_MAX + 1];
    size_t bytes = 0;

    while (look->n_keys < LOOK_KEYS && bytes < LOOK_BYTES && changes_take(changes, key)) {
        char *copy = strdup(key);

        bytes += 400 + strlen(key);
        if (copy == NULL) {
            changes->overrun = true; /* it is missing: who looks on asks for the whole list */
            return;
        }
        look->keys[look->n_keys++] = copy;
    }
}

void look_clear(struct look *look)
{
    while (look->n_keys > 0) {
        free(look->keys[--look->n_keys]);
    }
    while (look->n_stale > 0) {
        free(look->stale[--look->n_stale]);
    }
    json_decref(look->rows);
    look->rows = NULL;
    look->wants_stale = false;
    look->tells = false;
}
