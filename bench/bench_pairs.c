/*
 * Acquire+release pairs a second of one process, one key after the other.
 *
 *     bench_pairs STORE_URL SECONDS KEYS RECORDS [CLIENTS]
 *
 * goes round KEYS keys, in no order that a page cache would like, that are
 * spread evenly over bench-0000000 up to RECORDS, and prints the rate. With CLIENTS, so
 * many threads do that, each with a client and keys of its own.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "belay.h"

/* A prime: multiples of it visit every key of a round once. */
#define SCATTER 2654435761UL

static double now_s(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static enum belay_code one_pair(struct belay_client *client, const char *key, struct belay_error *err)
{
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_lock *lock = NULL;
    enum belay_code code;

    options.ttl_ms = 60000;
    code = belay_lock_acquire(client, key, &options, &lock, err);
    if (code == BELAY_OK) {
        code = belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, err);
        belay_lock_free(lock);
    }
    return code;
}

struct worker {
    pthread_t thread;
    struct belay_client *client; /* owned */
    unsigned long first;         /* of its keys; the next is n_workers further */
    unsigned long done;
    struct belay_error err;
    enum belay_code code;
};

static struct {
    double until_s;
    unsigned long keys, step, n_workers;
} load;

static void *work(void *context)
{
    struct worker *worker = context;
    unsigned long mine = load.keys / load.n_workers;

    while (worker->code == BELAY_OK && now_s() < load.until_s) {
        char key[32];

        (void)snprintf(key, sizeof key, "bench-%07lu",
                       (worker->done * SCATTER % mine * load.n_workers + worker->first) * load.step);
        worker->code = one_pair(worker->client, key, &worker->err);
        worker->done++;
    }
    return NULL;
}

/* Every client opens before the first begins. Returns whether all went well. */
static bool run(struct worker *workers, const char *url, double seconds)
{
    struct belay_client_options options = BELAY_CLIENT_OPTIONS_INIT;
    unsigned long done = 0;
    double began;
    bool ok = true;

    options.store_url = url;
    for (unsigned long i = 0; ok && i < load.n_workers; i++) {
        workers[i].first = i;
        workers[i].code = belay_client_open(&options, &workers[i].client, &workers[i].err);
        ok = workers[i].code == BELAY_OK &&
             one_pair(workers[i].client, "bench-first", &workers[i].err) == BELAY_OK;
    }
    began = now_s();
    load.until_s = began + seconds;
    for (unsigned long i = 1; ok && i < load.n_workers; i++) {
        ok = pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0;
    }
    if (ok) {
        (void)work(&workers[0]);
    }
    for (unsigned long i = 0; ok && i < load.n_workers; i++) {
        ok = (i == 0 || pthread_join(workers[i].thread, NULL) == 0) && workers[i].code == BELAY_OK;
        done += workers[i].done;
    }
    if (ok) {
        (void)printf("%.0f\n", (double)done / (now_s() - began));
    }
    return ok;
}

int main(int argc, char **argv)
{
    struct worker *workers;
    bool ok;

    if (argc < 5 || argc > 6) {
        (void)fprintf(stderr, "usage: bench_pairs STORE_URL SECONDS KEYS RECORDS [CLIENTS]\n");
        return 64;
    }
    load.keys = strtoul(argv[3], NULL, 10);
    load.step = load.keys == 0 ? 0 : strtoul(argv[4], NULL, 10) / load.keys;
    load.n_workers = argc > 5 ? strtoul(argv[5], NULL, 10) : 1;
    if (load.step == 0 || load.n_workers == 0 || load.n_workers > load.keys) {
        (void)fprintf(stderr,
                      "bench_pairs: KEYS must be between 1 and RECORDS, CLIENTS between 1 and KEYS\n");
        return 64;
    }
    workers = calloc(load.n_workers, sizeof *workers);
    if (workers == NULL) {
        return 1;
    }
    ok = run(workers, argv[1], strtod(argv[2], NULL));
    for (unsigned long i = 0; i < load.n_workers; i++) {
        if (!ok && workers[i].err.text[0] != '\0') {
            (void)fprintf(stderr, "bench_pairs: %s\n", workers[i].err.text);
        }
        belay_client_close(workers[i].client);
        belay_error_release(&workers[i].err);
    }
    free(workers);
    return ok ? 0 : 1;
}
