#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "config/config.h"
#include "config/value.h"

enum { TABLE_MIN = 3, TABLE_MAX = 255 };

static const struct env_variable {
    const char *name;
    const char *setting;
    enum value_kind kind;
    bool is_opposite;
    bool is_table; /* of DynamoDB: for a store */
} variables[] = {
    { "RUNVOY_LOCKS_TABLE", "store", VALUE_TEXT, false, true }, /* first: BELAY_STORE overrides it */
    { "BELAY_STORE", "store", VALUE_STORE, false, false },
    { "BELAY_STATE_STORE", "state_store", VALUE_STORE, false, false },
    { "BELAY_AUTH_FILE", "auth_file", VALUE_TEXT, false, false },
    { "BELAY_CA_FILE", "ca_file", VALUE_TEXT, false, false },
    { "BELAY_DISABLED", "locking_enabled", VALUE_SWITCH, true, false },
    { "SHARED_DB_LOCK_ENABLED", "controller.shared_db_lock_enabled", VALUE_SWITCH, false, false },
    { "API_GATEWAY_URL", "controller.api_gateway_url", VALUE_HTTP, false, false },
};
enum { N_VARIABLES = sizeof variables / sizeof variables[0] };

/* The name of a table of execution locks (S2.10), as the URL of a store. */
static enum belay_code read_table(const char *variable, const char *table, char *out_url, size_t size,
                                  struct belay_error *err)
{
    static const char *const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";

    if (strlen(table) < TABLE_MIN || strlen(table) > TABLE_MAX || table[strspn(table, allowed)] != '\0') {
        return error_set(
            err, BELAY_CONFIG,
            "environment %s: '%s' is not the name of a DynamoDB table; use %d to %d letters, digits, "
            "'_', '.' and '-'",
            variable, value_shown(table), TABLE_MIN, TABLE_MAX);
    }
    (void)snprintf(out_url, size, "dynamodb:%s?layout=runvoy", table);
    return BELAY_OK;
}

/* Set the setting of a variable. A switch may be the opposite of its setting. */
static enum belay_code read_variable(struct belay_config *config, const struct env_variable *variable,
                                     const char *value, struct belay_error *err)
{
    const struct value_rule rule = { variable->kind, 0, 0 };
    char url[TABLE_MAX + 64], origin[64], why[VALUE_WHY_SIZE], space[STORE_URL_SHOWN];
    enum belay_code code = BELAY_OK;
    bool is_on;

    if (variable->is_table) {
        code = read_table(variable->name, value, url, sizeof url, err);
        value = url;
    } else if (!value_is_valid(&rule, value, why)) {
        /* Never guess the value of a kill switch: neither guess is safe for every user. */
        code = error_set(err, BELAY_CONFIG, "environment %s: '%s' %s", variable->name,
                         value_shown_of(&rule, value, space), why);
    } else if (variable->kind == VALUE_SWITCH && value_parse_switch(value, &is_on)) {
        value = is_on != variable->is_opposite ? "true" : "false";
    }
    if (code != BELAY_OK) {
        return code;
    }
    (void)snprintf(origin, sizeof origin, "environment %s", variable->name);
    return config_set(config, variable->setting, value, origin, err);
}

enum belay_code config_read_environment(struct belay_config *config, struct belay_error *err)
{
    enum belay_code code = BELAY_OK;

    for (size_t i = 0; code == BELAY_OK && i < N_VARIABLES; i++) {
        const char *value = env_text(variables[i].name);

        if (value != NULL) {
            code = read_variable(config, &variables[i], value, err);
        }
    }
    return code;
}
