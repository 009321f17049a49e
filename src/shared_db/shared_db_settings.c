/* The settings of the controller, with their defaults. */
#include <stdlib.h>
#include <string.h>

#include "base/secret.h"
#include "base/text.h"
#include "shared_db/shared_db_internal.h"

enum { DEFAULT_TTL_S = 60, DEFAULT_ATTEMPTS = 3, DEFAULT_QUICK_S = 3, DEFAULT_RECORD_H = 24 };

static int64_t number(const struct belay_config *config, const char *name, int64_t otherwise)
{
    const char *text = belay_config_get(config, name);

    return text == NULL ? otherwise : strtoll(text, NULL, 10); /* checked when the file was read */
}

int64_t span_or(const char *text, int64_t otherwise)
{
    int64_t ms;

    return text != NULL && belay_parse_duration(text, &ms) ? ms : otherwise;
}

static bool is(const struct belay_config *config, const char *name, const char *value)
{
    const char *text = belay_config_get(config, name);

    return text != NULL && strcmp(text, value) == 0;
}

/* Set by ./belay.yaml, which was found and not named: it must not choose where our token is sent. */
static bool is_found(const struct belay_config *config, const char *name)
{
    for (size_t i = 0; i < belay_config_count(config); i++) {
        struct belay_setting setting = belay_config_setting(config, i);

        if (strcmp(setting.name, name) == 0) {
            return text_has_prefix(setting.origin, "./belay.yaml:");
        }
    }
    return false;
}

/* controller.* takes precedence over the profile `database`. */
struct shared_db_settings shared_db_settings(const struct belay_config *config)
{
    struct belay_profile profile = { .ttl_ms = DEFAULT_TTL_S * 1000, .attempts = DEFAULT_ATTEMPTS };
    struct shared_db_settings settings = { 0 };

    (void)belay_config_profile(config, "database", &profile, NULL);
    settings.lock_enabled = !is(config, "controller.shared_db_lock_enabled", "false");
    settings.lock_ttl_ms = number(config, "controller.lock_ttl_seconds", 0) * 1000;
    settings.lock_ttl_ms = settings.lock_ttl_ms > 0 ? settings.lock_ttl_ms : profile.ttl_ms;
    settings.lock_attempts = (int)number(config, "controller.lock_max_retries", profile.attempts);
    settings.lock_attempts = settings.lock_attempts > 0 ? settings.lock_attempts : 1;
    settings.quick_timeout_ms = number(config, "controller.quick_status_timeout", DEFAULT_QUICK_S) * 1000;
    settings.cautious = is(config, "controller.quick_status_rule", "cautious");
    settings.gateway_url = belay_config_get(config, "controller.api_gateway_url");
    settings.auth_file = settings.gateway_url == NULL || is_found(config, "controller.api_gateway_url")
                             ? NULL
                             : secret_token_source(belay_config_get(config, "auth_file"));
    settings.ca_file = belay_config_get(config, "ca_file");
    settings.config = config;
    settings.record_max_age_ms = span_or(belay_config_get(config, "controller.stopped_record_max_age"),
                                         (int64_t)DEFAULT_RECORD_H * 3600 * 1000);
    return settings;
}
