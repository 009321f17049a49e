/*
 * Group commit. Threads of one process that change locks at the same time share a transaction, whichever
 * of the process's clients they use: one round trip and one flush for all of them.
 *
 *     a thread comes   fewer than GROUPS are out ----------------> it sends its change alone
 *                      else it queues -+-- another one sent it --> it takes its answer
 *                                      +-- it leads -------------> it sends all that have queued
 *                                      +-- QUEUE_MS passed ------> it sends its change alone, as well
 *     a group is back: its leader hands the answers out, and makes the first of the queue lead
 *
 * The changes of a group are one call of change_many() in functions.sql. Each has its own condition: a
 * refusal concerns no other change. An error before the commit undoes the group, and each change is sent
 * alone: among them one for a row that another session locks for long, which would hold up the others.
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
    struct pg_item item;
    enum state state; /* under the group's mutex */
    enum belay_code code;
    struct pg_member *next; /* in the queue, then in its group */
    pthread_cond_t changed;
};

/* ---- the groups of this process ---- */

static struct {
    pthread_mutex_t mutex;
    struct pg_group *first;
} groups = { PTHREAD_MUTEX_INITIALIZER, NULL };

static struct pg_group *new_group(const struct pg_params *params)
{
    struct pg_group *group = calloc(1, sizeof *group);
    char *conninfo = strdup(params->conninfo);

    if (group == NULL || conninfo == NULL) {
        free(group);
        free(conninfo);
        return NULL;
    }
    group->conninfo = conninfo;
    memcpy(group->schema, params->schema, sizeof group->schema);
    (void)pthread_mutex_init(&group->mutex, NULL);
    (void)pthread_condattr_init(&group->monotonic);
    (void)pthread_condattr_setclock(&group->monotonic, CLOCK_MONOTONIC);
    group->end = &group->first;
    return group;
}

struct pg_group *pg_group_join(const struct pg_params *params)
{
    struct pg_group *group;

    (void)pthread_mutex_lock(&groups.mutex);
    group = groups.first;
    while (group != NULL &&
           (strcmp(group->conninfo, params->conninfo) != 0 || strcmp(group->schema, params->schema) != 0)) {
        group = group->next;
    }
    if (group == NULL) {
        group = new_group(params);
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
    if (--group->n_stores == 0) {
        assert(group->first == NULL && group->n_out == 0);
        while (*at != group) {
            at = &(*at)->next;
        }
        *at = group->next;
        (void)pthread_condattr_destroy(&group->monotonic);
        (void)pthread_mutex_destroy(&group->mutex);
        free(group->conninfo);
        free(group);
    }
    (void)pthread_mutex_unlock(&groups.mutex);
}

/* ---- one group ---- */

/* BELAY_CANCELLED for all of them: nothing was changed, and each sends its change alone. */
static void send_group(struct pg_store *store, struct pg_member *first)
{
    struct pg_item *items[GROUP_MAX];
    size_t n = 0;
    enum belay_code code;

    for (struct pg_member *member = first; member != NULL; member = member->next) {
        items[n++] = &member->item;
    }
    code = pg_call_many(store, items, n);
    for (struct pg_member *member = first; member != NULL; member = member->next) {
        member->code = code == BELAY_OK && member->item.answer == NULL ? BELAY_CANCELLED : code;
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

/* With the mutex. Those that are out may wait long for a row, which concerns no other change. */
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

static enum belay_code send_alone(struct pg_store *store, const struct pg_item *item, int64_t left_ms,
                                  char **out_answer, struct belay_error *err)
{
    struct pg_one one;
    PGresult *result = NULL;
    enum belay_code code = pg_write_one(store, item->batch, item->deadline_ms, &one, err);
    struct pg_call call = { one.statement, one.values, one.n, false, left_ms };

    if (code != BELAY_OK) {
        return code;
    }
    code = pg_call(store, &call, &result, err);
    if (code == BELAY_OK) {
        *out_answer = strdup(PQgetvalue(result, 0, 0));
        code = *out_answer == NULL ? error_set(err, BELAY_UNKNOWN, "no memory left") : BELAY_OK;
    }
    PQclear(result);
    pg_one_release(&one);
    return code == BELAY_ID_USED ? BELAY_CANCELLED : code;
}

enum belay_code pg_group_call(struct pg_store *store, const struct belay_batch *batch, int64_t deadline_ms,
                              int64_t left_ms, char **out_answer, struct belay_error *err)
{
    struct pg_group *group = store->group;
    struct pg_member member = { .item = { batch, deadline_ms, NULL }, .code = BELAY_CANCELLED };
    bool is_alone = true;

    if (left_ms < LEAST_MS || !pg_can_join(batch)) {
        return send_alone(store, &member.item, left_ms, out_answer, err);
    }
    (void)pthread_cond_init(&member.changed, &group->monotonic);
    (void)pthread_mutex_lock(&group->mutex);
    enter(group, &member);
    (void)pthread_mutex_unlock(&group->mutex);
    if (member.state == LEADS) {
        is_alone = member.next == NULL;
        if (is_alone) {
            member.code = send_alone(store, &member.item, left_ms, &member.item.answer, err);
        } else {
            send_group(store, &member);
        }
        (void)pthread_mutex_lock(&group->mutex);
        finish(group, &member);
        (void)pthread_mutex_unlock(&group->mutex);
    } else {
        is_alone = false;
    }
    (void)pthread_cond_destroy(&member.changed);
    if (!is_alone && member.code == BELAY_CANCELLED) {
        return send_alone(store, &member.item, left_ms, out_answer, err);
    }
    *out_answer = member.item.answer;
    return is_alone || member.code == BELAY_OK
               ? member.code
               : error_set(err, member.code,
                           "the connection to PostgreSQL was lost, or it did not answer in time");
}
