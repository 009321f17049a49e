/* Waiting until a lock is free, without taking it. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/saturate.h"
#include "client/client.h"

enum { LOOK_MS = 1000, AGAIN_MS = 1000 };

struct free_wait {
    struct belay_client *client;
    const struct belay_lock_options *options;
    struct client_request request;
    struct poller poller;
    char told[BELAY_ID_MAX + 1];
    char seen[BELAY_ID_MAX + 1]; /* the holder at the last look */
    int early_looks;             /* since then */
    int64_t span_ms;             /* how long it sleeps before the next look, at most */
    struct outage outage;
};

/* The first looks at a holder come soon, and then ever later; as in src/lock/acquire.c. */
static int64_t early_span_ms(struct free_wait *wait, const struct belay_store_capabilities *capabilities)
{
    int64_t span_ms = capabilities->first_poll_ms;

    for (int i = 0; i < wait->early_looks && span_ms < capabilities->poll_ms; i++) {
        span_ms *= 2;
    }
    if (span_ms == 0 || span_ms >= capabilities->poll_ms) {
        return capabilities->poll_ms;
    }
    wait->early_looks++;
    return span_ms;
}

/* The store, if it wakes waiters; through a server, too, that owns the store's file. */
static struct belay_store *waker(const struct belay_client *client)
{
    return client->store != NULL && client->store->ops->wait != NULL ? client->store : NULL;
}

/* How long to sleep without being woken: as seldom as the store wants, and not all at the same time. */
static int64_t look_span_ms(struct free_wait *wait)
{
    const struct belay_store_capabilities *capabilities = &wait->request.op.capabilities;
    uint64_t chance = atomic_fetch_add(&wait->client->seed, 0x9e3779b97f4a7c15U) >> 33;
    int64_t span_ms;

    if (waker(wait->client) != NULL || capabilities->poll_ms <= 0) {
        return LOOK_MS;
    }
    span_ms = early_span_ms(wait, capabilities);
    assert(span_ms > 0 && span_ms <= capabilities->poll_ms);
    return span_ms - (int64_t)(chance % (uint64_t)(span_ms / 4 + 1));
}

/* Another holder than at the last look: the lock changes hands. */
static void note_holder(struct free_wait *wait, const char *lock_id)
{
    if (lock_id != NULL && strncmp(wait->seen, lock_id, BELAY_ID_MAX) != 0) {
        (void)snprintf(wait->seen, sizeof wait->seen, "%s", lock_id); /* other programs' may be longer */
        wait->early_looks = 0;
    }
}

/* on_waiting is called for each new holder. */
static void tell_in_the_way(struct free_wait *wait, const struct belay_info *info)
{
    struct belay_wait_info waiting = { .holder = info, .attempt = 1 };
    const char *id = info == NULL || info->lock_id == NULL ? "?" : info->lock_id;

    if (wait->options->on_waiting != NULL && info != NULL && strncmp(wait->told, id, BELAY_ID_MAX) != 0) {
        waiting.waited_ms = clock_boot_ms() - wait->request.op.began_ms;
        waiting.retry_ms = wait->span_ms;
        wait->options->on_waiting(wait->options->context, &waiting);
        (void)snprintf(wait->told, sizeof wait->told, "%s", id);
    }
}

/* The lock is held, as `err` says: plan the next look, and report a new holder. */
static void on_held(struct free_wait *wait, const struct belay_error *err)
{
    if (err->holder != NULL) {
        note_holder(wait, err->holder->lock_id);
    }
    wait->span_ms = look_span_ms(wait);
    tell_in_the_way(wait, err->holder);
}

static void sleep_or_wake(struct free_wait *wait, uint32_t heard, int64_t ms)
{
    struct belay_client *client = wait->client;
    struct belay_store *store = waker(client);
    const struct op_request *request = &wait->request.op;
    const char *keys[OP_KEYS_MAX];

    assert(ms > 0 && !wait->poller.in);
    if (store != NULL) {
        store->ops->wait(store, NULL, heard, ms, wait->options->cancel);
        return;
    }
    shared_poll_enter(&client->shared_poll, &wait->poller, keys, op_request_keys(request, keys),
                      clock_boot_ms() + ms);
    client_sleep(ms, wait->options->cancel);
    shared_poll_leave(&client->shared_poll, &wait->poller);
}

/* BELAY_OK: it is free. `err` is not NULL. */
static enum belay_code wait_until_free(struct free_wait *wait, struct belay_error *err)
{
    struct belay_client *client = wait->client;
    const struct belay_lock_options *options = wait->options;
    const struct op_request *request = &wait->request.op;
    bool may_retry = false;

    for (;;) {
        struct belay_store *store = waker(client);
        uint32_t heard = store == NULL ? 0 : store->ops->listen(store, NULL);
        int64_t left_ms = options->wait_ms < 0
                              ? INT64_MAX
                              : add_saturated(request->began_ms, options->wait_ms) - clock_boot_ms();
        int64_t sleep_ms = LOOK_MS;
        enum belay_code code;

        ROUTE(&client->route, code, err, check_free, request, &wait->poller, &sleep_ms, options->cancel);
        if (code == BELAY_HELD) {
            client_warn_answers(client, &wait->outage);
            may_retry = !client_capabilities(client).is_local; /* a server restarts, and a file does not */
            on_held(wait, err);
        } else if (code == BELAY_UNREACHABLE && may_retry) {
            client_warn_outage(client, &wait->outage, code, err->text);
        } else if (code != BELAY_CANCELLED) {
            return code;
        }
        if (left_ms <= 0 && code != BELAY_CANCELLED) {
            return code;
        }
        if (belay_cancel_requested(options->cancel)) {
            return error_set(err, BELAY_CANCELLED, "cancelled while waiting for lock '%s'", request->key);
        }
        if (code == BELAY_UNREACHABLE) {
            client_sleep(left_ms < AGAIN_MS ? left_ms : AGAIN_MS, options->cancel);
            continue;
        }
        sleep_ms = sleep_ms < 1 ? 1 : sleep_ms > wait->span_ms ? wait->span_ms : sleep_ms;
        sleep_or_wake(wait, heard, sleep_ms < left_ms ? sleep_ms : left_ms);
    }
}

enum belay_code belay_wait_until_free(struct belay_client *client, const char *key,
                                      const struct belay_lock_options *options, struct belay_error *err)
{
    struct free_wait wait = { .client = client, .options = options };
    struct belay_error unheard = BELAY_ERROR_INIT; /* for a caller that wants no text */
    enum belay_code code = request_init_wait(&wait.request, client, key, options, err);

    if (code != BELAY_OK) {
        return code;
    }
    if (client->enabled) {
        code = wait_until_free(&wait, err == NULL ? &unheard : err);
    } else {
        client_warn(client, "locking is switched off: '%s' counts as free", key);
    }
    belay_error_release(&unheard);
    poller_release(&wait.poller);
    return code;
}
