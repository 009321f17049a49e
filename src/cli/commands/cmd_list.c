#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/commands/commands.h"
#include "cli/core/cli_list.h"
#include "cli/core/lock_options.h"
#include "cli/core/lock_print.h"
#include "cli/output/print.h"
#include "json/json_write.h"

struct lock_list {
    struct cli_list output;
    char *last_key; /* owned; for the cursor */
    int64_t now_unix_ms;
};

static const struct text_column columns[] = {
    { "KEY", 12 },       { "HOLDER", 8 }, { "MODE", 0 },    { "AGE", 0 },
    { "EXPIRES IN", 0 }, { "STATUS", 0 }, { "WAITING", 0 },
};
enum { MODE_COLUMN = 2 };
static const struct cli_list_kind locks = { "locks", columns, sizeof columns / sizeof columns[0], true };

static void add_lock_row(struct text_table *table, const struct belay_info *info, int64_t now_unix_ms)
{
    bool active = info->status == BELAY_STATUS_ACTIVE;
    struct buf holder = BUF_INIT(1 << 16);
    struct buf state = BUF_INIT(256);
    struct buf mode = BUF_INIT(256);
    const struct belay_info *first = info->n_holders > 0 ? &info->holders[0] : info;
    char age[CLOCK_TEXT_SIZE];
    char left[CLOCK_TEXT_SIZE];
    char waiting[24];

    print_holders_short(&holder, info);
    lock_format_mode(&mode, info);
    lock_format_state(&state, info);
    if (info->status == BELAY_STATUS_RELEASED && info->released_at_unix_ms != 0) {
        buf_addf(&state, ", %s ago",
                 clock_format_span(left, (now_unix_ms - info->released_at_unix_ms) / 1000 * 1000));
    }
    (void)snprintf(waiting, sizeof waiting, "%zu", info->n_waiters);
    text_table_add(table, info->key);
    text_table_add(table, holder.failed ? "?" : holder.data);
    text_table_add(table, mode.failed ? "?" : mode.data);
    text_table_add(table, clock_format_span(age, (now_unix_ms - first->locked_at_unix_ms) / 1000 * 1000));
    text_table_add(table, active ? clock_format_span(left, info->expires_in_ms) : "-");
    text_table_add(table, state.failed ? "?" : state.data);
    text_table_add(table, info->n_waiters == 0 ? "-" : waiting);
    buf_release(&holder);
    buf_release(&state);
    buf_release(&mode);
}

static bool add_listed_lock(void *context, const struct belay_info *info)
{
    struct lock_list *list = context;
    struct cli_list *output = &list->output;

    switch (output->form) {
    case CLI_LIST_JSON:
        cli_list_add_json(output, wire_line(wire_lock(info)));
        break;
    case CLI_LIST_NAMES:
        cli_list_add_name(output, info->key);
        break;
    case CLI_LIST_TABLE:
        add_lock_row(output->table, info, list->now_unix_ms);
        break;
    }
    free(list->last_key);
    list->last_key = strdup(info->key);
    output->failed = output->failed || list->last_key == NULL;
    return cli_list_next(output);
}

static enum belay_code read_query(const struct options *options, struct belay_query *query,
                                  struct belay_error *err)
{
    const char *filter = options_text(options, "filter");
    long limit = 0;

    if (options_has(options, "all") && filter != NULL) {
        return error_set(err, BELAY_INVALID, "--all and --filter exclude each other");
    }
    query->prefix = options_text(options, "prefix");
    query->cursor = options_text(options, "cursor");
    query->all = options_has(options, "all");
    query->stale_only = options_has(options, "stale");
    if (options_count(options, "limit", &limit)) {
        query->limit = (size_t)limit;
    }
    if (filter != NULL) {
        filter += strlen("status=");
        query->status = strcmp(filter, "active") == 0    ? BELAY_STATUS_ACTIVE
                        : strcmp(filter, "expired") == 0 ? BELAY_STATUS_EXPIRED
                                                         : BELAY_STATUS_RELEASED;
    }
    return BELAY_OK;
}

static void close_json(const struct lock_list *list, bool more)
{
    char *cursor = more ? wire_line(wire_text(list->last_key)) : NULL;
    struct buf tail = BUF_INIT(1 << 16);

    buf_addf(&tail, ",\"next_cursor\":%s", cursor == NULL ? "null" : cursor);
    cli_list_close(&list->output, tail.failed ? "" : tail.data);
    buf_release(&tail);
    free(cursor);
}

static void end_text(const struct lock_list *list, const struct belay_query *query, bool more)
{
    const struct cli_context *context = list->output.context;
    bool filtered = query->prefix != NULL || query->stale_only || query->status != BELAY_STATUS_NONE ||
                    query->cursor != NULL;

    if (list->output.n == 0 && filtered) {
        cli_note(context, "no matching locks");
        cli_hint(context, "'belay list --all' shows all locks, including released ones");
    } else if (list->output.n == 0) {
        cli_note(context, "no locks in %s%s", belay_client_store_url(context->client),
                 context->is_new_store ? ", which did not exist and is created now" : "");
        cli_hint(context, "to acquire one: belay acquire KEY");
    }
    if (more) {
        struct buf cursor = BUF_INIT(4096);

        shell_quote(&cursor, list->last_key);
        cli_note(context, "more locks follow: add --cursor %s", cursor.failed ? "" : cursor.data);
        buf_release(&cursor);
    }
}

int list_locks(struct cli_context *context, struct belay_client *client, const struct belay_query *query,
               struct belay_error *err)
{
    struct lock_list list = { .now_unix_ms = clock_unix_ms() };
    bool more = false;
    int status = cli_list_begin(&list.output, &locks, context);

    if (list.output.table != NULL) {
        text_table_leave_out(list.output.table, MODE_COLUMN, belay_mode_name(BELAY_EXCLUSIVE));
    }
    if (status == CLI_OK) {
        status =
            cli_list_end(&list.output, belay_list(client, query, add_listed_lock, &list, &more, err), err);
    }
    if (status == CLI_OK && context->json) {
        close_json(&list, more);
    } else if (status == CLI_OK) {
        end_text(&list, query, more);
    }
    free(list.last_key);
    return status;
}

static int exec_list(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    struct belay_query query = BELAY_QUERY_INIT;
    struct belay_client *client;

    if (read_query(options, &query, err) != BELAY_OK ||
        cli_existing_client(context, &client, err) != BELAY_OK) {
        return cli_error(context, err);
    }
    return list_locks(context, client, &query, err);
}

static const struct option_group group = {
    "Options", OPTION_TABLE(PREFIX_OPTION,
                            OPT_CHOICE("filter", "status=active|status=expired|status=released",
                                       "only locks with this status; default: active and expired"),
                            OPT_FLAG("all", "locks with any status"),
                            OPT_FLAG("stale", "only locks whose holder missed its heartbeats"),
                            OPT_COUNT("limit", 1, "print at most N locks"),
                            OPT_FROM(COMPLETE_KEY, "cursor", "KEY",
                                     "continue after this key: next_cursor of the previous page"))
};

#define LIST_ABOUT                                                                                           \
    "Lists locks, ordered by key: those that are held, and those whose lease expired without a release. A "  \
    "lock is stale if its holder has missed its heartbeats. If a lock has several holders, the oldest is "   \
    "named and the others are counted. The column MODE appears if any lock is shared or has slots.\n\n"      \
    "On a terminal the columns shrink to fit; elsewhere nothing is truncated. With --quiet only the keys "   \
    "are printed. With --json it prints {\"locks\": [...], \"next_cursor\"}, streamed as it is read."
#define LIST_EXITS                                                                                           \
    {                                                                                                        \
        { 0, "listed, even if there are none" }, CLI_EXIT_USAGE, CLI_EXIT_NO_STORE, CLI_EXIT_UNREACHABLE,    \
            CLI_EXIT_CONFIG,                                                                                 \
    }

const struct cli_command cmd_list = {
    .name = "list",
    .synopsis = "[OPTIONS]",
    .summary = "list locks",
    .about = LIST_ABOUT,
    .groups = { &group },
    .exits = LIST_EXITS,
    .examples = { { "belay list --prefix deploy-", "locks whose keys begin with deploy-" },
                  { "belay list --stale --json", "locks that may need 'belay unlock', as JSON" } },
    .exec = exec_list,
};

const struct cli_command cmd_locks_list = {
    .name = "locks list",
    .synopsis = "[OPTIONS]",
    .summary = "the same as 'belay list'",
    .about = LIST_ABOUT,
    .groups = { &group },
    .exits = LIST_EXITS,
    .examples = { { "belay locks list --filter status=active", "locks that are held" },
                  { "belay locks list --json", "as JSON" } },
    .exec = exec_list,
};
