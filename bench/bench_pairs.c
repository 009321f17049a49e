/*
 * Acquire+release pairs a second of one process, one key after the other.
 *
 *     bench_pairs STORE_URL SECONDS KEYS RECORDS
 *
 * goes round KEYS keys, in no order that a page cache would like, that are
 * spread evenly over bench-0000000 up to RECORDS, and prints the rate.
 */
#include <inttypes.h>
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

int main(int argc, char **argv)
{
    struct belay_client_options options = BELAY_CLIENT_OPTIONS_INIT;
    struct belay_client *client = NULL;
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_code code;
    unsigned long keys, step, done = 0;
    double seconds, began;

    if (argc != 5) {
        (void)fprintf(stderr, "usage: bench_pairs STORE_URL SECONDS KEYS RECORDS\n");
        return 64;
    }
    options.store_url = argv[1];
    seconds = strtod(argv[2], NULL);
    keys = strtoul(argv[3], NULL, 10);
    step = keys == 0 ? 0 : strtoul(argv[4], NULL, 10) / keys;
    if (step == 0) {
        (void)fprintf(stderr, "bench_pairs: KEYS must be between 1 and RECORDS\n");
        return 64;
    }

    code = belay_client_open(&options, &client, &err);
    began = now_s();
    while (code == BELAY_OK && now_s() - began < seconds) {
        char key[32];

        (void)snprintf(key, sizeof key, "bench-%07lu", done * SCATTER % keys * step);
        code = one_pair(client, key, &err);
        done++;
    }
    if (code == BELAY_OK) {
        (void)printf("%.0f\n", (double)done / (now_s() - began));
    } else {
        (void)fprintf(stderr, "bench_pairs: %s\n", err.text);
    }
    belay_client_close(client);
    belay_error_release(&err);
    return code == BELAY_OK ? 0 : 1;
}
