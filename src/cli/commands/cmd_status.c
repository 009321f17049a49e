#include <stdlib.h>
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/core/lock_options.h"
#include "cli/core/lock_print.h"

/* While locking is switched off, status does not fail: every lock counts as granted. */
static enum belay_code get_lock(const struct cli_context *context, struct belay_client *client,
                                const char *key, struct belay_info **out_info, struct belay_error *err)
{
    enum belay_code code = belay_get(client, key, out_info, err);
    struct belay_info *info;

    if (belay_client_locking_enabled(client) || code == BELAY_OK || code == BELAY_INVALID) {
        return code;
    }
    info = calloc(1, sizeof *info);
    if (info == NULL || (info->key = strdup(key)) == NULL || (info->locked_by = strdup("")) == NULL ||
        (info->locked_by_name = strdup("")) == NULL) {
        belay_info_free(info);
        return code;
    }
    cli_warn(context, "locking is switched off: %s", err->text);
    *out_info = info;
    return BELAY_OK;
}

static int exec_status(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    struct belay_client *client;
    struct belay_info *info = NULL;
    char *key = NULL;
    int code = CLI_OK;

    if (read_key_argument(context, options, 0, &key, err) != BELAY_OK ||
        cli_existing_client(context, &client, err) != BELAY_OK ||
        get_lock(context, client, key, &info, err) != BELAY_OK) {
        code = cli_error(context, err);
    } else if (context->json) {
        code = lock_print_json(context, info);
    } else if (context->quiet) {
        (void)printf("%s\n", belay_status_name(info->status));
    } else {
        lock_print_card(context, info, false);
        if (belay_client_server_pid(client) != 0) {
            (void)printf("  Server:     process %ld serves this file\n", belay_client_server_pid(client));
        }
    }
    belay_info_free(info);
    free(key);
    return code;
}

#define STATUS_ABOUT                                                                                         \
    "Shows one lock: its holder and since when, when it expires, its last heartbeat, its outcome, its "      \
    "metadata, and its queue. The last holder is shown even after the lock was released or expired. With "   \
    "--quiet only the status is printed: active, expired or released."
#define STATUS_EXITS                                                                                         \
    {                                                                                                        \
        { 0, "shown, whatever the status" }, CLI_EXIT_USAGE, { 66, "the store knows no such lock" },         \
            CLI_EXIT_UNREACHABLE, CLI_EXIT_CONFIG,                                                           \
    }

const struct cli_command cmd_status = {
    .name = "status",
    .synopsis = "KEY",
    .summary = "show one lock",
    .about = STATUS_ABOUT,
    .groups = { &key_group },
    .max_args = 1,
    .takes_key = true,
    .exits = STATUS_EXITS,
    .examples = { { "belay status deploy-api-prod", "show the holder and the queue" },
                  { "belay status --stack shop --environment prod --json", "as JSON" } },
    .exec = exec_status,
};

const struct cli_command cmd_locks_status = {
    .name = "locks status",
    .synopsis = "NAME",
    .summary = "the same as 'belay status'",
    .about = STATUS_ABOUT,
    .groups = { &key_group },
    .max_args = 1,
    .takes_key = true,
    .exits = STATUS_EXITS,
    .examples = { { "belay locks status terraform-prod", "show the holder and the queue" },
                  { "belay locks status terraform-prod --json", "as JSON" } },
    .exec = exec_status,
};
