/* L9: an event says the same, whichever function of functions.sql wrote it, and what it says on SQLite. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "conformance/postgresql_kit.h"
#include "store/sqlite/sqlite_store.h"
#include "support/directory.h"

/* SQLite; commit(); acquire(), change(), queue() and claim(); the same but change_many() for what can be in a group. */
enum path { SQLITE, GENERAL, ALONE, GROUP, PATHS };
enum { TTL_MS = 60000, WAITED_MS = 3600000, ROUNDS = 2 /* the first one makes the record */ };

/* What an event may say, or not. */
struct words {
    const char *owner, *name, *by, *reason;
    size_t n_metadata;
    enum belay_level level;
};
static const struct words all_words[] = {
    { "owner", "name", NULL, NULL, 0, BELAY_LEVEL_INFO },
    { "owner", "", "", "", 0, BELAY_LEVEL_INFO },
    { "owner", NULL, NULL, NULL, 0, BELAY_LEVEL_INFO },
    { "", "", "by", "reason", 1, BELAY_LEVEL_INFO },
    { "", NULL, NULL, "reason", 1, BELAY_LEVEL_WARNING },
    { "o \"'\\,(){}", "n\n\t", "b, NULL", "r \\\"", 2, BELAY_LEVEL_INFO },
};
enum { WORDS = sizeof all_words / sizeof all_words[0] };

static struct belay_meta metadata[] = { { (char *)"a", (char *)"" },
                                        { (char *)"b", (char *)"\"it's\", \\" } };

/* One path, and what was said on it. */
struct course {
    enum path path;
    struct belay_store *store;
    size_t n_grouped;
    struct buf said;
    struct buf said_of_refusals; /* whose reasons have times in them */
};

/* ---- reading ---- */

static void add_text(struct buf *to, const char *name, const char *text)
{
    buf_addf(to, text == NULL ? " %s:-" : " %s:'%s'", name, text);
}

static bool note(void *context, const struct belay_event *event)
{
    struct course *course = context;
    bool is_refusal = strcmp(event->type, "lock.refused") == 0;
    bool is_measured = event->duration_ms >= 0 && event->duration_ms != WAITED_MS;
    struct buf *to = is_refusal ? &course->said_of_refusals : &course->said;

    buf_addf(to, "%s level:%d token:%d", event->type, (int)event->level, event->token != 0);
    add_text(to, "key", event->key);
    add_text(to, "id", event->lock_id);
    add_text(to, "owner", event->locked_by);
    add_text(to, "name", event->locked_by_name);
    add_text(to, "by", event->by);
    add_text(to, "reason", is_refusal ? NULL : event->reason);
    buf_addf(to, " duration:%" PRId64, is_measured ? 0 : event->duration_ms);
    for (size_t i = 0; i < event->n_metadata; i++) {
        add_text(to, event->metadata[i].name, event->metadata[i].value);
    }
    buf_adds(to, "\n");
    return true;
}

/* ---- writing ---- */

static bool send_in_group(struct course *course, const struct belay_batch *batch)
{
    struct pg_change item = { .batch = batch, .deadline_ms = INT64_MAX };
    struct pg_change *items[] = { &item };
    bool done = pg_is_change(batch) && pg_call_change_many(pg_of(course->store), items, 1) == BELAY_OK &&
                item.answer != NULL;

    free(item.answer);
    course->n_grouped += done ? 1 : 0;
    return done;
}

static void commit(struct course *course, struct belay_write *write, const struct belay_event *events,
                   size_t n_events, enum belay_code expected)
{
    const char *drops[] = { write->n_drop_tickets > 0 ? write->drop_tickets[0] : "nobody", "nobody" };
    struct belay_batch batch = { .writes = write, .n_writes = 1, .events = events, .n_events = n_events };
    struct belay_commit out = { 0 };

    if (course->path == GENERAL) {
        write->drop_tickets = drops; /* no other function drops them */
        write->n_drop_tickets = 2;
    }
    if (course->path == SQLITE && write->condition >= BELAY_IF_OCCUPIED) {
        write->condition = BELAY_IF_ANY; /* it knows of no turns */
    }
    batch.note_refusal = expected == BELAY_REFUSED;
    if (course->path == GROUP && send_in_group(course, &batch)) {
        return;
    }
    batch.timeout_ms = 4000; /* with less than LEAST_MS it goes alone */
    assert_int_equal(course->store->ops->commit(course->store, &batch, &out, NULL), expected);
    belay_commit_release(&out);
}

static struct belay_event event_of(const struct words *words, const char *type, const char *key,
                                   const char *lock_id)
{
    return (struct belay_event){ .type = type,
                                 .level = words->level,
                                 .key = key,
                                 .lock_id = lock_id,
                                 .locked_by = words->owner,
                                 .locked_by_name = words->name,
                                 .by = words->by,
                                 .reason = words->reason,
                                 .duration_ms = -1,
                                 .metadata = words->n_metadata > 0 ? metadata : NULL,
                                 .n_metadata = words->n_metadata };
}

static struct belay_record holder_of(const struct words *words, const char *lock_id)
{
    return (struct belay_record){ .lock_id = (char *)lock_id,
                                  .owner = (char *)words->owner,
                                  .owner_name = (char *)words->name,
                                  .ttl_ms = TTL_MS,
                                  .metadata = words->n_metadata > 0 ? metadata : NULL,
                                  .n_metadata = words->n_metadata };
}

static void acquire(struct course *course, const struct words *words, const char *key, const char *lock_id,
                    enum belay_code expected)
{
    struct belay_record values = holder_of(words, lock_id);
    struct belay_event event = event_of(words, "lock.acquired", key, lock_id);
    struct belay_write write = {
        .key = key, .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER, .values = &values
    };

    event.token = BELAY_TOKEN_OF_BATCH;
    commit(course, &write, &event, 1, expected);
}

/* Its event names an owner, or leaves that to the record. */
static void change(struct course *course, const struct words *words, const char *key, const char *lock_id,
                   const char *type)
{
    bool renews = strcmp(type, "lock.renewed") == 0;
    struct belay_record values = { .ttl_ms = renews ? TTL_MS : 0, .outcome = BELAY_OUTCOME_COMPLETED };
    struct belay_event event = event_of(words, type, key, lock_id);
    struct belay_write write = { .key = key,
                                 .condition = renews ? BELAY_IF_LIVE_BY : BELAY_IF_HELD_BY,
                                 .lock_id = lock_id,
                                 .set = renews ? BELAY_SET_LEASE : BELAY_SET_RELEASED,
                                 .values = &values };

    event.duration_ms = renews ? -1 : BELAY_DURATION_HELD;
    if (words->by == NULL) {
        event.locked_by = event.locked_by_name = NULL;
        event.metadata = NULL;
        event.n_metadata = 0;
    }
    commit(course, &write, &event, 1, BELAY_OK);
}

static void queue(struct course *course, const struct words *words, const char *key, const char *lock_id)
{
    struct belay_put_ticket put = {
        .lock_id = lock_id, .key = key, .owner = words->owner, .owner_name = words->name, .ttl_ms = TTL_MS
    };
    struct belay_event event = event_of(words, "wait.began", key, lock_id);
    struct belay_write write = { .key = key, .condition = BELAY_IF_OCCUPIED, .put_ticket = &put };

    commit(course, &write, &event, 1, BELAY_OK);
}

static void claim(struct course *course, const struct words *words, const char *key, const char *lock_id)
{
    struct belay_record values = holder_of(words, lock_id);
    struct belay_event events[] = { event_of(words, "wait.ended", key, lock_id),
                                    event_of(words, "lock.acquired", key, lock_id) };
    struct belay_write write = { .key = key,
                                 .condition = BELAY_IF_NEXT,
                                 .lock_id = lock_id,
                                 .set = BELAY_SET_HOLDER,
                                 .values = &values,
                                 .drop_tickets = &lock_id,
                                 .n_drop_tickets = 1 };

    events[0].reason = "acquired";
    events[0].duration_ms = WAITED_MS;
    events[1].token = BELAY_TOKEN_OF_BATCH;
    commit(course, &write, events, 2, BELAY_OK);
}

/* A lock is taken, refused, renewed, waited for, released, taken by the waiter and released. */
static void play(struct course *course)
{
    for (int i = 0; i < WORDS * ROUNDS; i++) {
        const struct words *words = &all_words[i % WORDS];
        char key[24], first[24], second[24];

        (void)snprintf(key, sizeof key, "k-%d", i % WORDS);
        (void)snprintf(first, sizeof first, "first-%d", i);
        (void)snprintf(second, sizeof second, "second-%d", i);
        acquire(course, words, key, first, BELAY_OK);
        acquire(course, words, key, "other", BELAY_REFUSED);
        change(course, words, key, first, "lock.renewed");
        queue(course, words, key, second);
        change(course, words, key, first, "lock.released");
        claim(course, words, key, second);
        change(course, words, key, second, "lock.released");
    }
}

static void read_all(struct course *course)
{
    struct belay_events_query query = { 0 };
    char key[24];

    for (int i = 0; i < WORDS; i++) {
        (void)snprintf(key, sizeof key, "k-%d", i);
        query.key = key;
        assert_int_equal(course->store->ops->events(course->store, &query, note, course, NULL), BELAY_OK);
    }
}

static void an_event_says_the_same_whatever_wrote_it(void **state)
{
    struct course courses[PATHS] = { 0 };
    char directory[] = "/tmp/belay-events-XXXXXX";
    char file[64];
    char *whole = NULL;

    (void)state;
    assert_non_null(mkdtemp(directory));
    (void)snprintf(file, sizeof file, "%s/belay.db", directory);
    for (int i = 0; i < PATHS; i++) {
        struct course *course = &courses[i];

        *course = (struct course){ .path = (enum path)i,
                                   .said = BUF_INIT(1 << 20),
                                   .said_of_refusals = BUF_INIT(1 << 20) };
        if (i == SQLITE) {
            assert_int_equal(sqlite_store_open(file, NULL, &course->store, &whole, NULL), BELAY_OK);
        } else {
            assert_true(pg_kit_run("DELETE FROM events.locks; DELETE FROM events.events"));
            course->store = pg_kit_open(kit.url, &(struct postgresql_options){ .timeout_factor = 1 });
        }
        play(course);
        read_all(course);
        course->store->ops->close(course->store);
    }
    assert_true(courses[GROUP].n_grouped > WORDS);
    for (int i = GENERAL; i < PATHS; i++) {
        assert_string_equal(courses[i].said.data, courses[SQLITE].said.data);
    }
    assert_string_equal(courses[GROUP].said_of_refusals.data, courses[ALONE].said_of_refusals.data);
    for (int i = 0; i < PATHS; i++) {
        buf_release(&courses[i].said);
        buf_release(&courses[i].said_of_refusals);
    }
    free(whole);
    directory_empty(directory);
    (void)rmdir(directory);
}

/* ---- following a prefix ---- */

enum { POLLS = 40 };

static bool note_key(void *context, const struct belay_event *event)
{
    buf_addf(context, "%s ", event->key);
    return true;
}

/* The keys of what a client gets that follows "p/" and has got the event `after`. The caller frees it. */
static char *follow(struct belay_store *store, uint64_t after, int times)
{
    struct belay_events_query query = { .prefix = "p/", .after = after };
    struct buf keys = BUF_INIT(1 << 16);

    for (int i = 0; i < times; i++) {
        assert_int_equal(store->ops->events(store, &query, note_key, &keys, NULL), BELAY_OK);
    }
    buf_adds(&keys, "");
    return buf_take(&keys);
}

static void assert_followed(struct belay_store *store, uint64_t after, int times, const char *expected)
{
    char *keys = follow(store, after, times);

    assert_string_equal(keys, expected);
    free(keys);
}

#define ADD_EVENT "INSERT INTO events.events (id, at_ms, level, type, key, token, duration_ms) "
#define ADD_NEXT_EVENT ADD_EVENT "SELECT events.first_event(m.event_base), 0, 0, 't', "

static struct belay_store *open_without_events(void)
{
    assert_true(pg_kit_run("DELETE FROM events.events"));
    return pg_kit_open(kit.url, NULL);
}

static void events_of_other_keys_are_read_once(void **state)
{
    struct belay_store *store = open_without_events();

    (void)state;
    assert_true(pg_kit_run(ADD_EVENT "SELECT n, 0, 0, 't', 'other', 0, -1 FROM generate_series(100, 900) n"));
    assert_followed(store, 100, POLLS, "");
    /* As nothing does that goes by the rules: it shows where reading begins. */
    assert_true(pg_kit_run("UPDATE events.events SET key = 'p/before' WHERE id = 500"));
    assert_followed(store, 100, 1, "");
    assert_followed(store, 101, 1,
                    "p/before "); /* of a client that asks for something else it knows nothing */
    assert_true(pg_kit_run(ADD_EVENT "VALUES (901, 0, 0, 't', 'p/next', 0, -1)"));
    assert_followed(store, 500, 1, "p/next ");
    store->ops->close(store);
}

static void an_event_of_an_open_transaction_is_not_passed_over(void **state)
{
    struct belay_store *store = open_without_events();
    struct pg_conn *writer = NULL;

    (void)state;
    assert_int_equal(pg_connect(kit.database, clock_boot_ms() + 60000, &writer, NULL), BELAY_OK);
    assert_true(pg_kit_run(ADD_EVENT "VALUES (100, 0, 0, 't', 'other', 0, -1)"));
    assert_int_equal(
        pg_conn_run(writer, "BEGIN; " ADD_NEXT_EVENT "'p/late', 0, -1 FROM events.meta m", NULL, NULL),
        BELAY_OK);
    assert_true(pg_kit_run(ADD_NEXT_EVENT "'other', 0, -1 FROM events.meta m"));
    assert_followed(store, 1, POLLS, "");
    assert_int_equal(pg_conn_run(writer, "COMMIT", NULL, NULL), BELAY_OK);
    assert_followed(store, 1, 1, "p/late ");
    pg_conn_close(writer);
    store->ops->close(store);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_event_says_the_same_whatever_wrote_it),
        cmocka_unit_test(events_of_other_keys_are_read_once),
        cmocka_unit_test(an_event_of_an_open_transaction_is_not_passed_over),
    };
    int failed = pg_kit_start("events") ? cmocka_run_group_tests(tests, NULL, NULL) : 1;

    pg_kit_stop();
    return failed;
}
