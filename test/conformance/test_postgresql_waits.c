/* What happens while a statement waits for a row, a standby or the others of its group. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "conformance/postgresql_kit.h"

/* ---- a freeze that comes while a grant waits for its row ---- */

#define FREEZE_ALL                                                                                           \
    "SELECT waits.item_put('freeze', 'list', "                                                               \
    "'[{\"id\": \"f\", \"pattern\": \"*\", \"reason\": \"r\", \"by\": \"x\", \"from\": 1}]', -1)"

/* acquire(), commit() and claim() of functions.sql. */
enum path { ALONE, GENERAL, TURN };

struct grant {
    struct belay_store *store;
    enum path path;
    enum belay_code code;
};

static void *grant_in_thread(void *context)
{
    struct grant *grant = context;
    const char *id = "b";
    struct belay_record values = { .lock_id = (char *)id,
                                   .owner = (char *)"o",
                                   .owner_name = (char *)"n",
                                   .ttl_ms = 60000,
                                   .mode = grant->path == GENERAL ? BELAY_SHARED : BELAY_EXCLUSIVE };
    struct belay_write write = { .key = "k",
                                 .condition = grant->path == TURN ? BELAY_IF_NEXT : BELAY_IF_FREE,
                                 .lock_id = grant->path == TURN ? id : NULL,
                                 .set = BELAY_SET_HOLDER,
                                 .values = &values,
                                 .co_holder = grant->path == GENERAL,
                                 .drop_tickets = &id,
                                 .n_drop_tickets = grant->path == TURN ? 1 : 0 };
    struct belay_event events[2] = {
        { .type = "wait.ended", .reason = "acquired", .duration_ms = 1 },
        { .type = "lock.acquired", .token = BELAY_TOKEN_OF_BATCH, .duration_ms = -1 }
    };
    struct belay_batch batch = { .writes = &write, .n_writes = 1, .check_freezes = true };
    struct belay_commit out = { 0 };

    for (int i = 0; i < 2; i++) {
        events[i].key = "k";
        events[i].lock_id = id;
        events[i].locked_by = "o";
        events[i].locked_by_name = "n";
    }
    batch.events = grant->path == TURN ? events : &events[1];
    batch.n_events = grant->path == TURN ? 2 : 1;
    assert_int_equal(pg_is_queue_batch(&batch), grant->path == TURN);
    assert_int_equal(pg_is_change(&batch), grant->path == ALONE);
    grant->code = grant->store->ops->commit(grant->store, &batch, &out, NULL);
    belay_commit_release(&out);
    return NULL;
}

static void await_blocked(void)
{
    const struct timespec pause = { 0, 10000000 }; /* longer than a wait that does not count */
    int64_t until_ms = clock_boot_ms() + 60000;

    while (pg_kit_number("SELECT count(*) FROM pg_locks WHERE NOT granted") == 0) {
        assert_true(clock_boot_ms() < until_ms);
    }
    (void)nanosleep(&pause, NULL);
}

static void no_grant_follows_a_freeze_that_was_answered(void **state)
{
    struct belay_store *store = pg_kit_open(kit.url, NULL);
    struct pg_conn *other = NULL;

    (void)state;
    assert_int_equal(pg_connect(kit.database, INT64_MAX, &other, NULL), BELAY_OK);
    for (enum path path = ALONE; path <= TURN; path++) {
        struct grant grant = { .store = store, .path = path };
        pthread_t thread;

        assert_true(pg_kit_run("SELECT waits.item_put('freeze', 'list', NULL, -1); DELETE FROM waits.locks"));
        pg_kit_take(store, "k", "a", 60000);
        if (path == TURN) {
            pg_kit_queue(store, "k", "b", 60000);
        }
        assert_true(pg_kit_run("UPDATE waits.locks SET held = false"));
        assert_int_equal(pg_conn_run(other, "BEGIN; SELECT FROM waits.locks FOR UPDATE", NULL, NULL),
                         BELAY_OK);
        assert_int_equal(pthread_create(&thread, NULL, grant_in_thread, &grant), 0);
        await_blocked();
        assert_true(pg_kit_run(FREEZE_ALL));
        assert_int_equal(pg_conn_run(other, "COMMIT", NULL, NULL), BELAY_OK);
        (void)pthread_join(thread, NULL);
        assert_int_equal(grant.code, BELAY_FROZEN);
        assert_int_equal(pg_kit_number("SELECT count(*) FROM waits.locks WHERE held"), 0);
    }
    assert_true(pg_kit_run("SELECT waits.item_put('freeze', 'list', NULL, -1)"));
    pg_conn_close(other);
    store->ops->close(store);
}

struct group {
    struct belay_store *store;
    struct pg_change **changes;
    enum belay_code code;
};

static void *send_in_thread(void *context)
{
    struct group *group = context;

    group->code = pg_call_change_many(pg_of(group->store), group->changes, 2);
    return NULL;
}

/* The same in a group: its first lock is there already when it waits for the second one. */
static void no_grant_of_a_group_follows_a_freeze_that_was_answered(void **state)
{
    struct belay_record values = {
        .lock_id = (char *)"b", .owner = (char *)"o", .owner_name = (char *)"n", .ttl_ms = 60000
    };
    struct belay_write writes[2];
    struct belay_event events[2];
    struct belay_batch batches[2];
    struct pg_change items[2];
    struct pg_change *sorted[2] = { &items[0], &items[1] };
    struct group group = { .store = pg_kit_open(kit.url, NULL), .changes = sorted };
    struct pg_conn *other = NULL;
    pthread_t thread;

    (void)state;
    assert_true(
        pg_kit_run("ALTER FUNCTION waits.change_many SET lock_timeout = 60000; DELETE FROM waits.locks"));
    for (int i = 0; i < 2; i++) {
        writes[i] = (struct belay_write){
            .key = i == 0 ? "k" : "l", .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER, .values = &values
        };
        events[i] = (struct belay_event){ .type = "lock.acquired", .key = writes[i].key, .lock_id = "b" };
        batches[i] = (struct belay_batch){
            .writes = &writes[i], .n_writes = 1, .events = &events[i], .n_events = 1, .check_freezes = true
        };
        items[i] = (struct pg_change){ .batch = &batches[i], .deadline_ms = INT64_MAX };
        pg_kit_take(group.store, writes[i].key, "a", 60000);
    }
    assert_true(pg_kit_run("UPDATE waits.locks SET held = false"));
    assert_int_equal(pg_connect(kit.database, INT64_MAX, &other, NULL), BELAY_OK);
    assert_int_equal(
        pg_conn_run(other, "BEGIN; SELECT FROM waits.locks WHERE key = 'k' FOR UPDATE", NULL, NULL),
        BELAY_OK);
    assert_int_equal(pthread_create(&thread, NULL, send_in_thread, &group), 0);
    await_blocked();
    /* Rows are locked from the last key to the first, as in commit(): so no two wait for each other. */
    assert_int_equal(pg_kit_number("SELECT count(*) FROM (SELECT FROM waits.locks WHERE key = 'l' "
                                   "FOR UPDATE SKIP LOCKED) x"),
                     0);
    assert_true(pg_kit_run(FREEZE_ALL));
    assert_int_equal(pg_conn_run(other, "COMMIT", NULL, NULL), BELAY_OK);
    (void)pthread_join(thread, NULL);
    assert_int_equal(group.code, BELAY_CANCELLED); /* each is sent alone, and refused */
    assert_int_equal(pg_kit_number("SELECT count(*) FROM waits.locks WHERE held"), 0);
    assert_true(pg_kit_run("ALTER FUNCTION waits.change_many SET lock_timeout = 200"));
    assert_true(pg_kit_run("SELECT waits.item_put('freeze', 'list', NULL, -1)"));
    for (int i = 0; i < 2; i++) {
        free(items[i].answer);
    }
    pg_conn_close(other);
    group.store->ops->close(group.store);
}

/* ---- a server that permits few connections ---- */

enum { TAKERS = 8 };

struct taker {
    struct belay_store *store;
    char key[16];
    enum belay_code code;
};

static void *take_in_thread(void *context)
{
    struct taker *taker = context;
    struct belay_record values = {
        .lock_id = (char *)"b", .owner = (char *)"o", .owner_name = (char *)"n", .ttl_ms = 60000
    };
    struct belay_write write = {
        .key = taker->key, .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER, .values = &values
    };
    struct belay_batch batch = { .writes = &write, .n_writes = 1 };
    struct belay_commit out = { 0 };

    taker->code = taker->store->ops->commit(taker->store, &batch, &out, NULL);
    belay_commit_release(&out);
    return NULL;
}

/* Those that get none wait for one that another thread has, and do not fail. */
static void threads_share_the_connections_that_the_server_permits(void **state)
{
    struct taker takers[TAKERS];
    pthread_t threads[TAKERS];
    struct pg_conn *other = NULL;
    struct belay_store *store;
    char url[200];

    (void)state;
    assert_true(pg_kit_run("CREATE ROLE few LOGIN CONNECTION LIMIT 2; GRANT USAGE ON SCHEMA waits TO few; "
                           "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA waits TO few; DELETE FROM waits.locks"));
    (void)snprintf(url, sizeof url, "%s&user=few", kit.url);
    store = pg_kit_open(url, NULL);
    assert_int_equal(pg_connect(kit.database, INT64_MAX, &other, NULL), BELAY_OK);
    assert_int_equal(pg_conn_run(other, "BEGIN; LOCK TABLE waits.locks IN EXCLUSIVE MODE", NULL, NULL),
                     BELAY_OK);
    for (int i = 0; i < TAKERS; i++) {
        takers[i] = (struct taker){ .store = store };
        (void)snprintf(takers[i].key, sizeof takers[i].key, "few-%d", i);
        assert_int_equal(pthread_create(&threads[i], NULL, take_in_thread, &takers[i]), 0);
    }
    while (pg_kit_number(
               "SELECT count(*) FROM pg_stat_activity WHERE usename = 'few' AND wait_event_type = 'Lock'") <
           2) {
    }
    await_blocked(); /* the others have asked for a connection by now */
    assert_int_equal(pg_conn_run(other, "COMMIT", NULL, NULL), BELAY_OK);
    for (int i = 0; i < TAKERS; i++) {
        (void)pthread_join(threads[i], NULL);
        assert_int_equal(takers[i].code, BELAY_OK);
    }
    store->ops->close(store);
    pg_conn_close(other);
    assert_true(pg_kit_run("DROP OWNED BY few; DROP ROLE few"));
}

/* ---- a deadline that passes while a call waits for its row ---- */

enum { SOON_MS = 100, TRIES = 20 };

/* What makes the row as it must be, and the call: its deadline is between both parts. */
static const struct late_call {
    const char *before, *head, *tail;
} late_calls[] = {
    { "UPDATE waits.locks SET held = false, tickets = NULL", "SELECT waits.acquire('k', ",
      ", 'b', '', 'o', 'n', NULL, false, 0, 0, 60000, false, false, false, NULL)" },
    { "UPDATE waits.locks SET held = false, tickets = NULL", "SELECT waits.change_many(",
      ", false, false, ARRAY[ROW('k', 'b', true, true, '', 'o', 'n', NULL, 0, "
      "false, 60000, 0, 0, false, false, 'lock.acquired', 0, NULL, NULL, -1)::waits.one_change])" },
    { "UPDATE waits.locks SET held = false, tickets = NULL", "SELECT waits.commit(jsonb_build_object('d', ",
      ", 'e', '[]'::jsonb, 'w', "
      "'[{\"k\": \"k\", \"c\": 2, \"s\": 1, \"v\": {\"q\": 0, \"c\": 0}}]'::jsonb))" },
    { "UPDATE waits.locks SET held = false", "SELECT waits.claim('k', ",
      ", 'w', '', 'o', 'n', NULL, false, 0, 0, 60000, false, false, 0::smallint, "
      "1, NULL)" },
    { "SELECT", "SELECT waits.queue('k', ",
      ", '{\"i\": \"x\", \"a\": \"\", \"k\": \"k\", \"o\": \"\", \"n\": "
      "\"\", \"m\": 0, "
      "\"j\": false, \"l\": 60000}', false, NULL, NULL, NULL, NULL)" },
    { "SELECT", "SELECT waits.change('k', ",
      ", 'a', 6, 60000, 0::smallint, 'lock.renewed', NULL, NULL, -1, 'c', 'h')" },
    { "SELECT", "SELECT waits.change('k', ",
      ", 'a', 5, 1, 0::smallint, 'lock.released', NULL, NULL, -2, 'c', 'h')" },
};

struct sql_call {
    struct pg_conn *conn;
    const char *sql;
    atomic_bool is_done;
};

static void *call_in_thread(void *context)
{
    struct sql_call *call = context;

    (void)pg_conn_run(call->conn, call->sql, NULL, NULL); /* an error, or that it is undecided */
    atomic_store(&call->is_done, true);
    return NULL;
}

/* Whether the call changes the row, which another session has locked for so long, and leaves as it was. */
static bool changes_after_a_wait(const struct late_call *late, const char *deadline, long wait_ms)
{
    const struct timespec pause = { 0, wait_ms * 1000000L };
    struct sql_call call = { 0 };
    struct pg_conn *other = NULL;
    char sql[600];
    pthread_t thread;
    int64_t before;

    assert_true(pg_kit_run(late->before));
    before = pg_kit_number("SELECT revision FROM waits.locks");
    (void)snprintf(sql, sizeof sql, "%s%s%s", late->head, deadline, late->tail);
    call.sql = sql;
    assert_int_equal(pg_connect(kit.database, INT64_MAX, &call.conn, NULL), BELAY_OK);
    assert_int_equal(pg_connect(kit.database, INT64_MAX, &other, NULL), BELAY_OK);
    assert_int_equal(pg_conn_run(other, "BEGIN; SELECT FROM waits.locks FOR UPDATE", NULL, NULL), BELAY_OK);
    assert_int_equal(pthread_create(&thread, NULL, call_in_thread, &call), 0);
    while (!atomic_load(&call.is_done) &&
           pg_kit_number("SELECT count(*) FROM pg_locks WHERE NOT granted") == 0) {
    }
    (void)nanosleep(&pause, NULL);
    assert_int_equal(pg_conn_run(other, "COMMIT", NULL, NULL), BELAY_OK);
    (void)pthread_join(thread, NULL);
    pg_conn_close(call.conn);
    pg_conn_close(other);
    return pg_kit_number("SELECT revision FROM waits.locks") != before;
}

static void make_held(struct belay_store *store)
{
    assert_true(pg_kit_run("DELETE FROM waits.locks; DELETE FROM waits.waiting"));
    pg_kit_take(store, "k", "a", 60000);
    pg_kit_queue(store, "k", "w", 60000);
}

/* One try is enough, unless the machine is busy: some calls change nothing if they had to wait for 0.1 s or more. */
static bool changes_in_time(struct belay_store *store, const struct late_call *late)
{
    bool changes = false;

    for (int i = 0; i < TRIES && !changes; i++) {
        make_held(store);
        changes = changes_after_a_wait(late, "9223372036854775807", 0);
    }
    return changes;
}

/* L5: PostgreSQL looks at the condition of an UPDATE again only if the row was changed while it waited. */
static void nothing_is_changed_after_a_deadline_that_passes_while_a_call_waits(void **state)
{
    struct belay_store *store = pg_kit_open(kit.url, NULL);
    char soon[64];

    (void)state;
    (void)snprintf(soon, sizeof soon, "waits.clock_ms() + %d", (int)SOON_MS);
    assert_true(pg_kit_run("ALTER FUNCTION waits.change_many SET lock_timeout = 60000"));
    for (size_t i = 0; i < sizeof late_calls / sizeof late_calls[0]; i++) {
        make_held(store);
        if (changes_after_a_wait(&late_calls[i], soon, SOON_MS + 10)) {
            fail_msg("late: %s", late_calls[i].head);
        }
        if (!changes_in_time(store, &late_calls[i])) {
            fail_msg("in time: %s", late_calls[i].head);
        }
    }
    assert_true(pg_kit_run("ALTER FUNCTION waits.change_many SET lock_timeout = 200"));
    store->ops->close(store);
}

/* The same of the row of a place far back in the queue, which a renewal changes alone. */
static bool renews_after_a_wait(const struct belay_store *store, const char *deadline, long wait_ms)
{
    static const char expires[] = "SELECT expires_ms FROM waits.waiting";
    const struct timespec pause = { 0, wait_ms * 1000000L };
    struct sql_call call = { 0 };
    struct pg_conn *other = NULL;
    int64_t before = pg_kit_number(expires);
    char sql[300];
    pthread_t thread;

    (void)snprintf(sql, sizeof sql,
                   "SELECT waits.queue('k', %s, '{\"i\": \"w-8\", \"a\": \"\", \"k\": \"k\", \"p\": \"%s\", "
                   "\"l\": 90000}', false, NULL, NULL, NULL, NULL)",
                   deadline, ((const struct pg_store *)store)->here);
    call.sql = sql;
    assert_int_equal(pg_connect(kit.database, INT64_MAX, &call.conn, NULL), BELAY_OK);
    assert_int_equal(pg_connect(kit.database, INT64_MAX, &other, NULL), BELAY_OK);
    assert_int_equal(pg_conn_run(other, "BEGIN; SELECT FROM waits.waiting FOR UPDATE", NULL, NULL), BELAY_OK);
    assert_int_equal(pthread_create(&thread, NULL, call_in_thread, &call), 0);
    await_blocked();
    (void)nanosleep(&pause, NULL);
    assert_int_equal(pg_conn_run(other, "COMMIT", NULL, NULL), BELAY_OK);
    (void)pthread_join(thread, NULL);
    pg_conn_close(call.conn);
    pg_conn_close(other);
    return pg_kit_number(expires) != before;
}

static void no_place_far_back_is_renewed_after_its_deadline(void **state)
{
    struct belay_store *store = pg_kit_open(kit.url, NULL);
    char soon[64];

    (void)state;
    assert_true(pg_kit_run("DELETE FROM waits.locks; DELETE FROM waits.waiting"));
    pg_kit_take(store, "k", "a", 60000);
    for (int i = 0; i < 9; i++) { /* one more than the lock's row has room for */
        char id[16];

        (void)snprintf(id, sizeof id, "w-%d", i);
        pg_kit_queue(store, "k", id, 60000);
    }
    (void)snprintf(soon, sizeof soon, "waits.clock_ms() + %d", (int)SOON_MS);
    assert_false(renews_after_a_wait(store, soon, SOON_MS + 10));
    assert_true(renews_after_a_wait(store, "9223372036854775807", 0));
    assert_true(pg_kit_run("DELETE FROM waits.locks; DELETE FROM waits.waiting"));
    store->ops->close(store);
}

/* ---- how long a call waits for a row ---- */

/*
 * Clients give up after 10 s, and their sessions wait on: without an end of its own, a call that is repeated would use
 * up max_connections. begin_leases_again() notes here for how long it would wait for a row.
 */
static void no_call_waits_for_a_row_for_longer_than_its_client(void **state)
{
    (void)state;
    assert_true(
        pg_kit_run("CREATE TABLE public.waits (how_long text);"
                   "ALTER FUNCTION waits.begin_leases_again RENAME TO begin_leases_again_not;"
                   "CREATE FUNCTION waits.begin_leases_again(bigint, bigint) RETURNS void LANGUAGE sql AS "
                   "$$ INSERT INTO public.waits VALUES (current_setting('lock_timeout')) $$"));
    assert_true(pg_kit_run("SELECT waits.clock_jumped(waits.clock_ms())"));
    assert_true(pg_kit_run("UPDATE waits.meta SET server_start = server_start - interval '1 s';"
                           "SELECT waits.commit('{\"d\": 9223372036854775807, \"w\": [], \"e\": []}')"));
    /* The clock was set back by an hour, which this client does not know yet. */
    assert_true(pg_kit_run("SELECT waits.commit(jsonb_build_object('d', waits.clock_ms() + 3600000, "
                           "'e', '[]'::jsonb, 'w', '[{\"k\": \"k\", \"c\": 0, \"s\": 0, "
                           "\"pt\": {\"i\": \"a\", \"l\": 1}}]'::jsonb));"
                           "INSERT INTO public.waits VALUES (current_setting('lock_timeout'))"));
    assert_int_equal(pg_kit_number("SELECT count(*) FROM public.waits"), 3);
    assert_int_equal(pg_kit_number("SELECT count(*) FROM public.waits WHERE how_long = '10s'"), 3);
    assert_true(pg_kit_run("DROP TABLE public.waits; DROP FUNCTION waits.begin_leases_again;"
                           "ALTER FUNCTION waits.begin_leases_again_not RENAME TO begin_leases_again;"
                           "DELETE FROM waits.locks"));
}

/* ---- events that a standby may lack ---- */

static bool count_event(void *context, const struct belay_event *event)
{
    (void)event;
    ++*(int *)context;
    return true;
}

/* L9: PostgreSQL reports a wait for its standby that was cancelled as a warning. */
static void events_that_a_standby_may_lack_are_not_shown(void **state)
{
    struct belay_store *store = pg_kit_open(kit.url, NULL);
    int n = 0;

    (void)state;
    assert_true(
        pg_kit_run("INSERT INTO waits.events VALUES (1, 0, 0, 'x', 'k', 'i', 0, 'o', 'n', NULL, NULL, -1)"));
    assert_true(pg_kit_run("ALTER FUNCTION waits.settled(bigint) RENAME TO settled_before"));
    assert_true(
        pg_kit_run("CREATE FUNCTION waits.settled(event_base bigint) RETURNS bigint LANGUAGE plpgsql AS "
                   "$$ BEGIN RAISE WARNING 'canceling'; RETURN waits.settled_before(event_base); END $$"));
    assert_int_equal(store->ops->events(store, &(struct belay_events_query){ 0 }, count_event, &n, NULL),
                     BELAY_UNREACHABLE);
    assert_int_equal(n, 0);
    assert_true(pg_kit_run("DROP FUNCTION waits.settled(bigint)"));
    assert_true(pg_kit_run("ALTER FUNCTION waits.settled_before(bigint) RENAME TO settled"));
    store->ops->close(store);
}

/* ---- a group ---- */

static void a_group_waits_no_longer_than_any_of_its_changes(void **state)
{
    struct belay_store *store = pg_kit_open(kit.url, NULL);
    struct pg_store *pg = pg_of(store);
    struct belay_record values = { .lock_id = (char *)"i", .owner = (char *)"o", .owner_name = (char *)"n" };
    struct belay_write write = {
        .key = "k", .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER, .values = &values
    };
    struct belay_event event = { .type = "lock.acquired", .key = "k", .lock_id = "i" };
    struct belay_batch batch = { .writes = &write, .n_writes = 1, .events = &event, .n_events = 1 };
    struct pg_change items[2] = { { .batch = &batch }, { .batch = &batch } };
    struct pg_change *sorted[2] = { &items[0], &items[1] };
    struct pg_change_many many;

    (void)state;
    assert_int_equal(pg_reach(pg, 60000, NULL), BELAY_OK);
    items[0].deadline_ms = pg_deadline_ms(pg, 9000);
    items[1].deadline_ms = pg_deadline_ms(pg, 6000);
    assert_true(pg_write_change_many(pg, sorted, 2, &many));
    assert_in_range(many.call.timeout_ms, 1, 6000);
    pg_change_many_release(&many);
    store->ops->close(store);
}

/* ---- one call ---- */

/* Nothing was sent but the statement itself: the outcome is known. */
static void a_statement_that_cannot_be_prepared_is_sent_elsewhere(void **state)
{
    struct belay_store *store = pg_kit_open(kit.url, NULL);

    (void)state;
    pg_kit_take(store, "prepared-1", "a", 60000);
    assert_non_null(pg_of(store)->idle);
    assert_int_equal(shutdown(PQsocket(pg_of(store)->idle->pg), SHUT_WR), 0);
    pg_kit_take(store, "prepared-2", "b", 60000);
    store->ops->close(store);
}

/* A command makes a few commits, and there may be nothing but commands. */
static void old_events_are_deleted_by_clients_that_commit_seldom(void **state)
{
    uint64_t begun = 0;

    (void)state;
    assert_true(pg_kit_run(
        "INSERT INTO waits.events VALUES (2, 0, 0, 'x', 'old', 'i', 0, 'o', 'n', NULL, NULL, -1)"));
    for (int i = 0; i < 4; i++) {
        struct belay_store *store = NULL;
        char *whole = NULL;
        char key[32];

        assert_int_equal(postgresql_store_open(kit.url, NULL, &store, &whole, NULL),
                         BELAY_OK); /* not the kit's */
        free(whole);
        begun += pg_of(store)->commits;
        pg_of(store)->commits = i == 3 ? PG_FORGET_EVERY - 1 : 0;
        (void)snprintf(key, sizeof key, "seldom-%d", i);
        pg_kit_take(store, key, "a", 60000);
        assert_int_equal(pg_kit_number("SELECT count(*) FROM waits.events WHERE key = 'old'"), i < 3);
        store->ops->close(store);
    }
    assert_int_not_equal(begun, 0); /* each begins somewhere between two deletions */
}

/* ---- closing ---- */

/* ---- the connection for wake-ups ---- */

/* The store, with listen= and another database of the same server. */
static void listen_in(const char *database, char *out_url, size_t size)
{
    const char *name = strrchr(kit.database, '/') + 1;

    (void)snprintf(out_url, size, "%s&listen=%.*s%s", kit.url, (int)(name - kit.database), kit.database,
                   database);
}

enum { CLOSE_MS = 400 /* less than the pause before a listener connects again */ };

/* The fastest of some, since the machine may be busy: three, and up to n until one is fast enough. */
static int64_t close_fastest_ms(const char *url, int n)
{
    int64_t fastest_ms = INT64_MAX;

    for (int i = 0; i < n && (i < 3 || fastest_ms >= CLOSE_MS); i++) {
        struct belay_store *store = pg_kit_open(url, NULL);
        int64_t began_ms;

        (void)store->ops->listen(store, "x");
        began_ms = clock_boot_ms();
        store->ops->close(store);
        fastest_ms = clock_boot_ms() - began_ms < fastest_ms ? clock_boot_ms() - began_ms : fastest_ms;
    }
    return fastest_ms;
}

/* Each command ends with it, also while the listener waits for a notification that does not come. */
static void a_store_that_listens_is_closed_at_once(void **state)
{
    char url[320];

    (void)state;
    assert_true(close_fastest_ms(kit.url, TRIES) < CLOSE_MS);
    listen_in("template1", url, sizeof url);
    assert_true(close_fastest_ms(url, TRIES) < CLOSE_MS);
}

static void count_warning(void *context, const char *text)
{
    assert_non_null(strstr(text, "arrives through listen="));
    (void)atomic_fetch_add((atomic_int *)context, 1);
}

/* The store, once its listener has found out whether it hears something. */
static struct belay_store *open_listening(const char *database, bool hears, atomic_int *n_warnings)
{
    const struct timespec pause = { 0, 1000000 };
    const struct postgresql_options options = { .on_warning = count_warning,
                                                .warn_context = n_warnings,
                                                .timeout_factor = 6 };
    int64_t until_ms = clock_boot_ms() + 60000;
    struct belay_store *store;
    char url[320];

    listen_in(database, url, sizeof url);
    store = pg_kit_open(url, &options);
    (void)store->ops->listen(store, "x");
    while (!atomic_load(hears ? &pg_of(store)->wake.is_listening : &pg_of(store)->wake.is_pooled)) {
        assert_true(clock_boot_ms() < until_ms);
        (void)nanosleep(&pause, NULL);
    }
    return store;
}

/* L4: a waiter that believes in a connection which hears nothing would sleep until its own timeout. */
static void waiters_poll_if_listen_leads_to_another_database(void **state)
{
    atomic_int n_warnings = 0;
    struct belay_store *store = open_listening("template1", false, &n_warnings);
    int64_t began_ms = clock_boot_ms();

    (void)state;
    assert_int_equal(store->ops->capabilities(store).poll_ms, PG_POLL_UNWOKEN_MS);
    assert_int_equal(atomic_load(&n_warnings), 1);
    store->ops->wait(store, "x", store->ops->listen(store, "x"), 60000, NULL);
    assert_true(clock_boot_ms() - began_ms < 30000);
    store->ops->close(store);
}

static void waiters_are_woken_if_listen_leads_to_the_database(void **state)
{
    atomic_int n_warnings = 0;
    struct belay_store *store = open_listening("postgres", true, &n_warnings);
    uint32_t listened = store->ops->listen(store, "x");
    int64_t began_ms = clock_boot_ms();

    (void)state;
    assert_int_equal(store->ops->capabilities(store).poll_ms, PG_POLL_MS);
    assert_true(pg_kit_run("NOTIFY waits_wake, 'x'"));
    store->ops->wait(store, "x", listened, 60000, NULL);
    assert_true(clock_boot_ms() - began_ms < 30000);
    assert_int_equal(atomic_load(&n_warnings), 0);
    store->ops->close(store);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_grant_follows_a_freeze_that_was_answered),
        cmocka_unit_test(no_grant_of_a_group_follows_a_freeze_that_was_answered),
        cmocka_unit_test(threads_share_the_connections_that_the_server_permits),
        cmocka_unit_test(nothing_is_changed_after_a_deadline_that_passes_while_a_call_waits),
        cmocka_unit_test(no_place_far_back_is_renewed_after_its_deadline),
        cmocka_unit_test(no_call_waits_for_a_row_for_longer_than_its_client),
        cmocka_unit_test(events_that_a_standby_may_lack_are_not_shown),
        cmocka_unit_test(a_group_waits_no_longer_than_any_of_its_changes),
        cmocka_unit_test(a_statement_that_cannot_be_prepared_is_sent_elsewhere),
        cmocka_unit_test(old_events_are_deleted_by_clients_that_commit_seldom),
        cmocka_unit_test(a_store_that_listens_is_closed_at_once),
        cmocka_unit_test(waiters_poll_if_listen_leads_to_another_database),
        cmocka_unit_test(waiters_are_woken_if_listen_leads_to_the_database),
    };
    int failed = pg_kit_start("waits") ? cmocka_run_group_tests(tests, NULL, NULL) : 1;

    pg_kit_stop();
    return failed;
}
