/* The quick reader of bodies: what it reads is what jansson reads, and the rest it leaves to jansson. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <jansson.h>

#include "json/flat_json.h"

/* The result, read from a block of exactly that size; NULL: left to jansson. */
static json_t *flat_json_load(const char *text, size_t len)
{
    char *copy = malloc(len == 0 ? 1 : len);
    struct flat_json json = { copy, copy + len, false };
    struct flat_member member;
    json_t *object = json_object();
    enum flat_step step;

    assert_non_null(copy);
    memcpy(copy, text, len);
    while ((step = flat_json_next(&json, &member)) == FLAT_MEMBER) {
        json_t *value = member.kind == FLAT_TEXT     ? json_string(member.text)
                        : member.kind == FLAT_NUMBER ? json_integer(member.number)
                        : member.kind == FLAT_NULL   ? json_null()
                                                     : json_boolean(member.kind == FLAT_TRUE);

        assert_int_equal(json_object_set_new(object, member.name, value), 0);
    }
    free(copy);
    if (step != FLAT_END) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static void plain_objects_are_read_as_jansson_reads_them(void **state)
{
    static const char *const texts[] = {
        "{}",
        " { } ",
        "{\"lock_id\":\"a-b\"}",
        "\r\n{\t\"a\" : \"\" , \"b\": 0, \"c\":true,\"d\":false,\"e\":null }\n",
        "{\"ttl_ms\":999999999999999999,\"wait_ms\":30000}",
        "{\"\":\"{}:,[]/'~\"}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        json_t *quick = flat_json_load(texts[i], strlen(texts[i]));
        json_t *slow = json_loads(texts[i], JSON_REJECT_DUPLICATES, NULL);

        assert_non_null(quick);
        assert_true(json_equal(quick, slow));
        json_decref(quick);
        json_decref(slow);
    }
}

static void other_values_are_left_to_jansson(void **state)
{
    static const char *const texts[] = {
        "",
        "{",
        "}",
        "[]",
        "1",
        "{\"a\":1}x",
        "{\"a\":1,}",
        "{,}",
        "{\"a\":}",
        "{\"a\"}",
        "{a:1}",
        "{\"a\":01}",
        "{\"a\":-1}",
        "{\"a\":1.5}",
        "{\"a\":1e3}",
        "{\"a\":9223372036854775808}",
        "{\"a\":nul}",
        "{\"a\":nullx}",
        "{\"a\":\"b}",
        "{\"a\":\"\\n\"}",
        "{\"a\":\"\xc3\xa9\"}",
        "{\"a\":\"\x01\"}",
        "{\"a\":{}}",
        "{\"a\":1 \"b\":2}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_null(flat_json_load(texts[i], strlen(texts[i])));
    }
    assert_null(flat_json_load("{\"a\":\"b\0c\"}", 11));
}

/* Cut anywhere: an address sanitizer sees a step too far. */
static void a_body_that_is_cut_short_is_not_read_past_its_end(void **state)
{
    static const char text[] = "{\"lock_id\":\"abc\",\"ttl_ms\":30000,\"reentrant\":true}";

    (void)state;
    for (size_t len = 0; len < sizeof text - 1; len++) {
        assert_null(flat_json_load(text, len));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_objects_are_read_as_jansson_reads_them),
        cmocka_unit_test(other_values_are_left_to_jansson),
        cmocka_unit_test(a_body_that_is_cut_short_is_not_read_past_its_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
