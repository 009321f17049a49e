/* src/base: durations and times as text, growing strings, clean texts, ids, errors. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/address.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"

enum { SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE };
#define DAY INT64_C(86400000)

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- durations --------------------------------------------------------- */

static const struct {
    const char *text;
    int64_t ms;
} durations[] = {
    { "0", 0 },
    { "0s", 0 },
    { "500ms", 500 },
    { "30s", 30 * SECOND },
    { "10m", 10 * MINUTE },
    { "1h30m", HOUR + 30 * MINUTE },
    { "2d", 2 * DAY },
    { "1d2h3m4s5ms", DAY + 2 * HOUR + 3 * MINUTE + 4 * SECOND + 5 },
    { "90m", 90 * MINUTE },
    { "1m1ms", MINUTE + 1 },
    { "007s", 7 * SECOND },
    { "366d", BELAY_TTL_MAX_MS },
};

static void a_duration_is_read_as_it_is_typed(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(durations); i++) {
        int64_t ms = -1;

        if (!belay_parse_duration(durations[i].text, &ms) || ms != durations[i].ms) {
            fail_msg("'%s' was read as %" PRId64, durations[i].text, ms);
        }
    }
}

/* L8: what is not a duration is refused and nothing is written. */
static void an_invalid_duration_is_refused(void **state)
{
    static const char *const texts[] = {
        "",
        " ",
        "10",
        "10x",
        "s",
        "-5s",
        "+5s",
        "1.5h",
        "5 s",
        " 5s",
        "5s ",
        "5S",
        "30m1h",
        "1s1s",
        "1ms1s",
        "1h 30m",
        "1h30",
        "0x10s",
        "ten",
        "5sm",
        "99999999999999999999s",
        "106751991167d",
        "1e3s",
    };

    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        int64_t ms = -7;

        if (belay_parse_duration(texts[i], &ms) || ms != -7) {
            fail_msg("'%s' was read as %" PRId64, texts[i], ms);
        }
    }
    int64_t untouched = -7;
    assert_false(belay_parse_duration(NULL, &untouched));
    assert_int_equal(untouched, -7);
}

static void a_duration_is_written_so_that_it_can_be_typed_again(void **state)
{
    static const struct {
        int64_t ms;
        const char *text;
    } rows[] = {
        { 0, "0s" },
        { 1, "1ms" },
        { 500, "500ms" },
        { 1000, "1s" },
        { 1500, "1s500ms" },
        { 60 * SECOND, "1m" },
        { 24 * MINUTE, "24m" },
        { HOUR + 30 * MINUTE, "1h30m" },
        { 25 * INT64_C(3600000), "1d1h" },
        { BELAY_TTL_MAX_MS, "366d" },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[CLOCK_TEXT_SIZE];
        int64_t again = -1;

        assert_string_equal(clock_format_duration(text, rows[i].ms), rows[i].text);
        assert_true(belay_parse_duration(text, &again));
        assert_int_equal(again, rows[i].ms);
    }
}

static void a_duration_is_written_for_people(void **state)
{
    static const struct {
        int64_t ms;
        const char *text;
    } rows[] = {
        { -1, "0s" },
        { 0, "0s" },
        { 340, "340ms" },
        { 999, "999ms" },
        { 1000, "1s" },
        { 1999, "1s" },
        { 4 * MINUTE + 12 * SECOND, "4m 12s" }, /* S2.3 */
        { 3 * HOUR + 45 * MINUTE + 59 * SECOND, "3h 45m" },
        { 2 * HOUR + 59 * SECOND, "2h" },
        { 2 * DAY + 3 * HOUR, "2d 3h" },
        { BELAY_TTL_MAX_MS, "366d" },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[CLOCK_TEXT_SIZE];

        assert_string_equal(clock_format_span(text, rows[i].ms), rows[i].text);
    }
}

static void a_moment_is_written_in_utc(void **state)
{
    static const struct {
        int64_t unix_ms;
        bool millis;
        const char *text;
    } rows[] = {
        { 0, true, "1970-01-01T00:00:00.000Z" },
        { 1730817135123, true, "2024-11-05T14:32:15.123Z" },
        { 1730817135123, false, "2024-11-05T14:32:15Z" }, /* S2.3 */
        { 1709164800007, true, "2024-02-29T00:00:00.007Z" },
        { -1, true, "1969-12-31T23:59:59.999Z" },
        { -1000, true, "1969-12-31T23:59:59.000Z" },
    };

    (void)state;
    assert_int_equal(setenv("TZ", "America/New_York", 1), 0);
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[CLOCK_TEXT_SIZE];

        assert_string_equal(clock_format_utc(text, rows[i].unix_ms, rows[i].millis), rows[i].text);
        if (rows[i].millis && rows[i].unix_ms > 0) {
            assert_int_equal(clock_parse_utc(rows[i].text), rows[i].unix_ms);
        }
    }
}

/* Every day of 800 years, at a time of day that moves along. */
static void every_date_matches_the_system(void **state)
{
    const int64_t first_ms = INT64_C(-11676096000000); /* of the year 1600 */

    (void)state;
    for (int64_t day = 0; day < 2 * 146097; day++) {
        int64_t unix_ms = first_ms + day * DAY + day * 7919 % DAY;
        time_t seconds = (time_t)((unix_ms - (unix_ms % 1000 + 1000) % 1000) / 1000);
        char text[CLOCK_TEXT_SIZE];
        struct tm tm;
        int n = 0;
        int part[6];

        assert_non_null(gmtime_r(&seconds, &tm));
        clock_format_utc(text, unix_ms, false);
        assert_int_equal(sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2dZ%n", &part[0], &part[1], &part[2], &part[3],
                                &part[4], &part[5], &n),
                         6);
        if (n != 20 || part[0] != tm.tm_year + 1900 || part[1] != tm.tm_mon + 1 || part[2] != tm.tm_mday ||
            part[3] != tm.tm_hour || part[4] != tm.tm_min || part[5] != tm.tm_sec) {
            fail_msg("%" PRId64 " is written as %s", unix_ms, text);
        }
    }
}

static void a_moment_without_a_year_of_four_digits_is_a_number(void **state)
{
    char text[CLOCK_TEXT_SIZE];

    (void)state;
    assert_string_equal(clock_format_utc(text, INT64_C(-62167219200000), true), "0000-01-01T00:00:00.000Z");
    assert_string_equal(clock_format_utc(text, INT64_C(-62167219200001), true), "-62167219200001ms");
    assert_string_equal(clock_format_utc(text, INT64_C(253402300799999), true), "9999-12-31T23:59:59.999Z");
    assert_string_equal(clock_format_utc(text, INT64_C(253402300800000), true), "253402300800000ms");
    assert_string_equal(clock_format_utc(text, INT64_MIN, true), "-9223372036854775808ms");
}

static void the_boot_clock_does_not_go_back(void **state)
{
    int64_t before = clock_boot_ms();

    (void)state;
    assert_true(before > 0);
    assert_true(belay_now_boot_ms() >= before);
    assert_true(clock_unix_ms() > INT64_C(1600000000000));
}

/* ---- growing strings --------------------------------------------------- */

static void a_string_grows_to_its_limit_and_no_further(void **state)
{
    struct buf buf = BUF_INIT(10);
    char *text;

    (void)state;
    buf_adds(&buf, "12345");
    buf_addf(&buf, "%d", 67890);
    assert_false(buf.failed);
    assert_int_equal(buf.len, 10);
    text = buf_take(&buf);
    assert_string_equal(text, "1234567890");
    assert_null(buf.data);
    free(text);
    buf_release(&buf);
}

static void a_string_that_failed_stays_failed(void **state)
{
    struct buf by_text = BUF_INIT(4);
    struct buf by_format = BUF_INIT(4);

    (void)state;
    buf_adds(&by_text, "12345");
    assert_true(by_text.failed);
    buf_adds(&by_text, "1");
    assert_int_equal(by_text.len, 0);
    assert_null(buf_take(&by_text));
    buf_release(&by_text);

    buf_adds(&by_format, "123");
    buf_addf(&by_format, "%s", "45");
    buf_adds(&by_format, "4");
    assert_true(by_format.failed);
    assert_string_equal(by_format.data, "123");
    assert_null(buf_take(&by_format));
    assert_null(by_format.data);
    buf_release(&by_format);
    assert_false(by_format.failed);
}

static void nothing_added_is_an_empty_string(void **state)
{
    struct buf buf = BUF_INIT(0);
    char *text = buf_take(&buf);

    (void)state;
    assert_non_null(text);
    assert_string_equal(text, "");
    free(text);
}

static void a_string_may_hold_any_bytes(void **state)
{
    struct buf buf = BUF_INIT(5000);

    (void)state;
    for (int i = 0; i < 1000; i++) {
        buf_add(&buf, "a\0b", 3);
    }
    assert_false(buf.failed);
    assert_int_equal(buf.len, 3000);
    assert_memory_equal(buf.data + 2997, "a\0b", 4);
    buf_release(&buf);
}

static void a_number_ends_where_its_space_ends_and_fits_with_its_sign(void **state)
{
    static const struct {
        int64_t value;
        const char *text;
    } numbers[] = {
        { INT64_MIN, "-9223372036854775808" },
        { -100, "-100" },
        { -99, "-99" },
        { -10, "-10" },
        { -9, "-9" },
        { -1, "-1" },
        { 0, "0" },
        { 9, "9" },
        { 10, "10" },
        { 99, "99" },
        { 100, "100" },
        { INT64_MAX, "9223372036854775807" },
    };
    char space[NUMBER_TEXT_SIZE];

    (void)state;
    for (size_t i = 0; i < COUNT(numbers); i++) {
        const char *text = signed_number_text(space, numbers[i].value);

        assert_string_equal(text, numbers[i].text);
        assert_ptr_equal(text + strlen(text) + 1, space + sizeof space);
    }
    assert_string_equal(number_text(space, UINT64_MAX), "18446744073709551615");
}

static void a_number_is_added_as_printf_writes_it(void **state)
{
    static const int64_t numbers[] = { 0,    9,  10,  99,    100,       101,       999,      1000,
                                       1001, -1, -10, 30000, 123456789, INT64_MAX, INT64_MIN };

    (void)state;
    for (size_t i = 0; i < COUNT(numbers); i++) {
        struct buf quick = BUF_INIT(100);
        struct buf slow = BUF_INIT(100);

        buf_add_number(&quick, numbers[i]);
        buf_addf(&slow, "%" PRId64, numbers[i]);
        assert_string_equal(quick.data, slow.data);
        buf_release(&quick);
        buf_release(&slow);
    }
}

/* ---- texts ------------------------------------------------------------- */

/* Each byte at each place of strings of each length: the address sanitizer checks the block. */
static void a_plain_text_ends_at_the_first_byte_that_is_none(void **state)
{
    enum { LONGEST = 40 };

    (void)state;
    for (size_t len = 0; len <= LONGEST; len++) {
        char *text = malloc(len == 0 ? 1 : len);

        assert_non_null(text);
        memset(text, 'x', len);
        assert_int_equal(text_plain(text, len), len);
        for (size_t at = 0; at < len; at++) {
            for (int byte = 0; byte < 256; byte++) {
                bool is_plain = byte >= ' ' && byte <= '~' && byte != '"' && byte != '\\';

                text[at] = (char)byte;
                assert_int_equal(text_plain(text, len), is_plain ? len : at);
            }
            text[at] = 'x';
        }
        free(text);
    }
}

static void a_hash_depends_on_every_byte_of_a_text_and_on_nothing_else(void **state)
{
    char text[48];
    char copy[sizeof text + 1];

    (void)state;
    assert_int_equal(text_hash(NULL), text_hash(""));
    for (size_t len = 0; len < sizeof text; len++) {
        uint64_t hash;

        memset(text, 'x', sizeof text);
        text[len] = '\0';
        hash = text_hash(text);
        memset(copy, 'y', sizeof copy); /* other bytes behind it, and another alignment */
        memcpy(copy + 1, text, len + 1);
        assert_int_equal(text_hash(copy + 1), hash);
        for (size_t at = 0; at < len; at++) {
            text[at] = 'X';
            assert_int_not_equal(text_hash(text), hash);
            text[at] = 'x';
        }
    }
}

/* Tables use the low bits. 4096 hashes of a good function have 2,589 different values of 12 bits. */
static void keys_that_differ_in_their_last_digits_spread_over_a_table(void **state)
{
    (void)state;
    for (int len = 4; len <= 40; len++) {
        bool seen[4096] = { false };
        int n = 0;

        for (int i = 0; i < 4096; i++) {
            char key[64];
            size_t at;

            (void)snprintf(key, sizeof key, "%0*d", len, i);
            at = text_hash(key) % COUNT(seen);
            n += seen[at] ? 0 : 1;
            seen[at] = true;
        }
        if (n < 2300) {
            fail_msg("keys of %d characters have %d places", len, n);
        }
    }
}

static void a_clean_text_is_utf8_without_control_characters(void **state)
{
    static const struct {
        const char *text;
        bool is_clean;
    } rows[] = {
        { "a", true },
        { "deploy api prod", true },
        { "\xc3\xa4\xe2\x82\xac\xf0\x9f\x94\x92", true }, /* two, three and four bytes */
        { "\xf4\x8f\xbf\xbf", true },                     /* the last code point */
        { "", false },
        { "a\nb", false },
        { "a\tb", false },
        { "\x1b[31m", false },
        { "\x7f", false },
        { "\xc2\x85", false },         /* a control character in two bytes */
        { "\xc3", false },             /* cut off */
        { "\xe2\x82", false },         /* cut off */
        { "a\xff", false },            /* never in UTF-8 */
        { "\x80", false },             /* a second byte alone */
        { "\xc0\xaf", false },         /* a slash in two bytes */
        { "\xe0\x80\xaf", false },     /* and in three */
        { "\xed\xa0\x80", false },     /* half a surrogate pair */
        { "\xf4\x90\x80\x80", false }, /* beyond the last */
        { "\xf8\x88\x80\x80\x80", false },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (text_is_clean(rows[i].text, 100) != rows[i].is_clean) {
            fail_msg("row %zu is judged wrongly", i);
        }
    }
}

static void a_clean_text_is_counted_in_bytes(void **state)
{
    (void)state;
    assert_true(text_is_clean("12345", 5));
    assert_false(text_is_clean("123456", 5));
    assert_true(text_is_clean("\xe2\x82\xac", 3));
    assert_false(text_is_clean("\xe2\x82\xac", 2));
}

static void a_prefix_is_found_at_the_beginning_only(void **state)
{
    (void)state;
    assert_true(text_has_prefix("build-x", "build-"));
    assert_true(text_has_prefix("build-x", ""));
    assert_false(text_has_prefix("build", "build-"));
    assert_false(text_has_prefix("rebuild-", "build-"));
}

static void bytes_are_written_in_hexadecimal(void **state)
{
    const unsigned char bytes[] = { 0x00, 0x0f, 0xa5, 0xff };
    char out[9] = "????????";

    (void)state;
    text_hex(out, bytes, sizeof bytes);
    assert_string_equal(out, "000fa5ff");
    text_hex(out, bytes, 0);
    assert_string_equal(out, "");
}

static void lists_of_texts_are_compared_in_their_order(void **state)
{
    char *const a[] = { (char *)"x", (char *)"y" };
    char *const b[] = { (char *)"y", (char *)"x" };

    (void)state;
    assert_true(texts_are_same(a, 2, a, 2));
    assert_true(texts_are_same(NULL, 0, NULL, 0));
    assert_false(texts_are_same(a, 2, a, 1));
    assert_false(texts_are_same(a, 2, b, 2));
}

static void only_loopback_addresses_and_localhost_are_this_machine(void **state)
{
    static const char *const here[] = { "localhost", "127.0.0.1", "127.1.2.3", "127.1", "::1" };
    static const char *const elsewhere[] = {
        "127.0.0.1.example", "127.example", "localhost.example", "10.0.0.1", "128.0.0.1", "::2", ""
    };

    (void)state;
    for (size_t i = 0; i < sizeof here / sizeof here[0]; i++) {
        assert_true(address_is_this_machine(here[i]));
    }
    for (size_t i = 0; i < sizeof elsewhere / sizeof elsewhere[0]; i++) {
        assert_false(address_is_this_machine(elsewhere[i]));
    }
}

static void ids_are_version_4_uuids_and_differ(void **state)
{
    char a[UUID_TEXT_SIZE];
    char b[UUID_TEXT_SIZE];

    (void)state;
    assert_true(uuid_make(a));
    assert_true(uuid_make(b));
    assert_string_not_equal(a, b);
    assert_int_equal(strlen(a), 36);
    assert_int_equal(strspn(a, "0123456789abcdef-"), 36);
    assert_true(a[8] == '-' && a[13] == '-' && a[18] == '-' && a[23] == '-');
    assert_int_equal(a[14], '4');
    assert_non_null(strchr("89ab", a[19]));
}

static void lock_ids_begin_with_the_time_and_differ(void **state)
{
    char a[UUID_TEXT_SIZE];
    char b[UUID_TEXT_SIZE];

    (void)state;
    assert_true(uuid_make_at(0x0123456789ab, a));
    assert_true(uuid_make_at(0x0123456789ab, b));
    assert_string_not_equal(a, b);
    assert_int_equal(strlen(a), 36);
    assert_memory_equal(a, "01234567-89ab-7", 15);
    assert_non_null(strchr("89ab", a[19]));
}

static void metadata_is_copied_deeply(void **state)
{
    char name[] = "pr";
    char value[] = "17";
    struct belay_meta meta[] = { { name, value }, { "empty", "" } };
    struct belay_meta *copy = meta_copy(meta, 2);

    (void)state;
    assert_non_null(copy);
    name[0] = value[0] = 'x';
    assert_string_equal(copy[0].name, "pr");
    assert_string_equal(copy[0].value, "17");
    assert_string_equal(copy[1].value, "");
    meta_free(copy, 2);
    assert_null(meta_copy(NULL, 0));
    meta_free(NULL, 0);
}

/* ---- errors ------------------------------------------------------------ */

static void an_error_gets_its_context_in_front(void **state)
{
    struct belay_error err = BELAY_ERROR_INIT;

    (void)state;
    assert_int_equal(error_set(&err, BELAY_INVALID, "ttl is %d", 5), BELAY_INVALID);
    assert_int_equal(error_wrap(&err, "acquire '%s'", "k"), BELAY_INVALID);
    assert_string_equal(err.text, "acquire 'k': ttl is 5");
    assert_int_equal(err.code, BELAY_INVALID);
    belay_error_release(&err);
    assert_int_equal(err.code, BELAY_OK);
    assert_string_equal(err.text, "");
}

static void an_error_that_grows_too_long_loses_its_end(void **state)
{
    struct belay_error err = BELAY_ERROR_INIT;
    char long_text[2 * sizeof err.text];

    (void)state;
    memset(long_text, 'x', sizeof long_text);
    long_text[sizeof long_text - 1] = '\0';
    (void)error_set(&err, BELAY_CONFIG, "%s", long_text);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    (void)error_wrap(&err, "read '%s'", "f");
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_true(text_has_prefix(err.text, "read 'f': xxx"));
    (void)error_wrap(&err, "%s", long_text);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    belay_error_release(&err);
}

static void an_error_may_be_ignored_with_null(void **state)
{
    (void)state;
    assert_int_equal(error_set(NULL, BELAY_HELD, "held"), BELAY_HELD);
    assert_int_equal(error_wrap(NULL, "context"), BELAY_BUG);
    assert_int_equal(error_no_memory(NULL), BELAY_NO_MEMORY);
    error_set_holder(NULL, NULL);
    belay_error_release(NULL);
    assert_null(belay_error_holder(NULL));
}

static void every_code_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (int a = BELAY_OK; a <= BELAY_REDIRECTED; a++) {
        for (int b = BELAY_OK; b < a; b++) {
            assert_string_not_equal(belay_code_name((enum belay_code)a), belay_code_name((enum belay_code)b));
        }
    }
    assert_string_equal(belay_code_name(BELAY_HELD), "lock_held");
    assert_string_equal(belay_code_name((enum belay_code)99), "bug");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_duration_is_read_as_it_is_typed),
        cmocka_unit_test(an_invalid_duration_is_refused),
        cmocka_unit_test(a_duration_is_written_so_that_it_can_be_typed_again),
        cmocka_unit_test(a_duration_is_written_for_people),
        cmocka_unit_test(a_moment_is_written_in_utc),
        cmocka_unit_test(every_date_matches_the_system),
        cmocka_unit_test(a_moment_without_a_year_of_four_digits_is_a_number),
        cmocka_unit_test(the_boot_clock_does_not_go_back),
        cmocka_unit_test(a_string_grows_to_its_limit_and_no_further),
        cmocka_unit_test(a_string_that_failed_stays_failed),
        cmocka_unit_test(nothing_added_is_an_empty_string),
        cmocka_unit_test(a_string_may_hold_any_bytes),
        cmocka_unit_test(a_number_ends_where_its_space_ends_and_fits_with_its_sign),
        cmocka_unit_test(a_number_is_added_as_printf_writes_it),
        cmocka_unit_test(a_plain_text_ends_at_the_first_byte_that_is_none),
        cmocka_unit_test(a_hash_depends_on_every_byte_of_a_text_and_on_nothing_else),
        cmocka_unit_test(keys_that_differ_in_their_last_digits_spread_over_a_table),
        cmocka_unit_test(a_clean_text_is_utf8_without_control_characters),
        cmocka_unit_test(a_clean_text_is_counted_in_bytes),
        cmocka_unit_test(a_prefix_is_found_at_the_beginning_only),
        cmocka_unit_test(bytes_are_written_in_hexadecimal),
        cmocka_unit_test(lists_of_texts_are_compared_in_their_order),
        cmocka_unit_test(only_loopback_addresses_and_localhost_are_this_machine),
        cmocka_unit_test(ids_are_version_4_uuids_and_differ),
        cmocka_unit_test(lock_ids_begin_with_the_time_and_differ),
        cmocka_unit_test(metadata_is_copied_deeply),
        cmocka_unit_test(an_error_gets_its_context_in_front),
        cmocka_unit_test(an_error_that_grows_too_long_loses_its_end),
        cmocka_unit_test(an_error_may_be_ignored_with_null),
        cmocka_unit_test(every_code_has_a_name_of_its_own),
    };

    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
