/* Changes of several threads in one transaction (src/store/postgresql/postgresql_group.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "store/postgresql/postgresql_internal.h"
#include "support/server.h"

enum { THREADS = 12, TURNS = 25, PATIENCE_S = 60 };
#define ODD "a \"quoted\" \\ text, (with) {all}\n of it "

static struct server server;
static struct pg_conn *admin;
static char url[160];

static int64_t query(const char *sql)
{
    PGresult *result = NULL;
    int64_t number;

    assert_int_equal(pg_conn_run(admin, sql, &result, NULL), BELAY_OK);
    number = pg_number(result, 0, 0);
    PQclear(result);
    return number;
}

struct worker {
    pthread_t thread;
    struct belay_store *store;
    int run; /* no two have an id in common */
    int number;
    bool odd_meta;
    uint64_t last_token;
    const char *failed; /* what was not as it should be; NULL: nothing */
};

#define EXPECT(worker, condition)                                                                            \
    do {                                                                                                     \
        if (!(condition) && (worker)->failed == NULL) {                                                      \
            (worker)->failed = #condition;                                                                   \
        }                                                                                                    \
    } while (0)

static void check_same(struct worker *worker, const struct belay_record *a, const struct belay_record *b)
{
    EXPECT(worker, a->revision == b->revision && a->token == b->token && a->held == b->held);
    EXPECT(worker, strcmp(a->key, b->key) == 0 && strcmp(a->lock_id, b->lock_id) == 0);
    EXPECT(worker, strcmp(a->owner, b->owner) == 0 && strcmp(a->owner_name, b->owner_name) == 0);
    EXPECT(worker, strcmp(a->acquired_by, b->acquired_by) == 0 && a->outcome == b->outcome);
    EXPECT(worker, a->ttl_ms == b->ttl_ms && a->expires_ms == b->expires_ms && a->durable == b->durable);
    EXPECT(worker, a->heartbeat_ms == b->heartbeat_ms && a->stale_after_ms == b->stale_after_ms);
    EXPECT(worker, a->last_heartbeat_ms == b->last_heartbeat_ms && a->freed_ms == b->freed_ms);
    EXPECT(worker,
           a->locked_at_unix_ms == b->locked_at_unix_ms && a->mode == b->mode && a->slots == b->slots);
    EXPECT(worker, a->n_metadata == b->n_metadata && a->n_released_ids == b->n_released_ids);
    for (size_t i = 0; i < a->n_metadata && worker->failed == NULL; i++) {
        EXPECT(worker, strcmp(a->metadata[i].value, b->metadata[i].value) == 0);
    }
    for (size_t i = 0; i < a->n_released_ids && worker->failed == NULL; i++) {
        EXPECT(worker, strcmp(a->released_ids[i], b->released_ids[i]) == 0);
    }
}

/* Commit one write and its event; what it says of the record must be what is read. */
static void commit(struct worker *worker, const struct belay_write *write, const struct belay_event *event,
                   int64_t ttl_ms)
{
    struct belay_batch batch = { .writes = write, .n_writes = 1, .events = event, .n_events = 1 };
    struct belay_commit done = { 0 };
    struct belay_record read = { 0 };
    int64_t now_ms = 0;

    batch.require_unused_id =
        write->condition == BELAY_IF_FREE && worker->number % 2 == 0 ? event->lock_id : NULL;
    EXPECT(worker, worker->store->ops->commit(worker->store, &batch, &done, NULL) == BELAY_OK);
    EXPECT(worker, worker->store->ops->get(worker->store, &write->key, 1, &read, &now_ms, NULL) == BELAY_OK);
    EXPECT(worker, done.n_records == 1 && done.event_id != 0);
    if (worker->failed == NULL) {
        check_same(worker, &done.records[0], &read);
        EXPECT(worker, read.ttl_ms == ttl_ms && read.expires_ms == read.last_heartbeat_ms + ttl_ms);
        EXPECT(worker, read.held == (write->condition != BELAY_IF_HELD_BY));
        EXPECT(worker, write->condition != BELAY_IF_FREE || done.token > worker->last_token);
        worker->last_token = done.token > 0 ? done.token : worker->last_token;
    }
    belay_record_release(&read);
    belay_commit_release(&done);
}

static void take_a_turn(struct worker *worker, int turn)
{
    char key[64], id[64];
    int64_t ttl_ms = 60000 + turn;
    struct belay_meta metadata = { (char *)"note", (char *)ODD };
    struct belay_record values = { .lock_id = id, .owner = (char *)ODD, .owner_name = (char *)ODD };
    struct belay_write write = {
        .key = key, .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER, .values = &values
    };
    struct belay_event event = { .type = "lock.acquired",
                                 .key = key,
                                 .lock_id = id,
                                 .locked_by = ODD,
                                 .locked_by_name = ODD,
                                 .reason = ODD,
                                 .token = BELAY_TOKEN_OF_BATCH,
                                 .duration_ms = -1 };

    (void)snprintf(key, sizeof key, "key-%d", worker->number);
    (void)snprintf(id, sizeof id, "\"%d, \\%d, %d\"", worker->number, turn, worker->run);
    values.ttl_ms = ttl_ms;
    values.heartbeat_ms = 20000;
    values.stale_after_ms = turn;
    values.durable = turn % 2 == 0;
    if (worker->odd_meta) {
        values.metadata = &metadata;
        values.n_metadata = 1;
        event.metadata = &metadata;
        event.n_metadata = 1;
    }
    commit(worker, &write, &event, ttl_ms);
    write = (struct belay_write){
        .key = key, .condition = BELAY_IF_LIVE_BY, .lock_id = id, .set = BELAY_SET_LEASE, .values = &values
    };
    values.ttl_ms = turn % 2 == 0 ? 0 : 90000;
    ttl_ms = turn % 2 == 0 ? ttl_ms : 90000;
    event = (struct belay_event){ .type = "lock.renewed", .key = key, .lock_id = id, .duration_ms = -1 };
    commit(worker, &write, &event, ttl_ms);
    write.condition = BELAY_IF_HELD_BY;
    write.set = BELAY_SET_RELEASED;
    values.outcome = turn % 3 == 0 ? BELAY_OUTCOME_FORCED : BELAY_OUTCOME_COMPLETED;
    event.type = "lock.released";
    event.duration_ms = BELAY_DURATION_HELD;
    commit(worker, &write, &event, ttl_ms);
}

static void *work(void *context)
{
    struct worker *worker = context;

    for (int turn = 0; turn < TURNS && worker->failed == NULL; turn++) {
        take_a_turn(worker, turn);
    }
    return NULL;
}

static void open_stores(struct worker workers[THREADS], int run)
{
    static const struct postgresql_options options = { .timeout_factor = 6 };

    for (int i = 0; i < THREADS; i++) {
        char *whole = NULL;

        workers[i].run = run;
        workers[i].number = i;
        workers[i].odd_meta = i % 3 == 0;
        assert_int_equal(postgresql_store_open(url, &options, &workers[i].store, &whole, NULL), BELAY_OK);
        free(whole);
    }
}

static void start(struct worker *worker)
{
    assert_int_equal(pthread_create(&worker->thread, NULL, work, worker), 0);
}

static void join(struct worker *worker)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    assert_int_equal(pthread_timedjoin_np(worker->thread, NULL, &until), 0);
    assert_string_equal(worker->failed == NULL ? "" : worker->failed, "");
}

static void close_stores(struct worker workers[THREADS])
{
    for (int i = 0; i < THREADS; i++) {
        workers[i].store->ops->close(workers[i].store);
    }
}

/* L1, L2, L9: each has a store of its own, as a client has. */
static void stores_of_one_process_share_transactions(void **state)
{
    struct worker workers[THREADS] = { 0 };

    (void)state;
    open_stores(workers, 1);
    for (int i = 0; i < THREADS; i++) {
        start(&workers[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        join(&workers[i]);
    }
    close_stores(workers);
    assert_int_equal(query("SELECT count(*) FROM groups.events"), THREADS * TURNS * 3);
    assert_int_equal(query("SELECT count(*) FROM groups.events WHERE used_id = lock_id"), THREADS * TURNS);
    assert_int_equal(query("SELECT count(*) FROM groups.events WHERE metadata IS NOT NULL"),
                     THREADS / 3 * TURNS * 3);
    assert_int_equal(
        query("SELECT count(DISTINCT (type, level, token, locked_by, locked_by_name, duration_ms >= 0)) "
              "FROM groups.events WHERE key = 'key-1' AND locked_by <> ''"),
        TURNS * 3);
    assert_true(
        query("SELECT max(n) FROM (SELECT count(DISTINCT key) n FROM groups.events GROUP BY id >> 6) x") > 1);
}

/* Its change stays out until the row is free; the others neither wait for it nor for more of them to come. */
static void a_row_that_is_locked_holds_up_no_other_change(void **state)
{
    struct worker workers[THREADS] = { 0 };

    (void)state;
    open_stores(workers, 2);
    assert_int_equal(pg_conn_run(admin, "DELETE FROM groups.events; BEGIN", NULL, NULL), BELAY_OK);
    (void)query("SELECT 1 FROM groups.locks WHERE key = 'key-0' FOR UPDATE");
    start(&workers[0]);
    while (query("SELECT count(*) FROM pg_locks WHERE NOT granted") == 0) {
        (void)usleep(1000);
    }
    for (int i = 1; i < THREADS; i++) {
        start(&workers[i]);
    }
    for (int i = 1; i < THREADS; i++) {
        join(&workers[i]);
    }
    assert_int_equal(query("SELECT count(*) FROM groups.events"), (THREADS - 1) * TURNS * 3);
    assert_int_equal(pg_conn_run(admin, "COMMIT", NULL, NULL), BELAY_OK);
    join(&workers[0]);
    close_stores(workers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stores_of_one_process_share_transactions),
        cmocka_unit_test(a_row_that_is_locked_holds_up_no_other_change), /* the first one made the rows */
    };
    int failed = 1;

    if (server_start(&server, BELAY_SOURCE_DIR "/test/support/postgresql.py", NULL)) {
        (void)snprintf(url, sizeof url, "postgresql://postgres@127.0.0.1:%d/postgres?schema=groups",
                       server.port);
        if (postgresql_schema_create(url, NULL, NULL, NULL) == BELAY_OK) {
            *strchr(url, '?') = '\0';
            failed = pg_connect(url, INT64_MAX, &admin, NULL) != BELAY_OK;
            url[strlen(url)] = '?';
            failed = failed ? 1 : cmocka_run_group_tests_name("postgresql groups", tests, NULL, NULL);
        }
    }
    pg_conn_close(admin);
    server_stop(&server);
    return failed;
}
