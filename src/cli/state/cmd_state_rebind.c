/* belay state rebind: bind the state store to another lock store. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/output/print.h"
#include "cli/state/state_cli.h"
#include "json/json_write.h"

struct rebinding {
    struct state_cli cli;
    struct belay_client *client; /* borrowed */
    const char *id;
    char *before; /* owned */
    struct deploy_info info;
};

static enum belay_code open_both(struct cli_context *context, const struct options *options,
                                 struct rebinding *out, struct belay_error *err)
{
    enum belay_code code = state_store_open(context, &out->cli, err);

    if (code == BELAY_OK) {
        code = deploy_info_read(options, &out->info, err);
    }
    if (code == BELAY_OK) {
        code = cli_client(context, &out->client, err);
    }
    return code == BELAY_OK ? belay_client_store_id(out->client, &out->id, err) : code;
}

static enum belay_code rebind(struct cli_context *context, const struct options *options,
                              struct rebinding *rebinding, struct belay_error *err)
{
    const char *url = belay_client_store_url(rebinding->client);
    enum belay_code code;

    if (!context->json && !context->quiet) {
        (void)fprintf(stderr, "%s will accept writes only under locks of the lock store %s (%s)\n",
                      belay_states_url(rebinding->cli.states), url, rebinding->id);
    }
    code = cli_confirm(context, options, "rebind the state store", err);
    return code == BELAY_OK
               ? belay_states_rebind(rebinding->cli.states, rebinding->id, url,
                                     rebinding->info.deployment.triggered_by, &rebinding->before, err)
               : code;
}

static int exec_state_rebind(struct cli_context *context, const struct options *options,
                             struct belay_error *err)
{
    struct rebinding rebinding = { 0 };
    enum belay_code code = open_both(context, options, &rebinding, err);
    int exit_code = CLI_OK;

    if (code == BELAY_OK) {
        code = rebind(context, options, &rebinding, err);
    }
    if (code != BELAY_OK) {
        exit_code = cli_error(context, err);
    } else if (context->json) {
        exit_code = cli_print_line(
            context, wire_line(json_pack("{s:s,s:s,s:o,s:o}", "state_store",
                                         belay_states_url(rebinding.cli.states), "id", rebinding.id, "store",
                                         wire_text(belay_client_store_url(rebinding.client)), "before",
                                         wire_text(rebinding.before))));
    } else if (!context->quiet) {
        (void)printf("%s is now fenced by %s", belay_states_url(rebinding.cli.states),
                     belay_client_store_url(rebinding.client));
        (void)printf(rebinding.before == NULL ? "\n" : "; before by %s\n", rebinding.before);
    }
    free(rebinding.before);
    state_cli_close(&rebinding.cli);
    return exit_code;
}

static const struct option_group rebind_group = { "Options", OPTION_TABLE(CLI_YES_OPTION) };

const struct cli_command cmd_state_rebind = {
    .name = "state rebind",
    .synopsis = "[--yes]",
    .summary = "bind the state store to another lock store",
    .about = "Binds the state store to the lock store in use now (--store). Use it after the locks have "
             "moved to another store.\n\n"
             "The first write to a state store binds it to the lock store in use. Locks of two lock stores "
             "do not exclude each other, so belay refuses writes under any other lock store, including "
             "Terraform's. Before you run this command, stop every server and deployment that uses the old "
             "lock store: tokens of two stores cannot be compared.",
    .groups = { &rebind_group },
    .exits = { { 0, "bound" },
               { 64, "the command line is wrong, or --yes is missing without a terminal" },
               { 69, "a store is unreachable" },
               { 74, "unknown: it may have been bound" },
               { 77, "not confirmed; nothing was changed" },
               { 78, "the configuration is wrong, or the lock store has no id" } },
    .examples = { { "belay state rebind --store sqlite:/srv/new.db --state-store file:/srv/state",
                    "the locks have moved to another file" } },
    .exec = exec_state_rebind,
};
