/* /openapi.json, generated from the table of routes and the tables of fields. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/api/openapi_texts.h"
#include "server/core/routes.h"

/* Locks. What a holder has, a lock has as well: components_make() adds it. */
static const char lock_schemas[] =
    "{\"Holder\":{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"lock_id\",\"token\",\"lo"
    "cked_by\",\"locked_by_name\",\"acquired_by\",\"status\",\"outcome\",\"locked_at\",\"expires_at\",\"last_"
    "heartbeat\",\"ttl_ms\",\"expires_in_ms\",\"valid_for_ms\",\"is_stale\",\"metadata\"],\"properties\":{\"l"
    "ock_id\":{\"type\":[\"string\",\"null\"],\"description\":\"null unless the client acquired it or is an a"
    "dmin\"},\"token\":{\"type\":[\"integer\",\"null\"],\"description\":\"the fencing token\"},\"locked_by\":"
    "{\"type\":[\"string\",\"null\"]},\"locked_by_name\":{\"type\":[\"string\",\"null\"]},\"acquired_by\":{\""
    "type\":[\"string\",\"null\"],\"description\":\"the name of the token that acquired it; null: without one"
    "\"},\"status\":{\"type\":[\"string\",\"null\"],\"enum\":[\"active\",\"expired\",\"released\",null]},\"ou"
    "tcome\":{\"type\":[\"string\",\"null\"],\"enum\":[\"completed\",\"failed\",\"forced\",null]},\"locked_at"
    "\":{\"type\":[\"string\",\"null\"],\"format\":\"date-time\"},\"expires_at\":{\"type\":[\"string\",\"null"
    "\"],\"format\":\"date-time\"},\"last_heartbeat\":{\"type\":[\"string\",\"null\"],\"format\":\"date-time"
    "\"},\"ttl_ms\":{\"type\":[\"integer\",\"null\"]},\"expires_in_ms\":{\"type\":[\"integer\",\"null\"]},\"v"
    "alid_for_ms\":{\"type\":[\"integer\",\"null\"],\"description\":\"how long the holder may rely on the loc"
    "k, counted from before it sent this request; only in replies to acquire, adopt and renew\"},\"is_stale\""
    ":{\"type\":\"boolean\"},\"metadata\":{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"}"
    "}}},\"Lock\":{\"type\":\"object\",\"required\":[\"key\",\"released_at\",\"mode\",\"slots\",\"holders\","
    "\"waiting\"],\"properties\":{\"key\":{\"type\":\"string\"},\"released_at\":{\"type\":[\"string\","
    "\"null\"],"
    "\"format\":\"date-time\",\"description\":\"when it was released, or ended by force; null: it was not\"},"
    "\"mode\":{\"type\":\"string\",\"enum\":[\"exclusive\",\"shared"
    "\",\"slots\"]},\"slots\":{\"type\":[\"integer\",\"null\"],\"description\":\"how many may hold it at a ti"
    "me; null: it has no slots\"},\"holders\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/"
    "Holder\"},\"description\":\"those of a shared lock or one with slots, oldest first; one for an exclusive"
    " lock, none if it is not held\"},\"waiting\":{\"type\":[\"array\",\"null\"],\"items\":{\"$ref\":\"#/comp"
    "onents/schemas/Waiter\"},\"description\":\"the first ten waiters in their order; .../queue has all. null"
    ": not read, after a change of the lock\"}}},\"Waiter\":{\"type\":\"object\",\"required\":[\"position\","
    "\"key\",\"locked_by\",\"locked_by_name\",\"since\",\"mode\"],\"properties\":{\"position\":{\"type\":\"in"
    "teger\",\"description\":\"how many wait before it\"},\"key\":{\"type\":\"string\",\"description\":\"the "
    "key it waits for: the lock's own, or one below it\"},\"locked_by\":{\"type\":\"string\"},\"locked_by_nam"
    "e\":{\"type\":\"string\"},\"since\":{\"type\":\"string\",\"format\":\"date-time\"},\"mode\":{\"type\":\""
    "string\",\"enum\":[\"exclusive\",\"shared\",\"slots\"]}}},\"Grants\":{\"type\":\"object\",\"required\":["
    "\"lock_id\",\"locks\"],\"properties\":{\"lock_id\":{\"type\":[\"string\",\"null\"],\"description\":\"the"
    " same for all of them\"},\"locks\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/Lock\""
    "},\"description\":\"one for each of the keys, in their order, each with its own token\"}}},\"LockOrGrant"
    "s\":{\"description\":\"a lock, or for a request with keys the locks on all of them\",\"oneOf\":[{\"$ref"
    "\":\"#/components/schemas/Lock\"},{\"$ref\":\"#/components/schemas/Grants\"}]}}";

/* The parts that are in no table, as JSON; parsed at the first request. */
static const char components[] =
    "{\"securitySchemes\":{\"bearer\":{\"type\":\"http\",\"scheme\":\"bearer\"},"
    "\"basic\":{\"type\":\"http\",\"scheme\":\"basic\",\"description\":\"the token is the password\"}},"
    "\"schemas\":{"
    "\"LockList\":{\"type\":\"object\",\"required\":[\"locks\",\"waiting\",\"next_cursor\"],\"properties\":{"
    "\"waiting\":{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"},"
    "\"description\":\"the number of waiters by key, without zeros\"},"
    "\"locks\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/Lock\"}},"
    "\"next_cursor\":{\"type\":[\"string\",\"null\"]}}},"
    "\"Event\":{\"type\":\"object\",\"required\":[\"id\",\"timestamp\",\"level\",\"event\",\"lock_key\"],"
    "\"properties\":{"
    "\"id\":{\"type\":[\"integer\",\"null\"]},\"timestamp\":{\"type\":\"string\",\"format\":\"date-time\"},"
    "\"level\":{\"type\":\"string\",\"enum\":[\"INFO\",\"WARN\"]},\"event\":{\"type\":\"string\"},"
    "\"lock_key\":{\"type\":\"string\"},\"lock_id\":{\"type\":[\"string\",\"null\"]},"
    "\"token\":{\"type\":[\"integer\",\"null\"]},\"locked_by\":{\"type\":[\"string\",\"null\"]},"
    "\"locked_by_name\":{\"type\":[\"string\",\"null\"]},\"by\":{\"type\":[\"string\",\"null\"]},"
    "\"reason\":{\"type\":[\"string\",\"null\"]},\"duration_seconds\":{\"type\":[\"number\",\"null\"]},"
    "\"metadata\":{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"}}}},"
    "\"EventList\":{\"type\":\"object\",\"required\":[\"events\"],\"properties\":{"
    "\"events\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/Event\"}}}},"
    "\"Queue\":{\"type\":\"object\",\"required\":[\"key\",\"lock\",\"waiting\",\"estimate\"],\"properties\":{"
    "\"key\":{\"type\":\"string\"},\"lock\":{\"$ref\":\"#/components/schemas/Lock\"},"
    "\"waiting\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/Waiter\"}},"
    "\"estimate\":{\"type\":[\"object\",\"null\"],\"description\":\"null: not asked for, or the lock has no "
    "history\","
    "\"required\":[\"holds_ms\",\"turns_ms\",\"is_overdue\"],\"properties\":{"
    "\"holds_ms\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"description\":\"how long the lock "
    "was "
    "held before: the last twenty times, oldest first\"},"
    "\"turns_ms\":{\"type\":\"array\",\"items\":{\"type\":[\"integer\",\"null\"]},\"description\":\"in how "
    "long "
    "each waiter has its turn, and then a client that would wait now; null: not known\"},"
    "\"is_overdue\":{\"type\":\"boolean\",\"description\":\"it is held for longer than each of the last "
    "times\"}}}}},"
    "\"Queued\":{\"type\":\"object\",\"required\":[\"key\",\"keys\",\"lock_id\",\"locked_by\",\"status\","
    "\"position\","
    "\"wait_until\"],\"properties\":{\"key\":{\"type\":\"string\"},\"lock_id\":{\"type\":\"string\"},"
    "\"keys\":{\"type\":[\"array\",\"null\"],\"items\":{\"type\":\"string\"},\"description\":\"of a request "
    "for "
    "several\"},"
    "\"locked_by\":{\"type\":\"string\"},\"status\":{\"type\":\"string\",\"enum\":[\"queued\",\"calling\","
    "\"delivered\",\"cancelled\"]},\"position\":{\"type\":[\"integer\",\"null\"],\"description\":\"how many "
    "wait before it\"},\"wait_until\":{\"type\":\"string\",\"format\":\"date-time\"}}},"
    "\"Error\":{\"type\":\"object\",\"required\":[\"error\"],\"properties\":{\"error\":{\"type\":\"object\","
    "\"required\":[\"code\",\"message\"],\"properties\":{\"code\":{\"type\":\"string\"},"
    "\"message\":{\"type\":\"string\"},"
    "\"lock\":{\"oneOf\":[{\"$ref\":\"#/components/schemas/Lock\"},{\"type\":\"null\"}]},"
    "\"position\":{\"type\":[\"integer\",\"null\"],\"description\":\"after a wait: how many wait before "
    "you\"},"
    "\"place_kept_ms\":{\"type\":\"integer\",\"description\":\"after a wait: repeat the request with the "
    "same lock_id within this time to keep the place\"},"
    "\"hint\":{\"type\":\"string\",\"description\":\"after a wait: how to keep the place\"}}}}}}}";

/* The rest, mostly for the dashboard. */
static const char view_schemas[] =
    "{"
    "\"Free\":{\"type\":\"object\",\"required\":[\"key\",\"is_free\"],\"properties\":{"
    "\"key\":{\"type\":\"string\"},\"is_free\":{\"type\":\"boolean\",\"enum\":[true]}}},"
    "\"Noted\":{\"type\":\"object\",\"required\":[\"key\",\"is_noted\"],\"properties\":{"
    "\"key\":{\"type\":\"string\"},\"is_noted\":{\"type\":\"boolean\",\"enum\":[true]}}},"
    "\"Health\":{\"type\":\"object\",\"required\":[\"status\",\"version\",\"locking_enabled\"],"
    "\"properties\":{\"status\":{\"type\":\"string\"},\"version\":{\"type\":\"string\"},"
    "\"locking_enabled\":{\"type\":\"boolean\",\"description\":\"false while the kill switch grants every "
    "lock\"}}},"
    "\"Tree\":{\"type\":\"object\",\"required\":[\"key\",\"above\",\"below\",\"has_more\"],\"properties\":{"
    "\"key\":{\"type\":\"string\"},"
    "\"above\":{\"type\":\"array\",\"description\":\"nearest first\",\"items\":{\"type\":\"object\","
    "\"required\":[\"key\",\"lock\"],\"properties\":{\"key\":{\"type\":\"string\"},"
    "\"lock\":{\"oneOf\":[{\"$ref\":\"#/components/schemas/Lock\"},{\"type\":\"null\"}]}}}},"
    "\"below\":{\"type\":\"array\",\"description\":\"those that are held\","
    "\"items\":{\"$ref\":\"#/components/schemas/Lock\"}},"
    "\"has_more\":{\"type\":\"boolean\",\"description\":\"there are more below\"}}},"
    "\"Freeze\":{\"type\":\"object\",\"required\":[\"id\",\"pattern\",\"reason\",\"by\",\"created_at\","
    "\"from\","
    "\"until\",\"in_force\"],\"properties\":{\"id\":{\"type\":\"string\"},\"pattern\":{\"type\":\"string\"},"
    "\"reason\":{\"type\":\"string\"},\"by\":{\"type\":\"string\"},"
    "\"created_at\":{\"type\":\"string\",\"format\":\"date-time\"},"
    "\"from\":{\"type\":[\"string\",\"null\"],\"format\":\"date-time\",\"description\":\"null: since it was "
    "created\"},"
    "\"until\":{\"type\":[\"string\",\"null\"],\"format\":\"date-time\",\"description\":\"null: until it is "
    "ended\"},"
    "\"in_force\":{\"type\":\"boolean\"}}},"
    "\"FreezeList\":{\"type\":\"object\",\"required\":[\"freezes\"],\"properties\":{\"freezes\":{"
    "\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/Freeze\"}}}},"
    "\"ActivityStep\":{\"type\":\"object\",\"required\":[\"at\",\"acquired\",\"released\",\"refused\",\"re"
    "newed\",\"forced\",\"taken_over\",\"waits\",\"wait_ms\",\"wait_max_ms\",\"held_ms\",\"held_max_ms"
    "\",\"held_p50_ms\",\"held_p95_ms\"],\"properties\":{\"at\":{\"type\":\"string\",\"format\":\"date-"
    "time\"},\"acquired\":{\"type\":[\"integer\",\"null\"]},\"released\":{\"type\":[\"integer\",\"null"
    "\"]},\"refused\":{\"type\":[\"integer\",\"null\"]},\"renewed\":{\"type\":[\"integer\",\"null\"]},"
    "\"forced\":{\"type\":[\"integer\",\"null\"]},\"taken_over\":{\"type\":[\"integer\",\"null\"]},\"wa"
    "its\":{\"type\":[\"integer\",\"null\"]},\"wait_ms\":{\"type\":[\"integer\",\"null\"]},\"wait_max_m"
    "s\":{\"type\":[\"integer\",\"null\"]},\"held_ms\":{\"type\":[\"integer\",\"null\"]},\"held_max_ms"
    "\":{\"type\":[\"integer\",\"null\"]},\"held_p50_ms\":{\"type\":[\"integer\",\"null\"],\"descriptio"
    "n\":\"half were held no longer; to within a quarter\"},\"held_p95_ms\":{\"type\":[\"integer\",\"nu"
    "ll\"]}}},"
    "\"Activity\":{\"type\":\"object\",\"required\":[\"step_ms\",\"total\",\"steps\",\"is_complete\"],"
    "\"properties\":{"
    "\"step_ms\":{\"type\":\"integer\"},\"total\":{\"$ref\":\"#/components/schemas/ActivityStep\"},"
    "\"steps\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/components/schemas/ActivityStep\"}},"
    "\"is_complete\":{\"type\":\"boolean\",\"description\":\"false while events of before are still being "
    "counted\"}}},"
    "\"Me\":{\"type\":\"object\",\"required\":[\"name\",\"role\",\"keys\",\"needs_token\",\"version\","
    "\"store\",\"now\",\"locking_enabled\"],"
    "\"properties\":{\"name\":{\"type\":[\"string\",\"null\"]},\"role\":{\"type\":\"string\","
    "\"enum\":[\"reader\",\"locker\",\"admin\"]},"
    "\"keys\":{\"type\":\"array\",\"description\":\"patterns; empty: every "
    "key\",\"items\":{\"type\":\"string\"}},"
    "\"needs_token\":{\"type\":\"boolean\"},\"version\":{\"type\":\"string\"},"
    "\"store\":{\"type\":\"string\",\"description\":\"its kind: sqlite, postgresql or dynamodb\"},"
    "\"locking_enabled\":{\"type\":\"boolean\"},"
    "\"now\":{\"type\":\"string\",\"format\":\"date-time\"}}}}";

/* Of GET /v1/stats. */
static const char stats_schemas[] =
    "{\"Durations\":{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"count\",\"median_m"
    "s\",\"p90_ms\",\"longest_ms\",\"total_ms\"],\"properties\":{\"count\":{\"type\":\"integer\"},\"media"
    "n_ms\":{\"type\":[\"integer\",\"null\"],\"description\":\"half of them were not longer; percentiles "
    "are accurate to within 3 %. null: there are none\"},\"p90_ms\":{\"type\":[\"integer\",\"null\"]},\"l"
    "ongest_ms\":{\"type\":[\"integer\",\"null\"]},\"total_ms\":{\"type\":[\"integer\",\"null\"]}}},\"Sta"
    "tsGroup\":{\"type\":\"object\",\"additionalProperties\":false,\"required\":[\"name\",\"acquired\",\""
    "released\",\"refused\",\"taken_over\",\"forced\",\"lost\",\"held\",\"waited\"],\"properties\":{\"nam"
    "e\":{\"type\":[\"string\",\"null\"],\"description\":\"the day in UTC, the profile or the key; null: "
    "the total, or all groups after the first thousand\"},\"acquired\":{\"type\":\"integer\"},\"released"
    "\":{\"type\":\"integer\"},\"refused\":{\"type\":\"integer\"},\"taken_over\":{\"type\":\"integer\",\""
    "description\":\"from a holder whose lease had expired\"},\"forced\":{\"type\":\"integer\",\"descript"
    "ion\":\"ended by another client\"},\"lost\":{\"type\":\"integer\",\"description\":\"as reported by t"
    "he holder\"},\"held\":{\"$ref\":\"#/components/schemas/Durations\"},\"waited\":{\"$ref\":\"#/compone"
    "nts/schemas/Durations\"}}},\"Stats\":{\"type\":\"object\",\"additionalProperties\":false,\"required"
    "\":[\"key\",\"prefix\",\"by\",\"from\",\"until\",\"oldest_event\",\"events\",\"total\",\"groups\"],"
    "\"properties\":{\"key\":{\"type\":[\"string\",\"null\"]},\"prefix\":{\"type\":[\"string\",\"null\"]}"
    ",\"by\":{\"type\":[\"string\",\"null\"],\"enum\":[\"day\",\"profile\",\"key\",null]},\"from\":{\"typ"
    "e\":[\"string\",\"null\"],\"format\":\"date-time\",\"description\":\"the beginning of the time that "
    "is counted; null: there are no events\"},\"until\":{\"type\":\"string\",\"format\":\"date-time\"},\""
    "oldest_event\":{\"type\":[\"string\",\"null\"],\"format\":\"date-time\",\"description\":\"the oldest"
    " event that the store keeps: before it nothing is known\"},\"events\":{\"type\":\"integer\"},\"total"
    "\":{\"$ref\":\"#/components/schemas/StatsGroup\"},\"groups\":{\"type\":\"array\",\"items\":{\"$ref\""
    ":\"#/components/schemas/StatsGroup\"}}}}}";

struct meaning {
    int status;
    const char *says;
};

static const struct meaning meanings[] = {
    { 200, "Done" },
    { 202, "Queued: the webhook will be called with the lock" },
    { 400, "The request is invalid; nothing was changed. Code: invalid" },
    { 401, "No token, or an unknown one. Code: unauthorized" },
    { 403, "Not permitted for this token, key or site. Codes: not_permitted, cross_origin, wrong_host" },
    { 404, "There is no such lock, or it is not held. Code: not_found" },
    { 409,
      "Codes: refused (of another version), lock_held, frozen, not_holder, lease_lost, id_used, superseded" },
    { 423, "Another client holds the lock; the body is what Terraform sent when it acquired it" },
    { 412, "It has changed since it was loaded; nothing was saved. Codes: not_holder, refused" },
    { 428, "Neither If-Match nor If-None-Match. Code: refused" },
    { 413, "The body is too large. Code: body_too_large" },
    { 503,
      "Retry later: the store did not answer, or the server is stopping. Codes: unreachable, shutting_down, "
      "too_many_failures, busy, no_memory. Or the configuration is wrong, or something in the store: "
      "bad_config, bad_content" },
    { 504, "Unknown: it may have happened. Repeat with the same lock_id. Code: unknown_outcome" },
};

static const char *meaning_of(int status)
{
    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++) {
        if (meanings[i].status == status) {
            return meanings[i].says;
        }
    }
    return "";
}

static json_t *body_schema(const struct body_field *fields);

static json_t *field_schema(const struct body_field *field)
{
    switch (field->type) {
    case BODY_NUMBER:
        return json_pack("{s:s, s:I, s:I, s:s}", "type", "integer", "minimum", (json_int_t)field->min,
                         "maximum", (json_int_t)field->max, "description", field->about);
    case BODY_SWITCH:
        return json_pack("{s:s, s:s}", "type", "boolean", "description", field->about);
    case BODY_METADATA:
        return json_pack("{s:s, s:{s:s}, s:i, s:s}", "type", "object", "additionalProperties", "type",
                         "string", "maxProperties", BELAY_META_MAX, "description", field->about);
    case BODY_KEYS:
        return json_pack("{s:s, s:{s:s, s:i}, s:i, s:i, s:s}", "type", "array", "items", "type", "string",
                         "maxLength", BELAY_KEY_MAX, "minItems", (int)field->min, "maxItems", (int)field->max,
                         "description", field->about);
    case BODY_WEBHOOK: {
        json_t *schema = body_schema(webhook_fields);

        (void)json_object_set_new(schema, "description", json_string(field->about));
        return schema;
    }
    case BODY_CHOICE:
        /* There is one field of this type, with these two choices. */
        return json_pack("{s:s, s:[s, s], s:s}", "type", "string", "enum", "completed", "failed",
                         "description", field->about);
    case BODY_TEXT:
        break;
    }
    return json_pack("{s:s, s:s}", "type", "string", "description", field->about);
}

static json_t *body_schema(const struct body_field *fields)
{
    json_t *properties = json_object();
    json_t *required = json_array();

    for (; fields->name != NULL; fields++) {
        (void)json_object_set_new(properties, fields->name, field_schema(fields));
        if (fields->is_required) {
            (void)json_array_append_new(required, json_string(fields->name));
        }
    }
    return json_pack("{s:s, s:b, s:o, s:o}", "type", "object", "additionalProperties", 0, "required",
                     required, "properties", properties);
}

static json_t *parameters_of(const struct route *route)
{
    json_t *parameters = json_array();

    for (const char *at = strchr(route->path, '{'); at != NULL; at = strchr(at + 1, '{')) {
        char name[16];

        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(at + 1, "}"), at + 1);
        if (strcmp(name, "key") == 0) {
            continue;
        }
        (void)json_array_append_new(parameters, json_pack("{s:s, s:s, s:b, s:s, s:{s:s}}", "name", name, "in",
                                                          "path", "required", 1, "description",
                                                          "percent-encoded", "schema", "type", "string"));
    }
    if (strstr(route->path, "{key}") != NULL) {
        (void)json_array_append_new(parameters, json_pack("{s:s, s:s, s:b, s:s, s:{s:s, s:i}}", "name", "key",
                                                          "in", "path", "required", 1, "description",
                                                          "the lock's key, percent-encoded", "schema", "type",
                                                          "string", "maxLength", BELAY_KEY_MAX));
    }
    for (size_t i = 0; route->query[i].name != NULL; i++) {
        const struct route_query *query = &route->query[i];

        (void)json_array_append_new(parameters,
                                    json_pack("{s:s, s:s, s:s, s:{s:s}}", "name", query->name, "in", "query",
                                              "description", query->about, "schema", "type", query->type));
    }
    return parameters;
}

static json_t *answer_of(const struct route *route, int status)
{
    const char *schema = status == 202 ? "Queued" : route->schema;
    char ref[64];

    if (status == 423) {
        return json_pack("{s:s, s:{s:{s:{s:s}}}}", "description", meaning_of(status), "content",
                         "application/json", "schema", "$ref", "#/components/schemas/TerraformLock");
    }
    if (status != 200 && status != 202) {
        return json_pack("{s:s, s:{s:{s:{s:s}}}}", "description", meaning_of(status), "content",
                         "application/json", "schema", "$ref", "#/components/schemas/Error");
    }
    if (strchr(route->schema, '/') != NULL) {
        return json_pack("{s:s, s:{s:{s:{}}}}", "description", route->summary, "content", route->schema,
                         "schema");
    }
    (void)snprintf(ref, sizeof ref, "#/components/schemas/%s", schema);
    return json_pack("{s:s, s:{s:{s:{s:s}}}}", "description", meaning_of(status), "content",
                     "application/json", "schema", "$ref", ref);
}

/* A request for each kind of lock. */
static const char acquire_examples[] =
    "{\"exclusive\":{\"value\":{\"key\":\"deploy-api-prod\",\"locked_by\":\"build-17\",\"ttl_ms\":600000}},"
    "\"shared\":{\"value\":{\"key\":\"terraform-prod\",\"locked_by\":\"plan-3\",\"shared\":true}},"
    "\"slots\":{\"value\":{\"key\":\"prod-deploys\",\"locked_by\":\"build-17\",\"slots\":3}},"
    "\"keys\":{\"value\":{\"keys\":[\"db-orders\",\"db-users\"],\"locked_by\":\"migration-8\"}}}";

/* NULL: the route takes no body. */
static json_t *request_of(const struct route *route, const struct operation_text *text)
{
    json_t *content;
    char ref[64];

    if (route->fields != NULL) {
        content = json_pack("{s:o}", "schema", body_schema(route->fields));
    } else if (route->body != NULL) {
        (void)snprintf(ref, sizeof ref, "#/components/schemas/%s", route->body);
        content = json_pack("{s:{s:s}}", "schema", "$ref", ref);
    } else {
        return NULL;
    }
    if (route->fields == acquire_fields) {
        (void)json_object_set_new(content, "examples", json_loads(acquire_examples, 0, NULL));
    } else if (text != NULL && text->example != NULL) {
        (void)json_object_set_new(content, "example", json_loads(text->example, 0, NULL));
    }
    return json_pack("{s:b, s:{s:o}}", "required",
                     route->fields != NULL && strcmp(route->method, "POST") == 0, "content",
                     "application/json", content);
}

static json_t *operation_of(const struct route *route)
{
    const struct operation_text *text = openapi_text(route->method, route->path);
    json_t *answers = json_object();
    json_t *operation;
    json_t *request = request_of(route, text);
    char status[8];

    for (size_t i = 0; route->statuses[i] != 0; i++) {
        (void)snprintf(status, sizeof status, "%d", route->statuses[i]);
        (void)json_object_set_new(answers, status, answer_of(route, route->statuses[i]));
    }
    operation =
        json_pack("{s:[s], s:s, s:o, s:o, s:s, s:o}", "tags", openapi_tag(route->path), "summary",
                  route->summary, "parameters", parameters_of(route), "responses", answers, "x-belay-role",
                  role_name(route->role), "security",
                  route->role == ROLE_NONE ? json_array() : json_pack("[{s:[]}, {s:[]}]", "bearer", "basic"));
    if (text != NULL) {
        (void)json_object_set_new(operation, "operationId", json_string(text->id));
        (void)json_object_set_new(operation, "description", json_string(text->description));
    }
    if (request != NULL) {
        (void)json_object_set_new(operation, "requestBody", request);
    }
    return operation;
}

static json_t *tags_make(void)
{
    json_t *all = json_array();
    size_t n;
    const struct operation_tag *tags = openapi_tags(&n);

    for (size_t i = 0; i < n; i++) {
        if (tags[i].description != NULL) {
            (void)json_array_append_new(
                all, json_pack("{s:s, s:s}", "name", tags[i].name, "description", tags[i].description));
        }
    }
    return all;
}

/* A lock has the fields of a holder: those of the client's own grant, or of the one whose lease ends last. */
static void add_holder_fields(json_t *schemas)
{
    const json_t *holder = json_object_get(schemas, "Holder");
    const json_t *lock = json_object_get(schemas, "Lock");

    (void)json_object_update(json_object_get(lock, "properties"), json_object_get(holder, "properties"));
    (void)json_array_extend(json_object_get(lock, "required"), json_object_get(holder, "required"));
}

/* The schemas of locks, of what a dashboard shows, and of applications and databases. */
static json_t *components_make(void)
{
    const char *const more[] = { lock_schemas,         view_schemas,  stats_schemas,    shared_db_schemas[0],
                                 shared_db_schemas[1], state_schemas, dashboard_schemas };
    json_t *all = json_loads(components, 0, NULL);

    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        (void)json_object_update_new(json_object_get(all, "schemas"), json_loads(more[i], 0, NULL));
    }
    add_holder_fields(json_object_get(all, "schemas"));
    return all;
}

/* In lower case. Methods that OpenAPI does not know become extensions: "x-lock". */
static void name_method(const char *method, char *out, size_t size)
{
    bool is_known = strstr(" GET POST PUT DELETE ", method) != NULL && strcmp(method, "LOCK") != 0;

    (void)snprintf(out, size, "%s%s", is_known ? "" : "x-", method);
    for (; *out != '\0'; out++) {
        *out = *out >= 'A' && *out <= 'Z' ? (char)(*out | 0x20) : *out;
    }
}

char *openapi_make(void)
{
    json_t *paths = json_object();
    json_t *document;
    char *text;

    for (size_t i = 0; i < n_routes; i++) {
        json_t *path = json_object_get(paths, routes[i].path);
        char method[16];

        if (path == NULL) {
            path = json_object();
            (void)json_object_set_new(paths, routes[i].path, path);
        }
        name_method(routes[i].method, method, sizeof method);
        (void)json_object_set_new(path, method, operation_of(&routes[i]));
    }
    document =
        json_pack("{s:s, s:{s:s, s:s, s:s, s:{s:s}, s:{s:s, s:s}}, s:[{s:s, s:s}], s:o, s:o, s:o}", "openapi",
                  "3.1.0", "info", "title", "belay", "version", belay_version(), "description",
                  "One deploy, build, migration or database stop at a time.", "contact", "name", "belay",
                  "license", "name", "MIT", "identifier", "MIT", "servers", "url", "/", "description",
                  "this server", "tags", tags_make(), "paths", paths, "components", components_make());
    text = document == NULL ? NULL : json_dumps(document, JSON_INDENT(1));
    json_decref(document);
    return text;
}
