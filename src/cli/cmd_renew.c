#include <stdlib.h>

#include "cli/commands.h"
#include "cli/lock_options.h"
#include "cli/lock_print.h"
#include "cli/print.h"

static void print_renewed(const struct belay_info *info)
{
    char span[CLOCK_TEXT_SIZE];
    char at[CLOCK_TEXT_SIZE];

    (void)fputs("Renewed '", stdout);
    print_safe(stdout, info->key);
    (void)printf("': expires in %s (at %s)\n", clock_format_span(span, info->expires_in_ms),
                 clock_format_utc(at, info->expires_at_unix_ms, false));
}

static int exec_renew(struct cli_context *context, const struct options *options)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_client *client;
    struct belay_info *info = NULL;
    const char *id = options_text(options, "id");
    int64_t ttl_ms = 0;
    char *key = NULL;
    int code = CLI_OK;

    if (id == NULL) {
        return cli_fail(context, BELAY_INVALID, "renew needs --id: the lock id that 'belay acquire' printed");
    }
    (void)options_duration(options, "ttl", &ttl_ms);
    if (key_from_line(context, options, 0, &key, &err) != BELAY_OK ||
        cli_client(context, &client, &err) != BELAY_OK ||
        belay_renew(client, key, id, ttl_ms, &info, &err) != BELAY_OK) {
        code = cli_error(context, &err);
    } else if (context->json && info != NULL) {
        code = lock_print_json(context, info);
    } else if (!context->quiet && info != NULL) {
        print_renewed(info);
    }
    belay_info_free(info);
    belay_error_release(&err);
    free(key);
    return code;
}

static const struct option_def defs[] = {
    { .name = "id", .kind = OPTION_TEXT, .value = "LOCK_ID", .help = "the lock id that acquire printed" },
    { .name = "ttl",
      .kind = OPTION_DURATION,
      .value = "D",
      .help = "a new ttl; by default it is kept, where the store keeps it" },
    { .name = NULL },
};
static const struct option_group group = { "Options", defs };

const struct cli_command cmd_renew = {
    .name = "renew",
    .synopsis = "KEY --id LOCK_ID [--ttl D]",
    .summary = "prolong a lock by its whole ttl",
    .about =
        "Starts the lease of the lock again, with its whole ttl from now. Only its holder can do that, who "
        "knows the lock id. A lease that has ended cannot be renewed, even if nobody took the lock since: "
        "somebody may have come and gone.",
    .groups = { &group, &key_group },
    .max_args = 1,
    .takes_key = true,
    .exits = { { 0, "renewed" },
               { 64, "the command line is wrong" },
               { 66, "there is no such lock" },
               { 69, "the store could not be reached" },
               { 74, "unknown: it may have been renewed" },
               { 77, "not the holder, or the lease has ended; nothing was changed" } },
    .examples = { { "belay renew nightly-backup --id \"$id\"", "start the lease again" },
                  { "belay renew nightly-backup --id \"$id\" --ttl 2h",
                    "the same, from now on for two hours" } },
    .exec = exec_renew,
};
