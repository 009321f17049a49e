#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "state/states.h"

int64_t states_now(const struct belay_states *states)
{
    return states->now_unix_ms != NULL ? states->now_unix_ms(states->context) : clock_unix_ms();
}

void states_warn(const struct belay_states *states, const char *format, ...)
{
    char text[900];
    va_list args;

    if (states->on_warning == NULL) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    states->on_warning(states->context, text);
}

/* ---- names ------------------------------------------------------------------- */

static enum belay_code check_part(const char *what, const char *part, struct belay_error *err)
{
    if (part == NULL || !text_is_clean(part, BELAY_STATE_PART_MAX)) {
        return error_set(err, BELAY_INVALID,
                         "the %s '%.150s' is empty, longer than %d bytes, or not clean UTF-8", what,
                         part == NULL ? "" : part, BELAY_STATE_PART_MAX);
    }
    if (strpbrk(part, "/:\\") != NULL || strcmp(part, ".") == 0 || strcmp(part, "..") == 0 ||
        text_has_prefix(part, ".belay-")) {
        return error_set(
            err, BELAY_INVALID,
            "the %s '%s' cannot name a state: it must not contain '/', ':' or '\\', nor be '.' or '..'", what,
            part);
    }
    return BELAY_OK;
}

enum belay_code state_name_check(const struct belay_state_name *name, struct belay_error *err)
{
    enum belay_code code = check_part("stack", name->stack, err);

    return code == BELAY_OK ? check_part("environment", name->environment, err) : code;
}

char *state_path(char out[STATE_PATH_SIZE], const struct belay_state_name *name, const char *rest)
{
    int n = snprintf(out, STATE_PATH_SIZE, "stacks/%s/%s/%s", name->stack, name->environment, rest);

    assert(n > 0 && n < STATE_PATH_SIZE); /* state_name_check() limits both parts */
    return out;
}

/* ---- opening ------------------------------------------------------------------- */

static void pass_progress(void *context, uint64_t done, uint64_t total)
{
    const struct belay_states *states = context;

    if (states->on_progress != NULL) {
        states->on_progress(states->context, done, total);
    }
}

enum belay_code belay_states_open_store(struct belay_blob_store *store, const char *url,
                                        const struct belay_states_options *options,
                                        struct belay_states **out_states, struct belay_error *err)
{
    static const struct belay_states_options defaults = BELAY_STATES_OPTIONS_INIT;
    struct belay_states *states = calloc(1, sizeof *states);
    char *copy = strdup(url == NULL ? store->ops->name : url);

    if (states == NULL || copy == NULL) {
        free(states);
        free(copy);
        store->ops->close(store);
        return error_no_memory(err);
    }
    options = options == NULL ? &defaults : options;
    states->store = store;
    states->url = copy;
    states->on_warning = options->on_warning;
    states->on_progress = options->on_progress;
    states->now_unix_ms = options->now_unix_ms;
    states->context = options->context;
    states->keep_snapshots = options->keep_snapshots > 0 ? options->keep_snapshots : BELAY_STATE_SNAPSHOTS;
    states->keep_for_ms = options->keep_for_ms > 0 ? options->keep_for_ms : BELAY_STATE_SNAPSHOT_AGE_MS;
    store->on_progress = pass_progress;
    store->progress_context = states;
    *out_states = states;
    return BELAY_OK;
}

void belay_states_close(struct belay_states *states)
{
    if (states == NULL) {
        return;
    }
    states->store->ops->close(states->store);
    free(states->url);
    free(states->bound_id);
    free(states->bound_url);
    free(states);
}

const char *belay_states_url(const struct belay_states *states)
{
    return states->url;
}

/* ---- listing ----------------------------------------------------------------- */

struct state_listing {
    struct belay_states *states;
    belay_state_fn fn;
    void *context;
    struct belay_error *err;
    enum belay_code code;
    bool stopped;
    char stack[BELAY_BLOB_PART_MAX + 1];
};

static bool on_environment(void *context, const char *environment, uint64_t size, int64_t modified_unix_ms)
{
    struct state_listing *listing = context;
    struct belay_state_name name = { listing->stack, environment };

    listing->stopped = state_name_check(&name, NULL) == BELAY_OK &&
                       !listing->fn(listing->context, &name, size, modified_unix_ms);
    return !listing->stopped;
}

static bool on_stack(void *context, const struct belay_blob_entry *entry)
{
    struct state_listing *listing = context;

    if (!folder_name(entry->name + strlen("stacks/"), listing->stack) ||
        check_part("stack", listing->stack, NULL) != BELAY_OK) {
        return true;
    }
    listing->code = documents_list(listing->states, entry->name, on_environment, listing, listing->err);
    return listing->code == BELAY_OK && !listing->stopped;
}

enum belay_code belay_state_list(struct belay_states *states, belay_state_fn fn, void *context,
                                 struct belay_error *err)
{
    struct state_listing listing = { .states = states, .fn = fn, .context = context, .err = err };
    enum belay_code code;

    if (states->server != NULL) {
        return states->server->ops->list(states->server, fn, context, err);
    }
    code = states->store->ops->list(states->store, "stacks/", true, on_stack, &listing, err);
    return code == BELAY_OK ? listing.code : code;
}
