/*
 * The store of `belay serve` on an SQLite file: for one process, which owns it.
 *
 * All records are in memory. A commit changes them there and adds one entry to
 * a buffer; sync() writes the buffer to a journal beside the database, once for
 * all commits since the last one, and only then may anybody be told of them. A
 * thread brings the journal into the database behind that, so that after a
 * clean stop the database alone is everything, and after a kill the next who
 * opens it brings in the rest (store/sqlite/journal.h).
 */
#ifndef STORE_JOURNALED_JOURNALED_STORE_H
#define STORE_JOURNALED_JOURNALED_STORE_H

#include "store/sqlite/sqlite_store.h"

/* What tests put in place of the usual. 0 and NULL are the usual. */
struct journaled_hooks {
    const struct sqlite_hooks *sqlite;
    size_t journal_bytes; /* at which the other file is taken */
    int64_t idle_ms;      /* without a commit before the journal is brought in */
    bool no_checkpoint;   /* never brought in by itself, and left as it is at the end: as if killed */
};

/* As sqlite_store_open() and sqlite_store_own(). `on_warning` (may be NULL) hears what goes wrong in
 * the background, from sync(). */
enum belay_code journaled_store_open(const char *path_and_params, const struct journaled_hooks *hooks,
                                     void (*on_warning)(void *context, const char *text), void *context,
                                     struct belay_store **out_store, char **out_url, char **out_socket,
                                     struct belay_error *err);

/* The database, as an absolute path. */
const char *journaled_store_path(const struct belay_store *base);

#endif
