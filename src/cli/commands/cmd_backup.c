#include <inttypes.h>
#include <stdlib.h>

#include "cli/commands/commands.h"
#include "json/json_write.h"

static int print_backup(struct cli_context *context, const char *verb, const char *file,
                        const struct belay_backup *backup)
{
    char *line;

    if (!context->json) {
        cli_note(context, "%s '%s': %" PRId64 " locks, %" PRId64 " of them held, %" PRId64 " bytes", verb,
                 file, backup->locks, backup->held, backup->bytes);
        return CLI_OK;
    }
    line = wire_line(
        json_pack("{s:o, s:I, s:I, s:I, s:o, s:o}", "file", wire_text(file), "locks",
                  (json_int_t)backup->locks, "held", (json_int_t)backup->held, "bytes",
                  (json_int_t)backup->bytes, "made_at", wire_time(backup->made_at_unix_ms), "next_token",
                  backup->next_token == 0 ? json_null() : json_integer((json_int_t)backup->next_token)));
    if (line == NULL) {
        return CLI_BUG;
    }
    (void)printf("%s\n", line);
    free(line);
    return CLI_OK;
}

static int finish(struct cli_context *context, enum belay_code code, const char *verb, const char *file,
                  const struct belay_backup *backup, struct belay_error *err)
{
    int exit_code = code == BELAY_OK ? print_backup(context, verb, file, backup) : cli_error(context, err);

    belay_error_release(err);
    return exit_code;
}

static int exec_backup(struct cli_context *context, const struct options *options)
{
    struct belay_backup backup = BELAY_BACKUP_INIT;
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_client *client = NULL;
    enum belay_code code = cli_client(context, &client, &err);

    if (code == BELAY_OK) {
        code = belay_backup(client, options->args[0], cli_cancel(context), &backup, &err);
    }
    return finish(context, code, "wrote", options->args[0], &backup, &err);
}

static int exec_restore(struct cli_context *context, const struct options *options)
{
    struct belay_backup backup = BELAY_BACKUP_INIT;
    struct belay_maintenance_options upkeep = BELAY_MAINTENANCE_OPTIONS_INIT;
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_code code = cli_config(context, &upkeep.config, &err);

    upkeep.store_url = context->store_url;
    upkeep.replace = options_has(options, "replace");
    if (code == BELAY_OK) {
        code = belay_restore(options->args[0], &upkeep, &backup, &err);
    }
    return finish(context, code, "restored", options->args[0], &backup, &err);
}

const struct cli_command cmd_backup = {
    .name = "backup",
    .synopsis = "FILE",
    .summary = "copy an SQLite store to a file, also in use",
    .about =
        "Writes a consistent copy of the lock database to FILE: while commands use it, while a server serves "
        "it, and "
        "through a server (--store http://...), for which an admin's token is needed. The copy is checked, "
        "synced, "
        "and readable for its owner alone. FILE must not be there yet; if anything fails, there is none.\n\n"
        "The copy has all that was reported before the command began: locks, history, the registry of "
        "applications. "
        "Deployment state and webhooks are in files of their own (docs/operations.md).\n\n"
        "Do not copy the files yourself, nor with sqlite3: the newest locks of a server are in its journal, "
        "and the copy "
        "would hand out tokens again.\n\n"
        "A DynamoDB table is not copied: use its point-in-time recovery, or on-demand backups.",
    .min_args = 1,
    .max_args = 1,
    .exits = { { 0, "FILE is a backup" },
               { 64, "the command line is wrong, FILE is there already, or the store is not a file" },
               { 65, "the store is damaged" },
               { 69, "the store could not be reached, or the disk is full" },
               { 77, "not allowed" },
               { 78, "the configuration is wrong" } },
    .examples = { { "belay backup /backup/locks-2024-11-05.db", "of the store, served or not" },
                  { "belay backup locks.db --store http://127.0.0.1:7420 --json", "through a server" } },
    .exec = exec_backup,
};

static const struct option_def restore_defs[] = {
    { .name = "replace", .kind = OPTION_FLAG, .help = "replace a database that is there, if nobody uses it" },
    { .name = NULL },
};
static const struct option_group restore_group = { "Options", restore_defs };

const struct cli_command cmd_restore = {
    .name = "restore",
    .synopsis = "[--replace] FILE",
    .summary = "put a backup in the place of an SQLite store",
    .about = "Puts a copy of FILE, which 'belay backup' made, in the place that the store's URL names. A "
             "database that is there "
             "is left alone, unless --replace is given; one that is in use is never replaced: served, open "
             "in another process, "
             "or with locks that are held. It is kept as PATH.replaced-TIME.\n\n"
             "Locks that were held when the backup was made start again with their whole ttl. Tokens go on "
             "above all that "
             "were ever handed out, also by the original after the backup was made: at 1,024 times the Unix "
             "time in "
             "milliseconds. So the machine's clock must not be behind the backup.",
    .groups = { &restore_group },
    .min_args = 1,
    .max_args = 1,
    .exits = { { 0, "the backup is in place" },
               { 64, "the command line is wrong, or there is a database and --replace was not given" },
               { 65, "FILE is damaged, or not a backup" },
               { 69, "a file could not be read or written" },
               { 75, "the database is in use" },
               { 77, "not allowed" },
               { 78, "the clock is behind the backup, or the configuration is wrong" } },
    .examples = { { "belay restore /backup/locks-2024-11-05.db --store sqlite:/var/lib/belay/new.db",
                    "beside the old one" },
                  { "belay restore --replace /backup/locks-2024-11-05.db", "in its place" } },
    .exec = exec_restore,
};
