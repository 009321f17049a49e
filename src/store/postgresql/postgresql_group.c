/*
 * Group commit. Threads of one process that change locks at the same time share a transaction: one
 * round trip and one flush for all of them.
 *
 *     a thread comes   fewer than GROUPS are out ----------------> it sends its change alone
 *                      else it queues -+-- another one sent it --> it takes its answer
 *                                      +-- it leads -------------> it sends all that have queued
 *                                      +-- QUEUE_MS passed ------> it sends its change alone, as well
 *     a group is back: its leader hands the answers out, and makes the first of the queue lead
 *
 * The changes of a group are statements of one pipeline (libpq), sorted as commit() in functions.sql
 * locks rows, so that two groups cannot wait for each other. Each has its own condition: a refusal
 * concerns nobody else. An error before the commit undoes the group, and each change is sent alone:
 * among them a row that somebody locks for long, which would hold up the others.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "store/postgresql/postgresql_internal.h"

enum { GROUPS = 2, GROUP_MAX = 32, LEAST_MS = 5000, QUEUE_MS = 200 };
static_assert((int)GROUP_MAX <= (int)PG_EVENTS_MAX, "each has a place for its event");

enum state { QUEUED, LEADS, LED, ANSWERED, LEFT };

/* One thread's change. */
struct pg_member {
    struct pg_one *one; /* borrowed */
    enum state state;   /* under the group's mutex */
    enum belay_code code;
    PGresult *result;       /* owned; with BELAY_OK */
    struct pg_member *next; /* in the queue, then in its group */
    pthread_cond_t changed;
};

void pg_group_init(struct pg_group *group)
{
    (void)pthread_mutex_init(&group->mutex, NULL);
    (void)pthread_condattr_init(&group->monotonic);
    (void)pthread_condattr_setclock(&group->monotonic, CLOCK_MONOTONIC);
    group->end = &group->first;
}

void pg_group_close(struct pg_group *group)
{
    assert(group->first == NULL && group->n_out == 0);
    (void)pthread_condattr_destroy(&group->monotonic);
    (void)pthread_mutex_destroy(&group->mutex);
}

/* ---- one group ---- */

static int by_key(const void *a, const void *b)
{
    const struct pg_member *const *x = a;
    const struct pg_member *const *y = b;

    return strcmp((*y)->one->values[0], (*x)->one->values[0]); /* the last key first */
}

/* False: two are about one key; the second would find what the first did, not yet committed. */
static bool sort_members(struct pg_member *first, struct pg_member *members[GROUP_MAX], size_t *out_n)
{
    size_t n = 0;

    for (struct pg_member *member = first; member != NULL; member = member->next) {
        members[n++] = member;
    }
    qsort((void *)members, n, sizeof(struct pg_member *), by_key);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(members[i - 1]->one->values[0], members[i]->one->values[0]) == 0) {
            return false;
        }
    }
    *out_n = n;
    return true;
}

/* In the order of the calls; an answer that is missing is unknown to all. */
static void hand_out(struct pg_member *const members[], size_t n, enum belay_code code, PGresult *results[])
{
    for (size_t i = 0; i < n; i++) {
        members[i]->code = code;
        members[i]->result = code == BELAY_OK ? results[i] : NULL;
    }
}

/* BELAY_CANCELLED for all of them: nothing was changed, and each sends its change alone. */
static void send_group(struct pg_store *store, struct pg_member *first)
{
    struct pg_member *members[GROUP_MAX];
    struct pg_call calls[GROUP_MAX];
    PGresult *results[GROUP_MAX] = { NULL };
    size_t n = 0;
    enum belay_code code = BELAY_CANCELLED;

    if (sort_members(first, members, &n)) {
        for (size_t i = 0; i < n; i++) {
            pg_one_set_place(members[i]->one, (unsigned)i);
            calls[i] = (struct pg_call){ members[i]->one->statement, members[i]->one->values,
                                         members[i]->one->n, false, 0 };
        }
        code = pg_call_pipeline(store, calls, n, results);
        hand_out(members, n, code, results);
    } else {
        for (struct pg_member *member = first; member != NULL; member = member->next) {
            member->code = BELAY_CANCELLED;
        }
    }
}

/* ---- the queue ---- */

/* With the mutex. The first of those that queue leads them. */
static void pass_on(struct pg_group *group)
{
    struct pg_member *leader = group->first;
    struct pg_member *last = leader;

    if (leader == NULL) {
        group->n_out--;
        return;
    }
    for (int i = 1; i < GROUP_MAX && last->next != NULL; i++) {
        last = last->next;
        last->state = LED; /* the leader has it: it cannot leave any more */
    }
    group->first = last->next;
    if (group->first == NULL) {
        group->end = &group->first;
    }
    last->next = NULL;
    leader->state = LEADS;
    (void)pthread_cond_signal(&leader->changed);
}

static void leave_queue(struct pg_group *group, struct pg_member *member)
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
    member->next = NULL;
    member->state = LEFT;
}

/* With the mutex. Those that are out may wait long for a row, which concerns nobody else. */
static void enter(struct pg_group *group, struct pg_member *member)
{
    struct timespec until;

    if (group->n_out < GROUPS) {
        group->n_out++;
        member->state = LEADS;
        return;
    }
    *group->end = member;
    group->end = &member->next;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)QUEUE_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (member->state == QUEUED || member->state == LED) {
        bool is_late = pthread_cond_timedwait(&member->changed, &group->mutex, &until) == ETIMEDOUT;

        if (is_late && member->state == QUEUED) {
            leave_queue(group, member);
        } else if (is_late && member->state == LED) {
            (void)pthread_cond_wait(&member->changed, &group->mutex);
        }
    }
}

/* With the mutex, once a group or a change is back. */
static void finish(struct pg_group *group, struct pg_member *leader)
{
    for (struct pg_member *other = leader->next; other != NULL;) {
        struct pg_member *next = other->next; /* it may be gone once it knows */

        other->state = ANSWERED;
        (void)pthread_cond_signal(&other->changed);
        other = next;
    }
    pass_on(group);
}

enum belay_code pg_group_call(struct pg_store *store, struct pg_one *one, int64_t left_ms,
                              PGresult **out_result, struct belay_error *err)
{
    struct pg_group *group = &store->group;
    struct pg_member member = { .one = one, .code = BELAY_CANCELLED };
    struct pg_call alone = { one->statement, one->values, one->n, false, left_ms };

    if (left_ms < LEAST_MS || atomic_load(&store->is_unprepared)) {
        return pg_call(store, &alone, out_result, err);
    }
    (void)pthread_cond_init(&member.changed, &group->monotonic);
    (void)pthread_mutex_lock(&group->mutex);
    enter(group, &member);
    (void)pthread_mutex_unlock(&group->mutex);
    if (member.state == LEADS) {
        bool is_alone = member.next == NULL;

        if (is_alone) {
            member.code = pg_call(store, &alone, &member.result, err);
        } else {
            send_group(store, &member);
        }
        (void)pthread_mutex_lock(&group->mutex);
        finish(group, &member);
        (void)pthread_mutex_unlock(&group->mutex);
        if (is_alone) {
            (void)pthread_cond_destroy(&member.changed);
            *out_result = member.result;
            return member.code;
        }
    }
    (void)pthread_cond_destroy(&member.changed);
    if (member.code == BELAY_CANCELLED) {
        pg_one_set_place(one, 0);
        return pg_call(store, &alone, out_result, err);
    }
    *out_result = member.result;
    return member.code == BELAY_OK
               ? BELAY_OK
               : error_set(err, member.code,
                           "the connection to PostgreSQL was lost, or it did not answer in time");
}
