/* Shared by the files of the journaled store. */
#ifndef STORE_JOURNALED_JOURNALED_INTERNAL_H
#define STORE_JOURNALED_JOURNALED_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "store/apply/journal.h"
#include "store/apply/pack.h"
#include "store/journaled/journaled_store.h"
#include "store/sqlite/sqlite_internal.h"

/* ---- journaled_index.c: records by key, and in the order of keys ---- */

/* Packed, so that a million fit in memory. */
struct stored_record {
    struct stored_record *next; /* in its bucket */
    uint64_t hash;
    unsigned char *packed; /* owned */
    size_t len;
    char key[];
};

struct record_table {
    struct stored_record **buckets; /* owned */
    size_t n_buckets;               /* a power of two */
    size_t n;
    void *tree; /* of tsearch(): the same records by key */
};

bool table_init(struct record_table *table);
void table_release(struct record_table *table);
struct stored_record *table_find(const struct record_table *table, const char *key);
/* A record without content, for table_add(); NULL: no memory. */
struct stored_record *stored_record_new(const char *key);
void stored_record_free(struct stored_record *stored);
bool table_add(struct record_table *table, struct stored_record *stored); /* false: no memory */
void table_remove(struct record_table *table, struct stored_record *stored);
/* The first whose key is greater, or not less if `or_same`; NULL: none. */
struct stored_record *table_after(const struct record_table *table, const char *key, bool or_same);

/* ---- journaled_used_ids.c: which ids have ever taken which key ---- */

/* Hashes of at least the last EVENTS_KEPT acquisitions, and at most of twice as many. */
struct id_set {
    uint64_t *slots[2]; /* owned; 0: empty. [0] is filled, [1] only looked into */
    size_t n;           /* in slots[0] */
};

bool ids_init(struct id_set *ids);
void ids_release(struct id_set *ids);
void ids_add(struct id_set *ids, uint64_t hash);
bool ids_has(const struct id_set *ids, uint64_t hash);

/* ---- the store ---- */

/* How far ahead the ceiling is raised, once half of the numbers below it are used: seconds of the heaviest load. */
enum { CEILING_AHEAD = 1 << 20 };

/*
 * Frames from which a journal can be read, so that a query for the newest events does not read all of it. They are at
 * least `apart` bytes apart: FRAME_INDEX_BYTES at first, and twice as much each time there are FRAME_INDEX_MAX.
 */
enum { FRAME_INDEX_MAX = 1024, FRAME_INDEX_BYTES = 64 << 10 };
struct frame_index {
    struct {
        uint64_t number; /* the first of the frame there */
        uint64_t frames; /* before it */
        size_t at;
    } all[FRAME_INDEX_MAX];
    size_t n;
    size_t apart;
};

struct journaled {
    struct belay_store base;
    struct sqlite_store *checkpoint_db; /* owned; the checkpoint thread's */
    struct sqlite_store *read_db;       /* owned; for history and wake-ups, in any thread */
    void (*on_warning)(void *context, const char *text);
    void *context;
    size_t journal_bytes;
    int64_t idle_ms;
    bool no_checkpoint;

    pthread_mutex_t mutex; /* guards everything below, except what `flushing` and `step_ms` say */
    struct record_table table;
    struct freeze_list freezes; /* owned */
    bool has_freezes;           /* `freezes` are as in the database; only this process writes them */
    struct id_set ids;
    uint64_t next; /* the first number of the next entry; the LSN of an entry is its last number */
    _Atomic uint64_t committed; /* LSN of the newest entry in memory; written with the mutex, read without */
    _Atomic uint64_t durable;   /* LSN of the newest entry on disk; the same */
    uint64_t ceiling;           /* on disk, and above all numbers in use (L2) */
    uint64_t ahead;             /* by how much it was last raised */
    struct buf frame;           /* entries that are not written yet */
    struct buf flushing;        /* entries that are being written; read only while `is_flushing` */
    bool is_flushing;           /* a thread writes `flushing`, without the mutex */
    pthread_cond_t flushed;
    struct buf scratch; /* for packing a record */
    struct journal journals[JOURNAL_FILES];
    int active;                    /* the one that commits are appended to */
    uint64_t first[JOURNAL_FILES]; /* the first number in each that may not be in the database; 0: none */
    struct frame_index frame_index[JOURNAL_FILES];
    uint64_t frame_first;   /* the first number in `frame`; 0: it is empty */
    uint64_t frame_commits; /* how many commits are in `frame` */
    struct belay_store_counts counts;
    bool is_ready[JOURNAL_FILES]; /* begun, and empty */
    char *warning;                /* owned; not reported yet */
    bool is_broken;               /* a sync has failed: what is on disk is unknown */
    char *sweep_key;              /* owned; NULL: from the first */
    int64_t committed_ms;         /* boot clock */

    uint64_t wanted; /* a backup waits until entries up to this number are in the database; 0: none does */
    unsigned faults; /* failed checkpoints */
    bool is_copying; /* a backup is in progress */
    pthread_t thread;
    int64_t step_ms; /* the thread's: when its present step began; boot clock */
    bool has_thread;
    bool is_stopping;
    pthread_cond_t wake;
};

/* ---- journaled_commit.c ---- */
enum belay_code journaled_commit(struct belay_store *base, const struct belay_batch *batch,
                                 struct belay_commit *out, struct belay_error *err);
/* With the mutex. */
enum belay_code journaled_load(struct journaled *store, const char *key, struct row *out_row,
                               struct belay_error *err);
/*
 * With the mutex. An entry with so many events was added to the frame: reserve room for it in the file, and count it.
 * On error it is not counted, and the caller removes it with journaled_cut_frame().
 */
enum belay_code journaled_append(struct journaled *store, size_t n_events, int64_t now_ms,
                                 struct belay_error *err);
/* With the mutex. Remove what was added behind the first `len` bytes of the frame. */
void journaled_cut_frame(struct journaled *store, size_t len);

/* ---- journaled_query.c ---- */
enum belay_code journaled_get(struct belay_store *base, const char *const *keys, size_t n,
                              struct belay_record *out_records, int64_t *out_now_ms, struct belay_error *err);
enum belay_code journaled_scan(struct belay_store *base, const struct belay_scan *scan, belay_record_fn fn,
                               void *context, struct belay_error *err);
enum belay_code journaled_events(struct belay_store *base, const struct belay_events_query *query,
                                 belay_event_fn fn, void *context, struct belay_error *err);

/* ---- journaled_sync.c ---- */
enum belay_code journaled_sync(struct belay_store *base, uint64_t lsn, struct belay_error *err);
uint64_t journaled_committed_lsn(struct belay_store *base);
uint64_t journaled_durable_lsn(struct belay_store *base);
void journaled_counts(struct belay_store *base, struct belay_store_counts *out);
/* With the mutex, which is released while the frame is written. */
enum belay_code journaled_sync_to(struct journaled *store, uint64_t lsn, struct belay_error *err);
/* With the mutex. Use the other journal from now on, if it is ready, for the entries of the frame as well. */
void journaled_switch_files(struct journaled *store);

/* ---- journaled_checkpoint.c ---- */
/* The store port's backup(): makes a checkpoint first. */
enum belay_code journaled_backup(struct belay_store *base, const char *path, struct belay_cancel *cancel,
                                 struct belay_error *err);
bool journaled_start_thread(struct journaled *store);
/* Write all entries to the database. After the thread has ended. */
enum belay_code journaled_checkpoint_all(struct journaled *store, struct belay_error *err);
void journaled_stop_thread(struct journaled *store);

/* ---- journaled_maintenance.c ---- */
/* With the mutex. Remove some records that were not used for retain_records. */
void journaled_sweep(struct journaled *store);

#endif
