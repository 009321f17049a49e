/* Conformance of the public interface: what is shown of locks, and of what happened to them. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/api_kit.h"

enum { KEYS = 7, PAGE = 3, TYPES_SIZE = 2000 };

static void metadata_is_shown_as_it_was_given(void **state)
{
    struct api *api = *state;
    const struct belay_meta metadata[] = { { "ticket", "42" },
                                           { "gr\xc3\xb6\xc3\x9f"
                                             "e",
                                             "\"a\\b\" %2F" } };
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_lock *lock = NULL;
    struct belay_info *info;
    char key[BELAY_KEY_MAX + 1];

    (void)snprintf(key, sizeof key, "%.100s/a b%%2Fc'\xc3\xa9?x=1&y#z", api->key);
    options.ttl_ms = API_LONG_MS;
    options.owner = "execution-abc123";
    options.owner_name = "Al \xe2\x82\xac";
    options.metadata = metadata;
    options.n_metadata = 2;
    assert_int_equal(belay_lock_acquire(api->client, key, &options, &lock, &api->err), BELAY_OK);
    info = api_look(api->rival, key);
    assert_string_equal(info->key, key);
    assert_string_equal(info->locked_by, options.owner);
    assert_string_equal(info->locked_by_name, options.owner_name);
    assert_string_equal(info->lock_id, belay_lock_id(lock));
    assert_int_equal(info->token, belay_lock_token(lock));
    assert_int_equal(info->ttl_ms, API_LONG_MS);
    assert_int_equal(info->outcome, BELAY_OUTCOME_NONE);
    assert_true(info->expires_in_ms > 0 && info->expires_in_ms <= API_LONG_MS);
    assert_int_equal(info->n_metadata, 2);
    for (size_t i = 0; i < 2; i++) {
        size_t at = strcmp(info->metadata[0].name, metadata[i].name) == 0 ? 0 : 1;

        assert_string_equal(info->metadata[at].name, metadata[i].name);
        assert_string_equal(info->metadata[at].value, metadata[i].value);
    }
    belay_info_free(info);
    belay_lock_free(lock);
}

static void the_outcome_is_kept_until_the_next_acquire(void **state) /* S0.2 */
{
    struct api *api = *state;
    static const enum belay_outcome outcomes[] = { BELAY_OUTCOME_COMPLETED, BELAY_OUTCOME_FAILED };

    for (size_t i = 0; i < 2; i++) {
        struct belay_lock *lock = api_take(api->client, api->key, NULL, API_LONG_MS);
        struct belay_info *info = api_look(api->rival, api->key);

        assert_int_equal(info->outcome, BELAY_OUTCOME_NONE);
        belay_info_free(info);
        assert_int_equal(belay_lock_release(lock, outcomes[i], &api->err), BELAY_OK);
        info = api_look(api->rival, api->key);
        assert_int_equal(info->status, BELAY_STATUS_RELEASED);
        assert_int_equal(info->outcome, outcomes[i]);
        belay_info_free(info);
        belay_lock_free(lock);
    }
}

static void a_missed_declared_heartbeat_makes_the_lock_stale(void **state) /* S4.7 */
{
    struct api *api = *state;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_lock *lock = NULL;
    int64_t end_ms = belay_now_boot_ms() + API_PATIENCE_MS;
    bool is_stale = false;

    options.ttl_ms = API_LONG_MS;
    options.heartbeat_ms = 100;
    options.stale_after_ms = 200;
    options.defer_heartbeat = true; /* so that none is sent */
    assert_int_equal(belay_lock_acquire(api->client, api->key, &options, &lock, &api->err), BELAY_OK);
    while (!is_stale && belay_now_boot_ms() < end_ms) {
        struct belay_info *info = api_look(api->rival, api->key);

        is_stale = info->is_stale;
        assert_int_equal(info->status, BELAY_STATUS_ACTIVE);
        belay_info_free(info);
    }
    assert_true(is_stale);
    belay_lock_free(lock);
}

struct listed {
    char keys[KEYS][BELAY_KEY_MAX + 1];
    size_t n;
};

static bool add_key(void *context, const struct belay_info *info)
{
    struct listed *listed = context;

    if (listed->n == KEYS) {
        return false;
    }
    (void)snprintf(listed->keys[listed->n++], sizeof listed->keys[0], "%s", info->key);
    return true;
}

static void a_list_is_in_order_and_its_pages_have_no_gap(void **state)
{
    struct api *api = *state;
    struct listed listed = { .n = 0 };
    char prefix[300];
    char cursor[BELAY_KEY_MAX + 1] = "";
    bool more = true;

    (void)snprintf(prefix, sizeof prefix, "%.200s-list-", api->key);
    for (int i = KEYS - 1; i >= 0; i--) {
        char name[32];

        (void)snprintf(name, sizeof name, "-list-%d", i);
        belay_lock_free(api_take(api->client, api_key(api, name), NULL, API_LONG_MS));
    }
    belay_lock_free(api_take(api->client, api_key(api, "-other"), NULL, API_LONG_MS));
    while (more) {
        struct belay_query query = BELAY_QUERY_INIT;
        size_t before = listed.n;

        query.prefix = prefix;
        query.limit = PAGE;
        query.cursor = cursor[0] == '\0' ? NULL : cursor;
        more = false;
        assert_int_equal(belay_list(api->rival, &query, add_key, &listed, &more, &api->err), BELAY_OK);
        assert_true(listed.n - before <= PAGE && (listed.n > before || !more));
        (void)snprintf(cursor, sizeof cursor, "%s", listed.keys[listed.n - 1]);
    }
    assert_int_equal(listed.n, KEYS);
    for (int i = 0; i < KEYS; i++) {
        char name[32];

        (void)snprintf(name, sizeof name, "-list-%d", i);
        assert_string_equal(listed.keys[i], api_key(api, name));
    }
}

static size_t count(struct api *api, enum belay_status status, bool all)
{
    struct belay_query query = BELAY_QUERY_INIT;
    struct listed listed = { .n = 0 };

    query.prefix = api->key;
    query.status = status;
    query.all = all;
    assert_int_equal(belay_list(api->rival, &query, add_key, &listed, NULL, &api->err), BELAY_OK);
    return listed.n;
}

static void a_list_is_of_the_status_that_is_asked_for(void **state)
{
    struct api *api = *state;
    struct belay_lock *lock = api_take(api->client, api_key(api, "-released"), NULL, API_LONG_MS);

    assert_int_equal(belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, &api->err), BELAY_OK);
    belay_lock_free(lock);
    belay_lock_free(api_take(api->client, api_key(api, "-active"), NULL, API_LONG_MS));
    belay_lock_free(api_take(api->client, api_key(api, "-expired"), NULL, API_SHORT_MS));
    api_await_expiry(api->client, api_key(api, "-expired"));
    assert_int_equal(count(api, BELAY_STATUS_ACTIVE, false), 1);
    assert_int_equal(count(api, BELAY_STATUS_EXPIRED, false), 1);
    assert_int_equal(count(api, BELAY_STATUS_RELEASED, false), 1);
    assert_int_equal(count(api, BELAY_STATUS_NONE, false), 2);
    assert_int_equal(count(api, BELAY_STATUS_NONE, true), 3);
}

static bool add_type(void *context, const struct belay_event *event)
{
    char *types = context;

    (void)snprintf(types + strlen(types), TYPES_SIZE - strlen(types), "%s ", event->type);
    return true;
}

static void the_history_of_a_lock_has_every_event_in_order(void **state) /* L9 */
{
    struct api *api = *state;
    struct belay_lock *lock;
    char types[TYPES_SIZE] = "";

    if (!api->place->keeps_events) {
        skip();
    }
    lock = api_take(api->client, api->key, "one", API_LONG_MS);
    assert_int_equal(belay_lock_renew(lock, &api->err), BELAY_OK);
    assert_int_equal(belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, &api->err), BELAY_OK);
    belay_lock_free(lock);
    belay_lock_free(api_take(api->rival, api->key, "two", API_LONG_MS));
    assert_int_equal(belay_force_release(api->client, api->key, "two", "boss", "why", NULL, &api->err),
                     BELAY_OK);
    assert_int_equal(belay_history(api->rival, api->key, 0, add_type, types, &api->err), BELAY_OK);
    assert_string_equal(types, "lock.acquired lock.renewed lock.released lock.acquired lock.forced ");
    types[0] = '\0';
    assert_int_equal(belay_history(api->rival, api->key, 2, add_type, types, &api->err), BELAY_OK);
    assert_string_equal(types, "lock.acquired lock.forced ");
}

static void statistics_count_what_happened_to_a_lock(void **state) /* S4.14 */
{
    struct api *api = *state;
    struct belay_stats_query query = BELAY_STATS_QUERY_INIT;
    struct belay_stats *stats = NULL;
    struct belay_lock *lock = api_take(api->client, api->key, "one", API_LONG_MS);
    int64_t began_ms = belay_now_boot_ms();

    assert_int_equal(belay_lock_acquire(api->rival, api->key, NULL, NULL, &api->err), BELAY_HELD);
    assert_int_equal(belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, &api->err), BELAY_OK);
    belay_lock_free(lock);
    belay_lock_free(api_take(api->rival, api->key, "two", API_LONG_MS));
    assert_int_equal(belay_force_release(api->client, api->key, "two", "boss", "why", NULL, &api->err),
                     BELAY_OK);
    query.key = api->key;
    query.by = BELAY_STATS_BY_KEY;
    if (!api->place->keeps_events) {
        assert_int_equal(belay_stats(api->rival, &query, &stats, &api->err), BELAY_INVALID);
        assert_non_null(strstr(api->err.text, "keeps no events"));
        return;
    }
    assert_int_equal(belay_stats(api->rival, &query, &stats, &api->err), BELAY_OK);
    assert_int_equal(stats->total.acquired, 2);
    assert_int_equal(stats->total.released, 1);
    assert_int_equal(stats->total.refused, 1);
    assert_int_equal(stats->total.forced, 1);
    assert_int_equal(stats->total.held.count, 2);
    assert_true(stats->total.held.longest_ms <= belay_now_boot_ms() - began_ms + API_SHORT_MS);
    assert_int_equal(stats->total.waited.count, 0);
    assert_int_equal(stats->total.waited.median_ms, -1);
    assert_int_equal(stats->n_groups, 1);
    assert_string_equal(stats->groups[0].name, api->key);
    assert_int_equal(stats->groups[0].acquired, 2);
    assert_true(stats->oldest_unix_ms > 0 && stats->from_unix_ms == stats->oldest_unix_ms);
    assert_true(stats->until_unix_ms >= stats->from_unix_ms);
    belay_stats_free(stats);
    query.since_unix_ms = INT64_C(4102444800000); /* 2100 */
    assert_int_equal(belay_stats(api->rival, &query, &stats, &api->err), BELAY_OK);
    assert_int_equal(stats->events, 0);
    assert_int_equal(stats->from_unix_ms, query.since_unix_ms);
    belay_stats_free(stats);
    query.prefix = "both";
    assert_int_equal(belay_stats(api->rival, &query, &stats, &api->err), BELAY_INVALID);
}

struct watched {
    const struct api *api;
    struct belay_client *client;
    struct belay_cancel *cancel;
    char types[TYPES_SIZE];
    uint64_t after;
    atomic_bool has_seen;
};

static bool see(void *context, const struct belay_event *event)
{
    struct watched *watched = context;

    (void)add_type(watched->types, event);
    if (strcmp(event->type, "lock.released") == 0) {
        atomic_store(&watched->has_seen, true);
        return false;
    }
    return true;
}

static void *watch(void *context)
{
    struct watched *watched = context;

    (void)belay_watch(watched->client, watched->api->key, watched->after, see, watched, watched->cancel,
                      NULL);
    return NULL;
}

static bool take_id(void *context, const struct belay_event *event)
{
    *(uint64_t *)context = event->id;
    return true;
}

static bool has_seen(void *context)
{
    return atomic_load(&((struct watched *)context)->has_seen);
}

static void a_watcher_from_an_event_on_sees_all_later_events(void **state) /* L9 */
{
    struct api *api = *state;
    struct watched watched = { .api = api, .client = api->rival, .cancel = belay_cancel_new() };
    struct belay_lock *lock;
    pthread_t thread;

    if (!api->place->keeps_events) {
        belay_cancel_free(watched.cancel);
        skip();
    }
    lock = api_take(api->client, api->key, NULL, API_LONG_MS);
    assert_int_equal(belay_history(api->client, api->key, 1, take_id, &watched.after, &api->err), BELAY_OK);
    assert_true(watched.after > 0);
    assert_int_equal(belay_lock_renew(lock, &api->err), BELAY_OK);
    assert_int_equal(pthread_create(&thread, NULL, watch, &watched), 0);
    assert_int_equal(belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, &api->err), BELAY_OK);
    if (!api_await(has_seen, &watched)) {
        belay_cancel_request(watched.cancel);
    }
    (void)pthread_join(thread, NULL);
    assert_string_equal(watched.types, "lock.renewed lock.released ");
    belay_lock_free(lock);
    belay_cancel_free(watched.cancel);
}

static void a_check_never_promises_more_than_its_holder_may_rely_on(void **state) /* L6 */
{
    struct api *api = *state;
    struct belay_lock *lock = api_take(api->client, api->key, "mine", API_LONG_MS);

    for (int i = 0; i < 2; i++) {
        struct belay_info *info = NULL;

        assert_int_equal(belay_check(api->rival, api->key, "mine", belay_lock_token(lock), API_LONG_MS / 2,
                                     &info, &api->err),
                         BELAY_OK);
        assert_true(info->valid_for_ms >= API_LONG_MS / 2);
        assert_true(belay_now_boot_ms() + info->valid_for_ms <= belay_lock_deadline_boot_ms(lock));
        assert_string_equal(info->lock_id, "mine");
        belay_info_free(info);
        assert_int_equal(belay_lock_renew(lock, &api->err), BELAY_OK);
    }
    assert_int_equal(belay_check(api->rival, api->key, "mine", 0, API_LONG_MS, NULL, &api->err), BELAY_LOST);
    assert_int_equal(belay_check(api->rival, api->key, NULL, belay_lock_token(lock), 0, NULL, &api->err),
                     BELAY_OK);
    belay_lock_free(lock);
}

static void a_check_says_how_a_lock_was_lost_and_who_has_it(void **state) /* L3 */
{
    struct api *api = *state;
    struct belay_lock *lock = api_take(api->client, api->key, "first", API_SHORT_MS);
    uint64_t token = belay_lock_token(lock);

    belay_lock_free(lock);
    assert_int_equal(belay_check(api->rival, api_key(api, "never"), "first", 0, 0, NULL, &api->err),
                     BELAY_NOT_FOUND);
    assert_int_equal(belay_check(api->rival, api->key, NULL, 0, 0, NULL, &api->err), BELAY_INVALID);
    assert_int_equal(belay_check(api->rival, api->key, "first", 0, -1, NULL, &api->err), BELAY_INVALID);
    api_await_expiry(api->client, api->key);
    assert_int_equal(belay_check(api->rival, api->key, "first", token, 0, NULL, &api->err), BELAY_LOST);
    lock = api_take_over(api->rival, api->key, "second");
    assert_int_equal(belay_check(api->client, api->key, "first", token, 0, NULL, &api->err),
                     BELAY_NOT_HOLDER);
    assert_non_null(belay_error_holder(&api->err));
    assert_int_equal(belay_error_holder(&api->err)->token, belay_lock_token(lock));
    assert_int_equal(belay_check(api->client, api->key, NULL, token, 0, NULL, &api->err), BELAY_NOT_HOLDER);
    assert_int_equal(belay_force_release(api->client, api->key, "second", "boss", "why", NULL, &api->err),
                     BELAY_OK);
    assert_int_equal(belay_check(api->client, api->key, "second", 0, 0, NULL, &api->err), BELAY_LOST);
    assert_non_null(strstr(api->err.text, "by force"));
    belay_lock_free(lock);
}

/* A server of a store on the network reads it in threads, and waits longer between two polls. */
static void a_client_knows_whether_its_store_is_on_this_machine(void **state)
{
    struct api *api = *state;

    assert_int_equal(belay_client_is_local(api->client), api->place->is_local);
}

const struct CMUnitTest api_reading[] = {
    API_CASE(a_client_knows_whether_its_store_is_on_this_machine),
    API_CASE(a_check_never_promises_more_than_its_holder_may_rely_on),
    API_CASE(a_check_says_how_a_lock_was_lost_and_who_has_it),
    API_CASE(metadata_is_shown_as_it_was_given),
    API_CASE(the_outcome_is_kept_until_the_next_acquire),
    API_CASE(a_missed_declared_heartbeat_makes_the_lock_stale),
    API_CASE(a_list_is_in_order_and_its_pages_have_no_gap),
    API_CASE(a_list_is_of_the_status_that_is_asked_for),
    API_CASE(the_history_of_a_lock_has_every_event_in_order),
    API_CASE(statistics_count_what_happened_to_a_lock),
    API_CASE(a_watcher_from_an_event_on_sees_all_later_events),
};
const size_t n_api_reading = sizeof api_reading / sizeof api_reading[0];
