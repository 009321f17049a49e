#include <inttypes.h>

#include "cli/commands/commands.h"
#include "json/json_write.h"

static int print_backup(struct cli_context *context, const char *verb, const char *file,
                        const struct belay_backup *backup)
{
    if (!context->json) {
        cli_note(context, "%s '%s': %" PRId64 " locks, %" PRId64 " of them held, %" PRId64 " bytes", verb,
                 file, backup->locks, backup->held, backup->bytes);
        return CLI_OK;
    }
    return cli_print_line(
        context, wire_line(json_pack(
                     "{s:o, s:I, s:I, s:I, s:o, s:o}", "file", wire_text(file), "locks",
                     (json_int_t)backup->locks, "held", (json_int_t)backup->held, "bytes",
                     (json_int_t)backup->bytes, "made_at", wire_time(backup->made_at_unix_ms), "next_token",
                     backup->next_token == 0 ? json_null() : json_integer((json_int_t)backup->next_token))));
}

static int exec_backup(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    struct belay_backup backup = BELAY_BACKUP_INIT;
    struct belay_client *client = NULL;
    enum belay_code code = cli_existing_client(context, &client, err);

    if (code == BELAY_OK) {
        code = belay_backup(client, options->args[0], cli_cancel(context), &backup, err);
    }
    return code == BELAY_OK ? print_backup(context, "wrote", options->args[0], &backup)
                            : cli_error(context, err);
}

static int exec_restore(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    struct belay_backup backup = BELAY_BACKUP_INIT;
    struct belay_maintenance_options upkeep = BELAY_MAINTENANCE_OPTIONS_INIT;
    enum belay_code code = cli_config(context, &upkeep.config, err);

    upkeep.store_url = context->store_url;
    upkeep.replace = options_has(options, "replace");
    if (code == BELAY_OK) {
        code = belay_restore(options->args[0], &upkeep, &backup, err);
    }
    return code == BELAY_OK ? print_backup(context, "restored", options->args[0], &backup)
                            : cli_error(context, err);
}

const struct cli_command cmd_backup = {
    .name = "backup",
    .synopsis = "FILE",
    .summary = "back up an SQLite store to a file, even in use",
    .about = "Writes a consistent copy of the lock database to FILE. The database may be in use by commands "
             "or by a server. Through a server (--store http://...) it needs an admin token. The copy is "
             "verified, synced to disk, and readable by its owner only. FILE must not exist; after a failure "
             "there is no FILE.\n\n"
             "The copy contains every change that was complete when the command started: locks, history, and "
             "the registry of applications. Deployment state and webhooks are in files of their own "
             "(docs/operations.md).\n\n"
             "Do not copy the database files with cp or sqlite3: the newest locks of a server are in its "
             "journal, and the copy would issue tokens a second time.\n\n"
             "Only SQLite stores are copied. Use PostgreSQL's own backups, or DynamoDB's point-in-time "
             "recovery.",
    .min_args = 1,
    .max_args = 1,
    .exits = { { 0, "FILE is a backup" },
               { 64, "the command line is wrong, FILE exists, or the store is not a file" },
               { 65, "the store is damaged" },
               CLI_EXIT_NO_STORE,
               { 69, "the store is unreachable, or the disk is full" },
               { 77, "not permitted" },
               CLI_EXIT_CONFIG },
    .examples = { { "belay backup /backup/locks-2024-11-05.db",
                    "the store, whether a server uses it or not" },
                  { "belay backup locks.db --store http://127.0.0.1:7420 --json", "through a server" } },
    .exec = exec_backup,
};

static const struct option_group restore_group = {
    "Options", OPTION_TABLE(OPT_FLAG("replace", "replace an existing database that is not in use"))
};

const struct cli_command cmd_restore = {
    .name = "restore",
    .synopsis = "[--replace] FILE",
    .summary = "restore an SQLite store from a backup",
    .about = "Copies FILE, made by 'belay backup', to the path that the store's URL names. An existing "
             "database is replaced only with --replace, and never while it is in use: served, open in "
             "another process, or with held locks. The replaced database is kept as PATH.replaced-TIME.\n\n"
             "Locks that were held when the backup was made start again with their whole ttl. New tokens are "
             "greater than all tokens ever issued, even by the original after the backup: they start at "
             "1,024 times the Unix time in milliseconds. Therefore the machine's clock must not be behind "
             "the backup.",
    .groups = { &restore_group },
    .min_args = 1,
    .max_args = 1,
    .exits = { { 0, "the backup is restored" },
               { 64, "the command line is wrong, or a database exists and --replace is missing" },
               { 65, "FILE is damaged, or not a backup" },
               { 66, "FILE does not exist" },
               { 69, "a file cannot be read or written" },
               { 75, "the database is in use" },
               { 77, "not permitted" },
               { 78, "the clock is behind the backup, or the configuration is wrong" } },
    .examples = { { "belay restore locks-2024-11-05.db --store sqlite:/var/lib/belay/new.db",
                    "to a new file" },
                  { "belay restore --replace /backup/locks-2024-11-05.db", "in place of the old database" } },
    .exec = exec_restore,
};
