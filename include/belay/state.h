/*
 * Deployment state: one JSON document for each stack and environment, with snapshots and
 * fenced writes.
 *
 * The document of a state is stacks/STACK/ENVIRONMENT/state.json in a blob store
 * (belay/blob.h), with its snapshots in history/ beside it; docs/state.md has the format.
 * Every write is conditional on the content from which it was made, and carries the
 * fencing token of its lock and the id of the lock's store. The highest token stays in the
 * document, and a write with a lower token is refused. A process that has lost its lock
 * therefore changes nothing, even if it was suspended just before its write. The first write
 * binds the blob store to its lock store; writes under any other lock store are refused.
 *
 *     struct belay_state_name name = { "shop", "prod" };
 *     struct belay_state_lock held = { .token = belay_lock_token(lock), ... };
 *
 *     belay_client_store_id(client, &held.store, &err);
 *     belay_states_open(NULL, &states, &err);
 *     belay_state_begin(states, &name, &held, &state, &err);     // load, and mark as ours
 *     ... deploy, and make a new document from state->text ...
 *     write.lock = &held;
 *     write.loaded = &state->tag;
 *     belay_state_save(states, &name, text, len, &write, &saved, &err);
 *
 * A struct belay_states is for one thread at a time. The conventions of belay.h apply.
 */
#ifndef BELAY_STATE_H
#define BELAY_STATE_H

#include "belay/blob.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BELAY_STATE_FORMAT "deployer-state-v1"
enum {
    BELAY_STATE_PART_MAX = 128,
    BELAY_STATE_SNAPSHOTS = 100,
    BELAY_STATE_SNAPSHOTS_MAX = 10000,
    BELAY_STATE_HISTORY_MAX = 1000
};
#define BELAY_STATE_SNAPSHOT_AGE_MS (90LL * 24 * 3600 * 1000)

struct belay_states;

struct belay_states_options {
    size_t struct_size;
    const char *url;                   /* as for belay_blob_open() */
    const struct belay_config *config; /* borrowed; NULL: belay_config_load(NULL) */
    /* Called with one line of text that a person should see; no action is needed. */
    void (*on_warning)(void *context, const char *text);
    /* Called during long reads and writes; `total` 0: not known. */
    void (*on_progress)(void *context, uint64_t done, uint64_t total);
    void *context;
    long keep_snapshots; /* keep at least this many snapshots of a state; 0: as configured, else 100 */
    /* Also keep every younger snapshot, up to BELAY_STATE_SNAPSHOTS_MAX; 0: as configured, else 90 days. */
    int64_t keep_for_ms;
    int64_t (*now_unix_ms)(void *context); /* NULL: the wall clock */
    const char *lock_store_url; /* states are beside it if no state store is set; NULL: as configured */
};
#define BELAY_STATES_OPTIONS_INIT                                                                            \
    {                                                                                                        \
        sizeof(struct belay_states_options), NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL                  \
    }

BELAY_API enum belay_code belay_states_open(const struct belay_states_options *options,
                                            struct belay_states **out_states, struct belay_error *err);
/* Use your own blob store. Takes ownership of it: it is closed with the states, or if this fails. */
BELAY_API enum belay_code belay_states_open_store(struct belay_blob_store *store, const char *url,
                                                  const struct belay_states_options *options,
                                                  struct belay_states **out_states, struct belay_error *err);
BELAY_API void belay_states_close(struct belay_states *states);
/* The store's URL in full, as BELAY_STATE_STORE takes it. Lives as long as `states`. */
BELAY_API const char *belay_states_url(const struct belay_states *states);

/*
 * Bind the states to a lock store. Tokens of two lock stores cannot be compared, so
 * writers under two lock stores would not exclude each other. The first write binds the
 * states to the lock store of its lock; the id of that store is kept in a blob. A write
 * under any other lock store fails with BELAY_CONFIG, and the text names both. `id` is from
 * belay_client_store_id(), `url` is for people. belay_state_begin() and belay_state_save()
 * bind by themselves; call this before writing a document of another format.
 */
BELAY_API enum belay_code belay_states_bind(struct belay_states *states, const char *id, const char *url,
                                            struct belay_error *err);
/*
 * Bind the states to another lock store. The previous one must be out of use: its tokens
 * lose their meaning. *out_before (may be NULL) is its URL, or NULL if there was none; the
 * caller frees it.
 */
BELAY_API enum belay_code belay_states_rebind(struct belay_states *states, const char *id, const char *url,
                                              const char *by, char **out_before, struct belay_error *err);

/* Each is at most BELAY_STATE_PART_MAX bytes, has no '/', ':' or control character, and is not "." or "..". */
struct belay_state_name {
    const char *stack;
    const char *environment;
};

/* ---- reading ------------------------------------------------------------- */

/* A document as it is stored. A string is NULL if the document does not have it. */
struct belay_state {
    char *text; /* ends in '\0', which `len` does not count */
    size_t len;
    struct belay_blob_tag tag; /* identifies this content; an ETag, on S3 with its quotes */
    uint64_t serial;           /* increases by one with each save; 0: written by another program */
    uint64_t token;            /* the highest token of any lock under which it was written; 0: none */
    bool locked;               /* a deployment is in progress, or was when its process died */
    char *lock_store;          /* the id of the lock store that granted the token */
    char *lock_id;
    char *locked_by; /* the holder of the lock with that token */
    char *last_updated;
    char *last_updated_by;
    char *deployment_id;
    char *snapshot; /* the name of the snapshot of this version */
    size_t n_resources;
    bool has_checksums; /* false: another program wrote it, and it could not be verified */
};
BELAY_API void belay_state_free(struct belay_state *state);

/*
 * Load a state and verify its checksums. The caller frees *out_state. BELAY_NOT_FOUND: the
 * state does not exist. BELAY_BAD_CONTENT: it is damaged; the text says which part.
 */
BELAY_API enum belay_code belay_state_load(struct belay_states *states, const struct belay_state_name *name,
                                           struct belay_state **out_state, struct belay_error *err);

/*
 * Load a state if it has changed since it had the tag `known`; otherwise *out_state is NULL.
 * A store that cannot tell without reading the state loads it in either case.
 */
BELAY_API enum belay_code belay_state_reload(struct belay_states *states, const struct belay_state_name *name,
                                             const struct belay_blob_tag *known,
                                             struct belay_state **out_state, struct belay_error *err);

/*
 * Load a state (`snapshot` NULL) or one of its snapshots without verifying its checksums, as
 * belay_state_adopt() does. The format must still be right.
 */
BELAY_API enum belay_code belay_state_load_unverified(struct belay_states *states,
                                                      const struct belay_state_name *name,
                                                      const char *snapshot, struct belay_state **out_state,
                                                      struct belay_error *err);

/*
 * Verify a state (`snapshot` NULL) or one of its snapshots. Calls `fn` for each part;
 * BELAY_BAD_CONTENT if a part failed.
 */
BELAY_API enum belay_code belay_state_verify(struct belay_states *states, const struct belay_state_name *name,
                                             const char *snapshot, belay_finding_fn fn, void *context,
                                             struct belay_error *err);

/* List the states in the order of their names. `fn` returns false to stop. */
typedef bool (*belay_state_fn)(void *context, const struct belay_state_name *name, uint64_t size,
                               int64_t modified_unix_ms);
BELAY_API enum belay_code belay_state_list(struct belay_states *states, belay_state_fn fn, void *context,
                                           struct belay_error *err);

/* The last `limit` (0: all) deployments, newest first, each as one line of JSON. `fn` returns false to stop. */
typedef bool (*belay_text_fn)(void *context, const char *json);
BELAY_API enum belay_code belay_state_history(struct belay_states *states,
                                              const struct belay_state_name *name, size_t limit,
                                              belay_text_fn fn, void *context, struct belay_error *err);

struct belay_snapshot {
    size_t index;          /* 1 is the newest */
    const char *name;      /* "2024-01-15-14-20-00.json" */
    const char *timestamp; /* "2024-01-15T14:20:00Z" */
    uint64_t size;
};
typedef bool (*belay_snapshot_fn)(void *context, const struct belay_snapshot *snapshot);
/* List the snapshots, newest first. `fn` returns false to stop. */
BELAY_API enum belay_code belay_state_snapshots(struct belay_states *states,
                                                const struct belay_state_name *name, belay_snapshot_fn fn,
                                                void *context, struct belay_error *err);

/* Resolve "latest", an index, a timestamp or a name to the name of a snapshot. The caller frees *out_name. */
BELAY_API enum belay_code belay_state_find_snapshot(struct belay_states *states,
                                                    const struct belay_state_name *name, const char *which,
                                                    char **out_name, struct belay_error *err);

/* As belay_state_load(), for a snapshot. */
BELAY_API enum belay_code belay_state_load_snapshot(struct belay_states *states,
                                                    const struct belay_state_name *name, const char *snapshot,
                                                    struct belay_state **out_state, struct belay_error *err);

enum belay_change { BELAY_CREATED, BELAY_UPDATED, BELAY_DELETED };
/* `part` is "resources" or "outputs" with the name of an entry, or another part of the document without a name. */
typedef bool (*belay_change_fn)(void *context, enum belay_change change, const char *part, const char *name);
/* Compare two documents: the changes that turn `from` (NULL: empty) into `to`. */
BELAY_API enum belay_code belay_state_diff(const struct belay_state *from, const struct belay_state *to,
                                           belay_change_fn fn, void *context, struct belay_error *err);

/* ---- writing ------------------------------------------------------------- */

/* The lock under which a write is made. */
struct belay_state_lock {
    uint64_t token;        /* not 0: a lock store without tokens cannot fence */
    const char *store;     /* the id of the lock's store, from belay_client_store_id() */
    const char *store_url; /* its URL, for people; NULL: none */
    const char *lock_id;   /* NULL: do not record it */
    const char *key;       /* NULL: do not check it in the write (struct belay_blob_ops, put_if_held) */
    const char *locked_by; /* for people */
    int64_t locked_at_unix_ms;
    int64_t expires_at_unix_ms;
};

/* An entry of deployment_history. A NULL string is written as null. */
struct belay_deployment {
    const char *deployment_id;
    const char *triggered_by;
    const char *user;
    const char *git_commit;
    const char *git_branch;
    const char *version;
    const char *status;  /* "success", "failed", "lost", "restored", "adopted" */
    int64_t duration_ms; /* -1: not known */
};

struct belay_state_write {
    size_t struct_size;
    const struct belay_state_lock *lock; /* NULL: locking is disabled */
    /*
     * The tag of the content from which the new document was made. NULL: metadata.serial of the
     * new document says which version that was. With neither, the write is accepted only while
     * belay has saved no version of the state.
     */
    const struct belay_blob_tag *loaded;
    /*
     * The deployment to record; NULL: none. A NULL string in it is taken from the metadata of
     * the new document, else from `detected`.
     */
    const struct belay_deployment *deployment;
    bool keep_locked; /* the deployment continues after this write */
    /*
     * Refuse the write after any change since `loaded`, also if the same lock made it. Without
     * `loaded` the state must not exist yet.
     */
    bool exact;
    /*
     * Used for values that neither `deployment` nor the new document has. The document's own
     * deployment_id, git_commit, git_branch and last_updated_by count only if they differ from
     * those of the state that it replaces. NULL: none.
     */
    const struct belay_deployment *detected;
};
#define BELAY_STATE_WRITE_INIT                                                                               \
    {                                                                                                        \
        sizeof(struct belay_state_write), NULL, NULL, NULL, false, false, NULL                               \
    }

/*
 * Begin a deployment: load the state, or create an empty one, and mark it as being deployed
 * under this lock. From then on every write with a lower token, and every write made from the
 * previous content, is refused. BELAY_NOT_HOLDER: the document has a higher token;
 * belay_error_holder() says whose it is. BELAY_CONFIG: the lock has no token. Beginning
 * again under the same lock is not an error. The caller frees *out_state.
 */
BELAY_API enum belay_code belay_state_begin(struct belay_states *states, const struct belay_state_name *name,
                                            const struct belay_state_lock *lock,
                                            struct belay_state **out_state, struct belay_error *err);

/*
 * Save a new version and a snapshot of it. Resources, outputs and all fields that belay
 * does not know come from `text`; metadata, lock, history and checksums are written anew.
 * `text` NULL: keep the present content, to record a deployment that changed nothing.
 *
 * BELAY_BAD_CONTENT: the text is not a state, or the stored state is damaged.
 * BELAY_NOT_HOLDER: a client with a higher token has written, or the content is not the one
 * that was loaded; nothing was changed. BELAY_UNKNOWN: it may have been saved. *out_state
 * (may be NULL) is the state after the write; the caller frees it.
 */
BELAY_API enum belay_code belay_state_save(struct belay_states *states, const struct belay_state_name *name,
                                           const char *text, size_t len,
                                           const struct belay_state_write *write,
                                           struct belay_state **out_state, struct belay_error *err);

/*
 * Check a text without saving it. When a save returns BELAY_BAD_CONTENT, this tells whether the
 * text is wrong (it fails too) or the stored state is damaged (it succeeds).
 */
BELAY_API enum belay_code belay_state_check(const struct belay_state_name *name, const char *text, size_t len,
                                            struct belay_error *err);

/* Copy the stored bytes, whatever they are, to a new snapshot. The caller frees *out_snapshot, its name. */
BELAY_API enum belay_code belay_state_backup(struct belay_states *states, const struct belay_state_name *name,
                                             char **out_snapshot, struct belay_error *err);

/*
 * Save the content of a snapshot as a new version. History and the highest token continue
 * from the present state or, if that is damaged, from the snapshot. `serial` continues from the
 * highest that any version can have had, also if some versions are damaged or missing.
 */
BELAY_API enum belay_code belay_state_restore(struct belay_states *states,
                                              const struct belay_state_name *name, const char *snapshot,
                                              const struct belay_state_write *write,
                                              struct belay_state **out_state, struct belay_error *err);

/*
 * Accept a state (`snapshot` NULL) or one of its snapshots although its checksums do not
 * match: another program may have written it, with checksums of its own. The content becomes
 * a new version with belay's checksums; the original bytes are kept as a snapshot; metadata
 * still names the deployment that made it. A valid state is left as it is. With
 * write->loaded the state must still have that content.
 */
BELAY_API enum belay_code belay_state_adopt(struct belay_states *states, const struct belay_state_name *name,
                                            const char *snapshot, const struct belay_state_write *write,
                                            struct belay_state **out_state, struct belay_error *err);

/* ---- documents of other formats -------------------------------------------- */

/*
 * A document with snapshots whose content belay does not interpret, such as Terraform's:
 * FOLDER/state.json, with FOLDER/history/ beside it. `folder` is a blob name
 * ("terraform/NAME"). These functions detect concurrent writes. The caller checks that it
 * holds the lock; a store that also keeps the locks checks it again in the write. Release
 * *out_document with belay_blob_release().
 */
BELAY_API enum belay_code belay_document_load(struct belay_states *states, const char *folder,
                                              struct belay_blob *out_document, struct belay_error *err);

/* As belay_state_reload(): out_document->data is NULL if the document has not changed. */
BELAY_API enum belay_code belay_document_reload(struct belay_states *states, const char *folder,
                                                const struct belay_blob_tag *known,
                                                struct belay_blob *out_document, struct belay_error *err);

/* Check that the text is one JSON object. BELAY_BAD_CONTENT says what is wrong and where. */
BELAY_API enum belay_code belay_document_check(const char *text, size_t len, struct belay_error *err);

struct belay_document_write {
    const struct belay_blob *before;     /* the loaded document; NULL: none existed */
    const struct belay_state_lock *lock; /* NULL: none */
};
/*
 * Save a document and a snapshot of it. `write` NULL: no document existed, and there is no lock.
 * BELAY_NOT_HOLDER: another client has written since, or the lock is lost; nothing was changed.
 */
BELAY_API enum belay_code belay_document_save(struct belay_states *states, const char *folder,
                                              const void *data, size_t len,
                                              const struct belay_document_write *write,
                                              struct belay_blob_tag *out_tag, struct belay_error *err);
BELAY_API enum belay_code belay_document_snapshots(struct belay_states *states, const char *folder,
                                                   belay_snapshot_fn fn, void *context,
                                                   struct belay_error *err);
/* `which` is as for belay_state_find_snapshot(). */
BELAY_API enum belay_code belay_document_load_snapshot(struct belay_states *states, const char *folder,
                                                       const char *which, struct belay_blob *out_document,
                                                       struct belay_error *err);
/* List the documents FOLDER/NAME/state.json in the order of their names. `fn` returns false to stop. */
typedef bool (*belay_document_fn)(void *context, const char *name, uint64_t size, int64_t modified_unix_ms);
BELAY_API enum belay_code belay_document_list(struct belay_states *states, const char *folder,
                                              belay_document_fn fn, void *context, struct belay_error *err);
/* Remove the document but not its snapshots. Not an error if it does not exist. `lock` may be NULL. */
BELAY_API enum belay_code belay_document_remove(struct belay_states *states, const char *folder,
                                                const struct belay_state_lock *lock, struct belay_error *err);

#ifdef __cplusplus
}
#endif

#endif
