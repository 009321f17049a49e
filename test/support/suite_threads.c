/* Many threads at once: no write is lost, no lock is granted twice. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/suite_kit.h"

enum { N_THREADS = 8, N_ROUNDS = 20 };

struct worker {
    struct belay_store *store;
    int number;
    bool failed;
    uint64_t *tokens;
    size_t n_tokens;
};

/* Add one to the number in the record, if it is still the one that was read. */
static bool increment(struct belay_store *store, enum belay_code *out_code)
{
    const char *key = "counter";
    struct belay_record seen;
    struct belay_commit done = { 0 };
    char text[24];
    struct belay_meta entry = { "n", text };
    struct belay_record values = { .metadata = &entry, .n_metadata = 1 };
    struct belay_write write = { .key = key,
                                 .condition = BELAY_IF_UNCHANGED,
                                 .set = BELAY_SET_ACQUIRED | BELAY_SET_METADATA,
                                 .values = &values };
    int64_t now;

    if (store->ops->get(store, &key, 1, &seen, &now, NULL) != BELAY_OK) {
        return false;
    }
    (void)snprintf(text, sizeof text, "%ld",
                   1 + (meta_of(&seen, "n") == NULL ? 0 : strtol(meta_of(&seen, "n"), NULL, 10)));
    write.revision = seen.revision;
    *out_code =
        store->ops->commit(store, &(struct belay_batch){ .writes = &write, .n_writes = 1 }, &done, NULL);
    belay_commit_release(&done);
    belay_record_release(&seen);
    return *out_code == BELAY_OK || *out_code == BELAY_REFUSED;
}

static void *count_up(void *context)
{
    struct worker *worker = context;
    int done = 0;

    for (int tries = 0; done < N_ROUNDS && !worker->failed; tries++) {
        enum belay_code code = BELAY_BUG;

        worker->failed = !increment(worker->store, &code) || tries > 100000;
        done += code == BELAY_OK;
    }
    return NULL;
}

/* Try to take the lock and give it back, noting the tokens. */
static void *take_turns(void *context)
{
    struct worker *worker = context;
    struct belay_store *store = worker->store;

    for (int tries = 0; worker->n_tokens < N_ROUNDS && !worker->failed; tries++) {
        char id[32];
        struct belay_commit done = { 0 };
        struct belay_record values = { .lock_id = id,
                                       .owner = "o",
                                       .owner_name = "n",
                                       .ttl_ms = LONG_MS,
                                       .outcome = BELAY_OUTCOME_COMPLETED };
        struct belay_write write = {
            .key = "k", .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER, .values = &values, .lock_id = id
        };
        struct belay_batch batch = { .writes = &write, .n_writes = 1 };
        enum belay_code code;

        (void)snprintf(id, sizeof id, "%d-%zu", worker->number, worker->n_tokens);
        code = store->ops->commit(store, &batch, &done, NULL);
        if (code == BELAY_OK) {
            worker->tokens[worker->n_tokens++] = done.token;
            belay_commit_release(&done);
            write.condition = BELAY_IF_HELD_BY;
            write.set = BELAY_SET_RELEASED;
            worker->failed = store->ops->commit(store, &batch, &done, NULL) != BELAY_OK;
        } else {
            worker->failed = code != BELAY_REFUSED || tries > 100000;
        }
        belay_commit_release(&done);
    }
    return NULL;
}

/* Run `work` in all threads, on one handle for all or on one for each. */
static bool run_all(struct suite *s, void *(*work)(void *), bool shared, struct worker workers[N_THREADS])
{
    pthread_t threads[N_THREADS];
    int n = 0;

    for (int i = 0; i < N_THREADS; i++) {
        workers[i] = (struct worker){ .store = shared ? s->a : suite_open(s), .number = i };
        workers[i].tokens = suite_alloc(s, N_ROUNDS * sizeof(uint64_t));
        CHECK(workers[i].store != NULL);
    }
    while (n < N_THREADS && pthread_create(&threads[n], NULL, work, &workers[n]) == 0) {
        n++;
    }
    for (int i = 0; i < n; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    CHECK_INT(n, N_THREADS);
    for (int i = 0; i < N_THREADS; i++) {
        CHECK(!workers[i].failed);
    }
    return true;
}

static bool eight_count(struct suite *s, bool shared)
{
    struct worker workers[N_THREADS];

    if (!run_all(s, count_up, shared, workers)) {
        return false;
    }
    CHECK_TEXT(meta_of(see(s, "counter"), "n"), suite_text(s, "%d", N_THREADS * N_ROUNDS));
    return true;
}

static bool eight_handles_lose_no_increment(struct suite *s)
{
    return eight_count(s, false);
}

static bool eight_threads_on_one_handle_lose_no_increment(struct suite *s)
{
    return eight_count(s, true);
}

static bool eight_handles_never_get_the_same_token(struct suite *s)
{
    struct worker workers[N_THREADS];

    if (!run_all(s, take_turns, false, workers)) {
        return false;
    }
    for (int i = 0; i < N_THREADS; i++) {
        for (size_t a = 0; a < N_ROUNDS; a++) {
            CHECK(a == 0 || workers[i].tokens[a] > workers[i].tokens[a - 1]);
            for (int j = 0; j < i; j++) {
                for (size_t b = 0; b < N_ROUNDS; b++) {
                    CHECK(workers[i].tokens[a] != workers[j].tokens[b]);
                }
            }
        }
    }
    CHECK(!see(s, "k")->held);
    return true;
}

const struct suite_case suite_threads[] = {
    CASE_IF("L1", eight_handles_lose_no_increment, SUITE_LACKS_METADATA),
    CASE_IF("L1", eight_threads_on_one_handle_lose_no_increment, SUITE_LACKS_METADATA),
    CASE_IF("L2", eight_handles_never_get_the_same_token, SUITE_LACKS_TOKENS),
    { NULL, NULL, 0, NULL },
};
