/* A lock as JSON: the quick way writes what the slow one does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "json/json_read.h"
#include "json/json_write.h"

static struct belay_meta note = { "note", "a" };

static const struct belay_info plain = { .key = "app:prod",
                                         .lock_id = "0192f0c1-aaaa-7bbb-8ccc-000000000001",
                                         .token = 7,
                                         .locked_by = "ci/42",
                                         .locked_by_name = "Alice (ci)",
                                         .status = BELAY_STATUS_ACTIVE,
                                         .locked_at_unix_ms = 1730817135123,
                                         .expires_at_unix_ms = 1730817165123,
                                         .last_heartbeat_unix_ms = 1730817135123,
                                         .ttl_ms = 30000,
                                         .expires_in_ms = 29990 };

static void check_as(const struct belay_info *info, bool is_quick)
{
    struct buf quick = BUF_INIT(1 << 20);
    char *slow = wire_line(wire_grant(info));

    assert_non_null(slow);
    assert_int_equal(wire_grant_line(&quick, info), is_quick);
    if (is_quick) {
        assert_string_equal(quick.data, slow);
    } else {
        assert_int_equal(quick.len, 0);
    }
    buf_release(&quick);
    free(slow);
}

static void a_lock_is_written_the_same_either_way(void **state)
{
    struct belay_info info = plain;

    (void)state;
    check_as(&info, true);
    info.valid_for_ms = 25990;
    check_as(&info, true);
    info.valid_for_ms = -1;
    check_as(&info, true);
    info.is_stale = true;
    info.status = BELAY_STATUS_EXPIRED;
    info.expires_in_ms = -5;
    check_as(&info, true);
    info.status = BELAY_STATUS_RELEASED;
    info.outcome = BELAY_OUTCOME_FAILED;
    info.expires_in_ms = 0;
    info.last_heartbeat_unix_ms = 0;
    check_as(&info, true);
    info.lock_id = NULL;
    info.locked_by_name = (char *)"";
    check_as(&info, true);
}

static void a_grant_beside_others_is_written_the_same_either_way(void **state)
{
    struct belay_info holders[2] = { plain, plain };
    struct belay_info info = plain;

    (void)state;
    info.mode = BELAY_SHARED;
    check_as(&info, true);
    info.mode = BELAY_SLOTS;
    info.slots = 3;
    info.holders = holders;
    info.n_holders = 2;
    holders[1].lock_id = (char *)"the other's";
    holders[1].acquired_by = (char *)"ci";
    holders[1].valid_for_ms = -1;
    holders[1].is_stale = true;
    check_as(&info, true);
    holders[1].locked_by_name = (char *)"a\"b";
    check_as(&info, false);
    holders[1].locked_by_name = NULL;
    holders[1].n_metadata = 1;
    holders[1].metadata = &(struct belay_meta){ "name", "value" };
    check_as(&info, false);
    info = (struct belay_info){ .key = (char *)"k",
                                .lock_id = (char *)"one",
                                .locked_by = (char *)"",
                                .locked_by_name = (char *)"",
                                .status = BELAY_STATUS_RELEASED,
                                .outcome = BELAY_OUTCOME_COMPLETED,
                                .mode = BELAY_SLOTS,
                                .slots = 3 };
    check_as(&info, true);
    info.released_at_unix_ms = 1700000000123;
    check_as(&info, true);
}

static void a_released_lock_says_when_and_others_do_not(void **state)
{
    struct belay_info info = plain;
    struct belay_info *read;
    json_t *lock;

    (void)state;
    info.released_at_unix_ms = 1700000000123;
    lock = wire_lock(&info); /* still active: a store may have kept when it was released before */
    assert_true(json_is_null(json_object_get(lock, "released_at")));
    json_decref(lock);
    info.status = BELAY_STATUS_RELEASED;
    check_as(&info, true);
    lock = wire_lock(&info);
    assert_string_equal(json_string_value(json_object_get(lock, "released_at")), "2023-11-14T22:13:20.123Z");
    read = json_read_lock(lock);
    assert_int_equal(read->released_at_unix_ms, 1700000000123);
    belay_info_free(read);
    json_decref(lock);
}

static void a_lock_without_a_token_or_a_ttl_has_null_either_way(void **state)
{
    struct belay_info info = plain;

    (void)state;
    info.token = UINT64_MAX;
    check_as(&info, true);
    info.token = 0;
    check_as(&info, true);
    info.ttl_ms = 0;
    check_as(&info, true);
}

static void a_lock_while_locking_is_off_and_one_with_a_queue_are_left_to_jansson(void **state)
{
    struct belay_info info = plain;

    (void)state;
    info.status = BELAY_STATUS_NONE;
    check_as(&info, false);
    info = plain;
    info.has_queue = true;
    check_as(&info, false);
}

static void many_holders_are_left_to_jansson(void **state)
{
    struct belay_info holders[WIRE_HOLDERS_SHOWN + 1];
    struct belay_info info = plain;

    (void)state;
    for (size_t i = 0; i <= WIRE_HOLDERS_SHOWN; i++) {
        holders[i] = plain;
    }
    info.mode = BELAY_SHARED;
    info.holders = holders;
    info.n_holders = WIRE_HOLDERS_SHOWN;
    check_as(&info, true);
    info.n_holders++;
    check_as(&info, false);
}

static void unknown_fields_of_a_lock_are_null(void **state)
{
    const struct belay_info gone = {
        .key = "k", .lock_id = "one", .locked_by = "", .locked_by_name = "", .status = BELAY_STATUS_RELEASED
    };
    static const char *const names[] = { "token",          "locked_by", "locked_by_name",
                                         "outcome",        "locked_at", "expires_at",
                                         "last_heartbeat", "ttl_ms",    "released_at" };
    json_t *lock = wire_lock(&gone);

    (void)state;
    assert_non_null(lock);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_true(json_is_null(json_object_get(lock, names[i])));
    }
    assert_string_equal(json_string_value(json_object_get(lock, "status")), "released");
    json_decref(lock);
}

static void strings_that_need_escapes_are_left_to_jansson(void **state)
{
    static const char *const texts[] = { "a\"b",     "a\\b",     "tab\there",      "del\x7f",
                                         "\xc3\xa9", "\xc2\x85", "not utf-8 \xff", "\xe2\x80\xae" };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct belay_info info = plain;

        info.key = (char *)texts[i];
        check_as(&info, false);
        info = plain;
        info.locked_by = (char *)texts[i];
        check_as(&info, false);
        info = plain;
        info.locked_by_name = (char *)texts[i];
        check_as(&info, false);
    }
}

static void a_lock_with_metadata_is_left_to_jansson(void **state)
{
    struct belay_info info = plain;

    (void)state;
    info.metadata = &note;
    info.n_metadata = 1;
    check_as(&info, false);
}

static void a_lock_of_the_longest_texts_is_written_whole(void **state)
{
    static char key[BELAY_KEY_MAX + 1];
    static char owner[BELAY_OWNER_MAX + 1];
    static char id[BELAY_ID_MAX + 1];
    struct belay_info info = plain;

    (void)state;
    memset(key, 'k', BELAY_KEY_MAX);
    memset(owner, 'o', BELAY_OWNER_MAX);
    memset(id, 'i', BELAY_ID_MAX);
    info.key = key;
    info.lock_id = id;
    info.locked_by = owner;
    info.locked_by_name = owner;
    info.token = INT64_MAX;
    info.ttl_ms = INT64_MAX;
    info.expires_in_ms = INT64_MIN;
    info.valid_for_ms = INT64_MAX;
    check_as(&info, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lock_is_written_the_same_either_way),
        cmocka_unit_test(a_grant_beside_others_is_written_the_same_either_way),
        cmocka_unit_test(a_released_lock_says_when_and_others_do_not),
        cmocka_unit_test(a_lock_without_a_token_or_a_ttl_has_null_either_way),
        cmocka_unit_test(a_lock_while_locking_is_off_and_one_with_a_queue_are_left_to_jansson),
        cmocka_unit_test(many_holders_are_left_to_jansson),
        cmocka_unit_test(unknown_fields_of_a_lock_are_null),
        cmocka_unit_test(strings_that_need_escapes_are_left_to_jansson),
        cmocka_unit_test(a_lock_with_metadata_is_left_to_jansson),
        cmocka_unit_test(a_lock_of_the_longest_texts_is_written_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
