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

/* L1: a store may know the record that it wrote last, but not past another process's write. */
static void what_another_process_changed_is_read_again(void **state)
{
    struct place *place = *state;
    struct belay_store *other = open_here(place);

    assert_true(take(place->store, "k", "id-1") > 0);
    assert_int_equal(give_back(other, "k", "id-1"), BELAY_OK);
    assert_true(take(other, "k", "id-2") > 0);
    assert_int_equal(give_back(place->store, "k", "id-1"), BELAY_REFUSED);
    assert_int_equal(give_back(other, "k", "id-2"), BELAY_OK);
    other->ops->close(other);
}

/* L1, L3: nor does an event of its own, such as lock.lost, make that record current again. */
static void what_another_process_changed_is_read_again_after_an_event(void **state)
{
    struct place *place = *state;
    struct belay_store *other = open_here(place);
    struct belay_event lost = event_of("lock.lost", "k", "id-1");
    struct belay_batch batch = { .events = &lost, .n_events = 1 };
    struct belay_commit commit = { 0 };
    struct belay_record record;

    lost.token = 0;
    assert_true(take(place->store, "k", "id-1") > 0);
    assert_int_equal(give_back(other, "k", "id-1"), BELAY_OK);
    assert_true(take(other, "k", "id-2") > 0);
    assert_int_equal(place->store->ops->commit(place->store, &batch, &commit, NULL), BELAY_OK);
    belay_commit_release(&commit);
    assert_int_equal(give_back(place->store, "k", "id-1"), BELAY_REFUSED);
    record = look(other, "k");
    assert_true(record.held);
    assert_string_equal(record.lock_id, "id-2");
    belay_record_release(&record);
    other->ops->close(other);
}

static enum belay_code wait_as(struct belay_store *store, const char *lock_id, const char *owner,
                               int64_t ttl_ms, enum belay_mode mode)
{
    struct belay_put_ticket ticket = { .lock_id = lock_id,
                                       .key = "k",
                                       .owner = owner,
                                       .owner_name = "w@here",
                                       .ttl_ms = ttl_ms,
                                       .acquired_by = "token",
                                       .mode = mode,
                                       .slots = mode == BELAY_SLOTS ? 3 : 0,
                                       .joint = mode == BELAY_SHARED };
    struct belay_write write = { .key = "k", .condition = BELAY_IF_ANY, .put_ticket = &ticket };
    struct belay_batch batch = { .writes = &write, .n_writes = 1 };
    struct belay_commit commit = { 0 };
    enum belay_code code = store->ops->commit(store, &batch, &commit, NULL);

    belay_commit_release(&commit);
    return code;
}

static void a_queue_is_read_as_it_was_written(void **state)
{
    struct place *place = *state;
    const char *const owners[] = { "plain", "[\"quoted\",\\]", "tab\there", "Zo\xc3\xab", "" };
    enum { N = sizeof owners / sizeof owners[0] };
    const enum belay_mode modes[N] = { BELAY_EXCLUSIVE, BELAY_SHARED, BELAY_SLOTS };
    struct belay_record record;

    for (size_t n = 1; n <= N; n++) { /* the first ones without the unusual ones behind them */
        char id[] = "w-0";

        id[2] = (char)('0' + n);
        assert_int_equal(wait_as(place->store, id, owners[n - 1], n == 3 ? INT64_MAX : 60000, modes[n - 1]),
                         BELAY_OK);
        record = look(place->store, "k");
        assert_int_equal(record.n_tickets, n);
        for (size_t i = 0; i < n; i++) {
            const struct belay_ticket *ticket = &record.tickets[i];

            assert_int_equal(ticket->lock_id[2], '1' + (int)i);
            assert_string_equal(ticket->key, "k");
            assert_string_equal(ticket->owner, owners[i]);
            assert_string_equal(ticket->owner_name, "w@here");
            assert_string_equal(ticket->acquired_by, "token");
            assert_int_equal(ticket->mode, modes[i]);
            assert_int_equal(ticket->slots, modes[i] == BELAY_SLOTS ? 3 : 0);
            assert_int_equal(ticket->joint, modes[i] == BELAY_SHARED);
            assert_true(ticket->expires_ms == (i == 2 ? INT64_MAX : place->machine.boot_ms + 60000));
            assert_true(i == 0 || ticket->seq > record.tickets[i - 1].seq);
        }
        belay_record_release(&record);
    }
    assert_int_equal(wait_as(place->store, "w-6", "\xff", 60000, BELAY_EXCLUSIVE), BELAY_INVALID);
}

static void a_queue_in_an_older_form_is_read_and_damage_is_named(void **state)
{
    struct place *place = *state;
    const char *key = "k";
    struct belay_record record = { 0 };
    int64_t now_ms;

    assert_int_equal(put_ticket(place->store, "k", "w-1"), BELAY_OK);
    (void)outside(place, "UPDATE locks SET tickets = '[ [\"w-2\",\"k\",\"o\",\"n\",7,8,9,false] ]'");
    record = look(place->store, "k");
    assert_int_equal(record.n_tickets, 1);
    assert_string_equal(record.tickets[0].lock_id, "w-2");
    assert_int_equal(record.tickets[0].seq, 7);
    assert_int_equal(record.tickets[0].expires_ms, 9);
    belay_record_release(&record);
    (void)outside(place, "UPDATE locks SET tickets = '[[\"w-2\",\"k\",\"o\",\"n\",7,8,9,false,\"\"'");
    assert_int_equal(place->store->ops->get(place->store, &key, 1, &record, &now_ms, NULL),
                     BELAY_BAD_CONTENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_lock_is_acquired_and_released, place_open, place_remove),
        cmocka_unit_test_setup_teardown(every_number_is_new_also_without_events, place_open, place_remove),
        cmocka_unit_test_setup_teardown(an_id_that_ever_took_the_key_is_known, place_open, place_remove),
        cmocka_unit_test_setup_teardown(what_another_process_changed_is_read_again, place_open, place_remove),
        cmocka_unit_test_setup_teardown(what_another_process_changed_is_read_again_after_an_event, place_open,
                                        place_remove),
        cmocka_unit_test_setup_teardown(a_queue_is_read_as_it_was_written, place_open, place_remove),
        cmocka_unit_test_setup_teardown(a_queue_in_an_older_form_is_read_and_damage_is_named, place_open,
                                        place_remove),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
