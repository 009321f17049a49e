/*
 * Creates a table for a layout:
 *     describe --> absent: CreateTable --+
 *          \-----> exists, and fits -----+--> wait until ACTIVE --> time to live --> recovery
 *           \----> exists, does not fit: an error, and nothing is changed
 * Completed steps are skipped, so the command can be repeated after any failure.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/diagnostics.h"
#include "base/error.h"
#include "store/dynamodb/table/dynamodb_table_internal.h"

enum { WAIT_MS = 5 * 60 * 1000, POLL_FIRST_MS = 250, POLL_MS = 2000, NAP_MS = 50 };

struct make {
    struct ddb_store *store;                            /* owned */
    const struct belay_dynamodb_table_options *options; /* borrowed */
    struct diagnostics diagnostics;                     /* reported to on_step */
    const struct table_spec *spec;                      /* borrowed */
    struct belay_dynamodb_table *table;                 /* owned */
    int64_t began_boot_ms;
    int64_t wait_ms;
};

/* ---- requests ------------------------------------------------------------------ */

static json_t *create_request(const struct make *make)
{
    static const char *const kinds[] = { "HASH", "RANGE" };
    const struct table_spec *spec = make->spec;
    json_t *schema = json_array(), *attributes = json_array();
    json_t *request;

    for (size_t i = 0; i < spec->n_keys && i < LAYOUT_KEYS_MAX; i++) {
        (void)json_array_append_new(
            schema, json_pack("{s:s,s:s}", "AttributeName", spec->keys[i], "KeyType", kinds[i]));
        (void)json_array_append_new(
            attributes, json_pack("{s:s,s:s}", "AttributeName", spec->keys[i], "AttributeType", "S"));
    }
    request = json_pack("{s:s,s:o,s:o,s:s}", "TableName", spec->table, "KeySchema", schema,
                        "AttributeDefinitions", attributes, "BillingMode", "PAY_PER_REQUEST");
    if (request != NULL && make->options->kms_key != NULL) {
        (void)json_object_set_new(request, "SSESpecification",
                                  json_pack("{s:b,s:s,s:s}", "Enabled", 1, "SSEType", "KMS", "KMSMasterKeyId",
                                            make->options->kms_key));
    }
    return request;
}

static json_t *ttl_request(const struct make *make)
{
    return json_pack("{s:s,s:{s:b,s:s}}", "TableName", make->spec->table, "TimeToLiveSpecification",
                     "Enabled", 1, "AttributeName", make->spec->ttl);
}

static json_t *recovery_request(const struct make *make)
{
    return json_pack("{s:s,s:{s:b}}", "TableName", make->spec->table, "PointInTimeRecoverySpecification",
                     "PointInTimeRecoveryEnabled", 1);
}

/* ---- waiting ------------------------------------------------------------------- */

static enum belay_code sleep_cancellable(const struct make *make, int64_t ms, struct belay_error *err)
{
    for (; ms > 0; ms -= NAP_MS) {
        if (make->options->cancel != NULL && belay_cancel_requested(make->options->cancel)) {
            return error_set(err, BELAY_CANCELLED,
                             "ended while waiting for table '%s'; run it again to go on", make->spec->table);
        }
        platform_sleep_ms(platform_system(), ms < NAP_MS ? ms : NAP_MS);
    }
    return BELAY_OK;
}

/* A pause before the next poll; BELAY_UNREACHABLE after the deadline. */
static enum belay_code pause_before_poll(const struct make *make, const char *status, int round,
                                         struct belay_error *err)
{
    int64_t waited = clock_boot_ms() - make->began_boot_ms;
    char span[CLOCK_TEXT_SIZE];

    if (make->options->on_waiting != NULL) {
        make->options->on_waiting(make->options->context, make->spec->table, status, waited);
    }
    if (waited >= make->wait_ms) {
        return error_set(err, BELAY_UNREACHABLE,
                         "table '%s' is %s after %s: run the same command again to go on waiting",
                         make->spec->table, status, clock_format_span(span, make->wait_ms));
    }
    return sleep_cancellable(make, round == 0 ? POLL_FIRST_MS : POLL_MS, err);
}

/* A new table may not be visible at once. */
static enum belay_code wait_until_active(struct make *make, struct belay_error *err)
{
    enum belay_code code = BELAY_OK;

    for (int round = 0; code == BELAY_OK; round++) {
        const char *status = make->table->status;
        struct belay_dynamodb_table *table = NULL;

        if (status != NULL && strcmp(status, "ACTIVE") == 0) {
            return BELAY_OK;
        }
        code = pause_before_poll(make, status == NULL ? "CREATING" : status, round, err);
        if (code == BELAY_OK) {
            code = table_look(make->store, make->spec, &table, err);
        }
        if (code == BELAY_OK) {
            belay_dynamodb_table_free(make->table);
            make->table = table;
        }
    }
    return code;
}

/* ---- steps --------------------------------------------------------------------- */

/* With dry_run: shows the request instead of sending it. Takes over `request`. */
static void show_request(struct make *make, const char *operation, json_t *request)
{
    char *text = request == NULL ? NULL : json_dumps(request, JSON_COMPACT);

    diagnostics_ok(&make->diagnostics, operation, "%s", text == NULL ? "?" : text);
    free(text);
    json_decref(request);
}

static bool is_error(const struct ddb_answer *answer, const char *name)
{
    return answer->error_code != NULL && strcmp(answer->error_code, name) == 0;
}

static enum belay_code step_create(struct make *make, struct belay_error *err)
{
    struct ddb_answer answer = { 0 };
    enum belay_code code;

    if (make->options->dry_run) {
        show_request(make, "CreateTable", create_request(make));
        return BELAY_OK;
    }
    code = table_call(make->store, "CreateTable", create_request(make), &answer, err);
    /*
     * Another process created it, or the answer to this client's request was lost: the table
     * is described next.
     */
    if (is_error(&answer, "ResourceInUseException")) {
        code = BELAY_OK;
    }
    ddb_answer_release(&answer);
    if (code == BELAY_OK) {
        code = wait_until_active(make, err);
    }
    if (code == BELAY_OK) {
        diagnostics_ok(&make->diagnostics, "table", "'%s' was made, with the key %s", make->spec->table,
                       make->table->keys_expected);
    }
    return code;
}

static enum belay_code step_keys(struct make *make, struct belay_error *err)
{
    if (make->table->mismatch == NULL) {
        return BELAY_OK;
    }
    if (make->spec->layout == NULL) {
        return error_set(err, BELAY_CONFIG,
                         "table '%s' is there, but is no fence table: %s. Nothing was changed: name another "
                         "with fence_table=",
                         make->spec->table, make->table->mismatch);
    }
    return error_set(err, BELAY_CONFIG,
                     "table '%s' is there, but does not fit the layout '%s': %s. Nothing was changed: choose "
                     "the table's own layout with ?layout=, or another table",
                     make->spec->table, make->spec->layout, make->table->mismatch);
}

static enum belay_code step_ttl(struct make *make, struct belay_error *err)
{
    struct ddb_answer answer = { 0 };
    enum belay_code code;

    if (make->spec->ttl == NULL) {
        return BELAY_OK;
    }
    if (make->table->ttl_attribute != NULL) {
        if (!make->options->dry_run) {
            diagnostics_ok(&make->diagnostics, "time to live", "is on, by '%s'", make->table->ttl_attribute);
        }
        return BELAY_OK;
    }
    if (make->options->dry_run) {
        show_request(make, "UpdateTimeToLive", ttl_request(make));
        return BELAY_OK;
    }
    code = table_call(make->store, "UpdateTimeToLive", ttl_request(make), &answer, err);
    if (code == BELAY_OK) {
        diagnostics_ok(&make->diagnostics, "time to live", "switched on, by '%s'", make->spec->ttl);
    } else if (table_is_lacking(&answer)) {
        diagnostics_warn(&make->diagnostics, "time to live", NULL,
                         "this server does not have it: records of old locks stay");
        code = BELAY_OK;
    } else if (is_error(&answer, "ValidationException") && answer.error_message != NULL &&
               strstr(answer.error_message, "already enabled") != NULL) {
        diagnostics_ok(&make->diagnostics, "time to live", "is on");
        code = BELAY_OK;
    }
    ddb_answer_release(&answer);
    return code;
}

/* Right after the creation the service needs a moment before it accepts this change. */
static enum belay_code switch_recovery_on(struct make *make, struct ddb_answer *answer,
                                          struct belay_error *err)
{
    enum belay_code code =
        table_call(make->store, "UpdateContinuousBackups", recovery_request(make), answer, err);

    for (int round = 0; is_error(answer, "ContinuousBackupsUnavailableException"); round++) {
        code = pause_before_poll(make, "not ready for recovery", round, err);
        if (code != BELAY_OK) {
            break;
        }
        ddb_answer_release(answer);
        code = table_call(make->store, "UpdateContinuousBackups", recovery_request(make), answer, err);
    }
    return code;
}

static enum belay_code step_recovery(struct make *make, struct belay_error *err)
{
    struct ddb_answer answer = { 0 };
    enum belay_code code;

    if (make->table->recovery != NULL && strcmp(make->table->recovery, "ENABLED") == 0) {
        if (!make->options->dry_run) {
            diagnostics_ok(&make->diagnostics, "recovery", "to any point in time is on");
        }
        return BELAY_OK;
    }
    if (make->options->dry_run) {
        show_request(make, "UpdateContinuousBackups", recovery_request(make));
        return BELAY_OK;
    }
    code = switch_recovery_on(make, &answer, err);
    if (code == BELAY_OK) {
        diagnostics_ok(&make->diagnostics, "recovery", "to any point in time switched on");
    } else if (table_is_lacking(&answer)) {
        diagnostics_warn(&make->diagnostics, "recovery", NULL,
                         "this server does not have point-in-time recovery, so it is left out");
        code = BELAY_OK;
    }
    ddb_answer_release(&answer);
    return code;
}

static void step_encryption(struct make *make, bool is_new)
{
    if (make->options->dry_run || make->table->encryption == NULL) {
        return;
    }
    if (!is_new && make->options->kms_key != NULL) {
        diagnostics_warn(&make->diagnostics, "encryption",
                         "change it with 'aws dynamodb update-table --sse-specification' if that is meant",
                         "the table was there, and stays encrypted with %s", make->table->encryption);
    } else if (make->options->kms_key != NULL && strstr(make->table->encryption, "KMS") == NULL) {
        diagnostics_warn(&make->diagnostics, "encryption", NULL, "this server does not tell of KMS keys");
    } else {
        diagnostics_ok(&make->diagnostics, "encryption", "at rest with %s", make->table->encryption);
    }
}

/* ---- all of it ------------------------------------------------------------------ */

/* With dry_run the plan is shown even if the service cannot be reached. */
static enum belay_code look_first(struct make *make, struct belay_error *err)
{
    struct belay_error why = BELAY_ERROR_INIT;
    enum belay_code code = table_look(make->store, make->spec, &make->table, &why);

    if (code != BELAY_OK && make->options->dry_run) {
        diagnostics_warn(&make->diagnostics, "table", NULL,
                         "cannot be looked at, so this is for a new one: %s", why.text);
        make->table = table_new(make->store, make->spec);
        code = make->table == NULL ? error_no_memory(err) : BELAY_OK;
    } else if (code != BELAY_OK) {
        code = error_set(err, code, "%s", why.text);
    }
    belay_error_release(&why);
    return code;
}

static enum belay_code make_table(struct make *make, const struct table_spec *spec,
                                  struct belay_dynamodb_table **out_table, struct belay_error *err)
{
    enum belay_code code;
    bool is_new;

    make->spec = spec;
    make->table = NULL;
    code = look_first(make, err);
    is_new = code == BELAY_OK && make->table->status == NULL;
    if (code == BELAY_OK && !is_new) {
        code = step_keys(make, err);
    }
    if (code == BELAY_OK && is_new) {
        code = step_create(make, err);
    } else if (code == BELAY_OK && !make->options->dry_run) {
        code = wait_until_active(make, err);
        if (code == BELAY_OK) {
            diagnostics_ok(&make->diagnostics, "table", "'%s' is there and fits", spec->table);
        }
    }
    if (code == BELAY_OK && is_new) {
        code = step_keys(make, err); /* another process created it */
    }
    if (code == BELAY_OK) {
        code = step_ttl(make, err);
    }
    if (code == BELAY_OK) {
        code = step_recovery(make, err);
    }
    if (code == BELAY_OK) {
        step_encryption(make, is_new);
        *out_table = make->table;
        make->table = NULL; /* passed to the caller */
    }
    belay_dynamodb_table_free(make->table);
    return code;
}

/* The final state of the table. */
static enum belay_code describe_final(struct make *make, const struct table_spec *spec,
                                      struct belay_dynamodb_table **table, struct belay_error *err)
{
    struct belay_dynamodb_table *now = NULL;
    enum belay_code code = make->options->dry_run ? BELAY_OK : table_look(make->store, spec, &now, err);

    if (now != NULL) {
        now->fence = (*table)->fence;
        (*table)->fence = NULL;
        belay_dynamodb_table_free(*table);
        *table = now;
    }
    return code;
}

enum belay_code dynamodb_table_create(const char *table_and_params, const struct dynamodb_options *store,
                                      const struct belay_dynamodb_table_options *options,
                                      struct belay_dynamodb_table **out_table, struct belay_error *err)
{
    struct make make = { .options = options,
                         .diagnostics = { .fn = options->on_step, .context = options->context },
                         .began_boot_ms = clock_boot_ms(),
                         .wait_ms = options->wait_ms == 0 ? WAIT_MS : options->wait_ms };
    struct table_spec spec, fence;
    struct belay_dynamodb_table *table = NULL;
    enum belay_code code = table_store_open(table_and_params, store, &make.store, err);

    if (code == BELAY_OK) {
        table_spec_of_layout(make.store, &spec);
        code = make_table(&make, &spec, &table, err);
    }
    if (code == BELAY_OK && table_spec_of_fence(make.store, &fence)) {
        code = make_table(&make, &fence, &table->fence, err);
    }
    if (code == BELAY_OK) {
        code = describe_final(&make, &spec, &table, err);
    }
    if (code == BELAY_OK) {
        table->policy = table_policy(table);
        *out_table = table;
        table = NULL; /* passed to the caller */
    }
    belay_dynamodb_table_free(table);
    table_store_close(make.store);
    return code;
}
