#include "client/shared_poll.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "client/client.h"

enum { KEYS_AT_ONCE = 64 };
static_assert((int)OP_KEYS_MAX <= (int)KEYS_AT_ONCE, "the keys of one poller fit");

void poll_result_release(struct poll_result *result)
{
    for (size_t i = 0; i < result->n; i++) {
        belay_record_release(&result->records[i]);
    }
    free(result->records);
    result->records = NULL;
    result->n = 0;
    belay_error_release(&result->err);
}

static void drop_result(struct poller *poller)
{
    if (poller->result != NULL) {
        poll_result_release(poller->result);
        free(poller->result);
        poller->result = NULL;
    }
}

void poller_release(struct poller *poller)
{
    assert(!poller->in && !poller->coming);
    drop_result(poller);
}

void shared_poll_init(struct shared_poll *poll)
{
    (void)pthread_mutex_init(&poll->mutex, NULL);
    (void)pthread_cond_init(&poll->answered, NULL);
    poll->first = NULL;
}

void shared_poll_release(struct shared_poll *poll)
{
    assert(poll->first == NULL);
    (void)pthread_cond_destroy(&poll->answered);
    (void)pthread_mutex_destroy(&poll->mutex);
}

void shared_poll_enter(struct shared_poll *poll, struct poller *poller, const char *const *keys, size_t n,
                       int64_t due_ms)
{
    assert(!poller->in && !poller->coming && n <= OP_KEYS_MAX);
    poller_release(poller);
    poller->keys = keys;
    poller->n = n;
    poller->due_ms = due_ms;
    poller->span_ms = due_ms - clock_boot_ms();
    (void)pthread_mutex_lock(&poll->mutex);
    poller->in = true;
    poller->previous = NULL;
    poller->next = poll->first;
    if (poller->next != NULL) {
        poller->next->previous = poller;
    }
    poll->first = poller;
    (void)pthread_mutex_unlock(&poll->mutex);
}

void shared_poll_leave(struct shared_poll *poll, struct poller *poller)
{
    if (!poller->in) {
        return;
    }
    (void)pthread_mutex_lock(&poll->mutex);
    while (poller->coming) {
        (void)pthread_cond_wait(&poll->answered, &poll->mutex);
    }
    assert(poller->in && (poller->previous != NULL || poll->first == poller));
    poller->in = false;
    if (poller->next != NULL) {
        poller->next->previous = poller->previous;
    }
    if (poller->previous != NULL) {
        poller->previous->next = poller->next;
    } else {
        poll->first = poller->next;
    }
    (void)pthread_mutex_unlock(&poll->mutex);
    if (poller->result != NULL && clock_boot_ms() < poller->due_ms) {
        poller_release(poller);
    }
}

/* ---- one read for all ---- */

struct shared_read {
    const char *keys[KEYS_AT_ONCE]; /* borrowed from the pollers */
    size_t n;
    struct poller *served;
    struct belay_record *records; /* owned, n of them */
};

static bool find_key(const struct shared_read *read, const char *key, size_t *out_at)
{
    for (size_t i = 0; i < read->n; i++) {
        if (strcmp(read->keys[i], key) == 0) {
            *out_at = i;
            return true;
        }
    }
    return false;
}

/* False if there is no room for all of them. */
static bool add_keys(struct shared_read *read, const char *const *keys, size_t n)
{
    size_t before = read->n;
    size_t at;

    for (size_t i = 0; i < n; i++) {
        if (find_key(read, keys[i], &at)) {
            continue;
        }
        if (read->n == KEYS_AT_ONCE) {
            read->n = before;
            return false;
        }
        read->keys[read->n++] = keys[i];
    }
    return true;
}

static bool has_all_keys(const struct shared_read *read, const struct poller *poller)
{
    size_t at;

    for (size_t i = 0; i < poller->n; i++) {
        if (!find_key(read, poller->keys[i], &at)) {
            return false;
        }
    }
    return true;
}

/*
 * A poller whose keys are read anyway gets the result, unless it would be too old when the
 * poller is due. Other keys are read a little early, so that from then on their waiters are
 * due together.
 */
static bool is_to_be_served(const struct shared_read *read, const struct poller *poller, int64_t poll_ms,
                            int64_t now_ms)
{
    int64_t soon_ms = poller->span_ms / 4;

    if (poller->result != NULL || poller->coming) {
        return false;
    }
    if (has_all_keys(read, poller)) {
        return poller->due_ms <= now_ms + (soon_ms > poll_ms ? soon_ms : poll_ms);
    }
    return poller->due_ms <= now_ms + poll_ms / 4;
}

/* With the mutex held. */
static void gather_due_pollers(struct shared_poll *poll, struct shared_read *read, int64_t poll_ms)
{
    int64_t now_ms = clock_boot_ms();

    for (struct poller *poller = poll->first; poller != NULL; poller = poller->next) {
        if (is_to_be_served(read, poller, poll_ms, now_ms) && add_keys(read, poller->keys, poller->n)) {
            assert(poller->in && !poller->coming);
            poller->coming = true;
            poller->next_served = read->served;
            read->served = poller;
        }
    }
}

/* With the mutex held. Without memory the poller reads the store itself. */
static void leave_result(const struct shared_read *read, const struct poll_result *seen,
                         struct poller *poller)
{
    struct poll_result *result;
    bool ok = true;

    assert(poller->in && poller->coming && poller->result == NULL);
    result = poller->result = calloc(1, sizeof *result);
    if (result == NULL) {
        return;
    }
    result->code = seen->code;
    result->store_now_ms = seen->store_now_ms;
    result->asked_ms = seen->asked_ms;
    result->seen_ms = seen->seen_ms;
    if (seen->code != BELAY_OK) {
        (void)error_set(&result->err, seen->code, "%s", seen->err.text);
    }
    if (seen->code == BELAY_OK) {
        result->records = calloc(poller->n, sizeof *result->records);
        ok = result->records != NULL;
    }
    for (size_t i = 0; seen->code == BELAY_OK && ok && i < poller->n; i++) {
        size_t at = 0;

        ok = find_key(read, poller->keys[i], &at) &&
             belay_record_copy(&read->records[at], &result->records[i]);
        result->n += ok ? 1 : 0;
    }
    if (!ok) {
        drop_result(poller);
    }
}

static void read_shared(struct belay_store *store, struct shared_read *read, struct poll_result *out)
{
    read->records = calloc(read->n, sizeof *read->records);
    out->asked_ms = clock_boot_ms();
    if (read->records == NULL) {
        out->code = error_no_memory(&out->err);
    } else {
        out->code = store_get(store, read->keys, read->n, read->records, &out->store_now_ms, &out->err);
    }
    out->seen_ms = clock_boot_ms();
}

void shared_poll_read(struct shared_poll *poll, struct belay_store *store, struct poller *poller,
                      const char *const *keys, size_t n, struct poll_result *out)
{
    struct shared_read read = { .n = 0 };

    assert(!poller->in);
    if (poller->result != NULL) {
        *out = *poller->result;
        free(poller->result);
        poller->result = NULL;
        return;
    }
    memset(out, 0, sizeof *out);
    assert(n > 0 && n <= OP_KEYS_MAX);
    (void)add_keys(&read, keys, n);
    assert(read.n == n); /* they differ from each other */
    (void)pthread_mutex_lock(&poll->mutex);
    gather_due_pollers(poll, &read, store->ops->capabilities(store).poll_ms);
    (void)pthread_mutex_unlock(&poll->mutex);
    read_shared(store, &read, out);
    (void)pthread_mutex_lock(&poll->mutex);
    for (struct poller *one = read.served; one != NULL; one = one->next_served) {
        assert(one->coming && one != poller);
        leave_result(&read, out, one);
        one->coming = false;
    }
    (void)pthread_cond_broadcast(&poll->answered);
    (void)pthread_mutex_unlock(&poll->mutex);
    if (out->code == BELAY_OK) {
        /* They differ from each other, so they stand at the front in their order. */
        for (size_t i = n; i < read.n; i++) {
            belay_record_release(&read.records[i]);
        }
        out->n = n;
        out->records = read.records;
    } else {
        free(read.records); /* after a fault they are empty */
    }
}
