#include "store/blob/blob_store.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"

void blob_progress(const struct belay_blob_store *store, size_t done, size_t total)
{
    if (store->on_progress != NULL) {
        store->on_progress(store->progress_context, done, total);
    }
}

enum belay_code blob_put_check(const char *name, size_t len, struct belay_error *err)
{
    enum belay_code code = belay_blob_name_check(name, err);

    return code == BELAY_OK && len > BELAY_BLOB_SIZE_MAX
               ? error_set(err, BELAY_INVALID, "'%.400s' would be larger than %zu MB", name,
                           BELAY_BLOB_SIZE_MAX >> 20)
               : code;
}

bool blob_list_add(struct blob_list *list, struct belay_blob_entry entry)
{
    struct belay_blob_entry *grown = array_grow(list->entries, sizeof *grown, list->n + 1, &list->cap);

    if (grown == NULL) {
        return false;
    }
    list->entries = grown;
    entry.name = strdup(entry.name);
    list->entries[list->n++] = entry;
    return entry.name != NULL;
}

static int compare_blob_names(const void *a, const void *b)
{
    return strcmp(((const struct belay_blob_entry *)a)->name, ((const struct belay_blob_entry *)b)->name);
}

bool blob_list_report(struct blob_list *list, belay_blob_fn fn, void *context)
{
    bool go_on = true;

    if (list->n > 0) {
        qsort(list->entries, list->n, sizeof *list->entries, compare_blob_names);
    }
    for (size_t i = 0; go_on && i < list->n; i++) {
        go_on = fn(context, &list->entries[i]);
    }
    return go_on;
}

void blob_list_release(struct blob_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        free((char *)list->entries[i].name);
    }
    free(list->entries);
    *list = (struct blob_list){ 0 };
}
