/*
 * Group commit. Threads of one process that change locks at the same time share a transaction, whichever
 * of the process's clients they use: one round trip and one flush for all of them.
 *
 *     a thread comes   none is out, or enough have come ---> it leads: it sends all that have queued
 *                      else it queues -+-- another one sent it ---> it takes its answer
 *                                      +-- a group came back -----> the first leads, if enough have come
 *                                      +-- PG_GATHER_MS passed ------> it leads, if fewer than PG_GROUPS are out
 *                                      +-- PG_QUEUE_MS passed -------> it sends its change alone, as well
 *
 * While one group is out, the next one gathers half of the threads that come at the same time: a
 * call costs as much as some changes do, and two groups keep both the server and its disk busy. It does not
 * wait for them beyond the return of the first. If few threads come, none waits for another.
 *
 * The changes of a group are one call of change_many() in functions.sql. Each has its own condition: a
 * refusal concerns no other change. An error before the commit undoes the group, and each change is sent
 * alone: among them one for a row that another session locks for long, which would hold up the others.
 */
#include <assert.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "store/postgresql/postgresql_internal.h"

static_assert((int)PG_GROUP_MAX <= (int)PG_EVENTS_MAX, "each has a place for its event");

/*
 *     QUEUED --> LEADS: it sends the group   QUEUED --> LED --> ANSWERED: another one does
 *     QUEUED --> LEFT: it sends its change alone
 */
enum { QUEUED, LEADS, LED, ANSWERED, LEFT };

/* One thread's change. */
struct pg_member {
    struct pg_change change;
    _Atomic uint32_t state; /* a futex; changes from QUEUED under the group's mutex */
    enum belay_code code;
    struct pg_member *next; /* in the queue, then in its group */
};

static void set_member_state(struct pg_member *member, uint32_t next)
{
    uint32_t before = atomic_exchange(&member->state, next);

    assert(next == ANSWERED ? before == LED : before == QUEUED);
    (void)before;
}

/* ---- the groups of this process ---- */

static struct {
    pthread_mutex_t mutex;
    struct pg_group *first;
} groups = { PTHREAD_MUTEX_INITIALIZER, NULL };

/* What decides which server, database and role a connection has: the URL and libpq's variables; and the schema. */
static char *group_key(const struct pg_params *params)
{
    struct buf key = BUF_INIT(1 << 20);

    buf_addf(&key, "%s\n%s", params->schema, params->conninfo);
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        if (text_has_prefix(*entry, "PG")) {
            buf_addf(&key, "\n%s", *entry);
        }
    }
    return buf_take(&key);
}

/* In a child after fork(): the threads of the parent's groups are not there, and a mutex may be locked. */
static void forget_groups(void)
{
    (void)pthread_mutex_init(&groups.mutex, NULL);
    groups.first = NULL;
}

static void register_fork(void)
{
    (void)pthread_atfork(NULL, NULL, forget_groups);
}

/* Takes the key. */
static struct pg_group *new_group(char *key)
{
    struct pg_group *group = calloc(1, sizeof *group);

    if (group == NULL) {
        free(key);
        return NULL;
    }
    group->key = key;
    (void)pthread_mutex_init(&group->mutex, NULL);
    group->end = &group->first;
    return group;
}

struct pg_group *pg_group_join(const struct pg_params *params)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    char *key = group_key(params);
    struct pg_group *group;

    (void)pthread_once(&once, register_fork);
    if (key == NULL) {
        return NULL;
    }
    (void)pthread_mutex_lock(&groups.mutex);
    group = groups.first;
    while (group != NULL && strcmp(group->key, key) != 0) {
        group = group->next;
    }
    if (group != NULL) {
        free(key);
    } else {
        group = new_group(key);
        if (group != NULL) {
            group->next = groups.first;
            groups.first = group;
        }
    }
    if (group != NULL) {
        group->n_stores++;
    }
    (void)pthread_mutex_unlock(&groups.mutex);
    return group;
}

void pg_group_leave(struct pg_group *group)
{
    struct pg_group **at = &groups.first;

    if (group == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&groups.mutex);
    while (*at != NULL && *at != group) {
        at = &(*at)->next;
    }
    if (*at != NULL && --group->n_stores == 0) { /* NULL: it is of the process that made this one by fork() */
        assert(group->first == NULL && group->n_out == 0);
        *at = group->next;
        (void)pthread_mutex_destroy(&group->mutex);
        free(group->key);
        free(group);
    }
    (void)pthread_mutex_unlock(&groups.mutex);
}

/* ---- one group ---- */

/* BELAY_CANCELLED for all of them: nothing was changed, and each sends its change alone. */
static void send_group(struct pg_store *store, struct pg_member *first)
{
    struct pg_change *changes[PG_GROUP_MAX];
    size_t n = 0;
    enum belay_code code;

    for (struct pg_member *member = first; member != NULL; member = member->next) {
        assert(n < PG_GROUP_MAX);
        changes[n++] = &member->change;
    }
    code = pg_call_change_many(store, changes, n);
    for (struct pg_member *member = first; member != NULL; member = member->next) {
        member->code = code == BELAY_OK && member->change.answer == NULL ? BELAY_CANCELLED : code;
    }
}

/* ---- a thread's state ---- */

/* Until the state is another one, or for so long; a negative time has no end. */
static void await_change(struct pg_member *member, uint32_t state, int64_t timeout_ms)
{
    struct timespec timeout = { (time_t)(timeout_ms / 1000), (long)(timeout_ms % 1000 * 1000000) };

    (void)syscall(SYS_futex, &member->state, FUTEX_WAIT_PRIVATE, state, timeout_ms < 0 ? NULL : &timeout,
                  NULL, 0);
}

/* After its state was changed. Its thread may be gone by now: then this wakes no thread, or one that looks again. */
static void wake_member(struct pg_member *member)
{
    (void)syscall(SYS_futex, &member->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* ---- the queue; all with the mutex ---- */

static void add_last(struct pg_group *group, struct pg_member *member)
{
    assert(member->next == NULL && *group->end == NULL);
    *group->end = member;
    group->end = &member->next;
    group->n_queued++;
}

static void remove_one(struct pg_group *group, struct pg_member *member)
{
    struct pg_member **at = &group->first;

    while (*at != member) {
        assert(*at != NULL);
        at = &(*at)->next;
    }
    *at = member->next;
    if (group->end == &member->next) {
        group->end = at;
    }
    assert(group->n_queued > 0);
    member->next = NULL;
    group->n_queued--;
}

/* A group goes out: those that queue follow a member that does not. */
static void lead(struct pg_group *group, struct pg_member *leader)
{
    struct pg_member *last = leader;

    assert(group->n_out < PG_GROUPS && leader->next == NULL);
    for (int i = 1; i < PG_GROUP_MAX && group->first != NULL; i++) {
        last->next = group->first;
        last = last->next;
        remove_one(group, last);
        set_member_state(last, LED); /* it cannot leave any more */
    }
    group->n_out++;
}

/*
 * The groups share all that come at the same time. If one went out with less than its share, the rest would queue until
 * a group is back, and miss a flush: four threads would send one change, then one, and two would always wait.
 */
bool pg_group_may_go(int n, int n_out, int crowd)
{
    int share = crowd / PG_GROUPS;

    return n_out == 0 || (n_out < PG_GROUPS && (n >= share || n >= PG_GROUP_MAX));
}

/* ---- coming and going ---- */

/* False: it queues. */
static bool leads_at_once(struct pg_group *group, struct pg_member *member)
{
    bool leads;

    (void)pthread_mutex_lock(&group->mutex);
    group->n_in++;
    group->crowd = group->n_in > group->crowd ? group->n_in : group->crowd;
    leads = pg_group_may_go(group->n_queued + 1, group->n_out, group->crowd);
    if (leads) {
        lead(group, member);
        set_member_state(member, LEADS);
    } else {
        add_last(group, member);
    }
    (void)pthread_mutex_unlock(&group->mutex);
    return leads;
}

/* What is out may wait long for a row, which concerns no other change. */
static void stop_waiting(struct pg_group *group, struct pg_member *member, bool is_late)
{
    (void)pthread_mutex_lock(&group->mutex);
    if (atomic_load(&member->state) == QUEUED && (group->n_out < PG_GROUPS || is_late)) {
        remove_one(group, member);
        if (group->n_out < PG_GROUPS) {
            lead(group, member);
            set_member_state(member, LEADS);
        } else {
            assert(group->n_in > 0);
            group->n_in--;
            set_member_state(member, LEFT);
        }
    }
    (void)pthread_mutex_unlock(&group->mutex);
}

static void enter(struct pg_group *group, struct pg_member *member)
{
    int64_t began_ms = clock_boot_ms();
    int64_t pause_ms = PG_GATHER_MS;

    if (leads_at_once(group, member)) {
        return;
    }
    for (;;) {
        uint32_t state = atomic_load(&member->state);
        int64_t waited_ms;

        if (state != QUEUED && state != LED) {
            return;
        }
        await_change(member, state, state == LED ? -1 : pause_ms);
        waited_ms = clock_boot_ms() - began_ms;
        if (atomic_load(&member->state) == QUEUED && waited_ms >= PG_GATHER_MS) {
            stop_waiting(group, member, waited_ms >= PG_QUEUE_MS);
            pause_ms = 4 * (int64_t)PG_GATHER_MS;
        }
    }
}

/* Once a group, or a change that was sent alone, is back. */
static void finish(struct pg_group *group, struct pg_member *leader)
{
    struct pg_member *next_leader = NULL;
    int n = 1;

    for (struct pg_member *other = leader->next; other != NULL; other = other->next) {
        n++;
    }
    (void)pthread_mutex_lock(&group->mutex);
    assert(group->n_in >= n && group->n_out > 0 && n <= PG_GROUP_MAX);
    group->crowd -= group->n_in < group->crowd ? 1 : 0;
    group->n_in -= n;
    group->n_out--;
    if (group->first != NULL && pg_group_may_go(group->n_queued, group->n_out, group->crowd)) {
        next_leader = group->first;
        remove_one(group, next_leader);
        lead(group, next_leader);
        set_member_state(next_leader, LEADS);
    }
    (void)pthread_mutex_unlock(&group->mutex);
    if (next_leader != NULL) {
        wake_member(next_leader);
    }
    for (struct pg_member *other = leader->next; other != NULL;) {
        struct pg_member *next = other->next; /* it may be gone once it knows */

        set_member_state(other, ANSWERED);
        wake_member(other);
        other = next;
    }
}

enum belay_code pg_send_alone(struct pg_store *store, const struct belay_batch *batch, int64_t deadline_ms,
                              int64_t left_ms, char **out_answer, struct belay_error *err)
{
    struct pg_arguments args;
    PGresult *result = NULL;
    enum belay_code code = pg_write_change(store, batch, deadline_ms, &args, err);
    struct pg_call call = { args.statement, args.values, args.n, false, left_ms };

    if (code != BELAY_OK) {
        return code;
    }
    code = pg_call(store, &call, &result, err);
    if (code == BELAY_OK) {
        *out_answer = strdup(PQgetvalue(result, 0, 0));
        code = *out_answer == NULL ? error_set(err, BELAY_UNKNOWN, "no memory left") : BELAY_OK;
    }
    PQclear(result);
    pg_arguments_release(&args);
    return code == BELAY_ID_USED ? BELAY_CANCELLED : code;
}

enum belay_code pg_group_call(struct pg_store *store, const struct belay_batch *batch, int64_t deadline_ms,
                              int64_t left_ms, char **out_answer, struct belay_error *err)
{
    struct pg_group *group = store->group;
    struct pg_member member = { .change = { batch, deadline_ms, NULL }, .code = BELAY_CANCELLED };
    int64_t until_boot_ms = clock_boot_ms() + left_ms;
    bool is_alone = true;

    if (left_ms < PG_LEAST_MS) {
        return pg_send_alone(store, batch, deadline_ms, left_ms, out_answer, err);
    }
    enter(group, &member);
    if (atomic_load(&member.state) == LEADS) {
        is_alone = member.next == NULL;
        if (is_alone) {
            member.code = pg_send_alone(store, batch, deadline_ms, left_ms, &member.change.answer, err);
        } else {
            send_group(store, &member);
        }
        finish(group, &member);
    } else {
        is_alone = false;
    }
    assert(atomic_load(&member.state) != QUEUED && atomic_load(&member.state) != LED);
    left_ms = until_boot_ms - clock_boot_ms();
    if (!is_alone && member.code == BELAY_CANCELLED && left_ms > 0) {
        return pg_send_alone(store, batch, deadline_ms, left_ms, out_answer, err);
    }
    *out_answer = member.change.answer;
    return is_alone || member.code == BELAY_OK
               ? member.code
               : error_set(err, member.code,
                           "the connection to PostgreSQL was lost, or it did not answer in time");
}
