/* Calls on a clock of the test's own: when they are retried, and what they come to (L5, L7). */
#include "test_aws_fake.h"

#include "aws/aws_client.h"

static const char throttled[] = "{\"__type\":\"x#ProvisionedThroughputExceededException\",\"message\":\"m\"}";
static const char refused[] = "{\"__type\":\"x#ConditionalCheckFailedException\",\"message\":\"m\"}";

#define THROTTLED                                                                                            \
    {                                                                                                        \
        .status = 400, .body = throttled                                                                     \
    }
#define BROKEN                                                                                               \
    {                                                                                                        \
        .status = 500, .body = "{}"                                                                          \
    }
#define FINE                                                                                                 \
    {                                                                                                        \
        .status = 200, .body = "{}"                                                                          \
    }
#define REFUSED                                                                                              \
    {                                                                                                        \
        .status = 400, .body = refused                                                                       \
    }
#define NOT_SENT                                                                                             \
    {                                                                                                        \
        .code = BELAY_UNREACHABLE                                                                            \
    }
#define NO_ANSWER                                                                                            \
    {                                                                                                        \
        .code = BELAY_UNKNOWN                                                                                \
    }

struct result {
    enum belay_code code;
    bool in_doubt;
    int attempts;
    char text[700];
};

static struct result call(struct aws_client *client, const struct aws_request *request)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct aws_response response;
    struct result result = { 0 };

    result.code = aws_call(client, request, &response, &err);
    assert_int_equal(err.code, result.code);
    result.in_doubt = response.in_doubt;
    result.attempts = response.attempts;
    memcpy(result.text, err.text, sizeof result.text);
    aws_response_release(&response);
    belay_error_release(&err);
    return result;
}

static struct result call_once(struct fake *fake, struct aws_request request)
{
    struct aws_client *client = fake_client(fake);
    struct result result = call(client, &request);

    aws_close(client);
    return result;
}

static struct aws_request write_with(enum aws_retry retry)
{
    return (struct aws_request){
        .service = AWS_DYNAMODB, .operation = "UpdateItem", .retry = retry, .body = "{}", .body_len = 2
    };
}

static void pauses_double_from_25_ms_on_dynamodb(void **state)
{
    struct fake *fake = fake_new();
    struct result result;

    (void)state;
    FAKE_ANSWERS(fake, BROKEN);
    result = call_once(fake, write_with(AWS_RETRY_STANDARD));
    assert_int_equal(result.attempts, 4);
    assert_int_equal(fake->n_slept, 3);
    assert_int_equal(fake->slept[0], 25);
    assert_int_equal(fake->slept[1], 50);
    assert_int_equal(fake->slept[2], 100);
    fake_free(fake);
}

static void pauses_double_from_50_ms_elsewhere_and_there_are_three_attempts(void **state)
{
    struct aws_request request = { .service = AWS_S3, .method = "GET", .reads_only = true };
    struct fake *fake = fake_new();

    (void)state;
    FAKE_ANSWERS(fake, { .status = 503, .body = "" });
    assert_int_equal(call_once(fake, request).attempts, 3);
    assert_int_equal(fake->slept[0], 50);
    assert_int_equal(fake->slept[1], 100);
    fake_free(fake);
}

static void pauses_for_throttling_begin_at_a_second(void **state)
{
    struct fake *fake = fake_new();

    (void)state;
    FAKE_ANSWERS(fake, THROTTLED);
    fake->random = 0.5;
    assert_int_equal(call_once(fake, write_with(AWS_RETRY_STANDARD)).attempts, 4);
    assert_int_equal(fake->slept[0], 500);
    assert_int_equal(fake->slept[1], 1000);
    assert_int_equal(fake->slept[2], 2000);
    fake_free(fake);
}

static void pauses_never_exceed_20_s_and_respect_the_server(void **state)
{
    struct fake *fake = fake_new();

    (void)state;
    assert_int_equal(retry_pause_ms(&fake->platform, RETRY_THROTTLE, 25, 60, -1), 20000);
    assert_int_equal(retry_pause_ms(&fake->platform, RETRY_TRANSIENT, 25, 0, 10), 25);
    assert_int_equal(retry_pause_ms(&fake->platform, RETRY_TRANSIENT, 25, 0, 1000), 1000);
    assert_int_equal(retry_pause_ms(&fake->platform, RETRY_TRANSIENT, 25, 0, 60000), 5025);
    fake->random = 0;
    assert_int_equal(retry_pause_ms(&fake->platform, RETRY_THROTTLE, 25, 3, -1), 0);
    fake_free(fake);
}

static void the_server_can_request_a_longer_pause(void **state)
{
    struct fake *fake = fake_new();

    (void)state;
    FAKE_ANSWERS(fake, { .status = 500, .body = "{}", .header = "x-amz-retry-after", .value = "700" }, FINE);
    assert_int_equal(call_once(fake, write_with(AWS_RETRY_STANDARD)).code, BELAY_OK);
    assert_int_equal(fake->slept[0], 700);
    fake_free(fake);
}

static void an_empty_quota_ends_retries_at_once(void **state)
{
    struct aws_request request = write_with(AWS_RETRY_STANDARD);
    struct fake *fake = fake_new();
    struct aws_client *client = fake_client(fake);
    int retries = 0;

    (void)state;
    FAKE_ANSWERS(fake, BROKEN);
    for (int i = 0; i < 20; i++) {
        retries += call(client, &request).attempts - 1;
    }
    assert_int_equal(retries, RETRY_QUOTA / RETRY_COST);
    assert_int_equal(call(client, &request).attempts, 1);
    /* Each success without a retry returns one token. */
    fake_forget(fake);
    FAKE_ANSWERS(fake, FINE);
    for (int i = 0; i < RETRY_COST; i++) {
        assert_int_equal(call(client, &request).code, BELAY_OK);
    }
    fake_forget(fake);
    FAKE_ANSWERS(fake, BROKEN);
    assert_int_equal(call(client, &request).attempts, 2);
    /* Each service has its own quota. */
    request.service = AWS_EC2;
    assert_int_equal(call(client, &request).attempts, 3);
    aws_close(client);
    fake_free(fake);
}

static void a_success_gives_back_what_its_last_retry_cost(void **state)
{
    struct fake *fake = fake_new();
    struct aws_client *client = fake_client(fake);
    struct aws_request request = write_with(AWS_RETRY_STANDARD);

    (void)state;
    FAKE_ANSWERS(fake, BROKEN, THROTTLED, FINE);
    assert_int_equal(call(client, &request).attempts, 3);
    assert_int_equal(client->quotas[AWS_DYNAMODB].tokens, RETRY_QUOTA - RETRY_COST);
    aws_close(client);
    fake_free(fake);
}

static void a_request_that_was_never_sent_surely_did_nothing(void **state)
{
    struct fake *fake = fake_new();
    struct result result;

    (void)state;
    FAKE_ANSWERS(fake, NOT_SENT);
    result = call_once(fake, write_with(AWS_RETRY_NONE));
    assert_int_equal(result.code, BELAY_UNREACHABLE);
    assert_int_equal(result.attempts, 1);
    assert_false(result.in_doubt);
    assert_int_equal(call_once(fake, write_with(AWS_RETRY_SAFE)).attempts, 4);
    fake_free(fake);
}

static void throttling_surely_did_nothing(void **state)
{
    struct fake *fake = fake_new();

    (void)state;
    FAKE_ANSWERS(fake, THROTTLED);
    assert_int_equal(call_once(fake, write_with(AWS_RETRY_NONE)).code, BELAY_UNREACHABLE);
    assert_int_equal(call_once(fake, write_with(AWS_RETRY_SAFE)).attempts, 4);
    fake_free(fake);
}

static void no_answer_and_a_500_are_unknown_and_not_repeated_blindly(void **state)
{
    struct fake *fake = fake_new();
    struct result result;

    (void)state;
    FAKE_ANSWERS(fake, NO_ANSWER);
    result = call_once(fake, write_with(AWS_RETRY_SAFE));
    assert_int_equal(result.code, BELAY_UNKNOWN);
    assert_int_equal(result.attempts, 1);
    fake_forget(fake);
    FAKE_ANSWERS(fake, BROKEN);
    result = call_once(fake, write_with(AWS_RETRY_SAFE));
    assert_int_equal(result.code, BELAY_UNKNOWN);
    assert_int_equal(result.attempts, 1);
    fake_free(fake);
}

/* L5: a request that got lost may have been carried out, whatever became of the next. */
static void an_unknown_outcome_survives_a_later_attempt_that_was_not_sent(void **state)
{
    struct fake *fake = fake_new();
    struct result result;

    (void)state;
    FAKE_ANSWERS(fake, NO_ANSWER, NOT_SENT);
    result = call_once(fake, write_with(AWS_RETRY_STANDARD));
    assert_int_equal(result.code, BELAY_UNKNOWN);
    assert_int_equal(result.attempts, 4);
    fake_forget(fake);
    FAKE_ANSWERS(fake, NO_ANSWER, THROTTLED);
    assert_int_equal(call_once(fake, write_with(AWS_RETRY_STANDARD)).code, BELAY_UNKNOWN);
    fake_free(fake);
}

static void a_refusal_after_a_lost_answer_says_that_it_may_be_our_own_write(void **state)
{
    struct fake *fake = fake_new();
    struct result result;

    (void)state;
    FAKE_ANSWERS(fake, BROKEN, REFUSED);
    result = call_once(fake, write_with(AWS_RETRY_STANDARD));
    assert_int_equal(result.code, BELAY_REFUSED);
    assert_true(result.in_doubt);
    fake_forget(fake);
    FAKE_ANSWERS(fake, NOT_SENT, THROTTLED, REFUSED);
    result = call_once(fake, write_with(AWS_RETRY_STANDARD));
    assert_int_equal(result.code, BELAY_REFUSED);
    assert_false(result.in_doubt);
    fake_free(fake);
}

static void a_transaction_in_progress_is_our_own_and_in_doubt(void **state)
{
    struct fake *fake = fake_new();
    struct result result;

    (void)state;
    FAKE_ANSWERS(fake, { .status = 400, .body = "{\"__type\":\"x#TransactionInProgressException\"}" },
                 REFUSED);
    result = call_once(fake, write_with(AWS_RETRY_SAFE));
    assert_int_equal(result.code, BELAY_UNKNOWN);
    assert_int_equal(result.attempts, 1);
    fake_forget(fake);
    result = call_once(fake, write_with(AWS_RETRY_STANDARD));
    assert_int_equal(result.code, BELAY_REFUSED);
    assert_true(result.in_doubt);
    fake_free(fake);
}

static void a_read_that_fails_changed_nothing(void **state)
{
    struct aws_request request = write_with(AWS_RETRY_SAFE);
    struct fake *fake = fake_new();
    struct result result;

    (void)state;
    request.reads_only = true;
    FAKE_ANSWERS(fake, NO_ANSWER);
    result = call_once(fake, request);
    assert_int_equal(result.code, BELAY_UNREACHABLE);
    assert_int_equal(result.attempts, 4);
    fake_free(fake);
}

static void a_refusal_is_not_repeated(void **state)
{
    static const struct {
        const char *name;
        int status;
        enum belay_code code;
    } cases[] = {
        { "ConditionalCheckFailedException", 400, BELAY_REFUSED },
        { "TransactionCanceledException", 400, BELAY_REFUSED },
        { "ResourceNotFoundException", 400, BELAY_NOT_FOUND },
        { "AccessDeniedException", 400, BELAY_NOT_PERMITTED },
        { "ValidationException", 400, BELAY_INVALID },
        { "UnrecognizedClientException", 400, BELAY_NOT_PERMITTED },
        { "Whatever", 404, BELAY_NOT_FOUND },
        { "Whatever", 403, BELAY_NOT_PERMITTED },
        { "Whatever", 412, BELAY_REFUSED },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fake *fake = fake_new();
        char body[200];
        struct fake_answer answer = { .status = cases[i].status, .body = body };
        struct result result;

        (void)snprintf(body, sizeof body, "{\"__type\":\"x#%s\",\"message\":\"the words\"}", cases[i].name);
        fake->answers = &answer;
        fake->n_answers = 1;
        result = call_once(fake, write_with(AWS_RETRY_STANDARD));
        assert_int_equal(result.code, cases[i].code);
        assert_int_equal(result.attempts, 1);
        assert_non_null(strstr(result.text, "dynamodb answered UpdateItem with "));
        assert_non_null(strstr(result.text, "the words"));
        fake_free(fake);
    }
}

static void a_damaged_answer_is_requested_again(void **state)
{
    struct fake *fake = fake_new();
    struct result result;

    (void)state;
    FAKE_ANSWERS(fake, { .status = 200, .body = "{}", .header = "x-amz-crc32", .value = "1" },
                 { .status = 200, .body = "{}", .header = "x-amz-crc32", .value = "2745614147" });
    result = call_once(fake, write_with(AWS_RETRY_STANDARD));
    assert_int_equal(result.code, BELAY_OK);
    assert_int_equal(result.attempts, 2);
    assert_true(result.in_doubt);
    fake_forget(fake);
    FAKE_ANSWERS(fake, { .status = 200, .body = "{}", .header = "x-amz-crc32", .value = "1" });
    assert_int_equal(call_once(fake, write_with(AWS_RETRY_NONE)).code, BELAY_UNKNOWN);
    fake_free(fake);
}

static void no_attempt_begins_after_the_deadline(void **state)
{
    struct aws_request request = write_with(AWS_RETRY_STANDARD);
    struct fake *fake = fake_new();
    struct result result;

    (void)state;
    FAKE_ANSWERS(fake, THROTTLED);
    request.deadline_mono_ms = fake->mono_ms + 3500; /* pauses of 1, 2 and 4 s */
    result = call_once(fake, request);
    assert_int_equal(result.attempts, 3);
    assert_int_equal(result.code, BELAY_UNREACHABLE);
    fake_forget(fake);
    request.deadline_mono_ms = fake->mono_ms;
    result = call_once(fake, request);
    assert_int_equal(fake->n_seen, 0);
    assert_int_equal(result.code, BELAY_UNREACHABLE);
    fake_free(fake);
}

#define TOO_SKEWED(when)                                                                                     \
    {                                                                                                        \
        .status = 403, .body = "{\"__type\":\"x#InvalidSignatureException\",\"message\":\"m\"}",             \
        .date = (when)                                                                                       \
    }

static void a_wrong_clock_is_corrected_for_signing_even_without_retries(void **state)
{
    struct aws_request request = write_with(AWS_RETRY_NONE);
    struct fake *fake = fake_new();
    struct aws_client *client = fake_client(fake);
    struct result result;

    (void)state;
    FAKE_ANSWERS(fake, TOO_SKEWED("Sat, 31 Jan 2026 12:10:00 GMT"), FINE);
    result = call(client, &request);
    assert_int_equal(result.code, BELAY_OK);
    assert_int_equal(result.attempts, 2);
    assert_non_null(strstr(fake->seen[0].headers, "x-amz-date: 20260131T120000Z"));
    assert_non_null(strstr(fake->seen[1].headers, "x-amz-date: 20260131T121000Z"));
    assert_int_equal(atomic_load(&client->skew_ms), 600000);
    assert_int_equal(call(client, &request).attempts, 1);
    aws_close(client);
    fake_free(fake);
}

static void a_clock_that_is_nearly_right_is_not_reported(void **state)
{
    struct fake *fake = fake_new();
    struct result result;

    (void)state;
    FAKE_ANSWERS(fake, TOO_SKEWED("Sat, 31 Jan 2026 12:03:59 GMT"), FINE);
    result = call_once(fake, write_with(AWS_RETRY_STANDARD));
    assert_int_equal(result.code, BELAY_NOT_PERMITTED);
    assert_int_equal(result.attempts, 1);
    assert_non_null(strstr(result.text, "AWS_SECRET_ACCESS_KEY"));
    assert_non_null(strstr(result.text, "the environment"));
    fake_free(fake);
}

static void a_clock_is_corrected_only_once_in_a_call(void **state)
{
    struct fake *fake = fake_new();
    struct result result;

    (void)state;
    FAKE_ANSWERS(fake, TOO_SKEWED("Sat, 31 Jan 2026 12:10:00 GMT"),
                 TOO_SKEWED("Sat, 31 Jan 2026 13:10:00 GMT"));
    result = call_once(fake, write_with(AWS_RETRY_STANDARD));
    assert_int_equal(result.code, BELAY_NOT_PERMITTED);
    assert_int_equal(result.attempts, 2);
    fake_free(fake);
}

static void a_refused_signature_does_not_quote_what_was_signed(void **state)
{
    struct fake *fake = fake_new();
    struct result result;

    (void)state;
    fake_set(fake, "AWS_SESSION_TOKEN", "TheToken");
    FAKE_ANSWERS(fake, { .status = 403,
                         .body = "{\"__type\":\"x#SignatureDoesNotMatch\",\"message\":\"should have been "
                                 "x-amz-security-token:TheToken\"}" });
    result = call_once(fake, write_with(AWS_RETRY_STANDARD));
    assert_int_equal(result.code, BELAY_NOT_PERMITTED);
    assert_null(strstr(result.text, "TheToken"));
    assert_null(strstr(result.text, "TopSecret"));
    fake_free(fake);
}

static void without_a_region_nothing_is_sent_and_the_error_says_what_to_set(void **state)
{
    struct fake *fake = fake_new();
    struct result result;

    (void)state;
    FAKE_ANSWERS(fake, FINE);
    fake_set(fake, "AWS_REGION", "");
    result = call_once(fake, write_with(AWS_RETRY_STANDARD));
    assert_int_equal(result.code, BELAY_CONFIG);
    assert_non_null(strstr(result.text, "AWS_REGION"));
    assert_int_equal(fake->n_seen, 0);
    fake_free(fake);
}

static void aws_max_attempts_is_respected(void **state)
{
    struct fake *fake = fake_new();

    (void)state;
    FAKE_ANSWERS(fake, BROKEN);
    fake_set(fake, "AWS_MAX_ATTEMPTS", "2");
    assert_int_equal(call_once(fake, write_with(AWS_RETRY_STANDARD)).attempts, 2);
    fake_free(fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pauses_double_from_25_ms_on_dynamodb),
        cmocka_unit_test(pauses_double_from_50_ms_elsewhere_and_there_are_three_attempts),
        cmocka_unit_test(pauses_for_throttling_begin_at_a_second),
        cmocka_unit_test(pauses_never_exceed_20_s_and_respect_the_server),
        cmocka_unit_test(the_server_can_request_a_longer_pause),
        cmocka_unit_test(an_empty_quota_ends_retries_at_once),
        cmocka_unit_test(a_success_gives_back_what_its_last_retry_cost),
        cmocka_unit_test(a_request_that_was_never_sent_surely_did_nothing),
        cmocka_unit_test(throttling_surely_did_nothing),
        cmocka_unit_test(no_answer_and_a_500_are_unknown_and_not_repeated_blindly),
        cmocka_unit_test(an_unknown_outcome_survives_a_later_attempt_that_was_not_sent),
        cmocka_unit_test(a_refusal_after_a_lost_answer_says_that_it_may_be_our_own_write),
        cmocka_unit_test(a_transaction_in_progress_is_our_own_and_in_doubt),
        cmocka_unit_test(a_read_that_fails_changed_nothing),
        cmocka_unit_test(a_refusal_is_not_repeated),
        cmocka_unit_test(a_damaged_answer_is_requested_again),
        cmocka_unit_test(no_attempt_begins_after_the_deadline),
        cmocka_unit_test(a_wrong_clock_is_corrected_for_signing_even_without_retries),
        cmocka_unit_test(a_clock_that_is_nearly_right_is_not_reported),
        cmocka_unit_test(a_clock_is_corrected_only_once_in_a_call),
        cmocka_unit_test(a_refused_signature_does_not_quote_what_was_signed),
        cmocka_unit_test(without_a_region_nothing_is_sent_and_the_error_says_what_to_set),
        cmocka_unit_test(aws_max_attempts_is_respected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
