#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/cmd_list.h"
#include "cli/commands.h"
#include "cli/lock_print.h"
#include "cli/print.h"
#include "cli/table.h"
#include "wire/wire.h"

struct listing {
    const struct cli_context *context;
    struct table *table; /* owned; NULL for JSON and --quiet */
    size_t n;
    char *last_key; /* owned; for the cursor */
    int64_t now_unix_ms;
    bool failed;
};

static const struct table_column columns[] = {
    { "KEY", 12 }, { "HOLDER", 8 }, { "AGE", 0 }, { "EXPIRES IN", 0 }, { "STATUS", 0 }, { "WAITING", 0 },
};
/* Said with the first lock, so that a store that fails at once leaves standard output empty. */
#define LIST_OPENING "{\"locks\":["
enum { N_COLUMNS = sizeof columns / sizeof columns[0] };

static void add_row(struct listing *listing, const struct belay_info *info)
{
    bool active = info->status == BELAY_STATUS_ACTIVE;
    struct buf holder = BUF_INIT(1 << 16);
    struct buf state = BUF_INIT(256);
    char age[CLOCK_TEXT_SIZE];
    char left[CLOCK_TEXT_SIZE];
    char waiting[24];

    print_holder_short(&holder, info);
    lock_state(&state, info);
    (void)snprintf(waiting, sizeof waiting, "%zu", info->n_waiters);
    table_add(listing->table, info->key);
    table_add(listing->table, holder.failed ? "?" : holder.data);
    table_add(listing->table,
              clock_format_span(age, (listing->now_unix_ms - info->locked_at_unix_ms) / 1000 * 1000));
    table_add(listing->table, active ? clock_format_span(left, info->expires_in_ms) : "-");
    table_add(listing->table, state.failed ? "?" : state.data);
    table_add(listing->table, info->n_waiters == 0 ? "-" : waiting);
    buf_release(&holder);
    buf_release(&state);
}

static bool add_json(struct listing *listing, const struct belay_info *info)
{
    char *line = wire_line(wire_lock(info));

    if (line == NULL) {
        return false;
    }
    (void)printf("%s%s", listing->n == 0 ? LIST_OPENING : ",\n", line);
    free(line);
    return true;
}

static bool on_lock(void *context, const struct belay_info *info)
{
    struct listing *listing = context;
    char *key = strdup(info->key);

    if (key == NULL || (listing->context->json && !add_json(listing, info))) {
        free(key);
        listing->failed = true;
        return false;
    }
    if (listing->table != NULL) {
        add_row(listing, info);
    } else if (!listing->context->json) {
        print_safe(stdout, info->key);
        (void)putchar('\n');
    }
    free(listing->last_key);
    listing->last_key = key;
    listing->n++;
    return !ferror(stdout); /* nobody reads any more: stop */
}

static enum belay_code read_query(const struct options *options, struct belay_query *query,
                                  struct belay_error *err)
{
    const char *filter = options_text(options, "filter");
    long limit = 0;

    if (options_has(options, "all") && filter != NULL) {
        return error_set(err, BELAY_INVALID, "--all and --filter contradict each other: give one of them");
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

static int end_json(const struct listing *listing, bool more)
{
    char *cursor = more ? wire_line(wire_text(listing->last_key)) : NULL;

    (void)printf("%s],\"next_cursor\":%s}\n", listing->n == 0 ? LIST_OPENING : "",
                 cursor == NULL ? "null" : cursor);
    free(cursor);
    return CLI_OK;
}

static int end_text(const struct listing *listing, const struct belay_query *query, bool more)
{
    const struct cli_context *context = listing->context;
    bool filtered = query->prefix != NULL || query->stale_only || query->status != BELAY_STATUS_NONE ||
                    query->cursor != NULL;

    if (listing->n == 0 && filtered) {
        cli_note(context, "no such locks");
        cli_hint(context, "'belay list --all' shows all of them, released ones too");
    } else if (listing->n == 0) {
        cli_note(context, "no locks in %s", belay_client_store_url(context->client));
        cli_hint(context, "to take one: belay acquire KEY");
    }
    if (more) {
        struct buf cursor = BUF_INIT(4096);

        shell_quote(&cursor, listing->last_key);
        cli_note(context, "there are more: --cursor %s", cursor.failed ? "" : cursor.data);
        buf_release(&cursor);
    }
    return CLI_OK;
}

int list_locks(struct cli_context *context, struct belay_client *client, const struct belay_query *query,
               struct belay_error *err)
{
    struct listing listing = { .context = context, .now_unix_ms = clock_unix_ms() };
    enum belay_code code;
    bool more = false;
    int status;

    if (!context->json && !context->quiet) {
        listing.table =
            table_new(stdout, columns, N_COLUMNS, print_columns(STDOUT_FILENO), context->color_out);
        if (listing.table == NULL) {
            return cli_fail(context, BELAY_NO_MEMORY, "out of memory");
        }
    }
    code = belay_list(client, query, on_lock, &listing, &more, err);
    if (listing.table != NULL) {
        listing.failed = !table_finish(listing.table) || listing.failed;
    }
    if (code != BELAY_OK) {
        status = cli_error(context, err);
    } else if (listing.failed) {
        status = cli_fail(context, BELAY_NO_MEMORY, "out of memory");
    } else {
        status = context->json ? end_json(&listing, more) : end_text(&listing, query, more);
    }
    free(listing.last_key);
    return status;
}

static int exec_list(struct cli_context *context, const struct options *options)
{
    struct belay_query query = BELAY_QUERY_INIT;
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_client *client;
    int code;

    if (read_query(options, &query, &err) != BELAY_OK || cli_client(context, &client, &err) != BELAY_OK) {
        code = cli_error(context, &err);
    } else {
        code = list_locks(context, client, &query, &err);
    }
    belay_error_release(&err);
    return code;
}

static const struct option_def defs[] = {
    { .name = "prefix",
      .kind = OPTION_TEXT,
      .value = "P",
      .complete = COMPLETE_KEY,
      .help = "only locks whose key begins with P" },
    { .name = "filter",
      .kind = OPTION_CHOICE,
      .choices = "status=active|status=expired|status=released",
      .help = "only locks of this status; by default active and expired ones" },
    { .name = "all", .kind = OPTION_FLAG, .help = "locks of any status" },
    { .name = "stale", .kind = OPTION_FLAG, .help = "only locks whose holder missed its heartbeats" },
    { .name = "limit", .kind = OPTION_COUNT, .value = "N", .min = 1, .help = "at most N of them" },
    { .name = "cursor",
      .kind = OPTION_TEXT,
      .value = "KEY",
      .complete = COMPLETE_KEY,
      .help = "go on after this key: next_cursor of the list before" },
    { .name = NULL },
};
static const struct option_group group = { "Options", defs };

#define LIST_ABOUT                                                                                           \
    "Lists locks in the order of their keys: those that are held, and those whose lease ended without a "    \
    "release. A lock is stale if its holder declared a heartbeat and has missed it for long.\n\n"            \
    "On a terminal the columns shrink to fit; elsewhere nothing is cut. With --quiet only the keys are "     \
    "printed. With --json it prints {\"locks\": [...], \"next_cursor\"}, however many there are, as they "   \
    "are read."
#define LIST_EXITS                                                                                           \
    {                                                                                                        \
        { 0, "listed, even if there are none" }, { 64, "the command line is wrong" },                        \
            { 69, "the store could not be reached" }, { 78, "the configuration is wrong" },                  \
    }

const struct cli_command cmd_list = {
    .name = "list",
    .synopsis = "[OPTIONS]",
    .summary = "list the locks",
    .about = LIST_ABOUT,
    .groups = { &group },
    .exits = LIST_EXITS,
    .examples = { { "belay list --prefix deploy-", "the deploys under way" },
                  { "belay list --stale --json", "locks that may need 'belay unlock', for a program" } },
    .exec = exec_list,
};

const struct cli_command cmd_locks_list = {
    .name = "locks list",
    .synopsis = "[OPTIONS]",
    .summary = "the same as 'belay list'",
    .about = LIST_ABOUT,
    .groups = { &group },
    .exits = LIST_EXITS,
    .examples = { { "belay locks list --filter status=active", "what is held now" },
                  { "belay locks list --json", "for a program" } },
    .exec = exec_list,
};
