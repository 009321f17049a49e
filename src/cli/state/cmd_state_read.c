/* belay state load, verify, history and list, which change nothing and need no lock. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/new_file.h"
#include "cli/commands/commands.h"
#include "cli/core/cli_list.h"
#include "cli/output/print.h"
#include "cli/state/state_cli.h"
#include "json/json_write.h"

/* ---- load -------------------------------------------------------------------------- */

static enum belay_code load_chosen(struct state_cli *cli, const struct options *options,
                                   struct belay_state **out_state, struct belay_error *err)
{
    const char *which = options_text(options, "snapshot");
    char *snapshot = NULL;
    enum belay_code code = BELAY_OK;

    if (which == NULL) {
        return belay_state_load(cli->states, &cli->name, out_state, err);
    }
    code = belay_state_find_snapshot(cli->states, &cli->name, which, &snapshot, err);
    if (code == BELAY_OK) {
        code = belay_state_load_snapshot(cli->states, &cli->name, snapshot, out_state, err);
    }
    free(snapshot);
    return code;
}

static int exec_state_load(struct cli_context *context, const struct options *options,
                           struct belay_error *err)
{
    const char *path = options_text(options, "output");
    struct belay_state *state = NULL;
    struct state_cli cli;
    int code = CLI_OK;

    if (state_cli_open(context, options, &cli, err) != BELAY_OK ||
        load_chosen(&cli, options, &state, err) != BELAY_OK) {
        code = cli_error(context, err);
    } else if (path != NULL && !state_write_file(path, "we", state)) {
        code = cli_fail(context, new_file_code(errno), "cannot write '%.300s': %s", path, strerror(errno));
    } else if (path == NULL) {
        (void)fwrite(state->text, 1, state->len, stdout);
        if (state->len > 0 && state->text[state->len - 1] != '\n') {
            (void)putchar('\n');
        }
    }
    if (code == CLI_OK && state != NULL && !state->has_checksums) {
        cli_warn(context, "this state has no checksums to verify: another program wrote it");
    }
    belay_state_free(state);
    state_cli_close(&cli);
    return code;
}

static const struct option_group load_group = {
    "Options",
    OPTION_TABLE(SNAPSHOT_OPTION, OPT_FROM(COMPLETE_FILE, "output", "FILE",
                                           "write the state to FILE instead of standard output"))
};

const struct cli_command cmd_state_load = {
    .name = "state load",
    .synopsis = "--stack S --environment E [--output FILE]",
    .summary = "print the deployment state",
    .about = "Verifies the checksums of the state and prints it, byte for byte as it is stored.",
    .groups = { &state_group, &load_group },
    .exits = { { 0, "printed" },
               CLI_EXIT_USAGE,
               { 65, "the state is damaged; the message names the part" },
               { 66, "there is no such state or snapshot" },
               { 69, "the state store is unreachable, or the disk is full" },
               { 77, "not permitted" },
               CLI_EXIT_CONFIG },
    .examples = { { "belay state load --stack shop --environment prod", "the current state" },
                  { "belay state load --stack shop --environment prod --snapshot 2",
                    "the second newest snapshot" } },
    .exec = exec_state_load,
};

/* ---- verify ------------------------------------------------------------------------ */

struct verify_view {
    const struct cli_context *context;
    json_t *parts; /* owned; with --json */
};

static void print_part(void *context, const struct belay_finding *finding)
{
    struct verify_view *view = context;
    bool is_right = finding->level == BELAY_FINDING_OK;

    if (view->context->json) {
        (void)json_array_append_new(view->parts, json_pack("{s:o,s:s,s:o}", "part", wire_text(finding->name),
                                                           "level", belay_finding_level_name(finding->level),
                                                           "message", wire_text(finding->text)));
    } else if (!view->context->quiet || !is_right) {
        (void)printf("%s%-7s%s ", print_style(view->context->color_out, is_right ? "green" : "red"),
                     belay_finding_level_name(finding->level),
                     print_style(view->context->color_out, PRINT_RESET));
        print_line_escaped(stdout, "%s: %s", finding->name, finding->text);
    }
}

static int exec_state_verify(struct cli_context *context, const struct options *options,
                             struct belay_error *err)
{
    const char *which = options_text(options, "snapshot");
    struct verify_view view = { .context = context, .parts = json_array() };
    struct state_cli cli;
    char *snapshot = NULL;
    enum belay_code code = state_cli_open(context, options, &cli, err);
    int exit_code = CLI_OK;

    if (code == BELAY_OK && which != NULL) {
        code = belay_state_find_snapshot(cli.states, &cli.name, which, &snapshot, err);
    }
    if (code == BELAY_OK) {
        code = belay_state_verify(cli.states, &cli.name, snapshot, print_part, &view, err);
    }
    if (context->json && (code == BELAY_OK || code == BELAY_BAD_CONTENT)) {
        exit_code = cli_print_line(
            context, wire_line(json_pack("{s:b,s:O}", "ok", code == BELAY_OK, "parts", view.parts)));
    }
    if (code != BELAY_OK) {
        exit_code = cli_error(context, err);
    }
    json_decref(view.parts);
    free(snapshot);
    state_cli_close(&cli);
    return exit_code;
}

static const struct option_group verify_group = { "Options", OPTION_TABLE(SNAPSHOT_OPTION) };

const struct cli_command cmd_state_verify = {
    .name = "state verify",
    .synopsis = "--stack S --environment E [--snapshot WHICH]",
    .summary = "verify the checksums of a state",
    .about = "Compares every part of the state with the checksums from when it was saved. White space, the "
             "order of names and the way a character is escaped do not matter; any other difference is "
             "reported with the part that contains it.",
    .groups = { &state_group, &verify_group },
    .exits = { { 0, "the checksums match" },
               CLI_EXIT_USAGE,
               { 65, "the state is damaged; the message names the part" },
               { 66, "there is no such state" },
               { 69, "the state store is unreachable" } },
    .examples = { { "belay state verify --stack shop --environment prod", "verify the current state" } },
    .exec = exec_state_verify,
};

/* ---- history ----------------------------------------------------------------------- */

struct history_view {
    const struct cli_context *context;
    struct buf deployments; /* for --json: the original text, so that numbers keep their form */
    struct buf shown;       /* lines of text */
    json_t *snapshots;      /* owned */
    bool failed;
};

static const char *entry_text(const json_t *entry, const char *name)
{
    const char *text = json_string_value(json_object_get(entry, name));

    return text == NULL ? "-" : text;
}

static bool on_deployment(void *context, const char *text)
{
    struct history_view *view = context;
    json_t *entry = json_loads(text, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, NULL);

    buf_addf(&view->deployments, "%s%s", view->deployments.len == 0 ? "" : ",", text);
    buf_addf(&view->shown, "  %-20.40s  %-9.40s  ", entry_text(entry, "timestamp"),
             entry_text(entry, "status"));
    escape_text(&view->shown, entry_text(entry, "deployment_id"));
    buf_adds(&view->shown, "  ");
    escape_text(&view->shown, entry_text(entry, "triggered_by"));
    buf_addf(&view->shown, "  %.12s\n", entry_text(entry, "git_commit"));
    json_decref(entry);
    return !view->deployments.failed && !view->shown.failed;
}

static bool on_snapshot(void *context, const struct belay_snapshot *snapshot)
{
    struct history_view *view = context;

    view->failed = json_array_append_new(view->snapshots,
                                         json_pack("{s:I,s:s,s:s,s:I}", "index", (json_int_t)snapshot->index,
                                                   "timestamp", snapshot->timestamp, "name", snapshot->name,
                                                   "size", (json_int_t)snapshot->size)) != 0;
    return !view->failed;
}

static void print_history(const struct history_view *view)
{
    size_t i;
    json_t *entry;

    (void)puts("Deployments:");
    (void)fputs(view->shown.len == 0 ? "  none\n" : view->shown.data, stdout);
    (void)puts("\nSnapshots:");
    json_array_foreach(view->snapshots, i, entry)
    {
        (void)printf("  %3lld  %s  %s  %lld bytes\n",
                     (long long)json_integer_value(json_object_get(entry, "index")),
                     entry_text(entry, "timestamp"), entry_text(entry, "name"),
                     (long long)json_integer_value(json_object_get(entry, "size")));
    }
    if (json_array_size(view->snapshots) == 0) {
        (void)puts("  none");
    }
}

static int exec_state_history(struct cli_context *context, const struct options *options,
                              struct belay_error *err)
{
    struct history_view view = { context, BUF_INIT(BELAY_BLOB_SIZE_MAX), BUF_INIT(BELAY_BLOB_SIZE_MAX),
                                 json_array(), false };
    struct state_cli cli;
    long limit = 0;
    enum belay_code code = state_cli_open(context, options, &cli, err);
    int exit_code = CLI_OK;

    (void)options_count(options, "limit", &limit);
    if (code == BELAY_OK) {
        code = belay_state_snapshots(cli.states, &cli.name, on_snapshot, &view, err);
    }
    if (code == BELAY_OK) {
        code = belay_state_history(cli.states, &cli.name, (size_t)limit, on_deployment, &view, err);
        /* A damaged state still has snapshots, and users find them here. */
        if (code == BELAY_BAD_CONTENT && json_array_size(view.snapshots) > 0) {
            cli_warn(context, "%s", err->text);
            code = BELAY_OK;
        }
    }
    if (code != BELAY_OK || view.failed || view.deployments.failed) {
        exit_code =
            code != BELAY_OK ? cli_error(context, err) : cli_fail(context, BELAY_NO_MEMORY, "out of memory");
    } else if (context->json) {
        char *line = wire_line(json_incref(view.snapshots));

        (void)printf("{\"deployments\":[%s],\"snapshots\":%s}\n",
                     view.deployments.len == 0 ? "" : view.deployments.data, line == NULL ? "[]" : line);
        free(line);
    } else {
        print_history(&view);
    }
    buf_release(&view.deployments);
    buf_release(&view.shown);
    json_decref(view.snapshots);
    state_cli_close(&cli);
    return exit_code;
}

static const struct option_group history_group = {
    "Options", OPTION_TABLE(OPT_COUNT("limit", 1, "only the last N deployments"))
};

const struct cli_command cmd_state_history = {
    .name = "state history",
    .synopsis = "--stack S --environment E [--limit N]",
    .summary = "list the deployments and snapshots of a state",
    .about = "Lists the deployments recorded in the state and its snapshots, newest first. 'belay state "
             "restore' accepts the number or the time of a snapshot.",
    .groups = { &state_group, &history_group },
    .exits = { { 0, "listed" },
               CLI_EXIT_USAGE,
               { 65, "the state is damaged" },
               { 66, "there is no such state" },
               { 69, "the state store is unreachable" } },
    .examples = { { "belay state history --stack shop --environment prod --limit 5",
                    "the last five deployments" } },
    .exec = exec_state_history,
};

/* ---- list -------------------------------------------------------------------------- */

static const struct text_column columns[] = {
    { "STACK", 8 },
    { "ENVIRONMENT", 8 },
    { "BYTES", 0 },
    { "CHANGED", 0 },
};
static const struct cli_list_kind all_states = { "states", columns, sizeof columns / sizeof columns[0],
                                                 false };

static bool add_state_entry(void *context, const struct belay_state_name *name, uint64_t size,
                            int64_t modified_unix_ms)
{
    struct cli_list *list = context;
    char text[CLOCK_TEXT_SIZE];

    if (list->form == CLI_LIST_JSON) {
        cli_list_add_json(
            list, wire_line(json_pack("{s:o,s:o,s:I,s:o}", "stack", wire_text(name->stack), "environment",
                                      wire_text(name->environment), "size", (json_int_t)size, "last_modified",
                                      wire_time(modified_unix_ms))));
    } else {
        text_table_add(list->table, name->stack);
        text_table_add(list->table, name->environment);
        (void)snprintf(text, sizeof text, "%llu", (unsigned long long)size);
        text_table_add(list->table, text);
        text_table_add(list->table, clock_format_utc(text, modified_unix_ms, false));
    }
    return cli_list_next(list);
}

static int print_states(struct cli_context *context, struct belay_states *states, struct belay_error *err)
{
    struct cli_list list;
    int status = cli_list_begin(&list, &all_states, context);

    if (status == CLI_OK) {
        status = cli_list_end(&list, belay_state_list(states, add_state_entry, &list, err), err);
    }
    if (status == CLI_OK) {
        cli_list_close(&list, "");
        if (list.n == 0) {
            cli_note(context, "no states in %s", belay_states_url(states));
        }
    }
    return status;
}

static int exec_state_list(struct cli_context *context, const struct options *options,
                           struct belay_error *err)
{
    struct state_cli cli;
    int code;

    (void)options;
    code = state_store_open(context, &cli, err) == BELAY_OK ? print_states(context, cli.states, err)
                                                            : cli_error(context, err);
    state_cli_close(&cli);
    return code;
}

const struct cli_command cmd_state_list = {
    .name = "state list",
    .synopsis = "",
    .summary = "list the states in the state store",
    .about = "Lists the stacks and environments that have a state, with the size and the time of the last "
             "change.",
    .exits = { { 0, "listed, even if there are none" },
               { 69, "the state store is unreachable" },
               CLI_EXIT_CONFIG },
    .examples = { { "belay state list --json", "as JSON" } },
    .exec = exec_state_list,
};
