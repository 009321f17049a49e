/*
 * The store of `belay serve` on an SQLite file: for one process, which owns the file.
 *
 * All records are in memory. A commit changes them there and appends an entry to
 * a buffer; sync() writes the buffer to a journal beside the database, once for
 * all commits since the last sync. A thread makes checkpoints: it writes the
 * entries of the journal to the database. After a clean stop the database is
 * complete. After a kill the next process that opens it replays the
 * journal (store/apply/journal.h).
 */
#ifndef STORE_JOURNALED_JOURNALED_STORE_H
#define STORE_JOURNALED_JOURNALED_STORE_H

#include "store/sqlite/sqlite_store.h"

/* For tests; 0 and NULL are the defaults. */
struct journaled_hooks {
    const struct sqlite_hooks *sqlite;
    size_t journal_bytes; /* at which the other file is used */
    int64_t idle_ms;      /* without a commit, before a checkpoint */
    bool no_checkpoint;   /* leave the journal as it is, at close too: as if killed */
};

/*
 * As sqlite_store_open() and sqlite_store_own(). sync() calls `on_warning` (may be NULL) with
 * the errors of the background thread.
 */
enum belay_code journaled_store_open(const char *path_and_params, const struct journaled_hooks *hooks,
                                     void (*on_warning)(void *context, const char *text), void *context,
                                     struct belay_store **out_store, char **out_url, char **out_socket,
                                     struct belay_error *err);

/* The database, as an absolute path. */
const char *journaled_store_path(const struct belay_store *base);

#endif
