/* Writing through a server: the server fences and writes; the new version is read back. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "state/states.h"

enum { TRIES = 3 };

void states_set_server(struct belay_states *states, struct states_server *server)
{
    states->server = server;
}

enum belay_code state_remote_begin(struct belay_states *states, const struct belay_state_name *name,
                                   const struct belay_state_lock *lock, struct belay_state **out_state,
                                   struct belay_error *err)
{
    struct belay_blob blob = { 0 };
    enum belay_code code = BELAY_UNKNOWN;

    assert(states->server != NULL);
    if (lock->token == 0 || lock->lock_id == NULL) {
        return error_set(err, BELAY_CONFIG,
                         "the server's lock store gives no fencing tokens, so it could not refuse a late "
                         "write");
    }
    for (int i = 0; i < TRIES && code == BELAY_UNKNOWN; i++) {
        code = states->server->ops->begin(states->server, name, lock->lock_id, &blob, err);
    }
    return code == BELAY_OK ? state_from_text(name, &blob, out_state, err) : code;
}

/* ---- was it saved? -------------------------------------------------------------- */

static bool is_text(const struct doc *doc, uint32_t node, const char *text)
{
    return text != NULL && doc_is(doc, node, text);
}

/* Whether the newest deployment in the document is the one of this write. */
static bool is_newest_deployment(const struct format *format, const struct states_put *put)
{
    const struct belay_deployment *said = put->write->deployment;
    const struct belay_deployment *detected = put->write->detected;
    const struct doc *doc = &format->doc;
    struct format sent = { 0 };
    uint32_t id = format_member(format, format_newest(format), "deployment_id");
    char *own = NULL;
    bool is_it;

    if (put->text != NULL && format_read(put->text, put->len, NULL, true, &sent, NULL) == BELAY_OK) {
        own = format_string(&sent, sent.metadata, "deployment_id");
    }
    is_it = is_text(doc, id, said == NULL ? NULL : said->deployment_id) || is_text(doc, id, own) ||
            is_text(doc, id, detected == NULL ? NULL : detected->deployment_id);
    free(own);
    format_release(&sent);
    return is_it;
}

/*
 * After a lost answer: no other client writes while this one holds the lock. If the
 * state has our token and its newest deployment is the one of this write, the write
 * was saved.
 */
static bool was_saved(struct belay_states *states, const struct belay_state_name *name,
                      const struct states_put *put, struct states_saved *out)
{
    const struct belay_state_lock *lock = put->write->lock;
    struct state_version current = { .state = NULL };
    bool was = lock != NULL && state_fetch(states, name, NULL, NULL, &current, NULL) == BELAY_OK &&
               current.state->token == lock->token && is_newest_deployment(&current.format, put);

    if (was) {
        out->tag = current.state->tag;
        out->snapshot = current.state->snapshot == NULL ? NULL : strdup(current.state->snapshot);
    }
    state_version_release(&current);
    return was;
}

/* Retry until it is known whether the write was saved. */
static enum belay_code put_until_known(struct belay_states *states, const struct belay_state_name *name,
                                       const struct states_put *put, struct states_saved *out,
                                       struct belay_error *err)
{
    struct belay_error unheard = BELAY_ERROR_INIT;
    bool was_unknown = false;
    enum belay_code code = BELAY_UNKNOWN;

    err = err == NULL ? &unheard : err;
    for (int i = 0; i < TRIES && (code == BELAY_UNKNOWN || code == BELAY_UNREACHABLE); i++) {
        code = states->server->ops->put(states->server, name, put, out, err);
        was_unknown = was_unknown || code == BELAY_UNKNOWN;
        if (code != BELAY_OK && was_unknown && was_saved(states, name, put, out)) {
            code = BELAY_OK;
        }
    }
    if ((code == BELAY_UNREACHABLE || code == BELAY_NOT_PERMITTED || code == BELAY_NO_MEMORY) &&
        was_unknown) {
        code = err->code = BELAY_UNKNOWN; /* a later failure does not undo a write that may have happened */
    }
    belay_error_release(&unheard);
    return code;
}

/* The version that was saved: its snapshot has the same bytes, whatever was written since. */
static enum belay_code read_back(struct belay_states *states, const struct belay_state_name *name,
                                 const struct states_saved *saved, struct belay_state **out_state,
                                 struct belay_error *err)
{
    enum belay_code code = saved->snapshot == NULL
                               ? BELAY_NOT_FOUND
                               : belay_state_load_unverified(states, name, saved->snapshot, out_state, err);

    if (code == BELAY_OK) {
        (*out_state)->tag = saved->tag;
    }
    return code == BELAY_NOT_FOUND ? belay_state_load(states, name, out_state, err) : code;
}

enum belay_code state_remote_put(struct belay_states *states, const struct belay_state_name *name,
                                 const struct states_put *put, struct belay_state **out_state,
                                 struct belay_error *err)
{
    struct states_saved saved = { 0 };
    enum belay_code code = put_until_known(states, name, put, &saved, err);

    if (code == BELAY_OK && out_state != NULL &&
        read_back(states, name, &saved, out_state, err) != BELAY_OK) {
        code =
            error_set(err, BELAY_UNKNOWN, "the state of '%s' in '%s' was saved, but could not be read back",
                      name->stack, name->environment);
    }
    free(saved.snapshot);
    return code;
}
