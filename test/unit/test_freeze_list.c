/* The list of freezes: its JSON, patterns, clocks and the grace for waiters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/text.h"
#include "freeze/freeze_list.h"

static struct frozen_keys freeze_of(const char *pattern, int64_t from_ms, int64_t until_ms)
{
    return (struct frozen_keys){ .id = "freeze-1",
                                 .pattern = (char *)pattern,
                                 .reason = (char *)"Black \"Friday\"",
                                 .by = (char *)"alice",
                                 .made_unix_ms = 1,
                                 .from_unix_ms = from_ms,
                                 .until_unix_ms = until_ms };
}

static enum belay_code check_key(const struct freeze_list *list, const char *key, struct freeze_now now,
                                 int64_t grace_ms, struct belay_commit *out)
{
    struct belay_write write = { .key = key, .set = BELAY_SET_HOLDER };
    struct belay_batch batch = { .writes = &write, .n_writes = 1, .freeze_grace_ms = grace_ms };

    return freeze_check(list, &batch, now, out, NULL);
}

static void a_star_matches_any_run_and_nothing_else_is_special(void **state)
{
    (void)state;
    assert_true(text_matches("deploy-api", "deploy-*"));
    assert_true(text_matches("deploy-", "deploy-*"));
    assert_true(text_matches("a-b-a-b", "*a-b"));
    assert_true(text_matches("", "*"));
    assert_false(text_matches("deploy", "deploy-*"));
    assert_false(text_matches("xdeploy-a", "deploy-*"));
    assert_false(text_matches("ab", "a?"));
    assert_false(text_matches("", "a"));
}

static void two_patterns_meet_if_a_text_can_match_both(void **state)
{
    static const char *const meet[][2] = {
        { "team-*", "*-prod" }, { "*", "team-*" },    { "a*", "abc*" },      { "*b*", "team-*" },
        { "a", "*" },           { "a*c*e", "ab*de" }, { "*", "*" },          { "a*b*c", "*bb*" },
        { "ab", "a*b" },        { "**", "x" },        { "ab*bc", "abx*xbc" }
    };
    static const char *const apart[][2] = {
        { "team-a-*", "team-b-*" }, { "*-prod", "*-dev" }, { "a", "b*" }, { "ab", "a*c" }, { "a*b", "a" },
        { "a*x", "a*y" },           { "a", "ab" }
    };

    (void)state;
    for (size_t i = 0; i < sizeof meet / sizeof meet[0]; i++) {
        assert_true(text_patterns_meet(meet[i][0], meet[i][1]));
        assert_true(text_patterns_meet(meet[i][1], meet[i][0]));
    }
    for (size_t i = 0; i < sizeof apart / sizeof apart[0]; i++) {
        assert_false(text_patterns_meet(apart[i][0], apart[i][1]));
        assert_false(text_patterns_meet(apart[i][1], apart[i][0]));
    }
}

static void a_list_that_was_written_is_read_back(void **state)
{
    struct freeze_list list = { 0 };
    struct freeze_list back = { 0 };
    struct frozen_keys freeze = freeze_of("k*", 5, 9);
    struct belay_item item = { .version = 7 };

    (void)state;
    freeze.ended_unix_ms = 8;
    freeze.reported = true;
    assert_true(freeze_list_add(&list, &freeze));
    item.value = freeze_list_write(&list);
    assert_int_equal(freeze_list_read(&item, &back, NULL), BELAY_OK);
    assert_int_equal(back.version, 7);
    assert_int_equal(back.n, 1);
    assert_string_equal(back.items[0].reason, freeze.reason);
    assert_int_equal(back.items[0].from_unix_ms, 5);
    assert_int_equal(back.items[0].ended_unix_ms, 8);
    assert_true(back.items[0].reported);
    free(item.value);
    freeze_list_release(&list);
    freeze_list_release(&back);
}

static void a_damaged_list_is_an_error_and_not_an_empty_one(void **state)
{
    static const char *const values[] = { "", "{}", "[1]", "[{\"id\":\"x\"}]", "[{" };
    struct freeze_list list = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        struct belay_item item = { .value = (char *)values[i], .version = 1 };

        assert_int_equal(freeze_list_read(&item, &list, NULL), BELAY_BAD_CONTENT);
    }
}

static void a_freeze_that_is_in_force_by_either_clock_is_in_force(void **state)
{
    struct frozen_keys freeze = freeze_of("k", 1000, 2000);

    (void)state;
    assert_false(freeze_in_force(&freeze, (struct freeze_now){ 900, 999 }, 0));
    assert_true(freeze_in_force(&freeze, (struct freeze_now){ 900, 1000 }, 0));
    assert_true(freeze_in_force(&freeze, (struct freeze_now){ 1999, 2100 }, 0));
    assert_false(freeze_in_force(&freeze, (struct freeze_now){ 2000, 2100 }, 0));
}

static void those_behind_the_first_see_a_freeze_for_longer(void **state)
{
    struct frozen_keys freeze = freeze_of("k", 0, 0);
    struct freeze_now now = { 5000, 5000 };

    (void)state;
    assert_true(freeze_in_force(&freeze, now, 0));
    freeze.ended_unix_ms = 4500;
    assert_false(freeze_in_force(&freeze, now, 0));
    assert_true(freeze_in_force(&freeze, now, 1000));
    /* The first waiter passes even if its clock is behind that of the client that ended the freeze. */
    assert_false(freeze_in_force(&freeze, (struct freeze_now){ 4000, 4000 }, 0));
}

static void the_freeze_that_ends_last_is_reported_with_its_time(void **state)
{
    struct freeze_list list = { 0 };
    struct frozen_keys early = freeze_of("k*", 0, 4000);
    struct frozen_keys late = freeze_of("*1", 0, 9000);
    struct belay_commit out = { 0 };
    struct freeze_now now = { 1000, 1000 };

    (void)state;
    assert_true(freeze_list_add(&list, &early) && freeze_list_add(&list, &late));
    assert_int_equal(check_key(&list, "other", now, 0, &out), BELAY_OK);
    assert_int_equal(check_key(&list, "k2", now, 0, &out), BELAY_FROZEN);
    assert_int_equal(out.frozen_for_ms, 3000);
    belay_commit_release(&out);
    assert_int_equal(check_key(&list, "k1", now, 500, &out), BELAY_FROZEN);
    assert_int_equal(out.frozen_for_ms, 8500);
    assert_string_equal(out.frozen, "frozen until 1970-01-01T00:00:09Z by alice: Black \"Friday\"");
    belay_commit_release(&out);
    freeze_list_release(&list);
}

static void a_time_that_people_type_has_a_date_a_time_and_a_zone(void **state)
{
    static const char *const wrong[] = { "",
                                         "2026-11-28",
                                         "2026-11-28 00:00",
                                         "2026-11-28T00:00Z",
                                         "2026-11-28T00:00:00",
                                         "2026-11-28T00:00:00+0100",
                                         "2026-11-28t00:00:00Z",
                                         "2026-11-31T00:00:00Z",
                                         "2026-02-29T00:00:00Z",
                                         "2100-02-29T00:00:00Z",
                                         "2026-11-28T00:00:00Zz" };
    int64_t ms = 0;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_false(clock_parse_rfc3339(wrong[i], &ms));
    }
    assert_true(clock_parse_rfc3339("1970-01-01T00:00:01Z", &ms));
    assert_int_equal(ms, 1000);
    assert_true(clock_parse_rfc3339("1970-01-01T01:00:01.5+01:00", &ms));
    assert_int_equal(ms, 1500);
    assert_true(clock_parse_rfc3339("2024-02-29T00:00:00Z", &ms));
    assert_true(clock_parse_rfc3339("2000-02-29T00:00:00Z", &ms));
    assert_true(clock_parse_rfc3339("1970-01-01T00:00:00Z", &ms));
    assert_int_not_equal(ms, 0); /* which would be no time at all */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_star_matches_any_run_and_nothing_else_is_special),
        cmocka_unit_test(two_patterns_meet_if_a_text_can_match_both),
        cmocka_unit_test(a_list_that_was_written_is_read_back),
        cmocka_unit_test(a_damaged_list_is_an_error_and_not_an_empty_one),
        cmocka_unit_test(a_freeze_that_is_in_force_by_either_clock_is_in_force),
        cmocka_unit_test(those_behind_the_first_see_a_freeze_for_longer),
        cmocka_unit_test(the_freeze_that_ends_last_is_reported_with_its_time),
        cmocka_unit_test(a_time_that_people_type_has_a_date_a_time_and_a_zone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
