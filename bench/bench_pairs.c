/*
 * Acquire+release pairs a second of one process, one key after the other.
 *
 *     bench_pairs STORE_URL SECONDS FIRST COUNT
 *
 * goes round the keys bench-FIRST, ... of COUNT, and prints the rate.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "belay.h"

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
    unsigned long first, count, done = 0;
    double seconds, began;

    if (argc != 5) {
        (void)fprintf(stderr, "usage: bench_pairs STORE_URL SECONDS FIRST COUNT\n");
        return 64;
    }
    options.store_url = argv[1];
    seconds = strtod(argv[2], NULL);
    first = strtoul(argv[3], NULL, 10);
    count = strtoul(argv[4], NULL, 10);

    code = belay_client_open(&options, &client, &err);
    began = now_s();
    while (code == BELAY_OK && now_s() - began < seconds) {
        char key[32];

        (void)snprintf(key, sizeof key, "bench-%07lu", first + done % count);
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
