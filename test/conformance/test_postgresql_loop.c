/* Commits of an event loop, without threads (src/store/postgresql/postgresql_loop.c). */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
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

enum { MANY = 40, PATIENCE_MS = 60000, UNCHECKED_MS = 14000 /* less than a check takes to come */ };

static void run(const char *sql)
{
    assert_true(pg_kit_run(sql));
}

/* Until so many statements wait for a row. */
static void await_blocked(struct belay_store *store, int64_t n)
{
    const struct timespec pause = { 0, 1000000 };
    int64_t until_ms = clock_boot_ms() + PATIENCE_MS;

    while (pg_kit_number("SELECT count(*) FROM pg_locks WHERE NOT granted") < n) {
        assert_true(clock_boot_ms() < until_ms);
        (void)store->ops->loop->flush(store);
        (void)nanosleep(&pause, NULL);
    }
}

/* ---- a commit ---- */

struct change {
    char key[32], id[32];
    struct belay_record values;
    struct belay_put_ticket ticket;
    struct belay_write write;
    struct belay_event event;
    struct belay_batch batch;
    struct belay_commit out;
    struct belay_error err;
    struct belay_pending_commit pending;
    bool is_answered;
    bool was_unfinished;
};

static void init(struct change *change, const char *key, const char *id)
{
    *change = (struct change){ .batch = { .n_writes = 1, .n_events = 1 } };
    (void)snprintf(change->key, sizeof change->key, "%s", key);
    (void)snprintf(change->id, sizeof change->id, "%s", id);
    change->values = (struct belay_record){
        .lock_id = change->id, .owner = (char *)"o", .owner_name = (char *)"n", .ttl_ms = 60000
    };
    change->batch.writes = &change->write;
    change->batch.events = &change->event;
}

static void init_acquire(struct change *change, const char *key, const char *id)
{
    init(change, key, id);
    change->write = (struct belay_write){
        .key = change->key, .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER, .values = &change->values
    };
    change->event = (struct belay_event){ .type = "lock.acquired",
                                          .key = change->key,
                                          .lock_id = change->id,
                                          .locked_by = "o",
                                          .locked_by_name = "n",
                                          .token = BELAY_TOKEN_OF_BATCH,
                                          .duration_ms = -1 };
}

static void init_release(struct change *change, const char *key, const char *id)
{
    init(change, key, id);
    change->values.outcome = BELAY_OUTCOME_COMPLETED;
    change->write = (struct belay_write){ .key = change->key,
                                          .condition = BELAY_IF_HELD_BY,
                                          .lock_id = change->id,
                                          .set = BELAY_SET_RELEASED,
                                          .values = &change->values };
    change->event = (struct belay_event){
        .type = "lock.released", .key = change->key, .lock_id = change->id, .duration_ms = BELAY_DURATION_HELD
    };
}

/* Put a waiter's ticket. */
static void init_ticket(struct change *change, const char *key, const char *id, int64_t timeout_ms)
{
    init(change, key, id);
    change->batch.n_events = 0;
    change->batch.timeout_ms = timeout_ms;
    change->ticket = (struct belay_put_ticket){
        .lock_id = change->id, .key = change->key, .owner = "o", .owner_name = "n", .ttl_ms = 60000
    };
    change->write = (struct belay_write){ .key = change->key,
                                          .condition = BELAY_IF_OCCUPIED,
                                          .put_ticket = &change->ticket };
}

static void begin(struct belay_store *store, struct change *change)
{
    change->is_answered = change->was_unfinished = false;
    change->pending = (struct belay_pending_commit){
        .batch = &change->batch, .out = &change->out, .err = &change->err, .context = change
    };
    assert_true(store->ops->loop->begin(store, &change->pending));
}

/* One turn of an event loop, which sleeps until there is something to do, or for so long. */
static void turn_within(struct belay_store *store, int64_t most_ms)
{
    const struct belay_loop_ops *loop = store->ops->loop;
    int64_t next_ms = loop->flush(store);
    int64_t left_ms = next_ms - clock_boot_ms();
    struct pollfd fd = { .fd = loop->fd(store), .events = POLLIN };
    struct belay_pending_commit *next;

    left_ms = left_ms < 0 ? 0 : left_ms < most_ms ? left_ms : most_ms;
    (void)poll(&fd, 1, (int)left_ms);
    for (struct belay_pending_commit *done = loop->take(store); done != NULL; done = next) {
        struct change *change = done->context;

        next = done->next;
        assert_false(change->is_answered);
        change->is_answered = true;
        change->was_unfinished = done->is_unfinished;
        if (done->is_unfinished) {
            done->code = loop->finish(store, done);
        }
    }
}

static void turn(struct belay_store *store)
{
    turn_within(store, PATIENCE_MS);
}

static enum belay_code await(struct belay_store *store, struct change *change)
{
    int64_t until_ms = clock_boot_ms() + PATIENCE_MS;

    while (!change->is_answered) {
        assert_true(clock_boot_ms() < until_ms);
        turn(store);
    }
    belay_commit_release(&change->out);
    belay_error_release(&change->err);
    return change->pending.code;
}

static enum belay_code commit(struct belay_store *store, struct change *change)
{
    begin(store, change);
    return await(store, change);
}

static struct belay_store *open_store(void)
{
    static const struct postgresql_options options = { .timeout_factor = 6 };
    struct belay_store *store = pg_kit_open(kit.url, &options);

    assert_non_null(store);
    assert_true(store->ops->loop->fd(store) >= 0);
    return store;
}

/* With idle connections, as threads leave them. */
static struct belay_store *open_warm(const char *key)
{
    struct belay_store *store = open_store();
    struct pg_conn *conns[4];
    struct change change;

    init_acquire(&change, key, "warm");
    assert_int_equal(commit(store, &change), BELAY_OK);
    assert_true(change.was_unfinished); /* there was no connection */
    init_release(&change, key, "warm");
    assert_int_equal(commit(store, &change), BELAY_OK);
    assert_false(change.was_unfinished);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pg_connect(kit.database, INT64_MAX, &conns[i], NULL), BELAY_OK);
        (void)pthread_mutex_lock(&pg_of(store)->mutex);
        pg_of(store)->n_open++;
        (void)pthread_mutex_unlock(&pg_of(store)->mutex);
        pg_put_conn(pg_of(store), conns[i]);
    }
    return store;
}

static void close_store(struct belay_store *store)
{
    store->ops->loop->stop(store);
    store->ops->close(store);
}

/* ---- cases ---- */

/* L1, L2, L9 */
static void changes_of_one_turn_share_a_transaction(void **state)
{
    struct belay_store *store = open_warm("warm-many");
    struct change *changes = calloc(MANY, sizeof *changes);
    int64_t now_ms;

    (void)state;
    for (int round = 0; round < 4; round++) { /* unnamed, then prepared, on more than one connection */
        int64_t began_ms = clock_boot_ms();

        for (int i = 0; i < MANY; i++) {
            char key[32], id[32];

            (void)snprintf(key, sizeof key, "many-%d", i);
            (void)snprintf(id, sizeof id, "id-%d-%d", i, round / 2);
            (round % 2 == 0 ? init_acquire : init_release)(&changes[i], key, id);
            begin(store, &changes[i]);
        }
        for (int i = 0; i < MANY; i++) {
            struct change *change = &changes[i];
            struct belay_record read = { 0 };
            const char *key = change->key;

            while (!change->is_answered) {
                turn(store);
            }
            if (clock_boot_ms() - began_ms < PG_QUEUE_MS) { /* else a thread may have been asked to send it */
                assert_int_equal(change->was_unfinished, round == 0); /* without a row each is sent alone */
            }
            assert_int_equal(change->pending.code, BELAY_OK);
            assert_int_equal(store->ops->get(store, &key, 1, &read, &now_ms, NULL), BELAY_OK);
            assert_int_equal(read.revision, change->out.records[0].revision);
            assert_int_equal(read.token, change->out.records[0].token);
            assert_string_equal(read.lock_id, change->id);
            assert_int_equal(read.held, round % 2 == 0);
            belay_record_release(&read);
            belay_commit_release(&change->out);
        }
    }
    assert_int_equal(pg_kit_number("SELECT count(*) FROM loop.events WHERE key LIKE 'many-%'"), 4 * MANY);
    assert_int_equal(
        pg_kit_number("SELECT count(DISTINCT id >> 14) FROM loop.events WHERE key LIKE 'many-%'"),
        MANY + 3 * 2);
    free(changes);
    close_store(store);
}

static void a_refusal_is_an_answer_and_a_used_id_is_found(void **state)
{
    struct belay_store *store = open_warm("warm-used");
    struct change first, again, other;

    (void)state;
    init_acquire(&first, "used", "once");
    assert_int_equal(commit(store, &first), BELAY_OK);
    init_acquire(&again, "used", "another");
    begin(store, &again);
    while (!again.is_answered) {
        turn(store);
    }
    assert_int_equal(again.pending.code, BELAY_REFUSED);
    assert_false(again.was_unfinished);
    assert_string_equal(again.out.records[0].lock_id, "once");
    belay_commit_release(&again.out);
    belay_error_release(&again.err);
    init_release(&first, "used", "once");
    assert_int_equal(commit(store, &first), BELAY_OK);
    init_acquire(&first, "used", "twice");
    assert_int_equal(commit(store, &first), BELAY_OK);
    init_release(&first, "used", "twice");
    assert_int_equal(commit(store, &first), BELAY_OK);
    assert_int_equal(commit(store, &first), BELAY_REFUSED);
    assert_true(first.was_unfinished); /* done before: whether that is on disk takes another call */

    init_acquire(&again, "used", "once");
    again.batch.require_unused_id = again.id;
    init_acquire(&other, "used-2", "new");
    begin(store, &again);
    begin(store, &other);
    assert_int_equal(await(store, &again), BELAY_ID_USED);
    assert_int_equal(await(store, &other), BELAY_OK);
    close_store(store);
}

/* At least one: a call may just be between two attempts. */
static void terminate_blocked(void)
{
    int64_t n = 0;

    for (int i = 0; i < 1000 && n == 0; i++) {
        n = pg_kit_number("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                          "WHERE wait_event_type = 'Lock'");
    }
    assert_true(n > 0);
}

/* What was sent may have happened. */
static void a_connection_that_is_lost_leaves_the_outcome_unknown(void **state)
{
    struct belay_store *store = open_warm("warm-lost");
    struct change change;

    (void)state;
    init_acquire(&change, "lost", "a");
    assert_int_equal(commit(store, &change), BELAY_OK);
    assert_false(pg_is_unsettled(pg_of(store)));
    run("BEGIN");
    (void)pg_kit_number("SELECT 1 FROM loop.locks WHERE key = 'lost' FOR UPDATE");
    init_release(&change, "lost", "a");
    begin(store, &change);
    await_blocked(store, 1);
    terminate_blocked();
    assert_int_equal(await(store, &change), BELAY_UNKNOWN);
    assert_false(change.was_unfinished); /* it was not sent again */
    assert_true(pg_is_unsettled(pg_of(store)));
    run("COMMIT");
    assert_int_equal(commit(store, &change), BELAY_OK); /* it had not */
    close_store(store);
}

/* libpq closes the socket by itself, which does not take it out of the epoll set then. */
static void a_lost_connection_that_a_child_process_has_a_copy_of_is_forgotten(void **state)
{
    struct belay_store *store = open_warm("warm-copy");
    struct pollfd ready = { .fd = store->ops->loop->fd(store), .events = POLLIN };
    struct change change;
    pid_t child;

    (void)state;
    init_acquire(&change, "copy", "a");
    assert_int_equal(commit(store, &change), BELAY_OK);
    run("BEGIN");
    (void)pg_kit_number("SELECT 1 FROM loop.locks WHERE key = 'copy' FOR UPDATE");
    init_release(&change, "copy", "a");
    begin(store, &change);
    await_blocked(store, 1);
    child = fork();
    if (child == 0) {
        (void)alarm(30); /* if this case fails, it would keep the server's standard input open */
        (void)pause();
        _exit(0);
    }
    assert_true(child > 0);
    terminate_blocked();
    assert_int_equal(await(store, &change), BELAY_UNKNOWN);
    assert_null(store->ops->loop->take(store));
    assert_int_equal(poll(&ready, 1, 0), 0);
    (void)kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    run("COMMIT");
    assert_int_equal(commit(store, &change), BELAY_OK);
    close_store(store);
}

/* A statement that comes late is not waited for. */
static void a_commit_that_is_late_is_unknown(void **state)
{
    struct belay_store *store = open_warm("warm-late");
    struct change holder, waiter;
    int64_t began_ms;

    (void)state;
    init_acquire(&holder, "late", "a");
    assert_int_equal(commit(store, &holder), BELAY_OK);
    run("BEGIN");
    (void)pg_kit_number("SELECT 1 FROM loop.locks WHERE key = 'late' FOR UPDATE");
    init_ticket(&waiter, "late", "w",
                500); /* times the factor of this store; before, the server must have begun */
    began_ms = clock_boot_ms();
    begin(store, &waiter);
    assert_int_equal(await(store, &waiter), BELAY_UNKNOWN);
    assert_false(waiter.was_unfinished);
    assert_in_range(clock_boot_ms() - began_ms, 3000, 9500); /* the server waits for the row for 10 s */
    run("COMMIT");
    close_store(store);
}

/* Many came at the same time, and a group waits for others that may come. */
static void make_crowd(struct belay_store *store)
{
    struct change *changes = calloc(MANY, sizeof *changes);

    for (int i = 0; i < MANY; i++) {
        char key[32];

        (void)snprintf(key, sizeof key, "crowd-%d", i);
        init_acquire(&changes[i], key, "a");
        begin(store, &changes[i]);
    }
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(await(store, &changes[i]), BELAY_OK);
    }
    free(changes);
}

static void a_row_that_is_locked_holds_up_no_other_change(void **state)
{
    struct belay_store *store = open_warm("warm-row");
    struct change stuck[PG_GROUPS], free_one;

    (void)state;
    make_crowd(store);
    for (int i = 0; i < PG_GROUPS; i++) {
        char key[32];

        (void)snprintf(key, sizeof key, "row-%d", i);
        init_acquire(&stuck[i], key, "a");
        assert_int_equal(commit(store, &stuck[i]), BELAY_OK);
        init_release(&stuck[i], key, "a");
    }
    run("BEGIN");
    (void)pg_kit_number(
        "SELECT count(*) FROM (SELECT 1 FROM loop.locks WHERE key LIKE 'row-%' FOR UPDATE) x");
    for (int i = 0; i < PG_GROUPS; i++) {
        begin(store, &stuck[i]);
        await_blocked(store, i + 1);
        if (i == 0) { /* there is room for another group */
            init_acquire(&free_one, "row-free", "a");
            assert_int_equal(commit(store, &free_one), BELAY_OK);
            assert_false(free_one.was_unfinished);
        }
    }
    init_release(&free_one, "row-free", "a");
    assert_int_equal(commit(store, &free_one), BELAY_OK);
    assert_true(free_one.was_unfinished); /* a thread did it */
    for (int i = 0; i < PG_GROUPS; i++) {
        assert_false(stuck[i].is_answered);
    }
    run("COMMIT");
    for (int i = 0; i < PG_GROUPS; i++) {
        assert_int_equal(await(store, &stuck[i]), BELAY_OK);
    }
    close_store(store);
}

static char woken[BELAY_ID_MAX + 1];
static pthread_t woken_by;
static atomic_int n_lost; /* how often all were told to look */

static void on_wake(void *context, const char *lock_id)
{
    (void)context;
    if (lock_id == NULL) {
        atomic_fetch_add(&n_lost, 1);
    } else {
        (void)snprintf(woken, sizeof woken, "%s", lock_id);
        woken_by = pthread_self();
    }
}

static bool loop_listens(struct belay_store *store)
{
    struct pg_wake *wake = &pg_of(store)->wake;
    bool is_lent;

    (void)pthread_mutex_lock(&wake->lending);
    is_lent = wake->lent != NULL;
    (void)pthread_mutex_unlock(&wake->lending);
    return is_lent;
}

static void await_listening(struct belay_store *store)
{
    const struct timespec pause = { 0, 1000000 };
    int64_t until_ms = clock_boot_ms() + PATIENCE_MS;

    while (!loop_listens(store)) {
        assert_true(clock_boot_ms() < until_ms);
        (void)nanosleep(&pause, NULL);
    }
}

/* L4: no other thread is woken first; a connection that is lost is made again, and not after its next check only. */
static void a_notification_is_read_by_the_loop(void **state)
{
    struct belay_store *store = open_warm("warm-note");

    (void)state;
    store->ops->subscribe(store, on_wake, NULL);
    for (int round = 0; round < 2; round++) {
        int64_t until_ms;
        int lost;

        await_listening(store);
        woken[0] = '\0';
        run("NOTIFY loop_wake, 'somebody'");
        while (woken[0] == '\0') {
            turn(store);
        }
        assert_string_equal(woken, "somebody");
        assert_true(pthread_equal(woken_by, pthread_self()));
        lost = atomic_load(&n_lost);
        (void)pg_kit_number(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE '%listening%' "
            "AND pid <> pg_backend_pid()");
        until_ms = clock_boot_ms() + UNCHECKED_MS;
        while (atomic_load(&n_lost) < lost + 2) { /* when it is lost, and when it is there again */
            assert_true(clock_boot_ms() < until_ms);
            turn_within(store, 5); /* finds the end of the connection, and tells the thread */
        }
    }
    store->ops->subscribe(store, NULL, NULL);
    close_store(store);
}

/* Else all waiters of a server would ask a database that is down twice a second. */
static void a_connection_for_wake_ups_that_cannot_be_made_wakes_nobody(void **state)
{
    int64_t until_ms = clock_boot_ms() + PATIENCE_MS;
    struct belay_store *store;
    char url[256];
    int lost;

    (void)state;
    (void)snprintf(url, sizeof url, "%s&listen=postgresql%%3A%%2F%%2Fnobody%%40127.0.0.1%%3A1%%2Fnone",
                   kit.url);
    store = pg_kit_open(url, NULL);
    lost = atomic_load(&n_lost);
    store->ops->subscribe(store, on_wake, NULL);
    while (atomic_load(&n_lost) == lost) { /* the first attempt: those that wait poll from then on */
        assert_true(clock_boot_ms() < until_ms);
        (void)poll(NULL, 0, 1);
    }
    (void)poll(NULL, 0, 1500); /* and some more */
    assert_int_equal(atomic_load(&n_lost), lost + 1);
    store->ops->subscribe(store, NULL, NULL);
    store->ops->close(store);
}

static void a_notification_is_read_by_the_thread_once_the_loop_is_stopped(void **state)
{
    struct belay_store *store = open_warm("warm-thread");
    uint32_t listened;
    int64_t began_ms;

    (void)state;
    (void)store->ops->listen(store, "sleeper"); /* the first makes the connection, and wakes all */
    await_listening(store);
    listened = store->ops->listen(store, "sleeper");
    store->ops->loop->stop(store);
    run("NOTIFY loop_wake, 'sleeper'");
    began_ms = clock_boot_ms();
    store->ops->wait(store, "sleeper", listened, PATIENCE_MS, NULL);
    assert_true(clock_boot_ms() - began_ms < UNCHECKED_MS);
    close_store(store);
}

/* The waiter is told at once, whoever released it is told when that is on disk. */
static void a_release_that_is_handed_on_is_finished_by_a_thread(void **state)
{
    struct belay_store *store = open_warm("warm-hand");
    struct change holder, waiter;

    (void)state;
    store->ops->subscribe(store, on_wake, NULL);
    init_acquire(&holder, "hand", "a");
    assert_int_equal(commit(store, &holder), BELAY_OK);
    init_ticket(&waiter, "hand", "w", 0);
    assert_int_equal(commit(store, &waiter), BELAY_OK);
    assert_false(waiter.was_unfinished);
    woken[0] = '\0';
    init_release(&holder, "hand", "a");
    begin(store, &holder);
    (void)store->ops->loop->flush(store);
    while (!holder.is_answered) {
        turn(store);
    }
    assert_string_equal(woken, "w");
    assert_true(holder.was_unfinished);
    assert_int_equal(holder.pending.code, BELAY_OK);
    assert_true(holder.out.woke_first);
    belay_commit_release(&holder.out);
    store->ops->subscribe(store, NULL, NULL);
    close_store(store);
}

/* By a thread, for which it has waited until now. */
static enum belay_code finish_late(struct belay_store *store, struct change *change)
{
    struct belay_pending_commit *done;
    enum belay_code code;

    pg_close_idle(pg_of(store));
    begin(store, change);
    (void)store->ops->loop->flush(store);
    done = store->ops->loop->take(store);
    assert_ptr_equal(done, &change->pending);
    assert_true(done->is_unfinished);
    done->until_ms = clock_boot_ms();
    code = store->ops->loop->finish(store, done);
    belay_commit_release(&change->out);
    belay_error_release(&change->err);
    return code;
}

/* While the database hung, all threads waited for it, and the client has gone. */
static void a_commit_that_reaches_a_thread_too_late_is_not_sent(void **state)
{
    struct belay_store *store = open_warm("warm-late-thread");
    struct change change;

    (void)state;
    init_acquire(&change, "thread", "a");
    assert_int_equal(finish_late(store, &change), BELAY_UNREACHABLE);
    assert_int_equal(pg_kit_number("SELECT count(*) FROM loop.locks WHERE key = 'thread'"), 0);
    assert_int_equal(commit(store, &change), BELAY_OK);
    init_release(&change, "thread", "a"); /* that is still done */
    assert_int_equal(finish_late(store, &change), BELAY_OK);
    assert_int_equal(pg_kit_number("SELECT count(*) FROM loop.locks WHERE key = 'thread' AND held"), 0);
    close_store(store);
}

/* It waits for what was sent, as for a thread, and touches nothing of it any more. */
static void a_loop_is_stopped_with_commits_under_way(void **state)
{
    struct belay_store *store = open_warm("warm-stop");
    struct change *sent = calloc(1, sizeof *sent);
    struct change *queued = calloc(1, sizeof *queued);
    int64_t began_ms;

    (void)state;
    init_acquire(queued, "stop", "a");
    assert_int_equal(commit(store, queued), BELAY_OK);
    run("BEGIN");
    (void)pg_kit_number("SELECT 1 FROM loop.locks WHERE key = 'stop' FOR UPDATE");
    init_ticket(sent, "stop", "w", 50); /* times the factor of this store */
    init_acquire(queued, "stop-2", "a");
    began_ms = clock_boot_ms();
    begin(store, sent);
    begin(store, queued);
    store->ops->loop->stop(store);
    assert_true(clock_boot_ms() - began_ms >= 300);
    free(sent);
    free(queued);
    assert_null(store->ops->loop->take(store));
    run("COMMIT");
    assert_int_equal(pg_kit_number("SELECT count(*) FROM loop.locks WHERE key = 'stop-2'"), 0);
    close_store(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_of_one_turn_share_a_transaction),
        cmocka_unit_test(a_refusal_is_an_answer_and_a_used_id_is_found),
        cmocka_unit_test(a_connection_that_is_lost_leaves_the_outcome_unknown),
        cmocka_unit_test(a_lost_connection_that_a_child_process_has_a_copy_of_is_forgotten),
        cmocka_unit_test(a_commit_that_is_late_is_unknown),
        cmocka_unit_test(a_row_that_is_locked_holds_up_no_other_change),
        cmocka_unit_test(a_notification_is_read_by_the_loop),
        cmocka_unit_test(a_connection_for_wake_ups_that_cannot_be_made_wakes_nobody),
        cmocka_unit_test(a_notification_is_read_by_the_thread_once_the_loop_is_stopped),
        cmocka_unit_test(a_release_that_is_handed_on_is_finished_by_a_thread),
        cmocka_unit_test(a_commit_that_reaches_a_thread_too_late_is_not_sent),
        cmocka_unit_test(a_loop_is_stopped_with_commits_under_way),
    };
    int failed = pg_kit_start("loop") ? cmocka_run_group_tests_name("postgresql loop", tests, NULL, NULL) : 1;

    pg_kit_stop();
    return failed;
}
