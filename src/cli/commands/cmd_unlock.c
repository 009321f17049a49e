#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/core/lock_options.h"
#include "cli/core/lock_print.h"
#include "cli/output/print.h"

/* By the user id, not by the environment, which anyone can set. */
void unlock_actor(char *out, size_t size)
{
    const struct passwd *entry = getpwuid(getuid());
    char host[128] = "localhost";

    (void)gethostname(host, sizeof host - 1);
    if (entry != NULL) {
        (void)snprintf(out, size, "%s@%s", entry->pw_name, host);
    } else {
        (void)snprintf(out, size, "uid %lu@%s", (unsigned long)getuid(), host);
    }
}

static void show_holder(const struct cli_context *context, const struct belay_info *info)
{
    struct buf holder = BUF_INIT(4096);
    char since[PRINT_TIME_SIZE];

    if (context->json) {
        return;
    }
    print_holder(&holder, info);
    (void)fprintf(stderr, "  Current holder: %s\n  Locked since: %s\n", holder.failed ? "?" : holder.data,
                  print_day(since, info->locked_at_unix_ms));
    buf_release(&holder);
}

enum belay_code unlock_find_held(struct belay_client *client, const char *key, struct belay_info **out_info,
                                 struct belay_error *err)
{
    char since[PRINT_TIME_SIZE];
    enum belay_code code = belay_get(client, key, out_info, err);
    const struct belay_info *info = *out_info;

    if (code != BELAY_OK) {
        return code;
    }
    if (info->status == BELAY_STATUS_EXPIRED) {
        return error_set(err, BELAY_NOT_FOUND, "lock '%s' is not held: its lease expired at %s", key,
                         print_ago(since, info->expires_at_unix_ms, clock_unix_ms()));
    }
    if (info->status != BELAY_STATUS_ACTIVE && info->released_at_unix_ms == 0) {
        return error_set(err, BELAY_NOT_FOUND, "lock '%s' is not held: it was released", key);
    }
    if (info->status != BELAY_STATUS_ACTIVE) {
        return error_set(err, BELAY_NOT_FOUND, "lock '%s' is not held: it was released at %s", key,
                         print_ago(since, info->released_at_unix_ms, clock_unix_ms()));
    }
    if (info->lock_id == NULL) {
        return error_set(err, BELAY_NOT_PERMITTED,
                         "cannot unlock '%s': the server hides its lock id; an admin token is needed", key);
    }
    return BELAY_OK;
}

static enum belay_code check_confirmed(const struct cli_context *context, const struct options *options,
                                       const struct belay_info *info, struct belay_error *err)
{
    char what[BELAY_KEY_MAX + 32];

    if (!options_has(options, "force")) {
        return error_set(err, BELAY_INVALID, "lock '%s' is held: add --force to end it", info->key);
    }
    if (!options_has(options, "yes") && !context->json && isatty(STDIN_FILENO)) {
        (void)fprintf(stderr, "%s⚠ Warning: This will forcefully release the lock.%s\n",
                      print_style(context->color_err, "yellow"),
                      print_style(context->color_err, PRINT_RESET));
        show_holder(context, info);
    }
    (void)snprintf(what, sizeof what, "end the lock '%s'", info->key);
    return cli_confirm(context, options, what, err);
}

/* A holder with a heartbeat may still be running. */
static void note_former_holder(const struct belay_info *former)
{
    if (former->last_heartbeat_unix_ms != 0) {
        (void)fputs(
            "  A holder that runs under belay learns of it at once, on DynamoDB within 10s; other holders\n"
            "  learn of it with their next heartbeat.\n",
            stderr);
    }
}

static int report_done(const struct cli_context *context, const struct belay_info *former,
                       const struct belay_info *info)
{
    if (context->json && info != NULL) {
        return lock_print_json(context, info);
    }
    if (!context->quiet && !context->json) {
        (void)printf("%s%s✓ Lock released successfully%s\n", isatty(STDIN_FILENO) ? "\n" : "",
                     print_style(context->color_out, "green"), print_style(context->color_out, PRINT_RESET));
        (void)fflush(stdout);
        note_former_holder(former);
    }
    return CLI_OK;
}

static int report_not_unlocked(const struct cli_context *context, struct belay_info **info,
                               struct belay_error *err)
{
    int code;

    /* JSON errors name the holder too. */
    if (context->json && *info != NULL && err->holder == NULL) {
        error_set_holder(err, *info);
        *info = NULL;
    }
    code = cli_error(context, err);
    if (err->code == BELAY_INVALID && *info != NULL) {
        show_holder(context, *info);
    }
    return code;
}

static int unlock_exec(struct cli_context *context, const struct options *options)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_client *client;
    struct belay_info *info = NULL;
    struct belay_info *ended = NULL;
    char by[256];
    char *key = NULL;
    int code;

    unlock_actor(by, sizeof by);
    if (read_key_argument(context, options, 0, &key, &err) != BELAY_OK ||
        cli_client(context, &client, &err) != BELAY_OK ||
        unlock_find_held(client, key, &info, &err) != BELAY_OK ||
        check_confirmed(context, options, info, &err) != BELAY_OK ||
        belay_force_release(client, key, info->lock_id, by, options_text(options, "reason"), &ended, &err) !=
            BELAY_OK) {
        code = report_not_unlocked(context, &info, &err);
    } else {
        code = report_done(context, info, ended);
    }
    belay_info_free(info);
    belay_info_free(ended);
    belay_error_release(&err);
    free(key);
    return code;
}

static const struct option_def unlock_defs[] = {
    { .name = "force", .kind = OPTION_FLAG, .help = "end the lock of another client" },
    { .name = "reason", .kind = OPTION_TEXT, .value = "TEXT", .help = "the reason, for the history" },
    { .name = "yes",
      .kind = OPTION_FLAG,
      .help = "do not ask for confirmation; required without a terminal" },
    { .name = NULL },
};
static const struct option_group unlock_group = { "Options", unlock_defs };

#define UNLOCK_ABOUT                                                                                         \
    "Ends the lock of another client. belay shows the holder and asks for confirmation; only 'yes' "         \
    "confirms. It ends the lock of that holder only: if another client has acquired the lock meanwhile, "    \
    "nothing is changed. The history records who ended the lock and why.\n\n"                                \
    "A former holder under 'belay run' ends its command at once, on DynamoDB within 10s. If two runs at "    \
    "the same time could do harm, make sure first that the former holder is gone."
#define UNLOCK_EXITS                                                                                         \
    {                                                                                                        \
        { 0, "the lock was ended" }, { 64, "--force is missing, or --yes without a terminal" },              \
            { 66, "the lock is not held" }, CLI_EXIT_UNREACHABLE,                                            \
            { 74, "unknown: the lock may have been ended" },                                                 \
            { 77, "not confirmed, or another client holds the lock now; nothing was changed" },              \
    }

const struct cli_command cmd_unlock = {
    .name = "unlock",
    .synopsis = "KEY --force [--reason TEXT] [--yes]",
    .summary = "end the lock of another client",
    .about = UNLOCK_ABOUT,
    .groups = { &unlock_group, &key_group },
    .max_args = 1,
    .takes_key = true,
    .exits = UNLOCK_EXITS,
    .examples = { { "belay unlock deploy-api-prod --force --reason 'runner was deleted'",
                    "show the holder, ask, and end the lock" },
                  { "belay unlock --stack shop --environment prod --force --yes", "in a script" } },
    .exec = unlock_exec,
};

static const struct option_def locks_release_defs[] = {
    { .name = "id", .kind = OPTION_TEXT, .value = "LOCK_ID", .help = "your lock id: release your own lock" },
    { .name = "outcome",
      .kind = OPTION_CHOICE,
      .choices = "completed|failed",
      .help = "with --id: how the work ended; default: completed" },
    { .name = NULL },
};
static const struct option_group locks_release_group = { "Your own lock", locks_release_defs };

static int exec_locks_release(struct cli_context *context, const struct options *options)
{
    if (options_has(options, "id") && options_has(options, "force")) {
        return cli_fail(context, BELAY_INVALID, "--id and --force exclude each other");
    }
    return options_has(options, "id") ? release_exec(context, options) : unlock_exec(context, options);
}

const struct cli_command cmd_locks_release = {
    .name = "locks release",
    .synopsis = "NAME [--id LOCK_ID | --force [--reason TEXT] [--yes]]",
    .summary = "release a lock by its id, or end it by force",
    .about =
        "With --id the same as 'belay release', with --force the same as 'belay unlock'.\n\n" UNLOCK_ABOUT,
    .groups = { &locks_release_group, &unlock_group, &key_group },
    .max_args = 1,
    .takes_key = true,
    .exits = UNLOCK_EXITS,
    .examples = { { "belay locks release terraform-prod --force", "show the holder, ask, and end the lock" },
                  { "belay locks release terraform-prod --id \"$id\"", "release your own lock" } },
    .exec = exec_locks_release,
};
