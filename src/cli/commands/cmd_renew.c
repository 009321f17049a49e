#include <stdlib.h>

#include "cli/commands/commands.h"
#include "cli/core/lock_options.h"
#include "cli/core/lock_print.h"
#include "cli/output/print.h"

static void print_renewed(const struct belay_info *info)
{
    char span[CLOCK_TEXT_SIZE];
    char at[CLOCK_TEXT_SIZE];

    (void)fputs("Renewed '", stdout);
    print_escaped(stdout, info->key);
    (void)printf("': expires in %s (at %s)\n", clock_format_span(span, info->expires_in_ms),
                 clock_format_utc(at, info->expires_at_unix_ms, false));
}

/* What --profile says, or --stack, which means the profile "stack"; 0: nothing. */
static int64_t profile_ttl_ms(struct cli_context *context, const struct options *options)
{
    const char *name = options_text(options, "profile");
    struct belay_profile profile = { 0 };

    name = name == NULL && options_has(options, "stack") ? "stack" : name;
    return name != NULL && belay_config_profile(context->config, name, &profile, NULL) == BELAY_OK
               ? profile.ttl_ms
               : 0;
}

/* Without a ttl it is kept; a store that does not keep it refuses that, and changes nothing. */
static enum belay_code renew(struct cli_context *context, const struct options *options, const char *key,
                             struct belay_info **out_info, struct belay_error *err)
{
    const char *id = options_text(options, "id");
    struct belay_client *client;
    int64_t ttl_ms = 0;
    enum belay_code code = cli_client(context, &client, err);

    if (code != BELAY_OK) {
        return code;
    }
    if (options_duration(options, "ttl", &ttl_ms)) {
        return belay_renew(client, key, id, ttl_ms, out_info, err);
    }
    code = belay_renew(client, key, id, 0, out_info, err);
    ttl_ms = profile_ttl_ms(context, options);
    return code == BELAY_INVALID && ttl_ms > 0 ? belay_renew(client, key, id, ttl_ms, out_info, err) : code;
}

static int exec_renew(struct cli_context *context, const struct options *options)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_info *info = NULL;
    char *key = NULL;
    int code = CLI_OK;

    if (!options_has(options, "id")) {
        return cli_fail(context, BELAY_INVALID, "renew needs --id: the lock id that 'belay acquire' printed");
    }
    if (read_key_argument(context, options, 0, &key, &err) != BELAY_OK ||
        renew(context, options, key, &info, &err) != BELAY_OK) {
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
      .help = "a new ttl; by default it is kept, and where the store does not keep it the profile's" },
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
