/* Events and clean-up of the SQLite store: order, history, retention (L9, L2). */
#include <fcntl.h>

#include "store/sqlite/sqlite_internal.h"
#include "test_sqlite_support.h"

#define DAY_MS (24LL * 3600 * 1000)

struct seen {
    size_t n;
    uint64_t last;
    char text[512]; /* "type lock_id;" of each */
    size_t stop_after;
};

static bool see(void *context, const struct belay_event *event)
{
    struct seen *seen = context;
    size_t len = strlen(seen->text);

    assert_true(event->id > seen->last);
    seen->last = event->id;
    if (len + 64 < sizeof seen->text) {
        (void)snprintf(seen->text + len, sizeof seen->text - len, "%s %s;", event->type, event->lock_id);
    }
    return ++seen->n != seen->stop_after;
}

static struct seen events(struct belay_store *store, struct belay_events_query query)
{
    struct seen seen = { 0 };

    assert_int_equal(store->ops->events(store, &query, see, &seen, NULL), BELAY_OK);
    return seen;
}

static void pairs(struct belay_store *store, const char *key, int first, int n)
{
    for (int i = first; i < first + n; i++) {
        char id[32];

        (void)snprintf(id, sizeof id, "id-%d", i);
        assert_true(take(store, key, id) > 0);
        assert_int_equal(give_back(store, key, id), BELAY_OK);
    }
}

static void sweep(struct belay_store *store)
{
    sqlite_sweep((struct sqlite_store *)store, true);
}

static void the_history_of_one_key_is_in_order_with_and_without_an_index(void **state)
{
    struct place *place = *state;
    const char expected[] = "lock.acquired id-0;lock.released id-0;lock.acquired id-1;lock.released id-1;";

    pairs(place->store, "k", 0, 1);
    pairs(place->store, "other", 10, 2);
    sweep(place->store); /* from here on the two above are in the index */
    pairs(place->store, "k", 1, 1);
    pairs(place->store, "kk", 20, 1);
    assert_string_equal(events(place->store, (struct belay_events_query){ .key = "k" }).text, expected);
    sweep(place->store);
    assert_string_equal(events(place->store, (struct belay_events_query){ .key = "k" }).text, expected);
    assert_string_equal(events(place->store, (struct belay_events_query){ .key = "k", .last = 3 }).text,
                        expected + strlen("lock.acquired id-0;"));
    assert_int_equal(events(place->store, (struct belay_events_query){ .key = "k", .last = 9 }).n, 4);
    assert_int_equal(events(place->store, (struct belay_events_query){ .key = "none" }).n, 0);
}

static void events_of_a_prefix_come_after_an_id_and_to_the_last(void **state)
{
    struct place *place = *state;
    struct seen all;

    pairs(place->store, "a/1", 0, 100);
    pairs(place->store, "b", 0, 10);
    pairs(place->store, "a/2", 0, 100);
    all = events(place->store, (struct belay_events_query){ .prefix = "a/" });
    assert_int_equal(all.n, 400); /* more than one page */
    assert_int_equal(events(place->store, (struct belay_events_query){ .after = all.last }).n, 0);
    assert_int_equal(
        events(place->store, (struct belay_events_query){ .prefix = "a/", .after = all.last - 5 }).n, 5);
    assert_int_equal(events(place->store, (struct belay_events_query){ .prefix = "a/", .last = 300 }).n, 300);
    assert_int_equal(events(place->store, (struct belay_events_query){ 0 }).n, 420);
}

static void reading_events_stops_on_request(void **state)
{
    struct place *place = *state;
    struct seen seen = { .stop_after = 3 };

    pairs(place->store, "k", 0, 100);
    assert_int_equal(
        place->store->ops->events(place->store, &(struct belay_events_query){ 0 }, see, &seen, NULL),
        BELAY_OK);
    assert_int_equal(seen.n, 3);
}

static enum belay_code take_again(struct belay_store *store, const char *key, const char *lock_id)
{
    struct belay_record values = holder(lock_id, 1000, false);
    struct belay_write write = {
        .key = key, .condition = BELAY_IF_FREE_FOR_INTENT, .set = BELAY_SET_HOLDER, .values = &values
    };
    struct belay_batch batch = { .writes = &write, .n_writes = 1, .require_unused_id = lock_id };
    struct belay_commit commit = { 0 };
    enum belay_code code = store->ops->commit(store, &batch, &commit, NULL);

    belay_commit_release(&commit);
    return code;
}

/* L5: also once it has left the newest events, and the record is gone. */
static void a_used_id_stays_known_as_long_as_its_event_is_kept(void **state)
{
    struct place *place = *state;

    pairs(place->store, "k", 0, 2);
    sweep(place->store);
    assert_int_equal(take_again(place->store, "k", "id-0"), BELAY_ID_USED);
    place->machine.unix_ms += 8 * DAY_MS; /* past retain_records */
    sweep(place->store);
    assert_int_equal(outside(place, "SELECT count(*) FROM locks"), 0);
    assert_int_equal(take_again(place->store, "k", "id-0"), BELAY_ID_USED);
    assert_int_equal(take_again(place->store, "k", "id-1"), BELAY_ID_USED);
    assert_int_equal(take_again(place->store, "k", "id-2"), BELAY_OK);
}

static void old_events_go_but_the_newest_stays_and_with_it_the_number(void **state)
{
    struct place *place = *state;
    uint64_t token;

    pairs(place->store, "k", 0, 300);
    token = take(place->store, "last", "id");
    assert_true(token > 0);
    sweep(place->store);
    assert_int_equal(outside(place, "SELECT count(*) FROM events"), 601);
    place->machine.unix_ms += 31 * DAY_MS;
    sweep(place->store);
    sweep(place->store);
    assert_int_equal(outside(place, "SELECT count(*) FROM events"), 1);
    assert_int_equal(outside(place, "SELECT count(*) FROM history"), 1);
    assert_int_equal(outside(place, "SELECT count(*) FROM acquisitions"), 1);
    assert_int_equal(take(place->store, "next", "id"), token + 1);
}

static void records_in_use_are_kept(void **state)
{
    struct place *place = *state;
    struct belay_put_intent intent = { .lock_id = "id", .key = "above/k", .ttl_ms = 100000 };
    struct belay_write write = {
        .key = "above", .condition = BELAY_IF_ANY, .put_intents = &intent, .n_put_intents = 1
    };
    struct belay_batch batch = { .writes = &write, .n_writes = 1 };
    struct belay_commit commit = { 0 };

    assert_true(take(place->store, "held", "id-1") > 0);
    assert_int_equal(put_ticket(place->store, "waited-for", "w"), BELAY_OK);
    assert_int_equal(place->store->ops->commit(place->store, &batch, &commit, NULL), BELAY_OK);
    belay_commit_release(&commit);
    pairs(place->store, "given-back", 0, 1);
    place->machine.unix_ms += 100 * DAY_MS; /* a step of the wall clock ends no lease (L7) */
    sweep(place->store);
    assert_int_equal(outside(place, "SELECT count(*) FROM locks"), 3);
    assert_int_equal(outside(place, "SELECT count(*) FROM locks WHERE key = 'given-back'"), 0);
    /* Once leases, tickets and intents are over too, and long so, nothing is left. */
    place->machine.boot_ms += 200 * DAY_MS;
    place->machine.unix_ms += 200 * DAY_MS;
    sweep(place->store);
    assert_int_equal(outside(place, "SELECT count(*) FROM locks"), 0);
}

static void maintenance_steps_through_all_records_and_starts_over(void **state)
{
    struct place *place = *state;

    for (int i = 0; i < 2400; i++) {
        char key[32];

        (void)snprintf(key, sizeof key, "k-%04d", i);
        pairs(place->store, key, i, 1);
    }
    place->machine.unix_ms += 8 * DAY_MS;
    sweep(place->store);
    assert_in_range(outside(place, "SELECT count(*) FROM locks"), 1000, 2399);
    for (int i = 0; i < 4; i++) {
        sweep(place->store);
    }
    assert_int_equal(outside(place, "SELECT count(*) FROM locks"), 0);
}

/* Only commits call it. */
static void commits_remove_old_records_by_themselves(void **state)
{
    struct place *place = *state;

    pairs(place->store, "k", 0, 10);
    pairs(place->store, "old", 0, 1);
    place->machine.unix_ms += 40 * DAY_MS;
    pairs(place->store, "k", 10, 2400);
    assert_int_equal(outside(place, "SELECT count(*) FROM locks"), 1);
    assert_int_equal(outside(place, "SELECT count(*) FROM events"), 4800);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, place_open, place_remove)

/* ---- a damaged file ---- */

static unsigned read_16(const unsigned char *at)
{
    return (unsigned)at[0] << 8 | at[1];
}

/* Exchange the first two cells of the leaf page of this type that has the text: its rows are then out of order. */
static void swap_cells(const char *path, unsigned char leaf, const char *text)
{
    enum { CELLS = 8 };
    unsigned char file[1 << 17];
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ssize_t len = read(fd, file, sizeof file);
    size_t page = read_16(file + 16);
    bool is_found = false;

    assert_true(len > 0 && (size_t)len < sizeof file && page >= 512);
    for (size_t at = page; !is_found && at + page <= (size_t)len; at += page) {
        unsigned char *cells = file + at + CELLS;

        is_found = file[at] == leaf && read_16(file + at + 3) >= 2 &&
                   memmem(file + at, page, text, strlen(text)) != NULL;
        if (is_found) {
            const unsigned char swapped[4] = { cells[2], cells[3], cells[0], cells[1] };

            assert_int_equal(pwrite(fd, swapped, sizeof swapped, (off_t)(at + CELLS)), sizeof swapped);
        }
    }
    assert_true(is_found);
    (void)close(fd);
}

static bool pass_record(void *context, const struct belay_info *info)
{
    (void)context;
    (void)info;
    return true;
}

static bool pass_event(void *context, const struct belay_event *event)
{
    (void)context;
    (void)event;
    return true;
}

/* The file comes from a disk: what is in it is never asserted. */
static void rows_out_of_order_are_an_error_and_end_no_process(void **state)
{
    enum { TABLE_LEAF = 0x0d, INDEX_LEAF = 0x0a };
    struct place *place = *state;
    struct belay_client *client = NULL;
    sqlite3 *db = NULL;

    assert_true(take(place->store, "key-1", "id-1") > 0);
    assert_true(take(place->store, "key-2", "id-2") > 0);
    place->store->ops->close(place->store);
    place->store = NULL;
    assert_int_equal(sqlite3_open(place->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    swap_cells(place->path, TABLE_LEAF, "lock.acquired");
    swap_cells(place->path, INDEX_LEAF, "key-1");
    place->store = open_here(place);
    assert_int_equal(belay_client_open_store(place->store, NULL, &client, NULL), BELAY_OK);
    place->store = NULL;
    assert_int_equal(belay_events(client, NULL, 0, 0, pass_event, NULL, &place->err), BELAY_BAD_CONTENT);
    assert_non_null(strstr(place->err.text, "out of order"));
    assert_int_equal(belay_list(client, NULL, pass_record, NULL, NULL, &place->err), BELAY_BAD_CONTENT);
    assert_non_null(strstr(place->err.text, "out of order"));
    belay_client_close(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_history_of_one_key_is_in_order_with_and_without_an_index),
        TEST(events_of_a_prefix_come_after_an_id_and_to_the_last),
        TEST(reading_events_stops_on_request),
        TEST(a_used_id_stays_known_as_long_as_its_event_is_kept),
        TEST(old_events_go_but_the_newest_stays_and_with_it_the_number),
        TEST(records_in_use_are_kept),
        TEST(maintenance_steps_through_all_records_and_starts_over),
        TEST(commits_remove_old_records_by_themselves),
        TEST(rows_out_of_order_are_an_error_and_end_no_process),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
