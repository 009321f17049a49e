/* Small values beside the records, and the freezes that are one of them. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "freeze/freeze_list.h"
#include "support/memstore_internal.h"

/* Where the item is, or belongs: they are sorted by space and name. */
static size_t place_of(const struct memstore_data *data, const char *space, const char *name, bool *out_found)
{
    size_t at = 0;
    int order = 1;

    for (; at < data->n_items; at++) {
        order = strcmp(data->items[at].space, space);
        order = order != 0 ? order : strcmp(data->items[at].item.name, name);
        if (order >= 0) {
            break;
        }
    }
    *out_found = at < data->n_items && order == 0;
    return at;
}

static void copy_item(const struct memstore_data *data, const char *space, const char *name,
                      struct belay_item *out_item)
{
    bool found;
    size_t at = place_of(data, space, name, &found);

    *out_item = (struct belay_item){ .name = mem_copy(name) };
    if (found) {
        out_item->value = mem_copy(data->items[at].item.value);
        out_item->version = data->items[at].item.version;
    }
}

static enum belay_code item_get(struct belay_store *store, const char *space, const char *name,
                                struct belay_item *out_item, struct belay_error *err)
{
    struct memstore_data *data = mem_data(store);

    (void)err;
    pthread_mutex_lock(&data->mutex);
    copy_item(data, space, name, out_item);
    pthread_mutex_unlock(&data->mutex);
    return BELAY_OK;
}

static void remove_item(struct memstore_data *data, size_t at)
{
    free(data->items[at].space);
    belay_item_release(&data->items[at].item);
    data->n_items--;
    memmove(&data->items[at], &data->items[at + 1], (data->n_items - at) * sizeof *data->items);
}

static void insert_item(struct memstore_data *data, size_t at, const struct belay_item_write *write)
{
    data->items = mem_grow(data->items, data->n_items + 1, sizeof *data->items);
    memmove(&data->items[at + 1], &data->items[at], (data->n_items - at) * sizeof *data->items);
    data->n_items++;
    data->items[at] = (struct mem_item){ .space = mem_copy(write->space),
                                         .item = { .name = mem_copy(write->name),
                                                   .value = mem_copy(write->value),
                                                   .version = ++data->last_revision } };
}

static enum belay_code item_put(struct belay_store *store, const struct belay_item_write *write,
                                uint64_t *out_version, struct belay_error *err)
{
    struct memstore_data *data = mem_data(store);
    enum belay_code code = BELAY_OK;
    bool found;
    size_t at;

    pthread_mutex_lock(&data->mutex);
    at = place_of(data, write->space, write->name, &found);
    if (!write->any_version && write->version != (found ? data->items[at].item.version : 0)) {
        code = error_set(err, BELAY_REFUSED, "item '%s' has another version", write->name);
    } else {
        if (found) {
            remove_item(data, at);
        }
        if (write->value != NULL) {
            insert_item(data, at, write);
        }
        *out_version = write->value != NULL ? data->last_revision : 0;
    }
    pthread_mutex_unlock(&data->mutex);
    return code;
}

static enum belay_code item_list(struct belay_store *store, const char *space, belay_item_fn fn,
                                 void *context, struct belay_error *err)
{
    struct memstore_data *data = mem_data(store);
    bool more = true;

    (void)err;
    pthread_mutex_lock(&data->mutex);
    for (size_t i = 0; more && i < data->n_items; i++) {
        more = strcmp(data->items[i].space, space) != 0 || fn(context, &data->items[i].item);
    }
    pthread_mutex_unlock(&data->mutex);
    return BELAY_OK;
}

static enum belay_code check_freezes(const struct memstore_data *data, const struct belay_batch *batch,
                                     struct belay_commit *out, struct belay_error *err)
{
    struct freeze_now now = { data->unix_ms(data->ctx), data->unix_ms(data->ctx) };
    struct freeze_list list = { 0 };
    struct belay_item item;
    enum belay_code code;

    copy_item(data, BELAY_SPACE_FREEZES, FREEZE_ITEM, &item);
    code = freeze_list_read(&item, &list, err);
    if (code == BELAY_OK) {
        code = freeze_check(&list, batch, now, out, err);
    }
    freeze_list_release(&list);
    belay_item_release(&item);
    return code;
}

void memstore_keep_items(struct memstore_data *data)
{
    data->ops.item_get = item_get;
    data->ops.item_put = item_put;
    data->ops.item_list = item_list;
    data->check_freezes = check_freezes;
    data->capabilities.has_freezes = true;
}
