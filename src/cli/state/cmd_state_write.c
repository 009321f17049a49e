/* belay state save, backup and restore. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/output/print.h"
#include "cli/state/state_cli.h"
#include "json/json_write.h"

int state_print_saved(const struct cli_context *context, const struct state_cli *cli,
                      const struct belay_state *state, const char *what)
{
    if (context->json) {
        return cli_print_line(
            context,
            wire_line(json_pack("{s:s,s:s,s:I,s:I,s:o,s:o,s:s}", "stack", cli->name.stack, "environment",
                                cli->name.environment, "serial", (json_int_t)state->serial, "token",
                                (json_int_t)state->token, "snapshot", wire_text(state->snapshot),
                                "deployment_id", wire_text(state->deployment_id), "etag", state->tag.text)));
    }
    if (!context->quiet) {
        (void)printf("%s '%s' in '%s' as version %" PRIu64 ", snapshot %s\n", what, cli->name.stack,
                     cli->name.environment, state->serial, state->snapshot == NULL ? "-" : state->snapshot);
    }
    return CLI_OK;
}

/* ---- save ----------------------------------------------------------------------------- */

struct saving {
    struct state_cli cli;
    struct deploy_info info;
    struct state_lock lock;
    char *text; /* owned */
    size_t len;
};

static enum belay_code save_under_lock(struct cli_context *context, const struct options *options,
                                       struct saving *saving, struct belay_state **out_state,
                                       struct belay_error *err)
{
    struct belay_state_write write;
    enum belay_code code = state_lock_take(context, options, 1, &saving->info, &saving->lock, err);

    if (code != BELAY_OK) {
        return code;
    }
    saving->info.given.status =
        options_text(options, "status") == NULL ? "success" : options_text(options, "status");
    write = state_lock_write(&saving->lock, &saving->info.given);
    write.detected = &saving->info.deployment;
    return belay_state_save(saving->cli.states, &saving->cli.name, saving->text, saving->len, &write,
                            out_state, err);
}

static bool is_worth_keeping(enum belay_code code)
{
    return code == BELAY_NOT_HOLDER || code == BELAY_LOST || code == BELAY_UNKNOWN ||
           code == BELAY_UNREACHABLE;
}

static int exec_state_save(struct cli_context *context, const struct options *options,
                           struct belay_error *err)
{
    const char *path = options->n_args > 0 ? options->args[0] : "-";
    struct saving saving = { .lock = { .request = LOCK_REQUEST_INIT } };
    struct belay_state *state = NULL;
    enum belay_code code = state_cli_open(context, options, &saving.cli, err);
    int exit_code;

    if (code == BELAY_OK) {
        code = deploy_info_read(options, &saving.info, err);
    }
    if (code == BELAY_OK) {
        code = state_read_file(path, &saving.text, &saving.len, err);
    }
    if (code == BELAY_OK) {
        code = save_under_lock(context, options, &saving, &state, err);
        if (code == BELAY_BAD_CONTENT &&
            belay_state_check(&saving.cli.name, saving.text, saving.len, NULL) == BELAY_BAD_CONTENT) {
            (void)error_wrap(err, "'%.200s'", path);
        }
    }
    if (code == BELAY_OK) {
        exit_code = state_print_saved(context, &saving.cli, state, "saved");
    } else {
        exit_code = cli_error(context, err);
        /* Content from a pipe exists nowhere else. */
        if (saving.text != NULL && strcmp(path, "-") == 0 && is_worth_keeping(code)) {
            (void)state_save_rejected(context, &saving.cli.name, saving.text, saving.len);
        }
    }
    state_lock_release(context, &saving.lock, code == BELAY_OK);
    belay_state_free(state);
    free(saving.text);
    state_cli_close(&saving.cli);
    return exit_code;
}

static const struct option_group save_group = {
    "Options",
    OPTION_TABLE(OPT_CHOICE("status", "success|failed", "outcome of the deployment; default: success"))
};

const struct cli_command cmd_state_save = {
    .name = "state save",
    .synopsis = "--stack S --environment E [OPTIONS] [FILE]",
    .summary = "save FILE as the deployment state",
    .about = "Saves FILE (or standard input) as the state. belay acquires the stack's lock, writes the state "
             "with new checksums, an entry in its history and a snapshot, and releases the lock. Fields that "
             "belay does not know are kept.\n\n"
             "The save is refused if the state was saved since FILE was loaded: metadata.serial in FILE is "
             "the version it was made from. Without metadata.serial, FILE is accepted only if there is no "
             "state yet.\n\n"
             "Inside 'belay deploy' or 'belay run' of the same stack, the command uses the lock that is "
             "already held.",
    .groups = { &state_group, &lock_group, &deploy_info_group, &save_group },
    .max_args = 1,
    .exits = { { 0, "saved" },
               CLI_EXIT_USAGE,
               { 65, "FILE is not a state, or the stored state is damaged" },
               { 66, "FILE cannot be opened" },
               { 69, "a store is unreachable" },
               { 74, "unknown: the state may have been saved" },
               { 75, "another client holds the lock" },
               { 77, "the state has changed since, or a later holder has it; nothing was saved" },
               { 78, "the configuration is wrong, or the lock store issues no tokens" } },
    .examples = { { "belay state save --stack shop --environment prod new.json",
                    "save new.json as the state" } },
    .exec = exec_state_save,
};

/* ---- backup ---------------------------------------------------------------------------- */

static int exec_state_backup(struct cli_context *context, const struct options *options,
                             struct belay_error *err)
{
    struct state_cli cli;
    char *snapshot = NULL;
    int code = CLI_OK;

    if (state_cli_open(context, options, &cli, err) != BELAY_OK ||
        belay_state_backup(cli.states, &cli.name, &snapshot, err) != BELAY_OK) {
        code = cli_error(context, err);
    } else if (context->json) {
        (void)printf("{\"snapshot\":\"%s\"}\n", snapshot);
    } else {
        (void)printf("%s\n", snapshot);
    }
    free(snapshot);
    state_cli_close(&cli);
    return code;
}

const struct cli_command cmd_state_backup = {
    .name = "state backup",
    .synopsis = "--stack S --environment E",
    .summary = "take a snapshot of a state",
    .about = "Copies the state as it is, even if damaged, to a new snapshot and prints its name. Every save "
             "takes a snapshot too.",
    .groups = { &state_group },
    .exits = { { 0, "taken" },
               CLI_EXIT_USAGE,
               { 66, "there is no such state" },
               { 69, "the state store is unreachable" },
               { 74, "unknown: it may have been taken" } },
    .examples = { { "belay state backup --stack shop --environment prod", "before a risky change" } },
    .exec = exec_state_backup,
};

/* ---- restore ---------------------------------------------------------------------------- */

static bool on_change(void *context, enum belay_change change, const char *part, const char *name)
{
    static const char *const signs[] = { "+", "~", "-" };
    size_t *n = context;

    print_line_escaped(stderr, "  %s %s%s%s", signs[change], part, name == NULL ? "" : ": ",
                       name == NULL ? "" : name);
    (*n)++;
    return true;
}

/* Show the differences and ask for confirmation, unless --yes. */
static enum belay_code confirm_restore(struct cli_context *context, const struct options *options,
                                       struct state_cli *cli, const char *snapshot, struct belay_error *err)
{
    struct belay_error damage = BELAY_ERROR_INIT;
    struct belay_state *now = NULL;
    struct belay_state *then = NULL;
    char what[80];
    size_t n = 0;
    enum belay_code code = belay_state_load_snapshot(cli->states, &cli->name, snapshot, &then, err);

    if (code != BELAY_OK) {
        return code;
    }
    if (belay_state_load(cli->states, &cli->name, &now, &damage) != BELAY_OK &&
        damage.code == BELAY_BAD_CONTENT) {
        cli_warn(context, "%s", damage.text);
    }
    if (!context->json && !context->quiet) {
        (void)fprintf(stderr, "to restore %s of '%s' in '%s' changes:\n", snapshot, cli->name.stack,
                      cli->name.environment);
        code = belay_state_diff(now, then, on_change, &n, err);
        if (code == BELAY_OK && n == 0) {
            (void)fputs("  no resources or outputs\n", stderr);
        }
    }
    if (code == BELAY_OK) {
        (void)snprintf(what, sizeof what, "restore %s", snapshot);
        code = cli_confirm(context, options, what, err);
    }
    belay_state_free(now);
    belay_state_free(then);
    belay_error_release(&damage);
    return code;
}

static int exec_state_restore(struct cli_context *context, const struct options *options,
                              struct belay_error *err)
{
    struct belay_state_write write;
    struct saving saving = { .lock = { .request = LOCK_REQUEST_INIT } };
    struct belay_state *state = NULL;
    char *snapshot = NULL;
    enum belay_code code = state_cli_open(context, options, &saving.cli, err);
    int exit_code;

    if (code == BELAY_OK) {
        code = deploy_info_read(options, &saving.info, err);
    }
    if (code == BELAY_OK) {
        code =
            belay_state_find_snapshot(saving.cli.states, &saving.cli.name, options->args[0], &snapshot, err);
    }
    if (code == BELAY_OK) {
        code = confirm_restore(context, options, &saving.cli, snapshot, err);
    }
    if (code == BELAY_OK) {
        code = state_lock_take(context, options, 1, &saving.info, &saving.lock, err);
    }
    if (code == BELAY_OK) {
        saving.info.deployment.status = "restored";
        saving.info.deployment.version = snapshot;
        write = state_lock_write(&saving.lock, &saving.info.deployment);
        code = belay_state_restore(saving.cli.states, &saving.cli.name, snapshot, &write, &state, err);
    }
    exit_code = code == BELAY_OK ? state_print_saved(context, &saving.cli, state, "restored")
                                 : cli_error(context, err);
    state_lock_release(context, &saving.lock, code == BELAY_OK);
    belay_state_free(state);
    free(snapshot);
    state_cli_close(&saving.cli);
    return exit_code;
}

static const struct option_group restore_group = { "Options", OPTION_TABLE(CLI_YES_OPTION) };

const struct cli_command cmd_state_restore = {
    .name = "state restore",
    .synopsis = "--stack S --environment E [OPTIONS] WHICH",
    .summary = "restore a state from a snapshot",
    .about = "Saves the content of a snapshot as a new version of the state. WHICH is 'latest', or a number "
             "or a time from 'belay state history'. belay shows the differences and asks for confirmation; "
             "only 'yes' confirms. The history and the greatest token continue from the current state, even "
             "if that is damaged.",
    .groups = { &state_group, &lock_group, &deploy_info_group, &restore_group },
    .min_args = 1,
    .max_args = 1,
    .exits = { { 0, "restored" },
               { 64, "the command line is wrong, or --yes is missing without a terminal" },
               { 65, "the snapshot is damaged" },
               { 66, "there is no such snapshot" },
               { 69, "a store is unreachable" },
               { 74, "unknown: it may have been restored" },
               { 75, "another client holds the lock" },
               { 77, "not confirmed, or a later holder has the state; nothing was changed" } },
    .examples = { { "belay state restore --stack shop --environment prod latest",
                    "if state.json is damaged" },
                  { "belay state restore --stack shop --environment prod 2 --yes",
                    "the second newest snapshot" } },
    .exec = exec_state_restore,
};
