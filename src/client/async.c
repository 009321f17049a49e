/* Asynchronous operations, for event loops: the same state machines, without a thread for each. */
#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "client/client.h"
#include "lock/info.h"

static void async_free(struct belay_async *call)
{
    if (call == NULL) {
        return;
    }
    assert(!call->is_ready && call->heap_at == 0);
    if (call->step != NULL) {
        store_step_release(call->step);
        free(call->step);
    }
    op_destroy(&call->op);
    poller_release(&call->poller);
    async_table_free(&call->client->asyncs, call);
}

/* ---- copies of the caller's strings ---- */

static size_t texts_size(const struct op_request *request)
{
    size_t size = text_room(request->key) + text_room(request->lock_id) + text_room(request->old_id) +
                  text_room(request->owner) + text_room(request->owner_name) +
                  text_room(request->acquired_by) + text_room(request->by) + text_room(request->reason);

    for (size_t i = 0; i < request->n_ancestors; i++) {
        size += text_room(request->ancestors[i]);
    }
    if (request->joint != NULL) {
        size += sizeof *request->joint + _Alignof(struct op_joint) + joint_text_size(request->joint);
    }
    for (size_t i = 0; i < request->n_metadata; i++) {
        size += text_room(request->metadata[i].name) + text_room(request->metadata[i].value);
    }
    return size;
}

/* Copy all strings of the request into the memory behind the call, from which it then borrows them. */
static void keep_texts(struct belay_async *call, struct op_request *request)
{
    char *at = (char *)(call->metadata + request->n_metadata);

    if (request->joint != NULL) {
        /* First, while `at` is aligned. */
        struct op_joint *joint = memcpy(at, request->joint, sizeof *joint);

        at += sizeof *joint;
        joint_keep_texts(joint, &at);
        request->joint = joint;
    }
    request->key = text_place(&at, request->key);
    request->lock_id = text_place(&at, request->lock_id);
    request->old_id = text_place(&at, request->old_id);
    request->owner = text_place(&at, request->owner);
    request->owner_name = text_place(&at, request->owner_name);
    request->acquired_by = text_place(&at, request->acquired_by);
    request->by = text_place(&at, request->by);
    request->reason = text_place(&at, request->reason);
    for (size_t i = 0; i < request->n_ancestors; i++) {
        request->ancestors[i] = text_place(&at, request->ancestors[i]);
    }
    for (size_t i = 0; i < request->n_metadata; i++) {
        call->metadata[i].name = text_place(&at, request->metadata[i].name);
        call->metadata[i].value = text_place(&at, request->metadata[i].value);
    }
    request->metadata = call->metadata;
}

/* A call is one block of memory, with copies of everything that the request borrows. */
static enum belay_code begin_call(struct belay_client *client, const struct op_request *checked,
                                  belay_async_fn fn, void *context, struct belay_async **out_call,
                                  struct belay_error *err)
{
    struct op_request request = *checked;
    struct belay_async *call;

    if (client->store == NULL) {
        return error_set(err, BELAY_INVALID,
                         "calls that do not block need a store: this client's is a server, %.200s",
                         client->url);
    }
    call = async_table_alloc(&client->asyncs, sizeof *call + request.n_metadata * sizeof *call->metadata +
                                                  texts_size(&request));
    if (call == NULL) {
        return error_no_memory(err);
    }
    memset(call, 0, offsetof(struct belay_async, size));
    call->client = client;
    call->fn = fn;
    call->context = context;
    keep_texts(call, &request);
    op_start(&call->op, &request, clock_boot_ms());
    call->is_granted = client_grants(client, &request);
    if (!async_table_add(&client->asyncs, call)) {
        async_free(call);
        return error_no_memory(err);
    }
    assert(call->op.want != OP_WAIT); /* it begins with a request to the store, or has ended */
    async_table_set_ready(&client->asyncs, call);
    if (out_call != NULL) {
        *out_call = call;
    }
    return BELAY_OK;
}

enum belay_code belay_async_acquire(struct belay_client *client, const char *key,
                                    const struct belay_lock_options *options, belay_async_fn fn,
                                    void *context, struct belay_async **out_async, struct belay_error *err)
{
    struct client_request request;
    enum belay_code code = request_init_acquire(&request, client, key, options, err);

    if (code == BELAY_OK && async_table_find(&client->asyncs, request.op.lock_id) != NULL) {
        code =
            error_set(err, BELAY_BUSY, "another operation with lock id '%s' is in progress; try again later",
                      request.op.lock_id);
    }
    if (code == BELAY_OK) {
        code = begin_call(client, &request.op, fn, context, out_async, err);
    }
    request_release(&request);
    return code;
}

enum belay_code belay_async_adopt(struct belay_client *client, const char *key, const char *lock_id,
                                  const struct belay_lock_options *options, belay_async_fn fn, void *context,
                                  struct belay_error *err)
{
    struct client_request request;
    enum belay_code code = request_init_adopt(&request, client, key, lock_id, options, err);

    if (code == BELAY_OK) {
        code = begin_call(client, &request.op, fn, context, NULL, err);
    }
    request_release(&request);
    return code;
}

/* Add the further keys to the request, and begin it. Releases the request. */
static enum belay_code begin_call_keys(struct belay_client *client, struct client_request *request,
                                       const char *const *more_keys, size_t n, belay_async_fn fn,
                                       void *context, struct belay_error *err)
{
    enum belay_code code = request_add_keys(request, client, more_keys, n, err);

    if (code == BELAY_OK) {
        code = begin_call(client, &request->op, fn, context, NULL, err);
    }
    request_release(request);
    return code;
}

enum belay_code belay_async_renew_keys(struct belay_client *client, const char *const *keys, size_t n_keys,
                                       const char *lock_id, int64_t ttl_ms, belay_async_fn fn, void *context,
                                       struct belay_error *err)
{
    struct client_request request;
    enum belay_code code =
        request_init_renew(&request, client, n_keys == 0 ? NULL : keys[0], lock_id, ttl_ms, err);

    return code == BELAY_OK ? begin_call_keys(client, &request, keys + 1, n_keys - 1, fn, context, err)
                            : code;
}

enum belay_code belay_async_renew(struct belay_client *client, const char *key, const char *lock_id,
                                  int64_t ttl_ms, belay_async_fn fn, void *context, struct belay_error *err)
{
    return belay_async_renew_keys(client, &key, 1, lock_id, ttl_ms, fn, context, err);
}

enum belay_code belay_async_release_keys(struct belay_client *client, const char *const *keys, size_t n_keys,
                                         const char *lock_id, enum belay_outcome outcome, const char *by,
                                         belay_async_fn fn, void *context, struct belay_error *err)
{
    struct client_request request;
    enum belay_code code =
        request_init_release(&request, client, n_keys == 0 ? NULL : keys[0], lock_id, outcome, err);

    request.op.by = by;
    return code == BELAY_OK ? begin_call_keys(client, &request, keys + 1, n_keys - 1, fn, context, err)
                            : code;
}

enum belay_code belay_async_release_by(struct belay_client *client, const char *key, const char *lock_id,
                                       enum belay_outcome outcome, const char *by, belay_async_fn fn,
                                       void *context, struct belay_error *err)
{
    return belay_async_release_keys(client, &key, 1, lock_id, outcome, by, fn, context, err);
}

enum belay_code belay_async_release(struct belay_client *client, const char *key, const char *lock_id,
                                    enum belay_outcome outcome, belay_async_fn fn, void *context,
                                    struct belay_error *err)
{
    return belay_async_release_by(client, key, lock_id, outcome, NULL, fn, context, err);
}

enum belay_code belay_async_force_release(struct belay_client *client, const char *key, const char *lock_id,
                                          const char *by, const char *reason, belay_async_fn fn,
                                          void *context, struct belay_error *err)
{
    struct client_request request;
    enum belay_code code = request_init_force(&request, client, key, lock_id, by, reason, err);

    return code == BELAY_OK ? begin_call(client, &request.op, fn, context, NULL, err) : code;
}

void belay_async_cancel(struct belay_async *async)
{
    op_cancel(&async->op); /* also in flight: the thread that asks the store does not read this flag */
    if (async->is_in_flight) {
        async->was_woken = true;
    } else {
        async_table_set_ready(&async->client->asyncs, async);
    }
}

bool belay_async_is_waiting(const struct belay_async *async, struct belay_wait_info *out_waiting)
{
    if (async->is_in_flight || async->op.want != OP_WAIT || !async->op.queued) {
        return false;
    }
    *out_waiting = client_wait_info(&async->op);
    return true;
}

void belay_async_abandon(struct belay_async *async)
{
    if (async->is_in_flight) {
        async->is_abandoned = true;
        return;
    }
    client_wait_ends(async->client, &async->poller);
    async_table_remove(&async->client->asyncs, async);
    async_free(async);
}

bool belay_async_is_retrying(const struct belay_async *async)
{
    return async->op.faults > 0;
}

/* ---- running them ---- */

/* The locks on further keys are copied, everything else is borrowed. False: no memory. */
static bool borrow_several(const struct op *op, struct belay_info *info, struct belay_info **out_joint)
{
    if (op->n_more == 0) {
        return info_borrow_holders(info, &op->record, op->record_now_ms);
    }
    *out_joint = op_info(op, info_from_record(&op->record, op->record_now_ms, false));
    if (*out_joint != NULL) {
        *info = **out_joint;
    }
    return *out_joint != NULL;
}

static void finish_call(struct belay_client *client, struct belay_async *call)
{
    const struct op *op = &call->op;
    struct belay_info *joint = NULL;
    struct belay_info info;
    enum belay_code code = op->code;

    assert(!call->is_in_flight && (call->is_granted || op->want == OP_DONE));
    assert(call->is_granted || code != BELAY_OK || op->info.key != NULL);
    if (call->is_granted || client_forgives(client, &op->request, code, op->err.text)) {
        code = BELAY_OK;
        belay_error_release(&call->op.err);
        info = granted_info(&op->request);
    } else {
        info = op->info;
        if (code == BELAY_OK && (op->n_more > 0 || op->record.n_holders > 0) &&
            !borrow_several(op, &info, &joint)) {
            code = error_no_memory(&call->op.err);
        }
        info_set_valid_for(&info, op_valid_for_ms(op, clock_boot_ms()));
    }
    if (code == BELAY_REDIRECTED) {
        code = call->op.err.code =
            BELAY_UNREACHABLE; /* a server owns the file now, and calls go to a store only */
    }
    assert(code == BELAY_OK ? call->op.err.code == BELAY_OK : call->op.err.code == code);
    async_table_remove(&client->asyncs, call);
    call->fn(call->context, code, code == BELAY_OK ? &info : NULL, &call->op.err);
    if (joint == NULL) {
        free(info.holders);
    }
    belay_info_free(joint);
    async_free(call);
}

/*
 * Continue a call as far as possible without waiting. `is_answered`: it was in flight, and the store has answered;
 * otherwise it is new, woken or due.
 */
static void continue_call(struct belay_client *client, struct belay_async *call, bool is_answered)
{
    struct store_step step;

    assert(!call->is_in_flight && !(call->is_granted && is_answered));
    assert(!call->is_ready && call->heap_at == 0); /* the caller has removed it from its list */
    if (is_answered && call->is_abandoned) {
        belay_async_abandon(call);
        return;
    }
    if (is_answered) {
        store_step_report(client, &call->op, call->step);
    } else if (client->threads == NULL) {
        client_wait_ends(client, &call->poller);
    } /* else the worker thread calls it: this thread might have to wait for another poller */
    if (!is_answered && !call->is_granted && call->op.want == OP_WAIT) {
        op_on_wake(&call->op, clock_boot_ms());
    }
    while (!call->is_granted && (call->op.want == OP_COMMIT || call->op.want == OP_GET)) {
        call->was_woken = false;
        if (client->threads != NULL && threads_ask(client, call)) {
            return;
        }
        client_wait_ends(client, &call->poller);
        store_step_ask(client, &call->op, &call->poller, &step);
        store_step_report(client, &call->op, &step);
    }
    if (call->is_granted || call->op.want == OP_DONE) {
        client_wait_ends(client, &call->poller);
        finish_call(client, call);
        return;
    }
    assert(call->op.want == OP_WAIT);
    client_wait_begins(client, &call->op, &call->poller);
    if (call->was_woken || !async_table_wait(&client->asyncs, call)) {
        async_table_set_ready(&client->asyncs, call); /* also without memory for the heap: it polls at once */
    }
}

/* A wake-up by another thread, in a blocking operation, or by another client of the store. */
struct posted_wake {
    struct posted_wake *next;
    bool is_from_store;
    char lock_id[BELAY_ID_MAX + 1];
};

/* Without memory the wake-up is lost: the call polls a little later. */
static void post_wake(struct belay_client *client, const char *lock_id, bool is_from_store)
{
    struct posted_wake *woken = calloc(1, sizeof *woken);

    assert(lock_id != NULL);
    if (woken == NULL) {
        return;
    }
    woken->is_from_store = is_from_store;
    (void)snprintf(woken->lock_id, sizeof woken->lock_id, "%s", lock_id);
    (void)pthread_mutex_lock(&client->mutex);
    woken->next = client->posted_wakes;
    client->posted_wakes = woken;
    (void)pthread_mutex_unlock(&client->mutex);
}

static void deliver_wakes(struct belay_client *client)
{
    struct posted_wake *woken;

    (void)pthread_mutex_lock(&client->mutex);
    woken = client->posted_wakes;
    client->posted_wakes = NULL;
    (void)pthread_mutex_unlock(&client->mutex);
    while (woken != NULL) {
        struct posted_wake *next = woken->next;

        (void)async_wake(client, woken->lock_id, true);
        if (woken->is_from_store && client->on_wake != NULL) {
            client->on_wake(client->context, woken->lock_id);
        }
        free(woken);
        woken = next;
    }
}

bool async_wake(struct belay_client *client, const char *lock_id, bool at_once)
{
    struct belay_async *call;

    if (!atomic_load(&client->has_poll_thread)) {
        return false;
    }
    if (!pthread_equal(pthread_self(), client->poll_thread)) {
        post_wake(client, lock_id, false);
        return false;
    }
    call = async_table_find(&client->asyncs, lock_id);
    if (call != NULL && call->is_in_flight) {
        call->was_woken = true; /* it may have read the record before the change that wakes it */
    } else if (call != NULL && call->heap_at != 0 && at_once) {
        /* A call that is being continued is not in the heap, and reads the record anyway. */
        async_table_set_ready(&client->asyncs, call);
    } else if (call != NULL && call->heap_at != 0) {
        async_table_wake_by(&client->asyncs, call, clock_boot_ms());
    }
    return call != NULL && call->op.request.kind == OP_ACQUIRE;
}

void async_on_store_wake(void *context, const char *lock_id)
{
    struct belay_client *client = context;

    if (lock_id != NULL) {
        post_wake(client, lock_id, true);
    } else {
        atomic_store(&client->missed_wakes, true);
    }
    if (!atomic_load(&client->has_poll_thread) || !pthread_equal(pthread_self(), client->poll_thread) ||
        !client->is_taking) {
        threads_poke(client);
    }
}

static void wake_all_if_missed(struct belay_client *client)
{
    if (atomic_load(&client->missed_wakes) && atomic_exchange(&client->missed_wakes, false)) {
        async_table_wake_all(&client->asyncs);
        if (client->on_wake != NULL) {
            client->on_wake(client->context, NULL);
        }
    }
}

/* A freeze was ended, perhaps by another thread: the calls that wait for that poll again. */
static void wake_after_freeze(struct belay_client *client)
{
    if (atomic_load(&client->freeze_ended) && atomic_exchange(&client->freeze_ended, false)) {
        async_table_wake_frozen_by(&client->asyncs, clock_boot_ms());
    }
}

/*
 * The operations that are due are found once. If many wait and each step takes time, the first
 * would be due again before the last had its turn, and this function would not return.
 */
int64_t belay_client_poll(struct belay_client *client)
{
    struct async_table *calls = &client->asyncs;
    int64_t now_ms = clock_boot_ms();
    int64_t flush_ms;
    struct belay_async *call;

    if (!atomic_load(&client->has_poll_thread)) {
        client->poll_thread = pthread_self();
        atomic_store(&client->has_poll_thread, true);
    }
    client->is_taking = true;
    threads_take(client); /* first, because an answer may wake a waiter */
    client->is_taking = false;
    deliver_wakes(client);
    wake_all_if_missed(client);
    wake_after_freeze(client);
    while ((call = async_table_soonest(calls)) != NULL && call->op.wait_until_ms <= now_ms) {
        async_table_set_ready(calls, call);
    }
    for (;;) {
        if (client->threads != NULL && (call = threads_next(client)) != NULL) {
            continue_call(client, call, true);
        } else if ((call = async_table_next_ready(calls)) != NULL) {
            continue_call(client, call, false);
        } else {
            break;
        }
    }
    flush_ms = threads_flush(client);
    call = async_table_soonest(calls);
    return call == NULL || flush_ms < call->op.wait_until_ms ? flush_ms : call->op.wait_until_ms;
}

/* The store, if its commits are durable only after a sync; else NULL. */
static struct belay_store *synced_store(const struct belay_client *client)
{
    return client->store != NULL && client->store->ops->sync != NULL ? client->store : NULL;
}

enum belay_code belay_client_sync(struct belay_client *client, struct belay_error *err)
{
    struct belay_store *store = synced_store(client);

    return store == NULL ? BELAY_OK : store_sync(store, store->ops->committed_lsn(store), err);
}

uint64_t belay_client_committed_lsn(const struct belay_client *client)
{
    struct belay_store *store = synced_store(client);

    return store == NULL ? 0 : store->ops->committed_lsn(store);
}

uint64_t belay_client_durable_lsn(const struct belay_client *client)
{
    struct belay_store *store = synced_store(client);

    return store == NULL ? 0 : store_durable_lsn(store);
}

void async_drop_all(struct belay_client *client)
{
    struct belay_async *call;

    client->on_wake = NULL;
    threads_stop(client);
    assert(client->threads == NULL);
    deliver_wakes(client);
    while ((call = async_table_any(&client->asyncs)) != NULL) {
        async_table_remove(&client->asyncs, call);
        client_wait_ends(client, &call->poller);
        async_free(call);
    }
    async_table_release(&client->asyncs);
}
