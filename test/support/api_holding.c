/* Conformance of the public interface: taking, keeping and ending a lock. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "support/api_kit.h"

static void one_of_two_clients_gets_the_lock_and_the_other_learns_the_holder(void **state) /* L1 */
{
    struct api *api = *state;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_lock *mine = NULL;
    struct belay_lock *theirs = NULL;

    options.owner = "first";
    options.ttl_ms = API_LONG_MS;
    assert_int_equal(belay_lock_acquire(api->client, api->key, &options, &mine, &api->err), BELAY_OK);
    options.owner = "second";
    assert_int_equal(belay_lock_acquire(api->rival, api->key, &options, &theirs, &api->err), BELAY_HELD);
    assert_null(theirs);
    assert_non_null(belay_error_holder(&api->err));
    assert_string_equal(belay_error_holder(&api->err)->locked_by, "first");
    assert_true(belay_lock_is_mine(mine));
    assert_int_equal(belay_lock_release(mine, BELAY_OUTCOME_COMPLETED, &api->err), BELAY_OK);
    assert_false(belay_lock_is_mine(mine));
    belay_lock_free(mine);
    assert_int_equal(belay_lock_acquire(api->rival, api->key, &options, &theirs, &api->err), BELAY_OK);
    belay_lock_free(theirs);
}

static void tokens_grow_over_release_expiry_force_and_adoption(void **state) /* L2 */
{
    struct api *api = *state;
    struct belay_lock *lock = api_take(api->client, api->key, NULL, API_LONG_MS);
    uint64_t tokens[5] = { belay_lock_token(lock) };

    assert_int_equal(belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, &api->err), BELAY_OK);
    belay_lock_free(lock);
    lock = api_take(api->rival, api->key, NULL, API_SHORT_MS);
    tokens[1] = belay_lock_token(lock);
    belay_lock_free(lock);
    api_await_expiry(api->client, api->key);
    lock = api_take_over(api->client, api->key, "forced");
    tokens[2] = belay_lock_token(lock);
    assert_int_equal(belay_force_release(api->rival, api->key, "forced", "boss", "why", NULL, &api->err),
                     BELAY_OK);
    belay_lock_free(lock);
    lock = api_take(api->rival, api->key, "given", API_LONG_MS);
    tokens[3] = belay_lock_token(lock);
    belay_lock_free(lock);
    assert_int_equal(belay_lock_adopt(api->client, api->key, "given", NULL, &lock, &api->err), BELAY_OK);
    tokens[4] = belay_lock_token(lock);
    belay_lock_free(lock);
    assert_true(tokens[0] > 0);
    for (size_t i = 1; i < 5; i++) {
        assert_true(tokens[i] > tokens[i - 1]);
    }
}

static void a_renewal_starts_the_lease_again_with_its_ttl_or_a_new_one(void **state) /* L3 */
{
    struct api *api = *state;
    struct belay_lock *lock = api_take(api->client, api->key, "id", API_LONG_MS);
    int64_t before_ms = belay_lock_deadline_boot_ms(lock);
    int64_t asked_ms = clock_boot_ms();
    struct belay_info *info = NULL;

    assert_int_equal(belay_lock_renew(lock, &api->err), BELAY_OK);
    /* It counts from before the call, and leaves out how long a server took. */
    assert_true(belay_lock_deadline_boot_ms(lock) + clock_boot_ms() - asked_ms >= before_ms);
    assert_int_equal(belay_renew(api->rival, api->key, "id", 2 * API_LONG_MS, &info, &api->err), BELAY_OK);
    assert_int_equal(info->ttl_ms, 2 * API_LONG_MS);
    assert_true(info->expires_in_ms > API_LONG_MS);
    assert_int_equal(info->token, belay_lock_token(lock));
    belay_info_free(info);
    belay_lock_free(lock);
}

static void only_its_holder_renews_releases_or_forces_it(void **state) /* L3 */
{
    struct api *api = *state;
    struct belay_lock *lock = api_take(api->client, api->key, "mine", API_LONG_MS);
    struct belay_info *info;

    assert_int_equal(belay_renew(api->rival, api->key, "other", 0, NULL, &api->err), BELAY_NOT_HOLDER);
    assert_int_equal(belay_release(api->rival, api->key, "other", BELAY_OUTCOME_FAILED, NULL, &api->err),
                     BELAY_NOT_HOLDER);
    assert_int_equal(belay_force_release(api->rival, api->key, "other", "boss", "why", NULL, &api->err),
                     BELAY_NOT_HOLDER);
    info = api_look(api->rival, api->key);
    assert_int_equal(info->status, BELAY_STATUS_ACTIVE);
    assert_int_equal(info->token, belay_lock_token(lock));
    belay_info_free(info);
    belay_lock_free(lock);
}

static void a_release_can_be_repeated_until_another_client_has_the_lock(void **state) /* L5 */
{
    struct api *api = *state;

    belay_lock_free(api_take(api->client, api->key, "mine", API_LONG_MS));
    for (int i = 0; i < 2; i++) {
        struct belay_info *info = NULL;

        assert_int_equal(belay_release(api->client, api->key, "mine", BELAY_OUTCOME_FAILED, &info, &api->err),
                         BELAY_OK);
        assert_int_equal(info->status, BELAY_STATUS_RELEASED);
        assert_int_equal(info->outcome, BELAY_OUTCOME_FAILED);
        belay_info_free(info);
    }
    belay_lock_free(api_take(api->rival, api->key, "theirs", API_LONG_MS));
    assert_int_equal(belay_release(api->client, api->key, "mine", BELAY_OUTCOME_FAILED, NULL, &api->err),
                     BELAY_NOT_HOLDER);
}

static void a_lease_that_ended_is_neither_renewed_nor_released_and_is_taken_over(void **state) /* L3, S1.4 */
{
    struct api *api = *state;
    struct belay_lock *old = api_take(api->client, api->key, "old", API_SHORT_MS);
    struct belay_lock *new;
    struct belay_info *info;

    api_await_expiry(api->rival, api->key);
    assert_false(belay_lock_is_mine(old));
    assert_int_equal(belay_renew(api->client, api->key, "old", 0, NULL, &api->err), BELAY_LOST);
    assert_int_equal(belay_lock_renew(old, &api->err), BELAY_LOST);
    new = api_take_over(api->rival, api->key, "new");
    assert_true(belay_lock_token(new) > belay_lock_token(old));
    assert_int_equal(belay_release(api->client, api->key, "old", BELAY_OUTCOME_COMPLETED, NULL, &api->err),
                     BELAY_NOT_HOLDER);
    info = api_look(api->client, api->key);
    assert_int_equal(info->status, BELAY_STATUS_ACTIVE);
    belay_info_free(info);
    belay_lock_free(old);
    belay_lock_free(new);
}

static void acquiring_again_with_the_same_id_returns_the_same_lock(void **state) /* L5 */
{
    struct api *api = *state;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_lock *first = api_take(api->client, api->key, "id", API_LONG_MS);
    struct belay_lock *again = api_take(api->rival, api->key, "id", API_LONG_MS);
    struct belay_lock *late = NULL;

    assert_int_equal(belay_lock_token(again), belay_lock_token(first));
    assert_int_equal(belay_lock_release(first, BELAY_OUTCOME_COMPLETED, &api->err), BELAY_OK);
    options.lock_id = "id";
    assert_int_equal(belay_lock_acquire(api->client, api->key, &options, &late, &api->err), BELAY_ID_USED);
    assert_null(late);
    belay_lock_free(first);
    belay_lock_free(again);
}

static void a_reentrant_owner_reacquires_its_live_lock_and_others_do_not(void **state) /* S2.4 */
{
    struct api *api = *state;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_lock *outer = NULL;
    struct belay_lock *inner = NULL;
    struct belay_lock *other = NULL;

    options.ttl_ms = API_LONG_MS;
    options.owner = "me";
    options.reentrant = true;
    assert_int_equal(belay_lock_acquire(api->client, api->key, &options, &outer, &api->err), BELAY_OK);
    assert_int_equal(belay_lock_acquire(api->rival, api->key, &options, &inner, &api->err), BELAY_OK);
    assert_true(belay_lock_is_reentered(inner));
    assert_int_equal(belay_lock_token(inner), belay_lock_token(outer));
    assert_int_equal(belay_lock_release(inner, BELAY_OUTCOME_COMPLETED, &api->err), BELAY_OK);
    options.owner = "another";
    assert_int_equal(belay_lock_acquire(api->rival, api->key, &options, &other, &api->err), BELAY_HELD);
    assert_int_equal(belay_lock_release(outer, BELAY_OUTCOME_COMPLETED, &api->err), BELAY_OK);
    belay_lock_free(inner);
    belay_lock_free(outer);
}

static void of_two_clients_that_adopt_one_id_one_succeeds(void **state)
{
    struct api *api = *state;
    struct belay_lock *mine = NULL;
    struct belay_lock *theirs = NULL;

    belay_lock_free(api_take(api->client, api->key, "given", API_LONG_MS));
    assert_int_equal(belay_lock_adopt(api->client, api->key, "given", NULL, &mine, &api->err), BELAY_OK);
    assert_int_equal(belay_lock_adopt(api->rival, api->key, "given", NULL, &theirs, &api->err),
                     BELAY_NOT_HOLDER);
    assert_string_not_equal(belay_lock_id(mine), "given");
    assert_int_equal(belay_release(api->rival, api->key, "given", BELAY_OUTCOME_FAILED, NULL, &api->err),
                     BELAY_NOT_HOLDER);
    assert_true(belay_lock_is_mine(mine));
    belay_lock_free(mine);
}

static void a_forced_lock_ends_and_its_record_says_so(void **state) /* S4.6 */
{
    struct api *api = *state;
    struct belay_lock *lock = api_take(api->client, api->key, "stuck", API_LONG_MS);
    struct belay_info *info = NULL;

    assert_int_equal(belay_force_release(api->rival, api->key, "stuck", "boss", "it hangs", &info, &api->err),
                     BELAY_OK);
    assert_int_equal(info->status, BELAY_STATUS_RELEASED);
    assert_int_equal(info->outcome, BELAY_OUTCOME_FORCED);
    belay_info_free(info);
    assert_int_equal(belay_lock_renew(lock, &api->err), BELAY_LOST);
    assert_false(belay_lock_is_mine(lock));
    belay_lock_free(lock);
}

static void note_loss(void *context, struct belay_lock *lock, const char *why)
{
    (void)lock;
    (void)why;
    atomic_store((atomic_bool *)context, true);
}

static bool is_set(void *context)
{
    return atomic_load((atomic_bool *)context);
}

static void a_heartbeat_keeps_the_lease_and_reports_its_loss(void **state) /* L6, S1.6 */
{
    struct api *api = *state;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_lock *lock = NULL;
    struct belay_info *info;
    atomic_bool is_lost = false;
    int64_t end_ms;

    options.ttl_ms = 6000;
    options.heartbeat_ms = 300;
    options.lock_id = "beats";
    options.on_lost = note_loss;
    options.context = &is_lost;
    assert_int_equal(belay_lock_acquire(api->client, api->key, &options, &lock, &api->err), BELAY_OK);
    end_ms = belay_lock_deadline_boot_ms(lock) + 1000;
    while (belay_now_boot_ms() < end_ms && !is_lost) {
        info = api_look(api->rival, api->key);
        assert_int_equal(info->status, BELAY_STATUS_ACTIVE);
        assert_true(info->last_heartbeat_unix_ms > 0);
        belay_info_free(info);
    }
    assert_false(is_lost);
    assert_int_equal(belay_force_release(api->rival, api->key, "beats", "boss", "why", NULL, &api->err),
                     BELAY_OK);
    assert_true(api_await(is_set, &is_lost));
    assert_false(belay_lock_is_mine(lock));
    assert_int_equal(belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, &api->err), BELAY_LOST);
    belay_lock_free(lock);
}

static void a_holder_learns_of_a_forced_release_without_a_heartbeat(void **state) /* L6 */
{
    struct api *api = *state;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_lock *lock = NULL;
    atomic_bool is_lost = false;
    int64_t began_ms;

    options.ttl_ms = API_LONG_MS;
    options.lock_id = "silent";
    options.on_lost = note_loss;
    options.context = &is_lost;
    assert_int_equal(belay_lock_acquire(api->client, api->key, &options, &lock, &api->err), BELAY_OK);
    assert_int_equal(belay_force_release(api->rival, api->key, "silent", "boss", "why", NULL, &api->err),
                     BELAY_OK);
    began_ms = belay_now_boot_ms();
    assert_true(api_await(is_set, &is_lost));
    assert_true(belay_now_boot_ms() - began_ms < 14000); /* 10 s, if the machine is not busy */
    assert_false(belay_lock_is_mine(lock));
    belay_lock_free(lock);
}

static void a_lock_excludes_its_ancestors_and_descendants(void **state) /* L8 */
{
    struct api *api = *state;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    char above[600];
    char below[600];
    char beside[600];
    struct belay_lock *held;
    struct belay_lock *lock = NULL;

    (void)snprintf(above, sizeof above, "stack:%s:env:prod", api->key);
    (void)snprintf(below, sizeof below, "stack:%s:env:prod:service:web", api->key);
    (void)snprintf(beside, sizeof beside, "stack:%s:env:prod:service:api", api->key);
    held = api_take(api->client, above, NULL, API_LONG_MS);
    assert_int_equal(belay_lock_acquire(api->rival, below, &options, &lock, &api->err), BELAY_HELD);
    assert_string_equal(belay_error_holder(&api->err)->key, above);
    assert_int_equal(belay_lock_release(held, BELAY_OUTCOME_COMPLETED, &api->err), BELAY_OK);
    belay_lock_free(held);
    held = api_take(api->client, below, NULL, API_LONG_MS);
    assert_int_equal(belay_lock_acquire(api->rival, above, &options, &lock, &api->err), BELAY_HELD);
    assert_int_equal(belay_lock_acquire(api->rival, beside, &options, &lock, &api->err), BELAY_OK);
    belay_lock_free(lock);
    belay_lock_free(held);
}

static void ending_a_lock_returns_that_lock_whatever_follows(void **state) /* L3 */
{
    struct api *api = *state;

    for (int i = 0; i < 4; i++) {
        struct api_waiter waiter = { .client = api->rival, .options = BELAY_LOCK_OPTIONS_INIT };
        struct belay_info *info = NULL;
        struct belay_lock *lock;
        bool is_forced = i % 2 == 1;
        char key[600];
        char id[16];

        (void)snprintf(key, sizeof key, i < 2 ? "%s" : "stack:%s:env:prod:service:web", api->key);
        (void)snprintf(id, sizeof id, "ends-%d", i);
        lock = api_take(api->client, key, id, API_LONG_MS);
        waiter.key = key;
        waiter.options.ttl_ms = API_LONG_MS;
        waiter.options.wait_ms = API_PATIENCE_MS;
        api_waiter_start(&waiter);
        api_await_line(api->client, key, 1);
        assert_int_equal(is_forced
                             ? belay_force_release(api->client, key, id, "boss", "why", &info, &api->err)
                             : belay_release(api->client, key, id, BELAY_OUTCOME_FAILED, &info, &api->err),
                         BELAY_OK);
        assert_string_equal(info->lock_id, id);
        assert_int_equal(info->status, BELAY_STATUS_RELEASED);
        assert_int_equal(info->outcome, is_forced ? BELAY_OUTCOME_FORCED : BELAY_OUTCOME_FAILED);
        assert_int_equal(info->token, belay_lock_token(lock));
        assert_string_not_equal(info->locked_by, "");
        belay_info_free(info);
        api_waiter_join(&waiter);
        assert_int_equal(waiter.code, BELAY_OK);
        assert_int_equal(belay_lock_release(waiter.lock, BELAY_OUTCOME_COMPLETED, &api->err), BELAY_OK);
        belay_lock_free(waiter.lock);
        belay_lock_free(lock);
    }
}

static void bad_input_is_refused_and_changes_nothing(void **state)
{
    struct api *api = *state;
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_lock *lock = NULL;
    struct belay_info *info = NULL;

    options.ttl_ms = BELAY_TTL_MIN_MS - 1;
    assert_int_equal(belay_lock_acquire(api->client, api->key, &options, &lock, &api->err), BELAY_INVALID);
    options.ttl_ms = 0;
    options.lock_id = "not an id";
    assert_int_equal(belay_lock_acquire(api->client, api->key, &options, &lock, &api->err), BELAY_INVALID);
    options.lock_id = NULL;
    assert_int_equal(belay_lock_acquire(api->client, "", &options, &lock, &api->err), BELAY_INVALID);
    assert_int_equal(belay_lock_acquire(api->client, "a\nb", &options, &lock, &api->err), BELAY_INVALID);
    assert_true(strlen(api->err.text) > 0);
    assert_null(lock);
    assert_int_equal(belay_get(api->client, api->key, &info, &api->err), BELAY_NOT_FOUND);
    assert_int_equal(belay_release(api->client, api->key, "x", BELAY_OUTCOME_COMPLETED, NULL, &api->err),
                     BELAY_NOT_FOUND);
    assert_int_equal(belay_get(api->client, api->key, &info, &api->err), BELAY_NOT_FOUND);
}

const struct CMUnitTest api_holding[] = {
    API_CASE(one_of_two_clients_gets_the_lock_and_the_other_learns_the_holder),
    API_CASE(tokens_grow_over_release_expiry_force_and_adoption),
    API_CASE(a_renewal_starts_the_lease_again_with_its_ttl_or_a_new_one),
    API_CASE(only_its_holder_renews_releases_or_forces_it),
    API_CASE(a_release_can_be_repeated_until_another_client_has_the_lock),
    API_CASE(a_lease_that_ended_is_neither_renewed_nor_released_and_is_taken_over),
    API_CASE(acquiring_again_with_the_same_id_returns_the_same_lock),
    API_CASE(a_reentrant_owner_reacquires_its_live_lock_and_others_do_not),
    API_CASE(of_two_clients_that_adopt_one_id_one_succeeds),
    API_CASE(a_forced_lock_ends_and_its_record_says_so),
    API_CASE(a_heartbeat_keeps_the_lease_and_reports_its_loss),
    API_CASE(a_holder_learns_of_a_forced_release_without_a_heartbeat),
    API_CASE(a_lock_excludes_its_ancestors_and_descendants),
    API_CASE(ending_a_lock_returns_that_lock_whatever_follows),
    API_CASE(bad_input_is_refused_and_changes_nothing),
};
const size_t n_api_holding = sizeof api_holding / sizeof api_holding[0];
