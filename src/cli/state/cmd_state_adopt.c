/* belay state adopt: accept a state that another program wrote. */
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
    struct belay_state *there; /* owned; shown, then accepted */
    bool is_sound;
};

/* ---- showing the state ------------------------------------------------------------------ */

static void print_property(const char *name, const char *text)
{
    print_line_escaped(stderr, "  %-16s %s", name, text == NULL ? "-" : text);
}

static void print_mismatch(void *context, const struct belay_finding *finding)
{
    const bool *is_shown = context;

    if (*is_shown && finding->level != BELAY_FINDING_OK) {
        print_line_escaped(stderr, "  ! %s: %s", finding->name, finding->text);
    }
}

static bool count_entry(void *context, const char *json)
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
    print_property("last updated", there->last_updated);
    print_property("by", there->last_updated_by);
    print_property("deployment", there->deployment_id);
    (void)fprintf(stderr, "  %-16s %zu\n", "resources", there->n_resources);
    if (adopting->snapshot == NULL &&
        belay_state_history(cli->states, &cli->name, 0, count_entry, &n, NULL) == BELAY_OK) {
        (void)fprintf(stderr, "  %-16s %zu\n", "deployments", n);
    }
}

/* Load the state, and show it with its checksum errors. */
static enum belay_code load_and_show(struct cli_context *context, const struct options *options,
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
        code = belay_state_verify(cli->states, &cli->name, adopting->snapshot, print_mismatch, &is_shown,
                                  &damage);
        adopting->is_sound = code == BELAY_OK && adopting->there->has_checksums;
        code = code == BELAY_BAD_CONTENT || code == BELAY_OK ? BELAY_OK
                                                             : error_set(err, code, "%s", damage.text);
    }
    belay_error_release(&damage);
    return code;
}

/* ---- accepting it ------------------------------------------------------------------------ */

static enum belay_code adopt_under_lock(struct cli_context *context, const struct options *options,
                                        struct adopting *adopting, struct belay_state **out_state,
                                        struct belay_error *err)
{
    struct belay_state_write write;
    enum belay_code code = cli_confirm(context, options, "adopt the state and give it new checksums", err);

    if (code == BELAY_OK) {
        code = state_lock_take(context, options, 0, &adopting->info, &adopting->lock, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    adopting->info.deployment.status = "adopted";
    adopting->info.deployment.version = adopting->snapshot;
    write = state_lock_write(&adopting->lock, &adopting->info.deployment);
    write.loaded = adopting->snapshot == NULL ? &adopting->there->tag : NULL;
    return belay_state_adopt(adopting->cli.states, &adopting->cli.name, adopting->snapshot, &write, out_state,
                             err);
}

static int exec_state_adopt(struct cli_context *context, const struct options *options,
                            struct belay_error *err)
{
    struct adopting adopting = { .lock = { .request = LOCK_REQUEST_INIT } };
    struct belay_state *state = NULL;
    enum belay_code code = state_cli_open(context, options, &adopting.cli, err);
    int exit_code;

    if (code == BELAY_OK) {
        code = deploy_info_read(options, &adopting.info, err);
    }
    if (code == BELAY_OK) {
        code = load_and_show(context, options, &adopting, err);
    }
    if (code == BELAY_OK && adopting.is_sound && adopting.snapshot == NULL) {
        exit_code = state_print_saved(context, &adopting.cli, adopting.there,
                                      "nothing to adopt, the checksums match:");
    } else {
        code = code == BELAY_OK ? adopt_under_lock(context, options, &adopting, &state, err) : code;
        exit_code = code == BELAY_OK ? state_print_saved(context, &adopting.cli, state, "adopted")
                                     : cli_error(context, err);
    }
    state_lock_release(context, &adopting.lock, code == BELAY_OK);
    belay_state_free(state);
    belay_state_free(adopting.there);
    free(adopting.snapshot);
    state_cli_close(&adopting.cli);
    return exit_code;
}

static const struct option_group adopt_group = { "Options", OPTION_TABLE(SNAPSHOT_OPTION, CLI_YES_OPTION) };

const struct cli_command cmd_state_adopt = {
    .name = "state adopt",
    .synopsis = "--stack S --environment E [OPTIONS]",
    .summary = "accept a state that another program wrote",
    .about = "Accepts a state whose checksums do not match. belay otherwise refuses such a state, because it "
             "may be damaged. Use this command if the state is intact and another program wrote it, with "
             "other checksums or with none. It shows the state and the mismatches and asks for confirmation; "
             "only 'yes' confirms. The content becomes a new version with belay's checksums, the original "
             "bytes are kept as a snapshot, and the history records who adopted it. The metadata about what "
             "is deployed does not change.",
    .groups = { &state_group, &lock_group, &deploy_info_group, &adopt_group },
    .exits = { { 0, "adopted, or the checksums matched already" },
               { 64, "the command line is wrong, or --yes is missing without a terminal" },
               { 65, "the content is not a state" },
               { 66, "there is no such state or snapshot" },
               { 69, "a store is unreachable" },
               { 74, "unknown: the state may have been adopted" },
               { 75, "another client holds the lock" },
               { 77, "not confirmed, the state changed since it was shown, or a later holder has it; nothing "
                     "was changed" } },
    .examples = { { "belay state adopt --stack shop --environment prod", "another deployer wrote the state" },
                  { "belay state adopt --stack shop --environment prod --snapshot 2 --yes",
                    "go back to a snapshot that it wrote" } },
    .exec = exec_state_adopt,
};
