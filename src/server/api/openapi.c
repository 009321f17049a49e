/* /openapi.json, generated from the table of routes and the tables of fields. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/api/openapi_schemas.h"
#include "server/api/openapi_texts.h"
#include "server/core/routes.h"

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
    const char *schema = status == 202   ? "Queued"
                         : status == 200 ? route->schema
                         : status == 423 ? "TerraformLock"
                                         : "Error";

    if (strchr(schema, '/') != NULL) {
        return json_pack("{s:s, s:{s:{s:{}}}}", "description", route->summary, "content", schema, "schema");
    }
    return json_pack("{s:s, s:{s:{s:o}}}", "description", meaning_of(status), "content", "application/json",
                     "schema", openapi_ref(schema));
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

    if (route->fields != NULL) {
        content = json_pack("{s:o}", "schema", body_schema(route->fields));
    } else if (route->body != NULL) {
        content = json_pack("{s:o}", "schema", openapi_ref(route->body));
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

static json_t *components_make(void)
{
    json_t *schemas = openapi_schemas();

    add_holder_fields(schemas);
    return json_pack("{s:{s:{s:s, s:s}, s:{s:s, s:s, s:s}}, s:o}", "securitySchemes", "bearer", "type",
                     "http", "scheme", "bearer", "basic", "type", "http", "scheme", "basic", "description",
                     "the token is the password", "schemas", schemas);
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
