/*
 * Applications in the rows of document 003.
 * Its programs write app_name, hostnames (a list), postgres_host and postgres_port, neo4j_host
 * and neo4j_port, and status (UP or DOWN); older ones write postgres_instances and
 * neo4j_instances with an instance_id in each. Whatever has no attribute there is in
 * attributes that begin with belay_, which those programs ignore. Reading combines both: a
 * database that either of them names is in use.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fnv.h"
#include "base/text.h"
#include "store/dynamodb/dynamodb_internal.h"

#define ROW_VERSION "belay_version"
#define ROW_URLS "belay_urls"
#define ROW_DATABASES "belay_databases"
#define ROW_LABELS "belay_labels"
#define ROW_STATE "belay_state"
#define ROW_SINCE "belay_since"
#define ROW_BY "belay_by"
#define ROW_PUBLIC_ONLY "belay_public_only"

enum { TEXT_SIZE = 700 };

static const struct {
    const char *kind;
    const char *host;
    const char *port;
    const char *instances;
    int64_t default_port;
} kinds[] = {
    { "postgres", "postgres_host", "postgres_port", "postgres_instances", 5432 },
    { "neo4j", "neo4j_host", "neo4j_port", "neo4j_instances", 7687 },
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

/* ---- reading ---- */

/* The list in an attribute of type L or SS; NULL if it is neither. */
static const json_t *list_of(const json_t *row, const char *name)
{
    const json_t *value = json_object_get(row, name);
    const json_t *list = json_object_get(value, "L");

    return list != NULL ? list : json_object_get(value, "SS");
}

/* The text of an element of L or SS. */
static const char *element_text(const json_t *value)
{
    return json_is_string(value) ? json_string_value(value) : json_string_value(json_object_get(value, "S"));
}

/* A new array of the texts in a list of the row. */
static json_t *copy_texts(const json_t *row, const char *name)
{
    const json_t *list = list_of(row, name);
    json_t *texts = json_array();

    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = element_text(json_array_get(list, i));

        (void)json_array_append_new(texts, json_string(text == NULL ? "" : text));
    }
    return texts;
}

/* Whether one of the URLs has this host. */
static bool has_host(const json_t *urls, const char *host)
{
    for (size_t i = 0; host != NULL && i < json_array_size(urls); i++) {
        const char *url = json_string_value(json_array_get(urls, i));
        const char *rest = url == NULL ? NULL : strstr(url, "://");
        size_t n = rest == NULL ? 0 : strcspn(rest + 3, "/?#");

        if (url != NULL &&
            (strcmp(url, host) == 0 || (n > 0 && strlen(host) == n && strncmp(rest + 3, host, n) == 0))) {
            return true;
        }
    }
    return false;
}

/* The URLs that belay was given, and the hosts that document 003's programs have added. */
static json_t *urls_of(const json_t *row)
{
    const json_t *hosts = list_of(row, "hostnames");
    json_t *urls = copy_texts(row, ROW_URLS);
    char url[TEXT_SIZE];

    for (size_t i = 0; i < json_array_size(hosts); i++) {
        const char *text = element_text(json_array_get(hosts, i));
        bool is_url = text != NULL && strstr(text, "://") != NULL;

        if (has_host(urls, text)) {
            continue;
        }
        (void)snprintf(url, sizeof url, "%s%.500s%s", is_url ? "" : "https://", text == NULL ? "" : text,
                       is_url ? "" : "/");
        (void)json_array_append_new(urls, json_string(url));
    }
    return urls;
}

/* Whether the text is one of the two sides of "KIND=ID" or "KIND=ID@HOST". */
static bool is_side(const char *database, const char *name)
{
    const char *id = strchr(database, '=');
    const char *at = id == NULL ? NULL : strchr(id, '@');
    size_t n = strlen(name);

    return id != NULL && ((at != NULL && strcmp(at + 1, name) == 0) ||
                          (strncmp(id + 1, name, n) == 0 && (id[n + 1] == '\0' || id[n + 1] == '@')));
}

static bool names_database(const json_t *databases, const char *name)
{
    for (size_t i = 0; i < json_array_size(databases); i++) {
        const char *text = json_string_value(json_array_get(databases, i));

        if (text != NULL && is_side(text, name)) {
            return true;
        }
    }
    return false;
}

static bool is_absent(const json_t *value)
{
    const char *text = json_string_value(json_object_get(value, "S"));

    return value == NULL || json_object_get(value, "NULL") != NULL || (text != NULL && *text == '\0');
}

/*
 * HOST:PORT exactly as in the row: a malformed text must stay visible, and must never be taken
 * for a host by mistake. False: the row names no host.
 */
static bool place_of_kind(const json_t *row, size_t k, char *out, size_t size)
{
    const json_t *host = json_object_get(row, kinds[k].host);
    const json_t *port = json_object_get(row, kinds[k].port);
    const char *name = json_string_value(json_object_get(host, "S"));
    const char *digits = json_string_value(json_object_get(port, "N"));
    char usual[24];

    if (is_absent(host)) {
        return false;
    }
    if (digits == NULL) {
        digits = json_string_value(json_object_get(port, "S"));
    }
    (void)snprintf(usual, sizeof usual, "%lld", (long long)kinds[k].default_port);
    (void)snprintf(out, size, "%.255s:%.20s", name == NULL ? "(not a text)" : name,
                   is_absent(port)  ? usual
                   : digits == NULL ? "(not a number)"
                                    : digits);
    return true;
}

/* The id of one of postgres_instances: a map with instance_id, or the id itself. */
static const char *instance_of(const json_t *one)
{
    const json_t *map = json_object_get(one, "M");
    const char *id = json_string_value(json_object_get(json_object_get(map, "instance_id"), "S"));

    id = id == NULL ? element_text(one) : id;
    return id == NULL ? "(not an instance)" : id;
}

/* The databases of one kind by document 003's attributes, unless belay_databases has them already. */
static void add_kind(const json_t *row, size_t k, json_t *databases)
{
    const json_t *list = json_object_get(row, kinds[k].instances);
    const json_t *instances = list_of(row, kinds[k].instances);
    char text[TEXT_SIZE], place[TEXT_SIZE / 2] = "";
    bool host_said = !place_of_kind(row, k, place, sizeof place) || names_database(databases, place);

    for (size_t i = 0; i < json_array_size(instances); i++) {
        const char *id = instance_of(json_array_get(instances, i));

        if (names_database(databases, id)) {
            continue;
        }
        (void)snprintf(text, sizeof text, "%s=%.100s%s%s", kinds[k].kind, id, host_said ? "" : "@",
                       host_said ? "" : place);
        host_said = true;
        (void)json_array_append_new(databases, json_string(text));
    }
    if (!host_said) {
        (void)snprintf(text, sizeof text, "%s=%s", kinds[k].kind, place);
        (void)json_array_append_new(databases, json_string(text));
    }
    if (instances == NULL && !is_absent(list)) {
        (void)snprintf(text, sizeof text, "%s=(%s is not a list)", kinds[k].kind, kinds[k].instances);
        (void)json_array_append_new(databases, json_string(text));
    }
}

static json_t *databases_of(const json_t *row)
{
    json_t *databases = copy_texts(row, ROW_DATABASES);

    for (size_t k = 0; k < N_KINDS; k++) {
        add_kind(row, k, databases);
    }
    return databases;
}

static json_t *labels_of(const json_t *row)
{
    json_t *labels = json_object();
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)item_map(row, ROW_LABELS), name, value)
    {
        const char *text = json_string_value(json_object_get(value, "S"));

        (void)json_object_set_new(labels, name, json_string(text == NULL ? "" : text));
    }
    return labels;
}

/* Of a row that belay has not written: it changes whenever the row changes. */
static uint64_t version_of(const json_t *row)
{
    return (ddb_hash_item(row, FNV_INIT) & ((UINT64_C(1) << 53) - 1)) | 1;
}

static json_t *json_text_or_null(const char *text)
{
    return text == NULL ? json_null() : json_string(text);
}

char *ddb_row_to_app(const json_t *row, uint64_t *out_version)
{
    const char *state = item_text(row, ROW_STATE);
    json_t *app = json_pack(
        "{s:o,s:o,s:o,s:o,s:s,s:o,s:o}", "name", json_text_or_null(item_text(row, "app_name")), "urls",
        urls_of(row), "databases", databases_of(row), "labels", labels_of(row), "state",
        state != NULL && *state != '\0' ? state : "running", "since",
        json_text_or_null(item_text(row, ROW_SINCE)), "by", json_text_or_null(item_text(row, ROW_BY)));
    char *text;

    if (item_bool(row, ROW_PUBLIC_ONLY) && json_object_set_new(app, "public_only", json_true()) != 0) {
        json_decref(app);
        app = NULL;
    }
    text = app == NULL ? NULL : json_dumps(app, JSON_COMPACT);
    json_decref(app);
    if (!item_uint(row, ROW_VERSION, out_version)) {
        *out_version = version_of(row);
    }
    return text;
}

/* ---- writing ---- */

static json_t *av_list(json_t *texts) /* takes it over */
{
    json_t *list = json_array();

    for (size_t i = 0; i < json_array_size(texts); i++) {
        (void)json_array_append_new(list, av_text(json_string_value(json_array_get(texts, i))));
    }
    json_decref(texts);
    return json_pack("{s:o}", "L", list);
}

/* "https://shop.example:8443/health" as "shop.example:8443". */
static json_t *hostnames_of(const json_t *urls)
{
    json_t *hosts = json_array();

    for (size_t i = 0; i < json_array_size(urls); i++) {
        const char *url = json_string_value(json_array_get(urls, i));
        const char *host = url == NULL ? NULL : strstr(url, "://");

        if (host != NULL) {
            (void)json_array_append_new(hosts, json_stringn(host + 3, strcspn(host + 3, "/?#")));
        }
    }
    return hosts;
}

static json_t *database_texts(const json_t *databases)
{
    json_t *texts = json_array();

    for (size_t i = 0; i < json_array_size(databases); i++) {
        const json_t *one = json_array_get(databases, i);
        const char *kind = json_string_value(json_object_get(one, "kind"));
        const char *id = json_string_value(json_object_get(one, "id"));
        const char *host = json_string_value(json_object_get(one, "host"));
        char text[TEXT_SIZE];

        (void)snprintf(text, sizeof text, "%.64s=%.255s%s%.255s", kind == NULL ? "" : kind,
                       id == NULL ? "" : id, host == NULL ? "" : "@", host == NULL ? "" : host);
        (void)json_array_append_new(texts, json_string(text));
    }
    return texts;
}

/* The first database of a kind, for programs that read postgres_host and postgres_port. */
static void set_kind(const json_t *databases, size_t k, struct expr *expr)
{
    for (size_t i = 0; i < json_array_size(databases); i++) {
        const json_t *one = json_array_get(databases, i);
        const char *kind = json_string_value(json_object_get(one, "kind"));
        const char *host = json_string_value(json_object_get(one, "host"));
        const char *place = host != NULL ? host : json_string_value(json_object_get(one, "id"));
        const char *colon = place == NULL ? NULL : strrchr(place, ':');
        char name[TEXT_SIZE];

        if (kind == NULL || strcmp(kind, kinds[k].kind) != 0 || colon == NULL) {
            continue;
        }
        (void)snprintf(name, sizeof name, "%.*s", (int)(colon - place), place);
        expr_set(expr, kinds[k].host, av_text(name));
        expr_set(expr, kinds[k].port, av_int(strtoll(colon + 1, NULL, 10)));
        return;
    }
    expr_remove(expr, kinds[k].host);
    expr_remove(expr, kinds[k].port);
}

static void set_labels(json_t *labels, struct expr *expr)
{
    json_t *map = json_object();
    const char *name;
    json_t *value;

    json_object_foreach(labels, name, value)
    {
        (void)json_object_set_new(map, name, av_text(json_string_value(value)));
    }
    expr_set(expr, ROW_LABELS, av_map(map));
}

static void set_optional(struct expr *expr, const char *attribute, const json_t *value)
{
    if (json_is_string(value)) {
        expr_set(expr, attribute, av_text(json_string_value(value)));
    } else {
        expr_remove(expr, attribute);
    }
}

bool ddb_app_to_row(const char *value, uint64_t version, struct expr *expr)
{
    json_t *app = json_loads(value, 0, NULL);
    json_t *urls = json_object_get(app, "urls");
    json_t *databases = json_object_get(app, "databases");
    const char *state = json_string_value(json_object_get(app, "state"));

    if (app == NULL || state == NULL) {
        json_decref(app);
        return false;
    }
    expr_set(expr, ROW_VERSION, av_uint(version));
    expr_set(expr, ROW_URLS, av_list(json_incref(urls)));
    expr_set(expr, "hostnames", av_list(hostnames_of(urls)));
    expr_set(expr, ROW_DATABASES, av_list(database_texts(databases)));
    for (size_t k = 0; k < N_KINDS; k++) {
        set_kind(databases, k, expr);
    }
    set_labels(json_object_get(app, "labels"), expr);
    expr_set(expr, ROW_STATE, av_text(state));
    expr_set(expr, "status", av_text(strcmp(state, "stopped") == 0 ? "DOWN" : "UP"));
    expr_set(expr, "last_updated", av_int(clock_unix_ms() / 1000));
    set_optional(expr, ROW_SINCE, json_object_get(app, "since"));
    set_optional(expr, ROW_BY, json_object_get(app, "by"));
    if (json_is_true(json_object_get(app, "public_only"))) {
        expr_set(expr, ROW_PUBLIC_ONLY, av_bool(true));
    } else {
        expr_remove(expr, ROW_PUBLIC_ONLY);
    }
    json_decref(app);
    return true;
}

void ddb_row_condition(const json_t *row, struct expr *expr)
{
    ddb_require_as_seen("app_name", row, expr);
    ddb_require_as_seen(ROW_VERSION, row, expr);
    ddb_require_as_seen("hostnames", row, expr);
    for (size_t k = 0; k < N_KINDS; k++) {
        ddb_require_as_seen(kinds[k].host, row, expr);
        ddb_require_as_seen(kinds[k].port, row, expr);
    }
}
