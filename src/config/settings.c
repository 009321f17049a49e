#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/text.h"
#include "config/config.h"

#define DEFAULT(name, value)                                                                                 \
    {                                                                                                        \
        name, value, "default"                                                                               \
    }

/* clang-format off */
const struct belay_setting config_builtin[] = {
    DEFAULT("locking_enabled", "true"),
    DEFAULT("profiles.build.key", "build-{component}-{environment}"),
    DEFAULT("profiles.build.ttl", "10m"),
    DEFAULT("profiles.database.attempts", "3"),
    DEFAULT("profiles.database.ttl", "60s"),
    DEFAULT("profiles.deploy.key", "deploy-{component}-{environment}"),
    DEFAULT("profiles.deploy.ttl", "30m"),
    DEFAULT("profiles.execution.heartbeat", "24m"),
    DEFAULT("profiles.execution.reentrant", "true"),
    DEFAULT("profiles.execution.ttl", "30m"),
    DEFAULT("profiles.stack.heartbeat", "30s"),
    DEFAULT("profiles.stack.stale_after", "2m"),
    DEFAULT("profiles.stack.ttl", "1h"),
};
/* clang-format on */
const size_t config_n_builtin = sizeof config_builtin / sizeof config_builtin[0];

static void setting_release(struct belay_setting *setting)
{
    free((char *)setting->name);
    free((char *)setting->value);
    free((char *)setting->origin);
}

/* The index of the first setting that is not before `name`. "tokens.2" comes before "tokens.10". */
static size_t find_position(const struct belay_setting *settings, size_t n, const char *name)
{
    size_t low = 0;
    size_t high = n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (strverscmp(settings[middle].name, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

enum belay_code config_set(struct belay_config *config, const char *name, const char *value,
                           const char *origin, struct belay_error *err)
{
    struct belay_setting setting = { strdup(name), strdup(value), strdup(origin) };
    size_t at = find_position(config->settings, config->n_settings, name);
    bool is_there = at < config->n_settings && strcmp(config->settings[at].name, name) == 0;
    struct belay_setting *grown =
        array_grow(config->settings, sizeof *grown, config->n_settings + 1, &config->cap_settings);

    config->settings = grown == NULL ? config->settings : grown;
    if (setting.name == NULL || setting.value == NULL || setting.origin == NULL || grown == NULL) {
        setting_release(&setting);
        return error_no_memory(err);
    }
    if (is_there) {
        setting_release(&config->settings[at]);
    } else {
        memmove(config->settings + at + 1, config->settings + at,
                (config->n_settings - at) * sizeof *config->settings);
        config->n_settings++;
    }
    config->settings[at] = setting;
    return BELAY_OK;
}

enum belay_code config_reset(struct belay_config *config, const char *prefix, struct belay_error *err)
{
    enum belay_code code = BELAY_OK;
    size_t kept = 0;

    for (size_t i = 0; i < config->n_settings; i++) {
        if (text_has_prefix(config->settings[i].name, prefix)) {
            setting_release(&config->settings[i]);
        } else {
            config->settings[kept++] = config->settings[i];
        }
    }
    config->n_settings = kept;
    for (size_t i = 0; code == BELAY_OK && i < config_n_builtin; i++) {
        if (text_has_prefix(config_builtin[i].name, prefix)) {
            code = config_set(config, config_builtin[i].name, config_builtin[i].value,
                              config_builtin[i].origin, err);
        }
    }
    return code;
}

const struct belay_setting *config_find(const struct belay_config *config, const char *name)
{
    const struct belay_setting *settings = config == NULL ? config_builtin : config->settings;
    size_t n = belay_config_count(config);
    size_t at = find_position(settings, n, name);

    return at < n && strcmp(settings[at].name, name) == 0 ? &settings[at] : NULL;
}

const char *belay_config_path(const struct belay_config *config)
{
    return config->path;
}

size_t belay_config_count(const struct belay_config *config)
{
    return config == NULL ? config_n_builtin : config->n_settings;
}

struct belay_setting belay_config_setting(const struct belay_config *config, size_t i)
{
    static const struct belay_setting none = { NULL, NULL, NULL };

    if (i >= belay_config_count(config)) {
        return none;
    }
    return config == NULL ? config_builtin[i] : config->settings[i];
}

const char *belay_config_get(const struct belay_config *config, const char *name)
{
    const struct belay_setting *setting = name == NULL ? NULL : config_find(config, name);

    return setting == NULL ? NULL : setting->value;
}

void belay_config_free(struct belay_config *config)
{
    if (config == NULL) {
        return;
    }
    for (size_t i = 0; i < config->n_settings; i++) {
        setting_release(&config->settings[i]);
    }
    for (size_t i = 0; i < config->n_profiles; i++) {
        config_profile_release(&config->profiles[i]);
    }
    free(config->settings);
    free(config->profiles);
    free(config->path);
    free(config);
}
