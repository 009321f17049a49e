#include <stdlib.h>

#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/core/lock_id.h"
#include "cli/core/lock_options.h"
#include "cli/core/lock_print.h"
#include "cli/output/print.h"

static void print_renewed(const struct belay_info *info)
{
    char span[CLOCK_TEXT_SIZE];
    char at[CLOCK_TEXT_SIZE];

    print_line_escaped(stdout, "Renewed '%s': expires in %s (at %s)", info->key,
                       clock_format_span(span, info->expires_in_ms),
                       clock_format_utc(at, info->expires_at_unix_ms, false));
}

/* The ttl of --profile, or of the profile "stack" if --stack is given; 0: none. */
static int64_t named_profile_ttl_ms(struct cli_context *context, const struct options *options)
{
    const char *name = options_text(options, "profile");
    struct belay_profile profile = { 0 };

    name = name == NULL && options_has(options, "stack") ? "stack" : name;
    return name != NULL && belay_config_profile(context->config, name, &profile, NULL) == BELAY_OK
               ? profile.ttl_ms
               : 0;
}

/* Without --ttl the lock keeps its ttl. A store that does not keep the ttl refuses; then the profile's is used. */
static enum belay_code renew(struct cli_context *context, const struct options *options,
                             const struct key_arguments *keys, struct belay_info **out_info,
                             struct belay_error *err)
{
    char id[BELAY_ID_MAX + 1];
    struct belay_client *client;
    int64_t ttl_ms = 0;
    enum belay_code code = read_lock_id(context, options, keys->first, id, err);

    if (code == BELAY_OK) {
        code = cli_existing_client(context, &client, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    if (options_duration(options, "ttl", &ttl_ms)) {
        if (ttl_ms == 0) {
            return error_set(err, BELAY_INVALID, "--ttl '%s' is too short: leave it out to keep the ttl",
                             options_text(options, "ttl"));
        }
        return belay_renew_keys(client, keys->keys, keys->n, id, ttl_ms, out_info, err);
    }
    code = belay_renew_keys(client, keys->keys, keys->n, id, 0, out_info, err);
    ttl_ms = named_profile_ttl_ms(context, options);
    return code == BELAY_INVALID && ttl_ms > 0 && keys->n == 1
               ? belay_renew(client, keys->first, id, ttl_ms, out_info, err)
               : code;
}

static int exec_renew(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    struct belay_info *info = NULL;
    struct key_arguments keys = { NULL, NULL, 0 };
    int code = CLI_OK;

    if (!has_lock_id(context, options)) {
        return CLI_USAGE;
    }
    if (read_key_arguments(context, options, &keys, err) != BELAY_OK ||
        renew(context, options, &keys, &info, err) != BELAY_OK) {
        code = cli_error(context, err);
    } else if (context->json && info != NULL) {
        code = lock_print_grant_json(context, info, keys.keys, keys.n);
    } else if (!context->quiet && info != NULL) {
        print_renewed(info);
        for (size_t i = 0; i < info->n_joint; i++) {
            print_renewed(&info->joint[i]);
        }
    }
    belay_info_free(info);
    key_arguments_release(&keys);
    return code;
}

static const struct option_group group = {
    "Options",
    OPTION_TABLE(
        ID_OR_OWNER,
        OPT_DURATION("ttl",
                     "a new ttl; default: the lock's ttl, or the profile's if the store does not keep it"))
};

const struct cli_command cmd_renew = {
    .name = "renew",
    .synopsis = "KEY... (--id LOCK_ID | --owner ID) [--ttl D]",
    .summary = "restart the lease of a lock",
    .about = "Restarts the lease of the lock, with its whole ttl from now. This needs the lock id, which "
             "only the holder knows. A lease that has expired cannot be renewed, even if the lock is free: "
             "another client may have held it in between. Keys that were acquired together are renewed "
             "together: all of them or none.\n\n" ABOUT_OWNER,
    .groups = { &group, &key_group },
    .max_args = CLI_MANY_KEYS,
    .takes_key = true,
    .exits = { { 0, "renewed" },
               CLI_EXIT_USAGE,
               { 66, "there is no such lock" },
               CLI_EXIT_UNREACHABLE,
               { 74, "unknown: the lock may have been renewed" },
               { 77, "not the holder, or the lease has expired; nothing was changed" } },
    .examples = { { "belay renew nightly-backup --id \"$id\"", "restart the lease" },
                  { "belay renew nightly-backup --id \"$id\" --ttl 2h",
                    "restart it with a ttl of two hours" },
                  { "belay renew terraform-prod --owner execution-1 --profile execution",
                    "the owner's lock, without its id" } },
    .exec = exec_renew,
};
