/*
 * After a server was killed: find its journal, and check that it is complete and belongs to this database.
 *
 * The database knows which journal it needs (meta.journal_id, _use and _folded, written and synced before the
 * first entry): uses _folded + 1 to _use, in the file that journal_slot() names. A journal that is damaged, missing
 * or of another database is an error, because it may contain locks that were already granted. Only
 * `belay repair --accept-loss` continues without it, and moves the files away.
 *
 * Numbers continue from the ceiling afterwards, even if the journal is complete: an older copy of a journal looks
 * like one whose last frame was never written. The server keeps the ceiling above all numbers that it hands out.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/store_url.h"
#include "store/apply/journal.h"
#include "store/apply/pack.h"
#include "store/sqlite/sqlite_internal.h"

struct recovery {
    struct sqlite_store *store;
    struct journal journals[JOURNAL_FILES];
    enum belay_code found[JOURNAL_FILES];
    char *faults[JOURNAL_FILES];    /* owned; of those that cannot be opened */
    uint64_t id, use, checkpointed; /* as the database wants them */
};

enum belay_code sqlite_journal_lost(const struct sqlite_store *store, const char *journal, const char *how,
                                    struct belay_error *err)
{
    struct buf url = BUF_INIT(16384);

    store_url_add_place(&url, store->path);
    (void)error_set(
        err, BELAY_BAD_CONTENT,
        "the server's journal '%s' %s; locks that are in it may still be held, so nothing was "
        "changed: put the file back; or, if no client relies on these locks, continue without it: belay "
        "repair --accept-loss --store sqlite:%s",
        journal, how, url.data == NULL ? "PATH" : url.data);
    buf_release(&url);
    return BELAY_BAD_CONTENT;
}

/* ---- what the database says of it ---- */

static int read_wanted(struct sqlite_store *store, uint64_t out[3])
{
    sqlite3_stmt *statement = NULL;
    int rc =
        sqlite3_prepare_v2(store->db, "SELECT journal_id, journal_use, journal_folded FROM meta WHERE id = 1",
                           -1, &statement, NULL);

    if (rc == SQLITE_OK) {
        rc = sqlite3_step(statement);
        for (int i = 0; rc == SQLITE_ROW && i < 3; i++) {
            out[i] = (uint64_t)sqlite3_column_int64(statement, i);
        }
        rc = rc == SQLITE_ROW ? SQLITE_OK : rc;
    }
    (void)sqlite3_finalize(statement);
    return rc;
}

static int set_wanted(struct sqlite_store *store, const int64_t values[4])
{
    return db_change(store->db,
                     "UPDATE meta SET journal_id = ?1, journal_use = ?2, journal_folded = ?3, "
                     "ceiling = max(ceiling, ?4) WHERE id = 1",
                     values, 4, NULL);
}

enum belay_code sqlite_journal_want(struct sqlite_store *store, uint64_t id, uint64_t use,
                                    uint64_t checkpointed, uint64_t ceiling, struct belay_error *err)
{
    const int64_t values[] = { (int64_t)id, (int64_t)use, (int64_t)checkpointed, (int64_t)ceiling };
    int rc = db_begin(store, true);

    rc = rc == SQLITE_OK ? set_wanted(store, values) : rc;
    rc = rc == SQLITE_OK ? db_run(store, ST_COMMIT) : rc;
    db_rollback(store);
    if (rc == SQLITE_OK && ceiling != 0) {
        db_write_back(store);
    }
    return rc == SQLITE_OK ? BELAY_OK : sqlite_failed(store, rc, err);
}

/* ---- what is there ---- */

static void recovery_release(struct recovery *recovery)
{
    for (int i = 0; i < JOURNAL_FILES; i++) {
        journal_close(&recovery->journals[i]);
        free(recovery->journals[i].path);
        free(recovery->faults[i]);
    }
}

/* A head that cannot be read is no error yet: found[] says so. */
static enum belay_code look_at_files(struct recovery *recovery, struct belay_error *err)
{
    uint64_t wanted[3] = { 0 };
    int rc = read_wanted(recovery->store, wanted);

    for (int i = 0; rc == SQLITE_OK && i < JOURNAL_FILES; i++) {
        struct belay_error why = BELAY_ERROR_INIT;
        enum belay_code code;

        recovery->journals[i].path = journal_path(recovery->store->path, i);
        code = recovery->journals[i].path == NULL ? error_no_memory(&why)
                                                  : journal_open(&recovery->journals[i], &why);
        recovery->found[i] = code;
        if (code == BELAY_BAD_CONTENT) {
            recovery->faults[i] = strdup(why.text);
        } else if (code != BELAY_OK && code != BELAY_NOT_FOUND) {
            (void)error_set(err, code, "%s", why.text);
            belay_error_release(&why);
            return code;
        }
        belay_error_release(&why);
    }
    recovery->id = wanted[0];
    recovery->use = wanted[1];
    recovery->checkpointed = wanted[2];
    return rc == SQLITE_OK ? BELAY_OK : sqlite_failed(recovery->store, rc, err);
}

/* NULL: it is as it should be. */
static const char *fault_of_use(const struct recovery *recovery, uint64_t use)
{
    int slot = journal_slot(use);
    const struct journal *journal = &recovery->journals[slot];

    if (recovery->found[slot] == BELAY_NOT_FOUND) {
        return "is missing";
    }
    if (recovery->found[slot] != BELAY_OK) {
        return recovery->faults[slot] != NULL ? recovery->faults[slot] : "is damaged";
    }
    if (journal->id != recovery->id) {
        return "belongs to another database, or to another run of the server";
    }
    /* One that was checkpointed and begun again, just before the database was told. */
    if (journal->use != use && journal->use != recovery->use + 1) {
        return "is an older copy";
    }
    return journal->is_cut ? "was cut short" : NULL;
}

/* A database that wants no journal may find one whose entries it has already. */
static const char *fault_of_stray(const struct recovery *recovery, int slot, uint64_t last)
{
    const struct journal *journal = &recovery->journals[slot];
    struct entry_room room = { 0 };
    struct journal_reader reader;
    struct journal_entry entry;
    const char *fault = NULL;
    const void *data;
    size_t len;

    if (recovery->found[slot] == BELAY_NOT_FOUND) {
        return NULL;
    }
    if (recovery->found[slot] != BELAY_OK) {
        return recovery->faults[slot] != NULL ? recovery->faults[slot] : "is damaged";
    }
    journal_read(journal, &reader);
    while (fault == NULL && journal_next(&reader, &data, &len)) {
        if (!entry_unpack(data, len, &room, &entry) || entry_last(&entry) > last) {
            fault = "belongs to another database, or to another run of the server";
        }
    }
    entry_room_release(&room);
    return fault;
}

static enum belay_code check_files(const struct recovery *recovery, uint64_t last, struct belay_error *err)
{
    const char *fault = NULL;
    int slot = 0;

    if (recovery->id == 0) {
        for (int i = 0; fault == NULL && i < JOURNAL_FILES; i++) {
            slot = i;
            fault = fault_of_stray(recovery, i, last);
        }
    } else {
        uint64_t first = recovery->use - recovery->checkpointed > JOURNAL_FILES
                             ? recovery->use - JOURNAL_FILES + 1
                             : recovery->checkpointed + 1;

        for (uint64_t use = first; fault == NULL && use <= recovery->use; use++) {
            slot = journal_slot(use);
            fault = fault_of_use(recovery, use);
        }
    }
    return fault == NULL ? BELAY_OK
                         : sqlite_journal_lost(recovery->store, recovery->journals[slot].path, fault, err);
}

/* ---- replaying it ---- */

static enum belay_code read_last(struct sqlite_store *store, uint64_t *out_last, bool *out_served,
                                 struct belay_error *err)
{
    struct txn txn = { 0 };
    bool other_boot;
    int rc = db_read_txn(store, &txn, &other_boot);

    *out_last = txn.next - 1;
    *out_served = txn.served;
    return rc == SQLITE_OK ? BELAY_OK : sqlite_failed(store, rc, err);
}

/* In the order in which they were written. With `out_lost` as far as they can be read. */
static enum belay_code replay_files(struct recovery *recovery, bool *out_lost, struct belay_error *err)
{
    int first = recovery->journals[0].use <= recovery->journals[1].use ? 0 : 1;
    enum belay_code code = BELAY_OK;

    for (int i = 0; code == BELAY_OK && i < JOURNAL_FILES; i++) {
        int which = i == 0 ? first : 1 - first;
        const struct journal *journal = &recovery->journals[which];

        if (recovery->found[which] != BELAY_OK || journal->id != recovery->id) {
            continue;
        }
        code = out_lost == NULL ? sqlite_replay(recovery->store, journal, NULL, NULL, err)
                                : sqlite_replay_rest(recovery->store, journal, out_lost, err);
    }
    return code;
}

/*
 * Numbers continue from the ceiling.
 * With is_replayed all of the journal is in the database, which wants no journal any more. Otherwise SQLite's log is
 * missing: then the numbers of a file that a server owned, or of another boot, stay as they are, because the recovery
 * of its journal, or sqlite_restart(), raises them next.
 */
static enum belay_code go_on_from_ceiling(struct sqlite_store *store, bool is_replayed,
                                          struct belay_error *err)
{
    static const int64_t none[4] = { 0 };
    struct txn txn = { 0 };
    bool other_boot = false;
    int rc = db_begin(store, true);

    rc = rc == SQLITE_OK ? db_read_txn(store, &txn, &other_boot) : rc;
    if (rc == SQLITE_OK && (is_replayed || (!other_boot && !txn.served))) {
        rc = sqlite_jump(store, &txn, txn.ceiling);
    }
    rc = rc == SQLITE_OK && is_replayed ? set_wanted(store, none) : rc;
    rc = rc == SQLITE_OK ? db_run(store, ST_COMMIT) : rc;
    db_rollback(store);
    if (rc == SQLITE_OK) {
        db_write_back(store);
    }
    return rc == SQLITE_OK ? BELAY_OK : sqlite_failed(store, rc, err);
}

enum belay_code sqlite_recover(struct sqlite_store *store, struct belay_error *err)
{
    struct recovery recovery = { .store = store, .journals = { { .fd = -1 }, { .fd = -1 } } };
    uint64_t last = 0;
    bool served = false;
    bool is_any;
    enum belay_code code = look_at_files(&recovery, err);

    if (code == BELAY_OK) {
        code = read_last(store, &last, &served, err);
    }
    /* Without a journal there may still have been a server: it died before it began one. */
    is_any = served || recovery.id != 0 || recovery.found[0] != BELAY_NOT_FOUND ||
             recovery.found[1] != BELAY_NOT_FOUND;
    if (code == BELAY_OK && is_any) {
        code = check_files(&recovery, last, err);
    }
    if (code == BELAY_OK && is_any) {
        code = replay_files(&recovery, NULL, err);
    }
    if (code == BELAY_OK && is_any) {
        code = go_on_from_ceiling(store, true, err);
    }
    for (int i = 0; code == BELAY_OK && i < JOURNAL_FILES; i++) {
        if (recovery.journals[i].path != NULL) {
            (void)unlink(recovery.journals[i].path); /* also one that was never begun */
        }
    }
    recovery_release(&recovery);
    return code;
}

bool sqlite_has_journal(const struct sqlite_store *store)
{
    bool found = false;

    for (int i = 0; i < JOURNAL_FILES; i++) {
        char *path = journal_path(store->path, i);

        found = found || (path != NULL && access(path, F_OK) == 0);
        free(path);
    }
    return found;
}

/* ---- continuing without it, or without the log ---- */

enum belay_code sqlite_go_on_without_log(struct sqlite_store *store, struct belay_error *err)
{
    int rc = db_enter_wal(store); /* a backup is not in this mode, and would be found without a log again */

    return rc == SQLITE_OK ? go_on_from_ceiling(store, false, err) : sqlite_failed(store, rc, err);
}

static void move_away(const char *path, int64_t unix_ms)
{
    struct buf aside = BUF_INIT(8192);

    buf_addf(&aside, "%s.lost-%lld", path, (long long)(unix_ms / 1000));
    if (!aside.failed) {
        (void)rename(path, aside.data); /* the database does not want it any more in any case */
    }
    buf_release(&aside);
}

enum belay_code sqlite_recover_rest(struct sqlite_store *store, bool *out_lost, struct belay_error *err)
{
    static const int64_t none[4] = { 0 };
    struct recovery recovery = { .store = store, .journals = { { .fd = -1 }, { .fd = -1 } } };
    struct belay_error ignored = BELAY_ERROR_INIT;
    enum belay_code code = look_at_files(&recovery, err);
    uint64_t last = 0;
    bool served = false;
    bool lost = false;
    int rc;

    if (code == BELAY_OK) {
        code = read_last(store, &last, &served, err);
    }
    if (code == BELAY_OK) {
        lost = check_files(&recovery, last, &ignored) != BELAY_OK;
        code = replay_files(&recovery, &lost, err);
    }
    belay_error_release(&ignored);
    if (code == BELAY_OK && !lost) {
        code = go_on_from_ceiling(store, true, err);
    } else if (code == BELAY_OK) {
        rc = db_add_functions(store);
        rc = rc == SQLITE_OK ? db_begin(store, true) : rc;
        rc = rc == SQLITE_OK ? set_wanted(store, none) : rc;
        code = rc == SQLITE_OK ? sqlite_start_over(store, err) : sqlite_failed(store, rc, err);
        rc = code == BELAY_OK ? db_run(store, ST_COMMIT) : SQLITE_OK;
        db_rollback(store);
        code = rc == SQLITE_OK ? code : sqlite_failed(store, rc, err);
        db_write_back(store);
    }
    for (int i = 0; code == BELAY_OK && i < JOURNAL_FILES; i++) {
        const char *path = recovery.journals[i].path;

        if (path != NULL && lost && recovery.found[i] != BELAY_NOT_FOUND) {
            move_away(path, sqlite_unix_ms(store));
        } else if (path != NULL) {
            (void)unlink(path);
        }
    }
    recovery_release(&recovery);
    if (code == BELAY_OK) {
        *out_lost = lost;
    }
    return code;
}
