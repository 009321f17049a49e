/* Clocks that are wrong, and none at all (L1, L7), against DynamoDB Local. */
#include "test_dynamodb_support.h"

#include <unistd.h>

static const char *const writable[] = { "belay", "chatops", "resource", "runvoy", "appregistry", "deployer" };

static int right_clocks(void **state)
{
    (void)state;
    wall_ahead_ms = date_ahead_ms = date_steps_ms = 0;
    boot_now_ms += 1000000;
    return 0;
}

/* L7: a clock that is 90 s ahead judges no lease. */
static void a_clock_that_is_ahead_takes_no_live_lock_on_any_layout(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof writable / sizeof writable[0]; i++) {
        struct belay_store *store = fresh(writable[i], "");
        struct belay_store *fast;
        struct belay_error err = BELAY_ERROR_INIT;

        assert_int_equal(take_free(store, "a-b-c", "one"), BELAY_OK);
        wall_ahead_ms = 90000;
        fast = another(store, "");
        assert_int_equal(take(fast, "a-b-c", "two", 60000, BELAY_IF_FREE, 0, &err), BELAY_CONFIG);
        assert_non_null(strstr(err.text, "1m 30s ahead of DynamoDB's"));
        wall_ahead_ms = 0;
        assert_true(is_held(store, "a-b-c"));
        belay_error_release(&err);
        fast->ops->close(fast);
        store->ops->close(store);
    }
}

/* L7: before the first answer a process has only its own clock, so it reads the time before it writes. */
static void a_wrong_clock_writes_nothing_on_any_layout(void **state)
{
    static const int64_t wrong[] = { 5000, -5000 };

    (void)state;
    for (size_t i = 0; i < 12; i++) {
        struct belay_store *store, *other;
        struct belay_error err = BELAY_ERROR_INIT;
        struct belay_record record;

        wall_ahead_ms = 0;
        store = fresh(writable[i % 6], "");
        wall_ahead_ms = wrong[i / 6];
        other = another(store, "");
        assert_int_equal(take(other, "a-b-c", "one", 60000, BELAY_IF_FREE, 0, &err), BELAY_CONFIG);
        assert_non_null(strstr(err.text, i / 6 == 0 ? "5s ahead of" : "5s behind"));
        assert_int_equal(requests_of(other), 1);
        record = see(store, "a-b-c", NULL);
        assert_int_equal(record.revision, 0);
        belay_record_release(&record);
        belay_error_release(&err);
        other->ops->close(other);
        store->ops->close(store);
    }
}

/* The time is fetched once, and again when it is so old that the boot clock may have drifted. */
static void the_time_is_requested_before_the_first_deadline_and_when_it_is_old(void **state)
{
    struct belay_store *store = fresh("belay", "");
    struct belay_store *other = another(store, "");

    (void)state;
    assert_int_equal(take_free(other, "a", "one"), BELAY_OK);
    assert_int_equal(requests_of(other), 2);
    boot_now_ms += 900000;
    assert_int_equal(take_free(other, "b", "one"), BELAY_OK);
    assert_int_equal(requests_of(other), 3);
    boot_now_ms += 1100000;
    assert_int_equal(take_free(other, "c", "one"), BELAY_OK);
    assert_int_equal(requests_of(other), 5);
    other->ops->close(other);
    store->ops->close(store);
}

/* The first Date was of another machine's clock, or was set since: only the answer to the write shows it. */
static void a_success_whose_answer_shows_a_wrong_clock_is_undone(void **state)
{
    static const int64_t steps[] = { -5000, 5000 };

    (void)state;
    for (size_t i = 0; i < 12; i++) {
        struct belay_store *store, *other;
        struct belay_error err = BELAY_ERROR_INIT;

        date_ahead_ms = 0;
        store = fresh(writable[i % 6], "");
        other = another(store, "");
        date_steps_ms = steps[i / 6];
        assert_int_equal(take(other, "a-b-c", "one", 60000, BELAY_IF_FREE, 0, &err), BELAY_CONFIG);
        assert_non_null(strstr(err.text, i / 6 == 0 ? "5s ahead of" : "5s behind"));
        assert_false(is_held(store, "a-b-c"));
        belay_error_release(&err);
        other->ops->close(other);
        store->ops->close(store);
    }
}

/* L1, L3: the lock that it prolonged is still its holder's, and ends by the right clock. */
static void a_renewal_by_a_wrong_clock_is_written_again_by_the_right_one(void **state)
{
    struct belay_store *store = fresh("belay", "");
    struct belay_store *wrong;
    struct belay_record values = { .lock_id = "two", .ttl_ms = 60000 };
    struct belay_put_intent intent = { .lock_id = "one", .key = "k:below", .ttl_ms = 60000 };
    struct belay_write writes[] = {
        { .key = "k:below",
          .condition = BELAY_IF_LIVE_BY,
          .lock_id = "one",
          .set = BELAY_SET_LEASE,
          .values = &values },
        { .key = "k", .put_intents = &intent, .n_put_intents = 1 },
    };
    struct belay_commit done = { 0 };
    struct belay_record record;

    (void)state;
    assert_int_equal(take_free(store, "k:below", "one"), BELAY_OK);
    wrong = another(store, "");
    date_steps_ms = 30000;
    assert_int_equal(
        wrong->ops->commit(wrong, &(struct belay_batch){ .writes = writes, .n_writes = 2 }, &done, NULL),
        BELAY_CONFIG);
    record = see(store, "k:below", NULL);
    assert_true(record.held);
    assert_string_equal(record.lock_id, "one");
    assert_int_equal(record.expires_ms, SERVICE_MS + 30000 + 60000);
    belay_record_release(&record);
    record = see(store, "k", NULL);
    assert_int_equal(record.n_intents, 1);
    assert_int_equal(record.intents[0].expires_ms, SERVICE_MS + 30000 + 60000);
    belay_record_release(&record);
    wrong->ops->close(wrong);
    store->ops->close(store);
}

static void a_clock_within_the_allowed_skew_is_accepted(void **state)
{
    struct belay_store *store = fresh("belay", "");
    struct belay_store *other;

    (void)state;
    wall_ahead_ms = 1900;
    other = another(store, "");
    assert_int_equal(take_free(other, "k", "one"), BELAY_OK);
    other->ops->close(other);
    wall_ahead_ms = 9000;
    other = another(store, "&max_clock_skew=10s");
    assert_int_equal(take_free(other, "l", "one"), BELAY_OK);
    other->ops->close(other);
    store->ops->close(store);
}

/* L7: after the first answer the wall clock is not used any more. */
static void a_step_of_the_wall_clock_moves_no_lease(void **state)
{
    struct belay_store *store = fresh("belay", "");
    struct belay_record record;

    (void)state;
    assert_int_equal(take_free(store, "k", "one"), BELAY_OK);
    wall_ahead_ms = 3600000;
    assert_int_equal(take_free(store, "l", "two"), BELAY_OK);
    record = see(store, "l", NULL);
    assert_int_equal(record.expires_ms, SERVICE_MS + 60000);
    belay_record_release(&record);
    store->ops->close(store);
}

/* The clock was corrected while we ran. */
static void a_corrected_clock_is_used_again(void **state)
{
    struct belay_store *store;
    struct belay_store *other;

    (void)state;
    store = fresh("belay", "");
    wall_ahead_ms = 90000;
    other = another(store, "");
    assert_int_equal(take_free(other, "k", "one"), BELAY_CONFIG);
    wall_ahead_ms = 0;
    assert_int_equal(take_free(other, "k", "two"), BELAY_OK);
    other->ops->close(other);
    store->ops->close(store);
}

/* The store's time is never later than the service's clock. */
static void leases_of_other_clients_are_judged_by_the_services_clock(void **state)
{
    struct belay_store *store = fresh("belay", "");
    struct belay_store *other;
    struct belay_record record;
    int64_t now_ms;

    (void)state;
    wall_ahead_ms = 1500;
    other = another(store, "");
    record = see(other, "k", &now_ms);
    assert_true(now_ms <= SERVICE_MS);
    belay_record_release(&record);
    other->ops->close(other);
    store->ops->close(store);
}

/* L7: a boot clock that is too fast by 1 in 1,000 must not end a lease early, however often the time is read. */
static void the_bounds_of_the_services_clock_widen_however_often_they_are_read(void **state)
{
    struct belay_store *base = fresh("belay", "");
    struct ddb_store *store = ddb_of(base);
    int64_t began_ms, low_ms, high_ms;

    (void)state;
    ddb_clock_set_date(store, SERVICE_MS, boot_now_ms);
    began_ms = ddb_clock_judge_ms(store);
    for (int i = 0; i < 100000; i++) {
        boot_now_ms++;
        low_ms = ddb_clock_judge_ms(store);
    }
    ddb_clock_bounds(store, &low_ms, &high_ms);
    assert_int_equal(low_ms, began_ms + 100000 - 100);
    assert_int_equal(high_ms, began_ms + 100000 + 100);
    base->ops->close(base);
}

/* ---- observe --------------------------------------------------------------------- */

/* The remaining time that the store reports, by its own clock. */
static int64_t left_ms(struct belay_store *store, const char *key)
{
    int64_t now_ms;
    struct belay_record record = see(store, key, &now_ms);
    int64_t left = record.expires_ms - now_ms;

    belay_record_release(&record);
    return left;
}

static void an_observer_takes_a_lock_without_heartbeats_for_its_whole_lease(void **state)
{
    struct belay_store *store = fresh("belay", "");
    struct belay_store *watch = another(store, "&observe=1");
    struct belay_record record;

    (void)state;
    assert_int_equal(take_free(store, "observed", "one"), BELAY_OK);
    boot_now_ms += 50000;
    assert_int_equal(left_ms(watch, "observed"), 60000); /* only now it began to look */
    boot_now_ms += 59999;
    assert_int_equal(left_ms(watch, "observed"), 1);
    boot_now_ms += 3000;
    record = see(watch, "observed", NULL);
    assert_int_equal(take(watch, "observed", "two", 60000, BELAY_IF_UNCHANGED, record.revision, NULL),
                     BELAY_OK);
    belay_record_release(&record);
    watch->ops->close(watch);
    store->ops->close(store);
}

static void a_heartbeat_restarts_the_observation(void **state)
{
    struct belay_store *store = fresh("belay", "");
    struct belay_store *watch = another(store, "&observe=1");
    struct belay_record values = { .ttl_ms = 60000 };
    struct belay_write renew = {
        .key = "k", .condition = BELAY_IF_HELD_BY, .lock_id = "one", .set = BELAY_SET_LEASE, .values = &values
    };
    struct belay_batch batch = { .writes = &renew, .n_writes = 1 };
    struct belay_commit done = { 0 };

    (void)state;
    assert_int_equal(take_free(store, "k", "one"), BELAY_OK);
    assert_int_equal(left_ms(watch, "k"), 60000);
    boot_now_ms += 40000;
    assert_int_equal(store->ops->commit(store, &batch, &done, NULL), BELAY_OK);
    belay_commit_release(&done);
    assert_int_equal(left_ms(watch, "k"), 60000);
    watch->ops->close(watch);
    store->ops->close(store);
}

static void a_short_process_continues_the_observation_of_an_earlier_one(void **state)
{
    struct belay_store *store = fresh("deployer", "");
    struct belay_store *watch = another(store, "&observe=1");
    int64_t first;

    (void)state;
    assert_int_equal(take_free(store, "k", "one"), BELAY_OK);
    first = left_ms(watch, "k");
    assert_in_range(first, 60000, 61000); /* whole seconds lie there */
    watch->ops->close(watch);
    boot_now_ms += 20000;
    watch = another(store, "&observe=1");
    assert_int_equal(left_ms(watch, "k"), first - 20000);
    watch->ops->close(watch);
    store->ops->close(store);
}

static void an_observer_needs_no_clock(void **state)
{
    struct belay_store *store = fresh("belay", "");
    struct belay_store *watch;

    (void)state;
    wall_ahead_ms = 3600000;
    watch = another(store, "&observe=1");
    assert_int_equal(take_free(watch, "k", "one"), BELAY_OK);
    watch->ops->close(watch);
    store->ops->close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_clock_that_is_ahead_takes_no_live_lock_on_any_layout, right_clocks),
        cmocka_unit_test_setup(a_wrong_clock_writes_nothing_on_any_layout, right_clocks),
        cmocka_unit_test_setup(the_time_is_requested_before_the_first_deadline_and_when_it_is_old,
                               right_clocks),
        cmocka_unit_test_setup(a_success_whose_answer_shows_a_wrong_clock_is_undone, right_clocks),
        cmocka_unit_test_setup(a_renewal_by_a_wrong_clock_is_written_again_by_the_right_one, right_clocks),
        cmocka_unit_test_setup(a_clock_within_the_allowed_skew_is_accepted, right_clocks),
        cmocka_unit_test_setup(a_step_of_the_wall_clock_moves_no_lease, right_clocks),
        cmocka_unit_test_setup(a_corrected_clock_is_used_again, right_clocks),
        cmocka_unit_test_setup(leases_of_other_clients_are_judged_by_the_services_clock, right_clocks),
        cmocka_unit_test_setup(the_bounds_of_the_services_clock_widen_however_often_they_are_read,
                               right_clocks),
        cmocka_unit_test_setup(an_observer_takes_a_lock_without_heartbeats_for_its_whole_lease, right_clocks),
        cmocka_unit_test_setup(a_heartbeat_restarts_the_observation, right_clocks),
        cmocka_unit_test_setup(a_short_process_continues_the_observation_of_an_earlier_one, right_clocks),
        cmocka_unit_test_setup(an_observer_needs_no_clock, right_clocks),
    };
    char home[] = "/tmp/belay-observe-XXXXXX";
    char remove[64];
    int failed;

    if (mkdtemp(home) == NULL) {
        return 1;
    }
    (void)setenv("XDG_STATE_HOME", home, 1);
    failed = cmocka_run_group_tests(tests, start_server, stop_server);
    (void)snprintf(remove, sizeof remove, "rm -rf %s", home);
    return system(remove) == 0 ? failed : 1;
}
