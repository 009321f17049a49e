#include "json/stats_json.h"

#include <stdlib.h>
#include <string.h>

#include "json/json_read.h"
#include "json/json_write.h"

/* ---- writing ---- */

static json_t *wire_ms(int64_t ms)
{
    return ms < 0 ? json_null() : json_integer(ms);
}

static json_t *wire_durations(const struct belay_durations *set)
{
    return json_pack("{s:I, s:o, s:o, s:o, s:o}", "count", (json_int_t)set->count, "median_ms",
                     wire_ms(set->median_ms), "p90_ms", wire_ms(set->p90_ms), "longest_ms",
                     wire_ms(set->longest_ms), "total_ms", wire_ms(set->total_ms));
}

static json_t *wire_group(const struct belay_stats_group *group)
{
    return json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "name", wire_text(group->name),
                     "acquired", (json_int_t)group->acquired, "released", (json_int_t)group->released,
                     "refused", (json_int_t)group->refused, "taken_over", (json_int_t)group->taken_over,
                     "forced", (json_int_t)group->forced, "lost", (json_int_t)group->lost, "held",
                     wire_durations(&group->held), "waited", wire_durations(&group->waited));
}

json_t *wire_stats(const struct belay_stats *stats, const struct belay_stats_query *query)
{
    json_t *groups = json_array();

    for (size_t i = 0; i < stats->n_groups; i++) {
        if (json_array_append_new(groups, wire_group(&stats->groups[i])) != 0) {
            json_decref(groups);
            return NULL;
        }
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o}", "key", wire_text(query->key), "prefix",
                     wire_text(query->prefix), "by", wire_text(belay_stats_by_name(stats->by)), "from",
                     wire_time(stats->from_unix_ms), "until", wire_time(stats->until_unix_ms), "oldest_event",
                     wire_time(stats->oldest_unix_ms), "events", (json_int_t)stats->events, "total",
                     wire_group(&stats->total), "groups", groups);
}

/* ---- reading ---- */

static int64_t ms_of(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);

    return json_is_integer(value) && json_integer_value(value) >= 0 ? json_integer_value(value) : -1;
}

/* 0 for anything that is not a number. */
static uint64_t count_of(const json_t *object, const char *name)
{
    int64_t n = ms_of(object, name);

    return n < 0 ? 0 : (uint64_t)n;
}

static struct belay_durations read_durations(const json_t *object)
{
    return (struct belay_durations){ .count = count_of(object, "count"),
                                     .median_ms = ms_of(object, "median_ms"),
                                     .p90_ms = ms_of(object, "p90_ms"),
                                     .longest_ms = ms_of(object, "longest_ms"),
                                     .total_ms = ms_of(object, "total_ms") };
}

static bool read_group(const json_t *object, struct belay_stats_group *out)
{
    const char *name = json_string_value(json_object_get(object, "name"));

    *out = (struct belay_stats_group){ .acquired = count_of(object, "acquired"),
                                       .released = count_of(object, "released"),
                                       .refused = count_of(object, "refused"),
                                       .taken_over = count_of(object, "taken_over"),
                                       .forced = count_of(object, "forced"),
                                       .lost = count_of(object, "lost"),
                                       .held = read_durations(json_object_get(object, "held")),
                                       .waited = read_durations(json_object_get(object, "waited")) };
    out->name = name == NULL ? NULL : strdup(name);
    return json_is_object(object) && (name == NULL || out->name != NULL);
}

static enum belay_stats_by by_of(const json_t *json)
{
    const char *name = json_string_value(json_object_get(json, "by"));

    for (int by = BELAY_STATS_BY_DAY; name != NULL && by <= BELAY_STATS_BY_KEY; by++) {
        if (strcmp(name, belay_stats_by_name((enum belay_stats_by)by)) == 0) {
            return (enum belay_stats_by)by;
        }
    }
    return BELAY_STATS_BY_NOTHING;
}

struct belay_stats *json_read_stats(const json_t *json)
{
    const json_t *groups = json_object_get(json, "groups");
    size_t n = json_array_size(groups);
    struct belay_stats *stats;
    bool done = json_is_array(groups) && n <= BELAY_STATS_GROUPS_MAX + 1;

    if (!done || (stats = calloc(1, sizeof *stats)) == NULL) {
        return NULL;
    }
    stats->by = by_of(json);
    stats->from_unix_ms = json_read_time(json, "from");
    stats->until_unix_ms = json_read_time(json, "until");
    stats->oldest_unix_ms = json_read_time(json, "oldest_event");
    stats->events = count_of(json, "events");
    stats->groups = calloc(n + 1, sizeof stats->groups[0]);
    done = stats->groups != NULL && read_group(json_object_get(json, "total"), &stats->total);
    for (size_t i = 0; done && i < n; i++) {
        done = read_group(json_array_get(groups, i), &stats->groups[stats->n_groups++]);
    }
    if (!done) {
        belay_stats_free(stats);
        return NULL;
    }
    return stats;
}
