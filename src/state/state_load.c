/* Reading states. A caller gets only what verified, except from belay_state_load_unverified(). */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "state/states.h"

void belay_state_free(struct belay_state *state)
{
    if (state == NULL) {
        return;
    }
    free(state->text);
    free(state->lock_store);
    free(state->lock_id);
    free(state->locked_by);
    free(state->last_updated);
    free(state->last_updated_by);
    free(state->deployment_id);
    free(state->snapshot);
    free(state);
}

enum belay_code states_get(struct belay_states *states, const char *path, const struct belay_blob_tag *known,
                           struct belay_blob *out_blob, struct belay_error *err)
{
    struct belay_blob_store *store = states->store;
    bool may_be_same = known != NULL && store->ops->get_if_changed != NULL;

    assert(path != NULL);
    return may_be_same ? store->ops->get_if_changed(store, path, known, out_blob, err)
                       : store->ops->get(store, path, out_blob, err);
}

/* For a store that has the locks too; false: it has none, or the lock cannot be named. */
static bool names_lock(const struct belay_states *states, const struct belay_state_lock *lock,
                       struct belay_blob_lock *out)
{
    if (lock == NULL || lock->key == NULL || lock->lock_id == NULL ||
        states->store->ops->put_if_held == NULL) {
        return false;
    }
    *out = (struct belay_blob_lock){ lock->store, lock->key, lock->lock_id, lock->token };
    return true;
}

enum belay_code states_put(struct belay_states *states, const struct belay_blob_put *put,
                           const struct belay_state_lock *lock, struct belay_blob_tag *out_tag,
                           struct belay_error *err)
{
    struct belay_blob_store *store = states->store;
    struct belay_blob_put held = *put;
    struct belay_blob_lock own;

    assert(put->name != NULL && put->data != NULL);
    if (!names_lock(states, lock, &own)) {
        return store->ops->put_if(store, put->name, put->data, put->len, put->expected, out_tag, err);
    }
    held.lock = &own;
    return store->ops->put_if_held(store, &held, out_tag, err);
}

enum belay_code states_remove(struct belay_states *states, const char *path,
                              const struct belay_state_lock *lock, struct belay_error *err)
{
    struct belay_blob_store *store = states->store;
    struct belay_blob_lock own;

    return names_lock(states, lock, &own) ? store->ops->remove_if_held(store, path, &own, err)
                                          : store->ops->remove(store, path, err);
}

void state_version_release(struct state_version *version)
{
    format_release(&version->format);
    belay_state_free(version->state);
    version->state = NULL;
}

/* The text as a state, which takes it over. BELAY_BAD_CONTENT still makes the state; the format is empty then. */
static enum belay_code parse_state(const struct belay_state_name *name, struct belay_blob *text,
                                   struct state_version *out, struct belay_error *err)
{
    struct belay_state *state = calloc(1, sizeof *state);
    enum belay_code code;

    if (state == NULL) {
        belay_blob_release(text);
        return error_no_memory(err);
    }
    state->text = text->data;
    state->len = text->len;
    state->tag = text->tag;
    *text = (struct belay_blob){ 0 };
    code = format_read(state->text, state->len, name, false, &out->format, err);
    if (code == BELAY_OK) {
        code = format_describe(&out->format, state, err);
        if (code != BELAY_OK) {
            format_release(&out->format);
        }
    }
    out->state = state;
    return code;
}

/* Passes the state to the caller if the code is BELAY_OK. Returns the code. */
static enum belay_code give_state(enum belay_code code, struct state_version *version,
                                  struct belay_state **out_state)
{
    if (code == BELAY_OK) {
        *out_state = version->state;
        version->state = NULL;
    }
    state_version_release(version);
    return code;
}

enum belay_code state_from_text(const struct belay_state_name *name, struct belay_blob *text,
                                struct belay_state **out_state, struct belay_error *err)
{
    struct state_version version = { .state = NULL };

    return give_state(parse_state(name, text, &version, err), &version, out_state);
}

static bool is_current(const struct state_version *version)
{
    return strcmp(version->rest, "state.json") == 0;
}

enum belay_code state_fetch(struct belay_states *states, const struct belay_state_name *name,
                            const char *snapshot, const struct belay_blob_tag *known,
                            struct state_version *out_version, struct belay_error *err)
{
    struct belay_blob blob = { 0 };
    char path[STATE_PATH_SIZE];
    enum belay_code code = state_name_check(name, err);

    if (code == BELAY_OK && snapshot != NULL &&
        (strlen(snapshot) >= SNAPSHOT_NAME_SIZE || strchr(snapshot, '/') != NULL)) {
        code = error_set(err, BELAY_INVALID, "'%.100s' is not the name of a snapshot", snapshot);
    }
    if (code != BELAY_OK) {
        return code;
    }
    (void)snprintf(out_version->rest, sizeof out_version->rest, "%s%s", snapshot == NULL ? "" : "history/",
                   snapshot == NULL ? "state.json" : snapshot);
    code = states_get(states, state_path(path, name, out_version->rest), known, &blob, err);
    if (code == BELAY_NOT_FOUND) {
        return error_set(err, BELAY_NOT_FOUND, "there is no state of '%s' in '%s'%s%s", name->stack,
                         name->environment, is_current(out_version) ? "" : " called ",
                         is_current(out_version) ? "" : out_version->rest);
    }
    if (code != BELAY_OK || blob.data == NULL) {
        return code;
    }
    code = parse_state(name, &blob, out_version, err);
    if (code != BELAY_OK) {
        (void)error_wrap(err, "%.300s%s", path,
                         code == BELAY_BAD_CONTENT && is_current(out_version)
                             ? " ('belay state restore' puts a snapshot in its place)"
                             : "");
    }
    return code;
}

enum belay_code state_verify(const struct belay_state_name *name, const struct state_version *version,
                             belay_finding_fn fn, void *context, struct belay_error *err)
{
    char path[STATE_PATH_SIZE];
    enum belay_code code = format_verify(&version->format, fn, context, err);

    if (code == BELAY_BAD_CONTENT) {
        (void)error_wrap(err, "%.200s (%s)", state_path(path, name, version->rest),
                         is_current(version)
                             ? "'belay state adopt' accepts it as it is, 'belay state restore' repairs it"
                             : "'belay state adopt --snapshot' accepts it as it is");
    }
    return code;
}

/* ---- the public API -------------------------------------------------------------- */

static enum belay_code load_verified(struct belay_states *states, const struct belay_state_name *name,
                                     const char *snapshot, const struct belay_blob_tag *known,
                                     struct belay_state **out_state, struct belay_error *err)
{
    struct state_version version = { .state = NULL };
    enum belay_code code = state_fetch(states, name, snapshot, known, &version, err);

    if (code == BELAY_OK && version.state != NULL) {
        code = state_verify(name, &version, NULL, NULL, err);
    }
    return give_state(code, &version, out_state);
}

enum belay_code belay_state_load(struct belay_states *states, const struct belay_state_name *name,
                                 struct belay_state **out_state, struct belay_error *err)
{
    return load_verified(states, name, NULL, NULL, out_state, err);
}

enum belay_code belay_state_reload(struct belay_states *states, const struct belay_state_name *name,
                                   const struct belay_blob_tag *known, struct belay_state **out_state,
                                   struct belay_error *err)
{
    return load_verified(states, name, NULL, known, out_state, err);
}

enum belay_code belay_state_load_snapshot(struct belay_states *states, const struct belay_state_name *name,
                                          const char *snapshot, struct belay_state **out_state,
                                          struct belay_error *err)
{
    return load_verified(states, name, snapshot, NULL, out_state, err);
}

enum belay_code belay_state_load_unverified(struct belay_states *states, const struct belay_state_name *name,
                                            const char *snapshot, struct belay_state **out_state,
                                            struct belay_error *err)
{
    struct state_version version = { .state = NULL };

    return give_state(state_fetch(states, name, snapshot, NULL, &version, err), &version, out_state);
}

enum belay_code belay_state_verify(struct belay_states *states, const struct belay_state_name *name,
                                   const char *snapshot, belay_finding_fn fn, void *context,
                                   struct belay_error *err)
{
    struct state_version version = { .state = NULL };
    enum belay_code code = state_fetch(states, name, snapshot, NULL, &version, err);

    if (code == BELAY_OK) {
        code = state_verify(name, &version, fn, context, err);
    }
    state_version_release(&version);
    return code;
}

enum belay_code belay_state_check(const struct belay_state_name *name, const char *text, size_t len,
                                  struct belay_error *err)
{
    struct format format = { 0 };
    char sum[CANON_SUM_SIZE];
    enum belay_code code = state_name_check(name, err);

    if (code == BELAY_OK) {
        code = format_read(text, len, name, true, &format, err);
    }
    if (code == BELAY_OK) {
        code = canon_sum(&format.doc, 0, sum, err); /* finds duplicate names */
    }
    format_release(&format);
    return code;
}

/* The entry without blanks outside of strings. */
static char *compact_json(const char *raw, size_t len)
{
    char *line = malloc(len + 1);
    size_t n = 0;
    bool in_string = false;

    for (size_t i = 0; line != NULL && i < len; i++) {
        if (in_string && raw[i] == '\\') {
            line[n++] = raw[i++];
        } else if (raw[i] == '"') {
            in_string = !in_string;
        } else if (!in_string && strchr(" \t\r\n", raw[i]) != NULL) {
            continue;
        }
        line[n++] = raw[i];
    }
    if (line != NULL) {
        line[n] = '\0';
    }
    return line;
}

enum belay_code belay_state_history(struct belay_states *states, const struct belay_state_name *name,
                                    size_t limit, belay_text_fn fn, void *context, struct belay_error *err)
{
    struct state_version version = { .state = NULL };
    enum belay_code code = state_fetch(states, name, NULL, NULL, &version, err);

    if (code == BELAY_OK && version.format.history != 0) {
        const struct doc *doc = &version.format.doc;
        size_t n = 0;

        doc_each_element(doc, version.format.history, at)
        {
            size_t len;
            const char *raw = doc_raw(doc, at, &len);
            char *line = compact_json(raw, len);
            bool go_on = line != NULL && fn(context, line);

            code = line == NULL ? error_no_memory(err) : BELAY_OK;
            free(line);
            if (!go_on || ++n == limit) {
                break;
            }
        }
    }
    state_version_release(&version);
    return code;
}
