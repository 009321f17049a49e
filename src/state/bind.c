/*
 * The binding names the lock store that fences a state store. It is a blob at the
 * root, created by the first write and read before every write. A write that read
 * it before a rebind and arrives after it is still conditional on the content that
 * it was made from.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "state/states.h"

#define BINDING "belay-lock-store.json"
#define BINDING_FORMAT "belay-lock-store-v1"
enum { BIND_ATTEMPTS = 8, BINDING_SIZE_MAX = 16384 };

static char *make_binding(const struct belay_states *states, const char *id, const char *url, const char *by)
{
    struct buf out = BUF_INIT(BINDING_SIZE_MAX);
    char utc[CLOCK_TEXT_SIZE];
    const char *const members[][2] = { { "format", BINDING_FORMAT },
                                       { "id", id },
                                       { "store", url },
                                       { "bound_at", clock_format_utc(utc, states_now(states), false) },
                                       { "bound_by", by } };

    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        buf_addf(&out, "%s\"%s\": ", i == 0 ? "{\n  " : ",\n  ", members[i][0]);
        doc_quote(&out, members[i][1]);
    }
    buf_adds(&out, "\n}\n");
    return buf_take(&out);
}

static void forget_binding(struct belay_states *states)
{
    free(states->bound_id);
    free(states->bound_url);
    states->bound_id = states->bound_url = NULL;
}

static enum belay_code remember_binding(struct belay_states *states, const struct belay_blob *blob,
                                        struct belay_error *err)
{
    struct doc doc = { 0 };
    enum belay_code code = doc_scan(blob->data, blob->len, &doc, err);

    forget_binding(states);
    if (code == BELAY_OK) {
        states->bound_id = doc_string(&doc, doc_member(&doc, 0, "id"));
        states->bound_url = doc_string(&doc, doc_member(&doc, 0, "store"));
        states->bound_tag = blob->tag;
        if (!doc_is(&doc, doc_member(&doc, 0, "format"), BINDING_FORMAT) || states->bound_id == NULL) {
            code = error_set(err, BELAY_BAD_CONTENT, "its format is not " BINDING_FORMAT);
        }
    }
    doc_release(&doc);
    if (code != BELAY_OK) {
        forget_binding(states);
        (void)error_wrap(err,
                         "%.200s/" BINDING " ('belay state rebind' rewrites it for the lock store in use)",
                         states->url);
    }
    return code;
}

/* Sets states->bound_id; *out_tag is the tag of the blob, even of a damaged one. */
static enum belay_code read_binding(struct belay_states *states, struct belay_blob_tag *out_tag,
                                    struct belay_error *err)
{
    struct belay_blob blob = { 0 };
    enum belay_code code =
        states_get(states, BINDING, states->bound_id == NULL ? NULL : &states->bound_tag, &blob, err);

    if (code == BELAY_NOT_FOUND) {
        forget_binding(states);
    }
    if (code == BELAY_OK) {
        assert(blob.data != NULL || states->bound_id != NULL);
        *out_tag = blob.data == NULL ? states->bound_tag : blob.tag;
        code = blob.data == NULL ? BELAY_OK : remember_binding(states, &blob, err);
    }
    assert(code != BELAY_OK || states->bound_id != NULL);
    belay_blob_release(&blob);
    return code;
}

static enum belay_code write_binding(struct belay_states *states, const char *text,
                                     const struct belay_blob_tag *expected, struct belay_error *err)
{
    struct belay_blob_tag tag;

    return states->store->ops->put_if(states->store, BINDING, text, strlen(text), expected, &tag, err);
}

static enum belay_code refuse_lock_store(const struct belay_states *states, const char *id, const char *url,
                                         struct belay_error *err)
{
    return error_set(
        err, BELAY_CONFIG,
        "the state store %.200s is fenced by the lock store %.150s (%.60s), not by %.150s (%.60s); "
        "nothing was changed. If the first is no longer in use, 'belay state rebind' accepts the second",
        states->url, states->bound_url == NULL ? "?" : states->bound_url, states->bound_id,
        url == NULL ? "?" : url, id);
}

enum belay_code belay_states_bind(struct belay_states *states, const char *id, const char *url,
                                  struct belay_error *err)
{
    enum belay_code code = BELAY_REFUSED;

    if (states->server != NULL) {
        return BELAY_OK; /* the server checks it */
    }
    for (int i = 0; i < BIND_ATTEMPTS && code == BELAY_REFUSED; i++) {
        struct belay_blob_tag tag;
        char *text;

        code = read_binding(states, &tag, err);
        if (code == BELAY_OK) {
            return strcmp(states->bound_id, id) == 0 ? BELAY_OK : refuse_lock_store(states, id, url, err);
        }
        if (code != BELAY_NOT_FOUND) {
            return code;
        }
        text = make_binding(states, id, url, NULL);
        code = text == NULL ? error_no_memory(err) : write_binding(states, text, NULL, err);
        free(text);
    }
    if (code == BELAY_UNKNOWN) { /* unknown for the binding; the write itself was not sent */
        return error_set(err, BELAY_UNREACHABLE,
                         "cannot bind the state store %.300s to its lock store; nothing was saved",
                         states->url);
    }
    return code == BELAY_REFUSED
               ? error_set(err, BELAY_UNREACHABLE, "%.300s/" BINDING " keeps changing", states->url)
               : code;
}

enum belay_code belay_states_rebind(struct belay_states *states, const char *id, const char *url,
                                    const char *by, char **out_before, struct belay_error *err)
{
    enum belay_code code = BELAY_REFUSED;
    char *before = NULL;

    if (states->server != NULL) {
        return error_set(err, BELAY_CONFIG,
                         "the state store belongs to the server %.200s: rebind it there, with the "
                         "server's --state-store and --store",
                         states->url);
    }
    for (int i = 0; i < BIND_ATTEMPTS && code == BELAY_REFUSED; i++) {
        struct belay_blob_tag tag;
        char *text = make_binding(states, id, url, by);

        free(before);
        before = NULL;
        code = text == NULL ? error_no_memory(err) : read_binding(states, &tag, err);
        if (code == BELAY_OK && states->bound_url != NULL) {
            before = strdup(states->bound_url);
        }
        if (code == BELAY_OK || code == BELAY_NOT_FOUND || code == BELAY_BAD_CONTENT) {
            code = write_binding(states, text, code == BELAY_NOT_FOUND ? NULL : &tag, err);
        }
        free(text);
    }
    if (code == BELAY_OK && out_before != NULL) {
        *out_before = before;
        before = NULL;
    }
    free(before);
    return code == BELAY_REFUSED
               ? error_set(err, BELAY_UNREACHABLE, "%.300s/" BINDING " keeps changing", states->url)
               : code;
}
