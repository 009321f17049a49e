/* A holder's own view of its lease: L6. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lock/lease.h"

static void begin(struct lease *lease, int64_t sent_ms, int64_t ttl_ms, int64_t heartbeat_ms,
                  int64_t margin_ms)
{
    lease_begin(lease, sent_ms, lease_deadline_ms(sent_ms, ttl_ms, margin_ms), ttl_ms, heartbeat_ms);
}

static void the_lease_ends_before_the_store_expires_it(void **state)
{
    struct lease lease;

    (void)state;
    begin(&lease, 1000, 10000, 0, 0);
    assert_true(lease.deadline_ms < 11000);
    assert_true(lease_is_live(&lease, lease.deadline_ms - 1));
    assert_false(lease_is_live(&lease, lease.deadline_ms));
}

/* A ttl from another program: no sum overflows. */
static void a_ttl_without_end_ends_at_the_end_of_the_clock(void **state)
{
    struct lease lease;

    (void)state;
    begin(&lease, 1000, INT64_MAX, INT64_MAX, 0);
    assert_true(lease.deadline_ms > INT64_MAX / 2);
    assert_true(lease.next_beat_ms > INT64_MAX / 2);
    lease_renewed(&lease, 2000, lease_deadline_ms(2000, INT64_MIN, 0), INT64_MIN);
    assert_false(lease_is_live(&lease, 2000));
}

static void the_lease_is_shorter_by_the_margin_of_the_store(void **state)
{
    struct lease plain;
    struct lease careful;

    (void)state;
    begin(&plain, 0, 60000, 0, 0);
    begin(&careful, 0, 60000, 0, 2000);
    assert_int_equal(plain.deadline_ms - careful.deadline_ms, 2000);
}

static void the_lease_counts_from_before_the_renewal_was_sent(void **state)
{
    struct lease lease;
    int64_t first;

    (void)state;
    begin(&lease, 0, 10000, 2000, 0);
    first = lease.deadline_ms;
    assert_int_equal(lease_due(&lease, 2000), LEASE_BEAT);
    lease_renewed(&lease, 2000, lease_deadline_ms(2000, 10000, 0), 10000); /* whenever the answer came */
    assert_int_equal(lease.deadline_ms - first, 2000);
    assert_int_equal(lease.next_beat_ms, 4000);
}

static void a_lost_lease_is_reported_once_and_stays_lost(void **state)
{
    struct lease lease;

    (void)state;
    begin(&lease, 0, 1000, 250, 0);
    assert_int_equal(lease_due(&lease, lease.deadline_ms), LEASE_LOST);
    assert_int_equal(lease_due(&lease, lease.deadline_ms + 1), LEASE_QUIET);
    lease_renewed(&lease, 900, lease_deadline_ms(900, 1000, 0), 1000); /* an answer that came too late */
    assert_false(lease_is_live(&lease, 900));
    assert_true(lease_next_ms(&lease) == INT64_MAX);
}

static void a_failed_heartbeat_is_retried_within_the_lease(void **state)
{
    struct lease lease;

    (void)state;
    begin(&lease, 0, 120000, 30000, 0);
    assert_int_equal(lease_due(&lease, 30000), LEASE_BEAT);
    lease_beat_failed(&lease, 30000);
    assert_int_equal(lease_due(&lease, 30000), LEASE_QUIET);
    assert_true(lease_next_ms(&lease) <= 35000);
}

/* Issue 12, 20: ttl and heartbeat that ended their command on a healthy store. */
static void a_heartbeat_that_would_come_too_late_is_brought_forward(void **state)
{
    static const struct {
        int64_t ttl_ms;
        int64_t heartbeat_ms;
        int64_t margin_ms;
    } cases[] = {
        { 20000, 16000, 4000 }, { 40000, 32000, 4000 }, { 5000, 1250, 2000 }, { 8001, 2000, 4000 },
        { 4001, 4000, 2000 },   { 100, 80, 0 },         { 100, 80, 10 },      { 1800000, 1799999, 4000 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct lease lease;
        int64_t sent_ms = 1000;

        begin(&lease, sent_ms, cases[i].ttl_ms, cases[i].heartbeat_ms, cases[i].margin_ms);
        int64_t lasts_ms = lease.deadline_ms - sent_ms;
        int64_t room_ms = lasts_ms / 3 * 2 < 30000 ? lasts_ms / 3 * 2 : 30000;
        assert_true(lease.next_beat_ms <= lease.deadline_ms - room_ms);
        assert_true(lease.next_beat_ms > sent_ms);
        /* Two failures, each after a quarter of the ttl or at once, and there is still time. */
        lease_beat_failed(&lease, lease.next_beat_ms);
        lease_beat_failed(&lease, lease.next_beat_ms);
        assert_true(lease.next_beat_ms < lease.deadline_ms);
    }
}

static void a_heartbeat_that_leaves_time_stays_as_it_is(void **state)
{
    struct lease lease;

    (void)state;
    begin(&lease, 0, 1800000, 1440000, 4000); /* S2.5: at 80 % */
    assert_int_equal(lease.next_beat_ms, 1440000);
    begin(&lease, 0, 3600000, 30000, 4000); /* S4.6 */
    assert_int_equal(lease.next_beat_ms, 30000);
    begin(&lease, 0, 60000, 0, 0);
    assert_true(lease.next_beat_ms == INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lease_ends_before_the_store_expires_it),
        cmocka_unit_test(a_ttl_without_end_ends_at_the_end_of_the_clock),
        cmocka_unit_test(the_lease_is_shorter_by_the_margin_of_the_store),
        cmocka_unit_test(the_lease_counts_from_before_the_renewal_was_sent),
        cmocka_unit_test(a_lost_lease_is_reported_once_and_stays_lost),
        cmocka_unit_test(a_failed_heartbeat_is_retried_within_the_lease),
        cmocka_unit_test(a_heartbeat_that_would_come_too_late_is_brought_forward),
        cmocka_unit_test(a_heartbeat_that_leaves_time_stays_as_it_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
