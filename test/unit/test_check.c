/* What a check makes of the lock in the store, without a store and without a clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "client/client.h"
#include "lock/info.h"

/* A backend that has one lock, and the client and the store that it belongs to. */
struct one_lock {
    struct local_backend base;
    struct belay_client client;
    struct belay_store store;
    struct belay_info lock;
    struct belay_store_capabilities capabilities;
};

static struct belay_store_capabilities one_capabilities(struct belay_store *store)
{
    return ((struct one_lock *)(void *)((char *)store - offsetof(struct one_lock, store)))->capabilities;
}

static enum belay_code one_get(struct backend *backend, const char *key, struct belay_info **out_info,
                               struct belay_error *err)
{
    const struct belay_info *lock = &((struct one_lock *)backend)->lock;
    struct belay_info *info = info_copy(lock);

    (void)key;
    (void)err;
    assert_non_null(info);
    *out_info = info;
    return BELAY_OK;
}

static const struct backend_ops one_ops = { .get = one_get };
static const struct belay_store_ops store_ops = { .capabilities = one_capabilities };

/* Held by "mine" with token 7, for a minute of ten. */
static struct belay_info held(void)
{
    return (struct belay_info){ .key = (char *)"k",
                                .lock_id = (char *)"mine",
                                .token = 7,
                                .locked_by = (char *)"me",
                                .locked_by_name = (char *)"Me",
                                .status = BELAY_STATUS_ACTIVE,
                                .ttl_ms = 600000,
                                .expires_in_ms = 60000,
                                .valid_for_ms = -1 };
}

static struct one_lock with(struct belay_info lock)
{
    return (struct one_lock){ .base = { .base = { &one_ops } }, .store = { &store_ops }, .lock = lock };
}

/* Returns the code; *out_valid_ms is what the check promises. */
static enum belay_code check(struct one_lock *one, const char *lock_id, uint64_t token, int64_t *out_valid_ms)
{
    const struct lock_check asked = { "k", lock_id, token, 0 };
    struct belay_info *info = NULL;
    enum belay_code code;

    one->base.client = &one->client;
    one->client.store = &one->store;
    code = local_check(&one->base.base, &asked, &info, NULL);

    if (code == BELAY_OK && out_valid_ms != NULL) {
        *out_valid_ms = info->valid_for_ms;
    }
    belay_info_free(info);
    return code;
}

static void what_the_holder_gives_up_is_taken_off_twice(void **state) /* L6 */
{
    struct one_lock one = with(held());
    int64_t valid_ms = 0;

    (void)state;
    assert_int_equal(check(&one, "mine", 7, &valid_ms), BELAY_OK);
    assert_int_equal(valid_ms, 60000 - 2 * 1000); /* the lead of a long lease is a second */
    one.capabilities.margin_ms = 2000;
    one.capabilities.read_clock_lag_ms = 1000;
    assert_int_equal(check(&one, "mine", 7, &valid_ms), BELAY_OK);
    assert_int_equal(valid_ms, 60000 - 1000 - 2 * (2000 + 1000));
    one.lock.ttl_ms = 0; /* not kept by the layout */
    assert_int_equal(check(&one, "mine", 7, &valid_ms), BELAY_OK);
    assert_int_equal(valid_ms, 60000 - 1000 - 2 * (2000 + 1000));
    one.lock.expires_in_ms = 6999;
    assert_int_equal(check(&one, "mine", 7, &valid_ms), BELAY_OK);
    assert_int_equal(valid_ms, 0);
}

static void the_id_and_the_token_that_are_given_must_be_the_holders(void **state) /* L3 */
{
    struct one_lock one = with(held());

    (void)state;
    assert_int_equal(check(&one, "mine", 0, NULL), BELAY_OK);
    assert_int_equal(check(&one, NULL, 7, NULL), BELAY_OK);
    assert_int_equal(check(&one, "mine", 8, NULL), BELAY_NOT_HOLDER);
    assert_int_equal(check(&one, "other", 7, NULL), BELAY_NOT_HOLDER);
    assert_int_equal(check(&one, NULL, 6, NULL), BELAY_NOT_HOLDER);
    assert_int_equal(check(&one, NULL, 8, NULL), BELAY_NOT_HOLDER);
}

static void without_tokens_in_the_store_the_id_decides(void **state)
{
    struct one_lock one = with(held());

    (void)state;
    one.lock.token = 0;
    assert_int_equal(check(&one, "mine", 7, NULL), BELAY_OK);
    assert_int_equal(check(&one, "other", 7, NULL), BELAY_NOT_HOLDER);
    assert_int_equal(check(&one, NULL, 7, NULL), BELAY_INVALID);
}

static void a_lease_that_is_over_is_lost_and_that_of_another_is_not_ours(void **state)
{
    static const enum belay_status over[] = { BELAY_STATUS_EXPIRED, BELAY_STATUS_RELEASED };
    struct one_lock one = with(held());

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        one.lock.status = over[i];
        assert_int_equal(check(&one, "mine", 7, NULL), BELAY_LOST);
        assert_int_equal(check(&one, NULL, 7, NULL), BELAY_LOST);
        assert_int_equal(check(&one, "other", 0, NULL), BELAY_NOT_HOLDER);
    }
}

static void each_holder_of_a_shared_lock_is_checked_by_its_own_lease(void **state)
{
    struct belay_info holders[2] = { held(), held() };
    struct one_lock one = with(held());
    int64_t valid_ms = 0;

    (void)state;
    holders[1].lock_id = (char *)"second";
    holders[1].token = 9;
    holders[1].expires_in_ms = 20000;
    one.lock.mode = BELAY_SHARED;
    one.lock.holders = holders;
    one.lock.n_holders = 2;
    assert_int_equal(check(&one, "second", 9, &valid_ms), BELAY_OK);
    assert_int_equal(valid_ms, 20000 - 2 * 1000);
    assert_int_equal(check(&one, NULL, 7, &valid_ms), BELAY_OK);
    assert_int_equal(valid_ms, 60000 - 2 * 1000);
    holders[1].status = BELAY_STATUS_EXPIRED;
    assert_int_equal(check(&one, "second", 9, NULL), BELAY_LOST);
    assert_int_equal(check(&one, "third", 0, NULL), BELAY_NOT_HOLDER);
    assert_int_equal(check(&one, "mine", 9, NULL), BELAY_NOT_HOLDER);
}

static void a_lock_of_the_kill_switch_is_held_by_nobody(void **state)
{
    struct one_lock one = with(held());

    (void)state;
    one.lock.lock_id = (char *)UNPROTECTED_PREFIX "1";
    assert_int_equal(check(&one, UNPROTECTED_PREFIX "1", 7, NULL), BELAY_LOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_holder_gives_up_is_taken_off_twice),
        cmocka_unit_test(the_id_and_the_token_that_are_given_must_be_the_holders),
        cmocka_unit_test(without_tokens_in_the_store_the_id_decides),
        cmocka_unit_test(a_lease_that_is_over_is_lost_and_that_of_another_is_not_ours),
        cmocka_unit_test(each_holder_of_a_shared_lock_is_checked_by_its_own_lease),
        cmocka_unit_test(a_lock_of_the_kill_switch_is_held_by_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
