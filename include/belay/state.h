/*
 * Deployment state: one JSON document for every stack and environment, its
 * snapshots, and writes that a stale holder cannot make.
 *
 * A document lies at stacks/STACK/ENVIRONMENT/state.json of a store of blobs
 * (belay/blob.h), its snapshots in history/ beside it; docs/state.md has the
 * format. Every write is conditional on the content that it was made from, and
 * carries a stamp: the token of the lock under which it is made, and the id of
 * that lock's store. The greatest token stays in the document, and a write with a
 * smaller one is refused: whoever lost its lock, knowingly or not, even stopped
 * between its last look and its write, changes nothing. The store of blobs itself is
 * bound to the first lock store that writes to it, and refuses any other.
 *
 *     struct belay_state_name name = { "shop", "prod" };
 *     struct belay_state_lock stamp = { .token = belay_lock_token(lock), ... };
 *
 *     belay_client_store_id(client, &stamp.store, &err);
 *     belay_states_open(NULL, &states, &err);
 *     belay_state_begin(states, &name, &stamp, &state, &err);     // load, and mark it as ours
 *     ... deploy, and make a new document of state->text ...
 *     write.lock = &stamp;
 *     write.loaded = &state->tag;
 *     belay_state_save(states, &name, text, len, &write, &saved, &err);
 *
 * A struct belay_states may be used by one thread at a time.
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
    const char *url;                   /* NULL: as for belay_blob_open() */
    const struct belay_config *config; /* NULL: as belay_config_load(NULL) finds it */
    /* Called for what a person should know but no caller acts upon; one line. */
    void (*on_warning)(void *context, const char *text);
    /* Called while something large is read or written; `total` 0: not known. */
    void (*on_progress)(void *context, uint64_t done, uint64_t total);
    void *context;
    long keep_snapshots; /* so many of a state at least; 0: as configured, else 100 */
    int64_t
        keep_for_ms; /* and every younger one, up to BELAY_STATE_SNAPSHOTS_MAX; 0: as configured, else 90 days */
    int64_t (*now_unix_ms)(void *context); /* NULL: the wall clock */
    const char *lock_store_url; /* beside which states lie if nothing else is said; NULL: as configured */
};
#define BELAY_STATES_OPTIONS_INIT                                                                            \
    {                                                                                                        \
        sizeof(struct belay_states_options), NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL                  \
    }

BELAY_API enum belay_code belay_states_open(const struct belay_states_options *options,
                                            struct belay_states **out_states, struct belay_error *err);
/* On a store of one's own, which it closes in the end, also if this fails. */
BELAY_API enum belay_code belay_states_open_store(struct belay_blob_store *store, const char *url,
                                                  const struct belay_states_options *options,
                                                  struct belay_states **out_states, struct belay_error *err);
BELAY_API void belay_states_close(struct belay_states *states);
/* The store's URL as it was understood, fit for BELAY_STATE_STORE. */
BELAY_API const char *belay_states_url(const struct belay_states *states);

/*
 * A store of states is fenced by one lock store: writes under two would not exclude
 * each other. It is bound to the first one that writes to it, by a blob of its own,
 * and a write under another one is refused with BELAY_CONFIG, which names both. `id`
 * is that of belay_client_store_id(), `url` is for people. Saving a state with a stamp
 * does this by itself; call it before a document of another format is written.
 */
BELAY_API enum belay_code belay_states_bind(struct belay_states *states, const char *id, const char *url,
                                            struct belay_error *err);
/*
 * Bind it to another lock store: the one before is out of use, and its tokens mean
 * nothing any more. *out_before (may be NULL) is that one's URL, NULL if there was
 * none; the caller frees it.
 */
BELAY_API enum belay_code belay_states_rebind(struct belay_states *states, const char *id, const char *url,
                                              const char *by, char **out_before, struct belay_error *err);

/* Both are at most BELAY_STATE_PART_MAX bytes, without '/', ':' and control characters, and neither "." nor "..". */
struct belay_state_name {
    const char *stack;
    const char *environment;
};

/* ---- reading ------------------------------------------------------------- */

/* A document as it is stored. Strings are NULL where it says nothing. */
struct belay_state {
    char *text; /* ends in '\0', which `len` does not count */
    size_t len;
    struct belay_blob_tag tag; /* of exactly this content: an ETag, which on S3 has its quotes already */
    uint64_t serial;           /* grows by one with every save; 0: written by another program */
    uint64_t token;            /* the greatest token of a lock under which it was written; 0: none */
    bool locked;               /* a deployment is under way, or was when it died */
    char *lock_store;          /* the id of the lock store whose token that is */
    char *lock_id;
    char *locked_by; /* who has, or last had, that token */
    char *last_updated;
    char *last_updated_by;
    char *deployment_id;
    char *snapshot; /* the name of the snapshot of this version */
    size_t n_resources;
    bool has_checksums; /* false: another program wrote it, and nothing could be verified */
};
BELAY_API void belay_state_free(struct belay_state *state);

/*
 * Load and verify. BELAY_NOT_FOUND if there is none; BELAY_BAD_CONTENT says what is
 * wrong with it, and in which part.
 */
BELAY_API enum belay_code belay_state_load(struct belay_states *states, const struct belay_state_name *name,
                                           struct belay_state **out_state, struct belay_error *err);

/*
 * The same for who has loaded or saved it before: *out_state is NULL if it is still
 * what `known`, the tag it had then, stands for. What a store cannot tell without
 * reading it is loaded.
 */
BELAY_API enum belay_code belay_state_reload(struct belay_states *states, const struct belay_state_name *name,
                                             const struct belay_blob_tag *known,
                                             struct belay_state **out_state, struct belay_error *err);

/*
 * Load the state, or one of its snapshots, without comparing checksums: what
 * belay_state_adopt() would accept. It must still be of the format.
 */
BELAY_API enum belay_code belay_state_load_unverified(struct belay_states *states,
                                                      const struct belay_state_name *name,
                                                      const char *snapshot, struct belay_state **out_state,
                                                      struct belay_error *err);

/*
 * Say all that is wrong with a state (`snapshot` NULL) or one of its snapshots:
 * one finding for every part, then BELAY_BAD_CONTENT if one of them failed.
 */
BELAY_API enum belay_code belay_state_verify(struct belay_states *states, const struct belay_state_name *name,
                                             const char *snapshot, belay_finding_fn fn, void *context,
                                             struct belay_error *err);

/* The states in the store, in the order of their names. Return false to stop. */
typedef bool (*belay_state_fn)(void *context, const struct belay_state_name *name, uint64_t size,
                               int64_t modified_unix_ms);
BELAY_API enum belay_code belay_state_list(struct belay_states *states, belay_state_fn fn, void *context,
                                           struct belay_error *err);

/* The last `limit` (0: all) deployments, newest first, each as one line of JSON. Return false to stop. */
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
/* Newest first. */
BELAY_API enum belay_code belay_state_snapshots(struct belay_states *states,
                                                const struct belay_state_name *name, belay_snapshot_fn fn,
                                                void *context, struct belay_error *err);

/* Which snapshot "latest", an index, a timestamp or a name means. The caller frees *out_name. */
BELAY_API enum belay_code belay_state_find_snapshot(struct belay_states *states,
                                                    const struct belay_state_name *name, const char *which,
                                                    char **out_name, struct belay_error *err);

/* As belay_state_load(), of a snapshot. */
BELAY_API enum belay_code belay_state_load_snapshot(struct belay_states *states,
                                                    const struct belay_state_name *name, const char *snapshot,
                                                    struct belay_state **out_state, struct belay_error *err);

enum belay_change { BELAY_CREATED, BELAY_UPDATED, BELAY_DELETED };
/* `part` is "resources" or "outputs" with the name of one of them; or a part of the document, without a name. */
typedef bool (*belay_change_fn)(void *context, enum belay_change change, const char *part, const char *name);
/* What one would have to do to `from` (NULL: nothing is there) to get `to`. */
BELAY_API enum belay_code belay_state_diff(const struct belay_state *from, const struct belay_state *to,
                                           belay_change_fn fn, void *context, struct belay_error *err);

/* ---- writing ------------------------------------------------------------- */

/* Under which lock a write is made. */
struct belay_state_lock {
    uint64_t token;        /* not 0: a store without tokens cannot fence */
    const char *store;     /* the id of the lock's store, of belay_client_store_id() */
    const char *store_url; /* the same for people; NULL: none */
    const char *lock_id;   /* NULL: not to be shown */
    const char *locked_by; /* for people */
    int64_t locked_at_unix_ms;
    int64_t expires_at_unix_ms;
};

/* One entry of deployment_history. What is NULL is null there. */
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
    const struct belay_state_lock *lock;       /* NULL: locking is switched off */
    const struct belay_blob_tag *loaded;       /* what it was made from; NULL: what metadata.serial of the
                                                  new document says; one without is accepted only
                                                  while no state was saved */
    const struct belay_deployment *deployment; /* NULL: none to be recorded. What is NULL in it is what the
                                                  new document's own metadata says, else `detected` */
    bool keep_locked;                          /* the deployment goes on */
    bool
        exact; /* what the same lock has saved since it was loaded counts too; without `loaded` there must be none */
    /*
     * What to record where `deployment` says nothing and the document brings nothing of its
     * own: deployment_id, git_commit, git_branch and last_updated_by of its metadata are its
     * own if they are not those of the state that it replaces. NULL: nothing.
     */
    const struct belay_deployment *detected;
};
#define BELAY_STATE_WRITE_INIT                                                                               \
    {                                                                                                        \
        sizeof(struct belay_state_write), NULL, NULL, NULL, false, false, NULL                               \
    }

/*
 * Load the state and mark it as being deployed under this lock, or make an empty
 * one. From then on every write with an older token, and every write made from
 * what was there before, is refused. BELAY_NOT_HOLDER if the token is not greater
 * than that in the document; belay_error_holder() says whose that is.
 */
BELAY_API enum belay_code belay_state_begin(struct belay_states *states, const struct belay_state_name *name,
                                            const struct belay_state_lock *stamp,
                                            struct belay_state **out_state, struct belay_error *err);

/*
 * Save a document: its resources, outputs and all fields that belay does not
 * know, with metadata, lock, history and checksums made anew, and a snapshot of
 * it. `text` NULL: what is there, to record a deployment that changed nothing.
 *
 * BELAY_BAD_CONTENT: the text is no state. BELAY_NOT_HOLDER: somebody with a later
 * token was there, or the content is not what it was loaded from; nothing was
 * changed. BELAY_UNKNOWN: it may have been saved. *out_state (may be NULL) is what
 * is there now.
 */
BELAY_API enum belay_code belay_state_save(struct belay_states *states, const struct belay_state_name *name,
                                           const char *text, size_t len,
                                           const struct belay_state_write *write,
                                           struct belay_state **out_state, struct belay_error *err);

/* After BELAY_BAD_CONTENT: the same if it is the new text that is to blame, not what is stored. */
BELAY_API enum belay_code belay_state_check(const struct belay_state_name *name, const char *text, size_t len,
                                            struct belay_error *err);

/* Copy what is there, whatever it is, to a new snapshot. The caller frees *out_snapshot, its name. */
BELAY_API enum belay_code belay_state_backup(struct belay_states *states, const struct belay_state_name *name,
                                             char **out_snapshot, struct belay_error *err);

/*
 * Save the content of a snapshot as a new version. History and the greatest token
 * go on from what is there now; if that is damaged, from the snapshot. `serial` goes on
 * from the greatest that was given to a version, whatever is damaged or gone.
 */
BELAY_API enum belay_code belay_state_restore(struct belay_states *states,
                                              const struct belay_state_name *name, const char *snapshot,
                                              const struct belay_state_write *write,
                                              struct belay_state **out_state, struct belay_error *err);

/*
 * Accept the state that is there (`snapshot` NULL), or one of its snapshots, although
 * its checksums are not those of its parts: another program wrote it, with a form of
 * its own for them. Its content becomes a new version, with checksums of belay's; its
 * bytes are kept as a snapshot; metadata still names the deployment that made it. A
 * state that is sound stays as it is. write->loaded: only if it is still that content.
 */
BELAY_API enum belay_code belay_state_adopt(struct belay_states *states, const struct belay_state_name *name,
                                            const char *snapshot, const struct belay_state_write *write,
                                            struct belay_state **out_state, struct belay_error *err);

/* ---- documents of other formats -------------------------------------------- */

/*
 * A document that is kept with snapshots and not looked into, such as Terraform's:
 * FOLDER/state.json, with FOLDER/history/ beside it. `folder` is a name of blobs
 * ("terraform/NAME"). Whether one may write is for the caller to say; that nobody
 * wrote in between is seen to here.
 */
BELAY_API enum belay_code belay_document_load(struct belay_states *states, const char *folder,
                                              struct belay_blob *out_document, struct belay_error *err);

/* As belay_state_reload(): out_document->data is NULL if it is the same. */
BELAY_API enum belay_code belay_document_reload(struct belay_states *states, const char *folder,
                                                const struct belay_blob_tag *known,
                                                struct belay_blob *out_document, struct belay_error *err);

/* BELAY_BAD_CONTENT, which says what is wrong and where, unless the text is one JSON object. */
BELAY_API enum belay_code belay_document_check(const char *text, size_t len, struct belay_error *err);

/* `before` is what was loaded; NULL: there was none. BELAY_NOT_HOLDER: somebody else wrote since. */
BELAY_API enum belay_code belay_document_save(struct belay_states *states, const char *folder,
                                              const void *data, size_t len, const struct belay_blob *before,
                                              struct belay_blob_tag *out_tag, struct belay_error *err);
BELAY_API enum belay_code belay_document_snapshots(struct belay_states *states, const char *folder,
                                                   belay_snapshot_fn fn, void *context,
                                                   struct belay_error *err);
/* `which` as for belay_state_find_snapshot(). */
BELAY_API enum belay_code belay_document_load_snapshot(struct belay_states *states, const char *folder,
                                                       const char *which, struct belay_blob *out_document,
                                                       struct belay_error *err);
/* The documents FOLDER/NAME/state.json there are, in the order of their names. Return false to stop. */
typedef bool (*belay_document_fn)(void *context, const char *name, uint64_t size, int64_t modified_unix_ms);
BELAY_API enum belay_code belay_document_list(struct belay_states *states, const char *folder,
                                              belay_document_fn fn, void *context, struct belay_error *err);
/* The document, not its snapshots. Not an error if there is none. */
BELAY_API enum belay_code belay_document_remove(struct belay_states *states, const char *folder,
                                                struct belay_error *err);

#ifdef __cplusplus
}
#endif

#endif
