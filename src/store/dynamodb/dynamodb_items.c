/*
 * The registry's items in a table of locks.
 * In belay's own layout an item's key is its space, a tab and its name: a lock's key cannot
 * contain a tab, so they never collide. In document 003's table of applications they are its
 * own rows (dynamodb_appregistry.c). The tables of other programs have no place for items.
 */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/text.h"
#include "store/dynamodb/dynamodb_internal.h"

enum ddb_form {
    DDB_FORM_NONE, /* the layout has no place for items */
    DDB_FORM_JSON, /* `value` and `version` */
    DDB_FORM_ROW   /* a row of document 003's table of applications */
};

#define ITEM_VALUE "value"
#define ITEM_VERSION "version"
#define APPREGISTRY_DECISIONS "LOCK#BELAY-DB#"

static enum ddb_form form_of(const struct ddb_store *store, const char *space)
{
    if (!layout_is_foreign(store->layout)) {
        return DDB_FORM_JSON;
    }
    if (strcmp(store->layout->name, "appregistry") != 0) {
        return DDB_FORM_NONE;
    }
    return strcmp(space, BELAY_SPACE_APPS) == 0 ? DDB_FORM_ROW : DDB_FORM_JSON;
}

bool ddb_is_item(const struct layout *layout, const char *key)
{
    return !layout_is_foreign(layout) && strchr(key, '\t') != NULL;
}

static enum belay_code check_form(const struct ddb_store *store, const char *space, struct belay_error *err)
{
    if (form_of(store, space) == DDB_FORM_NONE) {
        return error_set(
            err, BELAY_CONFIG,
            "a table of layout '%.64s' has no place for applications: use layout belay or appregistry",
            store->layout->name);
    }
    return BELAY_OK;
}

/* The prefix of the name in the key; "" for rows of document 003. */
static void add_prefix(const struct ddb_store *store, const char *space, struct buf *out)
{
    if (!layout_is_foreign(store->layout)) {
        buf_addf(out, "%s\t", space);
    } else {
        buf_adds(out, form_of(store, space) == DDB_FORM_ROW ? "" : APPREGISTRY_DECISIONS);
    }
}

static json_t *item_key(const struct ddb_store *store, const char *space, const char *name)
{
    struct buf text = BUF_INIT(4096);
    json_t *key;

    add_prefix(store, space, &text);
    buf_adds(&text, name);
    key = text.failed ? NULL : json_pack("{s:o}", store->layout->keys[0].name, av_text(text.data));
    buf_release(&text);
    return key;
}

/* The name, if the row belongs to that space; else NULL. */
static const char *item_name_of(const struct ddb_store *store, const char *space, const json_t *row)
{
    const char *text = item_text(row, store->layout->keys[0].name);
    struct buf prefix = BUF_INIT(256);
    const char *name = NULL;

    if (text != NULL && form_of(store, space) == DDB_FORM_ROW) {
        return text_has_prefix(text, "LOCK#") ? NULL : text;
    }
    add_prefix(store, space, &prefix);
    if (text != NULL && !prefix.failed && text_has_prefix(text, prefix.data)) {
        name = text + strlen(prefix.data);
    }
    buf_release(&prefix);
    return name;
}

/* ---- reading ---- */

static enum belay_code item_from_row(const struct ddb_store *store, const char *space, const char *name,
                                     const json_t *row, struct belay_item *out_item, struct belay_error *err)
{
    struct belay_item item = { .name = strdup(name) };
    const char *value;

    if (form_of(store, space) == DDB_FORM_ROW) {
        item.value = ddb_row_to_app(row, &item.version);
    } else {
        value = item_text(row, ITEM_VALUE);
        item.value = strdup(value == NULL ? "" : value);
        if (!item_uint(row, ITEM_VERSION, &item.version)) {
            item.version = 1; /* edited by hand */
        }
    }
    if (item.name == NULL || item.value == NULL) {
        belay_item_release(&item);
        return error_no_memory(err);
    }
    *out_item = item;
    return BELAY_OK;
}

static enum belay_code get_row(struct ddb_store *store, const char *space, const char *name, json_t **out_row,
                               struct belay_error *err)
{
    struct ddb_place place = { store->params.table, item_key(store, space, name), NULL };
    enum belay_code code = place.key == NULL ? error_no_memory(err) : ddb_read(store, &place, 1, err);

    if (code == BELAY_OK) {
        *out_row = json_incref(place.item);
    }
    ddb_places_release(&place, 1);
    return code;
}

enum belay_code ddb_item_get(struct belay_store *base, const char *space, const char *name,
                             struct belay_item *out_item, struct belay_error *err)
{
    struct ddb_store *store = ddb_of(base);
    json_t *row = NULL;
    enum belay_code code = check_form(store, space, err);

    if (code == BELAY_OK) {
        code = get_row(store, space, name, &row, err);
    }
    if (code == BELAY_OK && row == NULL) {
        struct belay_item none = { .name = strdup(name) };

        *out_item = none;
        code = none.name == NULL ? error_no_memory(err) : BELAY_OK;
    } else if (code == BELAY_OK) {
        code = item_from_row(store, space, name, row, out_item, err);
    }
    json_decref(row);
    return code;
}

struct item_listing {
    const char *space;
    struct belay_item *items; /* owned */
    size_t n;
    size_t cap;
};

static enum belay_code list_row(struct ddb_store *store, json_t *row, void *context, struct belay_error *err)
{
    struct item_listing *listing = context;
    const char *name = item_name_of(store, listing->space, row);
    struct belay_item *grown;
    enum belay_code code;

    if (name == NULL) {
        return BELAY_OK;
    }
    grown = array_grow(listing->items, sizeof *grown, listing->n + 1, &listing->cap);
    if (grown == NULL) {
        return error_no_memory(err);
    }
    listing->items = grown;
    code = item_from_row(store, listing->space, name, row, &listing->items[listing->n], err);
    listing->n += code == BELAY_OK;
    return code;
}

static int compare_item_names(const void *a, const void *b)
{
    return strcmp(((const struct belay_item *)a)->name, ((const struct belay_item *)b)->name);
}

enum belay_code ddb_item_list(struct belay_store *base, const char *space, belay_item_fn fn, void *context,
                              struct belay_error *err)
{
    struct ddb_store *store = ddb_of(base);
    struct item_listing listing = { .space = space };
    enum belay_code code = check_form(store, space, err);
    bool go_on = true;

    if (code == BELAY_OK) {
        code = ddb_each_item(store, list_row, &listing, err);
    }
    if (listing.n > 0) {
        qsort(listing.items, listing.n, sizeof *listing.items, compare_item_names);
    }
    for (size_t i = 0; i < listing.n; i++) {
        go_on = code == BELAY_OK && go_on && fn(context, &listing.items[i]);
        belay_item_release(&listing.items[i]);
    }
    free(listing.items);
    return code;
}

/* ---- writing ---- */

static void put_condition(const struct ddb_store *store, const struct belay_item_write *write,
                          const json_t *row, struct expr *expr)
{
    if (write->any_version) {
        return;
    }
    if (write->version == 0) {
        expr_and_absent(expr, store->layout->keys[0].name);
    } else if (form_of(store, write->space) == DDB_FORM_ROW) {
        ddb_row_condition(row, expr);
    } else {
        expr_and_is(expr, ITEM_VERSION, av_uint(write->version));
    }
}

static enum belay_code send_item(struct ddb_store *store, const struct belay_item_write *write,
                                 const json_t *row, uint64_t version, struct belay_error *err)
{
    json_t *request = json_pack("{s:s,s:o}", "TableName", store->params.table, "Key",
                                item_key(store, write->space, write->name));
    struct ddb_answer answer;
    struct expr expr;
    bool ok = true;
    enum belay_code code;

    expr_init(&expr);
    put_condition(store, write, row, &expr);
    if (write->value != NULL && form_of(store, write->space) == DDB_FORM_ROW) {
        ok = ddb_app_to_row(write->value, version, &expr);
    } else if (write->value != NULL) {
        expr_set(&expr, ITEM_VALUE, av_text(write->value));
        expr_set(&expr, ITEM_VERSION, av_uint(version));
    }
    ok = ok && request != NULL && expr_finish(&expr, request);
    expr_release(&expr);
    if (!ok) {
        json_decref(request);
        return error_no_memory(err);
    }
    code = ddb_call(store, write->value == NULL ? "DeleteItem" : "UpdateItem", request, &answer, err);
    ddb_answer_release(&answer);
    return code;
}

/* Whether the stored item is the one that this client wrote: a retry of an applied write is refused. */
static bool was_applied(struct ddb_store *store, const struct belay_item_write *write, uint64_t version)
{
    struct belay_item item = { 0 };
    bool ours = ddb_item_get(&store->base, write->space, write->name, &item, NULL) == BELAY_OK &&
                (write->value == NULL ? item.version == 0 : item.version == version);

    belay_item_release(&item);
    return ours;
}

enum belay_code ddb_item_put(struct belay_store *base, const struct belay_item_write *write,
                             uint64_t *out_version, struct belay_error *err)
{
    struct ddb_store *store = ddb_of(base);
    uint64_t version = random_version();
    uint64_t before = 0;
    json_t *row = NULL;
    enum belay_code code = check_form(store, write->space, err);

    /* A row of another program has no version: the condition is that each attribute is unchanged. */
    if (code == BELAY_OK && !write->any_version && write->version != 0 &&
        form_of(store, write->space) == DDB_FORM_ROW) {
        code = get_row(store, write->space, write->name, &row, err);
        if (code == BELAY_OK) {
            free(row == NULL ? NULL : ddb_row_to_app(row, &before));
            code = before == write->version ? BELAY_OK : BELAY_REFUSED;
        }
    }
    if (code == BELAY_OK) {
        code = send_item(store, write, row, version, err);
        if ((code == BELAY_REFUSED || code == BELAY_UNKNOWN) && was_applied(store, write, version)) {
            code = BELAY_OK;
        }
    }
    json_decref(row);
    if (code == BELAY_REFUSED) {
        return error_set(err, BELAY_REFUSED, "'%.200s' is of another version", write->name);
    }
    if (code == BELAY_OK) {
        *out_version = write->value == NULL ? 0 : version;
    }
    return code;
}
