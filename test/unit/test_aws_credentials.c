/* Keys: where they are looked for, and how they are kept fresh, on a clock of the test's own. */
#include "test_aws_fake.h"

#include <pthread.h>
#include <stdatomic.h>

#include "aws/aws_client.h"
#include "aws/credentials_source.h"

/* ---- the cache ---- */

struct source {
    struct fake *fake;
    int64_t lifetime_ms; /* 0: for ever */
    enum belay_code code;
    bool outlive;
    atomic_int n_fetched;
    atomic_bool held; /* a fetch waits until this is false */
};

static enum belay_code fetch(void *context, struct credentials *out, struct belay_error *err)
{
    struct source *source = context;
    char id[32];

    (void)snprintf(id, sizeof id, "KEY%d", atomic_fetch_add(&source->n_fetched, 1) + 1);
    while (atomic_load(&source->held)) {
    }
    if (source->code != BELAY_OK) {
        return error_set(err, source->code, "the source is broken");
    }
    assert_true(credentials_init(out, id, "TopSecret", NULL));
    out->expires_unix_ms = source->lifetime_ms == 0 ? 0 : source->fake->unix_ms + source->lifetime_ms;
    out->outlive = source->outlive;
    return BELAY_OK;
}

static void later(struct fake *fake, int64_t ms)
{
    fake->unix_ms += ms;
    fake->mono_ms += ms;
}

static void expect(struct credentials_cache *cache, enum belay_code code, const char *id)
{
    struct credentials got = { 0 };
    struct belay_error err = BELAY_ERROR_INIT;

    assert_int_equal(credentials_cache_get(cache, &got, &err), code);
    assert_int_equal(err.code, code);
    if (code == BELAY_OK) {
        assert_string_equal(got.access_key_id, id);
    }
    credentials_release(&got);
    belay_error_release(&err);
}

enum { MINUTE = 60000, HOUR = 60 * MINUTE };

static void credentials_without_an_expiry_are_fetched_once(void **state)
{
    struct source source = { .fake = fake_new() };
    struct credentials_cache *cache = credentials_cache_new(&source.fake->platform, fetch, &source);

    (void)state;
    expect(cache, BELAY_OK, "KEY1");
    later(source.fake, 1000LL * HOUR);
    expect(cache, BELAY_OK, "KEY1");
    credentials_cache_free(cache);
    fake_free(source.fake);
}

static void credentials_are_renewed_15_minutes_before_they_expire(void **state)
{
    struct source source = { .fake = fake_new(), .lifetime_ms = HOUR };
    struct credentials_cache *cache = credentials_cache_new(&source.fake->platform, fetch, &source);

    (void)state;
    expect(cache, BELAY_OK, "KEY1");
    later(source.fake, 45 * MINUTE - 1);
    expect(cache, BELAY_OK, "KEY1");
    later(source.fake, 1);
    expect(cache, BELAY_OK, "KEY2");
    expect(cache, BELAY_OK, "KEY2");
    assert_int_equal(source.n_fetched, 2);
    credentials_cache_free(cache);
    fake_free(source.fake);
}

static void old_credentials_are_used_until_they_expire_if_new_ones_are_unavailable(void **state)
{
    struct source source = { .fake = fake_new(), .lifetime_ms = HOUR };
    struct credentials_cache *cache = credentials_cache_new(&source.fake->platform, fetch, &source);

    (void)state;
    expect(cache, BELAY_OK, "KEY1");
    source.code = BELAY_UNREACHABLE;
    later(source.fake, 46 * MINUTE);
    expect(cache, BELAY_OK, "KEY1");
    expect(cache, BELAY_OK, "KEY1");
    assert_int_equal(source.n_fetched, 2); /* not at every call: once a minute */
    later(source.fake, MINUTE);
    expect(cache, BELAY_OK, "KEY1");
    assert_int_equal(source.n_fetched, 3);
    later(source.fake, 12 * MINUTE);
    expect(cache, BELAY_OK, "KEY1");
    later(source.fake, MINUTE);
    expect(cache, BELAY_UNREACHABLE, NULL);
    source.code = BELAY_OK;
    expect(cache, BELAY_OK, "KEY6");
    credentials_cache_free(cache);
    fake_free(source.fake);
}

static void credentials_of_an_instance_are_used_past_their_expiry(void **state)
{
    struct source source = { .fake = fake_new(), .lifetime_ms = HOUR, .outlive = true };
    struct credentials_cache *cache = credentials_cache_new(&source.fake->platform, fetch, &source);

    (void)state;
    expect(cache, BELAY_OK, "KEY1");
    source.code = BELAY_UNREACHABLE;
    later(source.fake, 2 * HOUR);
    expect(cache, BELAY_OK, "KEY1");
    credentials_cache_free(cache);
    fake_free(source.fake);
}

static void a_failed_fetch_of_credentials_does_not_make_the_call_unknown(void **state)
{
    struct source source = { .fake = fake_new(), .code = BELAY_UNKNOWN };
    struct credentials_cache *cache = credentials_cache_new(&source.fake->platform, fetch, &source);

    (void)state;
    expect(cache, BELAY_UNREACHABLE, NULL);
    credentials_cache_free(cache);
    fake_free(source.fake);
}

static void rejected_credentials_are_fetched_again_only_if_they_are_current(void **state)
{
    struct source source = { .fake = fake_new() };
    struct credentials_cache *cache = credentials_cache_new(&source.fake->platform, fetch, &source);
    struct credentials old = { 0 };

    (void)state;
    assert_int_equal(credentials_cache_get(cache, &old, NULL), BELAY_OK);
    credentials_cache_reject(cache, &old);
    expect(cache, BELAY_OK, "KEY2");
    credentials_cache_reject(cache, &old);
    expect(cache, BELAY_OK, "KEY2");
    credentials_release(&old);
    credentials_cache_free(cache);
    fake_free(source.fake);
}

static void *get_one(void *context)
{
    struct credentials got = { 0 };
    struct credentials_cache *cache = context;

    if (credentials_cache_get(cache, &got, NULL) != BELAY_OK) {
        abort();
    }
    credentials_release(&got);
    return NULL;
}

static void of_many_threads_one_fetches(void **state)
{
    struct source source = { .fake = fake_new(), .lifetime_ms = HOUR };
    struct credentials_cache *cache = credentials_cache_new(&source.fake->platform, fetch, &source);
    pthread_t threads[8];

    (void)state;
    atomic_store(&source.held, true);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, get_one, cache), 0);
    }
    while (atomic_load(&source.n_fetched) == 0) {
    }
    atomic_store(&source.held, false);
    for (int i = 0; i < 8; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    assert_int_equal(source.n_fetched, 1);
    credentials_cache_free(cache);
    fake_free(source.fake);
}

static void while_one_thread_renews_early_the_others_use_the_old_credentials(void **state)
{
    struct source source = { .fake = fake_new(), .lifetime_ms = HOUR };
    struct credentials_cache *cache = credentials_cache_new(&source.fake->platform, fetch, &source);
    pthread_t thread;

    (void)state;
    expect(cache, BELAY_OK, "KEY1");
    later(source.fake, 46 * MINUTE);
    atomic_store(&source.held, true);
    assert_int_equal(pthread_create(&thread, NULL, get_one, cache), 0);
    while (atomic_load(&source.n_fetched) == 1) {
    }
    expect(cache, BELAY_OK, "KEY1"); /* would hang if it waited */
    atomic_store(&source.held, false);
    (void)pthread_join(thread, NULL);
    expect(cache, BELAY_OK, "KEY2");
    credentials_cache_free(cache);
    fake_free(source.fake);
}

/* ---- places, over a network of the test's own ---- */

static struct fake *fake_without_keys(void)
{
    struct fake *fake = fake_new();

    fake_set(fake, "AWS_ACCESS_KEY_ID", "");
    fake_set(fake, "AWS_SECRET_ACCESS_KEY", "");
    return fake;
}

static enum belay_code origin_of(struct fake *fake, char *out, size_t size)
{
    struct aws_client *client = fake_client(fake);
    struct belay_error err = BELAY_ERROR_INIT;
    char *origin = NULL;
    enum belay_code code = aws_credentials_origin(client, &origin, &err);

    (void)snprintf(out, size, "%s", code == BELAY_OK ? origin : err.text);
    free(origin);
    belay_error_release(&err);
    aws_close(client);
    return code;
}

#define KEYS                                                                                                 \
    "{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"TopSecret\",\"Token\":\"T\",\"Expiration\":\""             \
    "2026-01-31T18:00:00Z\"}"

static void instance_metadata_is_requested_with_a_token(void **state)
{
    struct fake *fake = fake_without_keys();
    char text[800];

    (void)state;
    FAKE_ANSWERS(fake, { .status = 200, .body = "TOKEN" }, { .status = 200, .body = "my-role\n" },
                 { .status = 200, .body = KEYS });
    assert_int_equal(origin_of(fake, text, sizeof text), BELAY_OK);
    assert_string_equal(text, "the EC2 instance's role 'my-role'");
    assert_string_equal(fake->seen[0].method, "PUT");
    assert_string_equal(fake->seen[0].url, "http://169.254.169.254/latest/api/token");
    assert_string_equal(fake->seen[0].headers, "x-aws-ec2-metadata-token-ttl-seconds: 21600\n");
    assert_string_equal(fake->seen[1].url,
                        "http://169.254.169.254/latest/meta-data/iam/security-credentials/");
    assert_string_equal(fake->seen[2].url,
                        "http://169.254.169.254/latest/meta-data/iam/security-credentials/my-role");
    assert_string_equal(fake->seen[2].headers, "x-aws-ec2-metadata-token: TOKEN\n");
    fake_free(fake);
}

static void instance_metadata_v1_is_used_unless_forbidden(void **state)
{
    struct fake *fake = fake_without_keys();
    char text[800];

    (void)state;
    FAKE_ANSWERS(fake, { .status = 404 }, { .status = 200, .body = "r" }, { .status = 200, .body = KEYS });
    assert_int_equal(origin_of(fake, text, sizeof text), BELAY_OK);
    assert_string_equal(fake->seen[1].headers, "");
    fake_forget(fake);
    fake_set(fake, "AWS_EC2_METADATA_V1_DISABLED", "true");
    assert_int_equal(origin_of(fake, text, sizeof text), BELAY_CONFIG);
    assert_int_equal(fake->n_seen, 1);
    fake_forget(fake);
    fake_set(fake, "AWS_EC2_METADATA_V1_DISABLED", "false");
    FAKE_ANSWERS(fake, { .status = 400 });
    assert_int_equal(origin_of(fake, text, sizeof text), BELAY_NOT_PERMITTED);
    assert_int_equal(fake->n_seen, 1);
    fake_free(fake);
}

static void credentials_that_an_instance_renews_late_are_used_and_requested_again(void **state)
{
    struct fake *fake = fake_without_keys();
    struct aws_client *client;
    struct credentials got = { 0 };

    (void)state;
    FAKE_ANSWERS(fake, { .status = 200, .body = "TOKEN" }, { .status = 200, .body = "r" },
                 { .status = 200, .body = KEYS });
    fake->unix_ms += 10LL * HOUR;
    client = fake_client(fake);
    assert_int_equal(credentials_cache_get(client->cache, &got, NULL), BELAY_OK);
    assert_true(got.expires_unix_ms > fake->unix_ms + CREDENTIALS_ADVISORY_MS);
    assert_true(got.expires_unix_ms <= fake->unix_ms + CREDENTIALS_ADVISORY_MS + 10 * MINUTE);
    credentials_release(&got);
    aws_close(client);
    fake_free(fake);
}

static void off_ec2_the_error_lists_what_to_set(void **state)
{
    struct fake *fake = fake_without_keys();
    char text[800];

    (void)state;
    FAKE_ANSWERS(fake, { .code = BELAY_UNREACHABLE });
    assert_int_equal(origin_of(fake, text, sizeof text), BELAY_CONFIG);
    assert_non_null(strstr(text, "AWS_ACCESS_KEY_ID"));
    assert_non_null(strstr(text, "AWS_PROFILE"));
    assert_int_equal(fake->n_seen, 1);
    fake_forget(fake);
    fake_set(fake, "AWS_EC2_METADATA_DISABLED", "true");
    assert_int_equal(origin_of(fake, text, sizeof text), BELAY_CONFIG);
    assert_int_equal(fake->n_seen, 0);
    fake_free(fake);
}

static void an_error_in_an_answer_with_status_200_is_one(void **state)
{
    struct fake *fake = fake_without_keys();
    char text[800];

    (void)state;
    FAKE_ANSWERS(fake, { .status = 200, .body = "TOKEN" }, { .status = 200, .body = "r" },
                 { .status = 200, .body = "{\"Code\":\"AssumeRoleUnauthorizedAccess\",\"Message\":\"no\"}" });
    assert_int_equal(origin_of(fake, text, sizeof text), BELAY_NOT_PERMITTED);
    assert_non_null(strstr(text, "AssumeRoleUnauthorizedAccess: no"));
    fake_free(fake);
}

static void container_credentials_come_from_its_own_address(void **state)
{
    struct fake *fake = fake_without_keys();
    char text[800];

    (void)state;
    fake_set(fake, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/credentials/x");
    fake_set(fake, "AWS_CONTAINER_AUTHORIZATION_TOKEN", "Basic abc");
    FAKE_ANSWERS(fake, { .status = 200, .body = KEYS });
    assert_int_equal(origin_of(fake, text, sizeof text), BELAY_OK);
    assert_string_equal(text, "the container endpoint");
    assert_string_equal(fake->seen[0].url, "http://169.254.170.2/v2/credentials/x");
    assert_non_null(strstr(fake->seen[0].headers, "Authorization: Basic abc\n"));
    fake_free(fake);
}

static void a_container_endpoint_without_tls_must_be_this_machine(void **state)
{
    static const char *const allowed[] = { "http://127.0.0.1:1/x",    "http://127.8.8.8/x",
                                           "http://localhost/x",      "http://[::1]:2/x",
                                           "http://169.254.170.23/x", "http://[fd00:ec2::23]/x",
                                           "https://example.com/x" };
    static const char *const refused[] = {
        "http://example.com/x",           "http://10.0.0.1/x", "http://169.254.170.3/x",
        "http://127.0.0.1.example.com/x", "http://[::2]/x",    "ftp://localhost/",
        "http://localhost@evil.com/"
    };
    char text[800];

    (void)state;
    for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++) {
        struct fake *fake = fake_without_keys();

        FAKE_ANSWERS(fake, { .status = 200, .body = KEYS });
        fake_set(fake, "AWS_CONTAINER_CREDENTIALS_FULL_URI", allowed[i]);
        assert_int_equal(origin_of(fake, text, sizeof text), BELAY_OK);
        assert_string_equal(fake->seen[0].url, allowed[i]);
        fake_free(fake);
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct fake *fake = fake_without_keys();

        FAKE_ANSWERS(fake, { .status = 200, .body = KEYS });
        fake_set(fake, "AWS_CONTAINER_CREDENTIALS_FULL_URI", refused[i]);
        assert_int_equal(origin_of(fake, text, sizeof text), BELAY_CONFIG);
        assert_int_equal(fake->n_seen, 0);
        fake_free(fake);
    }
}

static void container_credentials_are_requested_three_times_a_second_apart(void **state)
{
    struct fake *fake = fake_without_keys();
    char text[800];

    (void)state;
    fake_set(fake, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/x");
    FAKE_ANSWERS(fake, { .code = BELAY_UNKNOWN }, { .status = 500 }, { .status = 200, .body = KEYS });
    assert_int_equal(origin_of(fake, text, sizeof text), BELAY_OK);
    assert_int_equal(fake->n_slept, 2);
    assert_int_equal(fake->slept[0], 1000);
    fake_forget(fake);
    FAKE_ANSWERS(fake, { .status = 403 });
    assert_int_equal(origin_of(fake, text, sizeof text), BELAY_NOT_PERMITTED);
    assert_int_equal(fake->n_seen, 1);
    fake_free(fake);
}

static void a_token_of_two_lines_is_refused_and_not_shown(void **state)
{
    struct fake *fake = fake_without_keys();
    char text[800];

    (void)state;
    fake_set(fake, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/x");
    fake_set(fake, "AWS_CONTAINER_AUTHORIZATION_TOKEN", "TopSecret\r\nX: y");
    FAKE_ANSWERS(fake, { .status = 200, .body = KEYS });
    assert_int_equal(origin_of(fake, text, sizeof text), BELAY_CONFIG);
    assert_null(strstr(text, "TopSecret"));
    assert_int_equal(fake->n_seen, 0);
    fake_free(fake);
}

static void half_a_pair_of_keys_is_refused_by_name(void **state)
{
    struct fake *fake = fake_new();
    char text[800];

    (void)state;
    FAKE_ANSWERS(fake, { .status = 500 });
    fake_set(fake, "AWS_SECRET_ACCESS_KEY", "");
    assert_int_equal(origin_of(fake, text, sizeof text), BELAY_CONFIG);
    assert_non_null(strstr(text, "AWS_SECRET_ACCESS_KEY is not"));
    fake_set(fake, "AWS_SECRET_ACCESS_KEY", "TopSecret");
    fake_set(fake, "AWS_ACCESS_KEY_ID", "");
    assert_int_equal(origin_of(fake, text, sizeof text), BELAY_CONFIG);
    assert_non_null(strstr(text, "AWS_ACCESS_KEY_ID is not"));
    assert_null(strstr(text, "TopSecret"));
    fake_free(fake);
}

static void json_without_keys_says_what_is_missing(void **state)
{
    static const struct {
        const char *text;
        const char *says;
    } cases[] = {
        { "", "JSON object" },
        { "[]", "JSON object" },
        { "{\"AccessKeyId\":\"A\"}", "SecretAccessKey" },
        { "{\"SecretAccessKey\":\"TopSecret\"}", "AccessKeyId" },
        { "{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"TopSecret\",\"Expiration\":\"soon\"}", "Expiration" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct belay_error err = BELAY_ERROR_INIT;
        struct credentials got = { 0 };

        assert_int_equal(
            credentials_from_json(cases[i].text, strlen(cases[i].text), "Token", "somebody", &got, &err),
            BELAY_BAD_CONTENT);
        assert_non_null(strstr(err.text, "somebody"));
        assert_non_null(strstr(err.text, cases[i].says));
        assert_null(strstr(err.text, "TopSecret"));
        assert_null(got.access_key_id);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(credentials_without_an_expiry_are_fetched_once),
        cmocka_unit_test(credentials_are_renewed_15_minutes_before_they_expire),
        cmocka_unit_test(old_credentials_are_used_until_they_expire_if_new_ones_are_unavailable),
        cmocka_unit_test(credentials_of_an_instance_are_used_past_their_expiry),
        cmocka_unit_test(a_failed_fetch_of_credentials_does_not_make_the_call_unknown),
        cmocka_unit_test(rejected_credentials_are_fetched_again_only_if_they_are_current),
        cmocka_unit_test(of_many_threads_one_fetches),
        cmocka_unit_test(while_one_thread_renews_early_the_others_use_the_old_credentials),
        cmocka_unit_test(instance_metadata_is_requested_with_a_token),
        cmocka_unit_test(instance_metadata_v1_is_used_unless_forbidden),
        cmocka_unit_test(credentials_that_an_instance_renews_late_are_used_and_requested_again),
        cmocka_unit_test(off_ec2_the_error_lists_what_to_set),
        cmocka_unit_test(an_error_in_an_answer_with_status_200_is_one),
        cmocka_unit_test(container_credentials_come_from_its_own_address),
        cmocka_unit_test(a_container_endpoint_without_tls_must_be_this_machine),
        cmocka_unit_test(container_credentials_are_requested_three_times_a_second_apart),
        cmocka_unit_test(a_token_of_two_lines_is_refused_and_not_shown),
        cmocka_unit_test(half_a_pair_of_keys_is_refused_by_name),
        cmocka_unit_test(json_without_keys_says_what_is_missing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
