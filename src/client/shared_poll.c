#include "client/shared_poll.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"

enum { KEYS_AT_ONCE = 64 };

void look_release(struct look *look)
{
    for (size_t i = 0; i < look->n; i++) {
        belay_record_release(&look->records[i]);
    }
    look->n = 0;
    belay_error_release(&look->err);
}

void looker_release(struct looker *looker)
{
    if (looker->news != NULL) {
        look_release(looker->news);
        free(looker->news);
        looker->news = NULL;
    }
}

void lookout_init(struct lookout *lookout)
{
    (void)pthread_mutex_init(&lookout->mutex, NULL);
    (void)pthread_cond_init(&lookout->answered, NULL);
    lookout->first = NULL;
}

void lookout_release(struct lookout *lookout)
{
    (void)pthread_cond_destroy(&lookout->answered);
    (void)pthread_mutex_destroy(&lookout->mutex);
}

void lookout_enter(struct lookout *lookout, struct looker *looker, const char *const *keys, size_t n,
                   int64_t due_ms)
{
    looker_release(looker);
    memcpy(looker->keys, keys, n * sizeof *keys);
    looker->n = n;
    looker->due_ms = due_ms;
    looker->span_ms = due_ms - clock_boot_ms();
    (void)pthread_mutex_lock(&lookout->mutex);
    looker->in = true;
    looker->previous = NULL;
    looker->next = lookout->first;
    if (looker->next != NULL) {
        looker->next->previous = looker;
    }
    lookout->first = looker;
    (void)pthread_mutex_unlock(&lookout->mutex);
}

void lookout_leave(struct lookout *lookout, struct looker *looker)
{
    if (!looker->in) {
        return;
    }
    (void)pthread_mutex_lock(&lookout->mutex);
    while (looker->coming) {
        (void)pthread_cond_wait(&lookout->answered, &lookout->mutex);
    }
    looker->in = false;
    if (looker->next != NULL) {
        looker->next->previous = looker->previous;
    }
    if (looker->previous != NULL) {
        looker->previous->next = looker->next;
    } else {
        lookout->first = looker->next;
    }
    (void)pthread_mutex_unlock(&lookout->mutex);
    if (looker->news != NULL && clock_boot_ms() < looker->due_ms) {
        looker_release(looker);
    }
}

/* ---- looking for all ---- */

struct survey {
    const char *keys[KEYS_AT_ONCE]; /* borrowed from who asks, and from who is told */
    size_t n;
    struct looker *told;
    struct belay_record *records; /* owned, n of them */
};

static bool find_key(const struct survey *survey, const char *key, size_t *out_at)
{
    for (size_t i = 0; i < survey->n; i++) {
        if (strcmp(survey->keys[i], key) == 0) {
            *out_at = i;
            return true;
        }
    }
    return false;
}

/* False if there is no room for all of them. */
static bool add_keys(struct survey *survey, const char *const *keys, size_t n)
{
    size_t before = survey->n;
    size_t at;

    for (size_t i = 0; i < n; i++) {
        if (find_key(survey, keys[i], &at)) {
            continue;
        }
        if (survey->n == KEYS_AT_ONCE) {
            survey->n = before;
            return false;
        }
        survey->keys[survey->n++] = keys[i];
    }
    return true;
}

static bool has_all_keys(const struct survey *survey, const struct looker *looker)
{
    size_t at;

    for (size_t i = 0; i < looker->n; i++) {
        if (!find_key(survey, looker->keys[i], &at)) {
            return false;
        }
    }
    return true;
}

/*
 * Who waits for keys that are read anyway is told for nothing, if what it is told
 * will still be news when it is due. Other keys are read a little early, so that
 * from then on their waiters are due together.
 */
static bool is_to_be_told(const struct survey *survey, const struct looker *looker, int64_t poll_ms,
                          int64_t now_ms)
{
    int64_t soon_ms = looker->span_ms / 4;

    if (looker->news != NULL || looker->coming) {
        return false;
    }
    if (has_all_keys(survey, looker)) {
        return looker->due_ms <= now_ms + (soon_ms > poll_ms ? soon_ms : poll_ms);
    }
    return looker->due_ms <= now_ms + poll_ms / 4;
}

/* With the mutex held. */
static void gather(struct lookout *lookout, struct survey *survey, int64_t poll_ms)
{
    int64_t now_ms = clock_boot_ms();

    for (struct looker *looker = lookout->first; looker != NULL; looker = looker->next) {
        if (is_to_be_told(survey, looker, poll_ms, now_ms) && add_keys(survey, looker->keys, looker->n)) {
            looker->coming = true;
            looker->next_told = survey->told;
            survey->told = looker;
        }
    }
}

/* With the mutex held. Who cannot be told for want of memory looks by itself. */
static void tell(const struct survey *survey, const struct look *seen, struct looker *looker)
{
    struct look *news = looker->news = calloc(1, sizeof *news);
    bool ok = true;

    if (news == NULL) {
        return;
    }
    news->code = seen->code;
    news->store_now_ms = seen->store_now_ms;
    news->asked_ms = seen->asked_ms;
    news->seen_ms = seen->seen_ms;
    if (seen->code != BELAY_OK) {
        (void)error_set(&news->err, seen->code, "%s", seen->err.text);
    }
    for (size_t i = 0; seen->code == BELAY_OK && ok && i < looker->n; i++) {
        size_t at = 0;

        ok = find_key(survey, looker->keys[i], &at) &&
             belay_record_copy(&survey->records[at], &news->records[i]);
        news->n += ok ? 1 : 0;
    }
    if (!ok) {
        looker_release(looker);
    }
}

static void ask(struct belay_store *store, struct survey *survey, struct look *out)
{
    survey->records = calloc(survey->n, sizeof *survey->records);
    out->asked_ms = clock_boot_ms();
    if (survey->records == NULL) {
        out->code = error_no_memory(&out->err);
    } else {
        out->code =
            store->ops->get(store, survey->keys, survey->n, survey->records, &out->store_now_ms, &out->err);
    }
    out->seen_ms = clock_boot_ms();
}

void lookout_look(struct lookout *lookout, struct belay_store *store, struct looker *looker,
                  const char *const *keys, size_t n, struct look *out)
{
    struct survey survey = { .n = 0 };

    if (looker->news != NULL) {
        *out = *looker->news;
        free(looker->news);
        looker->news = NULL;
        return;
    }
    memset(out, 0, sizeof *out);
    (void)add_keys(&survey, keys, n);
    (void)pthread_mutex_lock(&lookout->mutex);
    gather(lookout, &survey, store->ops->capabilities(store).poll_ms);
    (void)pthread_mutex_unlock(&lookout->mutex);
    ask(store, &survey, out);
    (void)pthread_mutex_lock(&lookout->mutex);
    for (struct looker *one = survey.told; one != NULL; one = one->next_told) {
        tell(&survey, out, one);
        one->coming = false;
    }
    (void)pthread_cond_broadcast(&lookout->answered);
    (void)pthread_mutex_unlock(&lookout->mutex);
    if (out->code == BELAY_OK) {
        /* They differ from each other, so they stand at the front in their order. */
        out->n = n;
        memcpy(out->records, survey.records, n * sizeof *survey.records);
        memset(survey.records, 0, n * sizeof *survey.records);
    }
    for (size_t i = 0; survey.records != NULL && i < survey.n; i++) {
        belay_record_release(&survey.records[i]);
    }
    free(survey.records);
}
