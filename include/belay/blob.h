/*
 * The port behind which a store of blobs stands: deployment states and their
 * snapshots are kept through it.
 *
 * A blob has a name and a content, which is replaced as a whole or not at all.
 * The one thing it must be able to do is to refuse a write: put_if() writes only
 * if the blob is still what the caller believes it to be, whatever any other
 * process does at the same moment. Everything a store must keep to is tested by
 * test/support/blob_suite.h, which runs against every store.
 */
#ifndef BELAY_BLOB_H
#define BELAY_BLOB_H

#include "belay.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A name is one or more parts with a '/' between two, at most BELAY_BLOB_NAME_MAX
 * bytes of clean UTF-8; a part is at most BELAY_BLOB_PART_MAX bytes, is neither
 * "." nor "..", and does not begin with ".belay-", which stores keep for themselves.
 */
enum {
    BELAY_BLOB_NAME_MAX = 900,
    BELAY_BLOB_PART_MAX = 200,
    BELAY_BLOB_TAG_MAX = 200,
    BELAY_BLOB_HINT_MAX = 127
};
#define BELAY_BLOB_SIZE_MAX ((size_t)512 << 20)

/*
 * A tag tells two contents of one blob apart. It says nothing else, and is the
 * store's to choose. A hint is what a store may recognise a blob by without reading
 * it; it is no part of the tag when two are compared, and may be "".
 */
struct belay_blob_tag {
    char text[BELAY_BLOB_TAG_MAX + 1];
    char hint[BELAY_BLOB_HINT_MAX + 1];
};

struct belay_blob {
    char *data; /* owned; ends in '\0', which `len` does not count */
    size_t len;
    struct belay_blob_tag tag;
};
BELAY_API void belay_blob_release(struct belay_blob *blob); /* leaves it empty */

/* What a list says of a blob. */
struct belay_blob_entry {
    const char *name;
    uint64_t size;
    int64_t modified_unix_ms;
};
typedef bool (*belay_blob_fn)(void *context, const struct belay_blob_entry *entry);

/* Told while a large blob is on its way; `total` is 0 while it is not known. */
typedef void (*belay_blob_progress_fn)(void *context, uint64_t done, uint64_t total);

struct belay_blob_store;

struct belay_blob_ops {
    const char *name;
    void (*close)(struct belay_blob_store *store);

    /* BELAY_NOT_FOUND if there is none. */
    enum belay_code (*get)(struct belay_blob_store *store, const char *name, struct belay_blob *out_blob,
                           struct belay_error *err);

    /*
     * Replace the blob if it is what `expected` says: NULL means that there is
     * none. BELAY_REFUSED if it is not, and nothing was changed. BELAY_OK only once
     * it is where a loss of power leaves it. BELAY_UNREACHABLE only if surely
     * nothing happened; BELAY_UNKNOWN if it may have, or yet may.
     */
    enum belay_code (*put_if)(struct belay_blob_store *store, const char *name, const void *data, size_t len,
                              const struct belay_blob_tag *expected, struct belay_blob_tag *out_tag,
                              struct belay_error *err);

    /*
     * Blobs whose names begin with `prefix`, in the order of their bytes, until fn
     * returns false. With `shallow` what lies behind the next '/' after the prefix
     * is one entry, whose name ends in that '/' and whose size is 0.
     */
    enum belay_code (*list)(struct belay_blob_store *store, const char *prefix, bool shallow,
                            belay_blob_fn fn, void *context, struct belay_error *err);

    /* Not an error if there is none. */
    enum belay_code (*remove)(struct belay_blob_store *store, const char *name, struct belay_error *err);

    /*
     * As get(), but *out_blob is left empty if the blob is still what `known` is the
     * tag of, as get() or put_if() gave it, and the store can tell without reading
     * it. May be NULL: it never can.
     */
    enum belay_code (*get_if_changed)(struct belay_blob_store *store, const char *name,
                                      const struct belay_blob_tag *known, struct belay_blob *out_blob,
                                      struct belay_error *err);
};

/* A store's own struct begins with this. */
struct belay_blob_store {
    const struct belay_blob_ops *ops;
    belay_blob_progress_fn on_progress; /* NULL: nobody looks */
    void *progress_context;
};

/* BELAY_INVALID says what is wrong with the name. For stores, which call it first in every operation. */
BELAY_API enum belay_code belay_blob_name_check(const char *name, struct belay_error *err);

/*
 * Open "file:DIR", "s3://BUCKET/PREFIX?region=R&endpoint=URL", or "http://HOST:PORT"
 * of a belay server, whose states can be read but not written as blobs. `url` NULL: what
 * the configuration says, else the directory FILE-state beside an embedded lock
 * database FILE. `config` NULL: as belay_config_load(NULL) finds it. A directory is made
 * when something is first put into it. *out_url (may be NULL) is the URL as it was
 * understood; the caller frees it. Close with (*out_store)->ops->close().
 */
BELAY_API enum belay_code belay_blob_open(const char *url, const struct belay_config *config,
                                          struct belay_blob_store **out_store, char **out_url,
                                          struct belay_error *err);

#ifdef __cplusplus
}
#endif

#endif
