#include "cli/commands/commands.h"
#include "json/json_write.h"

static int exec_repair(struct cli_context *context, const struct options *options)
{
    struct belay_maintenance_options upkeep = BELAY_MAINTENANCE_OPTIONS_INIT;
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_client *client;
    bool lost = false;
    enum belay_code code;

    if (!options_has(options, "accept-loss")) {
        code = cli_client(context, &client, &err);
    } else {
        upkeep.store_url = context->store_url;
        code = cli_config(context, &upkeep.config, &err);
        code = code == BELAY_OK ? belay_repair(&upkeep, &lost, &err) : code;
    }
    if (code != BELAY_OK) {
        int exit_code = cli_error(context, &err);

        belay_error_release(&err);
        return exit_code;
    }
    if (context->json) {
        (void)printf("{\"repaired\":%s}\n", lost ? "true" : "false");
    } else if (lost) {
        cli_note(context,
                 "went on without the journal: locks that were only in it are forgotten, and tokens go on "
                 "above all that were handed out");
    } else {
        cli_note(context, "the store is in order: there is nothing to repair");
    }
    return CLI_OK;
}

static const struct option_def defs[] = {
    { .name = "accept-loss", .kind = OPTION_FLAG, .help = "forget the locks that cannot be read, and go on" },
    { .name = NULL },
};
static const struct option_group group = { "Options", defs };

const struct cli_command cmd_repair = {
    .name = "repair",
    .synopsis = "[--accept-loss]",
    .summary = "go on after a server's journal was lost",
    .about =
        "A server on an SQLite file keeps its newest changes in a journal beside it, FILE-ledger-0 and "
        "FILE-ledger-1. If the server was killed, and that journal is then found damaged or not found at "
        "all, "
        "every command refuses the file: locks that somebody was told of may be in it.\n\n"
        "Put the journal back, if you can. Otherwise make sure that nobody relies on a lock any more that "
        "was "
        "taken shortly before, and use --accept-loss. What can be read of the journal is kept. Tokens go on "
        "far above all that were ever handed out, so that a fenced resource refuses the forgotten holders. "
        "Other locks that were held start again with their whole ttl. The journal is moved to "
        "FILE-ledger-N.lost-TIME.\n\n"
        "Without --accept-loss nothing is changed: it says what is wrong.",
    .groups = { &group },
    .exits = { { 0, "the store can be used" },
               { 64, "the command line is wrong, or the store is not an SQLite file" },
               { 65, "the journal is damaged or missing, and --accept-loss was not given" },
               { 69, "a server is using the file, or it could not be reached" } },
    .examples = { { "belay repair", "what is wrong" },
                  { "belay repair --accept-loss --store sqlite:/var/lib/belay/belay.db",
                    "go on without it" } },
    .exec = exec_repair,
};
