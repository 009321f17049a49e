/* Internals of src/state. */
#ifndef STATE_STATES_H
#define STATE_STATES_H

#include "belay/state.h"
#include "state/canon.h"
#include "state/doc.h"
#include "state/state_server.h"

struct belay_states {
    struct belay_blob_store *store; /* owned */
    char *url;                      /* owned */
    long keep_snapshots;
    int64_t keep_for_ms;
    void (*on_warning)(void *context, const char *text);
    void (*on_progress)(void *context, uint64_t done, uint64_t total);
    int64_t (*now_unix_ms)(void *context);
    void *context;
    char *bound_id;  /* owned; the lock store in the binding that was last read; NULL: none */
    char *bound_url; /* owned */
    struct belay_blob_tag bound_tag;
    struct states_server *server; /* owned by `store`; not NULL: writes go through it, `store` only reads */
};

int64_t states_now(const struct belay_states *states);
void states_warn(const struct belay_states *states, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The blob; left empty if it still has the tag `known` (may be NULL). */
enum belay_code states_get(struct belay_states *states, const char *path, const struct belay_blob_tag *known,
                           struct belay_blob *out_blob, struct belay_error *err);

/*
 * Write a blob under a lock (NULL: none), which a store that has the locks too checks in the same transaction:
 * BELAY_NOT_HOLDER.
 */
enum belay_code states_put(struct belay_states *states, const struct belay_blob_put *put,
                           const struct belay_state_lock *lock, struct belay_blob_tag *out_tag,
                           struct belay_error *err);
enum belay_code states_remove(struct belay_states *states, const char *path,
                              const struct belay_state_lock *lock, struct belay_error *err);

enum { STATE_PATH_SIZE = 2 * BELAY_BLOB_PART_MAX + 128 };
enum belay_code state_name_check(const struct belay_state_name *name, struct belay_error *err);
/* "stacks/STACK/ENVIRONMENT/REST". Returns `out`. */
char *state_path(char out[STATE_PATH_SIZE], const struct belay_state_name *name, const char *rest);

/* ---- the format (format.c) ---- */

/* A document with the nodes of its parts; 0: absent. */
struct format {
    struct doc doc;
    uint32_t metadata;
    uint32_t lock;
    uint32_t resources;
    uint32_t outputs;
    uint32_t history;
    uint32_t checksums;
};

/*
 * Index a text and check its shape. A new document (`is_new`) may lack the members
 * that a save adds. `text` must outlive the format.
 */
enum belay_code format_read(const char *text, size_t len, const struct belay_state_name *name, bool is_new,
                            struct format *out_format, struct belay_error *err);
void format_release(struct format *format);

/* A member of a part; 0 if the part (0: absent) has none. */
static inline uint32_t format_member(const struct format *format, uint32_t part, const char *name)
{
    return part == 0 ? 0 : doc_member(&format->doc, part, name);
}
/* The same as a string, which the caller frees; NULL: it is none, or no memory. */
char *format_string(const struct format *format, uint32_t part, const char *name);
/* The newest deployment of the history; 0: there is none. `format` may be NULL. */
uint32_t format_newest(const struct format *format);

/* Fill a state from a format, except text, len and tag. */
enum belay_code format_describe(const struct format *format, struct belay_state *state,
                                struct belay_error *err);

/* Compare the checksums. `fn` (may be NULL) gets a finding for each part; the error names the first wrong one. */
enum belay_code format_verify(const struct format *format, belay_finding_fn fn, void *context,
                              struct belay_error *err);

/*
 * The member "checksums" of a document with these members. Other members of the
 * object `known_node` (0: none) are kept.
 */
enum belay_code format_checksums(struct canon_member *members, size_t n, const struct doc *known,
                                 uint32_t known_node, char **out_json, struct belay_error *err);

/* ---- a new document (build.c) ---- */

struct build {
    const struct belay_state_name *name;
    const struct format *content;  /* resources, outputs and unknown members; NULL: none */
    const struct format *current;  /* history, serial and token of the current version; NULL: none */
    const struct belay_state *was; /* of `current`; NULL: none */
    const struct belay_state_lock *lock;
    const struct belay_deployment *deployment; /* NULL: none */
    const struct belay_deployment *detected;   /* NULL: none */
    bool only_lock;                            /* no new version: only the lock changes */
    bool locked;
    bool adopt;           /* metadata keeps its deployment */
    const char *snapshot; /* of this version; NULL with only_lock */
    uint64_t last_serial; /* the highest that any version may have */
    int64_t now_unix_ms;
    size_t changes[3]; /* by enum belay_change */
};
enum belay_code build_text(const struct build *build, char **out_text, size_t *out_len,
                           struct belay_error *err);

/* ---- differences (diff.c) ---- */

enum belay_code diff_members(const struct format *from, uint32_t from_node, const struct format *to,
                             uint32_t to_node, const char *part, belay_change_fn fn, void *context,
                             struct belay_error *err);

/* ---- snapshots (snapshot.c) ---- */

struct snapshot {
    char *name;      /* owned */
    int64_t second;  /* since 1970 */
    unsigned number; /* among snapshots of one second, from 1 */
    uint64_t size;
};
struct snapshots {
    struct snapshot *items; /* owned; newest first */
    size_t n;
    size_t cap;
};
/* A folder's name ends in '/': "stacks/S/E/". Replaces what *out_snapshots had. */
enum belay_code snapshots_read(struct belay_states *states, const char *folder,
                               struct snapshots *out_snapshots, struct belay_error *err);
void snapshots_release(struct snapshots *snapshots);
enum { SNAPSHOT_NAME_SIZE = 48 };
/* A free name that sorts after all others. */
void snapshots_next(const struct snapshots *snapshots, int64_t now_unix_ms, char out[SNAPSHOT_NAME_SIZE]);
bool snapshots_has(const struct snapshots *snapshots, const char *name);
/* Write under exactly this name. BELAY_REFUSED: the name has other content. */
enum belay_code snapshot_put(struct belay_states *states, const char *folder, const char *snapshot,
                             const char *text, size_t len, struct belay_error *err);
/*
 * The same for a version that is saved already; then remove old snapshots. A failure is a warning about `what`,
 * because the next save writes a missing snapshot.
 */
void snapshot_add(struct belay_states *states, const char *folder, const char *snapshot, const char *what,
                  const char *text, size_t len);
char *snapshot_path(char out[STATE_PATH_SIZE], const char *folder, const char *snapshot);
enum belay_code snapshots_list(struct belay_states *states, const char *folder, belay_snapshot_fn fn,
                               void *context, struct belay_error *err);
enum belay_code snapshots_find(struct belay_states *states, const char *folder, const char *which,
                               char **out_name, struct belay_error *err);

/* ---- documents (document.c) ---- */

/* The documents in the folders directly below `folder`, which ends in '/'. */
enum belay_code documents_list(struct belay_states *states, const char *folder, belay_document_fn fn,
                               void *context, struct belay_error *err);
/* The name of a folder, "NAME/", without its '/'; false: not a folder, or the name is too long. */
bool folder_name(const char *text, char out[BELAY_BLOB_PART_MAX + 1]);

/* ---- reading and writing (state_load.c, state_save.c) ---- */

/* A version that was read. */
struct state_version {
    char rest[SNAPSHOT_NAME_SIZE + 16]; /* its path below the folder of the state */
    struct belay_state *state;          /* owned; NULL: it was not read */
    struct format format;               /* of its text; empty if the text is damaged */
};
void state_version_release(struct state_version *version);

/*
 * The current version, or with `snapshot` (not NULL) that one. The state stays NULL if the store still has the version
 * with the tag `known` (may be NULL). BELAY_BAD_CONTENT still sets its text, len and tag.
 */
enum belay_code state_fetch(struct belay_states *states, const struct belay_state_name *name,
                            const char *snapshot, const struct belay_blob_tag *known,
                            struct state_version *out_version, struct belay_error *err);

/* A text that was just written, or that a server sent, as a state, which takes it over. */
enum belay_code state_from_text(const struct belay_state_name *name, struct belay_blob *text,
                                struct belay_state **out_state, struct belay_error *err);

/* As format_verify(); BELAY_BAD_CONTENT names the path, and the commands that repair it. */
enum belay_code state_verify(const struct belay_state_name *name, const struct state_version *version,
                             belay_finding_fn fn, void *context, struct belay_error *err);

/* ---- through a server (state_remote.c) ---- */

enum belay_code state_remote_begin(struct belay_states *states, const struct belay_state_name *name,
                                   const struct belay_state_lock *lock, struct belay_state **out_state,
                                   struct belay_error *err);
enum belay_code state_remote_put(struct belay_states *states, const struct belay_state_name *name,
                                 const struct states_put *put, struct belay_state **out_state,
                                 struct belay_error *err);

#endif
