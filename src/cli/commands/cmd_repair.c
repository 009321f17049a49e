#include "cli/commands/commands.h"
#include "json/json_write.h"

static int exec_repair(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    struct belay_maintenance_options upkeep = BELAY_MAINTENANCE_OPTIONS_INIT;
    struct belay_client *client;
    bool lost = false;
    enum belay_code code;

    if (!options_has(options, "accept-loss")) {
        code = cli_existing_client(context, &client, err);
    } else {
        upkeep.store_url = context->store_url;
        code = cli_config(context, &upkeep.config, err);
        code = code == BELAY_OK ? belay_repair(&upkeep, &lost, err) : code;
    }
    if (code != BELAY_OK) {
        return cli_error(context, err);
    }
    if (context->json) {
        (void)printf("{\"repaired\":%s}\n", lost ? "true" : "false");
    } else if (lost) {
        cli_note(
            context,
            "repaired without the journal: locks that were only in it are lost, and new tokens are greater "
            "than all tokens issued before");
    } else {
        cli_note(context, "the store is in order: nothing to repair");
    }
    return CLI_OK;
}

static const struct option_group group = {
    "Options", OPTION_TABLE(OPT_FLAG("accept-loss", "drop the locks that cannot be read"))
};

const struct cli_command cmd_repair = {
    .name = "repair",
    .synopsis = "[--accept-loss]",
    .summary = "repair a store whose server journal was lost",
    .about = "Reports whether the journal of a server was lost and, with --accept-loss, continues without "
             "it.\n\n"
             "A server on an SQLite file keeps its newest changes in a journal beside it, FILE-ledger-0 and "
             "FILE-ledger-1. If the server was killed, and the journal is damaged or missing, every command "
             "refuses the file: the journal may contain locks that clients hold.\n\n"
             "Restore the journal if you can. Otherwise make sure that no client relies on a lock acquired "
             "shortly before the crash, and use --accept-loss. belay keeps what it can read of the journal. "
             "New tokens are far greater than all tokens ever issued, so that a fenced resource rejects the "
             "lost holders. Other held locks start again with their whole ttl. The journal is moved to "
             "FILE-ledger-N.lost-TIME.\n\n"
             "Without --accept-loss the command reports the damage and changes nothing.",
    .groups = { &group },
    .exits = { { 0, "the store can be used" },
               { 64, "the command line is wrong, or the store is not an SQLite file" },
               { 65, "the journal is damaged or missing, and --accept-loss is not given" },
               CLI_EXIT_NO_STORE,
               { 69, "a server is using the file, or the file cannot be read" } },
    .examples = { { "belay repair", "report the damage" },
                  { "belay repair --accept-loss --store sqlite:/var/lib/belay/belay.db",
                    "continue without the journal" } },
    .exec = exec_repair,
};
