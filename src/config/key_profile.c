#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "config/config.h"

static const char *const builtin_names[] = { "build", "database", "deploy", "execution", "stack" };
enum { N_BUILTIN_NAMES = sizeof builtin_names / sizeof builtin_names[0] };

/* ---- reading one out of the settings ----------------------------------- */

/* The part after "profiles.NAME."; NULL if the setting is not of that profile. */
static const char *field_of(const char *setting, const char *profile)
{
    size_t n = strlen(profile);

    if (!text_has_prefix(setting, "profiles.")) {
        return NULL;
    }
    setting += strlen("profiles.");
    return strncmp(setting, profile, n) == 0 && setting[n] == '.' ? setting + n + 1 : NULL;
}

/* The values are valid: they were checked when they were set. */
static void set_field(struct belay_profile *values, const char *field, const char *value)
{
    if (strcmp(field, "ttl") == 0) {
        (void)belay_parse_duration(value, &values->ttl_ms);
    } else if (strcmp(field, "heartbeat") == 0) {
        (void)belay_parse_duration(value, &values->heartbeat_ms);
    } else if (strcmp(field, "stale_after") == 0) {
        (void)belay_parse_duration(value, &values->stale_after_ms);
    } else if (strcmp(field, "wait") == 0) {
        (void)belay_parse_duration(value, &values->wait_ms);
    } else if (strcmp(field, "attempts") == 0) {
        values->attempts = (int)strtol(value, NULL, 10);
    } else if (strcmp(field, "slots") == 0) {
        values->slots = (int)strtol(value, NULL, 10);
    } else if (strcmp(field, "reentrant") == 0) {
        values->reentrant = strcmp(value, "true") == 0;
    } else if (strcmp(field, "key") == 0) {
        values->key_template = value;
    }
}

static struct config_profile read_values(const struct belay_setting *settings, size_t n, const char *name)
{
    struct config_profile profile = { .values = { .name = name } };

    for (size_t i = 0; i < n; i++) {
        const char *field = field_of(settings[i].name, name);

        if (field != NULL) {
            set_field(&profile.values, field, settings[i].value);
        }
    }
    profile.scheme.profile = name;
    profile.scheme.template = profile.values.key_template;
    return profile;
}

/* The values of "profiles.NAME.LIST.0" and so on. False: out of memory. */
static bool read_profile_list(const struct belay_setting *settings, size_t n, const char *name,
                              const char *list, const char *const **out_items, size_t *out_n)
{
    const char **items = calloc(n + 1, sizeof *items);
    size_t n_items = 0;

    if (items == NULL) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const char *field = field_of(settings[i].name, name);

        if (field != NULL && text_has_prefix(field, list) && field[strlen(list)] == '.') {
            items[n_items++] = settings[i].value;
        }
    }
    *out_items = items;
    *out_n = n_items;
    return true;
}

void config_profile_release(struct config_profile *profile)
{
    free((char *)profile->values.name);
    free((void *)profile->scheme.components);
    free((void *)profile->scheme.environments);
    memset(profile, 0, sizeof *profile);
}

/* ---- checking ---------------------------------------------------------- */

/*
 * The heartbeat of a profile whose ttl is replaced. A heartbeat of more than half the ttl keeps its share of the ttl
 * (execution: 80 %, S2.5); a shorter one stays as it is, unless the new ttl is too short for it.
 */
static int64_t scale_heartbeat(int64_t heartbeat_ms, int64_t ttl_ms, int64_t new_ttl_ms)
{
    if (heartbeat_ms <= 0 || ttl_ms <= 0 || new_ttl_ms <= 0 || new_ttl_ms == ttl_ms) {
        return heartbeat_ms;
    }
    if (heartbeat_ms > ttl_ms / 2) {
        return (int64_t)((double)new_ttl_ms * (double)heartbeat_ms / (double)ttl_ms);
    }
    return heartbeat_ms > new_ttl_ms / 2 ? new_ttl_ms / 4 : heartbeat_ms;
}

static const struct belay_setting *find_profile_setting(const struct belay_config *config,
                                                        const char *profile, const char *field)
{
    char name[256];

    (void)snprintf(name, sizeof name, "profiles.%s.%s", profile, field);
    return config_find(config, name);
}

static bool is_default(const struct belay_setting *setting)
{
    return setting == NULL || strcmp(setting->origin, "default") == 0;
}

/* A file that changes only the ttl of a built-in profile must not get an error about its default heartbeat. */
static enum belay_code scale_default_heartbeat(struct belay_config *config, const char *profile,
                                               struct belay_error *err)
{
    const struct belay_setting *ttl = find_profile_setting(config, profile, "ttl");
    const struct belay_setting *heartbeat = find_profile_setting(config, profile, "heartbeat");
    const struct belay_setting *old_ttl = find_profile_setting(NULL, profile, "ttl");
    int64_t ttl_ms = 0, heartbeat_ms = 0, old_ttl_ms = 0;
    char name[256], text[CLOCK_TEXT_SIZE];

    if (is_default(ttl) || heartbeat == NULL || !is_default(heartbeat) || old_ttl == NULL) {
        return BELAY_OK;
    }
    (void)belay_parse_duration(ttl->value, &ttl_ms);
    (void)belay_parse_duration(heartbeat->value, &heartbeat_ms);
    (void)belay_parse_duration(old_ttl->value, &old_ttl_ms);
    (void)clock_format_duration(text, scale_heartbeat(heartbeat_ms, old_ttl_ms, ttl_ms));
    (void)snprintf(name, sizeof name, "profiles.%s.heartbeat", profile);
    return config_set(config, name, text, "default", err);
}

/* Two values contradict each other; the error names the line of the one that is not a default. */
static enum belay_code fail_pair(const struct belay_config *config, const char *profile, const char *field,
                                 const char *relation, const char *other, struct belay_error *err)
{
    const struct belay_setting *a = find_profile_setting(config, profile, field);
    const struct belay_setting *b = find_profile_setting(config, profile, other);

    return error_set(err, BELAY_CONFIG, "%s: %s: %s must be %s %s, which is %s%s",
                     is_default(a) ? b->origin : a->origin, a->name, a->value, relation, other, b->value,
                     is_default(b) ? " by default" : "");
}

static enum belay_code check_profile_times(const struct belay_config *config,
                                           const struct belay_profile *values, struct belay_error *err)
{
    if (values->ttl_ms > 0 && values->heartbeat_ms >= values->ttl_ms) {
        return fail_pair(config, values->name, "heartbeat", "less than", "ttl", err);
    }
    if (values->stale_after_ms > 0 && values->stale_after_ms < values->heartbeat_ms) {
        return fail_pair(config, values->name, "stale_after", "at least", "heartbeat", err);
    }
    return BELAY_OK;
}

/* ---- all of them ------------------------------------------------------- */

/* Add the profile with the `n` settings from `first` on. Takes ownership of `name`. */
static enum belay_code add_profile(struct belay_config *config, char *name, size_t first, size_t n,
                                   struct belay_error *err)
{
    const struct belay_setting *settings = config->settings + first;
    struct config_profile *profile = &config->profiles[config->n_profiles++];
    struct key_scheme *scheme = &profile->scheme;
    enum belay_code code;

    assert(config->n_profiles <= config->n_settings);
    profile->values.name = name;
    code = scale_default_heartbeat(config, name, err);
    if (code != BELAY_OK) {
        return code;
    }
    *profile = read_values(settings, n, name);
    if (!read_profile_list(settings, n, name, "components", &scheme->components, &scheme->n_components) ||
        !read_profile_list(settings, n, name, "environments", &scheme->environments,
                           &scheme->n_environments)) {
        return error_no_memory(err);
    }
    return check_profile_times(config, &profile->values, err);
}

enum belay_code config_make_profiles(struct belay_config *config, struct belay_error *err)
{
    static const char heading[] = "profiles.";
    enum belay_code code = BELAY_OK;
    size_t n;

    assert(config->profiles == NULL);
    config->profiles = calloc(config->n_settings, sizeof *config->profiles);
    if (config->profiles == NULL) {
        return error_no_memory(err);
    }
    for (size_t i = 0; code == BELAY_OK && i < config->n_settings; i += n) {
        const char *rest = config->settings[i].name + strlen(heading);
        char *name;

        n = 1;
        if (!text_has_prefix(config->settings[i].name, heading)) {
            continue;
        }
        name = strndup(rest, strcspn(rest, "."));
        if (name == NULL) {
            return error_no_memory(err);
        }
        while (i + n < config->n_settings && field_of(config->settings[i + n].name, name) != NULL) {
            n++; /* the settings of a profile are adjacent */
        }
        code = add_profile(config, name, i, n, err);
    }
    return code;
}

static struct config_profile builtin_profiles[N_BUILTIN_NAMES];

static void make_builtin(void)
{
    for (size_t i = 0; i < N_BUILTIN_NAMES; i++) {
        builtin_profiles[i] = read_values(config_builtin, config_n_builtin, builtin_names[i]);
    }
}

const struct config_profile *config_profiles(const struct belay_config *config, size_t *out_n)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if (config != NULL && config->profiles != NULL) {
        *out_n = config->n_profiles;
        return config->profiles;
    }
    (void)pthread_once(&once, make_builtin);
    *out_n = N_BUILTIN_NAMES;
    return builtin_profiles;
}

const struct config_profile *config_profile_find(const struct belay_config *config, const char *name,
                                                 struct belay_error *err)
{
    size_t n;
    const struct config_profile *profiles = config_profiles(config, &n);
    struct buf known = BUF_INIT(sizeof err->text);

    for (size_t i = 0; i < n; i++) {
        if (strcmp(profiles[i].values.name, name) == 0) {
            return &profiles[i];
        }
    }
    for (size_t i = 0; i < n; i++) {
        buf_addf(&known, "%s%s", i == 0 ? "" : ", ", profiles[i].values.name);
    }
    (void)error_set(err, BELAY_INVALID, "unknown profile '%.64s'; known profiles: %s",
                    text_is_clean(name, BELAY_KEY_MAX) ? name : "", known.data == NULL ? "" : known.data);
    buf_release(&known);
    return NULL;
}

enum belay_code belay_config_profile(const struct belay_config *config, const char *name,
                                     struct belay_profile *out_profile, struct belay_error *err)
{
    const struct config_profile *profile;

    if (name == NULL || out_profile == NULL) {
        return error_set(err, BELAY_INVALID, "no profile given");
    }
    profile = config_profile_find(config, name, err);
    if (profile == NULL) {
        return BELAY_INVALID;
    }
    *out_profile = profile->values;
    return BELAY_OK;
}

void belay_profile_apply(const struct belay_profile *profile, struct belay_lock_options *options)
{
    if (profile == NULL || options == NULL) {
        return;
    }
    if (options->ttl_ms == 0) {
        options->ttl_ms = profile->ttl_ms;
    }
    if (options->heartbeat_ms == 0) {
        options->heartbeat_ms = scale_heartbeat(profile->heartbeat_ms, profile->ttl_ms, options->ttl_ms);
    }
    /* A stale_after shorter than the heartbeat would flag every holder; unset means four heartbeats. */
    if (options->stale_after_ms == 0 && profile->stale_after_ms >= options->heartbeat_ms) {
        options->stale_after_ms = profile->stale_after_ms;
    }
    if (options->wait_ms == 0) {
        options->wait_ms = profile->wait_ms;
    }
    if (options->attempts == 0) {
        options->attempts = profile->attempts;
    }
    if (options->slots == 0 && !options->shared) {
        options->slots = profile->slots;
    }
    options->reentrant = options->reentrant || profile->reentrant;
    if (profile->name != NULL && strcmp(profile->name, "stack") == 0) {
        options->stepped_backoff = true; /* S4.9 */
    }
}
