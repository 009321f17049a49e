#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/core/lock_options.h"
#include "cli/output/print.h"
#include "cli/output/text_table.h"
#include "json/json_write.h"
#include "json/stats_json.h"

/* ---- the command line ---- */

static enum belay_code read_since_option(const struct options *options, int64_t *out_unix_ms,
                                         struct belay_error *err)
{
    const char *text = options_text(options, "since");

    return text == NULL || clock_parse_since(text, clock_unix_ms(), out_unix_ms)
               ? BELAY_OK
               : error_set(err, BELAY_INVALID,
                           "--since '%.60s' is neither a duration nor a time: write it as 7d or 12h, or as "
                           "2026-11-10T00:00:00Z",
                           text);
}

static enum belay_code read_stats_options(struct cli_context *context, const struct options *options,
                                          struct belay_stats_query *query, char **out_key,
                                          struct belay_error *err)
{
    const char *by = options_text(options, "by");
    enum belay_code code = read_since_option(options, &query->since_unix_ms, err);

    query->prefix = options_text(options, "prefix");
    for (int i = BELAY_STATS_BY_DAY; by != NULL && i <= BELAY_STATS_BY_KEY; i++) {
        query->by =
            strcmp(by, belay_stats_by_name((enum belay_stats_by)i)) == 0 ? (enum belay_stats_by)i : query->by;
    }
    if (code == BELAY_OK && names_lock(options)) {
        code = read_key_argument(context, options, 0, out_key, err);
        query->key = *out_key;
    }
    if (code == BELAY_OK && query->key != NULL && query->prefix != NULL) {
        return error_set(
            err, BELAY_INVALID,
            "'%.200s' and --prefix exclude each other: give one lock or the beginning of several",
            query->key);
    }
    return code;
}

/* ---- text ---- */

enum { TAKEN_OVER_COLUMN = 3, FORCED_COLUMN = 4, LOST_COLUMN = 5, WAITS_COLUMN = 9 };

static const struct text_column by_columns[][13] = {
#define NUMBER_COLUMNS                                                                                       \
    { "ACQUIRED", 0 }, { "REFUSED", 0 }, { "TAKEN OVER", 0 }, { "FORCED", 0 }, { "LOST", 0 },                \
        { "HELD P50", 0 }, { "HELD P90", 0 }, { "HELD MAX", 0 }, { "WAITS", 0 }, { "WAIT P50", 0 },          \
        { "WAIT P90", 0 },                                                                                   \
    {                                                                                                        \
        "WAIT MAX", 0                                                                                        \
    }
    [BELAY_STATS_BY_DAY] = { { "DAY", 0 }, NUMBER_COLUMNS },
    [BELAY_STATS_BY_PROFILE] = { { "PROFILE", 12 }, NUMBER_COLUMNS },
    [BELAY_STATS_BY_KEY] = { { "KEY", 12 }, NUMBER_COLUMNS },
};

static void add_count_cell(struct text_table *table, uint64_t n)
{
    char text[24];

    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)n);
    text_table_add(table, text);
}

static void add_durations(struct text_table *table, const struct belay_durations *set)
{
    const int64_t all[] = { set->median_ms, set->p90_ms, set->longest_ms };
    char text[CLOCK_TEXT_SIZE];

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        text_table_add(table, all[i] < 0 ? "-" : clock_format_span(text, all[i]));
    }
}

static void add_group_row(struct text_table *table, const struct belay_stats_group *group, const char *name)
{
    text_table_add(table, name);
    add_count_cell(table, group->acquired);
    add_count_cell(table, group->refused);
    add_count_cell(table, group->taken_over);
    add_count_cell(table, group->forced);
    add_count_cell(table, group->lost);
    add_durations(table, &group->held);
    add_count_cell(table, group->waited.count);
    add_durations(table, &group->waited);
}

static int print_groups(const struct cli_context *context, const struct belay_stats *stats)
{
    struct text_table *table =
        text_table_new(stdout, by_columns[stats->by], 13, print_columns(1), context->color_out);

    if (table == NULL) {
        return cli_fail(context, BELAY_NO_MEMORY, "out of memory");
    }
    for (size_t column = TAKEN_OVER_COLUMN; column <= LOST_COLUMN; column++) {
        text_table_leave_out(table, column, "0");
    }
    text_table_leave_out(table, WAITS_COLUMN, "0");
    for (size_t column = WAITS_COLUMN + 1; column < 13; column++) {
        text_table_leave_out(table, column, "-");
    }
    for (size_t i = 0; i < stats->n_groups; i++) {
        const char *name = stats->groups[i].name;

        add_group_row(table, &stats->groups[i], name == NULL ? "(others)" : *name == '\0' ? "(none)" : name);
    }
    add_group_row(table, &stats->total, "total");
    return text_table_finish(table) ? CLI_OK : cli_fail(context, BELAY_NO_MEMORY, "out of memory");
}

static void print_count(const char *name, uint64_t n)
{
    (void)printf("%-14s%llu\n", name, (unsigned long long)n);
}

static void print_durations(const char *name, const struct belay_durations *set, const char *what)
{
    char median[CLOCK_TEXT_SIZE];
    char p90[CLOCK_TEXT_SIZE];
    char longest[CLOCK_TEXT_SIZE];

    if (set->count == 0) {
        (void)printf("%-14sno data yet\n", name);
        return;
    }
    (void)printf("%-14smedian %s, 90%% within %s, longest %s (%llu %s)\n", name,
                 clock_format_span(median, set->median_ms), clock_format_span(p90, set->p90_ms),
                 clock_format_span(longest, set->longest_ms), (unsigned long long)set->count, what);
}

static void print_total(const struct belay_stats_group *total)
{
    print_count("acquired", total->acquired);
    print_count("released", total->released);
    print_count("refused", total->refused);
    print_count("taken over", total->taken_over);
    print_count("forced", total->forced);
    print_count("lost", total->lost);
    print_durations("held", &total->held, total->held.count == 1 ? "hold" : "holds");
    print_durations("waited", &total->waited, total->waited.count == 1 ? "wait" : "waits");
}

/* The numbers say nothing about the time before `from`, so it is always shown. */
static void print_period(const struct belay_stats *stats, const struct belay_stats_query *query)
{
    char from[CLOCK_TEXT_SIZE];
    char until[CLOCK_TEXT_SIZE];
    char span[CLOCK_TEXT_SIZE];

    print_field("locks", query->key != NULL ? query->key : query->prefix != NULL ? query->prefix : "all");
    (void)printf("%-14s%s to %s (%s)%s\n", "period", clock_format_utc(from, stats->from_unix_ms, false),
                 clock_format_utc(until, stats->until_unix_ms, false),
                 clock_format_span(span, (stats->until_unix_ms - stats->from_unix_ms) / 1000 * 1000),
                 query->since_unix_ms > stats->oldest_unix_ms ? "" : ", all that the history has");
}

static int print_stats(const struct cli_context *context, const struct belay_stats *stats,
                       const struct belay_stats_query *query)
{
    char oldest[CLOCK_TEXT_SIZE];

    if (context->json) {
        return cli_print_line(context, wire_line(wire_stats(stats, query)));
    }
    if (stats->oldest_unix_ms == 0) {
        cli_note(context, "no data yet: %s has no events", belay_client_store_url(context->client));
        return CLI_OK;
    }
    if (stats->events == 0) {
        cli_note(context, "no events of these locks in this time");
    }
    if (query->since_unix_ms != 0 && query->since_unix_ms < stats->oldest_unix_ms) {
        cli_note(context, "the history begins only at %s: older events are not kept",
                 clock_format_utc(oldest, stats->oldest_unix_ms, false));
    }
    print_period(stats, query);
    if (stats->by == BELAY_STATS_BY_NOTHING) {
        print_total(&stats->total);
        return CLI_OK;
    }
    (void)putchar('\n');
    return print_groups(context, stats);
}

static int exec_stats(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    struct belay_stats_query query = BELAY_STATS_QUERY_INIT;
    struct belay_stats *stats = NULL;
    struct belay_client *client;
    char *key = NULL;
    int code;

    if (read_stats_options(context, options, &query, &key, err) != BELAY_OK ||
        cli_existing_client(context, &client, err) != BELAY_OK ||
        belay_stats(client, &query, &stats, err) != BELAY_OK) {
        code = cli_error(context, err);
    } else {
        code = print_stats(context, stats, &query);
    }
    belay_stats_free(stats);
    free(key);
    return code;
}

static const struct option_group group = {
    "Options",
    OPTION_TABLE(
        PREFIX_OPTION,
        OPT_TEXT("since", "D", "only the last D, such as 7d, or since a time; default: all that is kept"),
        OPT_CHOICE("by", "day|profile|key", "one row for each day (UTC), profile or key"))
};

const struct cli_command cmd_stats = {
    .name = "stats",
    .synopsis = "[KEY | --prefix P] [--since D] [--by day|profile|key]",
    .summary = "show hold times, wait times and refusals",
    .about =
        "Summarizes the history of one lock or of all: how many were acquired, refused, taken over after "
        "their lease expired, ended by force and reported lost; how long they were held; and how long "
        "clients waited in the queue. A client that got its lock at once did not wait, and does not count "
        "there. A hold or a "
        "wait counts on the day on which it ended. The hold of a lock that was taken over is not counted, "
        "because the time of its end is not known.\n\n"
        "The period is the time that the numbers cover: the store removes old events (retain_events). P50 is "
        "the median; nine out of ten are not longer than P90. Both are accurate to within 3 %. Columns that "
        "would be empty are omitted. There are at most 1000 rows, and one for all others.\n\n"
        "A store that keeps no history, as on DynamoDB, has no statistics.\n\n"
        "With --json it prints {\"key\", \"prefix\", \"by\", \"from\", \"until\", \"oldest_event\", "
        "\"events\", "
        "\"total\", \"groups\"}. The total and each group have name, acquired, released, refused, "
        "taken_over, "
        "forced, lost, held and waited; the last two have count, median_ms, p90_ms, longest_ms and total_ms.",
    .groups = { &group, &key_group },
    .max_args = 1,
    .takes_key = true,
    .exits = { { 0, "shown, even if there are no events" },
               { 64, "the command line is wrong, or the store keeps no history" },
               CLI_EXIT_NO_STORE,
               CLI_EXIT_UNREACHABLE,
               CLI_EXIT_CONFIG },
    .examples = { { "belay stats --since 7d --by day", "the last seven days" },
                  { "belay stats deploy-api-prod", "one lock" },
                  { "belay stats --prefix deploy- --by key --json", "each lock, as JSON" } },
    .exec = exec_stats,
};
