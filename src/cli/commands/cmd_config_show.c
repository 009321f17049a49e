#include <fnmatch.h>
#include <string.h>

#include "base/buf.h"
#include "base/store_url.h"
#include "cli/commands/commands.h"
#include "cli/core/cli_list.h"
#include "json/json_write.h"

static const struct text_column columns[] = { { "NAME", 0 }, { "VALUE", 20 }, { "ORIGIN", 20 } };
static const struct cli_list_kind settings = { "settings", columns, sizeof columns / sizeof columns[0],
                                               false };

/*
 * The i-th setting. Options override the environment and the file, but the library does not know them. After the
 * library's settings comes --state-store, if the library has no setting of that name.
 */
static bool effective_setting(const struct cli_context *context, const struct belay_config *config, size_t i,
                              struct belay_setting *out)
{
    bool has_state_store = belay_config_get(config, "state_store") != NULL;

    if (i < belay_config_count(config)) {
        *out = belay_config_setting(config, i);
    } else if (i == belay_config_count(config) && context->state_store_url != NULL && !has_state_store) {
        out->name = "state_store";
    } else {
        return false;
    }
    if (strcmp(out->name, "store") == 0 && context->store_url != NULL) {
        out->value = context->store_url;
        out->origin = "option --store";
    } else if (strcmp(out->name, "state_store") == 0 && context->state_store_url != NULL) {
        out->value = context->state_store_url;
        out->origin = "option --state-store";
    }
    return true;
}

/* The URL of a chat's webhook is a secret: only its host is shown. That of a store may have a password in it. */
static const char *visible_value(const struct belay_setting *setting, struct buf *space)
{
    const char *host = setting->value == NULL ? NULL : strstr(setting->value, "://");
    size_t len;

    space->len = 0;
    if (setting->value != NULL &&
        (strcmp(setting->name, "store") == 0 || strcmp(setting->name, "state_store") == 0)) {
        store_url_add_shown(space, setting->value);
        return space->failed ? "(hidden)" : space->data;
    }
    if (host == NULL || fnmatch("notify.*.url", setting->name, 0) != 0) {
        return setting->value;
    }
    host += 3;
    len = strcspn(host, "/?#");
    len = memchr(host, '@', len) == NULL ? len : 0; /* a user and a password */
    buf_addf(space, "%.*s%.*s/(hidden)", (int)(host - setting->value), setting->value, (int)len, host);
    return space->failed ? "(hidden)" : space->data;
}

static int print_settings(const struct cli_context *context, const struct belay_config *config,
                          struct belay_error *err)
{
    struct cli_list list;
    struct belay_setting setting = { 0 };
    struct buf space = BUF_INIT(8192);
    int status = cli_list_begin(&list, &settings, context);

    if (status != CLI_OK) {
        return status;
    }
    for (size_t i = 0; effective_setting(context, config, i, &setting); i++) {
        setting.value = visible_value(&setting, &space);
        if (list.form == CLI_LIST_JSON) {
            cli_list_add_json(
                &list, wire_line(json_pack("{s:o,s:o,s:o}", "name", wire_text(setting.name), "value",
                                           wire_text(setting.value), "origin", wire_text(setting.origin))));
        } else {
            text_table_add(list.table, setting.name);
            text_table_add(list.table, setting.value == NULL ? "-" : setting.value);
            text_table_add(list.table, setting.origin);
        }
        (void)cli_list_next(&list);
    }
    buf_release(&space);
    status = cli_list_end(&list, BELAY_OK, err);
    if (status == CLI_OK) {
        cli_list_close(&list, "");
    }
    return status;
}

static int exec_config_show(struct cli_context *context, const struct options *options,
                            struct belay_error *err)
{
    const struct belay_config *config;

    (void)options;
    return cli_config(context, &config, err) == BELAY_OK ? print_settings(context, config, err)
                                                         : cli_error(context, err);
}

const struct cli_command cmd_config_show = {
    .name = "config show",
    .synopsis = "",
    .summary = "show the effective settings and their origin",
    .about = "Shows every setting with its value and its origin: an option, an environment variable, a line "
             "of the configuration file, or a default. Options override the environment, the environment "
             "overrides the file, and the file overrides the defaults.",
    .exits = { { 0, "shown" }, CLI_EXIT_USAGE, CLI_EXIT_CONFIG },
    .examples = { { "belay config show", "the settings in effect here" },
                  { "belay --config ci.yaml config show --json", "those of another file, as JSON" } },
    .exec = exec_config_show,
};
