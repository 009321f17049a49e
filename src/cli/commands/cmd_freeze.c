/* freeze, unfreeze, freezes. */
#include <string.h>

#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/core/cli_list.h"
#include "cli/output/print.h"
#include "json/json_write.h"

/* ---- what is printed ---- */

struct freeze_print {
    const struct cli_context *context;
    const char *done; /* "frozen", "ended" */
    bool failed;
};

static bool print_freeze(void *context, const struct belay_freeze *freeze)
{
    struct freeze_print *print = context;
    char from[CLOCK_TEXT_SIZE];
    char until[CLOCK_TEXT_SIZE];

    if (print->context->json) {
        print->failed = cli_print_line(print->context, wire_line(wire_freeze(freeze))) != CLI_OK;
        return !print->failed;
    }
    if (print->context->quiet) {
        (void)printf("%s\n", freeze->id);
        return true;
    }
    (void)clock_format_utc(from, freeze->from_unix_ms, false);
    (void)clock_format_utc(until, freeze->until_unix_ms, false);
    print_line_escaped(stdout, "%s '%s'%s%s%s%s: %s (%s)", print->done, freeze->pattern,
                       freeze->from_unix_ms == 0 ? "" : " from ", freeze->from_unix_ms == 0 ? "" : from,
                       freeze->until_unix_ms == 0 ? "" : " until ", freeze->until_unix_ms == 0 ? "" : until,
                       freeze->reason, freeze->id);
    return true;
}

/* ---- freeze ---- */

static enum belay_code read_time_option(const struct options *options, const char *name, int64_t *out_unix_ms,
                                        struct belay_error *err)
{
    const char *text = options_text(options, name);

    return text == NULL || clock_parse_rfc3339(text, out_unix_ms)
               ? BELAY_OK
               : error_set(err, BELAY_INVALID,
                           "--%s '%.60s' is not a time: write it as 2026-11-28T00:00:00Z, or with an offset, "
                           "2026-11-28T00:00:00+01:00",
                           name, text);
}

static enum belay_code read_freeze(const struct options *options, struct belay_freeze_options *freeze,
                                   struct belay_error *err)
{
    enum belay_code code = read_time_option(options, "from", &freeze->from_unix_ms, err);

    if (code == BELAY_OK) {
        code = read_time_option(options, "until", &freeze->until_unix_ms, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    freeze->reason = options_text(options, "reason");
    if (freeze->reason == NULL) {
        return error_set(err, BELAY_INVALID,
                         "no reason given: add --reason TEXT, shown to every client that the freeze refuses");
    }
    if (options_has(options, "until") && options_has(options, "for")) {
        return error_set(err, BELAY_INVALID, "--until and --for exclude each other: both say when it ends");
    }
    if (options_duration(options, "for", &freeze->for_ms) && freeze->for_ms == 0) {
        return error_set(err, BELAY_INVALID, "--for '%s' is too short: a freeze lasts at least 1ms",
                         options_text(options, "for"));
    }
    return BELAY_OK;
}

static int exec_freeze(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    struct belay_freeze_options freeze = BELAY_FREEZE_OPTIONS_INIT;
    struct freeze_print print = { .context = context, .done = "frozen:" };
    struct belay_client *client;
    char by[BELAY_OWNER_MAX + 1];

    unlock_actor(by, sizeof by);
    freeze.by = by;
    if (read_freeze(options, &freeze, err) != BELAY_OK || cli_client(context, &client, err) != BELAY_OK ||
        belay_freeze(client, options->args[0], &freeze, print_freeze, &print, err) != BELAY_OK) {
        return cli_error(context, err);
    }
    return print.failed ? CLI_UNKNOWN : CLI_OK;
}

static const struct option_group freeze_group = {
    "Options",
    OPTION_TABLE(OPT_TEXT("reason", "TEXT", "the reason; shown to every client that the freeze refuses"),
                 OPT_TEXT("from", "TIME", "when it begins, such as 2026-11-26T18:00:00Z; default: now"),
                 OPT_TEXT("until", "TIME",
                          "when it ends, such as 2026-11-28T00:00:00Z; default: with 'belay unfreeze'"),
                 OPT_DURATION("for", "how long it lasts, instead of --until"))
};

/* clang-format off */
#define EXIT_FREEZE_STORE { 64, "the command line is wrong, or the store has no freezes" }
#define EXIT_FREEZE_DENIED { 77, "the server's token is not an admin's, or its keys do not match" }
/* clang-format on */

const struct cli_command cmd_freeze = {
    .name = "freeze",
    .synopsis = "PATTERN --reason TEXT [--from TIME] [--until TIME | --for D]",
    .summary = "refuse new acquisitions of some locks",
    .about = "While the freeze is in force, no new client can acquire a lock whose key matches PATTERN. "
             "'belay acquire' and 'belay run' show the reason and exit with 75, or wait with --wait. In "
             "PATTERN '*' matches any run of characters. Holders keep their locks: they can renew, release, "
             "adopt and re-enter them. Waiters keep their places in the queue.\n\n"
             "When the command returns, the freeze is on disk, and every acquisition that begins later is "
             "refused. An admin can still acquire a lock, with --ignore-freeze and --reason.\n\n"
             "TIME is written as in RFC 3339, and compared with the clock of the machine that has the SQLite "
             "file, of the PostgreSQL server, or of the belay server. On DynamoDB all clients must have "
             "freezes=on in the URL of the store, and a freeze is in force if DynamoDB's clock or the "
             "client's says so.",
    .groups = { &freeze_group },
    .min_args = 1,
    .max_args = 1,
    .exits = { { 0, "frozen" },
               EXIT_FREEZE_STORE,
               CLI_EXIT_UNREACHABLE,
               { 74, "unknown: it may be frozen" },
               EXIT_FREEZE_DENIED },
    .examples = { { "belay freeze 'deploy-*' --reason 'incident 42'", "until it is ended" },
                  { "belay freeze '*-prod' --reason 'Black Friday' --for 48h", "for two days" } },
    .exec = exec_freeze,
};

/* ---- unfreeze ---- */

static int exec_unfreeze(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    struct freeze_print print = { .context = context, .done = "no longer frozen:" };
    struct belay_client *client;
    char by[BELAY_OWNER_MAX + 1];

    unlock_actor(by, sizeof by);
    if (cli_existing_client(context, &client, err) != BELAY_OK ||
        belay_unfreeze(client, options->args[0], by, options_text(options, "reason"), print_freeze, &print,
                       err) != BELAY_OK) {
        return cli_error(context, err);
    }
    return print.failed ? CLI_UNKNOWN : CLI_OK;
}

static const struct option_group unfreeze_group = {
    "Options", OPTION_TABLE(OPT_TEXT("reason", "TEXT", "the reason, for the history"))
};

const struct cli_command cmd_unfreeze = {
    .name = "unfreeze",
    .synopsis = "ID|PATTERN [--reason TEXT]",
    .summary = "end a freeze",
    .about = "Ends the freeze with this id, or every freeze with exactly this pattern. The first waiter of "
             "each lock that was frozen acquires it.",
    .groups = { &unfreeze_group },
    .min_args = 1,
    .max_args = 1,
    .exits = { { 0, "ended" },
               EXIT_FREEZE_STORE,
               { 66, "there is no such freeze" },
               CLI_EXIT_UNREACHABLE,
               { 74, "unknown: it may have ended" },
               EXIT_FREEZE_DENIED },
    .examples = { { "belay unfreeze 'deploy-*'", "by its pattern" } },
    .exec = exec_unfreeze,
};

/* ---- freezes ---- */

static const struct text_column columns[] = {
    { "ID", 0 }, { "PATTERN", 8 }, { "FROM", 0 }, { "UNTIL", 0 }, { "BY", 8 }, { "REASON", 8 },
};
static const struct cli_list_kind freezes = { "freezes", columns, sizeof columns / sizeof columns[0], true };

static bool list_freeze(void *context, const struct belay_freeze *freeze)
{
    struct cli_list *list = context;
    char text[CLOCK_TEXT_SIZE];

    if (list->form == CLI_LIST_JSON) {
        cli_list_add_json(list, wire_line(wire_freeze(freeze)));
    } else if (list->form == CLI_LIST_NAMES) {
        cli_list_add_name(list, freeze->id);
    } else {
        text_table_add(list->table, freeze->id);
        text_table_add(list->table, freeze->pattern);
        text_table_add(
            list->table,
            clock_format_utc(text, freeze->from_unix_ms == 0 ? freeze->created_unix_ms : freeze->from_unix_ms,
                             false));
        text_table_add(list->table, freeze->until_unix_ms == 0
                                        ? "-"
                                        : clock_format_utc(text, freeze->until_unix_ms, false));
        text_table_add(list->table, freeze->by);
        text_table_add(list->table, freeze->reason);
    }
    return cli_list_next(list);
}

static enum belay_code read_freezes(struct belay_client *client, struct cli_list *list,
                                    struct belay_error *err)
{
    return belay_freezes(client, list_freeze, list, err);
}

static int exec_freezes(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    struct belay_client *client;
    size_t n;

    (void)options;
    return cli_existing_client(context, &client, err) == BELAY_OK
               ? cli_list_read(context, client, &freezes, read_freezes, &n, err)
               : cli_error(context, err);
}

const struct cli_command cmd_freezes = {
    .name = "freezes",
    .synopsis = "",
    .summary = "list the freezes",
    .about =
        "Lists the freezes that are in force or begin later. Through a server, those that concern the "
        "keys of the token.\n\n"
        "With --json it prints {\"freezes\": [...]}, each with id, pattern, reason, by, created_at, from, "
        "until and in_force.",
    .exits = { { 0, "listed, even if there is none" },
               EXIT_FREEZE_STORE,
               CLI_EXIT_NO_STORE,
               CLI_EXIT_UNREACHABLE },
    .examples = { { "belay freezes", "what is frozen, until when and why" } },
    .exec = exec_freezes,
};
