/* Store URLs, layouts out of the configuration, and expressions: what needs no server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/dynamodb/dynamodb_internal.h"

/* ---- URLs ------------------------------------------------------------------------ */

static void a_url_is_read_and_written_whole(void **state)
{
    struct ddb_params params;
    char *url;

    (void)state;
    assert_int_equal(
        ddb_params_parse("locks?layout=runvoy,region=eu-west-1,endpoint=http://h:1&fence_table=fen"
                         "&max_clock_skew=500ms,observe=1",
                         &params, NULL),
        BELAY_OK);
    url = ddb_params_url(&params);
    assert_string_equal(url, "dynamodb:locks?layout=runvoy&region=eu-west-1&endpoint=http://h:1"
                             "&fence_table=fen&max_clock_skew=500ms&observe=1");
    free(url);
    ddb_params_release(&params);
}

static void a_comma_begins_the_parameters_and_values_may_be_encoded(void **state)
{
    struct ddb_params params;
    char *url;

    (void)state;
    assert_int_equal(ddb_params_parse("locks,profile=a%2Cb%26c%25,region=r", &params, NULL), BELAY_OK);
    assert_string_equal(params.profile, "a,b&c%");
    url = ddb_params_url(&params);
    assert_string_equal(url, "dynamodb:locks?region=r&profile=a%2Cb%26c%25");
    free(url);
    ddb_params_release(&params);
}

static void a_wrong_url_is_answered_with_the_right_form(void **state)
{
    static const struct {
        const char *url, *says;
    } wrong[] = {
        { "", "is not the name of a DynamoDB table" },
        { "a/b", "is not the name of a DynamoDB table" },
        { "locks?layot=x", "valid are layout=NAME" },
        { "locks?layout", "has no value" },
        { "locks?layout=", "has no value" },
        { "locks?max_clock_skew=soon", "is no duration" },
        { "locks?max_clock_skew=2h", "at most 1h" },
        { "locks?observe=yes", "must be 0 or 1" },
        { "locks,layot=x", "valid are layout=NAME" },
        { "locks?region=a,region=b", "is given twice" },
        { "locks?profile=50%", "is written %25" },
        { "locks?fence_table=x", "is not the name of a DynamoDB table" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct ddb_params params;
        struct belay_error err = BELAY_ERROR_INIT;

        assert_int_equal(ddb_params_parse(wrong[i].url, &params, &err), BELAY_INVALID);
        if (strstr(err.text, wrong[i].says) == NULL) {
            fail_msg("'%s': %s", wrong[i].url, err.text);
        }
        belay_error_release(&err);
    }
}

/* ---- layouts of one's own ---------------------------------------------------------- */

/* "key\0value\0key\0value\0\0" */
static const char *setting(const void *settings, const char *name)
{
    for (const char *at = settings; *at != '\0'; at += strlen(at) + 1) {
        const char *value = at + strlen(at) + 1;

        if (strncmp(name, "layouts.x.", 10) == 0 && strcmp(name + 10, at) == 0) {
            return value;
        }
        at = value;
    }
    return NULL;
}

static void a_layout_that_cannot_work_is_refused_with_the_reason(void **state)
{
    static const struct {
        const char *settings, *says;
    } wrong[] = {
        { "key\0PK\0", "must be ATTRIBUTE=VALUE" },
        { "key\0PK=LOCK\0", "must have {key} in it" },
        { "key\0PK={key}\0lock_id\0id\0expires_at\0e\0", "owner: '' is missing" },
        { "key\0PK={key}\0lock_id\0id\0owner\0o\0", "expires_at: '' is missing" },
        { "key\0PK={key}\0owner\0o\0expires_at\0e\0", "lock_id: '' is missing" },
        { "key\0PK={key}\0lock_id\0id\0owner\0o\0expires_at\0e weeks\0", "seconds, millis, rfc3339 or iso" },
        { "key\0PK={key}\0lock_id\0id N\0owner\0o\0expires_at\0e\0", "must be the name of an attribute" },
        { "key\0PK={key}\0lock_id\0id\0owner\0o\0expires_at\0e\0release\0drop\0",
          "must be delete, update or expire" },
        { "key\0PK={key}\0lock_id\0id\0owner\0o\0expires_at\0e\0release\0update\0", "needs an attribute" },
        { "key\0PK={key}\0lock_id\0id\0owner\0o\0expires_at\0e\0constants.0\0x\0",
          "must be ATTRIBUTE=VALUE" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct layout_made made;
        struct belay_error err = BELAY_ERROR_INIT;

        assert_int_equal(layout_make("x", setting, wrong[i].settings, &made, &err), BELAY_CONFIG);
        if (strstr(err.text, wrong[i].says) == NULL) {
            fail_msg("%zu: %s", i, err.text);
        }
        belay_error_release(&err);
    }
}

static void an_unknown_layout_is_not_found(void **state)
{
    struct layout_made made;

    (void)state;
    assert_int_equal(layout_make("x", setting, "owner\0o\0", &made, NULL), BELAY_NOT_FOUND);
    assert_int_equal(layout_make("x", NULL, NULL, &made, NULL), BELAY_NOT_FOUND);
}

static void every_name_in_the_list_of_layouts_is_one(void **state)
{
    char *names = strdup(layout_builtin_names());
    char *rest = names, *name;
    int n = 0;

    (void)state;
    while ((name = strsep(&rest, ",")) != NULL) {
        assert_non_null(layout_builtin(name + strspn(name, " ")));
        n++;
    }
    assert_int_equal(n, 9);
    free(names);
}

/* ---- times -------------------------------------------------------------------------- */

static void an_invalid_time_is_refused(void **state)
{
    static const char *const wrong[] = { "", "soon", "2024-01-15", "2024-01-15T15:40:00 CET", "12:00", "-5" };
    int64_t ms;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_false(ddb_parse_time(wrong[i], &ms));
    }
    assert_false(ddb_parse_time(NULL, &ms));
}

/* ---- expressions ---------------------------------------------------------------------- */

/* Every name is aliased: `owner`, `ttl` and `token` are reserved words. */
static void no_name_and_no_value_stands_in_an_expression(void **state)
{
    struct expr expr;
    json_t *request = json_object();
    const char *update;

    (void)state;
    expr_init(&expr);
    expr_set(&expr, "owner", av_text("x = :y"));
    expr_set(&expr, "ttl", av_int(5));
    expr_remove(&expr, "token");
    expr_change_set(&expr, CLAUSE_ADD, "waiting", av_set((const char *const[]){ "id" }, 1));
    expr_and(&expr, "attribute_exists(%s)", expr_name(&expr, "owner").text);
    assert_true(expr_finish(&expr, request));
    update = json_string_value(json_object_get(request, "UpdateExpression"));
    assert_string_equal(update, "SET #n0 = :v0, #n1 = :v1 REMOVE #n2 ADD #n3 :v2");
    assert_string_equal(json_string_value(json_object_get(request, "ConditionExpression")),
                        "(attribute_exists(#n0))");
    expr_release(&expr);
    json_decref(request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_url_is_read_and_written_whole),
        cmocka_unit_test(a_comma_begins_the_parameters_and_values_may_be_encoded),
        cmocka_unit_test(a_wrong_url_is_answered_with_the_right_form),
        cmocka_unit_test(a_layout_that_cannot_work_is_refused_with_the_reason),
        cmocka_unit_test(an_unknown_layout_is_not_found),
        cmocka_unit_test(every_name_in_the_list_of_layouts_is_one),
        cmocka_unit_test(an_invalid_time_is_refused),
        cmocka_unit_test(no_name_and_no_value_stands_in_an_expression),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
