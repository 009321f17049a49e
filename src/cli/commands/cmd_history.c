#include <stdlib.h>

#include "base/buf.h"
#include "base/clock.h"
#include "cli/commands/commands.h"
#include "cli/core/cli_list.h"
#include "cli/core/lock_options.h"
#include "cli/output/print.h"
#include "json/json_write.h"

static const struct text_column columns[] = {
    { "TIME", 0 }, { "EVENT", 0 }, { "HOLDER", 12 }, { "TOKEN", 0 }, { "AFTER", 0 }, { "NOTE", 8 },
};
static const struct cli_list_kind events = { "events", columns, sizeof columns / sizeof columns[0], false };

static void add_event_row(struct text_table *table, const struct belay_event *event)
{
    struct buf holder = BUF_INIT(1 << 16);
    struct buf note = BUF_INIT(1 << 16);
    char text[CLOCK_TEXT_SIZE];

    text_table_add(table, clock_format_utc(text, event->at_unix_ms, false));
    text_table_add(table, event->type);
    print_event_holder(&holder, event);
    text_table_add(table, holder.failed || holder.len == 0 ? "-" : holder.data);
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)event->token);
    text_table_add(table, event->token == 0 ? "-" : text);
    text_table_add(table, event->duration_ms < 0 ? "-" : clock_format_span(text, event->duration_ms));
    if (event->by != NULL) {
        buf_addf(&note, "by %s%s", event->by, event->reason == NULL ? "" : ": ");
    }
    buf_adds(&note, event->reason == NULL ? "" : event->reason);
    text_table_add(table, note.failed || note.data == NULL ? "" : note.data);
    buf_release(&note);
    buf_release(&holder);
}

static bool add_history_event(void *context, const struct belay_event *event)
{
    struct cli_list *list = context;

    if (list->form == CLI_LIST_JSON) {
        cli_list_add_json(list, wire_line(wire_event(event)));
    } else {
        add_event_row(list->table, event);
    }
    return cli_list_next(list);
}

static int print_events(struct cli_context *context, struct belay_client *client, const char *key,
                        size_t limit, struct belay_error *err)
{
    struct cli_list list;
    int status = cli_list_begin(&list, &events, context);

    if (status == CLI_OK) {
        status = cli_list_end(&list, belay_history(client, key, limit, add_history_event, &list, err), err);
    }
    if (status != CLI_OK) {
        return status;
    }
    if (list.n == 0) {
        return cli_fail(context, BELAY_NOT_FOUND, "no history of '%s' in %s", key,
                        belay_client_store_url(client));
    }
    cli_list_close(&list, "");
    return CLI_OK;
}

static int exec_history(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    struct belay_client *client;
    char *key = NULL;
    long limit = 0;
    int code;

    (void)options_count(options, "limit", &limit);
    if (read_key_argument(context, options, 0, &key, err) != BELAY_OK ||
        cli_existing_client(context, &client, err) != BELAY_OK) {
        code = cli_error(context, err);
    } else {
        code = print_events(context, client, key, (size_t)limit, err);
    }
    free(key);
    return code;
}

static const struct option_group group = {
    "Options", OPTION_TABLE(OPT_COUNT("limit", 1, "the last N events; default: all that are kept"))
};

const struct cli_command cmd_history = {
    .name = "history",
    .synopsis = "KEY [--limit N]",
    .summary = "show the history of a lock",
    .about = "Shows every event of a lock, oldest first: acquired, renewed, refused, waited, lost, released, "
             "or ended by another client, with the reason. AFTER is how long the lock had been held or "
             "waited for.\n\n"
             "If the store keeps no history, as on DynamoDB, the events come from the last 64 MiB of the "
             "audit file, if the configuration has 'audit: {file: PATH}'.\n\n"
             "With --json it prints {\"events\": [...]}, each with id, timestamp, level, event, lock_key, "
             "lock_id, token, locked_by, locked_by_name, by, reason, duration_seconds and metadata.",
    .groups = { &group, &key_group },
    .max_args = 1,
    .takes_key = true,
    .exits = { { 0, "shown" },
               CLI_EXIT_USAGE,
               { 66, "no events of this lock, or neither store nor audit file has a history" },
               CLI_EXIT_UNREACHABLE },
    .examples = { { "belay history deploy-api-prod --limit 20", "its last twenty events" },
                  { "belay history deploy-api-prod --json", "as JSON" } },
    .exec = exec_history,
};
