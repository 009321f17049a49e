/* What the files of src/state share. */
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
    char *bound_id;  /* owned; the lock store that it was last seen to be bound to; NULL: none */
    char *bound_url; /* owned */
    struct belay_blob_tag bound_tag;
    struct states_server *server; /* the store's own; not NULL: it writes, and `store` only reads */
};

int64_t states_now(const struct belay_states *states);
void states_warn(const struct belay_states *states, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The blob; left empty if it is known to be what `known` (may be NULL) says. */
enum belay_code states_get(struct belay_states *states, const char *path, const struct belay_blob_tag *known,
                           struct belay_blob *out_blob, struct belay_error *err);

enum { STATE_PATH_SIZE = 2 * BELAY_BLOB_PART_MAX + 128 };
enum belay_code state_name_check(const struct belay_state_name *name, struct belay_error *err);
/* "stacks/STACK/ENVIRONMENT/REST". Returns `out`. */
char *state_path(char out[STATE_PATH_SIZE], const struct belay_state_name *name, const char *rest);

/* ---- the format (format.c) ---- */

/* A document with the nodes of its parts; 0 where there is none. */
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
 * Index a text and check its shape. A new one (`is_new`) may lack what a save
 * adds; a stored one may not. `text` must outlive it.
 */
enum belay_code format_read(const char *text, size_t len, const struct belay_state_name *name, bool is_new,
                            struct format *out_format, struct belay_error *err);
void format_release(struct format *format);

/* Fill a state from a format; the text and the tag are left alone. */
enum belay_code format_describe(const struct format *format, struct belay_state *state,
                                struct belay_error *err);

/* Compare the checksums. `fn` (may be NULL) gets a finding for every part; the error names the first that is wrong. */
enum belay_code format_verify(const struct format *format, belay_finding_fn fn, void *context,
                              struct belay_error *err);

/*
 * The checksums of a document of these members, as the object that is stored.
 * `known` is an object whose other members are kept; 0: none.
 */
enum belay_code format_checksums(struct canon_member *members, size_t n, const struct doc *known,
                                 uint32_t known_node, char **out_json, struct belay_error *err);

/* ---- a new document (build.c) ---- */

struct build {
    const struct belay_state_name *name;
    const struct format *content;  /* resources, outputs and what we do not know; NULL: nothing */
    const struct format *current;  /* what is there: history, serial, token; NULL: nothing */
    const struct belay_state *was; /* of `current`; NULL: nothing */
    const struct belay_state_lock *stamp;
    const struct belay_deployment *deployment; /* NULL: none */
    const struct belay_deployment *detected;   /* NULL: nothing */
    bool only_stamp;                           /* no new version: the lock alone changes */
    bool locked;
    bool adopt;           /* metadata keeps the deployment that it names */
    const char *snapshot; /* of this version; NULL with only_stamp */
    uint64_t last_serial; /* the greatest that may have been given to a version */
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
    unsigned number; /* of those of one second, from 1 */
    uint64_t size;
};
struct snapshots {
    struct snapshot *items; /* owned; newest first */
    size_t n;
    size_t cap;
};
/* A folder's name ends in '/': "stacks/S/E/". */
enum belay_code snapshots_read(struct belay_states *states, const char *folder,
                               struct snapshots *out_snapshots, struct belay_error *err);
void snapshots_release(struct snapshots *snapshots);
enum { SNAPSHOT_NAME_SIZE = 48 };
/* A name that is not taken yet and sorts behind all others. */
void snapshots_next(const struct snapshots *snapshots, int64_t now_unix_ms, char out[SNAPSHOT_NAME_SIZE]);
bool snapshots_has(const struct snapshots *snapshots, const char *name);
/* Write one under exactly this name; the same content there already is no error. */
enum belay_code snapshot_put(struct belay_states *states, const char *folder, const char *snapshot,
                             const char *text, size_t len, struct belay_error *err);
char *snapshot_path(char out[STATE_PATH_SIZE], const char *folder, const char *snapshot);
enum belay_code snapshots_list(struct belay_states *states, const char *folder, belay_snapshot_fn fn,
                               void *context, struct belay_error *err);
enum belay_code snapshots_find(struct belay_states *states, const char *folder, const char *which,
                               char **out_name, struct belay_error *err);
/* Remove those that are both too many and too old. */
void snapshots_prune(struct belay_states *states, const char *folder, const struct snapshots *snapshots);

/* ---- reading and writing (load.c, save.c) ---- */

/* What is stored under `path`, with its format; BELAY_BAD_CONTENT still fills text, len and tag. */
enum belay_code state_fetch(struct belay_states *states, const struct belay_state_name *name,
                            const char *rest, struct belay_state **out_state, struct format *out_format,
                            struct belay_error *err);

/* What is stored there is not as it was saved: say where, and what can be done. Returns BELAY_BAD_CONTENT. */
enum belay_code state_damaged_error(const struct belay_state_name *name, const char *rest,
                                    struct belay_error *err);

struct save {
    struct belay_states *states;
    const struct belay_state_name *name;
    const struct belay_state_write *write;
    const struct format *content; /* NULL: what is there */
    char folder[STATE_PATH_SIZE]; /* set by save_run() */
    bool only_stamp;
    bool any_base;    /* the content's serial is not that of what it was made from */
    bool over_damage; /* what is there may be damaged, and is replaced then */
    bool adopt;       /* the content is what is there: its bytes and its deployment are kept */
};
enum belay_code save_run(struct save *save, struct belay_state **out_state, struct belay_error *err);

/* ---- through a server (through.c) ---- */

enum belay_code state_remote_begin(struct belay_states *states, const struct belay_state_name *name,
                                   const struct belay_state_lock *stamp, struct belay_state **out_state,
                                   struct belay_error *err);
enum belay_code state_remote_put(struct belay_states *states, const struct belay_state_name *name,
                                 const struct states_put *put, struct belay_state **out_state,
                                 struct belay_error *err);

#endif
