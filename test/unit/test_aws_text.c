/* The small parsers of src/aws and src/http_client. */
#include "test_aws_fake.h"

#include "aws/aws_error.h"
#include "aws/endpoint.h"
#include "aws/sigv4.h"
#include "aws/text/argv_split.h"
#include "aws/text/ini.h"
#include "aws/text/xml.h"
#include "base/clock.h"
#include "http_client/uri.h"

/* ---- ini ---- */

static void ini_reads_sections_keys_and_keys_below_keys(void **state)
{
    static const char text[] = "\xEF\xBB\xBF# a comment\n"
                               "[default]\r\n"
                               "Region=eu-west-1   # Ireland\r\n"
                               "\n"
                               "[ profile  \"a b\" ] ; why not\n"
                               "aws_secret_access_key = ab#cd;ef=gh\n"
                               "services = mine\n"
                               "s3 =\n"
                               "  max = 1\n"
                               "  ; not a key\n"
                               "\tendpoint_url = http://x\n"
                               "after = 2\n"
                               "[default]\n"
                               "output = json\n"
                               "region = us-east-1";
    static const char section[] = "profile a b";
    struct ini ini;

    (void)state;
    assert_int_equal(ini_parse(text, "f", &ini, NULL), BELAY_OK);
    assert_string_equal(ini_get(&ini, "default", ""), "");
    assert_string_equal(ini_get(&ini, "default", "region"), "us-east-1");
    assert_string_equal(ini_get(&ini, "default", "output"), "json");
    assert_string_equal(ini_get(&ini, section, "aws_secret_access_key"), "ab#cd;ef=gh");
    assert_string_equal(ini_get(&ini, section, "s3"), "");
    assert_string_equal(ini_get(&ini, section, "s3.max"), "1");
    assert_string_equal(ini_get(&ini, section, "s3.endpoint_url"), "http://x");
    assert_string_equal(ini_get(&ini, section, "after"), "2");
    assert_null(ini_get(&ini, section, "max"));
    assert_null(ini_get(&ini, section, "region"));
    assert_null(ini_get(&ini, "nobody", "x"));
    assert_null(ini_get(&ini, "nobody", ""));
    ini_release(&ini);
}

static void ini_names_the_line_but_does_not_quote_it(void **state)
{
    static const char *const wrong[] = { "[a]\nk = v\nTopSecret\n", "\n\n[TopSecret\n", "\n\nTopSecret = 1\n",
                                         "[a]\nb =\n  TopSecret\n" };

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct belay_error err = BELAY_ERROR_INIT;
        struct ini ini = { 0 };

        assert_int_equal(ini_parse(wrong[i], "the/file", &ini, &err), BELAY_CONFIG);
        assert_non_null(strstr(err.text, "the/file, line 3"));
        assert_null(strstr(err.text, "TopSecret"));
        assert_null(ini.entries);
    }
}

/* ---- words ---- */

static void check_words(const char *line, size_t n, const char *const *wanted)
{
    char **words = NULL;

    assert_true(argv_split(line, &words));
    for (size_t i = 0; i < n; i++) {
        assert_non_null(words[i]);
        assert_string_equal(words[i], wanted[i]);
    }
    assert_null(words[n]);
    argv_free(words);
}

static void a_command_line_is_split_as_a_shell_splits_it(void **state)
{
    (void)state;
    check_words("  aws  sts\tget ", 3, (const char *const[]){ "aws", "sts", "get" });
    check_words("'a b' \"c d\"e f\\ g", 3, (const char *const[]){ "a b", "c de", "f g" });
    check_words("\"a\\\"b\\\\c\\d\" '\\'", 2, (const char *const[]){ "a\"b\\c\\d", "\\" });
    check_words("x '' \"\"", 3, (const char *const[]){ "x", "", "" });
    check_words("echo $HOME `id` ; * > f", 7,
                (const char *const[]){ "echo", "$HOME", "`id`", ";", "*", ">", "f" });
}

static void a_command_line_with_an_open_quote_is_refused(void **state)
{
    char **words = NULL;

    (void)state;
    assert_false(argv_split("a 'b", &words));
    assert_false(argv_split("a \"b", &words));
    assert_false(argv_split("a b\\", &words));
    assert_false(argv_split("  ", &words));
    assert_null(words);
}

/* ---- uri ---- */

static void uri_encoding_leaves_only_the_unreserved(void **state)
{
    struct buf out = BUF_INIT(1000);

    (void)state;
    uri_encode(&out, "aZ09-_.~ /+%\xC3\xA9", 14, false);
    assert_string_equal(out.data, "aZ09-_.~%20%2F%2B%25%C3%A9");
    out.len = 0;
    uri_encode(&out, "/a b/", 5, true);
    assert_string_equal(out.data, "/a%20b/");
    out.len = 0;
    uri_decode(&out, "a%2fb%zz%4", 10);
    assert_string_equal(out.data, "a/b%zz%4");
    out.len = 0;
    uri_add_query(&out, "a b", "&");
    uri_add_query(&out, "c", "");
    assert_string_equal(out.data, "a%20b=%26&c=");
    out.len = 0;
    buf_adds(&out, "/v1/x");
    uri_add_parameter(&out, "a", "b c");
    uri_add_parameter(&out, "none", NULL);
    uri_add_parameter(&out, "d", "");
    assert_string_equal(out.data, "/v1/x?a=b%20c&d=");
    buf_release(&out);
}

static void uri_is_taken_apart(void **state)
{
    struct uri uri;

    (void)state;
    assert_true(uri_parse("https://[fd00:ec2::23]:8443/a%20b/../c/", &uri));
    assert_true(uri.tls);
    assert_string_equal(uri.host, "fd00:ec2::23");
    assert_string_equal(uri.authority, "[fd00:ec2::23]:8443");
    assert_string_equal(uri.path, "/a%20b/../c");
    uri_release(&uri);
    assert_true(uri_parse("http://localhost:80", &uri));
    assert_string_equal(uri.authority, "localhost");
    assert_string_equal(uri.path, "");
    uri_release(&uri);
    assert_false(uri_parse("localhost:8000", &uri));
    assert_false(uri_parse("ftp://x/", &uri));
    assert_false(uri_parse("http://me:pw@x/", &uri));
    assert_false(uri_parse("http://x/#f", &uri));
    assert_false(uri_parse("", &uri));
}

/* ---- dates ---- */

static void iso_times_are_read_with_fraction_and_zone(void **state)
{
    int64_t ms = 0;

    (void)state;
    assert_true(clock_parse_iso("2026-01-31T12:00:00Z", &ms));
    assert_int_equal(ms, 1769860800000);
    assert_true(clock_parse_iso("2026-01-31T12:00:00.1239+00:00", &ms));
    assert_int_equal(ms, 1769860800123);
    assert_true(clock_parse_iso("2026-01-31T14:00:00+0200", &ms));
    assert_int_equal(ms, 1769860800000);
    assert_true(clock_parse_iso("2026-01-31T07:30:00-04:30", &ms));
    assert_int_equal(ms, 1769860800000);
    assert_false(clock_parse_iso("2026-01-31", &ms));
    assert_false(clock_parse_iso("2026-13-31T12:00:00Z", &ms));
    assert_false(clock_parse_iso("2026-01-31T12:00:00Zx", &ms));
    assert_false(clock_parse_iso("", &ms));
}

/* ---- xml and errors ---- */

static struct http_response body_of(const char *text)
{
    struct http_response response = { .status = 400, .body_len = strlen(text) };

    response.body = strdup(text);
    return response;
}

static void check_error(enum aws_service service, const char *body, const char *code, const char *message)
{
    struct http_response response = body_of(body);
    char *found_code = NULL;
    char *found_message = NULL;

    assert_true(aws_error_parse(service, &response, &found_code, &found_message));
    assert_string_equal(found_code, code);
    if (message == NULL) {
        assert_null(found_message);
    } else {
        assert_string_equal(found_message, message);
    }
    free(found_code);
    free(found_message);
    http_response_release(&response);
}

static void errors_are_found_in_every_protocol(void **state)
{
    (void)state;
    check_error(AWS_DYNAMODB, "{\"__type\":\"com.amazonaws.dynamodb.v20120810#X\",\"message\":\"m\"}", "X",
                "m");
    check_error(AWS_DYNAMODB,
                "{\"__type\":\"com.amazon.coral.validate#ValidationException\",\"Message\":\"M\"}",
                "ValidationException", "M");
    check_error(AWS_DYNAMODB, "{\"code\":\"Y:http://internal.amazon.com/\"}", "Y", NULL);
    check_error(AWS_DYNAMODB, "<html>no</html>", "HTTP 400", NULL);
    check_error(AWS_DYNAMODB, "[1]", "HTTP 400", NULL);
    check_error(AWS_S3, "<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code><Message>a\nb</Message></Error>",
                "NoSuchKey", "a");
    check_error(
        AWS_STS,
        "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error><Type>Sender</Type>"
        "<Code>AccessDenied</Code><Message>who &amp; what</Message></Error></ErrorResponse>",
        "AccessDenied", "who & what");
    check_error(AWS_EC2,
                "<Response><Errors><Error><Code>AuthFailure</Code><Message>m</Message></Error></Errors>"
                "</Response>",
                "AuthFailure", "m");
    check_error(AWS_S3, "", "HTTP 400", NULL);
}

static void xml_that_nests_or_expands_too_far_is_refused(void **state)
{
    struct buf deep = BUF_INIT(10000);
    static const char bomb[] =
        "<!DOCTYPE x [<!ENTITY a \"0123456789\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;\">"
        "<!ENTITY c \"&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;\"><!ENTITY d \"&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;\">"
        "<!ENTITY e \"&d;&d;&d;&d;&d;&d;&d;&d;&d;&d;\"><!ENTITY f \"&e;&e;&e;&e;&e;&e;&e;&e;&e;&e;\">"
        "<!ENTITY g \"&f;&f;&f;&f;&f;&f;&f;&f;&f;&f;\">]><x>&g;</x>";

    (void)state;
    for (int i = 0; i < 40; i++) {
        buf_adds(&deep, "<a>");
    }
    for (int i = 0; i < 40; i++) {
        buf_adds(&deep, "</a>");
    }
    assert_null(xml_parse(deep.data, deep.len));
    assert_null(xml_parse(bomb, sizeof bomb - 1));
    assert_null(xml_parse("<a><b></a>", 10));
    buf_release(&deep);
}

static void xml_lists_keep_their_order(void **state)
{
    static const char text[] = "<r><k>1</k><x>&lt;<y>n</y>&gt;</x><k>2</k><k/></r>";
    struct xml *root = xml_parse(text, sizeof text - 1);

    (void)state;
    assert_non_null(root);
    assert_int_equal(root->n_children, 4);
    assert_string_equal(root->children[2]->text, "2");
    assert_string_equal(xml_text(root, "x"), "<>");
    assert_string_equal(xml_text(root, "x/y"), "n");
    assert_null(xml_text(root, "y"));
    xml_free(root);
}

static void a_long_message_is_cut_between_characters(void **state)
{
    struct buf body = BUF_INIT(10000);
    struct http_response response;
    char *code = NULL;
    char *message = NULL;

    (void)state;
    buf_adds(&body, "{\"__type\":\"X\",\"message\":\"x");
    for (int i = 0; i < 1000; i++) {
        buf_adds(&body, "\xC3\xA9");
    }
    buf_adds(&body, "\"}");
    response = body_of(body.data);
    assert_true(aws_error_parse(AWS_DYNAMODB, &response, &code, &message));
    assert_int_equal(strlen(message), 399);
    free(code);
    free(message);
    http_response_release(&response);
    buf_release(&body);
}

static void a_checksum_must_fit(void **state)
{
    struct http_response response = body_of("{}");

    (void)state;
    assert_true(aws_crc_fits(&response));
    assert_true(http_response_add_header(&response, "X-Amz-Crc32", 11, "2745614147", 10));
    assert_true(aws_crc_fits(&response));
    response.body[0] = '[';
    assert_false(aws_crc_fits(&response));
    http_response_release(&response);
}

/* ---- signing ---- */

/* The example of AWS's documentation: IAM ListUsers. */
static void a_signature_is_the_documented_one(void **state)
{
    struct http_client_header headers[2 + SIGV4_HEADERS] = {
        { "Content-Type", "application/x-www-form-urlencoded; charset=utf-8" },
        { "Host", "iam.amazonaws.com" },
    };
    struct sigv4_identity identity = { .access_key_id = "AKIDEXAMPLE",
                                       .secret_access_key = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
                                       .region = "us-east-1",
                                       .service = "iam",
                                       .unix_ms = 1440938160000 };
    struct sigv4_signer *signer = sigv4_signer_new();

    (void)state;
    for (int i = 0; i < 2; i++) { /* the second time with the key of the day from the cache */
        struct sigv4_request request = { .method = "GET",
                                         .path = "/",
                                         .query = "Action=ListUsers&Version=2010-05-08",
                                         .headers = headers,
                                         .n_headers = 2 };
        struct sigv4_signature signature = { 0 };

        assert_int_equal(sigv4_sign(signer, &request, &identity, &signature, NULL), BELAY_OK);
        assert_int_equal(request.n_headers, 4);
        assert_string_equal(headers[2].name, "x-amz-date");
        assert_string_equal(headers[2].value, "20150830T123600Z");
        assert_string_equal(headers[3].name, "Authorization");
        assert_non_null(strstr(headers[3].value,
                               "Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"));
        sigv4_signature_release(&signature);
    }
    sigv4_signer_free(signer);
}

static void check_path(const char *path, bool plain, const char *wanted)
{
    struct sigv4_request request = { .method = "GET", .path = path, .is_s3 = plain };
    struct buf canonical = BUF_INIT(10000);
    struct buf names = BUF_INIT(1000);

    sigv4_canonical(&request, "H", &canonical, &names);
    assert_false(canonical.failed);
    assert_memory_equal(canonical.data, "GET\n", 4);
    canonical.data[4 + strcspn(canonical.data + 4, "\n")] = '\0';
    assert_string_equal(canonical.data + 4, wanted);
    buf_release(&canonical);
    buf_release(&names);
}

static void paths_are_normalised_except_for_s3(void **state)
{
    (void)state;
    check_path("", false, "/");
    check_path("/", false, "/");
    check_path("//a///b//", false, "/a/b/");
    check_path("/a/./b/../c", false, "/a/c");
    check_path("/a/b/..", false, "/a");
    check_path("/../..", false, "/");
    check_path("/..a/...", false, "/..a/...");
    check_path("/a%20b", false, "/a%2520b");
    check_path("/a%20b//./c/..", true, "/a%20b//./c/..");
    check_path("", true, "/");
}

/* ---- endpoints and regions ---- */

static void check_endpoint(struct fake *fake, enum aws_service service, const char *wanted)
{
    struct aws_client *client = fake_client(fake);

    if (wanted == NULL) {
        assert_null(aws_endpoint(client, service));
    } else {
        assert_string_equal(aws_endpoint(client, service), wanted);
    }
    aws_close(client);
}

static void an_endpoint_comes_from_the_region_and_its_partition(void **state)
{
    struct fake *fake = fake_new();

    (void)state;
    check_endpoint(fake, AWS_DYNAMODB, "https://dynamodb.eu-west-1.amazonaws.com");
    check_endpoint(fake, AWS_STS, "https://sts.eu-west-1.amazonaws.com");
    fake_set(fake, "AWS_USE_FIPS_ENDPOINT", "true");
    check_endpoint(fake, AWS_EC2, "https://ec2-fips.eu-west-1.amazonaws.com");
    fake_set(fake, "AWS_USE_FIPS_ENDPOINT", "false");
    fake_set(fake, "AWS_REGION", "cn-north-1");
    check_endpoint(fake, AWS_S3, "https://s3.cn-north-1.amazonaws.com.cn");
    fake_set(fake, "AWS_REGION", "local");
    check_endpoint(fake, AWS_DYNAMODB, "http://localhost:8000");
    fake_set(fake, "AWS_REGION", "");
    check_endpoint(fake, AWS_DYNAMODB, NULL);
    check_endpoint(fake, AWS_STS, "https://sts.amazonaws.com");
    fake_set(fake, "AWS_DEFAULT_REGION", "us-east-2");
    check_endpoint(fake, AWS_DYNAMODB, "https://dynamodb.us-east-2.amazonaws.com");
    fake_free(fake);
}

static void the_most_specific_endpoint_setting_wins(void **state)
{
    struct fake *fake = fake_new();

    (void)state;
    fake_set(fake, "AWS_ENDPOINT_URL", "http://all:1");
    check_endpoint(fake, AWS_DYNAMODB, "http://all:1");
    fake_set(fake, "AWS_ENDPOINT_URL_DYNAMODB", "http://one:2");
    check_endpoint(fake, AWS_DYNAMODB, "http://one:2");
    check_endpoint(fake, AWS_S3, "http://all:1");
    fake_set(fake, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true");
    check_endpoint(fake, AWS_DYNAMODB, "https://dynamodb.eu-west-1.amazonaws.com");
    fake_free(fake);
}

static void a_bad_region_or_endpoint_is_refused_by_name(void **state)
{
    static const char *const regions[] = { "eu west", "evil.com/", "-a", "a@b" };
    struct belay_error err = BELAY_ERROR_INIT;
    struct aws_client *client = NULL;
    struct aws_options options = { 0 };
    struct fake *fake = fake_new();

    (void)state;
    options.platform = &fake->platform;
    options.http = &fake->http;
    for (size_t i = 0; i < sizeof regions / sizeof regions[0]; i++) {
        options.region = regions[i];
        assert_int_equal(aws_open(&options, &client, &err), BELAY_CONFIG);
        assert_non_null(strstr(err.text, regions[i]));
    }
    options.region = NULL;
    fake_set(fake, "AWS_ENDPOINT_URL_STS", "localhost:8000");
    assert_int_equal(aws_open(&options, &client, &err), BELAY_CONFIG);
    assert_non_null(strstr(err.text, "AWS_ENDPOINT_URL_STS"));
    fake_set(fake, "AWS_ENDPOINT_URL_STS", "");
    fake_set(fake, "AWS_MAX_ATTEMPTS", "many");
    assert_int_equal(aws_open(&options, &client, &err), BELAY_CONFIG);
    assert_non_null(strstr(err.text, "AWS_MAX_ATTEMPTS"));
    assert_null(client);
    belay_error_release(&err);
    fake_free(fake);
}

/* ---- the machine itself ---- */

static void the_real_platform_sleeps_and_gives_random_numbers(void **state)
{
    const struct platform *platform = platform_system();
    int64_t before = platform_mono_ms(platform);
    double first = platform_random(platform);

    (void)state;
    platform_sleep_ms(platform, 20);
    assert_true(platform_mono_ms(platform) - before >= 20);
    assert_true(platform_unix_ms(platform) > 1700000000000);
    assert_true(first >= 0 && first < 1);
    assert_true(platform_random(platform) != first || platform_random(platform) != first);
    assert_non_null(platform_env(platform, "PATH"));
    assert_null(platform_env(platform, "BELAY_NO_SUCH_VARIABLE"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ini_reads_sections_keys_and_keys_below_keys),
        cmocka_unit_test(ini_names_the_line_but_does_not_quote_it),
        cmocka_unit_test(a_command_line_is_split_as_a_shell_splits_it),
        cmocka_unit_test(a_command_line_with_an_open_quote_is_refused),
        cmocka_unit_test(uri_encoding_leaves_only_the_unreserved),
        cmocka_unit_test(uri_is_taken_apart),
        cmocka_unit_test(iso_times_are_read_with_fraction_and_zone),
        cmocka_unit_test(errors_are_found_in_every_protocol),
        cmocka_unit_test(xml_that_nests_or_expands_too_far_is_refused),
        cmocka_unit_test(xml_lists_keep_their_order),
        cmocka_unit_test(a_long_message_is_cut_between_characters),
        cmocka_unit_test(a_checksum_must_fit),
        cmocka_unit_test(a_signature_is_the_documented_one),
        cmocka_unit_test(paths_are_normalised_except_for_s3),
        cmocka_unit_test(an_endpoint_comes_from_the_region_and_its_partition),
        cmocka_unit_test(the_most_specific_endpoint_setting_wins),
        cmocka_unit_test(the_real_platform_sleeps_and_gives_random_numbers),
        cmocka_unit_test(a_bad_region_or_endpoint_is_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
