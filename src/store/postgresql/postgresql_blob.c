/* Blobs in a PostgreSQL database, beside the locks: state.sql has the tables. This file opens and reads. */
#include "store/postgresql/postgresql_blob.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/blob/blob_store.h"

enum { READ_ATTEMPTS = 8, PAGE = 1000 };
#define PAGE_TEXT "1000"

/* ---- reading ---- */

/* BELAY_REFUSED: the content was replaced meanwhile. */
static enum belay_code add_piece(struct pg_blobs *blobs, const PGresult *result, int column, const char *name,
                                 size_t size, struct belay_blob *blob, struct belay_error *err)
{
    size_t len = PQntuples(result) == 1 ? (size_t)PQgetlength(result, 0, column) : 0;

    if (PQntuples(result) != 1 || PQgetisnull(result, 0, column)) {
        return error_set(err, BELAY_REFUSED, "'%.400s' keeps changing", name);
    }
    if (len > size - blob->len || (len == 0 && size > 0)) {
        return error_set(err, BELAY_BAD_CONTENT, "'%.400s' has another length than its pieces", name);
    }
    memcpy(blob->data + blob->len, PQgetvalue(result, 0, column), len);
    blob->len += len;
    blob_progress(&blobs->base, blob->len, size);
    return BELAY_OK;
}

static enum belay_code read_rest(struct pg_blobs *blobs, const char *name, size_t size,
                                 struct belay_blob *blob, struct belay_error *err)
{
    enum belay_code code = BELAY_OK;

    for (int n = 1; code == BELAY_OK && blob->len < size; n++) {
        char number[24];
        const char *values[] = { blob->tag.text, number };
        struct pg_call call = { PG_BLOB_PIECE, values, 2, true, 0 };
        struct pg_bytes bytes = { .is_answer = true };
        PGresult *result = NULL;

        (void)snprintf(number, sizeof number, "%d", n);
        code = pg_call_bytes(blobs->store, &call, &bytes, &result, err);
        if (code == BELAY_OK) {
            code = add_piece(blobs, result, 0, name, size, blob, err);
        }
        PQclear(result);
    }
    return code;
}

/* The whole content, if there is a first piece; none if it has the tag `known`. */
static enum belay_code read_content(struct pg_blobs *blobs, const PGresult *result, const char *name,
                                    const char *known, struct belay_blob *out_blob, struct belay_error *err)
{
    struct belay_blob blob = { 0 };
    const char *tag = PQgetvalue(result, 0, 0);
    unsigned long long size = strtoull(PQgetvalue(result, 0, 1), NULL, 10);
    enum belay_code code;

    if (known != NULL && strcmp(known, tag) == 0) {
        return BELAY_OK;
    }
    if (size > BELAY_BLOB_SIZE_MAX || strlen(tag) > BELAY_BLOB_TAG_MAX) {
        return error_set(err, BELAY_BAD_CONTENT, "'%.400s' is larger than %zu MB", name,
                         BELAY_BLOB_SIZE_MAX >> 20);
    }
    strcpy(blob.tag.text, tag);
    blob.data = malloc((size_t)size + 1);
    if (blob.data == NULL) {
        return error_no_memory(err);
    }
    code = add_piece(blobs, result, 2, name, (size_t)size, &blob, err);
    if (code == BELAY_OK) {
        code = read_rest(blobs, name, (size_t)size, &blob, err);
    }
    if (code != BELAY_OK) {
        belay_blob_release(&blob);
        return code;
    }
    blob.data[blob.len] = '\0';
    *out_blob = blob;
    return BELAY_OK;
}

static enum belay_code get_once(struct pg_blobs *blobs, const char *name, const char *known,
                                struct belay_blob *out_blob, struct belay_error *err)
{
    const char *values[] = { name, known };
    struct pg_call call = { PG_BLOB_GET, values, 2, true, 0 };
    struct pg_bytes bytes = { .is_answer = true };
    PGresult *result = NULL;
    enum belay_code code = pg_call_bytes(blobs->store, &call, &bytes, &result, err);

    if (code == BELAY_OK && PQntuples(result) == 0) {
        code =
            error_set(err, BELAY_NOT_FOUND, "there is no '%.400s' in %.200s", name, blobs->store->params.url);
    } else if (code == BELAY_OK) {
        code = read_content(blobs, result, name, known, out_blob, err);
    }
    PQclear(result);
    return code;
}

static enum belay_code get_if_changed(struct belay_blob_store *base, const char *name,
                                      const struct belay_blob_tag *known, struct belay_blob *out_blob,
                                      struct belay_error *err)
{
    enum belay_code code = belay_blob_name_check(name, err);

    if (code != BELAY_OK) {
        return code;
    }
    code = BELAY_REFUSED;
    for (int i = 0; code == BELAY_REFUSED && i < READ_ATTEMPTS; i++) {
        code = get_once((struct pg_blobs *)base, name, known == NULL ? NULL : known->text, out_blob, err);
    }
    return code == BELAY_REFUSED ? error_set(err, BELAY_UNREACHABLE, "'%.400s' keeps changing", name) : code;
}

static enum belay_code get(struct belay_blob_store *base, const char *name, struct belay_blob *out_blob,
                           struct belay_error *err)
{
    return get_if_changed(base, name, NULL, out_blob, err);
}

/* ---- listing ---- */

struct blob_page {
    const char *prefix;
    bool shallow;
    char *after; /* owned; the last entry; NULL: there are no more */
};

static enum belay_code list_page(struct pg_blobs *blobs, struct blob_page *page, belay_blob_fn fn,
                                 void *context, struct belay_error *err)
{
    const char *values[] = { page->prefix, page->after, page->shallow ? "t" : "f", PAGE_TEXT };
    struct pg_call call = { PG_BLOB_LIST, values, 4, true, 0 };
    PGresult *result = NULL;
    enum belay_code code = pg_call(blobs->store, &call, &result, err);
    int n = code == BELAY_OK ? PQntuples(result) : 0;
    bool more = n == PAGE;

    for (int i = 0; i < n; i++) {
        struct belay_blob_entry entry = { PQgetvalue(result, i, 0), (uint64_t)pg_number(result, i, 1),
                                          pg_number(result, i, 2) };

        if (!fn(context, &entry)) {
            more = false;
            break;
        }
    }
    free(page->after);
    page->after = more ? strdup(PQgetvalue(result, n - 1, 0)) : NULL;
    if (more && page->after == NULL) {
        code = error_no_memory(err);
    }
    PQclear(result);
    return code;
}

static enum belay_code list(struct belay_blob_store *base, const char *prefix, bool shallow, belay_blob_fn fn,
                            void *context, struct belay_error *err)
{
    struct blob_page page = { prefix, shallow, strdup("") };
    enum belay_code code = page.after == NULL ? error_no_memory(err) : BELAY_OK;

    while (code == BELAY_OK && page.after != NULL) {
        code = list_page((struct pg_blobs *)base, &page, fn, context, err);
    }
    free(page.after);
    return code;
}

/* ---- the port ---- */

static enum belay_code put_if(struct belay_blob_store *base, const char *name, const void *data, size_t len,
                              const struct belay_blob_tag *expected, struct belay_blob_tag *out_tag,
                              struct belay_error *err)
{
    struct belay_blob_put put = { .name = name, .data = data, .len = len, .expected = expected };

    return pg_blob_put((struct pg_blobs *)base, &put, out_tag, err);
}

static enum belay_code put_if_held(struct belay_blob_store *base, const struct belay_blob_put *put,
                                   struct belay_blob_tag *out_tag, struct belay_error *err)
{
    return pg_blob_put((struct pg_blobs *)base, put, out_tag, err);
}

static enum belay_code remove_blob(struct belay_blob_store *base, const char *name, struct belay_error *err)
{
    return pg_blob_remove((struct pg_blobs *)base, name, NULL, err);
}

static enum belay_code remove_if_held(struct belay_blob_store *base, const char *name,
                                      const struct belay_blob_lock *lock, struct belay_error *err)
{
    return pg_blob_remove((struct pg_blobs *)base, name, lock, err);
}

static void close_blobs(struct belay_blob_store *base)
{
    struct pg_blobs *blobs = (struct pg_blobs *)base;

    blobs->store->base.ops->close(&blobs->store->base);
    free(blobs);
}

static const struct belay_blob_ops blob_ops = {
    .name = "postgresql",
    .close = close_blobs,
    .get = get,
    .put_if = put_if,
    .list = list,
    .remove = remove_blob,
    .get_if_changed = get_if_changed,
    .put_if_held = put_if_held,
    .remove_if_held = remove_if_held,
};

enum belay_code postgresql_blob_open(const char *url, const struct postgresql_options *options,
                                     struct belay_blob_store **out_store, char **out_url,
                                     struct belay_error *err)
{
    struct pg_blobs *blobs = calloc(1, sizeof *blobs);
    struct belay_store *store = NULL;
    char *whole = NULL;
    enum belay_code code;

    if (blobs == NULL) {
        return error_no_memory(err);
    }
    code = postgresql_store_open(url, options, &store, &whole, err);
    if (code != BELAY_OK) {
        free(blobs);
        return code;
    }
    blobs->base.ops = &blob_ops;
    blobs->store = pg_of(store);
    if (out_url != NULL) {
        *out_url = whole;
    } else {
        free(whole);
    }
    *out_store = &blobs->base;
    return BELAY_OK;
}
