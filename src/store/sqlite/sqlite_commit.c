/*
 * The only way in which records change.
 * A commit about a process's lock need not be synced: if the machine loses power, the process
 * ends, too. These are synced:
 * - a batch that asks for it, and every batch with durability=full;
 * - every write that creates, ends or changes a holder that is not a process;
 * - the ceiling below which numbers are issued. It is raised, and synced, in a transaction
 *   before the first number that needs it; after a restart numbers continue from the ceiling
 *   (L2).
 *     begin -> read -> conditions -> +-- refused
 *       ^                            +-- must be durable, but is not: again, durably
 *       |                            +-- numbers used up: raise the ceiling, again
 *       +----------------------------+-- write -> commit
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/sqlite/sqlite_internal.h"

struct sqlite_batch {
    struct sqlite_store *store;
    struct batch_work base;
    /* Of the ticket that each write puts. Beside base.batch->writes; owned unless they are few. */
    bool *has_liveness;
    bool *kept; /* this commit took the ticket's liveness lock */
    bool full;  /* commit with a sync */
    bool again; /* prepare_commit() has to run again */

    bool few_has_liveness[BATCH_FEW];
    bool few_kept[BATCH_FEW];
};

static uint64_t last_number(const struct sqlite_batch *work)
{
    size_t n = work->base.batch->n_events == 0 ? 1 : work->base.batch->n_events;

    return work->base.txn.next + n - 1;
}

static bool asks_to_last(const struct belay_batch *batch)
{
    bool asks = batch->durable;

    for (size_t i = 0; !asks && i < batch->n_writes; i++) {
        asks = (batch->writes[i].set & BELAY_SET_LIVENESS) != 0 && batch->writes[i].values->durable;
    }
    return asks;
}

/* In a transaction of its own: numbers that are issued later stay below it whatever happens. */
enum belay_code sqlite_raise_ceiling(struct sqlite_store *store, uint64_t to, struct belay_error *err)
{
    struct txn txn = { 0 };
    bool other_boot = false;
    bool raised = false;
    int rc = db_begin(store, true);

    assert(to > 0);
    if (rc == SQLITE_OK) {
        rc = db_read_txn(store, &txn, &other_boot);
    }
    assert(rc != SQLITE_OK || txn.next > 0);
    if (rc == SQLITE_OK && !other_boot && !txn.served && txn.ceiling < to) {
        raised = true;
        rc = db_run_int(store, ST_SET_CEILING, (int64_t)to);
    }
    if (rc == SQLITE_OK) {
        rc = db_run(store, ST_COMMIT);
    }
    db_rollback(store);
    if (rc == SQLITE_OK && raised) {
        db_write_back(store);
    }
    return rc == SQLITE_OK ? BELAY_OK : sqlite_failed(store, rc, err);
}

/* Whether the acquisition is in the index, or among the events that are not indexed yet. */
static enum belay_code find_acquisition(void *context, const char *key, const char *id, bool *out_used,
                                        struct belay_error *err)
{
    struct sqlite_store *store = context;
    struct binder binder = { NULL, SQLITE_OK };

    binder.rc = db_statement(store, ST_ID_USED, &binder.statement);
    bind_text(&binder, 1, key);
    bind_text(&binder, 2, id);
    bind_int(&binder, 3, hash_acquisition(key, id));
    bind_int(&binder, 4, id_born(id));
    if (binder.rc == SQLITE_OK) {
        binder.rc = sqlite3_step(binder.statement);
        *out_used = binder.rc == SQLITE_ROW;
        (void)sqlite3_reset(binder.statement);
    }
    return binder.rc == SQLITE_ROW || binder.rc == SQLITE_DONE ? BELAY_OK
                                                               : sqlite_failed(store, binder.rc, err);
}

/*
 * Take the liveness locks of new tickets before other processes can see these, or they would
 * consider the waiters dead. Not in a server: its waiters are other processes, which outlive it.
 */
static void keep_tickets(struct sqlite_batch *work)
{
    for (size_t i = 0; work->store->own_fd < 0 && i < work->base.batch->n_writes; i++) {
        const struct belay_write *write = &work->base.batch->writes[i];

        if (write->put_ticket != NULL) {
            work->has_liveness[i] =
                alive_keep(work->store, write->put_ticket->lock_id, write->key, &work->kept[i]);
        }
    }
}

static enum belay_code save_changes(struct sqlite_batch *work, struct belay_error *err)
{
    const struct belay_batch *batch = work->base.batch;
    enum belay_code code = BELAY_OK;

    assert(last_number(work) < work->base.txn.ceiling); /* L2 */
    for (size_t i = 0; code == BELAY_OK && i < batch->n_writes; i++) {
        if (work->base.rows[i].is_changed) {
            code = row_save(work->store, &work->base.rows[i], err);
        }
    }
    for (size_t i = 0; code == BELAY_OK && i < batch->n_events; i++) {
        code = event_save(work->store, &work->base.events[i], err);
    }
    if (code == BELAY_OK && batch->n_events == 0) {
        int rc = db_run_int(work->store, ST_SET_NUMBER, (int64_t)work->base.txn.next);

        code = rc == SQLITE_OK ? BELAY_OK : sqlite_failed(work->store, rc, err);
    }
    return code;
}

/* From BEGIN to just before COMMIT. With work->again everything has to be repeated. */
static enum belay_code prepare_commit(struct sqlite_batch *work, struct belay_error *err)
{
    struct sqlite_store *store = work->store;
    bool other_boot = false;
    enum belay_code code = BELAY_OK;
    int rc = db_begin(store, work->full);

    if (rc == SQLITE_OK) {
        rc = db_read_txn(store, &work->base.txn, &other_boot);
    }
    if (rc != SQLITE_OK) {
        return sqlite_failed(store, rc, err);
    }
    if (work->base.txn.served) {
        return sqlite_redirected(store, err);
    }
    if (other_boot) {
        return sqlite_other_boot(store, err);
    }
    if (db_has_moved(store)) {
        return sqlite_moved(store, err);
    }
    for (size_t i = 0; code == BELAY_OK && i < work->base.batch->n_writes; i++) {
        code = row_load(store, work->base.batch->writes[i].key, &work->base.rows[i], err);
    }
    if (code == BELAY_OK && work->base.batch->check_freezes) {
        /* In the transaction of the commit: a freeze is either before it or after it. */
        code = sqlite_load_freezes(store, err);
    }
    if (code == BELAY_OK) {
        code = batch_check(&work->base, &store->freezes.list, err);
    }
    if (code == BELAY_OK) {
        code = batch_check_unused(&work->base, find_acquisition, store, err);
    }
    if (code == BELAY_OK && !work->full && batch_must_last(&work->base)) {
        work->full = work->again = true;
    }
    if (code == BELAY_OK && !work->again && last_number(work) >= work->base.txn.ceiling) {
        work->again = true;
        db_rollback(store);
        return sqlite_raise_ceiling(store, last_number(work) + (uint64_t)sqlite_numbers_ahead(store), err);
    }
    if (code == BELAY_OK && !work->again) {
        keep_tickets(work);
        code = batch_apply(&work->base, work->has_liveness, err);
    }
    return code == BELAY_OK && !work->again ? save_changes(work, err) : code;
}

static enum belay_code commit_in_database(struct sqlite_batch *work, struct belay_error *err)
{
    enum belay_code code;
    int rc;

    for (;;) {
        work->again = false;
        code = prepare_commit(work, err);
        if (code != BELAY_OK || !work->again) {
            break;
        }
        db_rollback(work->store);
        for (size_t i = 0; i < work->base.batch->n_writes; i++) {
            row_release(&work->base.rows[i]);
        }
    }
    if (code == BELAY_OK) {
        assert(!work->again && (work->full || !work->store->always_full));
        assert(work->store->synchronous == (work->full ? 2 : 1));
        work->store->last_commit.version = 0;
        wake_before_commit(work->store);
        rc = db_run(work->store, ST_COMMIT);
        code = rc == SQLITE_OK ? BELAY_OK : sqlite_commit_failed(work->store, rc, err);
    }
    if (code == BELAY_OK) {
        db_leave_txn(work->store, &work->base.txn, last_number(work), work->base.batch->n_events > 0);
        wake_after_commit(work->store, work->base.batch->n_events > 0);
    } else {
        db_rollback(work->store);
    }
    return code;
}

/* Liveness locks follow the database: kept on success, released otherwise. */
static void settle_tickets(struct sqlite_batch *work, bool done)
{
    for (size_t i = 0; i < work->base.batch->n_writes; i++) {
        const struct belay_write *write = &work->base.batch->writes[i];

        assert(!work->kept[i] || (write->put_ticket != NULL && work->has_liveness[i]));
        if (!done && work->kept[i]) {
            alive_drop(work->store, write->put_ticket->lock_id, write->key);
        }
        for (size_t k = 0; done && k < write->n_drop_tickets; k++) {
            if (write->put_ticket == NULL ||
                strcmp(write->put_ticket->lock_id, write->drop_tickets[k]) != 0) {
                alive_drop(work->store, write->drop_tickets[k], write->key);
            }
        }
    }
}

static void maintain_if_due(struct sqlite_store *store, uint64_t before, uint64_t last)
{
    if (++store->commits == MANY_COMMITS) {
        /* A long-lived process meets many records; the cache grows only as needed. */
        (void)db_exec(store, "PRAGMA cache_size=-" CACHE_KIB);
    }
    db_checkpoint_if_due(store);
    if (before / SWEEP_EVERY != last / SWEEP_EVERY) {
        sqlite_sweep(store, before / LIST_EVERY != last / LIST_EVERY);
    }
}

enum belay_code sqlite_commit(struct belay_store *base, const struct belay_batch *batch,
                              struct belay_commit *out, struct belay_error *err)
{
    struct sqlite_store *store = (struct sqlite_store *)base;
    struct sqlite_batch work = { .store = store, .full = store->always_full || asks_to_last(batch) };
    size_t n = batch->n_writes;
    enum belay_code code = batch_begin(&work.base, batch, err);

    if (code != BELAY_OK) {
        return code;
    }
    work.has_liveness = n <= BATCH_FEW ? work.few_has_liveness : calloc(n, sizeof *work.has_liveness);
    work.kept = n <= BATCH_FEW ? work.few_kept : calloc(n, sizeof *work.kept);
    if (work.has_liveness == NULL || work.kept == NULL) {
        code = error_no_memory(err);
        goto done;
    }

    (void)pthread_mutex_lock(&store->mutex);
    code = commit_in_database(&work, err);
    settle_tickets(&work, code == BELAY_OK);
    if (code == BELAY_OK) {
        maintain_if_due(store, work.base.txn.next - 1, last_number(&work));
    }
    (void)pthread_mutex_unlock(&store->mutex);

    batch_answer(&work.base, code, out);

done:
    if (n > BATCH_FEW) {
        free(work.has_liveness);
        free(work.kept);
    }
    batch_release(&work.base);
    return code;
}
