#include "support/api_kit.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { POLL_MS = 10 };

struct belay_client *api_open(const struct api *api)
{
    struct belay_client_options options = BELAY_CLIENT_OPTIONS_INIT;
    struct belay_client *client = NULL;
    struct belay_error err = BELAY_ERROR_INIT;

    options.store_url = api->place->url;
    if (belay_client_open(&options, &client, &err) != BELAY_OK) {
        fail_msg("%s: %s", api->place->url, err.text);
    }
    belay_error_release(&err);
    return client;
}

int api_begin(void **state)
{
    static int number;
    struct api *api = calloc(1, sizeof *api);

    if (api == NULL) {
        return -1;
    }
    api->place = *state;
    (void)snprintf(api->key, sizeof api->key, "case-%ld-%d", (long)getpid(), ++number);
    api->client = api_open(api);
    api->rival = api_open(api);
    *state = api;
    return 0;
}

int api_end(void **state)
{
    struct api *api = *state;

    belay_client_close(api->client);
    belay_client_close(api->rival);
    belay_error_release(&api->err);
    free(api);
    return 0;
}

const char *api_key(const struct api *api, const char *more)
{
    static _Thread_local char key[BELAY_KEY_MAX + 64];

    (void)snprintf(key, sizeof key, "%.200s%s", api->key, more);
    return key;
}

static struct belay_lock *take(struct belay_client *client, const char *key, const char *lock_id,
                               int64_t ttl_ms, int64_t wait_ms)
{
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_lock *lock = NULL;

    options.ttl_ms = ttl_ms;
    options.lock_id = lock_id;
    options.wait_ms = wait_ms;
    if (belay_lock_acquire(client, key, &options, &lock, &err) != BELAY_OK) {
        fail_msg("acquire '%s': %s", key, err.text);
    }
    belay_error_release(&err);
    return lock;
}

struct belay_lock *api_take(struct belay_client *client, const char *key, const char *lock_id, int64_t ttl_ms)
{
    return take(client, key, lock_id, ttl_ms, 0);
}

struct belay_lock *api_take_over(struct belay_client *client, const char *key, const char *lock_id)
{
    return take(client, key, lock_id, API_LONG_MS, API_PATIENCE_MS);
}

struct belay_info *api_look(struct belay_client *client, const char *key)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_info *info = NULL;

    if (belay_get(client, key, &info, &err) != BELAY_OK) {
        fail_msg("get '%s': %s", key, err.text);
    }
    belay_error_release(&err);
    return info;
}

bool api_await(bool (*is_so)(void *context), void *context)
{
    const struct timespec pause = { 0, POLL_MS * 1000000 };
    int64_t end_ms = belay_now_boot_ms() + API_PATIENCE_MS;

    while (!is_so(context)) {
        if (belay_now_boot_ms() > end_ms) {
            return false;
        }
        (void)nanosleep(&pause, NULL);
    }
    return true;
}

struct looking {
    struct belay_client *client;
    const char *key;
    size_t n;
};

static bool has_line(void *context)
{
    struct looking *looking = context;
    struct belay_info *info = api_look(looking->client, looking->key);
    size_t n = info->n_waiters;

    belay_info_free(info);
    return n == looking->n;
}

void api_await_line(struct belay_client *client, const char *key, size_t n)
{
    struct looking looking = { client, key, n };

    if (!api_await(has_line, &looking)) {
        fail_msg("the line of '%s' is never %zu long", key, n);
    }
}

static bool has_expired(void *context)
{
    struct looking *looking = context;
    struct belay_info *info = api_look(looking->client, looking->key);
    bool is_over = info->status == BELAY_STATUS_EXPIRED;

    belay_info_free(info);
    return is_over;
}

void api_await_expiry(struct belay_client *client, const char *key)
{
    struct looking looking = { client, key, 0 };

    if (!api_await(has_expired, &looking)) {
        fail_msg("the lease of '%s' never ends", key);
    }
}

static void *acquire(void *context)
{
    struct api_waiter *waiter = context;

    waiter->code = belay_lock_acquire(waiter->client, waiter->key, &waiter->options, &waiter->lock, NULL);
    return NULL;
}

void api_waiter_start(struct api_waiter *waiter)
{
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, acquire, waiter), 0);
    waiter->thread = thread;
}

void api_waiter_join(struct api_waiter *waiter)
{
    assert_int_equal(pthread_join(waiter->thread, NULL), 0);
}
