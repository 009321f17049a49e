/* belay state adopt: accept a state as another program wrote it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/output/print.h"
#include "cli/state/state_cli.h"

struct adopting {
    struct state_cli cli;
    struct deploy_info info;
    struct state_lock lock;
    char *snapshot;            /* owned; NULL: the state itself */
    struct belay_state *there; /* owned; what is shown, and then accepted */
    bool is_sound;
};

/* ---- what it is ------------------------------------------------------------------------ */

static void print_pair(const char *name, const char *text)
{
    (void)fprintf(stderr, "  %-16s ", name);
    print_escaped(stderr, text == NULL ? "-" : text);
    (void)fputc('\n', stderr);
}

static void on_finding(void *context, const struct belay_finding *finding)
{
    const bool *is_shown = context;

    if (*is_shown && finding->level != BELAY_FINDING_OK) {
        (void)fputs("  ! ", stderr);
        print_escaped(stderr, finding->name);
        (void)fprintf(stderr, ": %s\n", finding->text);
    }
}

static bool count_one(void *context, const char *json)
{
    (void)json;
    ++*(size_t *)context;
    return true;
}

static void print_state(struct adopting *adopting)
{
    const struct belay_state *there = adopting->there;
    const struct state_cli *cli = &adopting->cli;
    size_t n = 0;

    (void)fprintf(stderr, "%s of '%s' in '%s':\n",
                  adopting->snapshot == NULL ? "the state" : adopting->snapshot, cli->name.stack,
                  cli->name.environment);
    print_pair("last updated", there->last_updated);
    print_pair("by", there->last_updated_by);
    print_pair("deployment", there->deployment_id);
    (void)fprintf(stderr, "  %-16s %zu\n", "resources", there->n_resources);
    if (adopting->snapshot == NULL &&
        belay_state_history(cli->states, &cli->name, 0, count_one, &n, NULL) == BELAY_OK) {
        (void)fprintf(stderr, "  %-16s %zu\n", "in its history", n);
    }
}

/* Load it, and show it and what does not fit. */
static enum belay_code look(struct cli_context *context, const struct options *options,
                            struct adopting *adopting, struct belay_error *err)
{
    const char *which = options_text(options, "snapshot");
    struct state_cli *cli = &adopting->cli;
    bool is_shown = !context->json && !context->quiet;
    struct belay_error damage = BELAY_ERROR_INIT;
    enum belay_code code = BELAY_OK;

    if (which != NULL) {
        code = belay_state_find_snapshot(cli->states, &cli->name, which, &adopting->snapshot, err);
    }
    if (code == BELAY_OK) {
        code =
            belay_state_load_unverified(cli->states, &cli->name, adopting->snapshot, &adopting->there, err);
    }
    if (code == BELAY_OK && is_shown) {
        print_state(adopting);
    }
    if (code == BELAY_OK) {
        code =
            belay_state_verify(cli->states, &cli->name, adopting->snapshot, on_finding, &is_shown, &damage);
        adopting->is_sound = code == BELAY_OK && adopting->there->has_checksums;
        code = code == BELAY_BAD_CONTENT || code == BELAY_OK ? BELAY_OK
                                                             : error_set(err, code, "%s", damage.text);
    }
    belay_error_release(&damage);
    return code;
}

/* ---- accepting it ------------------------------------------------------------------------ */

static enum belay_code adopt(struct cli_context *context, const struct options *options,
                             struct adopting *adopting, struct belay_state **out_state,
                             struct belay_error *err)
{
    struct belay_state_write write = BELAY_STATE_WRITE_INIT;
    enum belay_code code =
        state_confirm(context, options, "adopt it: what is there counts as it is, and gets checksums", err);

    if (code == BELAY_OK) {
        code = state_lock_take(context, options, 0, &adopting->info, &adopting->lock, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    adopting->info.deployment.status = "adopted";
    adopting->info.deployment.version = adopting->snapshot;
    write.lock = adopting->lock.is_fenced ? &adopting->lock.stamp : NULL;
    write.loaded = adopting->snapshot == NULL ? &adopting->there->tag : NULL;
    write.deployment = &adopting->info.deployment;
    write.keep_locked = adopting->lock.is_nested;
    return belay_state_adopt(adopting->cli.states, &adopting->cli.name, adopting->snapshot, &write, out_state,
                             err);
}

static int exec_adopt(struct cli_context *context, const struct options *options)
{
    struct adopting adopting = { .lock = { .request = LOCK_REQUEST_INIT } };
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_state *state = NULL;
    enum belay_code code = state_cli_open(context, options, &adopting.cli, &err);
    int exit_code;

    if (code == BELAY_OK) {
        code = deploy_info_read(options, &adopting.info, &err);
    }
    if (code == BELAY_OK) {
        code = look(context, options, &adopting, &err);
    }
    if (code == BELAY_OK && adopting.is_sound && adopting.snapshot == NULL) {
        exit_code =
            state_print_saved(context, &adopting.cli, adopting.there, "nothing to adopt, it is sound:");
    } else {
        code = code == BELAY_OK ? adopt(context, options, &adopting, &state, &err) : code;
        exit_code = code == BELAY_OK ? state_print_saved(context, &adopting.cli, state, "adopted")
                                     : cli_error(context, &err);
    }
    state_lock_release(context, &adopting.lock, code == BELAY_OK);
    belay_state_free(state);
    belay_state_free(adopting.there);
    free(adopting.snapshot);
    state_cli_close(&adopting.cli);
    belay_error_release(&err);
    return exit_code;
}

static const struct option_def adopt_defs[] = {
    { .name = "snapshot",
      .kind = OPTION_TEXT,
      .value = "WHICH",
      .help = "a snapshot instead: 'latest', a number or a time, as 'state history' lists them" },
    { .name = "yes", .kind = OPTION_FLAG, .help = "do not ask; needed where there is no terminal" },
    { .name = NULL },
};
static const struct option_group adopt_group = { "Options", adopt_defs };

const struct cli_command cmd_state_adopt = {
    .name = "state adopt",
    .synopsis = "--stack S --environment E [OPTIONS]",
    .summary = "accept a state that another program wrote",
    .about =
        "A state whose checksums do not fit is refused: it may be damaged. If it is as another program "
        "wrote it, which makes its checksums in another way or not at all, this accepts it. It shows what "
        "it is and what does not fit, and asks; only 'yes' goes on. The content becomes a new version with "
        "checksums of belay's, the bytes as they were are kept as a snapshot, and who adopted it is recorded "
        "in its history. What is deployed stays as the metadata says.",
    .groups = { &state_group, &lock_group, &deploy_info_group, &adopt_group },
    .exits = { { 0, "adopted, or sound already" },
               { 64, "the command line is wrong, or there is nobody to ask and no --yes" },
               { 65, "it is not a state at all" },
               { 66, "there is no such state, or no such snapshot" },
               { 69, "a store could not be reached" },
               { 74, "unknown: it may have been adopted" },
               { 75, "somebody else holds the lock" },
               { 77,
                 "not confirmed, it has changed since it was shown, or a later holder has it; nothing was "
                 "changed" } },
    .examples = { { "belay state adopt --stack shop --environment prod",
                    "the deployer before belay wrote it" },
                  { "belay state adopt --stack shop --environment prod --snapshot 2 --yes",
                    "go back to a snapshot that it wrote" } },
    .exec = exec_adopt,
};
