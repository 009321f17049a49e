/*
 * The conformance suite on the ledger. It is for one process, so the handles of
 * a case share one; when the last is closed all is in the database, and the next
 * one reads it from there.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "store/journaled/journaled_store.h"
#include "support/suite_file.h"

struct handle {
    struct belay_store base;
};

static struct belay_store *shared;
static int n_handles;
static pthread_mutex_t handles_mutex = PTHREAD_MUTEX_INITIALIZER;

static void handle_close(struct belay_store *store)
{
    free(store);
    (void)pthread_mutex_lock(&handles_mutex);
    if (--n_handles == 0) {
        shared->ops->close(shared);
        shared = NULL;
    }
    (void)pthread_mutex_unlock(&handles_mutex);
}

static enum belay_code handle_get(struct belay_store *store, const char *const *keys, size_t n,
                                  struct belay_record *out_records, int64_t *out_now_ms,
                                  struct belay_error *err)
{
    (void)store;
    return shared->ops->get(shared, keys, n, out_records, out_now_ms, err);
}

static enum belay_code handle_commit(struct belay_store *store, const struct belay_batch *batch,
                                     struct belay_commit *out, struct belay_error *err)
{
    static unsigned n_commits;
    enum belay_code code = shared->ops->commit(shared, batch, out, err);

    (void)store;
    /* Some are in the journal and some not yet: what is read must be the same. */
    if (code == BELAY_OK && __atomic_add_fetch(&n_commits, 1, __ATOMIC_SEQ_CST) % 8 == 0) {
        code = shared->ops->sync(shared, shared->ops->committed_lsn(shared), err);
    }
    return code;
}

static enum belay_code handle_scan(struct belay_store *store, const struct belay_scan *scan,
                                   belay_record_fn fn, void *context, struct belay_error *err)
{
    (void)store;
    return shared->ops->scan(shared, scan, fn, context, err);
}

static enum belay_code handle_events(struct belay_store *store, const struct belay_events_query *query,
                                     belay_event_fn fn, void *context, struct belay_error *err)
{
    (void)store;
    return shared->ops->events(shared, query, fn, context, err);
}

static struct belay_store_capabilities handle_capabilities(struct belay_store *store)
{
    (void)store;
    return shared->ops->capabilities(shared);
}

static uint32_t handle_listen(struct belay_store *store, const char *lock_id)
{
    (void)store;
    return shared->ops->listen(shared, lock_id);
}

static void handle_wait(struct belay_store *store, const char *lock_id, uint32_t listened, int64_t timeout_ms,
                        struct belay_cancel *cancel)
{
    (void)store;
    shared->ops->wait(shared, lock_id, listened, timeout_ms, cancel);
}

static void handle_wake(struct belay_store *store, const char *lock_id)
{
    (void)store;
    shared->ops->wake(shared, lock_id);
}

static enum belay_code handle_item_get(struct belay_store *store, const char *space, const char *name,
                                       struct belay_item *out_item, struct belay_error *err)
{
    (void)store;
    return shared->ops->item_get(shared, space, name, out_item, err);
}

static enum belay_code handle_item_put(struct belay_store *store, const struct belay_item_write *write,
                                       uint64_t *out_version, struct belay_error *err)
{
    (void)store;
    return shared->ops->item_put(shared, write, out_version, err);
}

static enum belay_code handle_item_list(struct belay_store *store, const char *space, belay_item_fn fn,
                                        void *context, struct belay_error *err)
{
    (void)store;
    return shared->ops->item_list(shared, space, fn, context, err);
}

static const struct belay_store_ops handle_ops = {
    .name = "ledger",
    .close = handle_close,
    .get = handle_get,
    .commit = handle_commit,
    .scan = handle_scan,
    .events = handle_events,
    .capabilities = handle_capabilities,
    .listen = handle_listen,
    .wait = handle_wait,
    .wake = handle_wake,
    .item_get = handle_item_get,
    .item_put = handle_item_put,
    .item_list = handle_item_list,
};

/* Small files that are full all the time, so that the thread has work in every case. */
static const struct journaled_hooks journaled_hooks = { .sqlite = &suite_file_clocks, .journal_bytes = 8192 };

static struct belay_store *open_store(void *ctx)
{
    struct handle *handle = calloc(1, sizeof *handle);
    struct belay_error err = BELAY_ERROR_INIT;

    (void)ctx;
    (void)pthread_mutex_lock(&handles_mutex);
    if (handle == NULL ||
        (shared == NULL && journaled_store_open(suite_file_path(), &journaled_hooks, NULL, NULL, &shared,
                                                NULL, NULL, &err) != BELAY_OK)) {
        (void)fprintf(stderr, "%s\n", err.text);
        belay_error_release(&err);
        free(handle);
        handle = NULL;
    } else {
        handle->base.ops = &handle_ops;
        n_handles++;
    }
    (void)pthread_mutex_unlock(&handles_mutex);
    return handle == NULL ? NULL : &handle->base;
}

static bool begin(struct suite_fixture *out_fixture)
{
    return suite_file_begin(open_store, out_fixture);
}

int main(void)
{
    static const struct suite_program program = { "ledger", begin, suite_file_end };

    return suite_main(&program);
}
