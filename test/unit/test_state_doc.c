/* JSON as states need it: what is refused, what stays as it is written, and what means the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "state/canon.h"
#include "state/doc.h"

static bool is_valid(const char *text, size_t len)
{
    struct doc doc = { 0 };
    bool valid = doc_scan(text, len, &doc, NULL) == BELAY_OK;

    doc_release(&doc);
    return valid;
}

static void valid_texts_are_taken(void **state)
{
    static const char *const texts[] = { "{}",
                                         " [ ] ",
                                         "0",
                                         "-0.0E+10",
                                         "\"\"",
                                         "[[[1,2],{\"a\":null}],true,false]",
                                         "\"\\u00e9\\ud83d\\ude00\\n\\/\"",
                                         "1e400",
                                         "\"\xf0\x9f\x98\x80\"",
                                         "{\"\":{\"\":0}}\r\n\t " };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (!is_valid(texts[i], strlen(texts[i]))) {
            fail_msg("refused: %s", texts[i]);
        }
    }
}

static void invalid_json_is_refused(void **state)
{
    static const char *const texts[] = { "",
                                         "{",
                                         "[1,]",
                                         "{\"a\":1,}",
                                         "{a:1}",
                                         "01",
                                         "+1",
                                         "1.",
                                         ".5",
                                         "1e",
                                         "nul",
                                         "tru e",
                                         "\"a",
                                         "\"\n\"",
                                         "\"\\x\"",
                                         "\"\\u12g4\"",
                                         "\"\xff\"",
                                         "\"\xc0\x80\"",
                                         "\"\\ud800\"",
                                         "\"\\udc00\"",
                                         "\"\xed\xa0\x80\"",
                                         "1 2",
                                         "[1}",
                                         "{\"a\" 1}",
                                         "{\"a\":}",
                                         "]",
                                         "[1 2]",
                                         "\xef\xbb\xbf{}",
                                         "NaN",
                                         "'a'" };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (is_valid(texts[i], strlen(texts[i]))) {
            fail_msg("accepted: %s", texts[i]);
        }
    }
    assert_false(is_valid("{}\0", 3));
}

static void nesting_has_a_limit(void **state)
{
    char deep[2 * (DOC_DEPTH_MAX + 1)];

    (void)state;
    memset(deep, '[', DOC_DEPTH_MAX);
    memset(deep + DOC_DEPTH_MAX, ']', DOC_DEPTH_MAX);
    assert_true(is_valid(deep, 2 * DOC_DEPTH_MAX));
    memset(deep, '[', DOC_DEPTH_MAX + 1);
    memset(deep + DOC_DEPTH_MAX + 1, ']', DOC_DEPTH_MAX + 1);
    deep[DOC_DEPTH_MAX] = '[';
    deep[DOC_DEPTH_MAX + 1] = '1';
    assert_false(is_valid(deep, sizeof deep));
}

static void the_place_of_a_fault_is_named(void **state)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct doc doc;

    (void)state;
    assert_int_equal(doc_scan("{\n \"a\": 1,\n \"b\" 2}", 19, &doc, &err), BELAY_BAD_CONTENT);
    assert_non_null(strstr(err.text, "line 3, column 6"));
}

static void sum_of(const char *text, char out[CANON_SUM_SIZE])
{
    struct doc doc;

    assert_int_equal(doc_scan(text, strlen(text), &doc, NULL), BELAY_OK);
    assert_int_equal(canon_sum(&doc, 0, out, NULL), BELAY_OK);
    doc_release(&doc);
}

static void values_with_the_same_meaning_have_the_same_checksum(void **state)
{
    static const char *const pairs[][2] = {
        { "{\"a\":1,\"b\":[2]}", " { \"b\" : [ 2 ] , \"a\" : 1 } " },
        { "\"\\u0041\\/\\u00e9\"", "\"A/\xc3\xa9\"" },
        { "{\"\\u0062\":1,\"a\":2}", "{\"a\":2,\"b\":1}" },
        { "\"\\u000a\\u001f\"", "\"\\n\\u001F\"" },
    };
    char a[CANON_SUM_SIZE];
    char b[CANON_SUM_SIZE];

    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        sum_of(pairs[i][0], a);
        sum_of(pairs[i][1], b);
        assert_string_equal(a, b);
    }
}

static void values_with_different_meanings_have_different_checksums(void **state)
{
    static const char *const texts[] = { "1",           "1.0",        "1e0",  "\"1\"", "[1]",   "{\"1\":1}",
                                         "[]",          "{}",         "null", "[[1]]", "[1,1]", "\"a\"",
                                         "\"\\u0000\"", "{\"a\":{}}", "[{}]", "true",  "false" };
    enum { N = sizeof texts / sizeof texts[0] };
    char sums[N][CANON_SUM_SIZE];

    (void)state;
    for (size_t i = 0; i < N; i++) {
        sum_of(texts[i], sums[i]);
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(sums[i], sums[k]);
        }
    }
}

static void a_name_that_stands_twice_is_refused_wherever_it_is(void **state)
{
    static const char text[] = "[{\"x\":{\"a\":1,\"b\":2,\"\\u0061\":3}}]";
    struct belay_error err = BELAY_ERROR_INIT;
    char sum[CANON_SUM_SIZE];
    struct doc doc;

    (void)state;
    assert_int_equal(doc_scan(text, strlen(text), &doc, NULL), BELAY_OK);
    assert_int_equal(canon_sum(&doc, 0, sum, &err), BELAY_BAD_CONTENT);
    assert_non_null(strstr(err.text, "appears twice"));
    doc_release(&doc);
}

/* Random changes to a text: jansson, another hand's work, must judge alike. */
static void jansson_agrees_on_what_is_json(void **state)
{
    static const char seed_text[] =
        "{\"a\": [1, -2.5e3, \"x\\n\\u00e9\", true, null], \"b\": {\"c\": \"\xc3\xa9\"}}";
    unsigned seed = 12345;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        char text[sizeof seed_text];
        size_t len = sizeof seed_text - 1;
        json_t *other;

        memcpy(text, seed_text, sizeof text);
        for (int i = 0; i < 2; i++) {
            seed = seed * 1103515245 + 12345;
            text[(seed >> 16) % len] =
                (char)(seed >> 8) & 1 ? "{}[]\",:\\u0e1-. "[(seed >> 9) % 15] : (char)(seed >> 4);
        }
        other = json_loadb(text, len, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL, NULL);
        /* It has no exponents beyond its doubles and no NUL in names; the seed has too few digits for the rest. */
        if (other != NULL) {
            assert_true(is_valid(text, len));
        } else if (is_valid(text, len)) {
            assert_true(memchr(text, '\\', len) != NULL || strpbrk(text, "eE") != NULL);
        }
        json_decref(other);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_texts_are_taken),
        cmocka_unit_test(invalid_json_is_refused),
        cmocka_unit_test(nesting_has_a_limit),
        cmocka_unit_test(the_place_of_a_fault_is_named),
        cmocka_unit_test(values_with_the_same_meaning_have_the_same_checksum),
        cmocka_unit_test(values_with_different_meanings_have_different_checksums),
        cmocka_unit_test(a_name_that_stands_twice_is_refused_wherever_it_is),
        cmocka_unit_test(jansson_agrees_on_what_is_json),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
