/*
 * Replays a server's journal into the database: by the server's checkpoints while it
 * runs, and by the next process that opens the database after a server was killed.
 *
 * The numbers of entries have no gap, and every commit leaves the last number in the
 * database. Entries that the database already has are skipped, so a replay may be interrupted
 * at any point and repeated.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "store/apply/journal.h"
#include "store/apply/pack.h"
#include "store/sqlite/sqlite_internal.h"

enum { ENTRIES_AT_ONCE = 4096, CACHE_BUCKETS = 4096 };

/* A record that the transaction has changed; it is written once, at its end. */
struct cached {
    struct cached *next;
    struct row row;
    bool is_gone;
};

struct replay {
    struct sqlite_store *store;
    struct cached *buckets[CACHE_BUCKETS];
    struct cached **all; /* owned */
    size_t n;
    size_t cap;
    struct entry_room room;
    uint64_t last;  /* number in the database, or about to be */
    bool *out_lost; /* borrowed; NULL: damage is an error, which rolls back the transaction that meets it */
};

static void cache_clear(struct replay *replay)
{
    for (size_t i = 0; i < replay->n; i++) {
        row_release(&replay->all[i]->row);
        free(replay->all[i]);
    }
    replay->n = 0;
    memset((void *)replay->buckets, 0, sizeof replay->buckets);
}

static enum belay_code cache_fetch(struct replay *replay, const char *key, struct cached **out_cached,
                                   struct belay_error *err)
{
    struct cached **bucket = &replay->buckets[hash_text(key) % CACHE_BUCKETS];
    struct cached *cached = *bucket;
    struct cached **all;
    enum belay_code code;

    while (cached != NULL && strcmp(cached->row.record.key, key) != 0) {
        cached = cached->next;
    }
    *out_cached = cached;
    if (cached != NULL) {
        return BELAY_OK;
    }
    all = array_grow((void *)replay->all, sizeof(struct cached *), replay->n + 1, &replay->cap);
    if (all == NULL) {
        return error_no_memory(err);
    }
    replay->all = all;
    cached = calloc(1, sizeof *cached);
    code = cached == NULL ? error_no_memory(err) : row_load(replay->store, key, &cached->row, err);
    if (code != BELAY_OK) {
        free(cached);
        return code;
    }
    cached->next = *bucket;
    *bucket = cached;
    replay->all[replay->n++] = cached;
    *out_cached = cached;
    return BELAY_OK;
}

static enum belay_code apply_write(struct replay *replay, const struct belay_write *write,
                                   const struct txn *txn, struct belay_error *err)
{
    struct cached *cached;
    enum belay_code code = cache_fetch(replay, write->key, &cached, err);

    if (code != BELAY_OK || write_leaves_alone(write, &cached->row.record)) {
        return code;
    }
    cached->is_gone = false;
    /* Its waiter was a connection of the server: without a liveness lock others see that it is gone. */
    return write_apply(write, txn, true, &cached->row, err);
}

static enum belay_code apply_delete(struct replay *replay, const char *key, struct belay_error *err)
{
    struct cached *cached;
    enum belay_code code = cache_fetch(replay, key, &cached, err);
    struct row absent;

    if (code == BELAY_OK) {
        code = row_absent(key, &absent, err);
    }
    if (code == BELAY_OK) {
        row_release(&cached->row);
        cached->row = absent;
        cached->is_gone = true;
    }
    return code;
}

static enum belay_code apply_entry(struct replay *replay, const struct journal_entry *entry,
                                   struct belay_error *err)
{
    struct txn txn = { .now_ms = entry->now_ms, .unix_ms = entry->unix_ms, .next = entry->number };
    enum belay_code code = BELAY_OK;

    assert(entry->number == replay->last + 1); /* numbers have no gap */
    for (size_t i = 0; code == BELAY_OK && i < entry->n_writes; i++) {
        code = apply_write(replay, &entry->writes[i], &txn, err);
    }
    for (size_t i = 0; code == BELAY_OK && i < entry->n_events; i++) {
        code = event_save(replay->store, &entry->events[i], err);
    }
    for (size_t i = 0; code == BELAY_OK && i < entry->n_deletes; i++) {
        code = apply_delete(replay, entry->deletes[i], err);
    }
    replay->last = entry_last(entry);
    return code;
}

static int compare_cached(const void *a, const void *b)
{
    return strcmp((*(struct cached *const *)a)->row.record.key, (*(struct cached *const *)b)->row.record.key);
}

/* In the order of keys, as the pages of the table are. */
static enum belay_code save_records(struct replay *replay, struct belay_error *err)
{
    struct sqlite_store *store = replay->store;
    enum belay_code code = BELAY_OK;
    int rc = SQLITE_OK;

    assert(!sqlite3_get_autocommit(store->db));
    if (replay->n > 0) {
        qsort((void *)replay->all, replay->n, sizeof(struct cached *), compare_cached);
    }
    for (size_t i = 0; code == BELAY_OK && rc == SQLITE_OK && i < replay->n; i++) {
        struct cached *cached = replay->all[i];

        if (cached->row.record.revision != 0) {
            code = row_save(store, &cached->row, err);
        } else if (cached->is_gone) {
            rc = db_run_text(store, ST_DELETE, cached->row.record.key);
        }
    }
    if (code == BELAY_OK && rc == SQLITE_OK) {
        rc = db_run_int(store, ST_SET_NUMBER, (int64_t)replay->last);
    }
    if (code == BELAY_OK && rc == SQLITE_OK) {
        rc = sweep_all_events(store);
    }
    return code != BELAY_OK || rc == SQLITE_OK ? code : sqlite_failed(store, rc, err);
}

/* With `out_lost` the entries before the damage are kept, and the rest is skipped. */
static enum belay_code report_damage(struct replay *replay, const struct journal *journal, const char *how,
                                     bool *out_more, struct belay_error *err)
{
    if (replay->out_lost != NULL) {
        *replay->out_lost = true;
        *out_more = false;
        return BELAY_OK;
    }
    return sqlite_journal_lost(replay->store, journal->path, how, err);
}

/* One transaction, of up to so many entries. *out_more: there are more. */
static enum belay_code replay_entries(struct replay *replay, const struct journal *journal,
                                      struct journal_reader *reader, bool *out_more, struct belay_error *err)
{
    const void *data;
    size_t len;
    struct journal_entry entry;
    enum belay_code code = BELAY_OK;
    size_t n = 0;

    *out_more = true;
    while (code == BELAY_OK && n < ENTRIES_AT_ONCE && *out_more) {
        *out_more = journal_next(reader, &data, &len);
        if (!*out_more) {
            break;
        }
        if (!entry_unpack(data, len, &replay->room, &entry)) {
            code = report_damage(replay, journal, "has an entry that cannot be read", out_more, err);
            break;
        }
        if (entry_last(&entry) <= replay->last) {
            continue;
        }
        if (entry.number != replay->last + 1) {
            code =
                report_damage(replay, journal, "does not belong to this database, or a part of it is missing",
                              out_more, err);
            break;
        }
        code = apply_entry(replay, &entry, err);
        n++;
    }
    if (code == BELAY_OK && !*out_more && journal_is_damaged(reader)) {
        code = report_damage(replay, journal, "is damaged in its middle", out_more, err);
    }
    return code == BELAY_OK && n > 0 ? save_records(replay, err) : code;
}

static enum belay_code replay_step(struct replay *replay, const struct journal *journal,
                                   struct journal_reader *reader, bool *out_more, struct belay_error *err)
{
    struct sqlite_store *store = replay->store;
    struct txn txn = { 0 };
    bool other_boot;
    enum belay_code code;
    int rc;

    rc = db_begin(store, true);
    if (rc == SQLITE_OK) {
        rc = db_read_txn(store, &txn, &other_boot);
    }
    replay->last = txn.next - 1;
    code = rc == SQLITE_OK ? replay_entries(replay, journal, reader, out_more, err)
                           : sqlite_failed(store, rc, err);
    if (code == BELAY_OK) {
        rc = db_run(store, ST_COMMIT);
        code = rc == SQLITE_OK ? BELAY_OK : sqlite_commit_failed(store, rc, err);
    }
    db_rollback(store);
    if (code == BELAY_OK) {
        store->commits += MANY_COMMITS;
        db_checkpoint_if_due(store);
    }
    cache_clear(replay);
    assert(replay->n == 0 && sqlite3_get_autocommit(store->db));
    return code;
}

static enum belay_code replay_all(struct sqlite_store *store, const struct journal *journal,
                                  bool (*keep_going)(void *context), void *context, bool *out_lost,
                                  struct belay_error *err)
{
    struct replay *replay = calloc(1, sizeof *replay);
    struct journal_reader reader;
    enum belay_code code = replay == NULL ? error_no_memory(err) : BELAY_OK;
    bool more = code == BELAY_OK;

    if (more) {
        replay->store = store;
        replay->out_lost = out_lost;
        journal_read(journal, &reader);
    }
    while (code == BELAY_OK && more) {
        code = replay_step(replay, journal, &reader, &more, err);
        if (code == BELAY_OK && more && keep_going != NULL && !keep_going(context)) {
            code = error_set(err, BELAY_CANCELLED, "the journal '%s' was not replayed", journal->path);
        }
    }
    if (replay != NULL) {
        entry_room_release(&replay->room);
        free((void *)replay->all);
        free(replay);
    }
    return code;
}

enum belay_code sqlite_replay(struct sqlite_store *store, const struct journal *journal,
                              bool (*keep_going)(void *context), void *context, struct belay_error *err)
{
    return replay_all(store, journal, keep_going, context, NULL, err);
}

enum belay_code sqlite_replay_rest(struct sqlite_store *store, const struct journal *journal, bool *out_lost,
                                   struct belay_error *err)
{
    return replay_all(store, journal, NULL, NULL, out_lost, err);
}
