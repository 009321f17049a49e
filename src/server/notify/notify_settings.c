/* `notify` of the configuration. src/config has checked each value; here they are checked together. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/notify_words.h"
#include "base/secret.h"
#include "base/text.h"
#include "server/notify/notify_internal.h"

/* One entry that is being read. */
struct entry {
    const struct server *server;
    const struct belay_config *config;
    size_t i;
    struct notify_settings *settings;
};

/* ---- references ---- */

struct notify_settings *notify_settings_keep(struct notify_settings *settings)
{
    settings->n_refs++;
    return settings;
}

void notify_settings_drop(struct notify_settings *settings)
{
    assert(settings == NULL || settings->n_refs > 0);
    if (settings == NULL || --settings->n_refs > 0) {
        return;
    }
    for (size_t i = 0; i < settings->n_keys; i++) {
        free(settings->keys[i]);
    }
    free(settings->url);
    free(settings->template);
    free(settings->dashboard);
    free(settings);
}

void notify_targets_free(struct notify_targets *targets)
{
    for (size_t i = 0; targets != NULL && i < targets->n; i++) {
        notify_settings_drop(targets->items[i]);
    }
    free(targets);
}

/* ---- reading ---- */

static const char *entry_get(const struct entry *entry, const char *name)
{
    char dotted[64];

    (void)snprintf(dotted, sizeof dotted, "notify.%zu.%s", entry->i, name);
    return belay_config_get(entry->config, dotted);
}

static const char *entry_get_nth(const struct entry *entry, const char *list, size_t n)
{
    char name[40];

    (void)snprintf(name, sizeof name, "%s.%zu", list, n);
    return entry_get(entry, name);
}

static enum belay_code fail_entry(const struct entry *entry, const char *what, struct belay_error *err)
{
    return error_set(err, BELAY_CONFIG, "notify.%zu: %s", entry->i, what);
}

/* A secret that is written in the file (`name`), in a file of its own (name_file) or in a variable (name_env). */
static enum belay_code read_entry_secret(const struct entry *entry, const char *name, char *out, size_t size,
                                         struct belay_error *err)
{
    char file_name[24], env_name[24], what[64];
    const char *given = entry_get(entry, name);
    const char *file, *env;

    (void)snprintf(file_name, sizeof file_name, "%s_file", name);
    (void)snprintf(env_name, sizeof env_name, "%s_env", name);
    file = entry_get(entry, file_name);
    env = entry_get(entry, env_name);
    *out = '\0';
    if ((given != NULL) + (file != NULL) + (env != NULL) > 1) {
        return error_set(err, BELAY_CONFIG, "notify.%zu: give one of %s, %s and %s", entry->i, name,
                         file_name, env_name);
    }
    if (file != NULL) {
        (void)snprintf(what, sizeof what, "notify.%zu.%s", entry->i, file_name);
        return secret_read(file, out, size, err) == BELAY_OK ? BELAY_OK : error_wrap(err, "%s", what);
    }
    if (env != NULL) {
        given = getenv(env);
        if (given == NULL || *given == '\0') {
            return error_set(err, BELAY_CONFIG, "notify.%zu.%s: the variable '%.60s' is not set", entry->i,
                             env_name, env);
        }
    }
    if (given != NULL && (strlen(given) >= size || !text_is_clean(given, size))) {
        return error_set(err, BELAY_CONFIG, "notify.%zu: the %s is not one line of less than %zu bytes",
                         entry->i, name, size);
    }
    (void)snprintf(out, size, "%s", given == NULL ? "" : given);
    return BELAY_OK;
}

/* Several entries may have one URL, with different filters: the k-th of them has an id of its own. */
static void make_target_id(struct notify_settings *settings, size_t k)
{
    unsigned char hash[AUTH_HASH_BYTES];
    char text[WEBHOOK_URL_MAX + 32];

    (void)snprintf(text, sizeof text, "%s %zu", settings->url, k);
    token_hash(text, strlen(text), hash);
    text_hex(settings->id, hash, (NOTIFY_ID_SIZE - 1) / 2);
}

static enum belay_code read_url(struct entry *entry, struct belay_error *err)
{
    struct notify_settings *settings = entry->settings;
    struct belay_error why = BELAY_ERROR_INIT;
    char url[WEBHOOK_URL_MAX + 1];
    enum belay_code code = read_entry_secret(entry, "url", url, sizeof url, err);

    if (code != BELAY_OK) {
        return code;
    }
    if (*url == '\0') {
        return fail_entry(entry, "url is missing; give url, url_file or url_env", err);
    }
    settings->url = strdup(url);
    if (settings->url == NULL) {
        return error_no_memory(err);
    }
    code = webhook_check_url(&entry->server->webhooks->settings, url, settings->host, &why);
    if (code != BELAY_OK) {
        const char *text = why.text;

        text += text_has_prefix(text, "webhook.") ? strlen("webhook.") : 0;
        code = error_set(err, BELAY_CONFIG, "notify.%zu.%.400s", entry->i, text);
    }
    belay_error_release(&why);
    return code;
}

static bool *wants(struct notify_settings *settings, const char *event)
{
    size_t i = word_find(&notify_events, event, strlen(event));

    return i < notify_events.n ? &settings->wants[i] : NULL;
}

/* Whether an event is wanted, and its duration is given, or neither. */
static enum belay_code check_long_event(const struct entry *entry, const char *event, const char *setting,
                                        int64_t ms, struct belay_error *err)
{
    bool is_wanted = *wants(entry->settings, event);

    if (is_wanted == (ms > 0)) {
        return BELAY_OK;
    }
    return is_wanted ? error_set(err, BELAY_CONFIG, "notify.%zu: the event %s needs %s: how long is that?",
                                 entry->i, event, setting)
                     : error_set(err, BELAY_CONFIG, "notify.%zu: %s needs %s among the events", entry->i,
                                 setting, event);
}

static enum belay_code read_event_filter(struct entry *entry, struct belay_error *err)
{
    static const char *const usual[] = { "lock.forced",  "lock.stale",      "lock.taken_over",
                                         "lock.lost",    "lock.expired",    "freeze.begun",
                                         "freeze.ended", "db.stop.stopped", "db.stop.error" };
    struct notify_settings *settings = entry->settings;
    const char *event;
    enum belay_code code;

    for (size_t n = 0; (event = entry_get_nth(entry, "events", n)) != NULL; n++) {
        *wants(settings, event) = true; /* src/config knows it */
    }
    if (entry_get_nth(entry, "events", 0) == NULL) {
        for (size_t n = 0; n < sizeof usual / sizeof usual[0]; n++) {
            *wants(settings, usual[n]) = true;
        }
        *wants(settings, "held.long") = settings->held_ms > 0;
        *wants(settings, "wait.long") = settings->wait_ms > 0;
    }
    code = check_long_event(entry, "held.long", "held_longer_than", settings->held_ms, err);
    return code == BELAY_OK
               ? check_long_event(entry, "wait.long", "waited_longer_than", settings->wait_ms, err)
               : code;
}

static enum belay_code read_key_filter(const struct entry *entry, struct belay_error *err)
{
    struct notify_settings *settings = entry->settings;
    const char *pattern;

    for (size_t n = 0; (pattern = entry_get_nth(entry, "keys", n)) != NULL; n++) {
        if (n == NOTIFY_KEYS_MAX) {
            return fail_entry(entry, "more than 64 keys", err);
        }
        settings->keys[n] = strdup(pattern);
        if (settings->keys[n] == NULL) {
            return error_no_memory(err);
        }
        settings->n_keys++;
    }
    return BELAY_OK;
}

static enum belay_code read_template(const struct entry *entry, struct belay_error *err)
{
    struct notify_settings *settings = entry->settings;
    const char *template = entry_get(entry, "template");
    const char *dashboard = belay_config_get(entry->config, "server.url");

    if (template != NULL && settings->format == NOTIFY_JSON) {
        return fail_entry(entry, "template is for the formats slack and teams", err);
    }
    settings->template = template == NULL ? NULL : strdup(template);
    settings->dashboard = strdup(dashboard == NULL ? "" : dashboard);
    if (settings->dashboard == NULL || (template != NULL && settings->template == NULL)) {
        return error_no_memory(err);
    }
    for (size_t n = strlen(settings->dashboard); n > 0 && settings->dashboard[n - 1] == '/'; n--) {
        settings->dashboard[n - 1] = '\0';
    }
    return BELAY_OK;
}

static enum belay_code read_secrets(const struct entry *entry, struct belay_error *err)
{
    struct notify_settings *settings = entry->settings;
    enum belay_code code = read_entry_secret(entry, "secret", settings->secret, sizeof settings->secret, err);

    if (code == BELAY_OK && *settings->secret != '\0' && settings->format != NOTIFY_JSON) {
        return fail_entry(entry, "a secret signs the format json; slack and teams do not check it", err);
    }
    return code;
}

static void read_limits(const struct entry *entry)
{
    struct notify_settings *settings = entry->settings;
    const char *held = entry_get(entry, "held_longer_than");
    const char *wait = entry_get(entry, "waited_longer_than");
    const char *max = entry_get(entry, "max");

    (void)(held != NULL && belay_parse_duration(held, &settings->held_ms));
    (void)(wait != NULL && belay_parse_duration(wait, &settings->wait_ms));
    settings->max = max == NULL ? NOTIFY_DEFAULT_MAX : strtoul(max, NULL, 10);
}

static enum belay_code read_notify_target(struct entry *entry, struct belay_error *err)
{
    struct notify_settings *settings = entry->settings;
    const char *format = entry_get(entry, "format");
    const char *name = entry_get(entry, "name");
    enum belay_code code;

    if (format == NULL) {
        return fail_entry(entry, "format is missing; write slack, teams or json", err);
    }
    settings->format = (enum notify_format)word_find(&notify_formats, format, strlen(format));
    if (name != NULL) {
        (void)snprintf(settings->name, sizeof settings->name, "%s", name);
    } else {
        (void)snprintf(settings->name, sizeof settings->name, "%.16s-%zu", format, entry->i);
    }
    read_limits(entry);
    code = read_url(entry, err);
    code = code == BELAY_OK ? read_secrets(entry, err) : code;
    code = code == BELAY_OK ? read_event_filter(entry, err) : code;
    code = code == BELAY_OK ? read_key_filter(entry, err) : code;
    return code == BELAY_OK ? read_template(entry, err) : code;
}

/* The id identifies a target in the file and on reload; the name does in logs and metrics. */
static enum belay_code identify_target(const struct notify_targets *targets, struct belay_error *err)
{
    size_t last = targets->n - 1;
    size_t k = 0;

    for (size_t i = 0; i < last; i++) {
        k += strcmp(targets->items[i]->url, targets->items[last]->url) == 0;
        if (strcmp(targets->items[i]->name, targets->items[last]->name) == 0) {
            return error_set(err, BELAY_CONFIG, "notify.%zu and notify.%zu have the same name '%s'", i, last,
                             targets->items[i]->name);
        }
    }
    make_target_id(targets->items[last], k);
    return BELAY_OK;
}

static bool has_entry(const struct belay_config *config, size_t i)
{
    char prefix[32];

    (void)snprintf(prefix, sizeof prefix, "notify.%zu.", i);
    for (size_t n = 0; n < belay_config_count(config); n++) {
        if (text_has_prefix(belay_config_setting(config, n).name, prefix)) {
            return true;
        }
    }
    return false;
}

enum belay_code notify_targets_load(const struct server *server, const struct belay_config *config,
                                    struct notify_targets **out, struct belay_error *err)
{
    struct notify_targets *targets = calloc(1, sizeof *targets);
    enum belay_code code = targets == NULL ? error_no_memory(err) : BELAY_OK;

    for (size_t i = 0; code == BELAY_OK && has_entry(config, i); i++) {
        struct entry entry = { .server = server, .config = config, .i = i };

        if (i == NOTIFY_TARGETS_MAX) {
            code = error_set(err, BELAY_CONFIG, "notify: more than %d entries", NOTIFY_TARGETS_MAX);
            break;
        }
        entry.settings = calloc(1, sizeof *entry.settings);
        if (entry.settings == NULL) {
            code = error_no_memory(err);
            break;
        }
        targets->items[targets->n++] = notify_settings_keep(entry.settings);
        code = read_notify_target(&entry, err);
        code = code == BELAY_OK ? identify_target(targets, err) : code;
    }
    if (code != BELAY_OK) {
        notify_targets_free(targets);
        return code;
    }
    *out = targets;
    return BELAY_OK;
}

/* ---- filters ---- */

bool notify_wants_event(const struct notify_settings *settings, const char *type)
{
    size_t i = word_find(&notify_events, type, strlen(type));

    return i < notify_events.n && settings->wants[i];
}

static bool meets_a_key(const struct notify_settings *settings, const char *key,
                        bool (*meets)(const char *key, const char *pattern))
{
    for (size_t i = 0; i < settings->n_keys; i++) {
        if (meets(key, settings->keys[i])) {
            return true;
        }
    }
    return settings->n_keys == 0;
}

bool notify_wants_key(const struct notify_settings *settings, const char *key)
{
    return meets_a_key(settings, key, text_matches);
}

bool notify_wants(const struct notify_settings *settings, const char *type, const char *key)
{
    return notify_wants_event(settings, type) &&
           meets_a_key(settings, key, text_has_prefix(type, "freeze.") ? text_patterns_meet : text_matches);
}

/* A scan also finds stale locks: without one, they are found when a client reads them. */
bool notify_wants_scan(const struct notify_settings *settings)
{
    return settings->held_ms > 0 || settings->wait_ms > 0 || notify_wants_event(settings, "lock.expired") ||
           notify_wants_event(settings, "lock.stale");
}

void notify_settings_describe(const struct notify_settings *settings, struct buf *out)
{
    const char *separator = "";

    buf_addf(out, "%s: %s to %s: ", settings->name, notify_formats.words[settings->format], settings->host);
    for (size_t i = 0; i < notify_events.n; i++) {
        if (settings->wants[i]) {
            buf_addf(out, "%s%s", separator, notify_events.words[i]);
            separator = ", ";
        }
    }
    buf_adds(out, settings->n_keys == 0 ? " of all keys" : " of ");
    for (size_t i = 0; i < settings->n_keys; i++) {
        buf_addf(out, "%s'%s'", i == 0 ? "" : ", ", settings->keys[i]);
    }
    if (settings->format == NOTIFY_JSON) {
        buf_adds(out, *settings->secret == '\0' ? "; not signed" : "; signed");
    }
}
