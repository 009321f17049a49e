/*
 * The blob store port: implement it to keep deployment states and their snapshots in your
 * own store.
 *
 * A blob has a name and a content, which is replaced as a whole or not at all. The one
 * hard requirement is a conditional write: put_if() writes only if the blob still has the
 * content that the caller expects, whatever other processes do at the same moment.
 * test/support/blob_suite.h tests all requirements and runs against every blob store.
 */
#ifndef BELAY_BLOB_H
#define BELAY_BLOB_H

#include "belay.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A name is one or more parts separated by '/', at most BELAY_BLOB_NAME_MAX bytes of UTF-8
 * without control characters. A part is at most BELAY_BLOB_PART_MAX bytes, is neither "."
 * nor "..", and does not begin with ".belay-", which is reserved for stores.
 */
enum {
    BELAY_BLOB_NAME_MAX = 900,
    BELAY_BLOB_PART_MAX = 200,
    BELAY_BLOB_TAG_MAX = 200,
    BELAY_BLOB_HINT_MAX = 127
};
#define BELAY_BLOB_SIZE_MAX ((size_t)512 << 20)

/*
 * A tag identifies one content of a blob, as an ETag does. The store chooses its text, which
 * is opaque to callers; two different contents of a blob never have the same text. The hint,
 * such as a file's inode and times, lets a store recognise an unchanged blob without reading
 * it. Comparisons of tags ignore it, and it may be "".
 */
struct belay_blob_tag {
    char text[BELAY_BLOB_TAG_MAX + 1];
    char hint[BELAY_BLOB_HINT_MAX + 1];
};

struct belay_blob {
    char *data; /* owned; ends in a '\0' that `len` does not count */
    size_t len;
    struct belay_blob_tag tag;
};
BELAY_API void belay_blob_release(struct belay_blob *blob); /* leaves *blob empty */

/* An entry of a list; the name is borrowed. */
struct belay_blob_entry {
    const char *name;
    uint64_t size;
    int64_t modified_unix_ms;
};
typedef bool (*belay_blob_fn)(void *context, const struct belay_blob_entry *entry);

/* Called while a large blob is transferred; `total` 0: not known. */
typedef void (*belay_blob_progress_fn)(void *context, uint64_t done, uint64_t total);

/* The lock under which a blob is written. */
struct belay_blob_lock {
    const char *store; /* the id of the lock's store, from belay_client_store_id() */
    const char *key;
    const char *lock_id;
    uint64_t token;
};

struct belay_blob_put {
    const char *name;
    const void *data;
    size_t len;
    const struct belay_blob_tag *expected; /* NULL: create the blob */
    const struct belay_blob_lock *lock;
};

struct belay_blob_store;

struct belay_blob_ops {
    const char *name;
    void (*close)(struct belay_blob_store *store);

    /* Read a blob. BELAY_NOT_FOUND: it does not exist. The caller releases *out_blob. */
    enum belay_code (*get)(struct belay_blob_store *store, const char *name, struct belay_blob *out_blob,
                           struct belay_error *err);

    /*
     * Replace the blob if its tag is `expected`; NULL: create it. BELAY_OK: the content
     * survives a loss of power. BELAY_REFUSED: the tag differs, or the blob exists; nothing was
     * changed. BELAY_UNREACHABLE: nothing was changed and nothing will be. BELAY_UNKNOWN: it
     * may have been written, or may be written later.
     */
    enum belay_code (*put_if)(struct belay_blob_store *store, const char *name, const void *data, size_t len,
                              const struct belay_blob_tag *expected, struct belay_blob_tag *out_tag,
                              struct belay_error *err);

    /*
     * List the blobs whose names begin with `prefix`, in byte order, until fn returns false.
     * With `shallow`, the list is like that of a directory: all names with the same text up to
     * the next '/' after the prefix are one entry, which ends in that '/' and has the size 0.
     */
    enum belay_code (*list)(struct belay_blob_store *store, const char *prefix, bool shallow,
                            belay_blob_fn fn, void *context, struct belay_error *err);

    /* Remove a blob. Not an error if it does not exist. */
    enum belay_code (*remove)(struct belay_blob_store *store, const char *name, struct belay_error *err);

    /*
     * As get(), but leave *out_blob empty if the blob still has the content of the tag `known`
     * (from get() or put_if()) and the store can tell without reading it. May be NULL.
     */
    enum belay_code (*get_if_changed)(struct belay_blob_store *store, const char *name,
                                      const struct belay_blob_tag *known, struct belay_blob *out_blob,
                                      struct belay_error *err);

    /*
     * As put_if(), for a store that may also have locks in its database. If the lock is there, the
     * store writes only while it is held with this id and token, and lets no client acquire it
     * between that check and the write. BELAY_NOT_HOLDER: the lock is not held; nothing was
     * changed. May be NULL: the store has no locks.
     */
    enum belay_code (*put_if_held)(struct belay_blob_store *store, const struct belay_blob_put *put,
                                   struct belay_blob_tag *out_tag, struct belay_error *err);
    /* The same for remove(). Not NULL if put_if_held is not. */
    enum belay_code (*remove_if_held)(struct belay_blob_store *store, const char *name,
                                      const struct belay_blob_lock *lock, struct belay_error *err);
};

/* The first member of a store's own struct. */
struct belay_blob_store {
    const struct belay_blob_ops *ops;
    belay_blob_progress_fn on_progress; /* may be NULL */
    void *progress_context;
};

/* Check a name; a store calls this first in every operation. BELAY_INVALID says what is wrong. */
BELAY_API enum belay_code belay_blob_name_check(const char *name, struct belay_error *err);

/*
 * Open a blob store: "file:DIR", "s3://BUCKET/PREFIX?region=R&endpoint=URL" or
 * "postgresql://HOST/DATABASE"; or a belay server, "http://HOST:PORT", whose states can be read
 * but not written as blobs. A directory is created by the first write.
 *
 * `url` NULL: as configured, else the directory FILE-state beside an embedded lock database
 * FILE, or the PostgreSQL database that has the locks. `config` NULL: belay_config_load(NULL).
 * *out_url (may be NULL) is the URL in full; the caller frees it. Close the store with
 * (*out_store)->ops->close().
 */
BELAY_API enum belay_code belay_blob_open(const char *url, const struct belay_config *config,
                                          struct belay_blob_store **out_store, char **out_url,
                                          struct belay_error *err);

#ifdef __cplusplus
}
#endif

#endif
