/*
 * The store's clock, and what follows when it starts again.
 *
 * It is milliseconds of CLOCK_BOOTTIME in the initial time namespace, so that a process in a
 * container with a clock of its own agrees with all others (L7). A reading is meaningful only
 * together with the boot id.
 *
 * If the boot id is another one, the machine was restarted since the database was last used:
 * the clock started again, and commits that were not synced may be missing. The first process
 * to open the database in this boot does the following once, in one synced transaction:
 * - numbers continue from the ceiling, above all that were ever issued (L2);
 * - a holder that was a process is gone, so its lease has expired;
 * - any other holder gets its whole ttl again (L7), unless its lease had expired before: some
 *   reading of the old clock in the database is past its expiry;
 * - the same for each holder of a lock that is shared or has slots;
 * - an intent follows the holder that it belongs to;
 * - all tickets are dropped.
 * The same is done with a copy that `belay backup` made, when it is first opened, and after a
 * loss (sqlite_recover.c). Then processes may still live, so their leases start again, too;
 * and it is unknown how many numbers were issued since: they continue far ahead.
 */
#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/saturate.h"
#include "store/sqlite/sqlite_internal.h"

/* ---- the clock ---- */

/* The beginning of a small file as a string; false if it cannot be read. */
static bool read_small(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0) {
        return false;
    }
    n = read(fd, out, size - 1);
    (void)close(fd);
    if (n <= 0) {
        return false;
    }
    out[n] = '\0';
    return true;
}

/*
 * timens_offsets describes the namespace of future children. That is this process's own unless
 * it has called unshare() and not started a new program since.
 */
static bool namespace_is_our_childrens(void)
{
    char ours[64];
    char childrens[64];
    ssize_t n = readlink("/proc/self/ns/time", ours, sizeof ours);

    return n < 0 || (readlink("/proc/self/ns/time_for_children", childrens, sizeof childrens) == n &&
                     memcmp(ours, childrens, (size_t)n) == 0);
}

static enum belay_code read_offset(int64_t *out_ms, struct belay_error *err)
{
    char text[256];
    const char *line;
    int64_t seconds = 0;
    int64_t nanos = 0;

    *out_ms = 0;
    if (!read_small("/proc/self/timens_offsets", text, sizeof text)) {
        return BELAY_OK; /* a kernel without time namespaces */
    }
    line = strstr(text, "boottime");
    if (line == NULL || sscanf(line, "boottime %" SCNd64 " %" SCNd64, &seconds, &nanos) != 2) {
        return error_set(err, BELAY_UNREACHABLE, "cannot understand /proc/self/timens_offsets: '%s'", text);
    }
    if (!namespace_is_our_childrens()) {
        return error_set(err, BELAY_UNREACHABLE,
                         "this process has left its time namespace without starting a new program, so the "
                         "machine's boot clock cannot be told");
    }
    *out_ms = seconds * 1000 + nanos / 1000000;
    return BELAY_OK;
}

enum belay_code sqlite_clock_init(struct sqlite_store *store, struct belay_error *err)
{
    const char *path = "/proc/sys/kernel/random/boot_id";

    if (store->hooks.boot_id != NULL) {
        (void)snprintf(store->boot_id, sizeof store->boot_id, "%s", store->hooks.boot_id);
    } else if (!read_small(path, store->boot_id, sizeof store->boot_id)) {
        return error_set(err, BELAY_UNREACHABLE,
                         "cannot read %s, without which leases of this boot cannot be told from older ones; "
                         "is /proc mounted?",
                         path);
    }
    store->boot_id[strcspn(store->boot_id, "\n")] = '\0';
    return read_offset(&store->clock_offset_ms, err);
}

int64_t sqlite_now_ms(const struct sqlite_store *store)
{
    if (store->hooks.boot_ms != NULL) {
        return store->hooks.boot_ms(store->hooks.context);
    }
    return clock_boot_ms() - store->clock_offset_ms;
}

int64_t sqlite_unix_ms(const struct sqlite_store *store)
{
    return store->hooks.unix_ms != NULL ? store->hooks.unix_ms(store->hooks.context) : clock_unix_ms();
}

/* ---- after a restart ---- */

#define TTL_MS "belay_number(numbers, 'ttl_ms')"
#define BEAT_MS "belay_number(numbers, 'beat_ms')"
#define FREED_MS "belay_number(numbers, 'freed_ms')"
#define EXPIRES_AT "belay_number(numbers, 'expires_at_unix_ms')"

/*
 * ?1 is the next number, ?2 the boot clock, ?3 the wall clock, ?4 the latest reading of the old boot clock, and ?5
 * whether processes may still live.
 */
static const char end_processes[] =
    "UPDATE locks SET expires_ms = 0, numbers = belay_with(numbers, 'revision', ?1, "
    "'expires_at_unix_ms', min(" EXPIRES_AT ", ?3), 'beat_ms', min(" BEAT_MS ", ?2)) "
    "WHERE holders IS NULL AND held = 1 AND ((outlives = 0 AND ?5 = 0) OR expires_ms <= ?4)";
static const char renew_others[] =
    "UPDATE locks SET expires_ms = ?2 + " TTL_MS ", numbers = belay_with(numbers, 'revision', ?1, "
    "'expires_at_unix_ms', ?3 + " TTL_MS ", 'beat_ms', ?2) "
    "WHERE holders IS NULL AND held = 1 AND (outlives = 1 OR ?5 = 1) AND expires_ms > ?4";
static const char settle_rest[] =
    "UPDATE locks SET tickets = NULL, numbers = belay_with(numbers, 'revision', ?1, "
    "'freed_ms', min(" FREED_MS ", ?2), 'beat_ms', min(" BEAT_MS ", ?2)) "
    "WHERE tickets IS NOT NULL OR " FREED_MS " > ?2 OR " BEAT_MS " > ?2";
static const char take_over[] = "UPDATE meta SET number = ?1, ceiling = ?1 + ?2, boot_id = ?3, "
                                "copied_at = NULL, copied_boot_ms = NULL WHERE id = 1";

/* The latest reading of the old boot's clock in the database. */
static const char old_clock[] = "SELECT max(ifnull((SELECT copied_boot_ms FROM meta), 0), "
                                "ifnull((SELECT max(max(" BEAT_MS ", " FREED_MS ")) FROM locks), 0))";

struct restart {
    const struct txn *txn; /* borrowed */
    int64_t old_ms;        /* the latest reading of the old clock */
    bool keep_processes;   /* holders that are processes may still live: their leases start again, too */
};

/* The holders of exclusive locks, and what every record needs. */
static int settle_records(struct sqlite_store *store, const struct restart *restart)
{
    /* In this order: an ended lease is then before any reading of the old clock, and not renewed. */
    static const char *const updates[] = { end_processes, renew_others, settle_rest };
    const struct txn *txn = restart->txn;
    const int64_t values[] = { (int64_t)txn->next, txn->now_ms, txn->unix_ms, restart->old_ms,
                               restart->keep_processes };
    int rc = SQLITE_OK;

    for (size_t i = 0; rc == SQLITE_OK && i < sizeof updates / sizeof updates[0]; i++) {
        rc = db_change(store->db, updates[i], values, 5, NULL);
    }
    return rc;
}

/* Does for one of several holders what end_processes and renew_others do for an exclusive one. */
static void settle_holder(struct belay_holder *holder, const struct restart *restart)
{
    const struct txn *txn = restart->txn;

    if ((!holder->durable && !restart->keep_processes) || holder->expires_ms <= restart->old_ms) {
        holder->expires_ms = 0;
        if (holder->expires_at_unix_ms > txn->unix_ms) {
            holder->expires_at_unix_ms = txn->unix_ms;
        }
        if (holder->last_heartbeat_ms > txn->now_ms) {
            holder->last_heartbeat_ms = txn->now_ms;
        }
    } else {
        holder->expires_ms = add_saturated(txn->now_ms, holder->ttl_ms);
        holder->expires_at_unix_ms = add_saturated(txn->unix_ms, holder->ttl_ms);
        holder->last_heartbeat_ms = txn->now_ms;
    }
}

static enum belay_code settle_holders(struct sqlite_store *store, struct row *row, void *context,
                                      struct belay_error *err)
{
    struct restart restart = *(const struct restart *)context;

    /* The record's own fields have the heartbeat of one holder only. */
    for (size_t i = 0; i < row->record.n_holders; i++) {
        if (row->record.holders[i].last_heartbeat_ms > restart.old_ms) {
            restart.old_ms = row->record.holders[i].last_heartbeat_ms;
        }
    }
    for (size_t i = 0; i < row->record.n_holders; i++) {
        settle_holder(&row->record.holders[i], &restart);
    }
    row->record.revision = restart.txn->next;
    return holders_repeat(&row->record) ? row_save(store, row, err) : error_no_memory(err);
}

/* An intent is named after its lock id, alone or followed by a slash and a hash. */
static bool is_of(const struct belay_intent *intent, const char *lock_id)
{
    size_t n = strlen(lock_id);
    const char *rest = intent->lock_id + n;

    return strncmp(intent->lock_id, lock_id, n) == 0 &&
           (*rest == '\0' || (*rest == '/' && strchr(rest + 1, '/') == NULL));
}

/* Until when the holder that put the intent holds the lock below, or one of its places; 0: it does not. */
static int64_t held_until(const struct belay_record *below, const struct belay_intent *intent)
{
    for (size_t i = 0; i < below->n_holders; i++) {
        if (is_of(intent, below->holders[i].lock_id)) {
            return below->holders[i].expires_ms;
        }
    }
    return below->n_holders == 0 && below->held && is_of(intent, below->lock_id) ? below->expires_ms : 0;
}

/* Each intent gets the expiry of its lock; intents without a lock are dropped. */
static enum belay_code settle_intents(struct sqlite_store *store, struct row *row, void *context,
                                      struct belay_error *err)
{
    const struct txn *txn = ((const struct restart *)context)->txn;
    struct belay_record *record = &row->record;
    size_t kept = 0;

    for (size_t i = 0; i < record->n_intents; i++) {
        struct belay_intent intent = record->intents[i];
        struct row below = { 0 };
        enum belay_code code = row_load(store, intent.key, &below, err);

        if (code != BELAY_OK) {
            return code;
        }
        if (txn->now_ms < held_until(&below.record, &intent)) {
            intent.expires_ms = held_until(&below.record, &intent);
            record->intents[i] = record->intents[kept];
            record->intents[kept++] = intent;
        }
        row_release(&below);
    }
    for (size_t i = kept; i < record->n_intents; i++) {
        free(record->intents[i].lock_id);
        free(record->intents[i].key);
    }
    record->n_intents = kept;
    record->revision = txn->next;
    return row_save(store, row, err);
}

/*
 * Above every number that this database or a copy of it has used so far: it grows by 1,024 a millisecond,
 * which is more than can be used in that time. Below 2^53 until the year 2248.
 */
static uint64_t far_ahead(const struct sqlite_store *store)
{
    int64_t now_ms = sqlite_unix_ms(store);

    return now_ms < 0 || now_ms > INT64_MAX >> 11 ? 0 : (uint64_t)now_ms << 10;
}

static int note_jump(struct sqlite_store *store, uint64_t at, uint64_t by)
{
    const int64_t values[] = { (int64_t)at, (int64_t)by };
    int rc = db_exec(store, "DELETE FROM jumps WHERE at <= (SELECT min(id) FROM events)");

    return rc == SQLITE_OK ? db_change(store->db, "INSERT INTO jumps VALUES (?1, ?2)", values, 2, NULL) : rc;
}

int sqlite_jump(struct sqlite_store *store, struct txn *txn, uint64_t to)
{
    int rc;

    assert(!sqlite3_get_autocommit(store->db));
    if (to <= txn->next) {
        return SQLITE_OK;
    }
    assert(to > txn->next);
    rc = note_jump(store, to, to - txn->next);
    txn->next = to;
    txn->number = to - 1;
    assert(sqlite_numbers_ahead(store) > 0);
    txn->ceiling = to + (uint64_t)sqlite_numbers_ahead(store);
    rc = rc == SQLITE_OK ? db_run_int(store, ST_SET_NUMBER, (int64_t)txn->number) : rc;
    return rc == SQLITE_OK ? db_run_int(store, ST_SET_CEILING, (int64_t)txn->ceiling) : rc;
}

static enum belay_code start_over(struct sqlite_store *store, struct txn *txn, bool keep_processes,
                                  uint64_t least, struct belay_error *err)
{
    struct restart restart = { .txn = txn, .keep_processes = keep_processes };
    enum belay_code code;
    int rc = db_read_int(store->db, old_clock, &restart.old_ms);

    if (rc == SQLITE_OK) {
        rc = sqlite_jump(store, txn, txn->ceiling > least ? txn->ceiling : least);
    }
    if (rc == SQLITE_OK) {
        rc = settle_records(store, &restart);
    }
    code = rc == SQLITE_OK ? row_each(store, ROW_HOLDERS, settle_holders, &restart, err)
                           : sqlite_failed(store, rc, err);
    if (code == BELAY_OK) {
        code = row_each(store, ROW_INTENTS, settle_intents, &restart, err);
    }
    if (code == BELAY_OK) {
        const int64_t values[] = { (int64_t)txn->next, sqlite_numbers_ahead(store) };

        rc = db_change(store->db, take_over, values, 2, store->boot_id);
        code = rc == SQLITE_OK ? BELAY_OK : sqlite_failed(store, rc, err);
    }
    return code;
}

enum belay_code sqlite_start_over(struct sqlite_store *store, struct belay_error *err)
{
    struct txn txn = { 0 };
    bool other_boot;
    int rc = db_read_txn(store, &txn, &other_boot);

    return rc == SQLITE_OK ? start_over(store, &txn, true, far_ahead(store), err)
                           : sqlite_failed(store, rc, err);
}

enum belay_code sqlite_clock_is_behind(const char *path, struct belay_error *err)
{
    return error_set(
        err, BELAY_CONFIG,
        "'%.300s' is a backup that is newer than this machine's clock, from which tokens above all "
        "that were handed out are made: set the clock first",
        path);
}

/*
 * Above the numbers that the original has issued since, and every copy of it that was opened
 * before. That is the number of the clock, unless the numbers are ahead of the clock, as in a
 * store that was restored while the clock was ahead: then they are counted from the copy,
 * advanced by the time that has passed.
 */
static uint64_t number_of_copy(const struct sqlite_store *store, const struct txn *txn, int64_t copied_ms)
{
    uint64_t far = far_ahead(store);
    uint64_t passed;

    if (far == 0 || copied_ms < 0) {
        return far;
    }
    passed = (uint64_t)(txn->unix_ms - copied_ms) << 10;
    return txn->ceiling > far - (passed < far ? passed : far) ? txn->ceiling + passed : far;
}

/* Inside a transaction. After another boot, or in a copy, which looks the same until it is first opened. */
static enum belay_code begin_again(struct sqlite_store *store, struct txn *txn, struct belay_error *err)
{
    int64_t copied_ms = 0;
    int rc = db_read_int(store->db, "SELECT copied_at FROM meta WHERE id = 1", &copied_ms);

    if (rc != SQLITE_OK) {
        return sqlite_failed(store, rc, err);
    }
    if (copied_ms == 0) {
        return start_over(store, txn, false, 0, err);
    }
    if (txn->unix_ms < copied_ms) {
        return sqlite_clock_is_behind(store->path, err);
    }
    return start_over(store, txn, true, number_of_copy(store, txn, copied_ms), err);
}

enum belay_code sqlite_restart(struct sqlite_store *store, struct belay_error *err)
{
    struct txn txn;
    bool other_boot = false;
    enum belay_code code;
    int rc = db_read_txn(store, &txn, &other_boot);

    if (rc != SQLITE_OK) {
        return sqlite_failed(store, rc, err);
    }
    if (txn.served) {
        bool is_alive = false;

        code = sqlite_unserve(store, &is_alive, err);
        if (code != BELAY_OK || is_alive) {
            return code;
        }
    }
    if (!other_boot) {
        return BELAY_OK;
    }
    rc = db_add_functions(store);
    if (rc == SQLITE_OK) {
        rc = db_begin(store, true);
    }
    if (rc == SQLITE_OK) {
        rc = db_read_txn(store, &txn, &other_boot);
    }
    code = rc == SQLITE_OK ? BELAY_OK : sqlite_failed(store, rc, err);
    if (code == BELAY_OK && other_boot) {
        code = begin_again(store, &txn, err);
        if (code == BELAY_OK) {
            wake_reset(store);
            rc = db_run(store, ST_COMMIT);
            code = rc == SQLITE_OK ? BELAY_OK : sqlite_failed(store, rc, err);
        }
    }
    db_rollback(store);
    if (code == BELAY_OK) {
        db_write_back(store);
    }
    return code;
}
