/* The names of the databases that an action stops; each name is locked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "network/loader.h"
#include "shared_db/stop_start.h"

enum { EC2_TIMEOUT_MS = 20000 };

/* ---- the instance ---- */

/* "10.0.1.5:5432" -> "10.0.1.5", "[2001:db8::1]:5432" -> "2001:db8::1". */
static void host_of_identifier(const char *id, char *out, size_t size)
{
    const char *colon = strrchr(id, ':');
    int n = colon == NULL ? (int)strlen(id) : (int)(colon - id);

    if (id[0] == '[' && n >= 2) {
        (void)snprintf(out, size, "%.*s", n - 2, id + 1);
    } else {
        (void)snprintf(out, size, "%.*s", n, id);
    }
}

static enum belay_code take_instance(struct db_op *op, struct belay_error *err)
{
    struct belay_db_result *result = op->result;
    char *id = strdup(op->ec2.instance);
    char *host = strdup(op->target->id);

    if (id == NULL || host == NULL) {
        free(id);
        free(host);
        return error_no_memory(err);
    }
    free(result->database);
    free(result->host);
    result->database = id;
    result->host = host;
    (void)snprintf(op->found_id, sizeof op->found_id, "%s", op->ec2.instance);
    op->found = *op->target;
    op->found.host = op->target->id;
    op->found.id = op->found_id;
    op->target = &op->found;
    return BELAY_OK;
}

static enum belay_code ask_ec2(struct db_op *op, bool is_known, struct belay_error *err)
{
    const struct net_module *net = NULL;
    char host[BELAY_DATABASE_MAX + 1];
    enum belay_code code = loader_net(&net, err);

    host_of_identifier(op->target->id, host, sizeof host);
    if (code == BELAY_OK) {
        code = net->ec2_find(is_known ? op->target->id : NULL, is_known ? NULL : host, EC2_TIMEOUT_MS,
                             &op->ec2, err);
    }
    if (code == BELAY_OK && !db_is_instance(op->ec2.instance)) {
        code = error_set(err, BELAY_BAD_CONTENT, "EC2 answered with '%.60s', which is not an instance id",
                         op->ec2.instance);
    }
    return code == BELAY_OK && !is_known ? take_instance(op, err) : code;
}

enum belay_code db_op_find_instance(struct db_op *op)
{
    struct belay_error err = BELAY_ERROR_INIT;
    bool is_known = db_is_instance(op->target->id);
    bool needs_ec2 = op->action->step.kind == ACTION_EC2 && !(is_known && op->is_start);

    if (!db_row_is_valid(op->target)) {
        return db_op_decide(op, BELAY_DB_ERROR, BELAY_BAD_CONTENT,
                            "the registry has the invalid database '%.200s': write an EC2 instance id or "
                            "HOST:PORT",
                            op->target->id);
    }
    return db_op_end_step(op, needs_ec2 ? ask_ec2(op, is_known, &err) : BELAY_OK, &err,
                          op->is_start ? "cannot tell what would be started"
                                       : "cannot tell what would be stopped");
}

/* ---- the names ---- */

static bool collect_for_op(const struct db_op *op, const struct app_registry *registry,
                           struct db_names *out_names)
{
    return db_names_collect(registry, op->target, !op->is_start && op->action->ends_host, op->ec2.names,
                            op->ec2.n_names, out_names);
}

/* The given name may lead to others: the caller needs permission for each. */
enum belay_code db_op_check_permitted(struct db_op *op)
{
    const struct belay_db_options *options = op->options;
    enum belay_code code = BELAY_OK;

    for (size_t i = 0; options->may_lock != NULL && code == BELAY_OK && i < op->names.n_ids; i++) {
        char *key = db_lock_key(op->names.ids[i]);

        if (key == NULL) {
            code = db_op_decide(op, BELAY_DB_ERROR, BELAY_NO_MEMORY, "out of memory");
        } else if (!options->may_lock(options->context, key)) {
            op->is_forbidden = true;
            code = db_op_decide(op, BELAY_DB_ERROR, BELAY_NOT_PERMITTED,
                                "the caller may not take the lock '%.300s'", key);
        }
        free(key);
    }
    return code;
}

enum belay_code db_op_find_names(struct db_op *op, const struct app_registry *registry)
{
    struct db_names names = { 0 };

    if (!collect_for_op(op, registry, &names)) {
        return db_op_decide(op, BELAY_DB_ERROR, BELAY_NO_MEMORY, "out of memory");
    }
    db_names_release(&op->names);
    op->names = names;
    if (names.n_ids > NAMES_MAX) {
        return db_op_decide(op, BELAY_DB_ERROR, BELAY_BAD_CONTENT,
                            "it has %zu names in the registry, and at most %d can be locked", names.n_ids,
                            NAMES_MAX);
    }
    return db_op_check_permitted(op);
}

enum belay_code db_op_check_names(struct db_op *op, const struct app_registry *registry)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct db_names names = { 0 };
    enum belay_code code =
        collect_for_op(op, registry, &names) ? BELAY_OK : error_set(&err, BELAY_NO_MEMORY, "out of memory");

    if (code == BELAY_OK) {
        code = sharing_check(registry, &names, op->options->app, &err);
    }
    if (code == BELAY_OK && op->n_held > 0 && !db_names_contain(&op->names, &names)) {
        op->has_new_names = true;
        code = error_set(&err, BELAY_REFUSED, "the registry has changed: the database has another name now");
    }
    db_names_release(&names);
    return db_op_end_step(op, code, &err, "cannot tell which applications use it");
}
