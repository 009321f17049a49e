/* What the action ends: under which names that is known, and therefore locked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "network/loader.h"
#include "shared_db/stop_start.h"

enum { EC2_TIMEOUT_MS = 20000 };

/* ---- the instance ---- */

/* "10.0.1.5" of "10.0.1.5:5432", "2001:db8::1" of "[2001:db8::1]:5432". */
static void host_of(const char *id, char *out, size_t size)
{
    const char *colon = strrchr(id, ':');
    int n = colon == NULL ? (int)strlen(id) : (int)(colon - id);

    if (id[0] == '[' && n >= 2) {
        (void)snprintf(out, size, "%.*s", n - 2, id + 1);
    } else {
        (void)snprintf(out, size, "%.*s", n, id);
    }
}

static enum belay_code take_instance(struct guard_run *run, struct belay_error *err)
{
    struct belay_db_result *result = run->result;
    char *id = strdup(run->ec2.instance);
    char *host = strdup(run->target->id);

    if (id == NULL || host == NULL) {
        free(id);
        free(host);
        return error_no_memory(err);
    }
    free(result->database);
    free(result->host);
    result->database = id;
    result->host = host;
    (void)snprintf(run->found_id, sizeof run->found_id, "%s", run->ec2.instance);
    run->found = *run->target;
    run->found.host = run->target->id;
    run->found.id = run->found_id;
    run->target = &run->found;
    return BELAY_OK;
}

static enum belay_code ask_ec2(struct guard_run *run, bool is_known, struct belay_error *err)
{
    const struct net_module *net = NULL;
    char host[BELAY_DATABASE_MAX + 1];
    enum belay_code code = loader_net(&net, err);

    host_of(run->target->id, host, sizeof host);
    if (code == BELAY_OK) {
        code = net->ec2_find(is_known ? run->target->id : NULL, is_known ? NULL : host, EC2_TIMEOUT_MS,
                             &run->ec2, err);
    }
    if (code == BELAY_OK && !guard_is_instance(run->ec2.instance)) {
        code = error_set(err, BELAY_BAD_CONTENT, "EC2 answered with '%.60s', which is no instance id",
                         run->ec2.instance);
    }
    return code == BELAY_OK && !is_known ? take_instance(run, err) : code;
}

enum belay_code run_find_instance(struct guard_run *run)
{
    struct belay_error err = BELAY_ERROR_INIT;
    bool is_known = guard_is_instance(run->target->id);
    enum belay_code code = BELAY_OK;

    if (!guard_row_is_right(run->target)) {
        code = BELAY_BAD_CONTENT;
        run_decide(run, BELAY_DB_ERROR, code,
                   "the registry has a database that cannot be parsed, '%.200s': write an EC2 instance id or "
                   "HOST:PORT",
                   run->target->id);
    } else if (run->action->deed.kind == ACTION_EC2 && !(is_known && run->is_start)) {
        code = ask_ec2(run, is_known, &err);
        if (code != BELAY_OK) {
            run_decide(run, BELAY_DB_ERROR, code, "it is not known what would be %s: %s",
                       run->is_start ? "started" : "stopped", err.text);
        }
    }
    belay_error_release(&err);
    return code;
}

/* ---- the names ---- */

static bool collect(const struct guard_run *run, const struct guard_registry *registry,
                    struct guard_names *out_names)
{
    return names_collect(registry, run->target, !run->is_start && run->action->ends_host, run->ec2.names,
                         run->ec2.n_names, out_names);
}

/* A name that the caller gave may lead to others: each must be the caller's to touch. */
enum belay_code run_check_permitted(struct guard_run *run)
{
    const struct belay_db_options *options = run->options;
    enum belay_code code = BELAY_OK;

    for (size_t i = 0; options->may_lock != NULL && code == BELAY_OK && i < run->names.n_ids; i++) {
        char *key = guard_lock_key(run->names.ids[i]);

        if (key == NULL) {
            code = BELAY_NO_MEMORY;
            run_decide(run, BELAY_DB_ERROR, code, "out of memory");
        } else if (!options->may_lock(options->context, key)) {
            code = BELAY_NOT_PERMITTED;
            run->is_forbidden = true;
            run_decide(run, BELAY_DB_ERROR, code, "the lock '%.300s' is not for the caller to take", key);
        }
        free(key);
    }
    return code;
}

enum belay_code run_find_names(struct guard_run *run, const struct guard_registry *registry)
{
    struct guard_names names = { 0 };

    if (!collect(run, registry, &names)) {
        run_decide(run, BELAY_DB_ERROR, BELAY_NO_MEMORY, "out of memory");
        return BELAY_NO_MEMORY;
    }
    names_release(&run->names);
    run->names = names;
    if (names.n_ids > NAMES_MAX) {
        run_decide(run, BELAY_DB_ERROR, BELAY_BAD_CONTENT,
                   "it has %zu names in the registry, and at most %d can be locked", names.n_ids, NAMES_MAX);
        return BELAY_BAD_CONTENT;
    }
    return run_check_permitted(run);
}

enum belay_code run_check_names(struct guard_run *run, const struct guard_registry *registry)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct guard_names names = { 0 };
    enum belay_code code =
        collect(run, registry, &names) ? BELAY_OK : error_set(&err, BELAY_NO_MEMORY, "out of memory");

    if (code == BELAY_OK) {
        code = sharing_doubt(registry, &names, run->options->app, &err);
    }
    if (code == BELAY_OK && run->n_held > 0 && !names_contain(&run->names, &names)) {
        run->has_new_names = true;
        code = error_set(&err, BELAY_REFUSED, "the registry has changed: it has got another name");
    }
    if (code != BELAY_OK) {
        run_decide(run, BELAY_DB_ERROR, code, "it is not known who uses it: %s", err.text);
    }
    names_release(&names);
    belay_error_release(&err);
    return code;
}
