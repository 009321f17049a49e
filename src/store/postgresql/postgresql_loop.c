/*
 * Commits of an event loop, which has no thread to wait for an answer with: libpq sends and reads without
 * blocking, and an epoll descriptor tells when an answer can be read. All of this is of the loop's thread.
 *
 *     begin:  a change -> the queue;  a waiter's own batch -> a flight
 *     flush:  the queue -> a flight, when a group may go: the rules are those of postgresql_group.c
 *
 *     flight:  FREE --> [PREPARES -->] ASKS --+-- answer: each commit is concluded
 *               ^                             +-- error: nothing was changed; a thread sends each alone
 *               |                             +-- connection lost, or late: unknown
 *               +-----------------------------+
 *
 * Connections are those that threads have made: without an idle one, threads make the commit, as they do
 * whatever takes more than one call.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "store/postgresql/postgresql_internal.h"

enum { FLIGHTS = 8 }; /* at a time; half of the connections are left to the threads */
static_assert((int)FLIGHTS <= (int)PG_CONNECTIONS_MAX / 2 && (int)PG_GROUPS < (int)FLIGHTS,
              "there are enough");

enum flight_state { FREE, PREPARES, ASKS };

/* A statement that is out. */
struct flight {
    enum flight_state state;
    struct pg_conn *conn; /* owned, unless it is FREE */
    enum pg_statement statement;
    bool is_group;   /* of changes, if only of one; false: a waiter's own batch */
    bool is_flushed; /* all of it has left */
    int64_t deadline_boot_ms;
    PGresult *result; /* owned; the last one so far */
    size_t n;
    struct belay_pending_commit *commits[PG_GROUP_MAX];
    struct pg_change changes[PG_GROUP_MAX]; /* of the commits, in their order */
    struct pg_change *sorted[PG_GROUP_MAX]; /* as they were sent */
};

struct commit_list {
    struct belay_pending_commit *first;
    struct belay_pending_commit **end;
    int n;
};

struct pg_loop {
    int epoll_fd;
    struct commit_list queue; /* asked_ms: since when */
    struct commit_list done;
    int n_out; /* groups */
    int n_in;  /* changes that queue or are out */
    int crowd; /* how many that were of late */
    struct flight flights[FLIGHTS];
};

/* A statement that is prepared first is sent again as the question itself. */
static void set_flight_state(struct flight *flight, enum flight_state next)
{
#define TO(state) (1U << (state))
    static const unsigned may_become[] = {
        [FREE] = TO(PREPARES) | TO(ASKS), [PREPARES] = TO(ASKS), [ASKS] = 0, /* end_flight() frees it */
    };
#undef TO

    assert((may_become[flight->state] & 1U << next) != 0 && flight->conn != NULL);
    flight->state = next;
}

static void list_init(struct commit_list *list)
{
    *list = (struct commit_list){ .end = &list->first };
}

static void list_add(struct commit_list *list, struct belay_pending_commit *commit)
{
    assert((list->first == NULL) == (list->n == 0) && *list->end == NULL);
    commit->next = NULL;
    *list->end = commit;
    list->end = &commit->next;
    list->n++;
}

static struct belay_pending_commit *list_take(struct commit_list *list)
{
    struct belay_pending_commit *first = list->first;

    assert(first != NULL && list->n > 0);
    list->first = first->next;
    list->n--;
    if (list->first == NULL) {
        list->end = &list->first;
    }
    return first;
}

/* ---- the end of a flight ---- */

/* It was not sent: a thread does all of it. */
static void leave_to_thread(struct pg_loop *loop, struct belay_pending_commit *commit)
{
    commit->asked_ms = 0;
    commit->is_unfinished = true;
    list_add(&loop->done, commit);
}

static void end_flight(struct pg_store *store, struct flight *flight, enum belay_code code, bool closes)
{
    struct pg_loop *loop = store->loop;
    bool is_unsure = flight->conn->is_unsure;

    assert(flight->n > 0 && flight->n <= PG_GROUP_MAX && code != BELAY_REFUSED);
    assert(!flight->is_group || (loop->n_out > 0 && loop->n_in >= (int)flight->n));
    (void)epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, PQsocket(flight->conn->pg), NULL);
    if (closes) {
        pg_drop_conn(store, flight->conn);
    } else {
        pg_put_conn(store, flight->conn);
    }
    PQclear(flight->result);
    if (flight->is_group) {
        loop->crowd -= loop->n_in < loop->crowd ? 1 : 0;
        loop->n_in -= (int)flight->n;
        loop->n_out--;
    }
    for (size_t i = 0; i < flight->n; i++) {
        struct belay_pending_commit *commit = flight->commits[i];

        commit->answer = flight->changes[i].answer;
        assert(commit->batch == flight->changes[i].batch && commit->asked_ms > 0);
        commit->code = code == BELAY_OK && commit->answer == NULL ? BELAY_CANCELLED : code;
        commit->is_unfinished = !pg_conclude(store, commit, is_unsure);
        list_add(&loop->done, commit);
    }
    *flight = (struct flight){ .state = FREE };
}

/* ---- sending ---- */

static bool watch_flight(struct pg_loop *loop, struct flight *flight, int epoll_op)
{
    struct epoll_event event = { .events = EPOLLIN | EPOLLRDHUP | (flight->is_flushed ? 0 : EPOLLOUT),
                                 .data.ptr = flight };

    return epoll_ctl(loop->epoll_fd, epoll_op, PQsocket(flight->conn->pg), &event) == 0;
}

/* BELAY_CANCELLED: nothing was sent. BELAY_UNKNOWN: some of it may have been. */
static enum belay_code send_statement(struct pg_store *store, struct flight *flight,
                                      const struct pg_call *call, const struct pg_bytes *bytes)
{
    flight->statement = call->statement;
    flight->conn->is_unsure = false;
    if (pg_is_unprepared(store, flight->conn, call->statement)) {
        set_flight_state(flight, PREPARES);
        return pg_send_prepare(store, flight->conn, call->statement) ? BELAY_OK : BELAY_CANCELLED;
    }
    set_flight_state(flight, ASKS);
    return pg_send(store, flight->conn, call, bytes) ? BELAY_OK : BELAY_UNKNOWN;
}

static enum belay_code send_single(struct pg_store *store, struct flight *flight)
{
    struct pg_change *change = &flight->changes[0];
    struct pg_arguments args;
    struct pg_call call;
    enum belay_code code = flight->is_group
                               ? pg_write_change(store, change->batch, change->deadline_ms, &args, NULL)
                               : pg_write_queue_batch(store, change->batch, change->deadline_ms, &args, NULL);

    assert(flight->n == 1);
    if (code != BELAY_OK) {
        return BELAY_CANCELLED;
    }
    call = (struct pg_call){ args.statement, args.values, args.n, false, 0 };
    code = send_statement(store, flight, &call, NULL);
    pg_arguments_release(&args);
    return code;
}

static enum belay_code send_changes(struct pg_store *store, struct flight *flight)
{
    struct pg_change_many many;
    enum belay_code code;

    assert(flight->n > 1 && flight->is_group);
    if (!pg_write_change_many(store, flight->sorted, flight->n, &many)) {
        return BELAY_CANCELLED;
    }
    code = send_statement(store, flight, &many.call, &many.bytes);
    pg_change_many_release(&many);
    return code;
}

static void send_flight(struct pg_store *store, struct flight *flight, int epoll_op)
{
    enum belay_code code = flight->n > 1 ? send_changes(store, flight) : send_single(store, flight);

    if (code == BELAY_OK) {
        flight->is_flushed =
            PQflush(flight->conn->pg) != 1; /* what cannot be sent at all, the answer shows */
        code = watch_flight(store->loop, flight, epoll_op) ? BELAY_OK : BELAY_UNKNOWN;
    }
    if (code != BELAY_OK) {
        end_flight(store, flight, code, flight->state != FREE); /* FREE: nothing was sent */
    }
}

/* A flight with a connection; NULL: there is none. */
static struct flight *new_flight(struct pg_store *store)
{
    for (size_t i = 0; i < FLIGHTS; i++) {
        struct flight *flight = &store->loop->flights[i];

        if (flight->state == FREE) {
            assert(flight->n == 0 && flight->result == NULL);
            flight->conn = pg_take_idle(store);
            return flight->conn == NULL ? NULL : flight;
        }
    }
    return NULL;
}

static void add_commit(struct pg_store *store, struct flight *flight, struct belay_pending_commit *commit)
{
    int64_t now_ms = clock_boot_ms();
    int64_t left_ms = commit->until_ms - now_ms;
    struct pg_change *change = &flight->changes[flight->n];

    assert(flight->n < PG_GROUP_MAX);
    commit->asked_ms = now_ms;
    *change = (struct pg_change){ commit->batch, pg_deadline_ms(store, left_ms), NULL };
    flight->sorted[flight->n] = change;
    flight->commits[flight->n++] = commit;
}

/* It has its commits. */
static void start_flight(struct pg_store *store, struct flight *flight)
{
    assert(flight->state == FREE && flight->n > 0);
    flight->deadline_boot_ms = INT64_MAX;
    for (size_t i = 0; i < flight->n; i++) {
        int64_t until_ms = flight->commits[i]->until_ms;

        flight->deadline_boot_ms = until_ms < flight->deadline_boot_ms ? until_ms : flight->deadline_boot_ms;
    }
    send_flight(store, flight, EPOLL_CTL_ADD);
}

/* ---- an answer ---- */

static void judge_flight(struct pg_store *store, struct flight *flight)
{
    ExecStatusType status = PQresultStatus(flight->result);
    enum belay_code code = BELAY_CANCELLED;
    bool closes = false;

    if (flight->result == NULL || PQstatus(flight->conn->pg) != CONNECTION_OK) {
        code = flight->state == ASKS ? BELAY_UNKNOWN : BELAY_CANCELLED;
        closes = true;
    } else if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK && !pg_is_undone(flight->result)) {
        code = flight->state == ASKS ? BELAY_UNKNOWN : BELAY_CANCELLED;
        closes = true;
    } else if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
        (void)pg_can_repeat(store, flight->result, &closes);
    } else if (flight->state == PREPARES) {
        flight->conn->prepared |= 1U << flight->statement;
        PQclear(flight->result);
        flight->result = NULL;
        send_flight(store, flight, EPOLL_CTL_MOD);
        return;
    } else if (flight->conn->is_unsure) {
        code = BELAY_UNKNOWN;
        closes = true;
    } else if (flight->n > 1) {
        code = pg_read_change_many(flight->result, flight->sorted, flight->n);
    } else {
        flight->changes[0].answer = strdup(PQgetvalue(flight->result, 0, 0));
        code = flight->changes[0].answer == NULL ? BELAY_UNKNOWN : BELAY_OK;
    }
    end_flight(store, flight, code, closes);
}

/* Something can be read, or sent. */
static void advance(struct pg_store *store, struct flight *flight)
{
    PGconn *pg = flight->conn->pg;
    bool is_lost = PQconsumeInput(pg) != 1 && PQisBusy(pg) == 1;

    assert(flight->state != FREE);
    if (!flight->is_flushed && !is_lost && PQflush(pg) != 1) {
        flight->is_flushed = true;
        is_lost = !watch_flight(store->loop, flight, EPOLL_CTL_MOD);
    }
    while (!is_lost && PQisBusy(pg) == 0) {
        PGresult *next = PQgetResult(pg);

        if (next == NULL) {
            judge_flight(store, flight);
            return;
        }
        PQclear(flight->result);
        flight->result = next;
    }
    if (is_lost) {
        PQclear(flight->result);
        flight->result = NULL;
        judge_flight(store, flight);
    }
}

/*
 * If the other side is gone, libpq closes the socket by itself. That would not take it out of the epoll set while a
 * child process has a copy of it, so it is taken out before.
 */
static void on_event(struct pg_store *store, struct flight *flight, unsigned events)
{
    bool is_hung_up = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;

    if (is_hung_up) {
        (void)epoll_ctl(store->loop->epoll_fd, EPOLL_CTL_DEL, PQsocket(flight->conn->pg), NULL);
    }
    advance(store, flight);
    if (is_hung_up && flight->state != FREE && !watch_flight(store->loop, flight, EPOLL_CTL_ADD)) {
        end_flight(store, flight, flight->state == ASKS ? BELAY_UNKNOWN : BELAY_CANCELLED, true);
    }
}

/* ---- the queue ---- */

static bool is_older(const struct pg_loop *loop, int64_t ms)
{
    return loop->queue.n > 0 && clock_boot_ms() - loop->queue.first->asked_ms >= ms;
}

static void send_queue(struct pg_store *store)
{
    struct pg_loop *loop = store->loop;

    while (loop->queue.n > 0 && (pg_group_may_go(loop->queue.n, loop->n_out, loop->crowd) ||
                                 (loop->n_out < PG_GROUPS && is_older(loop, PG_GATHER_MS)))) {
        struct flight *flight = new_flight(store);

        if (flight == NULL) {
            break;
        }
        flight->is_group = true;
        while (loop->queue.n > 0 && flight->n < PG_GROUP_MAX) {
            add_commit(store, flight, list_take(&loop->queue));
        }
        assert(loop->n_out < PG_GROUPS);
        loop->n_out++;
        start_flight(store, flight);
    }
    /* What is out may wait long for a row, which concerns no other change; or there is no connection. */
    while (loop->queue.n > 0 && (loop->n_out == 0 || is_older(loop, PG_QUEUE_MS))) {
        assert(loop->n_in > 0);
        loop->n_in--;
        leave_to_thread(loop, list_take(&loop->queue));
    }
}

/* ---- the port ---- */

static int loop_fd(struct belay_store *base)
{
    struct pg_store *store = pg_of(base);
    struct pg_loop *loop = store->loop;

    if (loop == NULL && (loop = calloc(1, sizeof *loop)) != NULL) {
        list_init(&loop->queue);
        list_init(&loop->done);
        loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        store->loop = loop;
        pg_wake_lend(store, loop->epoll_fd);
    }
    return loop == NULL ? -1 : loop->epoll_fd;
}

static bool begin(struct belay_store *base, struct belay_pending_commit *commit)
{
    struct pg_store *store = pg_of(base);
    struct pg_loop *loop = store->loop;
    int64_t now_ms = clock_boot_ms();
    bool is_change = pg_is_change(commit->batch);
    struct flight *flight;

    assert(loop != NULL && commit->answer == NULL && !commit->is_unfinished);
    commit->until_ms = now_ms + pg_timeout_ms(store, commit->batch->timeout_ms);
    if (pg_has_jumped(store) ||
        (is_change ? commit->until_ms - now_ms < PG_LEAST_MS : !pg_is_queue_batch(commit->batch))) {
        return false;
    }
    if (is_change) {
        commit->asked_ms = now_ms;
        list_add(&loop->queue, commit);
        loop->n_in++;
        loop->crowd = loop->n_in > loop->crowd ? loop->n_in : loop->crowd;
        return true;
    }
    flight = new_flight(store);
    if (flight != NULL) {
        add_commit(store, flight, commit);
        start_flight(store, flight);
    }
    return flight != NULL;
}

static struct belay_pending_commit *take_answered(struct belay_store *base)
{
    struct pg_store *store = pg_of(base);
    struct pg_loop *loop = store->loop;
    struct epoll_event events[FLIGHTS + 1]; /* and the notifications */
    int n = epoll_wait(loop->epoll_fd, events, FLIGHTS + 1, 0);
    int64_t now_ms = clock_boot_ms();
    struct belay_pending_commit *done;

    for (int i = 0; i < n; i++) {
        struct flight *flight = events[i].data.ptr;

        if (flight == NULL) {
            pg_wake_read(store, (events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
        } else if (flight->state != FREE) {
            on_event(store, flight, events[i].events);
        }
    }
    for (size_t i = 0; i < FLIGHTS; i++) {
        struct flight *flight = &loop->flights[i];

        if (flight->state != FREE && flight->deadline_boot_ms <= now_ms) {
            end_flight(store, flight, flight->state == ASKS ? BELAY_UNKNOWN : BELAY_CANCELLED, true);
        }
    }
    send_queue(store);
    done = loop->done.first;
    list_init(&loop->done);
    return done;
}

static int64_t flush(struct belay_store *base)
{
    struct pg_store *store = pg_of(base);
    struct pg_loop *loop = store->loop;
    int64_t next_ms = INT64_MAX;

    send_queue(store);
    if (loop->done.n > 0) {
        return 0;
    }
    if (loop->queue.n > 0) {
        next_ms = loop->queue.first->asked_ms +
                  (loop->n_out < PG_GROUPS && !is_older(loop, PG_GATHER_MS) ? PG_GATHER_MS : PG_QUEUE_MS);
    }
    for (size_t i = 0; i < FLIGHTS; i++) {
        const struct flight *flight = &loop->flights[i];

        if (flight->state != FREE && flight->deadline_boot_ms < next_ms) {
            next_ms = flight->deadline_boot_ms;
        }
    }
    return next_ms;
}

/* Waits for what is out, as is done for threads. */
static void stop_loop(struct belay_store *base)
{
    struct pg_store *store = pg_of(base);
    struct pg_loop *loop = store->loop;

    pg_wake_lend(store, -1);
    for (size_t i = 0; i < FLIGHTS; i++) {
        struct flight *flight = &loop->flights[i];

        if (flight->state != FREE) {
            PQclear(pg_conn_result(flight->conn, flight->deadline_boot_ms));
            PQclear(flight->result);
            pg_drop_conn(store, flight->conn);
            *flight = (struct flight){ .state = FREE };
        }
    }
    list_init(&loop->queue);
    list_init(&loop->done);
    loop->n_out = loop->n_in = 0;
}

void pg_loop_free(struct pg_loop *loop)
{
    if (loop != NULL && loop->epoll_fd >= 0) {
        (void)close(loop->epoll_fd);
    }
    free(loop);
}

const struct belay_loop_ops pg_loop_ops = { .fd = loop_fd,
                                            .begin = begin,
                                            .take = take_answered,
                                            .flush = flush,
                                            .finish = pg_commit_finish,
                                            .stop = stop_loop };
