/* Shared by the files of the SQLite store, and by the journaled store, which is built on it. */
#ifndef STORE_SQLITE_SQLITE_INTERNAL_H
#define STORE_SQLITE_SQLITE_INTERNAL_H

#include <pthread.h>
#include <sqlite3.h>

#include "belay/store.h"
#include "freeze/freeze_list.h"
#include "store/apply/apply.h"
#include "store/sqlite/sqlite_store.h"

enum {
    BUSY_LIMIT_MS = 10000, /* how long to wait for another process that writes */
    NUMBERS_AHEAD = 65536, /* by how much the ceiling of numbers is raised at a time */
    SWEEP_EVERY = 1024,    /* numbers between two steps of maintenance */
    SWEEP_ROWS = 512,      /* records examined in one step */
    LIST_EVERY = 4096,     /* numbers between two steps that index events by key, and remove old ones */
    SWEEP_EVENTS = 8192,   /* events removed in such a step, at most */
    SQLITE_PLACE_KEPT_MS =
        10000,               /* how long a waiter whose server is gone keeps its place: it may come back */
    CHECKPOINT_SMALL = 64,   /* pages of the WAL at which a process that just started makes a checkpoint */
    CHECKPOINT_LARGE = 4000, /* the same after many commits; one block of SQLite's index */
    MANY_COMMITS = 64,
    BOOT_ID_SIZE = 64,
    SERVED_BY_SIZE = 256
};
#define CACHE_KIB "16384" /* of pages, for a process that has done many commits */
#define EVENTS_KEPT 1000000
#define BUCKETS 128 /* of the history; a power of two */

enum statement {
    ST_BEGIN,
    ST_BEGIN_READ,
    ST_COMMIT,
    ST_ROLLBACK,
    ST_META,
    ST_GET,
    ST_LOOK,
    ST_INSERT,
    ST_UPDATE,
    ST_EVENT,
    ST_SET_NUMBER,
    ST_SET_CEILING,
    ST_ID_USED,
    ST_INDEX_HISTORY,
    ST_INDEX_IDS,
    ST_SET_INDEXED,
    ST_SET_LISTED,
    ST_SWEEP_SPAN,
    ST_SWEEP_CUT,
    ST_SWEEP_HISTORY,
    ST_SWEEP_IDS,
    ST_SWEEP_EVENTS,
    ST_SWEEP_LOOK,
    ST_SWEEP_CURSOR,
    ST_DELETE,
    ST_FREEZES,
    N_STATEMENTS
};

/* The wake file, as far as it could be opened. */
struct wake_file {
    int fd;          /* has the liveness locks of this process's waiters; -1: none */
    int probe_fd;    /* a second open file, with which to probe locks, the own ones too; -1: none */
    uint32_t *words; /* mapped; NULL: there is no such file, and waiters sleep for a short time */
    bool is_watcher; /* this store is counted as one */
    bool is_listener;
    uint32_t listeners; /* how many there were after the last commit of this store; 1 while that is unknown */
};

/* A ticket that this store put: its process holds the waiter's liveness lock. */
struct kept_ticket {
    uint64_t id_hash;
    uint64_t key_hash;
};

struct sqlite_store {
    struct belay_store base;
    pthread_mutex_t mutex; /* guards all below but the wake file's words */
    sqlite3 *db;
    sqlite3_stmt *statements[N_STATEMENTS];
    char *path; /* owned; absolute */
    char *wake_path;
    struct sqlite_hooks hooks;
    char boot_id[BOOT_ID_SIZE];
    char served_by[SERVED_BY_SIZE]; /* as it was last read; "": no server */
    bool is_beside;                 /* a second connection of the server itself */
    int own_fd;                     /* holds the lock on FILE-serve.lock; -1: this is not the server */
    int64_t clock_offset_ms;        /* of this process's time namespace to the initial one */
    bool always_full;
    int64_t retain_events_ms;
    int64_t retain_records_ms;
    int synchronous; /* as it is set now: 1 NORMAL, 2 FULL */
    int64_t busy_limit_ms;
    int64_t busy_since_ms;
    uint64_t jitter;
    unsigned commits;
    struct {
        unsigned version; /* of the database after the last commit of this store; 0: unknown */
        uint64_t number;  /* as in meta */
        uint64_t newest;  /* event */
        uint64_t ceiling;
    } last_commit; /* as this store left the database: not read again while no other process writes */
    struct {
        struct freeze_list list; /* owned */
        bool is_current;         /* no process has written since it was read */
    } freezes;
    bool has_functions;         /* those of sqlite_functions.c */
    int wal_pages;              /* after the last commit; -1: no commit yet, or no WAL */
    pthread_mutex_t wake_mutex; /* guards opening the wake file; taken after `mutex` */
    struct wake_file wake;
    struct kept_ticket *kept; /* owned */
    size_t n_kept;
    size_t cap_kept;
};

static inline int64_t sqlite_numbers_ahead(const struct sqlite_store *store)
{
    return store->hooks.numbers_ahead > 0 ? store->hooks.numbers_ahead : NUMBERS_AHEAD;
}

/* ---- sqlite_db.c: connections, statements and transactions; an int is an SQLite code ---- */
/*
 * Opens a connection that trusts no SQL inside the file. When it is closed, the WAL remains, without a checkpoint: a
 * short-lived process would spend most of its time on that. After a failure *out_db may be set for the error text; the
 * caller closes it in any case.
 */
int db_connect(const char *path, const char *vfs, int flags, sqlite3 **out_db);
int db_statement(struct sqlite_store *store, enum statement which, sqlite3_stmt **out_statement);
int db_run(struct sqlite_store *store, enum statement which); /* without a result */
/* The same with one parameter. */
int db_run_int(struct sqlite_store *store, enum statement which, int64_t value);
int db_run_text(struct sqlite_store *store, enum statement which, const char *text);
int db_finish(sqlite3_stmt *statement); /* step to the end and reset */
/* For the parameters of a statement, from 1; texts are borrowed. After a failure nothing more is bound. */
struct binder {
    sqlite3_stmt *statement;
    int rc; /* of the first failure */
};
void bind_int(struct binder *binder, int at, int64_t value);
void bind_text(struct binder *binder, int at, const char *text);
void bind_blob(struct binder *binder, int at, const void *data, size_t size);
/* The number in the only row of a query; 0 for NULL. */
int db_read_int(sqlite3 *db, const char *sql, int64_t *out_value);
/* Runs SQL whose parameters ?1 to ?n are `values`, as far as it has so many, and ?n+1, if it has it, is `text`. */
int db_change(sqlite3 *db, const char *sql, const int64_t *values, int n, const char *text);
int db_exec(struct sqlite_store *store, const char *sql);
/* Begin a write transaction, synced or not, after waiting for other writers. */
int db_begin(struct sqlite_store *store, bool full);
void db_rollback(struct sqlite_store *store);
int db_read_txn(struct sqlite_store *store, struct txn *out_txn, bool *out_other_boot);
/* Remember the state after a commit up to number `last`, for the next transaction. */
void db_leave_txn(struct sqlite_store *store, const struct txn *txn, uint64_t last, bool has_events);
/* Whether another process serves the file; the column is served_by. */
bool db_read_served(struct sqlite_store *store, sqlite3_stmt *statement, int column);
int db_busy(void *context, int count);
bool db_has_moved(struct sqlite_store *store);
int db_enter_wal(struct sqlite_store *store);
/* Checkpoint all of the WAL and remove it. SQLITE_BUSY: another process has the database open. */
int db_leave_wal(struct sqlite_store *store);
void db_checkpoint_if_due(struct sqlite_store *store);
/*
 * Checkpoint the WAL now, after the ceiling was raised: so that a user who removes the WAL, or copies the database
 * without it, does not set the ceiling back.
 */
void db_write_back(struct sqlite_store *store);
int db_on_wal(void *context, sqlite3 *db, const char *name, int pages);

/* ---- sqlite_error.c ---- */
/* Set the error of a statement that changed nothing. */
enum belay_code sqlite_failed(struct sqlite_store *store, int rc, struct belay_error *err);
/* The same for a COMMIT, whose result may be unknown. */
enum belay_code sqlite_commit_failed(struct sqlite_store *store, int rc, struct belay_error *err);
enum belay_code sqlite_moved(const struct sqlite_store *store, struct belay_error *err);
/* BELAY_REDIRECTED. */
enum belay_code sqlite_redirected(const struct sqlite_store *store, struct belay_error *err);
enum belay_code sqlite_other_boot(const struct sqlite_store *store, struct belay_error *err);

/* ---- sqlite_open.c ---- */
struct sqlite_params {
    char *path; /* owned; absolute */
    char *url;  /* owned */
    bool always_full;
    int64_t retain_events_ms;
    int64_t retain_records_ms;
};
enum belay_code sqlite_params_parse(const char *text, struct sqlite_params *out_params,
                                    struct belay_error *err);
/* The same without looking at the disk, so without path and url. The caller frees place and query. */
enum belay_code sqlite_params_read(const char *text, struct sqlite_params *out_params, char **out_place,
                                   char **out_query, struct belay_error *err);
void sqlite_params_release(struct sqlite_params *params);
/* The path as an absolute one, with its links; the caller frees it. */
enum belay_code sqlite_absolute_path(const char *path, char **out_path, struct belay_error *err);
/* The type of statfs(); 0: unknown. */
long sqlite_file_system_type(const struct sqlite_store *store, const char *directory);
/* "NFS" and so on, for a type of statfs(); NULL: not a network file system. */
const char *sqlite_network_name(long fs_type);

/* ---- sqlite_schema.c ---- */
enum belay_code sqlite_schema_ready(struct sqlite_store *store, struct belay_error *err);
enum { SCHEMA_VERSION = 7 };
/* BELAY_OK for a database of this version and for an empty one. Changes nothing. */
enum belay_code sqlite_schema_look(struct sqlite_store *store, bool *out_is_empty, struct belay_error *err);
/* Checks the application and the version in the header of a database. */
enum belay_code sqlite_schema_check(const char *path, int64_t application, int64_t version,
                                    struct belay_error *err);
enum belay_code sqlite_identity(struct belay_store *base, char out_id[BELAY_STORE_ID_SIZE],
                                struct belay_error *err);

/* ---- sqlite_boot.c: the clock, and a restart of the machine ---- */
enum belay_code sqlite_clock_init(struct sqlite_store *store, struct belay_error *err);
int64_t sqlite_now_ms(const struct sqlite_store *store);
int64_t sqlite_unix_ms(const struct sqlite_store *store);
enum belay_code sqlite_restart(struct sqlite_store *store, struct belay_error *err);
/*
 * The same when data was lost, so that it is unknown which processes are gone: all leases start again, and numbers
 * continue far ahead. Inside a transaction, after db_add_functions().
 */
enum belay_code sqlite_start_over(struct sqlite_store *store, struct belay_error *err);
/* Inside a transaction: the next number is `to`, if that is greater, and the ceiling is above it. */
int sqlite_jump(struct sqlite_store *store, struct txn *txn, uint64_t to);

/* ---- sqlite_functions.c ---- */
int64_t id_born(const char *lock_id); /* Unix ms; 0: unknown */
/* Both are in files: of the database, of the wake file. They must not change. */
uint64_t hash_text(const char *text);
int64_t hash_acquisition(const char *key, const char *lock_id);
int db_add_functions(struct sqlite_store *store);

/* ---- sqlite_record.c, sqlite_json.c ---- */
/* In the column `numbers`. */
enum number {
    NUM_REVISION,
    NUM_TOKEN,
    NUM_OUTCOME,
    NUM_STALE_REPORTED,
    NUM_TTL,
    NUM_HEARTBEAT,
    NUM_STALE_AFTER,
    NUM_BEAT,
    NUM_FREED,
    NUM_LOCKED_AT,
    NUM_EXPIRES_AT,
    NUM_BEAT_AT,
    NUM_FREED_AT,
    NUM_MODE,
    NUM_SLOTS,
    N_NUMBERS
};
enum { NUMBERS_MAX = N_NUMBERS * 10 }; /* bytes; VARINT_MAX each */
size_t numbers_write(const int64_t numbers[N_NUMBERS], unsigned char out[NUMBERS_MAX]);
bool numbers_read(const unsigned char *packed, size_t size, int64_t out[N_NUMBERS]);

#define RECORD_COLUMNS "key, " RECORD_VALUES
#define RECORD_VALUES                                                                                        \
    "held, outlives, expires_ms, lock_id, owner, owner_name, numbers, metadata, tickets, intents, "          \
    "acquired_by, holders"

enum belay_code row_read(struct sqlite_store *store, sqlite3_stmt *statement, struct row *out_row,
                         struct belay_error *err);
enum belay_code row_load(struct sqlite_store *store, const char *key, struct row *out_row,
                         struct belay_error *err);
/* The same outside of a write transaction; *out_served as in struct txn, at the same moment. */
enum belay_code row_look(struct sqlite_store *store, const char *key, struct row *out_row, bool *out_served,
                         struct belay_error *err);
enum belay_code row_save(struct sqlite_store *store, const struct row *row, struct belay_error *err);
/* Calls fn for each record with such a list, in a transaction; stops at the first error. */
enum row_list { ROW_INTENTS, ROW_TICKETS, ROW_HOLDERS };
typedef enum belay_code (*row_fn)(struct sqlite_store *store, struct row *row, void *context,
                                  struct belay_error *err);
enum belay_code row_each(struct sqlite_store *store, enum row_list list, row_fn fn, void *context,
                         struct belay_error *err);

enum belay_code event_save(struct sqlite_store *store, const struct belay_event *event,
                           struct belay_error *err);

enum belay_code json_read_row(const struct sqlite_store *store, const char *metadata, const char *tickets,
                              const char *intents, struct row *row, struct belay_error *err);
/* NULL for an empty list, which is no failure; the caller frees the text. */
enum belay_code json_write_meta(const struct belay_meta *meta, size_t n, char **out_text,
                                struct belay_error *err);
enum belay_code json_write_intents(const struct row *row, char **out_text, struct belay_error *err);
enum belay_code json_read_meta(const struct sqlite_store *store, const char *text,
                               struct belay_meta **out_meta, size_t *out_n, struct belay_error *err);

/* ---- sqlite_tickets.c ---- */
/* Into a record whose block of text ends with room for all of `text`. False: it is damaged. */
bool tickets_read(const char *text, struct row *row);
/* NULL for an empty list, which is no failure; the caller frees the text. */
enum belay_code tickets_write(const struct row *row, char **out_text, struct belay_error *err);

/* ---- sqlite_replay.c ---- */

/*
 * Write the entries of a journal to the database, in several transactions. It may stop after any of them
 * and be repeated: entries that the database has are skipped. On BELAY_OK all of it is on disk. With the mutex,
 * or on a store that no other thread uses; likewise sqlite_recover().
 * `keep_going` (may be NULL) is called between two transactions; false ends it with BELAY_CANCELLED.
 */
struct journal;
enum belay_code sqlite_replay(struct sqlite_store *store, const struct journal *journal,
                              bool (*keep_going)(void *context), void *context, struct belay_error *err);
/* The same as far as the journal can be read: *out_lost is set to true if the rest is damaged, else unchanged. */
enum belay_code sqlite_replay_rest(struct sqlite_store *store, const struct journal *journal, bool *out_lost,
                                   struct belay_error *err);

/* ---- sqlite_recover.c ---- */

/*
 * Replay the journal that a dead server has left, and remove its files. The caller has the lock on
 * PATH-serve. Before sqlite_restart(), because the journal's times are of the clock of its boot.
 * BELAY_BAD_CONTENT: it is damaged, missing or of another database, and nothing was changed.
 */
enum belay_code sqlite_recover(struct sqlite_store *store, struct belay_error *err);
/* The same without what is damaged or missing: numbers jump far ahead, leases start again. */
enum belay_code sqlite_recover_rest(struct sqlite_store *store, bool *out_lost, struct belay_error *err);
/* The error of a lost journal; `how` is the predicate of its text. */
enum belay_code sqlite_journal_lost(const struct sqlite_store *store, const char *journal, const char *how,
                                    struct belay_error *err);
/*
 * Record which journal the server writes from now on, and sync that: uses `checkpointed` + 1 to `use`; id 0: none.
 * Also raises the ceiling, if it is below.
 */
enum belay_code sqlite_journal_want(struct sqlite_store *store, uint64_t id, uint64_t use,
                                    uint64_t checkpointed, uint64_t ceiling, struct belay_error *err);
/* The log of SQLite is missing: the locks in it are gone, but no number is issued twice (L2). */
enum belay_code sqlite_go_on_without_log(struct sqlite_store *store, struct belay_error *err);
/* Whether there is a journal. */
bool sqlite_has_journal(const struct sqlite_store *store);

/* ---- sqlite_commit.c, sqlite_query.c, sqlite_maintenance.c ---- */
enum belay_code sqlite_commit(struct belay_store *base, const struct belay_batch *batch,
                              struct belay_commit *out, struct belay_error *err);
enum belay_code sqlite_get(struct belay_store *base, const char *const *keys, size_t n,
                           struct belay_record *out_records, int64_t *out_now_ms, struct belay_error *err);
enum belay_code sqlite_scan(struct belay_store *base, const struct belay_scan *scan, belay_record_fn fn,
                            void *context, struct belay_error *err);
enum belay_code sqlite_events(struct belay_store *base, const struct belay_events_query *query,
                              belay_event_fn fn, void *context, struct belay_error *err);
/* The same, but only events with ids below `before`. */
enum belay_code sqlite_events_before(struct sqlite_store *store, const struct belay_events_query *query,
                                     uint64_t before, belay_event_fn fn, void *context,
                                     struct belay_error *err);
void event_release(struct belay_event *event);
/* Raise the ceiling to `to` at least: synced, and in the database itself, not only in the WAL. */
enum belay_code sqlite_raise_ceiling(struct sqlite_store *store, uint64_t to, struct belay_error *err);
/* One step of maintenance; `events_too`: also what is due only every LIST_EVERY numbers. */
void sqlite_sweep(struct sqlite_store *store, bool events_too);
/* Index the new events, and remove all that are too old. Inside a transaction. */
int sweep_all_events(struct sqlite_store *store);
/* Whether the record was unused since `before_unix_ms`. */
bool record_may_go(const struct belay_record *record, int64_t now_ms, int64_t before_unix_ms);

/* ---- sqlite_backup.c, sqlite_restore.c ---- */
/* The store port's backup(), into an empty file. */
enum belay_code sqlite_backup(struct belay_store *base, const char *path, struct belay_cancel *cancel,
                              struct belay_error *err);
/* The same when all commits are in the database. */
enum belay_code sqlite_backup_make(const struct sqlite_store *store, const char *path,
                                   struct belay_cancel *cancel, struct belay_error *err);
/* Mark a new copy as a backup. `boot_ms` is the clock of its boot; the ceiling is at least `ceiling`. */
enum belay_code sqlite_backup_mark(const char *path, int64_t unix_ms, int64_t boot_ms, uint64_t ceiling,
                                   struct belay_error *err);
/* Copies `from`, with its log, to the empty file `to`, which needs no log. */
enum belay_code sqlite_backup_copy(const char *from, const char *to, struct belay_error *err);
/* Copy the store to the empty file `path`, and `path` to the store: all or nothing. */
enum belay_code sqlite_backup_save(const struct sqlite_store *store, const char *path,
                                   struct belay_error *err);
enum belay_code sqlite_backup_fill(struct sqlite_store *store, const char *path, struct belay_error *err);
/* BELAY_CONFIG, with a text about the backup `path`. */
enum belay_code sqlite_clock_is_behind(const char *path, struct belay_error *err);
/* False: there is a server. Close the store with sqlite_restore_drop(): its file may have been replaced. */
bool sqlite_keep_servers_away(struct sqlite_store *store);
void sqlite_restore_drop(struct sqlite_store *store);

/* ---- sqlite_items.c ---- */
enum belay_code sqlite_item_get(struct belay_store *base, const char *space, const char *name,
                                struct belay_item *out_item, struct belay_error *err);
enum belay_code sqlite_item_put(struct belay_store *base, const struct belay_item_write *write,
                                uint64_t *out_version, struct belay_error *err);
enum belay_code sqlite_item_list(struct belay_store *base, const char *space, belay_item_fn fn, void *context,
                                 struct belay_error *err);

/* ---- sqlite_freezes.c ---- */
/* Read the freezes, unless those in store->freezes are current. With the mutex. */
enum belay_code sqlite_load_freezes(struct sqlite_store *store, struct belay_error *err);

/* ---- sqlite_wake.c ---- */
uint32_t sqlite_listen(struct belay_store *base, const char *lock_id);
void sqlite_wait(struct belay_store *base, const char *lock_id, uint32_t listened, int64_t timeout_ms,
                 struct belay_cancel *cancel);
void sqlite_wake(struct belay_store *base, const char *lock_id);
void wake_writers(struct sqlite_store *store); /* after a write transaction of this process */
/* Around a commit. Between the two, and if it fails, sqlite_wake() wakes even if no store is known to listen. */
void wake_before_commit(struct sqlite_store *store);
void wake_after_commit(struct sqlite_store *store, bool has_events);
/* Sleep until a write transaction of another process has ended, for at most so long. */
void wake_wait_for_writer(struct sqlite_store *store, int64_t most_us);
void wake_reset(struct sqlite_store *store); /* no process of this boot can be watching yet */
/* When the store is opened; a file that cannot be opened is no error. */
void wake_open(struct sqlite_store *store);
void wake_close(struct sqlite_store *store);
void wake_all(struct sqlite_store *store); /* every waiter polls again */

/* ---- sqlite_own.c ---- */
/* Take over from a server that is dead. With the mutex held, unless the store is being opened. */
enum belay_code sqlite_unserve(struct sqlite_store *store, bool *out_is_alive, struct belay_error *err);
/* The same with sqlite_recover_rest(), and an error if the server is alive. */
enum belay_code sqlite_unserve_rest(struct sqlite_store *store, bool *out_lost, struct belay_error *err);
/* Parse store->served_by. */
bool sqlite_served_parse(const struct sqlite_store *store, struct sqlite_server *out_server);
void sqlite_disown(struct sqlite_store *store);
/* Give up the lock and nothing else, as if this process had died. */
void sqlite_abandon(struct sqlite_store *store);
/* Whether a server has the lock; does not make the file. */
bool sqlite_server_lives(const struct sqlite_store *store);

/* ---- sqlite_liveness.c ---- */
/* Take the liveness lock of a ticket's waiter; false: there is none, and others must take it for alive. */
bool alive_keep(struct sqlite_store *store, const char *lock_id, const char *key, bool *out_is_new);
void alive_drop(struct sqlite_store *store, const char *lock_id, const char *key);
/* Mark tickets of dead waiters, from the front to the first that is alive. */
void alive_probe(struct sqlite_store *store, struct row *row);
/*
 * Waiters without a liveness lock, because they waited through a server that is gone, keep their places
 * until then: they may come back. Returns whether anything has changed.
 */
bool alive_keep_places(struct sqlite_store *store, struct row *row, int64_t until_ms);

#endif
