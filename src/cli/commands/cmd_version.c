#include "cli/commands/commands.h"
#include "json/json_write.h"

static int exec_version(struct cli_context *context, const struct options *options)
{
    (void)options;
    if (context->json) {
        (void)printf("{\"version\":\"%s\"}\n", belay_version());
    } else {
        (void)printf("belay %s\n", belay_version());
    }
    return CLI_OK;
}

const struct cli_command cmd_version = {
    .name = "version",
    .synopsis = "",
    .summary = "show the version",
    .about = "Prints the version of belay.",
    .exits = { { 0, "done" } },
    .examples = { { "belay version", "print the version" },
                  { "belay version --json", "the same for a program" } },
    .exec = exec_version,
};
