/* The SQLite store after a restart of the machine (L2, L7). */
#include "test_sqlite_support.h"

static void take_outliving(struct belay_store *store, const char *key, const char *lock_id, int64_t ttl_ms)
{
    struct belay_commit commit = { 0 };

    assert_int_equal(take_as(store, key, lock_id, ttl_ms, true, &commit), BELAY_OK);
    belay_commit_release(&commit);
}

static void put_intent(struct belay_store *store, const char *above, const char *key, const char *lock_id)
{
    struct belay_put_intent intent = { .lock_id = lock_id, .key = key, .ttl_ms = 5000 };
    struct belay_write write = {
        .key = above, .condition = BELAY_IF_ANY, .put_intents = &intent, .n_put_intents = 1
    };
    struct belay_batch batch = { .writes = &write, .n_writes = 1 };
    struct belay_commit commit = { 0 };

    assert_int_equal(store->ops->commit(store, &batch, &commit, NULL), BELAY_OK);
    belay_commit_release(&commit);
}

/* The machine restarts; its boot clock is at ten seconds. */
static void start_again(struct place *place)
{
    place->machine.boot_ms = 10000;
    place->machine.unix_ms += 3600 * 1000;
    reopen(place, "boot-2");
}

static void a_lock_held_by_a_process_ends_with_a_restart_of_the_machine(void **state)
{
    struct place *place = *state;
    struct belay_record record;

    assert_true(take(place->store, "k", "id-1") > 0);
    start_again(place);
    record = look(place->store, "k");
    assert_true(record.held);
    assert_true(record.expires_ms <= place->machine.boot_ms);
    assert_true(record.last_heartbeat_ms <= place->machine.boot_ms);
    assert_true(record.expires_at_unix_ms <= place->machine.unix_ms);
    belay_record_release(&record);
}

static void a_durable_lock_gets_its_whole_ttl_after_a_restart(void **state)
{
    struct place *place = *state;
    struct belay_record record;

    take_outliving(place->store, "k", "id-1", 60000);
    place->machine.boot_ms += 50000;
    start_again(place);
    record = look(place->store, "k");
    assert_true(record.held);
    assert_int_equal(record.expires_ms, place->machine.boot_ms + 60000);
    assert_int_equal(record.expires_at_unix_ms, place->machine.unix_ms + 60000);
    belay_record_release(&record);
}

/* L3: another client may have had the lock meanwhile. */
static void an_expired_lease_is_not_renewed_after_a_restart(void **state)
{
    struct place *place = *state;
    struct belay_record record;

    take_outliving(place->store, "k", "id-1", 1000);
    place->machine.boot_ms += 5000;
    assert_true(take(place->store, "other", "id-2") > 0); /* the database saw that the clock went on */
    start_again(place);
    record = look(place->store, "k");
    assert_true(record.expires_ms <= place->machine.boot_ms);
    belay_record_release(&record);
}

static void after_a_restart_intents_follow_their_locks_and_no_client_waits(void **state)
{
    struct place *place = *state;
    struct belay_record record;

    take_outliving(place->store, "top/stays", "id-1", 60000);
    assert_true(take(place->store, "top/goes", "id-2") > 0);
    put_intent(place->store, "top", "top/stays", "id-1");
    put_intent(place->store, "top", "top/goes", "id-2");
    assert_int_equal(put_ticket(place->store, "top", "waiter"), BELAY_OK);
    start_again(place);
    record = look(place->store, "top");
    assert_int_equal(record.n_tickets, 0);
    assert_int_equal(record.n_intents, 1);
    assert_string_equal(record.intents[0].lock_id, "id-1");
    assert_int_equal(record.intents[0].expires_ms, place->machine.boot_ms + 60000);
    belay_record_release(&record);
}

/* One more holder of a shared lock. */
static void join(struct belay_store *store, const char *key, const char *lock_id, int64_t ttl_ms,
                 bool durable)
{
    struct belay_record values = holder(lock_id, ttl_ms, durable);
    struct belay_write write = { .key = key, .set = BELAY_SET_HOLDER, .values = &values, .co_holder = true };
    struct belay_batch batch = { .writes = &write, .n_writes = 1 };
    struct belay_commit commit = { 0 };

    values.mode = BELAY_SHARED;
    assert_int_equal(store->ops->commit(store, &batch, &commit, NULL), BELAY_OK);
    belay_commit_release(&commit);
}

/* L7: each of several holders by itself. */
static void of_several_holders_only_the_durable_ones_live_after_a_restart(void **state)
{
    struct place *place = *state;
    struct belay_record record;

    join(place->store, "k", "process", 90000, false);
    join(place->store, "k", "durable", 60000, true);
    join(place->store, "k", "over", 1000, true);
    place->machine.boot_ms += 5000;
    join(place->store, "k", "late", 30000, true);
    start_again(place);
    record = look(place->store, "k");
    assert_int_equal(record.n_holders, 4);
    assert_string_equal(record.holders[0].lock_id, "process");
    assert_true(record.holders[0].expires_ms <= place->machine.boot_ms);
    assert_true(record.holders[0].expires_at_unix_ms <= place->machine.unix_ms);
    assert_int_equal(record.holders[1].expires_ms, place->machine.boot_ms + 60000);
    assert_int_equal(record.holders[1].expires_at_unix_ms, place->machine.unix_ms + 60000);
    assert_true(record.holders[2].expires_ms <= place->machine.boot_ms); /* L3 */
    assert_int_equal(record.holders[3].expires_ms, place->machine.boot_ms + 30000);
    assert_true(record.held);
    assert_string_equal(record.lock_id, "durable");
    assert_int_equal(record.expires_ms, place->machine.boot_ms + 60000);
    for (size_t i = 0; i < record.n_holders; i++) {
        assert_true(record.holders[i].last_heartbeat_ms <= place->machine.boot_ms);
    }
    belay_record_release(&record);
}

static void after_a_restart_an_intent_follows_its_holder_among_several(void **state)
{
    struct place *place = *state;
    struct belay_record record;

    join(place->store, "top/k", "stays", 60000, true);
    join(place->store, "top/k", "goes", 90000, false);
    take_outliving(place->store, "top/x", "a/b", 70000);
    put_intent(place->store, "top", "top/k", "stays/0123456789abcdef");
    put_intent(place->store, "top", "top/k", "goes/0123456789abcdef");
    put_intent(place->store, "top", "top/k", "stay/0123456789abcdef");
    put_intent(place->store, "top", "top/x", "a/b/0123456789abcdef");
    put_intent(place->store, "top", "top/x", "a/0123456789abcdef");
    start_again(place);
    record = look(place->store, "top");
    assert_int_equal(record.n_intents, 2);
    assert_string_equal(record.intents[0].lock_id, "stays/0123456789abcdef");
    assert_int_equal(record.intents[0].expires_ms, place->machine.boot_ms + 60000);
    assert_string_equal(record.intents[1].lock_id, "a/b/0123456789abcdef");
    assert_int_equal(record.intents[1].expires_ms, place->machine.boot_ms + 70000);
    belay_record_release(&record);
}

static void the_time_of_a_release_is_never_in_the_future(void **state)
{
    struct place *place = *state;
    struct belay_record record;

    assert_true(take(place->store, "k", "id-1") > 0);
    assert_int_equal(give_back(place->store, "k", "id-1"), BELAY_OK);
    start_again(place);
    record = look(place->store, "k");
    assert_true(record.freed_ms <= place->machine.boot_ms);
    belay_record_release(&record);
}

/* L2: commits that were not synced are gone, and with them the numbers they used. */
static void numbers_go_on_above_all_that_power_loss_may_have_taken(void **state)
{
    struct place *place = *state;
    uint64_t last = 0;
    uint64_t next;

    for (int i = 0; i < 100; i++) {
        char id[16];

        (void)snprintf(id, sizeof id, "id-%d", i);
        last = take(place->store, id, id);
    }
    place->store->ops->close(place->store);
    place->store = NULL;
    (void)outside(place, "DELETE FROM events");
    (void)outside(place, "DELETE FROM locks");
    (void)outside(place, "UPDATE meta SET number = 0");
    start_again(place);
    next = take(place->store, "k", "id");
    assert_true(next > last);
}

/* Numbers that a restart leaves out are no events: they do not push the history out. */
static void the_history_survives_many_restarts(void **state)
{
    struct place *place = *state;

    assert_true(take(place->store, "k", "id-0") > 0);
    for (int i = 0; i < 20; i++) {
        static char id[16];

        (void)snprintf(id, sizeof id, "id-%d", i + 1);
        reopen(place, id); /* as the boot's */
        assert_true(take(place->store, id, id) > 0);
    }
    assert_true(outside(place, "SELECT max(id) - min(id) FROM events") > 1000000);
    (void)outside(place, "UPDATE meta SET number = (SELECT max(id) / 4096 * 4096 + 4095 FROM events)");
    (void)take(place->store, "last", "last"); /* which cleans up */
    assert_int_equal(outside(place, "SELECT listed = (SELECT max(id) FROM events) FROM meta"), 1);
    assert_int_equal(outside(place, "SELECT count(*) FROM events"), 22);
}

static void numbers_stay_below_the_ceiling_that_was_synced_before(void **state)
{
    struct place *place = *state;
    uint64_t ceiling = (uint64_t)outside(place, "SELECT ceiling FROM meta");
    uint64_t token;

    (void)outside(place, "UPDATE meta SET number = ceiling - 3"); /* in use: its log stays */
    assert_int_equal(take(place->store, "a", "id-1"), ceiling - 2);
    assert_int_equal(take(place->store, "b", "id-2"), ceiling - 1);
    assert_int_equal(outside(place, "SELECT ceiling FROM meta"), ceiling);
    token = take(place->store, "c", "id-3");
    assert_int_equal(token, ceiling);
    assert_true((uint64_t)outside(place, "SELECT ceiling FROM meta") > token + 60000);
}

static void a_store_that_another_machine_uses_is_refused(void **state)
{
    struct place *place = *state;
    struct belay_store *ours = place->store;
    struct belay_commit commit = { 0 };
    struct belay_batch batch = { 0 };

    place->store = NULL;
    reopen(place, "boot-of-another-machine");
    assert_int_equal(ours->ops->commit(ours, &batch, &commit, &place->err), BELAY_UNREACHABLE);
    assert_non_null(strstr(place->err.text, "another machine"));
    ours->ops->close(ours);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, place_open, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_lock_held_by_a_process_ends_with_a_restart_of_the_machine),
        TEST(a_durable_lock_gets_its_whole_ttl_after_a_restart),
        TEST(an_expired_lease_is_not_renewed_after_a_restart),
        TEST(after_a_restart_intents_follow_their_locks_and_no_client_waits),
        TEST(of_several_holders_only_the_durable_ones_live_after_a_restart),
        TEST(after_a_restart_an_intent_follows_its_holder_among_several),
        TEST(the_time_of_a_release_is_never_in_the_future),
        TEST(numbers_go_on_above_all_that_power_loss_may_have_taken),
        TEST(the_history_survives_many_restarts),
        TEST(numbers_stay_below_the_ceiling_that_was_synced_before),
        TEST(a_store_that_another_machine_uses_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
