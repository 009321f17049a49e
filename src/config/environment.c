#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/store_url.h"
#include "base/text.h"
#include "config/config.h"
#include "config/value.h"

enum { PATH_LIMIT = 4000, TABLE_MIN = 3, TABLE_MAX = 255 };

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

/* ---- paths ------------------------------------------------------------- */

/* The home directory from the password database, for a service without HOME. */
static char *home_by_uid(void)
{
    char space[4096];
    struct passwd entry;
    struct passwd *found = NULL;

    if (getpwuid_r(getuid(), &entry, space, sizeof space, &found) != 0 || found == NULL ||
        found->pw_dir == NULL || found->pw_dir[0] != '/') {
        return NULL;
    }
    return strdup(found->pw_dir);
}

/* Add `folder` without trailing slashes: "//x" would begin a host in a URL. */
static void add_folder(struct buf *path, const char *folder)
{
    size_t n = strlen(folder);

    while (n > 0 && folder[n - 1] == '/') {
        n--;
    }
    buf_add(path, folder, n);
}

char *config_home_path(const char *xdg_name, const char *fallback, const char *rest)
{
    struct buf path = BUF_INIT(PATH_LIMIT);
    const char *xdg = env_text(xdg_name);
    const char *home = env_text("HOME");
    char *by_uid = NULL;
    char *text = NULL;

    if (xdg != NULL && xdg[0] == '/') {
        add_folder(&path, xdg);
        buf_addf(&path, "/%s", rest);
    } else {
        if (home == NULL || home[0] != '/') {
            home = by_uid = home_by_uid();
        }
        if (home == NULL) {
            return NULL;
        }
        add_folder(&path, home);
        buf_addf(&path, "/%s/%s", fallback, rest);
    }
    text = buf_take(&path);
    buf_release(&path);
    free(by_uid);
    return text;
}

char *config_default_store(void)
{
    char *path = config_home_path("XDG_STATE_HOME", ".local/state", "belay/belay.db");
    struct buf url = BUF_INIT(3 * PATH_LIMIT + 16);
    char *text = NULL;

    if (path != NULL) {
        buf_adds(&url, "sqlite:");
        store_url_add_place(&url, path);
        text = buf_take(&url);
    }
    free(path);
    buf_release(&url);
    return text;
}

/* ---- variables --------------------------------------------------------- */

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
    char url[TABLE_MAX + 64], origin[64], why[VALUE_WHY_SIZE];
    enum belay_code code = BELAY_OK;
    bool is_on;

    if (variable->is_table) {
        code = read_table(variable->name, value, url, sizeof url, err);
        value = url;
    } else if (!value_is_valid(&rule, value, why)) {
        /* Never guess the value of a kill switch: neither guess is safe for every user. */
        code =
            error_set(err, BELAY_CONFIG, "environment %s: '%s' %s", variable->name, value_shown(value), why);
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
