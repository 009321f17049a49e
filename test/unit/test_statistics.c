/* Statistics from a scripted history: every number in it is known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "stats/estimate.h"
#include "stats/stats.h"

#define DAY_MS INT64_C(86400000)
#define MONDAY (INT64_C(20640) * DAY_MS) /* 2026-07-06T00:00:00Z */

struct happening {
    int64_t at_ms; /* after MONDAY */
    const char *type;
    const char *key;
    int64_t duration_ms;
};

static const struct happening week[] = {
    { 1000, "lock.acquired", "a", -1 },
    { 11000, "lock.released", "a", 10000 },
    { 12000, "lock.acquired", "a", -1 },
    { 13000, "wait.began", "a", -1 },
    { 14000, "lock.refused", "b", -1 },
    { 32000, "lock.released", "a", 20000 },
    { 32001, "wait.ended", "a", 19001 },
    { 32001, "lock.acquired", "a", -1 },
    { 62001, "lock.forced", "a", 30000 },
    { 70000, "lock.acquired", "deploy-api-prod", -1 },
    { 75000, "lock.renewed", "deploy-api-prod", -1 },
    { 80000, "lock.lost", "deploy-api-prod", -1 },
    { DAY_MS, "lock.taken_over", "deploy-api-prod", -1 },
    { DAY_MS, "wait.ended", "deploy-api-prod", 500 },
    { DAY_MS, "lock.acquired", "deploy-api-prod", -1 },
    { DAY_MS + 40000, "lock.released", "deploy-api-prod", 40000 },
    { DAY_MS + 50000, "lock.acquired", "stack:shop:env:prod", -1 },
    { DAY_MS + 50100, "lock.released", "stack:shop:env:prod", 100 },
};

static struct belay_event event_of(const struct happening *happening)
{
    return (struct belay_event){ .at_unix_ms = MONDAY + happening->at_ms,
                                 .type = happening->type,
                                 .key = happening->key,
                                 .duration_ms = happening->duration_ms };
}

static struct belay_stats *stats_of(const struct happening *history, size_t n, enum belay_stats_by by)
{
    struct stats *stats = stats_new(by, NULL);
    struct belay_stats *result;

    assert_non_null(stats);
    for (size_t i = 0; i < n; i++) {
        struct belay_event event = event_of(&history[i]);

        assert_true(stats_add(stats, &event));
    }
    result = stats_result(stats);
    assert_non_null(result);
    stats_free(stats);
    return result;
}
#define STATS_OF(history, by) stats_of(history, sizeof(history) / sizeof((history)[0]), by)

/* "acquired/released/refused/taken over/forced/lost held n:p50,p90,max,sum waited n:p50,p90,max,sum" */
static void check_group(const struct belay_stats_group *group, const char *wanted)
{
    const struct belay_durations *held = &group->held;
    const struct belay_durations *waited = &group->waited;
    char text[300];

    (void)snprintf(
        text, sizeof text,
        "%s %llu/%llu/%llu/%llu/%llu/%llu held %llu:%lld,%lld,%lld,%lld waited %llu:%lld,%lld,%lld,%lld",
        group->name == NULL ? "-" : group->name, (unsigned long long)group->acquired,
        (unsigned long long)group->released, (unsigned long long)group->refused,
        (unsigned long long)group->taken_over, (unsigned long long)group->forced,
        (unsigned long long)group->lost, (unsigned long long)held->count, (long long)held->median_ms,
        (long long)held->p90_ms, (long long)held->longest_ms, (long long)held->total_ms,
        (unsigned long long)waited->count, (long long)waited->median_ms, (long long)waited->p90_ms,
        (long long)waited->longest_ms, (long long)waited->total_ms);
    assert_string_equal(text, wanted);
}

#define WHOLE_WEEK "- 6/4/1/1/1/1 held 5:20000,40000,40000,100100 waited 2:500,19001,19001,19501"

static void a_history_is_counted_exactly(void **state) /* S4.14 */
{
    struct belay_stats *stats = STATS_OF(week, BELAY_STATS_BY_NOTHING);

    (void)state;
    check_group(&stats->total, WHOLE_WEEK);
    assert_int_equal(stats->events, 18);
    assert_int_equal(stats->n_groups, 0);
    belay_stats_free(stats);
}

static void a_hold_counts_on_the_day_on_which_it_ended(void **state)
{
    struct belay_stats *stats = STATS_OF(week, BELAY_STATS_BY_DAY);

    (void)state;
    check_group(&stats->total, WHOLE_WEEK);
    assert_int_equal(stats->n_groups, 2);
    check_group(&stats->groups[0],
                "2026-07-06 4/2/1/0/1/1 held 3:20000,30000,30000,60000 waited 1:19001,19001,19001,19001");
    check_group(&stats->groups[1],
                "2026-07-07 2/2/0/1/0/0 held 2:100,40000,40000,40100 waited 1:500,500,500,500");
    belay_stats_free(stats);
}

static void the_busiest_key_comes_first(void **state)
{
    struct belay_stats *stats = STATS_OF(week, BELAY_STATS_BY_KEY);

    (void)state;
    assert_int_equal(stats->n_groups, 4);
    check_group(&stats->groups[0],
                "a 3/2/0/0/1/0 held 3:20000,30000,30000,60000 waited 1:19001,19001,19001,19001");
    check_group(&stats->groups[1],
                "deploy-api-prod 2/1/0/1/0/1 held 1:40000,40000,40000,40000 waited 1:500,500,500,500");
    assert_string_equal(stats->groups[2].name, "stack:shop:env:prod");
    check_group(&stats->groups[3], "b 0/0/1/0/0/0 held 0:-1,-1,-1,-1 waited 0:-1,-1,-1,-1");
    belay_stats_free(stats);
}

static void keys_are_counted_by_profile_and_those_without_one_together(void **state)
{
    struct belay_stats *stats = STATS_OF(week, BELAY_STATS_BY_PROFILE);

    (void)state;
    assert_int_equal(stats->n_groups, 3);
    assert_string_equal(stats->groups[0].name, "");
    assert_int_equal(stats->groups[0].acquired, 3);
    assert_int_equal(stats->groups[0].refused, 1); /* of another key */
    check_group(&stats->groups[1],
                "deploy 2/1/0/1/0/1 held 1:40000,40000,40000,40000 waited 1:500,500,500,500");
    check_group(&stats->groups[2], "stack 1/1/0/0/0/0 held 1:100,100,100,100 waited 0:-1,-1,-1,-1");
    belay_stats_free(stats);
}

static void an_empty_history_has_no_durations(void **state)
{
    struct belay_stats *stats = stats_of(NULL, 0, BELAY_STATS_BY_DAY);

    (void)state;
    check_group(&stats->total, "- 0/0/0/0/0/0 held 0:-1,-1,-1,-1 waited 0:-1,-1,-1,-1");
    assert_int_equal(stats->n_groups, 0);
    belay_stats_free(stats);
}

/* Ends without a beginning, clocks that were set back or are far off, types of a newer belay. */
static void a_hostile_history_is_counted_as_far_as_it_makes_sense(void **state)
{
    static const struct happening hostile[] = {
        { 5, "lock.released", "a", 7000 },   /* acquired before the history begins */
        { 4, "lock.released", "a", -60000 }, /* the clock was set back meanwhile */
        { 3, "lock.released", "a", INT64_MIN },
        { 2, "lock.forced", "a", INT64_MAX },
        { 1, "wait.ended", "a", -1 },
        { 9, "lock.melted", "a", 5 },
        { INT64_MAX - MONDAY, "lock.acquired", "a", -1 },
        { -MONDAY, "lock.acquired", "a", -1 },
        { 6, "lock.acquired", "", -1 },
        { -MONDAY - 1, "lock.acquired", "a", -1 },
    };
    struct belay_stats *stats = STATS_OF(hostile, BELAY_STATS_BY_DAY);

    (void)state;
    assert_int_equal(stats->total.acquired, 4);
    assert_int_equal(stats->total.released, 3);
    assert_int_equal(stats->total.held.count, 2); /* the others are not known */
    assert_int_equal(stats->total.held.median_ms, 7000);
    assert_int_equal(stats->total.held.longest_ms, (INT64_C(1) << 40) - 1);
    assert_int_equal(stats->total.waited.count, 0);
    assert_int_equal(stats->n_groups, 4);
    assert_string_equal(stats->groups[0].name, "1969-12-31");
    assert_string_equal(stats->groups[1].name, "1970-01-01");
    assert_string_equal(stats->groups[2].name, "2026-07-06");
    assert_string_equal(stats->groups[3].name, "unknown");
    belay_stats_free(stats);
}

static void percentiles_of_many_values_are_within_3_percent(void **state)
{
    static const int64_t steps[] = { 1, 7, 1000, 3600000 };

    (void)state;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        struct stats *stats = stats_new(BELAY_STATS_BY_NOTHING, NULL);
        struct belay_stats *result;
        struct belay_durations held;

        for (int64_t n = 1; n <= 10000; n++) { /* in no order */
            struct belay_event event = { .type = "lock.released",
                                         .key = "k",
                                         .duration_ms = n * 7919 % 10007 * steps[i] };

            assert_true(event.duration_ms >= 0 && stats_add(stats, &event));
        }
        result = stats_result(stats);
        held = result->total.held;
        assert_true(held.median_ms > 5000 * steps[i] * 97 / 100 &&
                    held.median_ms < 5000 * steps[i] * 103 / 100);
        assert_true(held.p90_ms > 9000 * steps[i] * 97 / 100 && held.p90_ms < 9000 * steps[i] * 103 / 100);
        assert_true(held.longest_ms >= held.p90_ms);
        belay_stats_free(result);
        stats_free(stats);
    }
}

/* 100,000 events of 2,500 keys: the first thousand have rows, the others one. */
static void a_long_history_of_many_keys_takes_bounded_memory(void **state)
{
    struct stats *stats = stats_new(BELAY_STATS_BY_KEY, NULL);
    int64_t began_ms = clock_boot_ms();
    struct belay_stats *result;
    uint64_t sum = 0;

    (void)state;
    for (int i = 0; i < 100000; i++) {
        char key[32];
        struct belay_event event = { .at_unix_ms = MONDAY + i, .type = "lock.released", .key = key };

        (void)snprintf(key, sizeof key, "key-%d", i % 2500);
        event.duration_ms = (int64_t)i * i;
        assert_true(stats_add(stats, &event));
    }
    result = stats_result(stats);
    print_message("100,000 events of 2,500 keys in %lld ms\n", (long long)(clock_boot_ms() - began_ms));
    assert_int_equal(result->n_groups, BELAY_STATS_GROUPS_MAX + 1);
    assert_null(result->groups[BELAY_STATS_GROUPS_MAX].name);
    assert_int_equal(result->groups[BELAY_STATS_GROUPS_MAX].released, 60000);
    assert_int_equal(result->groups[BELAY_STATS_GROUPS_MAX].held.count, 60000);
    for (size_t i = 0; i < result->n_groups; i++) {
        sum += result->groups[i].released;
    }
    assert_int_equal(sum, 100000);
    assert_int_equal(result->total.released, 100000);
    belay_stats_free(result);
    stats_free(stats);
}

/* ---- estimates ---- */

enum { M = 60000 };

static const struct belay_holds past = { 3, { 4 * M, 6 * M, 5 * M } };

/* The turn of the waiter with `before` others ahead, a lock having been acquired so many minutes ago; 0: not held. */
static int64_t turn(const struct belay_holds *holds, int64_t first, int64_t second, int slots, size_t before)
{
    struct belay_info holders[2] = {
        { .status = BELAY_STATUS_ACTIVE, .locked_at_unix_ms = MONDAY - first * M },
        { .status = BELAY_STATUS_ACTIVE, .locked_at_unix_ms = MONDAY - second * M },
    };
    struct belay_info lock = { .mode = slots == 0 ? BELAY_EXCLUSIVE : BELAY_SLOTS,
                               .slots = slots,
                               .status = first == 0 ? BELAY_STATUS_RELEASED : BELAY_STATUS_ACTIVE,
                               .locked_at_unix_ms = MONDAY - first * M };
    int64_t turns[8];

    if (slots > 0) {
        lock.holders = holders;
        lock.n_holders = second == 0 ? 1 : 2;
    }
    belay_estimate_turns(holds, &lock, MONDAY, turns, 8);
    return turns[before] < 0 ? turns[before] : turns[before] / M;
}

static void a_turn_follows_the_hold_times(void **state)
{
    const struct belay_holds few = { 2, { M, M } };
    struct belay_info shared = { .mode = BELAY_SHARED, .status = BELAY_STATUS_ACTIVE };
    int64_t turns[1];

    (void)state;
    assert_int_equal(turn(&past, 1, 0, 0, 0), 4);
    assert_int_equal(turn(&past, 1, 0, 0, 2), 14);
    assert_int_equal(turn(&past, 0, 0, 0, 0), 0);
    assert_int_equal(turn(&past, 5, 0, 0, 0), 1); /* only one was longer */
    assert_int_equal(turn(&past, 6, 0, 0, 0), BELAY_TURN_OVERDUE);
    assert_int_equal(turn(&past, -3, 0, 0, 0), 5); /* its clock is ahead */
    assert_int_equal(turn(&few, 1, 0, 0, 0), BELAY_TURN_UNKNOWN);
    assert_int_equal(turn(&past, 1, 2, 2, 0), 3);
    assert_int_equal(turn(&past, 1, 2, 2, 1), 4);
    assert_int_equal(turn(&past, 1, 2, 2, 2), 8);
    assert_int_equal(turn(&past, 1, 0, 2, 0), 0); /* one slot is free */
    belay_estimate_turns(&past, &shared, MONDAY, turns, 1);
    assert_int_equal(turns[0], BELAY_TURN_UNKNOWN);
}

static void the_last_holds_are_kept(void **state)
{
    struct belay_holds holds = { 0 };

    (void)state;
    for (int i = 1; i <= BELAY_HOLDS_MAX + 2; i++) {
        const struct belay_event ended = { .type = i % 2 == 0 ? "lock.forced" : "lock.released",
                                           .duration_ms = i };
        const struct belay_event other = { .type = "wait.ended", .duration_ms = 7 };
        const struct belay_event unknown = { .type = "lock.released", .duration_ms = -1 };

        holds_add(&holds, &ended);
        holds_add(&holds, &other);
        holds_add(&holds, &unknown);
    }
    assert_int_equal(holds.n, BELAY_HOLDS_MAX);
    assert_int_equal(holds.ms[0], 3);
    assert_int_equal(holds.ms[BELAY_HOLDS_MAX - 1], BELAY_HOLDS_MAX + 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_history_is_counted_exactly),
        cmocka_unit_test(a_hold_counts_on_the_day_on_which_it_ended),
        cmocka_unit_test(the_busiest_key_comes_first),
        cmocka_unit_test(keys_are_counted_by_profile_and_those_without_one_together),
        cmocka_unit_test(an_empty_history_has_no_durations),
        cmocka_unit_test(a_hostile_history_is_counted_as_far_as_it_makes_sense),
        cmocka_unit_test(percentiles_of_many_values_are_within_3_percent),
        cmocka_unit_test(a_long_history_of_many_keys_takes_bounded_memory),
        cmocka_unit_test(a_turn_follows_the_hold_times),
        cmocka_unit_test(the_last_holds_are_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
