#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/dynamodb/dynamodb_internal.h"

enum belay_code ddb_get(struct belay_store *base, const char *const *keys, size_t n,
                        struct belay_record *out_records, int64_t *out_now_ms, struct belay_error *err)
{
    struct ddb_store *store = ddb_of(base);
    struct belay_record *records = calloc(n + 1, sizeof *records);
    json_t **items = calloc(n + 1, sizeof(json_t *));
    enum belay_code code = records == NULL || items == NULL ? error_no_memory(err) : BELAY_OK;

    for (size_t i = 0; code == BELAY_OK && i < n; i++) {
        items[i] = ddb_item_key(store->layout, keys[i]);
    }
    if (code == BELAY_OK && n > 0) {
        code = ddb_read(store, items, n, err);
    }
    for (size_t i = 0; code == BELAY_OK && i < n; i++) {
        code = ddb_record(store, keys[i], items[i], NULL, &records[i], err);
    }
    if (code == BELAY_OK) {
        *out_now_ms = ddb_clock_judge_ms(store);
        if (n > 0) {
            memcpy(out_records, records, n * sizeof *records);
            memset(records, 0, n * sizeof *records);
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (records != NULL) {
            belay_record_release(&records[i]);
        }
        if (items != NULL) {
            json_decref(items[i]);
        }
    }
    free(records);
    free(items);
    return code;
}
