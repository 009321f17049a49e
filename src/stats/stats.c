#include "stats/stats.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fnv.h"
#include "stats/durations.h"

enum { SLOTS = 4096, RECENT = 256 }; /* of hash tables; SLOTS is more than twice BELAY_STATS_GROUPS_MAX */
enum { DAY_CHARS = sizeof "2026-11-17" - 1 };

struct group {
    char *name; /* owned; NULL: the total, or all further groups */
    struct belay_stats_group counts;
    struct durations held;
    struct durations waited;
};

/* A cache: finding the profile of a key tries all templates. */
struct recent_key {
    char *key; /* owned; NULL: none */
    struct group *group;
};

struct stats {
    enum belay_stats_by by;
    const struct belay_config *config;
    uint64_t events;
    struct group total;
    struct group rest; /* all groups beyond BELAY_STATS_GROUPS_MAX */
    bool has_rest;     /* there are such groups */
    struct group groups[BELAY_STATS_GROUPS_MAX];
    size_t n_groups;
    uint16_t slots[SLOTS]; /* groups by the hash of their names: an index plus one; 0: free */
    struct recent_key recent[RECENT];
};

/* ---- groups ---- */

struct stats *stats_new(enum belay_stats_by by, const struct belay_config *config)
{
    struct stats *stats = calloc(1, sizeof *stats);

    if (stats != NULL) {
        stats->by = by;
        stats->config = config;
    }
    return stats;
}

static void group_release(struct group *group)
{
    free(group->name);
    durations_release(&group->held);
    durations_release(&group->waited);
}

void stats_free(struct stats *stats)
{
    if (stats == NULL) {
        return;
    }
    group_release(&stats->total);
    group_release(&stats->rest);
    for (size_t i = 0; i < stats->n_groups; i++) {
        group_release(&stats->groups[i]);
    }
    for (size_t i = 0; i < RECENT; i++) {
        free(stats->recent[i].key);
    }
    free(stats);
}

/* The group of this name; it is added if it is new. NULL: no memory. */
static struct group *group_named(struct stats *stats, const char *name, size_t len)
{
    uint64_t at = fnv_bytes(FNV_INIT, name, len) % SLOTS;
    struct group *group;

    for (; stats->slots[at] != 0; at = (at + 1) % SLOTS) {
        group = &stats->groups[stats->slots[at] - 1];
        if (strlen(group->name) == len && memcmp(group->name, name, len) == 0) {
            return group;
        }
    }
    if (stats->n_groups == BELAY_STATS_GROUPS_MAX) {
        stats->has_rest = true;
        return &stats->rest;
    }
    group = &stats->groups[stats->n_groups];
    group->name = strndup(name, len);
    if (group->name == NULL) {
        return NULL;
    }
    stats->slots[at] = (uint16_t)++stats->n_groups;
    return group;
}

static struct group *group_of_profile(struct stats *stats, const char *key)
{
    struct recent_key *recent = &stats->recent[fnv_text(FNV_INIT, key) % RECENT];
    struct belay_parsed_key parsed;

    if (recent->key != NULL && strcmp(recent->key, key) == 0) {
        return recent->group;
    }
    belay_key_parse(stats->config, key, &parsed);
    free(recent->key);
    recent->key = strdup(key);
    recent->group = recent->key == NULL ? NULL : group_named(stats, parsed.profile, strlen(parsed.profile));
    return recent->group;
}

static struct group *group_of(struct stats *stats, const struct belay_event *event)
{
    char day[CLOCK_TEXT_SIZE];

    switch (stats->by) {
    case BELAY_STATS_BY_DAY:
        (void)clock_format_utc(day, event->at_unix_ms, false);
        return day[4] == '-' ? group_named(stats, day, DAY_CHARS)
                             : group_named(stats, "unknown", sizeof "unknown" - 1); /* a clock was far off */
    case BELAY_STATS_BY_PROFILE:
        return group_of_profile(stats, event->key);
    case BELAY_STATS_BY_KEY:
        return group_named(stats, event->key, strlen(event->key));
    case BELAY_STATS_BY_NOTHING:
        break;
    }
    return &stats->rest; /* not shown: has_rest is false */
}

/* ---- counting ---- */

enum kind { ACQUIRED, RELEASED, REFUSED, TAKEN_OVER, FORCED, LOST, WAITED, OTHER };

static enum kind kind_of(const struct belay_event *event)
{
    static const char *const types[] = {
        [ACQUIRED] = "lock.acquired",     [RELEASED] = "lock.released", [REFUSED] = "lock.refused",
        [TAKEN_OVER] = "lock.taken_over", [FORCED] = "lock.forced",     [LOST] = "lock.lost",
        [WAITED] = "wait.ended"
    };
    int kind = 0;

    while (kind < OTHER && strcmp(event->type, types[kind]) != 0) {
        kind++;
    }
    return (enum kind)kind;
}

static bool count_event(struct group *group, enum kind kind, int64_t duration_ms)
{
    switch (kind) {
    case ACQUIRED:
        group->counts.acquired++;
        return true;
    case RELEASED:
        group->counts.released++;
        return durations_add(&group->held, duration_ms);
    case REFUSED:
        group->counts.refused++;
        return true;
    case TAKEN_OVER:
        group->counts.taken_over++;
        return true;
    case FORCED:
        group->counts.forced++;
        return durations_add(&group->held, duration_ms);
    case LOST:
        group->counts.lost++;
        return true;
    case WAITED:
        return durations_add(&group->waited, duration_ms);
    case OTHER:
        break;
    }
    return true;
}

bool stats_add(struct stats *stats, const struct belay_event *event)
{
    enum kind kind = kind_of(event);
    struct group *group;

    stats->events++;
    if (kind == OTHER || event->key == NULL) {
        return true;
    }
    group = group_of(stats, event);
    return group != NULL && count_event(&stats->total, kind, event->duration_ms) &&
           count_event(group, kind, event->duration_ms);
}

/* ---- the result ---- */

static bool copy_group(const struct group *group, struct belay_stats_group *out)
{
    *out = group->counts;
    out->held = durations_sum(&group->held);
    out->waited = durations_sum(&group->waited);
    out->name = group->name == NULL ? NULL : strdup(group->name);
    return group->name == NULL || out->name != NULL;
}

static int by_group_name(const void *a, const void *b)
{
    const struct belay_stats_group *one = a;
    const struct belay_stats_group *other = b;

    return strcmp(one->name, other->name);
}

static int by_acquired(const void *a, const void *b)
{
    const struct belay_stats_group *one = a;
    const struct belay_stats_group *other = b;

    if (one->acquired != other->acquired) {
        return one->acquired > other->acquired ? -1 : 1;
    }
    return by_group_name(a, b);
}

struct belay_stats *stats_result(const struct stats *stats)
{
    struct belay_stats *result = calloc(1, sizeof *result);
    bool done = result != NULL;

    if (done) {
        result->by = stats->by;
        result->events = stats->events;
        result->groups = calloc(stats->n_groups + 1, sizeof result->groups[0]);
        done = result->groups != NULL && copy_group(&stats->total, &result->total);
    }
    for (size_t i = 0; done && i < stats->n_groups; i++) {
        done = copy_group(&stats->groups[i], &result->groups[result->n_groups++]);
    }
    if (!done) {
        belay_stats_free(result);
        return NULL;
    }
    qsort(result->groups, result->n_groups, sizeof result->groups[0],
          stats->by == BELAY_STATS_BY_DAY ? by_group_name : by_acquired);
    if (stats->has_rest && copy_group(&stats->rest, &result->groups[result->n_groups])) {
        result->n_groups++;
    }
    return result;
}

void belay_stats_free(struct belay_stats *stats)
{
    for (size_t i = 0; stats != NULL && i < stats->n_groups; i++) {
        free(stats->groups[i].name);
    }
    if (stats != NULL) {
        free(stats->total.name);
        free(stats->groups);
        free(stats);
    }
}

const char *belay_stats_by_name(enum belay_stats_by by)
{
    static const char *const names[] = { NULL, "day", "profile", "key" };

    return (unsigned)by < sizeof names / sizeof names[0] ? names[by] : NULL;
}
