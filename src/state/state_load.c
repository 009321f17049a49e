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

    return known == NULL || store->ops->get_if_changed == NULL
               ? store->ops->get(store, path, out_blob, err)
               : store->ops->get_if_changed(store, path, known, out_blob, err);
}

/* *out_state stays NULL if it is what `known` (may be NULL) says. */
static enum belay_code fetch(struct belay_states *states, const struct belay_state_name *name,
                             const char *rest, const struct belay_blob_tag *known,
                             struct belay_state **out_state, struct format *out_format,
                             struct belay_error *err)
{
    struct belay_blob blob = { 0 };
    char path[STATE_PATH_SIZE];
    struct belay_state *state;
    enum belay_code code = states_get(states, state_path(path, name, rest), known, &blob, err);

    if (code == BELAY_OK && blob.data == NULL) {
        return BELAY_OK;
    }
    if (code == BELAY_NOT_FOUND) {
        return error_set(err, BELAY_NOT_FOUND, "there is no state of '%s' in '%s'%s%s", name->stack,
                         name->environment, strcmp(rest, "state.json") == 0 ? "" : " called ",
                         strcmp(rest, "state.json") == 0 ? "" : rest);
    }
    if (code != BELAY_OK) {
        return code;
    }
    state = calloc(1, sizeof *state);
    if (state == NULL) {
        belay_blob_release(&blob);
        return error_no_memory(err);
    }
    state->text = blob.data;
    state->len = blob.len;
    state->tag = blob.tag;
    code = format_read(state->text, state->len, name, false, out_format, err);
    if (code == BELAY_OK) {
        code = format_describe(out_format, state, err);
        if (code != BELAY_OK) {
            format_release(out_format);
        }
    }
    if (code != BELAY_OK) {
        (void)error_wrap(err, "%.300s", path);
    }
    *out_state = state;
    return code;
}

enum belay_code state_fetch(struct belay_states *states, const struct belay_state_name *name,
                            const char *rest, struct belay_state **out_state, struct format *out_format,
                            struct belay_error *err)
{
    return fetch(states, name, rest, NULL, out_state, out_format, err);
}

enum belay_code state_damaged_error(const struct belay_state_name *name, const char *rest,
                                    struct belay_error *err)
{
    char path[STATE_PATH_SIZE];
    bool is_snapshot = strcmp(rest, "state.json") != 0;

    (void)error_wrap(err, "%.200s (%s)", state_path(path, name, rest),
                     is_snapshot ? "'belay state adopt --snapshot' accepts it as it is"
                                 : "'belay state adopt' accepts it as it is, 'belay state restore' mends it");
    return BELAY_BAD_CONTENT;
}

static enum belay_code load(struct belay_states *states, const struct belay_state_name *name,
                            const char *rest, const struct belay_blob_tag *known,
                            struct belay_state **out_state, struct belay_error *err)
{
    struct belay_state *state = NULL;
    struct format format = { 0 };
    enum belay_code code = state_name_check(name, err);

    if (code == BELAY_OK) {
        code = fetch(states, name, rest, known, &state, &format, err);
    }
    if (code == BELAY_OK && state != NULL) {
        code = format_verify(&format, NULL, NULL, err);
        if (code == BELAY_BAD_CONTENT) {
            code = state_damaged_error(name, rest, err);
        }
    }
    format_release(&format);
    if (code != BELAY_OK) {
        belay_state_free(state);
        return code;
    }
    *out_state = state;
    return BELAY_OK;
}

enum belay_code belay_state_load(struct belay_states *states, const struct belay_state_name *name,
                                 struct belay_state **out_state, struct belay_error *err)
{
    return load(states, name, "state.json", NULL, out_state, err);
}

enum belay_code belay_state_reload(struct belay_states *states, const struct belay_state_name *name,
                                   const struct belay_blob_tag *known, struct belay_state **out_state,
                                   struct belay_error *err)
{
    return load(states, name, "state.json", known, out_state, err);
}

static bool snapshot_rest(char out[SNAPSHOT_NAME_SIZE + 16], const char *snapshot)
{
    if (strlen(snapshot) >= SNAPSHOT_NAME_SIZE || strchr(snapshot, '/') != NULL) {
        return false;
    }
    (void)snprintf(out, SNAPSHOT_NAME_SIZE + 16, "history/%s", snapshot);
    return true;
}

enum belay_code belay_state_load_snapshot(struct belay_states *states, const struct belay_state_name *name,
                                          const char *snapshot, struct belay_state **out_state,
                                          struct belay_error *err)
{
    char rest[SNAPSHOT_NAME_SIZE + 16];

    return snapshot_rest(rest, snapshot)
               ? load(states, name, rest, NULL, out_state, err)
               : error_set(err, BELAY_INVALID, "'%.100s' is not the name of a snapshot", snapshot);
}

enum belay_code belay_state_load_unverified(struct belay_states *states, const struct belay_state_name *name,
                                            const char *snapshot, struct belay_state **out_state,
                                            struct belay_error *err)
{
    char rest[SNAPSHOT_NAME_SIZE + 16] = "state.json";
    struct belay_state *state = NULL;
    struct format format = { 0 };
    enum belay_code code = state_name_check(name, err);

    if (code == BELAY_OK && snapshot != NULL && !snapshot_rest(rest, snapshot)) {
        code = error_set(err, BELAY_INVALID, "'%.100s' is not the name of a snapshot", snapshot);
    }
    if (code == BELAY_OK) {
        code = state_fetch(states, name, rest, &state, &format, err);
    }
    format_release(&format);
    if (code != BELAY_OK) {
        belay_state_free(state);
        return code;
    }
    *out_state = state;
    return BELAY_OK;
}

enum belay_code belay_state_verify(struct belay_states *states, const struct belay_state_name *name,
                                   const char *snapshot, belay_finding_fn fn, void *context,
                                   struct belay_error *err)
{
    char rest[SNAPSHOT_NAME_SIZE + 16] = "state.json";
    struct belay_state *state = NULL;
    struct format format = { 0 };
    enum belay_code code = state_name_check(name, err);

    if (code == BELAY_OK && snapshot != NULL && !snapshot_rest(rest, snapshot)) {
        code = error_set(err, BELAY_INVALID, "'%.100s' is not the name of a snapshot", snapshot);
    }
    if (code == BELAY_OK) {
        code = state_fetch(states, name, rest, &state, &format, err);
    }
    if (code == BELAY_OK) {
        code = format_verify(&format, fn, context, err);
        if (code == BELAY_BAD_CONTENT) {
            code = state_damaged_error(name, rest, err);
        }
    }
    format_release(&format);
    belay_state_free(state);
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
        code = canon_sum(&format.doc, 0, sum, err); /* which finds what stands twice */
    }
    format_release(&format);
    return code;
}

/* A line is the entry without what is blank outside of strings. */
static char *one_line(const char *raw, size_t len)
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
    struct belay_state *state = NULL;
    struct format format = { 0 };
    enum belay_code code = state_name_check(name, err);

    if (code == BELAY_OK) {
        code = state_fetch(states, name, "state.json", &state, &format, err);
    }
    if (code == BELAY_OK && format.history != 0) {
        const struct doc *doc = &format.doc;
        size_t n = 0;

        for (uint32_t at = format.history + 1;
             at < doc->nodes[format.history].next && (limit == 0 || n < limit); at = doc->nodes[at].next) {
            size_t len;
            const char *raw = doc_raw(doc, at, &len);
            char *line = one_line(raw, len);
            bool go_on = line != NULL && fn(context, line);

            code = line == NULL ? error_no_memory(err) : BELAY_OK;
            free(line);
            if (!go_on) {
                break;
            }
            n++;
        }
    }
    format_release(&format);
    belay_state_free(state);
    return code;
}
