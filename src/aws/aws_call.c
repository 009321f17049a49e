/*
 * A call: repeats attempts until the result is known.
 *     attempt --> done, or finally refused -------------------------> answer
 *        ^  \---> rejected for the clock or the token: correct, once each -+
 *        |   \--> throttled, never sent, or in doubt: if the policy, the   |
 *        |        attempts, the quota and the deadline permit, pause ------+
 *        +-----------------------------------------------------------------+
 * Doubt persists: once an attempt may have been carried out, a later one that was not even
 * sent does not make the call "certainly no effect".
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aws/aws_client.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"

enum { DEFAULT_ATTEMPTS = 3, DYNAMODB_ATTEMPTS = 4, BASE_MS = 50, DYNAMODB_BASE_MS = 25 };
#define SKEW_LEAST_MS (4 * 60 * 1000)

struct aws_call {
    struct aws_client *client;
    const struct aws_request *request;
    struct aws_response *response;
    const struct credentials *credentials; /* NULL: unsigned */
    unsigned retries;
    int last_cost;
    bool clock_mended;
};

static int attempts_allowed(const struct aws_call *call)
{
    if (call->request->max_attempts > 0) {
        return call->request->max_attempts;
    }
    if (call->client->max_attempts > 0) {
        return call->client->max_attempts;
    }
    return call->request->service == AWS_DYNAMODB ? DYNAMODB_ATTEMPTS : DEFAULT_ATTEMPTS;
}

/* The timeout of the next attempt; 0: no time is left. */
static int64_t attempt_timeout(const struct aws_call *call)
{
    int64_t timeout = call->request->timeout_ms > 0 ? call->request->timeout_ms : call->client->timeout_ms;
    int64_t left;

    if (timeout <= 0) {
        timeout = 10000;
    }
    if (call->request->deadline_mono_ms == 0) {
        return timeout;
    }
    left = call->request->deadline_mono_ms - platform_mono_ms(call->client->platform);
    return left <= 0 ? 0 : left < timeout ? left : timeout;
}

static int64_t asked_pause(const struct aws_response *response)
{
    const char *text = http_response_header(&response->http, "x-amz-retry-after");
    char *end;
    long long ms;

    if (text == NULL) {
        return -1;
    }
    ms = strtoll(text, &end, 10);
    return *end == '\0' && ms >= 0 && ms < 86400000 ? ms : -1;
}

static bool policy_allows(const struct aws_call *call, const struct attempt_verdict *verdict)
{
    if (verdict->retry == RETRY_NEVER || call->request->retry == AWS_RETRY_NONE) {
        return false;
    }
    return call->request->retry == AWS_RETRY_STANDARD || call->request->reads_only ||
           verdict->fate != FATE_DOUBT;
}

/* Pauses before the next attempt; false if there is none. */
static bool pause_for_retry(struct aws_call *call, const struct attempt_verdict *verdict)
{
    int64_t base = call->request->service == AWS_DYNAMODB ? DYNAMODB_BASE_MS : BASE_MS;
    int64_t pause;
    int cost;

    if (!policy_allows(call, verdict) || call->response->attempts >= attempts_allowed(call)) {
        return false;
    }
    pause = retry_pause_ms(call->client->platform, verdict->retry, base, call->retries,
                           asked_pause(call->response));
    if (call->request->deadline_mono_ms != 0 &&
        platform_mono_ms(call->client->platform) + pause >= call->request->deadline_mono_ms) {
        return false;
    }
    cost = retry_quota_take(&call->client->quotas[call->request->service], verdict->retry);
    if (cost == 0) {
        return false;
    }
    assert(cost > 0 && pause >= 0);
    call->last_cost = cost;
    call->retries++;
    platform_sleep_ms(call->client->platform, pause);
    return true;
}

/* Signs by the service's clock from now on, if the local clock is the cause of the refusal. */
static bool correct_clock(struct aws_call *call, const struct attempt_verdict *verdict)
{
    const struct aws_response *response = call->response;
    int64_t now = platform_unix_ms(call->client->platform);
    int64_t skew = response->http.date_unix_ms - now;
    int64_t off = skew - atomic_load(&call->client->skew_ms); /* relative to the clock used for signing */

    if (verdict->mend != MEND_CLOCK || call->clock_mended || response->http.date_unix_ms == 0 ||
        (off > -SKEW_LEAST_MS && off < SKEW_LEAST_MS)) {
        return false;
    }
    atomic_store(&call->client->skew_ms, skew);
    call->clock_mended = true;
    return true;
}

static void add_skew(const struct aws_call *call, struct belay_error *err)
{
    int64_t skew = call->response->http.date_unix_ms - call->response->received_unix_ms;
    char span[CLOCK_TEXT_SIZE];
    size_t len;

    if (err == NULL || call->response->http.date_unix_ms == 0 || (skew > -60000 && skew < 60000)) {
        return;
    }
    len = strlen(err->text);
    (void)snprintf(err->text + len, sizeof err->text - len, "; this clock is %s %s the service's",
                   clock_format_span(span, skew < 0 ? -skew : skew), skew < 0 ? "ahead of" : "behind");
}

/* One line for users about an error answer. */
static enum belay_code explain_response(const struct aws_call *call, enum belay_code code,
                                        struct belay_error *err)
{
    const struct aws_response *response = call->response;
    const char *name = response->error_code == NULL ? "an error" : response->error_code;
    const char *message = response->error_message;
    const char *advice = aws_error_advice(name);
    const char *operation = call->request->operation == NULL ? "a request" : call->request->operation;
    size_t len;

    if (message == NULL || !aws_error_message_is_safe(name)) {
        message = "";
    }
    len = strlen(message);
    len -= len > 0 && message[len - 1] == '.'; /* belay's messages have no full stop */
    (void)error_set(err, code, "%s answered %s with %s%s%.*s%s%s", aws_service_name(call->request->service),
                    operation, name, len == 0 ? "" : ": ", (int)len, message, advice == NULL ? "" : "; ",
                    advice == NULL ? "" : advice);
    if (code == BELAY_NOT_PERMITTED) {
        if (err != NULL && call->credentials != NULL) {
            len = strlen(err->text);
            (void)snprintf(err->text + len, sizeof err->text - len, " (credentials from %s)",
                           call->credentials->source);
        }
        add_skew(call, err);
    }
    return code;
}

/* The result of the whole call. */
static enum belay_code result_of_call(const struct aws_call *call, const struct attempt *last,
                                      struct belay_error *err)
{
    enum belay_code code = last->verdict.code;

    if (last->verdict.fate == FATE_DONE) {
        retry_quota_give(&call->client->quotas[call->request->service], call->last_cost);
        return BELAY_OK;
    }
    if (last->verdict.fate == FATE_DOUBT ||
        (last->verdict.fate == FATE_NOTHING && call->response->in_doubt)) {
        code = call->request->reads_only ? BELAY_UNREACHABLE : BELAY_UNKNOWN;
    }
    assert(code != BELAY_OK);
    /* A write in doubt is never reported as one that had no effect. */
    assert(code != BELAY_UNREACHABLE || !call->response->in_doubt || call->request->reads_only);
    if (last->sent == BELAY_OK && (err == NULL || err->code == BELAY_OK)) {
        return explain_response(call, code, err);
    }
    if (err != NULL) {
        err->code = code;
    }
    if (call->request->operation != NULL) {
        (void)error_wrap(err, "%s %s", aws_service_name(call->request->service), call->request->operation);
    }
    return code;
}

static enum belay_code no_time(const struct aws_call *call, struct belay_error *err)
{
    bool doubt = call->response->in_doubt && !call->request->reads_only;

    return error_set(err, doubt ? BELAY_UNKNOWN : BELAY_UNREACHABLE, "%s: no time was left for a request",
                     aws_service_name(call->request->service));
}

static enum belay_code run_attempts(struct aws_call *call, struct attempt *last, struct belay_error *err)
{
    for (;;) {
        int64_t timeout = attempt_timeout(call);

        if (timeout == 0) {
            last->verdict.mend = MEND_NOTHING;
            return no_time(call, err);
        }
        assert(timeout > 0);
        belay_error_release(err);
        call->response->attempts++;
        aws_attempt(call->client, call->credentials, call->request, timeout, call->response, last, err);
        if (correct_clock(call, &last->verdict)) {
            continue;
        }
        if (!pause_for_retry(call, &last->verdict)) {
            return result_of_call(call, last, err);
        }
        call->response->in_doubt = call->response->in_doubt || last->verdict.fate == FATE_DOUBT;
    }
}

static bool has_endpoint(const struct aws_client *client, const struct aws_request *request,
                         struct belay_error *err)
{
    if (client->endpoints[request->service].url != NULL &&
        (client->region != NULL || request->service == AWS_STS)) {
        return true;
    }
    (void)error_set(err, BELAY_CONFIG,
                    "no AWS region: set AWS_REGION, or 'region' in profile '%s', or add ?region= to the "
                    "store's URL",
                    client->profile);
    return false;
}

enum belay_code aws_call_as(struct aws_client *client, const struct credentials *credentials,
                            const struct aws_request *request, struct aws_response *response,
                            struct belay_error *err)
{
    struct aws_call call = {
        .client = client, .request = request, .response = response, .credentials = credentials
    };
    struct attempt last = { 0 };

    memset(response, 0, sizeof *response);
    return has_endpoint(client, request, err) ? run_attempts(&call, &last, err) : BELAY_CONFIG;
}

static bool same_keys(const struct credentials *a, const struct credentials *b)
{
    return text_is_same(a->access_key_id, b->access_key_id) &&
           text_is_same(a->session_token, b->session_token) &&
           text_is_same(a->secret_access_key, b->secret_access_key);
}

/* The service rejected these: their source may have new ones. */
static bool replace_credentials(struct aws_client *client, struct credentials *credentials)
{
    struct credentials fresh = { 0 };

    credentials_cache_reject(client->cache, credentials);
    if (credentials_cache_get(client->cache, &fresh, NULL) != BELAY_OK) {
        return false;
    }
    if (same_keys(&fresh, credentials)) {
        credentials_release(&fresh);
        return false;
    }
    credentials_release(credentials);
    *credentials = fresh;
    return true;
}

enum belay_code aws_call(struct aws_client *client, const struct aws_request *request,
                         struct aws_response *response, struct belay_error *err)
{
    struct aws_call call = { .client = client, .request = request, .response = response };
    struct credentials credentials = { 0 };
    struct attempt last = { 0 };
    enum belay_code code;

    memset(response, 0, sizeof *response);
    if (!has_endpoint(client, request, err)) {
        return BELAY_CONFIG;
    }
    code = credentials_cache_get(client->cache, &credentials, err);
    if (code == BELAY_OK) {
        call.credentials = &credentials;
        code = run_attempts(&call, &last, err);
        /* A rejected request had no effect, so repeating it is safe. */
        if (last.verdict.mend == MEND_CREDENTIALS && replace_credentials(client, &credentials)) {
            code = run_attempts(&call, &last, err);
        }
    }
    credentials_release(&credentials);
    return code;
}
