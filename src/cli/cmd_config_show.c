#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/print.h"
#include "cli/table.h"
#include "wire/wire.h"

static const struct table_column columns[] = { { "NAME", 0 }, { "VALUE", 20 }, { "ORIGIN", 20 } };

/*
 * A flag beats the environment and the file, which are all that the library
 * knows. `i` counts what it knows, and after that the flags it has no name for.
 */
static bool setting_in_force(const struct cli_context *context, const struct belay_config *config, size_t i,
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

static int show_json(const struct cli_context *context, const struct belay_config *config)
{
    struct belay_setting setting;

    (void)fputs("{\"settings\":[", stdout);
    for (size_t i = 0; setting_in_force(context, config, i, &setting); i++) {
        char *line = wire_line(json_pack("{s:o,s:o,s:o}", "name", wire_text(setting.name), "value",
                                         wire_text(setting.value), "origin", wire_text(setting.origin)));

        if (line == NULL) {
            return cli_fail(context, BELAY_NO_MEMORY, "out of memory");
        }
        (void)printf("%s%s", i == 0 ? "" : ",\n", line);
        free(line);
    }
    (void)fputs("]}\n", stdout);
    return CLI_OK;
}

static int show_table(const struct cli_context *context, const struct belay_config *config)
{
    struct table *table = table_new(stdout, columns, sizeof columns / sizeof columns[0],
                                    print_columns(STDOUT_FILENO), context->color_out);
    struct belay_setting setting;

    for (size_t i = 0; table != NULL && setting_in_force(context, config, i, &setting); i++) {
        table_add(table, setting.name);
        table_add(table, setting.value == NULL ? "-" : setting.value);
        table_add(table, setting.origin);
    }
    return table_finish(table) ? CLI_OK : cli_fail(context, BELAY_NO_MEMORY, "out of memory");
}

static int exec_config_show(struct cli_context *context, const struct options *options)
{
    struct belay_error err = BELAY_ERROR_INIT;
    const struct belay_config *config;
    int code;

    (void)options;
    if (cli_config(context, &config, &err) != BELAY_OK) {
        code = cli_error(context, &err);
    } else {
        code = context->json ? show_json(context, config) : show_table(context, config);
    }
    belay_error_release(&err);
    return code;
}

const struct cli_command cmd_config_show = {
    .name = "config show",
    .synopsis = "",
    .summary = "show what is in force, and where it came from",
    .about = "Shows every setting with its value and its origin: an option, a variable of the environment, a "
             "line of the configuration file, or a default. Options beat the environment, the environment "
             "beats the file, and the file beats the defaults.",
    .exits = { { 0, "shown" }, { 64, "the command line is wrong" }, { 78, "the configuration is wrong" } },
    .examples = { { "belay config show", "what is in force here" },
                  { "belay --config ci.yaml config show --json", "of another file, for a program" } },
    .exec = exec_config_show,
};
