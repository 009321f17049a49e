/* Bodies of requests: the quick way to read one finds what the slow one does, and what is wrong with it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "server/core/json_body.h"

static void texts_are_equal(const char *a, const char *b)
{
    assert_int_equal(a == NULL, b == NULL);
    if (a != NULL) {
        assert_string_equal(a, b);
    }
}

static void bodies_are_equal(const struct body *a, const struct body *b)
{
    texts_are_equal(a->key, b->key);
    texts_are_equal(a->locked_by, b->locked_by);
    texts_are_equal(a->locked_by_name, b->locked_by_name);
    texts_are_equal(a->lock_id, b->lock_id);
    texts_are_equal(a->profile, b->profile);
    texts_are_equal(a->correlation_id, b->correlation_id);
    texts_are_equal(a->outcome, b->outcome);
    assert_int_equal(a->ttl_ms, b->ttl_ms);
    assert_int_equal(a->wait_ms, b->wait_ms);
    assert_int_equal(a->heartbeat_ms, b->heartbeat_ms);
    assert_int_equal(a->stale_after_ms, b->stale_after_ms);
    assert_int_equal(a->reentrant, b->reentrant);
    assert_int_equal(a->has_webhook, b->has_webhook);
    assert_int_equal(a->n_metadata, b->n_metadata);
}

static void check(const struct body_field *fields, const char *text, enum belay_code wanted)
{
    struct belay_error quick_err = BELAY_ERROR_INIT;
    struct belay_error slow_err = BELAY_ERROR_INIT;
    struct body quick;
    struct body slow;
    enum belay_code code = body_read(&quick, fields, text, strlen(text), &quick_err);

    if (code != wanted) {
        fail_msg("'%s' is read as %s: %s", text, belay_code_name(code), quick_err.text);
    }
    assert_int_equal(body_read_json(&slow, fields, json_loads(text, 0, NULL), &slow_err), code);
    if (code == BELAY_OK) {
        bodies_are_equal(&quick, &slow);
    } else {
        assert_string_equal(quick_err.text, slow_err.text);
    }
    body_release(&quick);
    body_release(&slow);
    belay_error_release(&quick_err);
    belay_error_release(&slow_err);
}

static void a_body_is_read_the_same_either_way(void **state)
{
    (void)state;
    check(acquire_fields + 1, "{\"locked_by\":\"ci\",\"ttl_ms\":30000,\"wait_ms\":0,\"lock_id\":\"a-1\"}",
          BELAY_OK);
    check(acquire_fields, " {\"key\":\"k\", \"locked_by\":\"ci\", \"reentrant\":true, \"profile\":\"p\"} ",
          BELAY_OK);
    check(acquire_fields + 1, "{\"locked_by\":\"ci\",\"lock_id\":null,\"ttl_ms\":null,\"reentrant\":false}",
          BELAY_OK);
    check(acquire_fields + 1, "{\"locked_by\":\"ci\",\"webhook\":null,\"metadata\":null}", BELAY_OK);
    check(acquire_fields + 1, "{\"locked_by\":\"ci\",\"metadata\":{\"a\":\"b\"}}", BELAY_OK);
    check(acquire_fields + 1, "{\"locked_by\":\"\xc3\xa9\\n\",\"correlation_id\":\"\"}", BELAY_OK);
    check(release_fields + 1, "{\"lock_id\":\"a\",\"outcome\":\"failed\"}", BELAY_OK);
}

static void both_parsers_report_the_same_fault(void **state)
{
    (void)state;
    check(acquire_fields + 1, "{}", BELAY_INVALID);
    check(acquire_fields + 1, "[]", BELAY_INVALID);
    check(acquire_fields + 1, "{\"locked_by\":null}", BELAY_INVALID);
    check(acquire_fields + 1, "{\"locked_by\":7}", BELAY_INVALID);
    check(acquire_fields + 1, "{\"locked_by\":\"ci\",\"key\":\"k\"}", BELAY_INVALID);
    check(acquire_fields + 1, "{\"locked_by\":\"ci\",\"ttl\":30000}", BELAY_INVALID);
    check(acquire_fields + 1, "{\"locked_by\":\"ci\",\"ttl_ms\":1}", BELAY_INVALID);
    check(acquire_fields + 1, "{\"locked_by\":\"ci\",\"ttl_ms\":999999999999999999}", BELAY_INVALID);
    check(acquire_fields + 1, "{\"locked_by\":\"ci\",\"ttl_ms\":\"30s\"}", BELAY_INVALID);
    check(acquire_fields + 1, "{\"locked_by\":\"ci\",\"ttl_ms\":true}", BELAY_INVALID);
    check(acquire_fields + 1, "{\"locked_by\":\"ci\",\"reentrant\":1}", BELAY_INVALID);
    check(acquire_fields + 1, "{\"locked_by\":\"ci\",\"metadata\":\"a\"}", BELAY_INVALID);
    check(acquire_fields + 1, "{\"locked_by\":\"ci\",\"webhook\":\"a\"}", BELAY_INVALID);
    check(release_fields + 1, "{\"lock_id\":\"a\",\"outcome\":\"fail\"}", BELAY_INVALID);
    check(release_fields + 1, "{\"lock_id\":\"a\",\"outcome\":\"\"}", BELAY_INVALID);
}

static void a_name_that_comes_twice_is_refused(void **state)
{
    static const char *const texts[] = { "{\"lock_id\":\"a\",\"lock_id\":\"b\"}",
                                         "{\"lock_id\":null,\"lock_id\":\"b\"}",
                                         "{\"lock_id\":\"a\",\"lock_id\":null}" };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct belay_error err = BELAY_ERROR_INIT;
        struct body body;

        assert_int_equal(body_read(&body, release_fields + 1, texts[i], strlen(texts[i]), &err),
                         BELAY_INVALID);
        assert_non_null(strstr(err.text, "duplicate"));
        body_release(&body);
        belay_error_release(&err);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_body_is_read_the_same_either_way),
        cmocka_unit_test(both_parsers_report_the_same_fault),
        cmocka_unit_test(a_name_that_comes_twice_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
