/*
 * The store as src/client calls it. Each function is the store's own of that name, with asserts on what
 * the port promises (belay/store.h), in one place for every store. A record itself is not asserted:
 * other programs may have written it.
 */
#include <assert.h>
#include <string.h>

#include "base/error.h"
#include "client/client.h"

/* Of a store on the network, only what this process has made of the answer is asserted: not order, not content. */
static bool is_on_this_machine(struct belay_store *store)
{
    return store->ops->capabilities(store).is_local;
}

/* ---- commits and reads ---- */

static void assert_batch(const struct belay_batch *batch)
{
    assert(batch->n_writes == 0 || batch->writes != NULL);
    assert(batch->n_events == 0 || batch->events != NULL);
    assert(batch->timeout_ms >= 0 && batch->freeze_grace_ms >= 0);
    assert(!batch->note_refusal || batch->n_writes == 1);
}

/* Of a store on this machine: belay itself wrote this. The answer of a store on the network is another program's. */
static void assert_written_here(const struct belay_batch *batch, const struct belay_commit *result)
{
    for (size_t i = 0; i < result->n_records; i++) {
        const struct belay_write *write = &batch->writes[i];
        const struct belay_record *record = &result->records[i];
        bool acquires = (write->set & BELAY_SET_ACQUIRED) != 0;

        assert(strcmp(record->key, write->key) == 0);
        assert(!acquires || (record->held && record->revision != 0 && record->token != 0));
        assert(!acquires || result->now_ms <= record->expires_ms || write->values->ttl_ms <= 0);
        assert((write->set & BELAY_SET_IDENTITY) == 0 || result->token != 0);
    }
    assert(result->event_id == 0 || batch->n_events > 0);
}

/* A refusal names its write, with the record that refused it. */
void store_assert_commit(struct belay_store *store, const struct belay_batch *batch, enum belay_code code,
                         const struct belay_commit *result)
{
    if (code == BELAY_OK) {
        assert(result->n_records == batch->n_writes);
        assert(result->n_records == 0 || result->records[0].key != NULL);
        if (is_on_this_machine(store)) {
            assert_written_here(batch, result);
        }
    } else if (code == BELAY_REFUSED) {
        assert(result->refused < batch->n_writes && result->n_records == 1);
        assert(result->records[0].key != NULL);
    } else if (code == BELAY_FROZEN) {
        assert(batch->check_freezes && result->frozen != NULL && result->frozen_for_ms >= 0);
    }
    assert(!result->woke_first || code == BELAY_OK);
}

enum belay_code store_commit(struct belay_store *store, const struct belay_batch *batch,
                             struct belay_commit *out, struct belay_error *err)
{
    enum belay_code code;

    assert_batch(batch);
    code = store->ops->commit(store, batch, out, err);
    store_assert_commit(store, batch, code, out);
    return code;
}

enum belay_code store_get(struct belay_store *store, const char *const *keys, size_t n,
                          struct belay_record *out_records, int64_t *out_now_ms, struct belay_error *err)
{
    enum belay_code code;

    assert(n > 0 && keys[0] != NULL);
    code = store->ops->get(store, keys, n, out_records, out_now_ms, err);
    assert(code != BELAY_REFUSED && code != BELAY_FROZEN); /* those are answers of a commit */
    for (size_t i = 0; code == BELAY_OK && i < n; i++) {
        assert(out_records[i].key != NULL);
    }
    return code;
}

/* ---- lists: their order comes from a file, which may be damaged, so it is checked and not asserted ---- */

/* `code` is what the store returned. */
static enum belay_code require_order(const struct belay_store *store, bool is_disordered, const char *what,
                                     enum belay_code code, struct belay_error *err)
{
    return !is_disordered
               ? code
               : error_set(err, BELAY_BAD_CONTENT, "the %s store is damaged: its %s are out of order",
                           store->ops->name, what);
}

struct ordered_scan {
    belay_record_fn fn;
    void *context;
    const char *after;
    char last[BELAY_KEY_MAX + 1]; /* the key before, or its beginning; "": none */
    bool is_stopped;
    bool is_disordered;
};

static bool scan_in_order(void *context, const struct belay_record *record, int64_t now_ms)
{
    struct ordered_scan *ordered = context;
    size_t len = strlen(record->key);

    assert(!ordered->is_stopped);
    ordered->is_disordered = strncmp(ordered->last, record->key, BELAY_KEY_MAX) > 0 ||
                             (ordered->after != NULL && strcmp(ordered->after, record->key) >= 0);
    if (ordered->is_disordered) {
        ordered->is_stopped = true;
        return false;
    }
    len = len < BELAY_KEY_MAX ? len : BELAY_KEY_MAX;
    memcpy(ordered->last, record->key, len);
    ordered->last[len] = '\0';
    ordered->is_stopped = !ordered->fn(ordered->context, record, now_ms);
    return !ordered->is_stopped;
}

enum belay_code store_scan(struct belay_store *store, const struct belay_scan *scan, belay_record_fn fn,
                           void *context, struct belay_error *err)
{
    struct ordered_scan ordered = { .fn = fn, .context = context, .after = scan->after };
    enum belay_code code;

    if (!is_on_this_machine(store)) {
        return store->ops->scan(store, scan, fn, context, err);
    }
    code = store->ops->scan(store, scan, scan_in_order, &ordered, err);
    return require_order(store, ordered.is_disordered, "records", code, err);
}

struct ordered_events {
    belay_event_fn fn;
    void *context;
    uint64_t last; /* the id before; at first query.after */
    bool is_stopped;
    bool is_disordered;
};

static bool event_in_order(void *context, const struct belay_event *event)
{
    struct ordered_events *ordered = context;

    assert(!ordered->is_stopped);
    ordered->is_disordered = event->id <= ordered->last;
    ordered->last = event->id;
    ordered->is_stopped = ordered->is_disordered || !ordered->fn(ordered->context, event);
    return !ordered->is_stopped;
}

enum belay_code store_events(struct belay_store *store, const struct belay_events_query *query,
                             belay_event_fn fn, void *context, struct belay_error *err)
{
    struct ordered_events ordered = { .fn = fn, .context = context, .last = query->after };
    enum belay_code code;

    assert(store->ops->events != NULL);
    if (!is_on_this_machine(store)) {
        return store->ops->events(store, query, fn, context, err);
    }
    code = store->ops->events(store, query, event_in_order, &ordered, err);
    return require_order(store, ordered.is_disordered, "events", code, err);
}

/* ---- items ---- */

enum belay_code store_item_get(struct belay_store *store, const char *space, const char *name,
                               struct belay_item *out_item, struct belay_error *err)
{
    enum belay_code code;

    assert(space != NULL && name != NULL);
    code = store->ops->item_get(store, space, name, out_item, err);
    assert(code != BELAY_OK || out_item->value != NULL || out_item->version == 0);
    return code;
}

enum belay_code store_item_put(struct belay_store *store, const struct belay_item_write *write,
                               uint64_t *out_version, struct belay_error *err)
{
    enum belay_code code;

    assert(write->space != NULL && write->name != NULL && out_version != NULL);
    code = store->ops->item_put(store, write, out_version, err);
    assert(code != BELAY_OK || (write->value == NULL) == (*out_version == 0));
    assert(code != BELAY_REFUSED || !write->any_version);
    return code;
}

enum belay_code store_item_list(struct belay_store *store, const char *space, belay_item_fn fn, void *context,
                                struct belay_error *err)
{
    assert(space != NULL && fn != NULL);
    return store->ops->item_list(store, space, fn, context, err);
}

/* ---- group commit ---- */

enum belay_code store_sync(struct belay_store *store, uint64_t lsn, struct belay_error *err)
{
    enum belay_code code = store->ops->sync(store, lsn, err);

    assert(code != BELAY_OK || store->ops->durable_lsn(store) >= lsn);
    return code;
}

uint64_t store_durable_lsn(struct belay_store *store)
{
    uint64_t durable = store->ops->durable_lsn(store); /* first: both only rise */

    assert(durable <= store->ops->committed_lsn(store));
    return durable;
}
