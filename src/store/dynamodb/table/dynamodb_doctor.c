/*
 * `belay doctor` on a DynamoDB table.
 * The probe writes one item under a key of its own and deletes it. It first tries to delete an
 * item that does not exist; if that is denied, it writes with a condition that cannot hold. So
 * no item remains, whatever is permitted; after a crash in between, time to live removes the
 * item within an hour.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/clock.h"
#include "base/diagnostics.h"
#include "base/error.h"
#include "base/text.h"
#include "http_client/uri.h"
#include "store/dynamodb/table/dynamodb_table_internal.h"

enum { PROBE_TTL_S = 3600 };

struct doctor {
    struct diagnostics *diagnostics;
    struct ddb_store *store; /* owned */
    struct belay_error err;  /* of the last request */
    size_t n_denied;
    size_t n_lacking;
};

/* ---- how to get there ----------------------------------------------------------- */

static void say_layout(struct doctor *doctor)
{
    const struct layout *layout = doctor->store->layout;

    if (layout->read_only) {
        diagnostics_warn(doctor->diagnostics, "layout", NULL,
                         "'%s': its locks can be shown and forced, but not taken with belay", layout->name);
    } else {
        diagnostics_ok(doctor->diagnostics, "layout", "'%s'", layout->name);
    }
}

static bool check_region(struct doctor *doctor)
{
    const struct aws_client *aws = doctor->store->aws;

    if (aws_region(aws) == NULL) {
        diagnostics_fail(doctor->diagnostics, BELAY_CONFIG, "region",
                         "set AWS_REGION, or 'region' in the profile, or add ?region= to the store's URL",
                         "no AWS region is set");
        return false;
    }
    diagnostics_ok(doctor->diagnostics, "region", "%s (%s)", aws_region(aws),
                   doctor->store->params.region != NULL ? "the store's URL" : aws_region_origin(aws));
    return true;
}

static void check_endpoint(struct doctor *doctor)
{
    const struct aws_client *aws = doctor->store->aws;
    const char *url = aws_endpoint(aws, AWS_DYNAMODB);
    struct uri uri;

    if (url == NULL || !uri_parse(url, &uri)) {
        return; /* with a region there is one, and a bad one was refused before */
    }
    if (!uri.tls && !address_is_this_machine(uri.host)) {
        diagnostics_warn(doctor->diagnostics, "endpoint", "use https://",
                         "%s is not encrypted: others on the network can read and change locks", url);
    } else {
        diagnostics_ok(doctor->diagnostics, "endpoint", "%s (%s)", url,
                       aws_endpoint_is_set(aws, AWS_DYNAMODB) ? "set by hand" : "AWS's own");
    }
    uri_release(&uri);
}

static bool check_credentials(struct doctor *doctor)
{
    char *origin = NULL;
    enum belay_code code = aws_credentials_origin(doctor->store->aws, &origin, &doctor->err);

    if (code == BELAY_OK) {
        diagnostics_ok(doctor->diagnostics, "credentials", "from %s", origin);
    } else {
        diagnostics_error(doctor->diagnostics, "credentials", NULL, &doctor->err);
    }
    free(origin);
    return code == BELAY_OK;
}

/* ---- the table -------------------------------------------------------------------- */

static void say_no_table(struct doctor *doctor, const char *name, const char *table)
{
    const char *region = aws_region(doctor->store->aws);

    diagnostics_fail(doctor->diagnostics, BELAY_CONFIG, name,
                     "make it with 'belay table create', or check the name, the region and the account",
                     "there is no table '%s' in %s", table, region == NULL ? "?" : region);
}

/* A request without an answer, or with rejected credentials, says nothing about the table. */
static void say_request_failed(struct doctor *doctor, const char *name, enum belay_code code)
{
    if (code == BELAY_NOT_PERMITTED) {
        diagnostics_error(doctor->diagnostics, "credentials", NULL, &doctor->err);
    } else if (code == BELAY_UNREACHABLE || code == BELAY_UNKNOWN) {
        diagnostics_error(doctor->diagnostics, "service",
                          "check the endpoint, the network, and proxies on the way", &doctor->err);
    } else {
        diagnostics_error(doctor->diagnostics, name, NULL, &doctor->err);
    }
}

static void say_denied(struct doctor *doctor, const char *action, bool vital, const char *what_for)
{
    static const char name[] = "permission";
    char advice[160];

    (void)snprintf(advice, sizeof advice,
                   "allow dynamodb:%s for the table; 'belay table describe' prints the whole policy", action);
    if (vital) {
        diagnostics_fail(doctor->diagnostics, BELAY_NOT_PERMITTED, name, advice,
                         "dynamodb:%s is not allowed; it is needed %s", action, what_for);
    } else {
        diagnostics_warn(doctor->diagnostics, name, advice, "dynamodb:%s is not allowed; it is needed %s",
                         action, what_for);
    }
    doctor->n_denied++;
}

static bool check_status(struct doctor *doctor, const char *name, const struct belay_dynamodb_table *table)
{
    if (table->mismatch != NULL) {
        diagnostics_fail(
            doctor->diagnostics, BELAY_CONFIG, name,
            "choose the table's own layout with ?layout=, or make a table with 'belay table create'",
            "'%s' does not fit: %s", table->name, table->mismatch);
        return false;
    }
    if (strcmp(table->status, "ACTIVE") != 0 && strcmp(table->status, "UPDATING") != 0) {
        diagnostics_fail(doctor->diagnostics, BELAY_UNREACHABLE, name, "wait until it is active",
                         "'%s' is %s", table->name, table->status);
        return false;
    }
    diagnostics_ok(doctor->diagnostics, name, "'%s' is %s, with the key %s, billed %s", table->name,
                   table->status, table->keys,
                   table->billing != NULL && strcmp(table->billing, "PAY_PER_REQUEST") == 0 ? "by request"
                                                                                            : "by capacity");
    return true;
}

/* False: the checks of this table end here. */
static bool check_table(struct doctor *doctor, const char *name, struct belay_dynamodb_table *table)
{
    struct ddb_answer answer = { 0 };
    enum belay_code code = table_look_keys(doctor->store, table, &answer, &doctor->err);
    bool good = false;

    if (code == BELAY_OK) {
        good = check_status(doctor, name, table);
    } else if (code == BELAY_NOT_FOUND) {
        say_no_table(doctor, name, table->name);
    } else if (table_is_denied(&answer)) {
        say_denied(doctor, "DescribeTable", false, "to check the table's keys, and by 'belay table'");
        good = true;
    } else {
        say_request_failed(doctor, name, code);
    }
    ddb_answer_release(&answer);
    return good;
}

static void check_time_to_live(struct doctor *doctor, struct belay_dynamodb_table *table)
{
    static const char advice[] = "switch it on with 'belay table create', which leaves the rest as it is";
    struct ddb_answer answer = { 0 };
    enum belay_code code = table_look_ttl(doctor->store, table, &answer, &doctor->err);

    if (table_is_denied(&answer)) {
        say_denied(doctor, "DescribeTimeToLive", false, "to check time to live, and by 'belay table'");
    } else if (code != BELAY_OK) {
        diagnostics_warn(doctor->diagnostics, "time to live", NULL, "cannot be told: %s", doctor->err.text);
    } else if (table->mismatch != NULL) {
        diagnostics_fail(
            doctor->diagnostics, BELAY_CONFIG, "time to live",
            "switch that off ('aws dynamodb update-time-to-live'), then run 'belay table create'",
            "'%s' does not fit: %s", table->name, table->mismatch);
    } else if (table->ttl_expected == NULL) {
        diagnostics_ok(doctor->diagnostics, "time to live", "the layout does not use it");
    } else if (table->ttl_attribute == NULL) {
        diagnostics_warn(doctor->diagnostics, "time to live", advice,
                         "is off: records of old locks stay, and 'belay list' reads them all");
    } else {
        diagnostics_ok(doctor->diagnostics, "time to live", "%s, by '%s'",
                       table->ttl_status == NULL ? "on" : table->ttl_status, table->ttl_attribute);
    }
    ddb_answer_release(&answer);
}

static void check_service_clock(struct doctor *doctor)
{
    const struct ddb_params *params = &doctor->store->params;
    int64_t most = params->max_skew_ms;
    int64_t low, high, off, within;
    char span[CLOCK_TEXT_SIZE];

    if (!ddb_clock_ahead(doctor->store, &low, &high)) {
        return;
    }
    off = low > 0 ? low : high < 0 ? high : 0;
    within = -low > high ? -low : high;
    if (off == 0) {
        diagnostics_ok(doctor->diagnostics, "clock", "agrees with DynamoDB's within %s",
                       clock_format_span(span, within));
    } else if (off > most || off < -most) {
        (void)ddb_clock_say_skew(doctor->store, off, &doctor->err);
        if (params->observe) {
            diagnostics_warn(doctor->diagnostics, "clock", "set it (NTP)",
                             "is %s %s DynamoDB's; with observe=1 no lock depends on it",
                             clock_format_span(span, off < 0 ? -off : off), off < 0 ? "behind" : "ahead of");
        } else {
            diagnostics_error(doctor->diagnostics, "clock", NULL, &doctor->err);
        }
    } else {
        diagnostics_warn(doctor->diagnostics, "clock", "set it (NTP)",
                         "is %s %s DynamoDB's, which is allowed, but not much more is",
                         clock_format_span(span, off < 0 ? -off : off), off < 0 ? "behind" : "ahead of");
    }
}

/* ---- the probe -------------------------------------------------------------------- */

struct probe {
    struct doctor *doctor;
    const char *name;          /* of its diagnostic */
    const char *table;         /* borrowed */
    const char *key_attribute; /* borrowed; the first of the key */
    const char *ttl;           /* borrowed; or NULL */
    json_t *key;               /* owned */
    bool may_remove;
    bool stop; /* the failure applies to all further steps */
};

struct probe_step {
    const char *operation;
    const char *action; /* of IAM */
    bool vital;
    const char *what_for;
    json_t *(*request)(const struct probe *probe);
};

static json_t *ask_remove(const struct probe *probe)
{
    return json_pack("{s:s,s:O}", "TableName", probe->table, "Key", probe->key);
}

static json_t *ask_write(const struct probe *probe)
{
    char until[32];

    (void)snprintf(until, sizeof until, "%" PRId64, clock_unix_ms() / 1000 + PROBE_TTL_S);
    return json_pack("{s:s,s:O,s:s,s:s,s:{s:s,s:s},s:{s:{s:s}}}", "TableName", probe->table, "Key",
                     probe->key, "UpdateExpression", "SET #t = :t", "ConditionExpression",
                     probe->may_remove ? "attribute_not_exists(#k)" : "attribute_exists(#k)",
                     "ExpressionAttributeNames", "#k", probe->key_attribute, "#t",
                     probe->ttl == NULL ? "belay_doctor" : probe->ttl, "ExpressionAttributeValues", ":t", "N",
                     until);
}

static json_t *ask_read(const struct probe *probe)
{
    return json_pack("{s:s,s:O,s:b}", "TableName", probe->table, "Key", probe->key, "ConsistentRead", 1);
}

static json_t *ask_read_batch(const struct probe *probe)
{
    return json_pack("{s:{s:{s:[O],s:b}}}", "RequestItems", probe->table, "Keys", probe->key,
                     "ConsistentRead", 1);
}

static json_t *ask_condition(const struct probe *probe)
{
    return json_pack("{s:[{s:{s:s,s:O,s:s,s:{s:s}}}]}", "TransactItems", "ConditionCheck", "TableName",
                     probe->table, "Key", probe->key, "ConditionExpression",
                     probe->may_remove ? "attribute_exists(#k)" : "attribute_not_exists(#k)",
                     "ExpressionAttributeNames", "#k", probe->key_attribute);
}

static json_t *ask_scan(const struct probe *probe)
{
    return json_pack("{s:s,s:i}", "TableName", probe->table, "Limit", 1);
}

static const struct probe_step step_remove = { "DeleteItem", "DeleteItem", true,
                                               "to release locks and to leave the queue", ask_remove };
static const struct probe_step step_write = { "UpdateItem", "UpdateItem", true,
                                              "to take, renew and release locks", ask_write };
static const struct probe_step steps_between[] = {
    { "GetItem", "GetItem", true, "to show and take locks", ask_read },
    { "BatchGetItem", "BatchGetItem", true, "for locks with others above them (stacks, 'all')",
      ask_read_batch },
    { "TransactWriteItems", "ConditionCheckItem", true, "for locks with others above them (stacks, 'all')",
      ask_condition },
    { "Scan", "Scan", false, "by 'belay list' and 'belay watch'", ask_scan },
};

/* Reports what is wrong, if anything. True: the request succeeded, or its condition failed. */
static bool probe_run(struct probe *probe, const struct probe_step *step, struct ddb_answer *out_answer)
{
    struct doctor *doctor = probe->doctor;
    enum belay_code code =
        table_call(doctor->store, step->operation, step->request(probe), out_answer, &doctor->err);

    if (code == BELAY_OK || code == BELAY_REFUSED) {
        return true;
    }
    if (table_is_denied(out_answer)) {
        say_denied(doctor, step->action, step->vital, step->what_for);
    } else if (table_is_lacking(out_answer)) {
        diagnostics_warn(doctor->diagnostics, probe->name, "use it for trying out only",
                         "this server does not have %s, which is needed %s", step->operation, step->what_for);
        doctor->n_lacking++;
    } else if (code == BELAY_NOT_FOUND) {
        say_no_table(doctor, probe->name, probe->table);
        probe->stop = true;
    } else {
        say_request_failed(doctor, probe->name, code);
        probe->stop = true;
    }
    return false;
}

static bool probe_step(struct probe *probe, const struct probe_step *step)
{
    struct ddb_answer answer = { 0 };
    bool done = !probe->stop && probe_run(probe, step, &answer);

    ddb_answer_release(&answer);
    return done;
}

/* The item that was just written must come back. */
static bool probe_read(struct probe *probe, bool written)
{
    struct ddb_answer answer = { 0 };
    bool done = !probe->stop && probe_run(probe, &steps_between[0], &answer);

    if (done && written && json_object_get(answer.body, "Item") == NULL) {
        diagnostics_fail(probe->doctor->diagnostics, BELAY_CONFIG, probe->name, NULL,
                         "an item that was just written to '%s' is missing when it is read", probe->table);
        done = false;
    }
    ddb_answer_release(&answer);
    return done;
}

static void probe_all(struct probe *probe)
{
    struct doctor *doctor = probe->doctor;
    int64_t began = clock_boot_ms();
    size_t failed = doctor->diagnostics->n_failed;
    bool written;

    probe->may_remove = probe_step(probe, &step_remove);
    written = probe_step(probe, &step_write) && probe->may_remove;
    (void)probe_read(probe, written);
    for (size_t i = 1; i < sizeof steps_between / sizeof steps_between[0]; i++) {
        (void)probe_step(probe, &steps_between[i]);
    }
    if (probe->may_remove) {
        probe->stop = false; /* it may have been written in spite of the error */
        written = probe_step(probe, &step_remove) && written;
    }
    if (written && doctor->diagnostics->n_failed == failed) {
        diagnostics_ok(doctor->diagnostics, probe->name,
                       "wrote, read and removed an item of '%s' in %" PRId64 " ms", probe->table,
                       clock_boot_ms() - began);
    }
}

static void probe_table(struct doctor *doctor, const char *name, const struct table_spec *spec)
{
    const struct layout *layout = doctor->store->layout;
    struct probe probe = {
        .doctor = doctor, .name = name, .table = spec->table, .key_attribute = spec->keys[0], .ttl = spec->ttl
    };
    char id[UUID_TEXT_SIZE];
    char key[64];

    if (!uuid_make(id)) {
        return;
    }
    (void)snprintf(key, sizeof key, "belay-doctor-%s", id);
    /* In another program's layout it is one of belay's own items, so that the program does not take it for a lock. */
    probe.key = spec->layout == NULL        ? json_pack("{s:o}", spec->keys[0], av_text(key))
                : layout_is_foreign(layout) ? ddb_queue_key(layout, key)
                                            : ddb_item_key(layout, key);
    if (probe.key != NULL) {
        probe_all(&probe);
    }
    json_decref(probe.key);
}

/* ---- all of it --------------------------------------------------------------------- */

static void probe_fence_table(struct doctor *doctor)
{
    struct table_spec spec;
    struct belay_dynamodb_table *table;

    if (!table_spec_of_fence(doctor->store, &spec)) {
        return;
    }
    table = table_new(doctor->store, &spec);
    if (table != NULL && check_table(doctor, "fence table", table)) {
        probe_table(doctor, "fence write", &spec);
    }
    belay_dynamodb_table_free(table);
}

static void check_by_requests(struct doctor *doctor)
{
    struct table_spec spec;
    struct belay_dynamodb_table *table;
    bool good;

    table_spec_of_layout(doctor->store, &spec);
    table = table_new(doctor->store, &spec);
    good = table != NULL && check_table(doctor, "table", table);
    if (good) {
        check_time_to_live(doctor, table);
        probe_table(doctor, "write", &spec);
        probe_fence_table(doctor);
    }
    check_service_clock(doctor);
    if (good && doctor->n_denied == 0 && doctor->n_lacking == 0) {
        diagnostics_ok(doctor->diagnostics, "permissions", "nothing that belay needs was denied");
    }
    belay_dynamodb_table_free(table);
}

void dynamodb_doctor(const char *table_and_params, const struct dynamodb_options *store,
                     struct diagnostics *diagnostics)
{
    struct doctor doctor = { .diagnostics = diagnostics, .err = BELAY_ERROR_INIT };

    if (table_store_open(table_and_params, store, &doctor.store, &doctor.err) != BELAY_OK) {
        diagnostics_error(diagnostics, "store", NULL, &doctor.err);
    } else {
        say_layout(&doctor);
        if (check_region(&doctor)) {
            check_endpoint(&doctor);
            if (check_credentials(&doctor)) {
                check_by_requests(&doctor);
            }
        }
    }
    belay_error_release(&doctor.err);
    table_store_close(doctor.store);
}
