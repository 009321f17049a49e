/* Valid names of databases, applications and URLs (S3.1), and their canonical forms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shared_db/shared_db_internal.h"

static void check_identifier(const char *text, const char *wanted)
{
    char *form = db_identifier(text);

    if (wanted == NULL) {
        assert_null(form);
    } else {
        assert_non_null(form);
        assert_string_equal(form, wanted);
    }
    free(form);
}

static void two_ways_to_write_an_identifier_are_one(void **state)
{
    (void)state;
    check_identifier("i-0123456789abcdef0", "i-0123456789abcdef0");
    check_identifier("10.0.1.5:5432", "10.0.1.5:5432");
    check_identifier("DB.Example:5432", "db.example:5432");
    check_identifier("db.example.:05432", "db.example:5432");
    check_identifier("[2001:DB8:0::1]:5432", "[2001:db8::1]:5432");
    check_identifier("i-nstance:1", "i-nstance:1"); /* a host by that name */
    check_identifier("[::ffff:10.0.1.5]:5432", "10.0.1.5:5432");
}

static void an_identifier_that_is_neither_instance_nor_host_and_port_is_refused(void **state)
{
    static const char *const wrong[] = {
        "", "db", "db:", ":5432", "db:0", "db:65536", "db:1x", "a b:1", "-a:1", "a..b:1", "i-", "i-0",
        "i-xyz", "[::1]", "[::1:5432", "[zz]:1", "a/b:1", "a:1\n", "a@b:1",
        /* other ways to write an address, which would pass for other hosts */
        "10.1:1", "10.0.1.05:1", "167772421:1", "0xa000105:1", "10.0.1.256:1"
    };

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        check_identifier(wrong[i], NULL);
    }
}

static void a_health_url_is_http_or_https(void **state)
{
    static const char *const right[] = { "http://a", "https://a.b:8443/health?x=1", "http://127.0.0.1:80/",
                                         "http://[::1]:8080/x" };
    static const char *const wrong[] = { "",
                                         "a",
                                         "ftp://a/",
                                         "HTTPS://a/",
                                         "httpS://a/",
                                         "http://",
                                         "http:///x",
                                         "http://a:0/",
                                         "http://a:b/",
                                         "http://u:p@a/",
                                         "http://a b/",
                                         "http://[::1/",
                                         "http://[10.0.0.1]/",
                                         "http://[abc]/",
                                         "http://a/\x01",
                                         "file:///x" };

    (void)state;
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        assert_true(app_url_is_valid(right[i]));
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_false(app_url_is_valid(wrong[i]));
    }
}

static void an_invalid_name_is_refused(void **state)
{
    (void)state;
    assert_true(app_name_is_valid("mi.dev.example.com"));
    assert_true(app_name_is_valid("a"));
    assert_false(app_name_is_valid("LOCK#DB#x"));
    assert_false(app_name_is_valid(""));
    assert_false(app_name_is_valid("a/b"));
    assert_false(app_name_is_valid("a\tb"));
}

static void an_instance_and_its_host_are_one_database(void **state)
{
    struct belay_app_database both = { (char *)"postgres", (char *)"i-0123", (char *)"db:1" };
    struct belay_app_database host = { (char *)"postgres", (char *)"db:1", NULL };
    struct belay_app_database id = { (char *)"postgres", (char *)"i-0123", NULL };
    struct belay_app_database other = { (char *)"postgres", (char *)"db:2", NULL };

    (void)state;
    assert_true(db_is_same(&both, &host));
    assert_true(db_is_same(&host, &both));
    assert_true(db_is_same(&both, &id));
    assert_false(db_is_same(&host, &id)); /* nobody said so */
    assert_false(db_is_same(&both, &other));
}

static void an_application_goes_through_json_and_back(void **state)
{
    static const char text[] =
        "{\"name\":\"shop\",\"urls\":[\"http://a/"
        "\"],\"databases\":[\"postgres=DB:1\",{\"kind\":\"neo4j\",\"id\":"
        "\"i-0123\",\"host\":\"g:2\"}],\"labels\":{\"a\":\"b\"},\"state\":\"stopped\",\"since\":"
        "\"2024-11-05T14:32:15.123Z\",\"by\":\"alice\",\"version\":7}";
    struct belay_app *app = NULL;
    struct belay_app *again = NULL;
    char *json;
    char *second;

    (void)state;
    assert_int_equal(belay_app_from_json(text, strlen(text), &app, NULL), BELAY_OK);
    assert_int_equal(belay_app_check(NULL, app, NULL), BELAY_OK);
    assert_string_equal(app->databases[0].id, "db:1");
    assert_int_equal(app->since_unix_ms, 1730817135123);
    json = belay_app_to_json(app);
    assert_int_equal(belay_app_from_json(json, strlen(json), &again, NULL), BELAY_OK);
    second = belay_app_to_json(again);
    assert_string_equal(json, second);
    free(json);
    free(second);
    belay_app_free(app);
    belay_app_free(again);
}

static void json_that_is_not_an_application_is_refused(void **state)
{
    static const char *const wrong[] = { "",
                                         "[]",
                                         "{",
                                         "{\"name\":1}",
                                         "{\"urls\":\"x\"}",
                                         "{\"urls\":[1]}",
                                         "{\"databases\":[{}]}",
                                         "{\"databases\":[\"x\"]}",
                                         "{\"labels\":{\"a\":1}}",
                                         "{\"state\":\"gone\"}",
                                         "{\"colour\":\"red\"}",
                                         "{\"name\":\"a\",\"name\":\"b\"}" };

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct belay_error err = BELAY_ERROR_INIT;
        struct belay_app *app = NULL;

        assert_int_equal(belay_app_from_json(wrong[i], strlen(wrong[i]), &app, &err), BELAY_INVALID);
        assert_true(err.text[0] != '\0');
        assert_null(app);
        belay_error_release(&err);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ways_to_write_an_identifier_are_one),
        cmocka_unit_test(an_identifier_that_is_neither_instance_nor_host_and_port_is_refused),
        cmocka_unit_test(a_health_url_is_http_or_https),
        cmocka_unit_test(an_invalid_name_is_refused),
        cmocka_unit_test(an_instance_and_its_host_are_one_database),
        cmocka_unit_test(an_application_goes_through_json_and_back),
        cmocka_unit_test(json_that_is_not_an_application_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
