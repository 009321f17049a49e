/*
 * Fill a store: bench-0000000 up to COUNT released locks, and ten held ones, held-0 to held-9.
 *
 *     bench_fill STORE_URL COUNT
 */
#include <stdio.h>
#include <stdlib.h>

#include "belay.h"

enum { HELD = 10 };

static enum belay_code fill_one(struct belay_client *client, const char *key, bool keep,
                                struct belay_error *err)
{
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_lock *lock = NULL;
    enum belay_code code;

    options.ttl_ms = 3600000;
    code = belay_lock_acquire(client, key, &options, &lock, err);
    if (code == BELAY_OK && !keep) {
        code = belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, err);
    }
    belay_lock_free(lock);
    return code;
}

int main(int argc, char **argv)
{
    struct belay_client_options options = BELAY_CLIENT_OPTIONS_INIT;
    struct belay_client *client = NULL;
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_code code;
    unsigned long count;

    if (argc != 3) {
        (void)fprintf(stderr, "usage: bench_fill STORE_URL COUNT\n");
        return 64;
    }
    options.store_url = argv[1];
    count = strtoul(argv[2], NULL, 10);
    code = belay_client_open(&options, &client, &err);
    for (unsigned long i = 0; code == BELAY_OK && i < count + HELD; i++) {
        char key[32];

        (void)snprintf(key, sizeof key, i < count ? "bench-%07lu" : "held-%lu", i < count ? i : i - count);
        code = fill_one(client, key, i >= count, &err);
    }
    if (code != BELAY_OK) {
        (void)fprintf(stderr, "bench_fill: %s\n", err.text);
    }
    belay_client_close(client);
    belay_error_release(&err);
    return code == BELAY_OK ? 0 : 1;
}
