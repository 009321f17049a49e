#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/print.h"
#include "cli/table.h"
#include "wire/wire.h"

static const struct table_column columns[] = { { "NAME", 0 }, { "VALUE", 20 }, { "ORIGIN", 20 } };

/* A flag beats the environment and the file, which are all that the library knows. */
static struct belay_setting in_force(const struct cli_context *context, struct belay_setting setting)
{
    if (strcmp(setting.name, "store") == 0 && context->store_url != NULL) {
        return (struct belay_setting){ setting.name, context->store_url, "option --store" };
    }
    if (strcmp(setting.name, "state_store") == 0 && context->state_store_url != NULL) {
        return (struct belay_setting){ setting.name, context->state_store_url, "option --state-store" };
    }
    return setting;
}

static int show_json(const struct cli_context *context, const struct belay_config *config)
{
    for (size_t i = 0; i < belay_config_count(config); i++) {
        struct belay_setting setting = in_force(context, belay_config_setting(config, i));
        char *line = wire_line(json_pack("{s:o,s:o,s:o}", "name", wire_text(setting.name), "value",
                                         wire_text(setting.value), "origin", wire_text(setting.origin)));

        if (line == NULL) {
            return cli_fail(context, BELAY_NO_MEMORY, "out of memory");
        }
        (void)printf("%s%s", i == 0 ? "{\"settings\":[" : ",\n", line);
        free(line);
    }
    (void)fputs(belay_config_count(config) == 0 ? "{\"settings\":[]}\n" : "]}\n", stdout);
    return CLI_OK;
}

static int show_table(const struct cli_context *context, const struct belay_config *config)
{
    struct table *table = table_new(stdout, columns, sizeof columns / sizeof columns[0],
                                    print_columns(STDOUT_FILENO), context->color_out);

    for (size_t i = 0; table != NULL && i < belay_config_count(config); i++) {
        struct belay_setting setting = in_force(context, belay_config_setting(config, i));

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
