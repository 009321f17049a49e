/* What postgresql_blob.c and postgresql_blob_put.c share. */
#ifndef STORE_POSTGRESQL_POSTGRESQL_BLOB_H
#define STORE_POSTGRESQL_POSTGRESQL_BLOB_H

#include "belay/blob.h"
#include "store/postgresql/postgresql_internal.h"

/* Of a content; a call carries one, so it takes as long as any other call of the store. */
enum { PG_PIECE = 1 << 20 };

struct pg_blobs {
    struct belay_blob_store base;
    struct pg_store *store; /* owned; its connections */
};

/* The lock may be NULL, also that of `put`. */
enum belay_code pg_blob_put(struct pg_blobs *blobs, const struct belay_blob_put *put,
                            struct belay_blob_tag *out_tag, struct belay_error *err);
enum belay_code pg_blob_remove(struct pg_blobs *blobs, const char *name, const struct belay_blob_lock *lock,
                               struct belay_error *err);

#endif
