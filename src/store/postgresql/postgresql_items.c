/* Items, and the store's identity. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/postgresql/postgresql_internal.h"

#define PAGE_TEXT "256"
enum { PAGE = 256 };

enum belay_code pg_item_get(struct belay_store *base, const char *space, const char *name,
                            struct belay_item *out_item, struct belay_error *err)
{
    const char *values[] = { space, name };
    struct pg_call call = { PG_ITEM_GET, values, 2, true, 0 };
    struct belay_item item = { .name = strdup(name) };
    PGresult *result = NULL;
    enum belay_code code = pg_call(pg_of(base), &call, &result, err);

    if (code == BELAY_OK && PQntuples(result) == 1) {
        item.value = strdup(PQgetvalue(result, 0, 0));
        item.version = (uint64_t)pg_number(result, 0, 1);
        code = item.value == NULL ? error_no_memory(err) : BELAY_OK;
    }
    if (code == BELAY_OK && item.name == NULL) {
        code = error_no_memory(err);
    }
    PQclear(result);
    if (code != BELAY_OK) {
        belay_item_release(&item);
        return code;
    }
    *out_item = item;
    return BELAY_OK;
}

enum belay_code pg_item_put(struct belay_store *base, const struct belay_item_write *write,
                            uint64_t *out_version, struct belay_error *err)
{
    char version[24];
    const char *values[] = { write->space, write->name, write->value, version };
    struct pg_call call = { PG_ITEM_PUT, values, 4, false, 0 };
    PGresult *result = NULL;
    enum belay_code code;

    (void)snprintf(version, sizeof version, "%" PRId64, write->any_version ? -1 : (int64_t)write->version);
    code = pg_call(pg_of(base), &call, &result, err);
    if (code == BELAY_OK && PQgetisnull(result, 0, 0)) {
        code = error_set(err, BELAY_REFUSED, "the item '%.200s' has another version", write->name);
    } else if (code == BELAY_OK && out_version != NULL) {
        *out_version = (uint64_t)pg_number(result, 0, 0);
    }
    PQclear(result);
    return code;
}

static enum belay_code list_page(struct belay_store *base, const char *space, const char *after,
                                 belay_item_fn fn, void *context, char **out_last, struct belay_error *err)
{
    const char *values[] = { space, after, PAGE_TEXT };
    struct pg_call call = { PG_ITEM_LIST, values, 3, true, 0 };
    PGresult *result = NULL;
    enum belay_code code = pg_call(pg_of(base), &call, &result, err);
    int n = code == BELAY_OK ? PQntuples(result) : 0;
    bool more = n == PAGE;

    *out_last = NULL;
    for (int i = 0; i < n; i++) {
        struct belay_item item = { PQgetvalue(result, i, 0), PQgetvalue(result, i, 1),
                                   (uint64_t)pg_number(result, i, 2) };

        if (!fn(context, &item)) {
            more = false;
            break;
        }
    }
    if (more) {
        *out_last = strdup(PQgetvalue(result, n - 1, 0));
        code = *out_last == NULL ? error_no_memory(err) : BELAY_OK;
    }
    PQclear(result);
    return code;
}

enum belay_code pg_item_list(struct belay_store *base, const char *space, belay_item_fn fn, void *context,
                             struct belay_error *err)
{
    char *last = NULL;
    enum belay_code code = list_page(base, space, "", fn, context, &last, err);

    while (code == BELAY_OK && last != NULL) {
        char *after = last;

        code = list_page(base, space, after, fn, context, &last, err);
        free(after);
    }
    return code;
}

enum belay_code pg_identity(struct belay_store *base, char out_id[BELAY_STORE_ID_SIZE],
                            struct belay_error *err)
{
    struct pg_call call = { PG_HELLO, NULL, 0, true, 0 };
    PGresult *result = NULL;
    enum belay_code code = pg_call(pg_of(base), &call, &result, err);

    if (code == BELAY_OK) {
        (void)snprintf(out_id, BELAY_STORE_ID_SIZE, "postgresql:%s", PQgetvalue(result, 0, 2));
    }
    PQclear(result);
    return code;
}
