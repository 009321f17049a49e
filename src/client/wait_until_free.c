/* Waiting until a lock is free, without taking it. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "client/client.h"
#include "client/route.h"
#include "lock/decide.h"
#include "lock/info.h"

enum { LOOK_MS = 1000 };

struct free_wait {
    struct belay_client *client;
    const struct belay_lock_options *options;
    struct request request;
    const char *keys[OP_KEYS_MAX]; /* borrowed from `request` */
    size_t n_keys;
    struct looker looker;
    int64_t began_ms;
    char told[BELAY_ID_MAX + 1];
    char seen[BELAY_ID_MAX + 1]; /* the holder at the last look */
    int early_looks;             /* since then */
    int64_t span_ms;             /* how long it sleeps before the next look, at most */
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

/* How long to sleep without being woken: as seldom as the store wants, and not all at the same time. */
static int64_t look_span_ms(struct free_wait *wait)
{
    struct belay_client *client = wait->client;
    struct belay_store_capabilities capabilities = client->store->ops->capabilities(client->store);
    uint64_t chance = atomic_fetch_add(&client->seed, 0x9e3779b97f4a7c15U) >> 33;
    int64_t span_ms;

    if (client->remote != NULL || client->store->ops->wait != NULL || capabilities.poll_ms <= 0) {
        return LOOK_MS;
    }
    span_ms = early_span_ms(wait, &capabilities);
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

/* on_waiting hears who is in the way if that is news. */
static void tell_in_the_way(struct free_wait *wait, const struct belay_info *info)
{
    struct belay_wait_info waiting = { .holder = info, .attempt = 1 };
    const char *id = info == NULL || info->lock_id == NULL ? "?" : info->lock_id;

    if (wait->options->on_waiting != NULL && info != NULL && strncmp(wait->told, id, BELAY_ID_MAX) != 0) {
        waiting.waited_ms = clock_boot_ms() - wait->began_ms;
        waiting.retry_ms = wait->span_ms;
        wait->options->on_waiting(wait->options->context, &waiting);
        (void)snprintf(wait->told, sizeof wait->told, "%s", id);
    }
}

static enum belay_code say_in_the_way(struct free_wait *wait, const struct belay_record *record,
                                      int64_t now_ms, struct belay_error *err)
{
    struct belay_info *info = info_from_record(record, now_ms);
    int64_t margin_ms = wait->request.op.capabilities.margin_ms;

    if (info == NULL) {
        return error_no_memory(err);
    }
    note_holder(wait, info->lock_id);
    wait->span_ms = look_span_ms(wait);
    tell_in_the_way(wait, info);
    return info_say_held(err, BELAY_HELD, wait->request.op.key, info, margin_ms,
                         record->expires_ms + margin_ms - now_ms);
}

static enum belay_code ask_if_free(struct free_wait *wait, struct client_remote *remote,
                                   struct belay_error *err)
{
    struct belay_error unheard = BELAY_ERROR_INIT; /* for a caller that wants no text */
    enum belay_code code;

    err = err == NULL ? &unheard : err;
    code = remote->ops->look_free(remote, wait->request.op.key, err);
    if (code == BELAY_HELD) {
        tell_in_the_way(wait, err->holder);
    }
    belay_error_release(&unheard);
    return code;
}

/* BELAY_OK: it is free. BELAY_HELD: *out_wait_ms is how long it makes sense to sleep. */
static enum belay_code look_if_free(struct free_wait *wait, int64_t *out_wait_ms, struct belay_error *err)
{
    struct belay_store *store = wait->client->store;
    struct belay_record named = { 0 };
    struct decision decision;
    struct look seen;
    enum belay_code code;

    lookout_look(&wait->client->lookout, store, &wait->looker, wait->keys, wait->n_keys, &seen);
    code = seen.code;
    if (code != BELAY_OK) {
        (void)error_set(err, code, "%s", seen.err.text);
        look_release(&seen);
        return code;
    }
    decision = decide(&wait->request.op, seen.records, seen.store_now_ms);
    if (decision.verdict == VERDICT_BLOCKED) {
        const struct belay_record *holder = &seen.records[decision.blocker];
        int64_t now_ms = seen.store_now_ms;

        if (decision.below_key != NULL &&
            store->ops->get(store, &decision.below_key, 1, &named, &now_ms, NULL) == BELAY_OK) {
            holder = &named;
        }
        *out_wait_ms = decision.may_try_ms - seen.store_now_ms - (clock_boot_ms() - seen.seen_ms);
        code = say_in_the_way(wait, holder, now_ms, err);
    }
    belay_record_release(&named);
    look_release(&seen);
    return code;
}

enum belay_code belay_wait_until_free(struct belay_client *client, const char *key,
                                      const struct belay_lock_options *options, struct belay_error *err)
{
    struct free_wait wait = { .client = client, .options = options, .began_ms = clock_boot_ms() };
    struct belay_store *store = client->store;
    struct client_remote *remote;
    enum belay_code code = request_init(&wait.request, client, OP_ACQUIRE, key, "-", err);

    if (code != BELAY_OK) {
        return code;
    }
    if (!client->enabled) {
        client_warn(client, "locking is switched off: '%s' counts as free", key);
        request_release(&wait.request);
        return BELAY_OK;
    }
    wait.keys[wait.n_keys++] = wait.request.op.key;
    for (size_t i = 0; i < wait.request.op.n_ancestors; i++) {
        wait.keys[wait.n_keys++] = wait.request.op.ancestors[i];
    }
    for (;;) {
        uint32_t heard = store->ops->listen == NULL ? 0 : store->ops->listen(store, NULL);
        int64_t left_ms =
            options->wait_ms < 0 ? INT64_MAX : wait.began_ms + options->wait_ms - clock_boot_ms();
        int64_t sleep_ms = LOOK_MS;

        wait.span_ms = LOOK_MS;
        remote = client_via(client);
        code = remote != NULL ? ask_if_free(&wait, remote, err) : look_if_free(&wait, &sleep_ms, err);
        if (client_moved(client, remote, &code, err)) {
            continue;
        }
        if (code != BELAY_HELD || left_ms <= 0) {
            break;
        }
        if (belay_cancel_requested(options->cancel)) {
            code = error_set(err, BELAY_CANCELLED, "cancelled while waiting for lock '%s'", key);
            break;
        }
        sleep_ms = sleep_ms < 1 ? 1 : sleep_ms > wait.span_ms ? wait.span_ms : sleep_ms;
        sleep_ms = sleep_ms < left_ms ? sleep_ms : left_ms;
        if (store->ops->wait != NULL) {
            store->ops->wait(store, NULL, heard, sleep_ms, options->cancel);
        } else {
            lookout_enter(&client->lookout, &wait.looker, wait.keys, wait.n_keys, clock_boot_ms() + sleep_ms);
            client_sleep(sleep_ms, options->cancel);
            lookout_leave(&client->lookout, &wait.looker);
        }
    }
    looker_release(&wait.looker);
    request_release(&wait.request);
    return code;
}
