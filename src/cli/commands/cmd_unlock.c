#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/core/lock_options.h"
#include "cli/core/lock_print.h"
#include "cli/output/print.h"

void unlock_actor(char *out, size_t size)
{
    char user[128];
    char host[128] = "localhost";

    cli_user_name(user, sizeof user);
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(out, size, "%s@%s", user, host);
}

/* The holders to end. */
struct unlock_choice {
    const struct belay_info *info; /* borrowed */
    const char *id;                /* --id; NULL: any */
    const char *owner;             /* --holder; NULL: any */
    size_t n;                      /* how many of them there are */
};

/* Each holder of a lock; an exclusive one has one. */
static size_t holder_count(const struct belay_info *info)
{
    return info->n_holders > 0 ? info->n_holders : 1;
}

static const struct belay_info *holder_at(const struct belay_info *info, size_t i)
{
    return info->n_holders > 0 ? &info->holders[i] : info;
}

static bool is_chosen(const struct unlock_choice *choice, const struct belay_info *holder)
{
    return holder->status == BELAY_STATUS_ACTIVE &&
           (choice->id == NULL || holder->lock_id == NULL || strcmp(holder->lock_id, choice->id) == 0) &&
           (choice->owner == NULL || strcmp(holder->locked_by, choice->owner) == 0);
}

static void show_holder(const struct belay_info *info)
{
    struct buf holder = BUF_INIT(4096);
    char since[PRINT_TIME_SIZE];

    print_holder(&holder, info);
    (void)fprintf(stderr, "  Current holder: %s\n  Locked since: %s\n", holder.failed ? "?" : holder.data,
                  print_day(since, info->locked_at_unix_ms));
    buf_release(&holder);
}

/* All of them, or those that are chosen. */
static void show_holders(const struct cli_context *context, const struct belay_info *info,
                         const struct unlock_choice *choice)
{
    if (context->json) {
        return;
    }
    if (info->n_holders == 0) {
        show_holder(info);
        return;
    }
    for (size_t i = 0; i < info->n_holders; i++) {
        struct buf line = BUF_INIT(1 << 16);

        if (choice == NULL || is_chosen(choice, &info->holders[i])) {
            lock_format_holder(&line, info, i, clock_unix_ms());
            (void)fprintf(stderr, "  %s\n", line.failed ? "?" : line.data);
        }
        buf_release(&line);
    }
}

static enum belay_code say_hidden(const char *key, struct belay_error *err)
{
    return error_set(err, BELAY_NOT_PERMITTED,
                     "cannot unlock '%s': the server hides its lock id; an admin token is needed", key);
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
        return say_hidden(key, err);
    }
    return BELAY_OK;
}

static enum belay_code read_choice(const struct options *options, const struct belay_info *info,
                                   struct unlock_choice *choice, struct belay_error *err)
{
    bool all = options_has(options, "all");

    *choice = (struct unlock_choice){ info, options_text(options, "id"), options_text(options, "holder"), 0 };
    if (all + (choice->id != NULL) + (choice->owner != NULL) > 1) {
        return error_set(err, BELAY_INVALID, "--id, --holder and --all exclude each other: give one of them");
    }
    for (size_t i = 0; i < holder_count(info); i++) {
        const struct belay_info *holder = holder_at(info, i);

        if (is_chosen(choice, holder) && holder->lock_id == NULL) {
            return say_hidden(info->key, err);
        }
        choice->n += is_chosen(choice, holder);
    }
    if (choice->n == 0) {
        return choice->id != NULL
                   ? error_set(err, BELAY_NOT_HOLDER, "'%.80s' does not hold lock '%s': nothing was changed",
                               choice->id, info->key)
                   : error_set(err, BELAY_NOT_FOUND, "'%.80s' does not hold lock '%s': nothing was changed",
                               choice->owner == NULL ? "" : choice->owner, info->key);
    }
    if (choice->n > 1 && !all) {
        return choice->owner != NULL
                   ? error_set(err, BELAY_INVALID,
                               "'%.80s' holds lock '%s' %zu times: choose one with --id LOCK_ID",
                               choice->owner, info->key, choice->n)
                   : error_set(
                         err, BELAY_INVALID,
                         "lock '%s' has %zu holders: choose one with --id LOCK_ID or --holder OWNER, or "
                         "end each of them with --all",
                         info->key, choice->n);
    }
    return BELAY_OK;
}

static enum belay_code check_confirmed(const struct cli_context *context, const struct options *options,
                                       const struct unlock_choice *choice, struct belay_error *err)
{
    const struct belay_info *info = choice->info;
    char what[BELAY_KEY_MAX + 32];

    if (!options_has(options, "force")) {
        return error_set(err, BELAY_INVALID, "lock '%s' is held: add --force to end it", info->key);
    }
    if (!options_has(options, "yes") && !context->json && isatty(STDIN_FILENO)) {
        (void)fprintf(stderr, "%s⚠ Warning: This will forcefully release the lock.%s\n",
                      print_style(context->color_err, "yellow"),
                      print_style(context->color_err, PRINT_RESET));
        show_holders(context, info, choice);
    }
    (void)snprintf(what, sizeof what, "end the lock '%s'", info->key);
    return cli_confirm(context, options, what, err);
}

/* A holder with a heartbeat may still be running. */
static void note_former_holders(const struct unlock_choice *choice)
{
    bool has_heartbeat = false;

    for (size_t i = 0; i < holder_count(choice->info); i++) {
        const struct belay_info *former = holder_at(choice->info, i);

        has_heartbeat = has_heartbeat || (is_chosen(choice, former) && former->last_heartbeat_unix_ms != 0);
    }
    if (has_heartbeat) {
        (void)fputs(
            "  A holder that runs under belay learns of it at once, on DynamoDB within 10s; other holders\n"
            "  learn of it with their next heartbeat.\n",
            stderr);
    }
}

static int report_done(const struct cli_context *context, const struct unlock_choice *choice,
                       const struct belay_info *ended)
{
    const struct belay_info *info = choice->info;

    if (context->json && ended != NULL) {
        return lock_print_json(context, ended);
    }
    if (!context->quiet && !context->json) {
        (void)printf("%s%s✓ ", isatty(STDIN_FILENO) ? "\n" : "", print_style(context->color_out, "green"));
        if (info->n_holders > 1) {
            (void)printf("Ended %zu of %zu holders", choice->n, info->n_holders);
        } else {
            (void)fputs("Lock released successfully", stdout);
        }
        (void)printf("%s\n", print_style(context->color_out, PRINT_RESET));
        (void)fflush(stdout);
        note_former_holders(choice);
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
    if ((err->code == BELAY_INVALID || (*info != NULL && (*info)->n_holders > 0)) && *info != NULL) {
        show_holders(context, *info, NULL);
    }
    return code;
}

/* Of several holders, end each that is still there: one that has released meanwhile is no error. */
static enum belay_code end_chosen(struct belay_client *client, const struct options *options,
                                  const struct unlock_choice *choice, struct belay_info **ended,
                                  struct belay_error *err)
{
    const struct belay_info *info = choice->info;
    char by[256];

    unlock_actor(by, sizeof by);
    for (size_t i = 0; i < holder_count(info); i++) {
        const struct belay_info *holder = holder_at(info, i);
        struct belay_info *now = NULL;
        enum belay_code code;

        if (!is_chosen(choice, holder)) {
            continue;
        }
        code = belay_force_release(client, info->key, holder->lock_id, by, options_text(options, "reason"),
                                   &now, err);
        if (code != BELAY_OK && (choice->n == 1 || (code != BELAY_NOT_HOLDER && code != BELAY_NOT_FOUND))) {
            return code;
        }
        if (now != NULL) {
            belay_info_free(*ended);
            *ended = now;
        }
    }
    return BELAY_OK;
}

static int unlock_exec(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    struct belay_client *client;
    struct belay_info *info = NULL;
    struct belay_info *ended = NULL;
    struct unlock_choice choice;
    char *key = NULL;
    int code;

    if (read_key_argument(context, options, 0, &key, err) != BELAY_OK ||
        cli_existing_client(context, &client, err) != BELAY_OK ||
        unlock_find_held(client, key, &info, err) != BELAY_OK ||
        read_choice(options, info, &choice, err) != BELAY_OK ||
        check_confirmed(context, options, &choice, err) != BELAY_OK ||
        end_chosen(client, options, &choice, &ended, err) != BELAY_OK) {
        code = report_not_unlocked(context, &info, err);
    } else {
        code = report_done(context, &choice, ended);
    }
    belay_info_free(info);
    belay_info_free(ended);
    free(key);
    return code;
}

static const struct option_group unlock_group = {
    "Options", OPTION_TABLE(OPT_FLAG("force", "end the lock of another client"),
                            OPT_TEXT("reason", "TEXT", "the reason, for the history"), CLI_YES_OPTION,
                            OPT_TEXT("holder", "OWNER", "of several holders, end the one with this owner"),
                            OPT_FLAG("all", "of several holders, end all"))
};

static const struct option_group unlock_id_group = {
    "Which holder",
    OPTION_TABLE(OPT_TEXT("id", "LOCK_ID", "end only the lock with this id; 'belay status' shows the ids"))
};

#define UNLOCK_ABOUT                                                                                         \
    "Ends the lock of another client. belay shows the holder and asks for confirmation; only 'yes' "         \
    "confirms. It ends the lock of that holder only: if another client has acquired the lock meanwhile, "    \
    "nothing is changed. The history records who ended the lock and why.\n\n"                                \
    "A shared lock or one with slots may have several holders. belay then lists them and ends none, unless " \
    "an option chooses one, or --all is given.\n\n"                                                          \
    "A former holder under 'belay run' ends its command at once, on DynamoDB within 10s. If two runs at "    \
    "the same time could do harm, make sure first that the former holder is gone."
#define UNLOCK_EXITS                                                                                         \
    {                                                                                                        \
        { 0, "the lock was ended" },                                                                         \
            { 64, "--force is missing, --yes is missing without a terminal, or no holder is chosen" },       \
            { 66, "the lock is not held" }, CLI_EXIT_UNREACHABLE,                                            \
            { 74, "unknown: the lock may have been ended" },                                                 \
            { 77, "not confirmed, or another client holds the lock now; nothing was changed" },              \
    }

const struct cli_command cmd_unlock = {
    .name = "unlock",
    .synopsis = "KEY --force [--id LOCK_ID | --holder OWNER | --all] [--reason TEXT] [--yes]",
    .summary = "end the lock of another client",
    .about = UNLOCK_ABOUT,
    .groups = { &unlock_group, &unlock_id_group, &key_group },
    .max_args = 1,
    .takes_key = true,
    .exits = UNLOCK_EXITS,
    .examples = { { "belay unlock deploy-api-prod --force --reason 'runner was deleted'",
                    "show the holder, ask, and end the lock" },
                  { "belay unlock --stack shop --environment prod --force --yes", "in a script" },
                  { "belay unlock deploys-prod --force --yes --all", "end all holders of its slots" } },
    .exec = unlock_exec,
};

static const struct option_group locks_release_group = {
    "Your own lock", OPTION_TABLE(OPT_TEXT("id", "LOCK_ID", "your lock id: release your own lock"),
                                  OPT_CHOICE("outcome", "completed|failed",
                                             "with --id: how the work ended; default: completed"))
};

static int exec_locks_release(struct cli_context *context, const struct options *options,
                              struct belay_error *err)
{
    if (options_has(options, "id") && options_has(options, "force")) {
        return cli_fail(context, BELAY_INVALID, "--id and --force exclude each other");
    }
    return options_has(options, "id") ? release_exec(context, options, err)
                                      : unlock_exec(context, options, err);
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
