/*
 * Databases of older versions. unit/data/schema-1.db was written by the last
 * belay of schema 1: `kept` is held (by ci-7, for an hour, with metadata), `old`
 * was had by the id used-before and given back as failed, below-1 holds
 * stack:shop:env:prod:service:web, and `gone` was run twice. The last three events
 * are younger than its indexes.
 */
#include <fcntl.h>

#include "test_sqlite_support.h"

#define BOOT "328474a4-0f82-42a1-b27b-e3475e0e4c79"
#define KEPT_ID "f3455653-515b-4d9e-8f09-79f4b345754a"
#define LATER_MS 13348300
#define SERVICE "stack:shop:env:prod:service:web"

static int old_file(void **state)
{
    struct place *place;
    char bytes[65536];
    ssize_t n;
    int fd;

    (void)place_make(state);
    place = *state;
    fd = open(BELAY_SOURCE_DIR "/test/unit/data/schema-1.db", O_RDONLY | O_CLOEXEC);
    n = read(fd, bytes, sizeof bytes);
    assert_in_range(n, 4096, sizeof bytes - 1);
    assert_int_equal(close(fd), 0);
    fd = open(place->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, bytes, (size_t)n), n);
    assert_int_equal(close(fd), 0);
    assert_int_equal(outside(place, "PRAGMA user_version"), 1);
    place->machine.boot_ms = LATER_MS;
    place->machine.unix_ms = 1794792432000;
    place->machine.hooks.boot_id = BOOT;
    place->store = open_here(place);
    return 0;
}

static void every_field_of_a_record_is_carried_over(void **state)
{
    struct place *place = *state;
    struct belay_record kept = look(place->store, "kept");
    struct belay_record old = look(place->store, "old");

    assert_int_equal(outside(place, "PRAGMA user_version"), 6);
    assert_int_equal(outside(place, "SELECT count(*) FROM locks"), 5);
    assert_true(kept.held && kept.durable);
    assert_string_equal(kept.lock_id, KEPT_ID);
    assert_string_equal(kept.owner, "ci-7");
    assert_string_equal(kept.owner_name, "ci@builder");
    assert_string_equal(kept.acquired_by, "");
    assert_true(kept.revision == 2 && kept.token == 2);
    assert_true(kept.ttl_ms == 3600000 && kept.heartbeat_ms == 0 && kept.stale_after_ms == 0);
    assert_true(kept.expires_ms == 16947504 && kept.last_heartbeat_ms == 13347504 && kept.freed_ms == 0);
    assert_true(kept.locked_at_unix_ms == 1794792431079 && kept.expires_at_unix_ms == 1794796031079);
    assert_true(kept.last_heartbeat_unix_ms == 1794792431079 && kept.freed_at_unix_ms == 0);
    assert_int_equal(kept.n_metadata, 2);
    assert_string_equal(kept.metadata[1].value, "ünï");
    assert_false(old.held);
    assert_int_equal(old.outcome, BELAY_OUTCOME_FAILED);
    assert_true(old.freed_ms == 13347999 && old.freed_at_unix_ms == 1794792431574);
    belay_record_release(&kept);
    belay_record_release(&old);
}

/* L1, L3: who held a lock before still does, also below another, and can give it back. */
static void who_held_a_lock_holds_it_still(void **state)
{
    struct place *place = *state;
    struct belay_record above = look(place->store, "stack:shop:env:prod");

    assert_int_equal(above.n_intents, 1);
    assert_string_equal(above.intents[0].lock_id, "below-1");
    belay_record_release(&above);
    assert_int_equal(take(place->store, "kept", "rival"), 0);
    assert_int_equal(give_back(place->store, "kept", KEPT_ID), BELAY_OK);
    assert_int_equal(give_back(place->store, SERVICE, "below-1"), BELAY_OK);
}

/* L2 */
static void tokens_go_on_from_where_they_were(void **state)
{
    struct place *place = *state;

    assert_true(take(place->store, "new", "id") >= 1028); /* the file came without its log */
}

static bool count_event(void *context, const struct belay_event *event)
{
    assert_string_equal(event->key, "gone");
    ++*(int *)context;
    return true;
}

/* L5, L9: those in the old indexes and those that were not yet. */
static void used_ids_and_history_stay_known(void **state)
{
    struct place *place = *state;
    struct belay_events_query query = { .key = "gone" };
    struct belay_record values = holder("used-before", 1000, false);
    struct belay_write write = {
        .key = "old", .condition = BELAY_IF_FREE_FOR_INTENT, .set = BELAY_SET_HOLDER, .values = &values
    };
    struct belay_batch batch = { .writes = &write, .n_writes = 1, .require_unused_id = "used-before" };
    struct belay_commit commit = { 0 };
    int n = 0;

    assert_int_equal(place->store->ops->events(place->store, &query, count_event, &n, NULL), BELAY_OK);
    assert_int_equal(n, 4);
    assert_true(take(place->store, "old", "another") > 0);
    assert_int_equal(give_back(place->store, "old", "another"), BELAY_OK);
    assert_int_equal(place->store->ops->commit(place->store, &batch, &commit, NULL), BELAY_ID_USED);
}

/* L7: it was written in the boot before, too. */
static void a_restart_in_between_is_seen(void **state)
{
    struct place *place = *state;
    struct belay_record kept;
    struct belay_record gone;

    place->machine.boot_ms = 5000;
    reopen(place, "another-boot");
    kept = look(place->store, "kept");
    gone = look(place->store, "gone");
    assert_true(kept.held && kept.expires_ms == 5000 + 3600000 && kept.last_heartbeat_ms == 5000);
    assert_int_equal(kept.token, 2);
    assert_int_equal(gone.freed_ms, 5000);
    assert_true(take(place->store, "new", "id") > 65536);
    belay_record_release(&kept);
    belay_record_release(&gone);
}

/* Issue 12, item 4: a file of before gets an id, and keeps it. */
static void an_old_file_gets_an_id(void **state)
{
    struct place *place = *state;
    char first[BELAY_STORE_ID_SIZE];
    char again[BELAY_STORE_ID_SIZE];

    assert_int_equal(place->store->ops->identity(place->store, first, NULL), BELAY_OK);
    assert_int_equal(strlen(first), strlen("sqlite-") + 32);
    reopen(place, "another-boot");
    assert_int_equal(place->store->ops->identity(place->store, again, NULL), BELAY_OK);
    assert_string_equal(first, again);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, old_file, place_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_field_of_a_record_is_carried_over),
        TEST(who_held_a_lock_holds_it_still),
        TEST(tokens_go_on_from_where_they_were),
        TEST(used_ids_and_history_stay_known),
        TEST(a_restart_in_between_is_seen),
        TEST(an_old_file_gets_an_id),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
