/* Changes of several threads in one transaction (src/store/postgresql/postgresql_group.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "conformance/postgresql_kit.h"

enum { THREADS = 12, TURNS = 25, PATIENCE_S = 120 };
#define ODD "a \"quoted\" \\ text, (with) {all}\n of it "

/* ---- what happens when a mutex is taken and released; --wrap of the linker ---- */

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);

static atomic_int pause_max_us;               /* before and after each: a random time below this */
static _Thread_local void (*at_unlock)(void); /* of this thread: while it still has the mutex */

static void pause_at_random(void)
{
    static _Thread_local unsigned seed;
    int most_us = atomic_load(&pause_max_us);

    if (most_us > 0) {
        seed = seed != 0 ? seed : (unsigned)clock_boot_us();
        (void)usleep((useconds_t)(rand_r(&seed) % most_us));
    }
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    pause_at_random();
    return __real_pthread_mutex_lock(mutex);
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    int result;

    if (at_unlock != NULL) {
        at_unlock();
    }
    result = __real_pthread_mutex_unlock(mutex);
    pause_at_random();
    return result;
}

/* ---- threads that change locks ---- */

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

static void open_one(struct worker *worker, const char *url, int run, int number)
{
    worker->run = run;
    worker->number = number;
    worker->odd_meta = number % 3 == 0;
    worker->store = pg_kit_open(url, NULL);
    assert_non_null(worker->store);
}

static void open_stores(struct worker workers[THREADS], int run)
{
    for (int i = 0; i < THREADS; i++) {
        open_one(&workers[i], kit.url, run, i);
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

static void run_workers(struct worker workers[THREADS])
{
    for (int i = 0; i < THREADS; i++) {
        start(&workers[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        join(&workers[i]);
    }
    close_stores(workers);
}

/* How often all events were read, by connections that have ended. */
static int64_t whole_reads(void)
{
    int64_t until = (int64_t)time(NULL) + PATIENCE_S;

    while (pg_kit_number("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'") > 1) {
        assert_true((int64_t)time(NULL) < until);
        (void)usleep(1000);
    }
    return pg_kit_number(
        "SELECT seq_scan FROM pg_stat_user_tables WHERE schemaname = 'groups' AND relname = 'events'");
}

/* L1, L2, L9: each has a store of its own, as a client has. */
static void stores_of_one_process_share_transactions(void **state)
{
    struct worker workers[THREADS] = { 0 };
    int64_t before;

    (void)state;
    assert_true(
        pg_kit_run("ANALYZE groups.events")); /* as autovacuum may: the planner knows that there are none */
    before = whole_reads();
    open_stores(workers, 1);
    run_workers(workers);
    assert_int_equal(whole_reads(), before); /* though the plans were made when there were none */
    assert_int_equal(pg_kit_number("SELECT count(*) FROM groups.events"), THREADS * TURNS * 3);
    assert_int_equal(pg_kit_number("SELECT count(*) FROM groups.events WHERE used_id = lock_id"),
                     THREADS * TURNS);
    assert_int_equal(pg_kit_number("SELECT count(*) FROM groups.events WHERE metadata IS NOT NULL"),
                     THREADS / 3 * TURNS * 3);
    assert_int_equal(
        pg_kit_number(
            "SELECT count(DISTINCT (type, level, token, locked_by, locked_by_name, duration_ms >= 0)) "
            "FROM groups.events WHERE key = 'key-1' AND locked_by <> ''"),
        TURNS * 3);
    assert_true(
        pg_kit_number(
            "SELECT max(n) FROM (SELECT count(DISTINCT key) n FROM groups.events GROUP BY id >> 14) x") > 1);
}

/* A change that is sent alone waits for its row for as long as the others take: on a busy machine that is longer. */
#define WAIT_FOR_ROWS(ms)                                                                                    \
    "ALTER FUNCTION groups.acquire SET lock_timeout = " ms ";"                                               \
    "ALTER FUNCTION groups.change SET lock_timeout = " ms ";"

/* Its change stays out until the row is free; the others neither wait for it nor for more of them to come. */
static void a_row_that_is_locked_holds_up_no_other_change(void **state)
{
    struct worker workers[THREADS] = { 0 };

    (void)state;
    open_stores(workers, 2);
    assert_true(pg_kit_run(WAIT_FOR_ROWS("60000") "DELETE FROM groups.events; BEGIN"));
    (void)pg_kit_number("SELECT 1 FROM groups.locks WHERE key = 'key-0' FOR UPDATE");
    start(&workers[0]);
    while (pg_kit_number("SELECT count(*) FROM pg_locks WHERE NOT granted") == 0) {
        (void)usleep(1000);
    }
    for (int i = 1; i < THREADS; i++) {
        start(&workers[i]);
    }
    for (int i = 1; i < THREADS; i++) {
        join(&workers[i]);
    }
    assert_int_equal(pg_kit_number("SELECT count(*) FROM groups.events"), (THREADS - 1) * TURNS * 3);
    assert_true(pg_kit_run("COMMIT"));
    join(&workers[0]);
    close_stores(workers);
    assert_true(pg_kit_run(WAIT_FOR_ROWS("10000")));
}

/*
 * A group that comes back makes the first of the queue its leader, and that one's time to gather may have ended. The
 * server takes about that time, and a thread gets and releases a mutex late: between what it saw before, or what it does
 * after, another one changes the queue.
 */
static void one_that_stops_waiting_as_it_becomes_the_leader_is_sent_once(void **state)
{
    struct worker workers[THREADS] = { 0 };

    (void)state;
    assert_true(pg_kit_run(
        "DELETE FROM groups.events; CREATE FUNCTION groups.linger() RETURNS trigger LANGUAGE plpgsql "
        "AS 'BEGIN PERFORM pg_sleep(0.002 + random() * 0.004); RETURN NULL; END'; "
        "CREATE TRIGGER linger AFTER INSERT ON groups.events EXECUTE FUNCTION groups.linger()"));
    atomic_store(&pause_max_us, 2000);
    open_stores(workers, 3);
    run_workers(workers);
    atomic_store(&pause_max_us, 0);
    assert_true(pg_kit_run("DROP TRIGGER linger ON groups.events"));
    assert_int_equal(pg_kit_number("SELECT count(*) FROM groups.events"), THREADS * TURNS * 3);
}

/*
 * Every second store connects while a variable of libpq has another value, which ends in user_0 or user_1: `seen` is
 * that in the session. No change is made in a session of the others, as none is if it is sent alone.
 */
static void share_by_variable(int run, const char *name, const char *value, const char *seen)
{
    struct worker workers[THREADS] = { 0 };
    char url[sizeof kit.url], sql[512];

    (void)snprintf(url, sizeof url, "postgresql://127.0.0.1:%s/postgres?schema=groups",
                   PQport(kit.admin->pg));
    (void)snprintf(sql, sizeof sql,
                   "DELETE FROM groups.events; CREATE TABLE groups.sessions (key text, seen text); "
                   "CREATE OR REPLACE FUNCTION groups.note_session() RETURNS trigger LANGUAGE plpgsql AS "
                   "$$ BEGIN INSERT INTO groups.sessions VALUES (NEW.key, %s); RETURN NULL; END $$; "
                   "CREATE TRIGGER note_session AFTER INSERT ON groups.events FOR EACH ROW "
                   "EXECUTE FUNCTION groups.note_session()",
                   seen);
    assert_true(pg_kit_run(sql));
    for (int i = 0; i < THREADS; i++) {
        const char *keys[] = { "any" };
        struct belay_record record = { 0 };
        char text[64];
        int64_t now_ms;

        (void)snprintf(text, sizeof text, "%s%d", value, i % 2);
        (void)setenv(name, text, 1);
        open_one(&workers[i], url, run, i);
        assert_int_equal(workers[i].store->ops->get(workers[i].store, keys, 1, &record, &now_ms, NULL),
                         BELAY_OK);
        belay_record_release(&record);
    }
    (void)unsetenv(name);
    run_workers(workers);
    assert_true(pg_kit_run("DROP TRIGGER note_session ON groups.events"));
    assert_int_equal(pg_kit_number("SELECT count(*) FROM groups.sessions"), THREADS * TURNS * 3);
    assert_int_equal(pg_kit_number("SELECT count(*) FROM groups.sessions "
                                   "WHERE seen <> 'user_' || substr(key, 5)::integer % 2"),
                     0);
    assert_true(
        pg_kit_number(
            "SELECT max(n) FROM (SELECT count(DISTINCT key) n FROM groups.events GROUP BY id >> 14) x") > 1);
    assert_true(pg_kit_run("DROP TABLE groups.sessions"));
}

static void stores_of_different_users_share_no_transaction(void **state)
{
    (void)state;
    assert_true(pg_kit_run("CREATE ROLE user_0 SUPERUSER LOGIN; CREATE ROLE user_1 SUPERUSER LOGIN"));
    share_by_variable(6, "PGUSER", "user_", "session_user");
}

static void stores_with_different_options_share_no_transaction(void **state)
{
    (void)state;
    (void)setenv("PGUSER", "postgres", 1);
    share_by_variable(7, "PGOPTIONS", "-c test.session=user_", "current_setting('test.session')");
    (void)unsetenv("PGUSER");
}

/* ---- when a group goes out ---- */

static void two_groups_share_all_changes_that_come_at_the_same_time(void **state)
{
    (void)state;
    for (int crowd = 4; crowd < 2 * PG_GROUP_MAX; crowd++) {
        assert_true(pg_group_may_go(1, 0, crowd)); /* none is out: nothing to wait for */
        assert_false(pg_group_may_go(crowd / 2 - 1, 1, crowd));
        assert_true(pg_group_may_go(crowd / 2, 1, crowd));
        assert_false(pg_group_may_go(crowd, PG_GROUPS, crowd));
    }
    assert_true(pg_group_may_go(1, 1, 2));               /* two threads never wait for each other */
    assert_true(pg_group_may_go(PG_GROUP_MAX, 1, 1000)); /* it is full */
}

/* ---- fork() ---- */

static int n_forks;
static struct pg_group *parents; /* NULL: not yet */

/* A child that opens a store of its own, as docs/library.md says; it has only this thread, and the mutex stays locked. */
static void fork_a_client(void)
{
    struct worker child = { .run = 4, .number = THREADS + n_forks };
    int status = -1;
    pid_t pid;

    at_unlock = NULL;
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)alarm(PATIENCE_S); /* it would wait for the mutex for ever */
        child.store = pg_kit_open(kit.url, NULL);
        EXPECT(&child, child.store != NULL);
        if (child.store != NULL) {
            take_a_turn(&child, 0);
            child.store->ops->close(child.store);
        }
        pg_group_leave(parents); /* which concerns the parent only */
        _exit(child.failed == NULL ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    n_forks++;
    at_unlock = fork_a_client;
}

/* At every moment at which this process has a mutex, as it opens, uses and closes a client. */
static void a_child_of_a_process_with_clients_has_groups_of_its_own(void **state)
{
    struct worker worker = { .run = 5, .number = 0 };
    int session;

    (void)state;
    worker.store = pg_kit_open(kit.url, NULL);
    assert_non_null(worker.store);
    take_a_turn(&worker, 0);
    session = PQbackendPID(pg_of(worker.store)->idle->pg);
    parents = pg_of(worker.store)->group;
    at_unlock = fork_a_client;
    take_a_turn(&worker, 1);
    assert_int_equal(PQbackendPID(pg_of(worker.store)->idle->pg), session); /* no child has ended it */
    assert_int_equal(pg_of(worker.store)->n_open, 1);
    worker.store->ops->close(worker.store);
    worker.store = pg_kit_open(kit.url, NULL);
    assert_non_null(worker.store);
    parents = pg_of(worker.store)->group;
    take_a_turn(&worker, 2);
    worker.store->ops->close(worker.store);
    at_unlock = NULL;
    assert_string_equal(worker.failed == NULL ? "" : worker.failed, "");
    assert_true(n_forks > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stores_of_one_process_share_transactions),
        cmocka_unit_test(a_row_that_is_locked_holds_up_no_other_change), /* the first one made the rows */
        cmocka_unit_test(one_that_stops_waiting_as_it_becomes_the_leader_is_sent_once),
        cmocka_unit_test(stores_of_different_users_share_no_transaction),
        cmocka_unit_test(stores_with_different_options_share_no_transaction),
        cmocka_unit_test(two_groups_share_all_changes_that_come_at_the_same_time),
        cmocka_unit_test(a_child_of_a_process_with_clients_has_groups_of_its_own),
    };
    int failed =
        pg_kit_start("groups") ? cmocka_run_group_tests_name("postgresql groups", tests, NULL, NULL) : 1;

    pg_kit_stop();
    return failed;
}
