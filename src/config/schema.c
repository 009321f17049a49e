/* The schema of the configuration file. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/suggest.h"
#include "config/config.h"
#include "config/value.h"
#include "config/yaml_tree.h"

enum schema_shape {
    SHAPE_VALUE,
    SHAPE_LIST, /* of items as in `inside` */
    SHAPE_MAP,  /* with the names in `inside` */
    SHAPE_NAMED /* with names that the user chooses; each value as in `inside` */
};

struct schema_rule {
    const char *name;
    enum schema_shape shape;
    struct value_rule value;
    const struct schema_rule *inside;
    size_t n_inside;
};

#define SPAN_MAX BELAY_TTL_MAX_MS
#define VALUE(name, kind)                                                                                    \
    {                                                                                                        \
        name, SHAPE_VALUE, { kind, 0, 0 }, NULL, 0                                                           \
    }
#define RANGE(name, kind, min, max)                                                                          \
    {                                                                                                        \
        name, SHAPE_VALUE, { kind, min, max }, NULL, 0                                                       \
    }
#define LIST(name, item)                                                                                     \
    {                                                                                                        \
        name, SHAPE_LIST, { VALUE_TEXT, 0, 0 }, &(item), 1                                                   \
    }
#define MAP(name, names)                                                                                     \
    {                                                                                                        \
        name, SHAPE_MAP, { VALUE_TEXT, 0, 0 }, names, sizeof(names) / sizeof *(names)                        \
    }
#define NAMED(name, entry)                                                                                   \
    {                                                                                                        \
        name, SHAPE_NAMED, { VALUE_TEXT, 0, 0 }, &(entry), 1                                                 \
    }

/* clang-format off */
static const struct schema_rule text = VALUE("", VALUE_TEXT);
static const struct schema_rule argument = VALUE("", VALUE_ARGUMENT);
static const struct schema_rule key_name = VALUE("", VALUE_NAME);
static const struct schema_rule key_pattern = VALUE("", VALUE_PATTERN);
static const struct schema_rule event_name = VALUE("", VALUE_EVENT);

static const struct schema_rule profile_names[] = {
    RANGE("ttl", VALUE_DURATION, BELAY_TTL_MIN_MS, SPAN_MAX),
    VALUE("key", VALUE_TEMPLATE),
    LIST("components", key_name),
    LIST("environments", key_name),
    RANGE("heartbeat", VALUE_DURATION, 0, SPAN_MAX),
    RANGE("stale_after", VALUE_DURATION, 0, SPAN_MAX),
    RANGE("wait", VALUE_DURATION, 0, SPAN_MAX),
    RANGE("attempts", VALUE_NUMBER, 0, 1000000),
    VALUE("reentrant", VALUE_SWITCH),
    RANGE("slots", VALUE_NUMBER, 1, BELAY_HOLDERS_MAX),
};
static const struct schema_rule profile = MAP("", profile_names);

static const struct schema_rule controller_names[] = {
    VALUE("shared_db_lock_enabled", VALUE_SWITCH),
    RANGE("lock_ttl_seconds", VALUE_NUMBER, 1, SPAN_MAX / 1000),
    RANGE("lock_max_retries", VALUE_NUMBER, 0, 1000000),
    RANGE("quick_status_timeout", VALUE_NUMBER, 1, 3600),
    VALUE("quick_status_rule", VALUE_RULE),
    VALUE("api_gateway_url", VALUE_HTTP),
    LIST("quick_status_allow", text),
    RANGE("stopped_record_max_age", VALUE_DURATION, 1000, SPAN_MAX),
};

static const struct schema_rule http_names[] = {
    VALUE("method", VALUE_TEXT), VALUE("url", VALUE_HTTP), VALUE("body", VALUE_TEXT), VALUE("content_type", VALUE_TEXT),
};
static const struct schema_rule until_names[] = {
    LIST("command", argument),
    MAP("http", http_names),
    RANGE("every", VALUE_DURATION, 1, SPAN_MAX),
};
#define ACTION_NAMES                                                                                         \
    LIST("command", argument), MAP("http", http_names), VALUE("ec2", VALUE_EC2),                             \
        RANGE("timeout", VALUE_DURATION, 1, SPAN_MAX), MAP("until", until_names)
static const struct schema_rule stop_names[] = { ACTION_NAMES, VALUE("ends", VALUE_ENDS) };
static const struct schema_rule start_names[] = { ACTION_NAMES };
static const struct schema_rule database_names[] = { MAP("stop", stop_names), MAP("start", start_names) };
static const struct schema_rule database = MAP("", database_names);

static const struct schema_rule tls_names[] = { VALUE("certificate", VALUE_TEXT), VALUE("key", VALUE_TEXT) };
static const struct schema_rule token_names[] = {
    VALUE("name", VALUE_TEXT), VALUE("role", VALUE_TEXT), LIST("keys", text), VALUE("sha256", VALUE_TEXT),
    VALUE("webhook_secret_file", VALUE_TEXT),
};
static const struct schema_rule token = MAP("", token_names);
static const struct schema_rule terraform_names[] = {
    RANGE("lease", VALUE_DURATION, BELAY_TTL_MIN_MS, SPAN_MAX),
    VALUE("unlocked_writes", VALUE_SWITCH),
    VALUE("force_unlock", VALUE_TEXT),
};
static const struct schema_rule webhook_names[] = {
    LIST("allow", text),
    VALUE("secret_file", VALUE_TEXT),
    VALUE("ca_file", VALUE_TEXT),
    VALUE("file", VALUE_TEXT),
    RANGE("max", VALUE_NUMBER, 1, 100000),
};
static const struct schema_rule connection_names[] = {
    RANGE("max", VALUE_NUMBER, 64, 1000000),
    RANGE("per_address", VALUE_NUMBER, 1, 1000000),
    LIST("unlimited", text),
};
static const struct schema_rule server_names[] = {
    VALUE("listen", VALUE_TEXT), VALUE("url", VALUE_HTTP), MAP("tls", tls_names), LIST("tokens", token),
    MAP("webhooks", webhook_names),
    MAP("terraform", terraform_names), MAP("connections", connection_names),
};

/* src/server/notify/notify_settings.c interprets them. */
static const struct schema_rule notify_names[] = {
    VALUE("name", VALUE_LABEL),
    VALUE("format", VALUE_FORMAT),
    VALUE("url", VALUE_URL),
    VALUE("url_file", VALUE_TEXT),
    VALUE("url_env", VALUE_TEXT),
    VALUE("secret_file", VALUE_TEXT),
    VALUE("secret_env", VALUE_TEXT),
    LIST("events", event_name),
    LIST("keys", key_pattern),
    RANGE("held_longer_than", VALUE_DURATION, 1000, SPAN_MAX),
    RANGE("waited_longer_than", VALUE_DURATION, 1000, SPAN_MAX),
    VALUE("template", VALUE_MESSAGE),
    RANGE("max", VALUE_NUMBER, 1, 100000),
};
static const struct schema_rule notify_target = MAP("", notify_names);

/* src/store/dynamodb/dynamodb_custom_layout.c interprets them. */
static const struct schema_rule layout_names[] = {
    VALUE("key", VALUE_TEXT),
    VALUE("sort_key", VALUE_TEXT),
    VALUE("lock_id", VALUE_TEXT),
    VALUE("owner", VALUE_TEXT),
    VALUE("owner_name", VALUE_TEXT),
    VALUE("locked_at", VALUE_TEXT),
    VALUE("expires_at", VALUE_TEXT),
    VALUE("heartbeat_at", VALUE_TEXT),
    VALUE("released_at", VALUE_TEXT),
    VALUE("metadata", VALUE_TEXT),
    VALUE("ttl", VALUE_TEXT),
    VALUE("status", VALUE_TEXT),
    VALUE("held", VALUE_TEXT),
    VALUE("completed", VALUE_TEXT),
    VALUE("failed", VALUE_TEXT),
    VALUE("forced", VALUE_TEXT),
    VALUE("release", VALUE_TEXT),
    VALUE("line_prefix", VALUE_TEXT),
    LIST("constants", text),
    LIST("attributes", text),
    RANGE("heartbeat", VALUE_DURATION, 0, SPAN_MAX),
    RANGE("stale_after", VALUE_DURATION, 0, SPAN_MAX),
};
static const struct schema_rule layout = MAP("", layout_names);

static const struct schema_rule audit_names[] = { VALUE("file", VALUE_TEXT) };
static const struct schema_rule metrics_names[] = { VALUE("emf", VALUE_TEXT), VALUE("statsd", VALUE_TEXT) };

static const struct schema_rule state_names[] = {
    RANGE("keep_snapshots", VALUE_NUMBER, 1, 1000000),
    RANGE("keep_for", VALUE_DURATION, 1, SPAN_MAX),
};

static const struct schema_rule top_names[] = {
    VALUE("store", VALUE_STORE),
    VALUE("state_store", VALUE_STORE),
    MAP("state", state_names),
    VALUE("locking_enabled", VALUE_SWITCH),
    VALUE("auth_file", VALUE_TEXT),
    VALUE("ca_file", VALUE_TEXT),
    NAMED("profiles", profile),
    MAP("controller", controller_names),
    NAMED("databases", database),
    NAMED("layouts", layout),
    MAP("server", server_names),
    LIST("notify", notify_target),
    MAP("audit", audit_names),
    MAP("metrics", metrics_names),
};
static const struct schema_rule top = MAP("", top_names);

/* The schema of a file found in the working directory: nothing in it names a file, a host or a program. */
static const struct schema_rule found_names[] = { NAMED("profiles", profile) };
static const struct schema_rule top_found = MAP("", found_names);
/* clang-format on */

enum { NAMES_MAX = 32, CHOSEN_NAME_MAX = 64, DOTTED_SIZE = 512 };

struct schema_walk {
    struct belay_config *config;
    const struct config_source *source;
    struct belay_error *err;
};

static enum belay_code read_node(struct schema_walk *walk, const struct schema_rule *rule, const char *name,
                                 const struct yaml_node *node);

/* ---- errors ------------------------------------------------------------ */

static const char *shown(const char *name)
{
    return *name == '\0' ? "the file" : name;
}

static enum belay_code fail_shape(struct schema_walk *walk, const char *name, size_t line, const char *what)
{
    return error_set(walk->err, BELAY_CONFIG, "%s:%zu: %s %s", walk->source->path, line, shown(name), what);
}

static enum belay_code fail_unknown_name(struct schema_walk *walk, const struct schema_rule *rule,
                                         const char *name, const struct yaml_node *item)
{
    const char *names[NAMES_MAX];
    struct buf known = BUF_INIT(600);
    const char *suggestion;

    assert(rule->n_inside <= NAMES_MAX);
    for (size_t i = 0; i < rule->n_inside; i++) {
        names[i] = rule->inside[i].name;
        buf_addf(&known, "%s%s", i == 0 ? "" : ", ", names[i]);
    }
    suggestion = suggest_name(item->name, names, rule->n_inside);
    if (suggestion != NULL) {
        (void)error_set(walk->err, BELAY_CONFIG, "%s:%zu: %s has no '%s'; did you mean '%s'?",
                        walk->source->path, item->line, shown(name), value_shown(item->name), suggestion);
    } else {
        (void)error_set(walk->err, BELAY_CONFIG, "%s:%zu: %s has no '%s'; it can have %s", walk->source->path,
                        item->line, shown(name), value_shown(item->name),
                        known.data == NULL ? "" : known.data);
    }
    buf_release(&known);
    return BELAY_CONFIG;
}

/* ---- reading ----------------------------------------------------------- */

static enum belay_code set_from_value(struct schema_walk *walk, const struct schema_rule *rule,
                                      const char *name, const struct yaml_node *node)
{
    struct buf origin = BUF_INIT(VALUE_TEXT_MAX);
    const char *value = node->text;
    char why[VALUE_WHY_SIZE], space[STORE_URL_SHOWN];
    enum belay_code code;
    bool is_on;

    if (node->kind == YAML_NODE_EMPTY) {
        return fail_shape(walk, name, node->line, "has no value; give it one or remove it");
    }
    if (node->kind != YAML_NODE_TEXT) {
        return fail_shape(walk, name, node->line, "must be a single value, not a list or a map");
    }
    if (!value_is_valid(&rule->value, value, why)) {
        return error_set(walk->err, BELAY_CONFIG, "%s:%zu: %s: '%s' %s", walk->source->path, node->line, name,
                         value_shown_of(&rule->value, value, space), why);
    }
    if (rule->value.kind == VALUE_SWITCH && value_parse_switch(value, &is_on)) {
        value = is_on ? "true" : "false";
    }
    buf_addf(&origin, "%s:%zu", walk->source->path, node->line);
    code = origin.failed ? error_no_memory(walk->err)
                         : config_set(walk->config, name, value, origin.data, walk->err);
    buf_release(&origin);
    return code;
}

static enum belay_code read_inside(struct schema_walk *walk, const struct schema_rule *rule, const char *name,
                                   const char *last, const struct yaml_node *node)
{
    char dotted[DOTTED_SIZE];

    (void)snprintf(dotted, sizeof dotted, "%s%s%s", name, *name == '\0' ? "" : ".", last);
    return read_node(walk, rule, dotted, node);
}

static enum belay_code read_items(struct schema_walk *walk, const struct schema_rule *rule, const char *name,
                                  const struct yaml_node *node)
{
    enum belay_code code = BELAY_OK;

    if (node->kind != YAML_NODE_LIST) {
        return fail_shape(walk, name, node->line, "must be a list, such as [a, b]");
    }
    /* An empty list is ambiguous: it could mean "nothing is allowed" or "no restriction". */
    if (node->n == 0) {
        return fail_shape(walk, name, node->line, "is an empty list; add an item or remove it");
    }
    for (size_t i = 0; code == BELAY_OK && i < node->n; i++) {
        const struct yaml_node *item = &node->items[i];
        char index[24];

        if (rule->inside->shape == SHAPE_MAP && item->n == 0 && item->kind != YAML_NODE_TEXT) {
            return fail_shape(walk, name, item->line, "has an empty item; fill it or remove it");
        }
        (void)snprintf(index, sizeof index, "%zu", i);
        code = read_inside(walk, rule->inside, name, index, item);
    }
    return code;
}

static const struct schema_rule *find_rule(const struct schema_rule *rule, const char *name)
{
    for (size_t i = 0; i < rule->n_inside; i++) {
        if (strcmp(rule->inside[i].name, name) == 0) {
            return &rule->inside[i];
        }
    }
    return NULL;
}

/* The name becomes part of a dotted name and is used on command lines. */
static bool is_chosen_name(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");

    return n > 0 && n <= CHOSEN_NAME_MAX && name[n] == '\0' && name[0] != '-';
}

static enum belay_code read_chosen_name(struct schema_walk *walk, const struct schema_rule *rule,
                                        const char *name, const struct yaml_node *item)
{
    if (!is_chosen_name(item->name)) {
        return error_set(walk->err, BELAY_CONFIG,
                         "%s:%zu: %s: invalid name '%s'; use at most %d letters, digits, '_' and '-'",
                         walk->source->path, item->line, name, value_shown(item->name), CHOSEN_NAME_MAX);
    }
    if (item->kind == YAML_NODE_EMPTY || (item->kind == YAML_NODE_MAP && item->n == 0)) {
        return error_set(walk->err, BELAY_CONFIG, "%s:%zu: %s.%s is empty; add a setting or remove it",
                         walk->source->path, item->line, name, item->name);
    }
    if (walk->source->is_found) {
        char prefix[DOTTED_SIZE];
        enum belay_code code;

        /* It replaces a profile of this name from the installed file: their lists must not be merged. */
        (void)snprintf(prefix, sizeof prefix, "%s.%s.", name, item->name);
        code = config_reset(walk->config, prefix, walk->err);
        if (code != BELAY_OK) {
            return code;
        }
    }
    return read_inside(walk, rule->inside, name, item->name, item);
}

static enum belay_code read_map(struct schema_walk *walk, const struct schema_rule *rule, const char *name,
                                const struct yaml_node *node)
{
    enum belay_code code = BELAY_OK;

    /* All settings below the heading are commented out. */
    if (node->kind == YAML_NODE_EMPTY) {
        return BELAY_OK;
    }
    if (node->kind != YAML_NODE_MAP) {
        return fail_shape(walk, name, node->line, "must be a map (NAME: VALUE)");
    }
    for (size_t i = 0; code == BELAY_OK && i < node->n; i++) {
        const struct yaml_node *item = &node->items[i];
        const struct schema_rule *inside = find_rule(rule, item->name);

        if (rule->shape == SHAPE_NAMED) {
            code = read_chosen_name(walk, rule, name, item);
        } else if (inside == NULL) {
            code = fail_unknown_name(walk, rule, name, item);
        } else {
            code = read_inside(walk, inside, name, item->name, item);
        }
    }
    return code;
}

static enum belay_code read_node(struct schema_walk *walk, const struct schema_rule *rule, const char *name,
                                 const struct yaml_node *node)
{
    switch (rule->shape) {
    case SHAPE_VALUE:
        return set_from_value(walk, rule, name, node);
    case SHAPE_LIST:
        return read_items(walk, rule, name, node);
    case SHAPE_MAP:
    case SHAPE_NAMED:
        break;
    }
    return read_map(walk, rule, name, node);
}

enum belay_code config_read_yaml(struct belay_config *config, const struct config_source *source,
                                 const struct yaml_node *root, struct belay_error *err)
{
    struct schema_walk walk = { config, source, err };

    for (size_t i = 0; source->is_found && root->kind == YAML_NODE_MAP && i < root->n; i++) {
        const char *name = root->items[i].name;

        if (find_rule(&top, name) != NULL && find_rule(&top_found, name) == NULL) {
            return error_set(err, BELAY_CONFIG,
                             "%s:%zu: '%s' is not permitted in a file found in the working directory, "
                             "which may only define profiles; if you trust the file, name it with "
                             "--config %s or BELAY_CONFIG",
                             source->path, root->items[i].line, name, source->path);
        }
    }
    return read_node(&walk, source->is_found ? &top_found : &top, "", root);
}
