/*
 * Every write of a state takes these steps:
 *
 *     read the current version
 *     -> check that the token permits the write
 *     -> check that the new content was made from the current version
 *     -> write the current version's snapshot, if it is missing
 *     -> put the new version, if the current one is unchanged and, where the store can check it, the lock is held
 *     -> write the new version's snapshot, and remove old snapshots
 *
 * A process that dies before the last step leaves a version without a snapshot; the
 * next save writes it. So every acknowledged version has one.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "state/states.h"

enum { ATTEMPTS = 8, SERIALS_MAX = 16 };
#define SERIAL_MAX (UINT64_C(1) << 53)

struct save {
    struct belay_states *states;
    const struct belay_state_name *name;
    const struct belay_state_write *write;
    const struct format *content; /* NULL: the current content */
    char folder[STATE_PATH_SIZE]; /* set by save_run() */
    bool only_lock;
    bool any_base;    /* the content's serial does not tell what it was made from */
    bool over_damage; /* a damaged current version is replaced */
    bool adopt;       /* accept the content as it is, with its deployment */
};

/* The format of a damaged version is empty, and that of an absent one. */
static bool is_sound_version(const struct state_version *version)
{
    return version->format.doc.nodes != NULL;
}

static bool is_damaged(const struct state_version *version)
{
    return version->state != NULL && !is_sound_version(version);
}

static enum belay_code read_current(const struct save *save, struct state_version *out,
                                    struct belay_error *err)
{
    enum belay_code code = state_fetch(save->states, save->name, NULL, NULL, out, err);

    if (code == BELAY_NOT_FOUND) {
        return BELAY_OK;
    }
    /* The version that the caller loaded was verified then; any other is verified before it is built upon. */
    if (code == BELAY_OK &&
        (save->write->loaded == NULL || strcmp(save->write->loaded->text, out->state->tag.text) != 0)) {
        code = state_verify(save->name, out, NULL, NULL, err);
    }
    if (code == BELAY_BAD_CONTENT && save->over_damage) {
        format_release(&out->format);
        return BELAY_OK;
    }
    return code;
}

/* ---- fencing ------------------------------------------------------ */

/* Set the holder of `err` to the one that the document names. */
static void set_document_holder(const struct save *save, const struct belay_state *was,
                                struct belay_error *err)
{
    struct belay_info *info = calloc(1, sizeof *info);
    char key[BELAY_KEY_MAX + 1];

    (void)snprintf(key, sizeof key, "stack:%s:env:%s", save->name->stack, save->name->environment);
    if (info == NULL) {
        return;
    }
    info->key = strdup(key);
    info->locked_by = strdup(was->locked_by == NULL ? "" : was->locked_by);
    info->locked_by_name = strdup(was->locked_by == NULL ? "" : was->locked_by);
    info->token = was->token;
    info->status = was->locked ? BELAY_STATUS_ACTIVE : BELAY_STATUS_RELEASED;
    if (info->key == NULL || info->locked_by == NULL || info->locked_by_name == NULL) {
        belay_info_free(info);
        return;
    }
    error_set_holder(err, info);
}

static enum belay_code refuse_lower_token(const struct save *save, const struct belay_state *was,
                                          struct belay_error *err)
{
    (void)error_set(err, BELAY_NOT_HOLDER,
                    "the state of '%s' in '%s' %s %.200s, whose token is %" PRIu64 "; our token %" PRIu64
                    " is older: nothing was saved",
                    save->name->stack, save->name->environment,
                    was->locked ? "is being deployed by" : "was deployed since by",
                    was->locked_by == NULL ? "another client" : was->locked_by, was->token,
                    save->write->lock->token);
    set_document_holder(save, was, err);
    return BELAY_NOT_HOLDER;
}

/* Whether the document's token is from the same lock store. Older documents name the store by its URL. */
static bool is_same_store(const struct belay_state_lock *lock, const char *lock_store)
{
    return strcmp(lock_store, lock->store) == 0 ||
           (lock->store_url != NULL && strcmp(lock_store, lock->store_url) == 0);
}

static bool is_own_lock(const struct save *save, const struct belay_state *was)
{
    const struct belay_state_lock *lock = save->write->lock;

    return lock != NULL && was->token == lock->token && was->lock_store != NULL &&
           is_same_store(lock, was->lock_store) &&
           (was->lock_id == NULL || lock->lock_id == NULL || strcmp(was->lock_id, lock->lock_id) == 0);
}

/* Whether the lock may write: its store is the bound one, and its token is not lower than that of `was` (or NULL). */
static enum belay_code check_lock(const struct save *save, const struct belay_state *was,
                                  struct belay_error *err)
{
    const struct belay_state_lock *lock = save->write->lock;
    enum belay_code code;

    if (lock == NULL) {
        return BELAY_OK;
    }
    if (lock->token == 0) {
        return error_set(err, BELAY_CONFIG,
                         "the lock store %.200s gives no fencing tokens, so a late write cannot be refused: "
                         "use sqlite:, dynamodb: with layout=belay, or add fence_table=NAME to its URL",
                         lock->store_url == NULL ? lock->store : lock->store_url);
    }
    code = belay_states_bind(save->states, lock->store, lock->store_url, err);
    if (code != BELAY_OK) {
        return code;
    }
    if (was == NULL || was->token == 0 || is_own_lock(save, was)) {
        return BELAY_OK;
    }
    /* Tokens of a lock store that is no longer bound do not compare with ours. */
    if (was->lock_store != NULL && !is_same_store(lock, was->lock_store)) {
        return BELAY_OK;
    }
    return lock->token > was->token ? BELAY_OK : refuse_lower_token(save, was, err);
}

/* The node of the content's serial; 0: it has none. */
static uint32_t serial_node(const struct format *content)
{
    return content == NULL ? 0 : format_member(content, content->metadata, "serial");
}

/*
 * Whether the content's serial is that of the current version. Content without a
 * serial was made from no state, or from one that belay has not saved yet. The mark
 * of a first deployment has no serial either: content loaded at that time is refused
 * after the deployment's own save.
 */
static bool has_serial_of(const struct format *content, const struct belay_state *was)
{
    uint32_t node = serial_node(content);
    uint64_t serial = 0;

    if (node != 0 && doc_kind(&content->doc, node) != 'n' && !doc_number(&content->doc, node, &serial)) {
        return false;
    }
    return serial == (was == NULL ? 0 : was->serial);
}

/* The new document must be made from the current version, or from one that the same lock saved since. */
static enum belay_code check_base(const struct save *save, const struct belay_state *was,
                                  struct belay_error *err)
{
    const struct belay_blob_tag *loaded = save->write->loaded;
    bool has_base = loaded != NULL || serial_node(save->content) != 0;
    bool is_made_from_it = true;

    if (loaded != NULL) {
        is_made_from_it = was != NULL && (strcmp(loaded->text, was->tag.text) == 0 ||
                                          (!save->write->exact && is_own_lock(save, was)));
    } else if (save->write->exact) {
        is_made_from_it = was == NULL;
    } else if (!save->any_base && save->content != NULL) {
        is_made_from_it = has_serial_of(save->content, was);
    }
    if (is_made_from_it) {
        return BELAY_OK;
    }
    if (was == NULL) {
        return error_set(err, BELAY_NOT_HOLDER, "the state of '%s' in '%s' no longer exists",
                         save->name->stack, save->name->environment);
    }
    if (loaded == NULL && save->write->exact) {
        return error_set(err, BELAY_NOT_HOLDER,
                         "the state of '%s' in '%s' exists already: it is version %" PRIu64,
                         save->name->stack, save->name->environment, was->serial);
    }
    (void)error_set(err, BELAY_NOT_HOLDER,
                    "the state of '%s' in '%s' %s: it is version %" PRIu64 " of %.40s by %.200s; load it %s",
                    save->name->stack, save->name->environment,
                    has_base ? "has changed since this one was loaded"
                             : "exists already, and this one does not say (in metadata.serial) that it was "
                               "made from it",
                    was->serial, was->last_updated == NULL ? "an unknown time" : was->last_updated,
                    was->last_updated_by == NULL ? "another client" : was->last_updated_by,
                    has_base ? "again" : "first, and change that");
    set_document_holder(save, was, err);
    return BELAY_NOT_HOLDER;
}

/* ---- writing ------------------------------------------------------------------- */

static bool count_change(void *context, enum belay_change change, const char *part, const char *name)
{
    size_t *counts = context;

    (void)part;
    (void)name;
    counts[change]++;
    return true;
}

/* The current version has no snapshot if its writer died, or was another program. */
static enum belay_code ensure_snapshot(const struct save *save, const struct state_version *current,
                                       struct snapshots *snapshots, struct belay_error *err)
{
    const struct belay_state *was = current->state;
    char name[SNAPSHOT_NAME_SIZE];
    enum belay_code code;

    if (was == NULL || (is_damaged(current) && !save->adopt)) {
        return BELAY_OK;
    }
    if (!save->adopt && was->snapshot != NULL &&
        (snapshots_has(snapshots, was->snapshot) || was->serial == 0)) {
        return BELAY_OK;
    }
    if (!save->adopt && was->serial == 0 && was->n_resources == 0 && was->snapshot == NULL &&
        was->token != 0) {
        return BELAY_OK; /* empty: a first deployment is in progress */
    }
    if (!save->adopt && was->snapshot != NULL && strlen(was->snapshot) < sizeof name) {
        strcpy(name, was->snapshot);
    } else {
        snapshots_next(snapshots, states_now(save->states), name);
    }
    code = snapshot_put(save->states, save->folder, name, was->text, was->len, err);
    if (code == BELAY_REFUSED) {
        code = BELAY_OK; /* another file took the name after our snapshot was pruned */
    }
    return code == BELAY_OK ? snapshots_read(save->states, save->folder, snapshots, err) : code;
}

/* ---- serials -------------------------------------------------------------------- */

/* The serial of a damaged document, if it can be read. */
static uint64_t serial_of_damaged(const struct belay_state *state)
{
    struct doc doc = { 0 };
    uint64_t serial = 0;

    if (state != NULL && doc_scan(state->text, state->len, &doc, NULL) == BELAY_OK) {
        uint32_t metadata = doc_member(&doc, 0, "metadata");

        if (metadata != 0) {
            (void)doc_number(&doc, doc_member(&doc, metadata, "serial"), &serial);
        }
    }
    doc_release(&doc);
    return serial <= SERIAL_MAX ? serial : 0;
}

/*
 * The serial of a damaged or missing version is unknown, and restarting at 1 would let
 * a copy of an early version pass as current. Every version except perhaps the last
 * has a snapshot, so the highest possible serial is that of the newest readable
 * snapshot, plus one, plus one for each newer snapshot that cannot be read. Some older
 * snapshots are read because earlier versions of belay restarted at 1.
 */
static enum belay_code find_last_serial(const struct save *save, const struct state_version *current,
                                        const struct snapshots *snapshots, uint64_t *out_serial,
                                        struct belay_error *err)
{
    uint64_t last = serial_of_damaged(current->state);

    for (size_t i = 0; i < snapshots->n && i < SERIALS_MAX; i++) {
        struct state_version old = { .state = NULL };
        enum belay_code code =
            state_fetch(save->states, save->name, snapshots->items[i].name, NULL, &old, err);
        uint64_t serial = code == BELAY_OK ? old.state->serial : 0;

        if (serial > 0 && serial <= SERIAL_MAX && serial + i + 1 > last) {
            last = serial + i + 1;
        }
        state_version_release(&old);
        if (code != BELAY_OK && code != BELAY_BAD_CONTENT && code != BELAY_NOT_FOUND) {
            return code;
        }
    }
    *out_serial = last;
    return BELAY_OK;
}

struct new_version {
    char *text; /* owned */
    size_t len;
    char snapshot[SNAPSHOT_NAME_SIZE];
};

static enum belay_code make_version(const struct save *save, const struct state_version *current,
                                    const struct snapshots *snapshots, struct new_version *out,
                                    struct belay_error *err)
{
    const struct format *there = is_sound_version(current) ? &current->format : NULL;
    struct build build = { .name = save->name,
                           .content = save->content != NULL ? save->content : there,
                           .current = there,
                           .was = there == NULL ? NULL : current->state,
                           .lock = save->write->lock,
                           .deployment = save->write->deployment,
                           .detected = save->write->detected,
                           .only_lock = save->only_lock,
                           .locked = save->only_lock || save->write->keep_locked,
                           .adopt = save->adopt,
                           .last_serial = there == NULL ? 0 : current->state->serial,
                           .now_unix_ms = states_now(save->states) };
    enum belay_code code = BELAY_OK;

    if (!save->only_lock) {
        snapshots_next(snapshots, build.now_unix_ms, out->snapshot);
        build.snapshot = out->snapshot;
    }
    if (!save->only_lock && (build.last_serial == 0 || save->adopt)) {
        code = find_last_serial(save, current, snapshots, &build.last_serial, err);
    }
    if (code == BELAY_OK && save->content != NULL) {
        code = diff_members(there, there == NULL ? 0 : there->resources, save->content,
                            save->content->resources, "resources", count_change, build.changes, err);
    }
    return code == BELAY_OK ? build_text(&build, &out->text, &out->len, err) : code;
}

static enum belay_code save_once(const struct save *save, struct belay_state **out_state,
                                 struct belay_error *err)
{
    struct state_version current = { .state = NULL };
    struct snapshots snapshots = { 0 };
    struct new_version version = { 0 };
    struct belay_blob_tag tag;
    char path[STATE_PATH_SIZE];
    enum belay_code code = read_current(save, &current, err);

    if (code == BELAY_OK) {
        code = check_lock(save, is_damaged(&current) ? NULL : current.state, err);
    }
    if (code == BELAY_OK && !save->only_lock && (!is_damaged(&current) || save->write->loaded != NULL)) {
        code = check_base(save, current.state, err);
    }
    if (code == BELAY_OK && !save->only_lock) {
        code = snapshots_read(save->states, save->folder, &snapshots, err);
    }
    if (code == BELAY_OK && !save->only_lock) {
        code = ensure_snapshot(save, &current, &snapshots, err);
    }
    if (code == BELAY_OK) {
        code = make_version(save, &current, &snapshots, &version, err);
    }
    assert(code != BELAY_OK || (version.text != NULL && version.len > 0));
    if (code == BELAY_OK) {
        struct belay_blob_put put = { .name = state_path(path, save->name, "state.json"),
                                      .data = version.text,
                                      .len = version.len,
                                      .expected = current.state == NULL ? NULL : &current.state->tag };

        code = states_put(save->states, &put, save->write->lock, &tag, err);
    }
    state_version_release(&current);
    if (code == BELAY_OK && !save->only_lock) {
        snapshot_add(save->states, save->folder, version.snapshot, "state", version.text, version.len);
    }
    if (code == BELAY_OK && out_state != NULL) {
        struct belay_blob text = { .data = version.text, .len = version.len, .tag = tag };

        version.text = NULL;
        code = state_from_text(save->name, &text, out_state, err);
    }
    snapshots_release(&snapshots);
    free(version.text);
    return code;
}

/* BELAY_REFUSED: another client wrote in between. Try again: its token may be lower than ours, or higher. */
static enum belay_code save_run(struct save *save, struct belay_state **out_state, struct belay_error *err)
{
    enum belay_code code = BELAY_REFUSED;

    assert(save->name->stack != NULL && save->name->environment != NULL);
    assert(save->states->server == NULL && save->write != NULL);
    assert(!save->only_lock || save->content == NULL);
    assert(!save->adopt || save->content != NULL);
    (void)state_path(save->folder, save->name, "");
    for (int i = 0; code == BELAY_REFUSED && i < ATTEMPTS; i++) {
        code = save_once(save, out_state, err);
    }
    return code == BELAY_REFUSED
               ? error_set(err, BELAY_UNREACHABLE, "the state of '%s' in '%s' keeps changing",
                           save->name->stack, save->name->environment)
               : code;
}

/* ---- the public API ------------------------------------------------------------------ */

static const struct belay_state_write plain_write = BELAY_STATE_WRITE_INIT;

enum belay_code belay_state_begin(struct belay_states *states, const struct belay_state_name *name,
                                  const struct belay_state_lock *lock, struct belay_state **out_state,
                                  struct belay_error *err)
{
    struct belay_state_write write = BELAY_STATE_WRITE_INIT;
    struct save save = { .states = states, .name = name, .write = &write, .only_lock = true };
    enum belay_code code = state_name_check(name, err);

    write.lock = lock;
    if (code == BELAY_OK && states->server != NULL) {
        return state_remote_begin(states, name, lock, out_state, err);
    }
    return code == BELAY_OK ? save_run(&save, out_state, err) : code;
}

enum belay_code belay_state_save(struct belay_states *states, const struct belay_state_name *name,
                                 const char *text, size_t len, const struct belay_state_write *write,
                                 struct belay_state **out_state, struct belay_error *err)
{
    struct format content = { 0 };
    struct save save = { .states = states,
                         .name = name,
                         .write = write == NULL ? &plain_write : write,
                         .content = text == NULL ? NULL : &content };
    enum belay_code code = state_name_check(name, err);

    if (code == BELAY_OK && text != NULL) {
        code = format_read(text, len, name, true, &content, err);
    }
    if (code == BELAY_OK && states->server != NULL) {
        struct states_put put = { .rest = "", .text = text, .len = len, .write = save.write };

        code = state_remote_put(states, name, &put, out_state, err);
    } else if (code == BELAY_OK) {
        code = save_run(&save, out_state, err);
    }
    format_release(&content);
    return code;
}

enum belay_code belay_state_backup(struct belay_states *states, const struct belay_state_name *name,
                                   char **out_snapshot, struct belay_error *err)
{
    struct snapshots snapshots = { 0 };
    struct belay_blob blob = { 0 };
    char path[STATE_PATH_SIZE];
    char folder[STATE_PATH_SIZE];
    char snapshot[SNAPSHOT_NAME_SIZE];
    enum belay_code code = state_name_check(name, err);

    if (code == BELAY_OK && states->server != NULL) {
        return states->server->ops->backup(states->server, name, out_snapshot, err);
    }
    if (code == BELAY_OK) {
        code = states->store->ops->get(states->store, state_path(path, name, "state.json"), &blob, err);
    }
    if (code == BELAY_NOT_FOUND) {
        code = error_set(err, BELAY_NOT_FOUND, "there is no state of '%s' in '%s'", name->stack,
                         name->environment);
    }
    /* Two backups at once may choose the same name; the second one tries again. */
    for (int i = 0; i < ATTEMPTS && (code == BELAY_OK || code == BELAY_REFUSED); i++) {
        struct belay_blob_tag tag;

        snapshots_release(&snapshots);
        code = snapshots_read(states, state_path(folder, name, ""), &snapshots, err);
        if (code != BELAY_OK) {
            break;
        }
        snapshots_next(&snapshots, states_now(states), snapshot);
        code = states->store->ops->put_if(states->store, snapshot_path(path, folder, snapshot), blob.data,
                                          blob.len, NULL, &tag, err);
        if (code == BELAY_OK) {
            break;
        }
    }
    if (code == BELAY_OK) {
        *out_snapshot = strdup(snapshot);
        code = *out_snapshot == NULL ? error_no_memory(err) : BELAY_OK;
    }
    snapshots_release(&snapshots);
    belay_blob_release(&blob);
    return code;
}

enum belay_code belay_state_restore(struct belay_states *states, const struct belay_state_name *name,
                                    const char *snapshot, const struct belay_state_write *write,
                                    struct belay_state **out_state, struct belay_error *err)
{
    struct state_version old = { .state = NULL };
    struct save save = { .states = states,
                         .name = name,
                         .write = write == NULL ? &plain_write : write,
                         .content = &old.format,
                         .any_base = true, /* the snapshot's serial says nothing about the current version */
                         .over_damage = true };
    enum belay_code code = state_fetch(states, name, snapshot, NULL, &old, err);

    if (code == BELAY_OK) {
        code = state_verify(name, &old, NULL, NULL, err);
    }
    if (code == BELAY_OK && states->server != NULL) {
        struct states_put put = { .rest = "/restore", .snapshot = snapshot, .write = save.write };

        code = state_remote_put(states, name, &put, out_state, err);
    } else if (code == BELAY_OK) {
        code = save_run(&save, out_state, err);
    }
    state_version_release(&old);
    return code;
}

/* The state has belay's checksums, and they match: there is nothing to accept. */
static bool has_right_checksums(const struct state_version *version)
{
    return version->state->has_checksums && format_verify(&version->format, NULL, NULL, NULL) == BELAY_OK;
}

enum belay_code belay_state_adopt(struct belay_states *states, const struct belay_state_name *name,
                                  const char *snapshot, const struct belay_state_write *write,
                                  struct belay_state **out_state, struct belay_error *err)
{
    struct belay_state_write own = write == NULL ? plain_write : *write;
    struct state_version there = { .state = NULL };
    struct save save = { .states = states,
                         .name = name,
                         .write = &own,
                         .content = &there.format,
                         .any_base = true,
                         .over_damage = true,
                         .adopt = true };
    enum belay_code code = state_fetch(states, name, snapshot, NULL, &there, err);

    if (code == BELAY_OK && snapshot == NULL && own.loaded == NULL) {
        own.loaded = &there.state->tag; /* accept exactly this version */
    }
    own.exact = own.loaded != NULL;
    own.detected = NULL;
    assert(code != BELAY_OK || there.state != NULL);
    if (code == BELAY_OK && snapshot == NULL && strcmp(own.loaded->text, there.state->tag.text) != 0) {
        code = error_set(err, BELAY_NOT_HOLDER, "the state of '%s' in '%s' has changed since it was read",
                         name->stack, name->environment);
    }
    if (code == BELAY_OK && snapshot == NULL && has_right_checksums(&there)) {
        if (out_state != NULL) {
            *out_state = there.state;
            there.state = NULL;
        }
    } else if (code == BELAY_OK && states->server != NULL) {
        struct states_put put = { .rest = "/adopt", .snapshot = snapshot, .write = &own };

        code = state_remote_put(states, name, &put, out_state, err);
    } else if (code == BELAY_OK) {
        code = save_run(&save, out_state, err);
    }
    state_version_release(&there);
    return code;
}
