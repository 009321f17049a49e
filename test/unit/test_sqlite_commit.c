/* The SQLite store's commits: one sequence, events with their writes, what it knows of ids. */
#include "test_sqlite_support.h"

static void a_lock_is_acquired_and_released(void **state)
{
    struct place *place = *state;
    struct belay_record record;

    assert_true(take(place->store, "k", "id-1") > 0);
    record = look(place->store, "k");
    assert_true(record.held);
    assert_string_equal(record.lock_id, "id-1");
    assert_int_equal(record.expires_ms, place->machine.boot_ms + 10000);
    belay_record_release(&record);
    assert_int_equal(take(place->store, "k", "id-2"), 0);
    assert_int_equal(give_back(place->store, "k", "id-2"), BELAY_REFUSED);
    assert_int_equal(give_back(place->store, "k", "id-1"), BELAY_OK);
    record = look(place->store, "k");
    assert_false(record.held);
    assert_int_equal(record.outcome, BELAY_OUTCOME_COMPLETED);
    belay_record_release(&record);
}

/* L2: one sequence for tokens, revisions and event ids, also for batches without events. */
static void every_number_is_new_also_without_events(void **state)
{
    struct place *place = *state;
    uint64_t first = take(place->store, "a", "id-1");
    uint64_t second;

    assert_int_equal(put_ticket(place->store, "a", "w-1"), BELAY_OK);
    assert_int_equal(put_ticket(place->store, "a", "w-2"), BELAY_OK);
    second = take(place->store, "b", "id-2");
    assert_int_equal(second, first + 3);
    reopen(place, "boot-1");
    assert_int_equal(take(place->store, "c", "id-3"), second + 1);
}

/* L5 */
static void an_id_that_ever_took_the_key_is_known(void **state)
{
    struct place *place = *state;
    struct belay_record values = holder("id-1", 10000, false);
    struct belay_write write = {
        .key = "k", .condition = BELAY_IF_FREE_FOR_INTENT, .set = BELAY_SET_HOLDER, .values = &values
    };
    struct belay_batch batch = { .writes = &write, .n_writes = 1, .require_unused_id = "id-1" };
    struct belay_commit commit = { 0 };

    assert_true(take(place->store, "k", "id-1") > 0);
    assert_int_equal(give_back(place->store, "k", "id-1"), BELAY_OK);
    assert_int_equal(place->store->ops->commit(place->store, &batch, &commit, NULL), BELAY_ID_USED);
    assert_true(take(place->store, "k", "id-2") > 0);
    assert_int_equal(give_back(place->store, "k", "id-2"), BELAY_OK);
    assert_int_equal(place->store->ops->commit(place->store, &batch, &commit, NULL), BELAY_ID_USED);
    write.key = "another";
    assert_int_equal(place->store->ops->commit(place->store, &batch, &commit, NULL), BELAY_OK);
    belay_commit_release(&commit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_lock_is_acquired_and_released, place_open, place_remove),
        cmocka_unit_test_setup_teardown(every_number_is_new_also_without_events, place_open, place_remove),
        cmocka_unit_test_setup_teardown(an_id_that_ever_took_the_key_is_known, place_open, place_remove),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
