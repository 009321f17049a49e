/* One attempt: sign, send, and judge the answer. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "aws/aws_client.h"
#include "base/buf.h"
#include "base/error.h"

/* Added to the caller's headers: host, those of the signature, and no compression. */
enum { OWN_HEADERS = SIGV4_HEADERS + 2, MAX_URL = 1 << 20 };

struct prepared {
    char *url;  /* owned */
    char *host; /* owned; the authority, as in the Host header */
    char *path; /* owned */
    struct sigv4_signature signature;
    struct http_client_header *headers; /* owned; the values are borrowed */
    size_t n_headers;
};

static void prepared_release(struct prepared *prepared)
{
    free(prepared->url);
    free(prepared->host);
    free(prepared->path);
    free(prepared->headers);
    sigv4_signature_release(&prepared->signature);
}

static char *concat(const char *a, const char *b)
{
    struct buf text = BUF_INIT(MAX_URL);

    buf_addf(&text, "%s%s", a, b);
    return buf_take(&text);
}

static bool make_request_url(const struct aws_client *client, const struct aws_request *request,
                             struct prepared *prepared)
{
    const struct uri *uri = &client->endpoints[request->service].uri;
    struct buf url = BUF_INIT(MAX_URL);

    prepared->host = concat(request->host_prefix == NULL ? "" : request->host_prefix, uri->authority);
    prepared->path = concat(uri->path, request->path == NULL ? "/" : request->path);
    if (prepared->host == NULL || prepared->path == NULL) {
        return false;
    }
    buf_addf(&url, "%s://%s%s", uri->tls ? "https" : "http", prepared->host, prepared->path);
    if (request->query != NULL && *request->query != '\0') {
        buf_addf(&url, "?%s", request->query);
    }
    prepared->url = buf_take(&url);
    return prepared->url != NULL;
}

static const char *method_of(const struct aws_request *request)
{
    return request->method == NULL ? "POST" : request->method;
}

static void prepared_add_header(struct prepared *prepared, const char *name, const char *value)
{
    prepared->headers[prepared->n_headers++] = (struct http_client_header){ name, value };
}

static enum belay_code sign_attempt(struct aws_client *client, const struct credentials *credentials,
                                    const struct aws_request *request, struct prepared *prepared,
                                    struct belay_error *err)
{
    const struct sigv4_identity identity = {
        .access_key_id = credentials->access_key_id,
        .secret_access_key = credentials->secret_access_key,
        .session_token = credentials->session_token,
        /* Without a region only the global STS is reachable, which requires this one in signatures. */
        .region = client->region != NULL ? client->region : "us-east-1",
        .service = aws_service_name(request->service),
        .unix_ms = platform_unix_ms(client->platform) + atomic_load(&client->skew_ms),
    };
    struct sigv4_request subject = {
        .method = method_of(request),
        .path = prepared->path,
        .query = request->query,
        .headers = prepared->headers,
        .n_headers = prepared->n_headers,
        .body = request->body,
        .body_len = request->body_len,
        .is_s3 = request->service == AWS_S3,
    };
    enum belay_code code = sigv4_sign(client->signer, &subject, &identity, &prepared->signature, err);

    prepared->n_headers = subject.n_headers;
    return code;
}

static enum belay_code prepare_attempt(struct aws_client *client, const struct credentials *credentials,
                                       const struct aws_request *request, struct prepared *out,
                                       struct belay_error *err)
{
    enum belay_code code = BELAY_OK;

    out->headers = calloc(request->n_headers + OWN_HEADERS, sizeof *out->headers);
    if (out->headers == NULL || !make_request_url(client, request, out)) {
        return error_no_memory(err);
    }
    prepared_add_header(out, "Host", out->host);
    for (size_t i = 0; i < request->n_headers; i++) {
        prepared_add_header(out, request->headers[i].name, request->headers[i].value);
    }
    if (credentials != NULL) {
        code = sign_attempt(client, credentials, request, out, err);
    }
    prepared_add_header(out, "Accept-Encoding", "identity"); /* the checksum is of the plain body */
    assert(out->n_headers <= request->n_headers + OWN_HEADERS);
    return code;
}

static void judge_answer(const struct aws_request *request, struct aws_response *response,
                         struct attempt *out, struct belay_error *err)
{
    if (request->service == AWS_DYNAMODB && !aws_crc_fits(&response->http)) {
        (void)error_set(err, BELAY_UNKNOWN, "the answer of %s was damaged on its way (checksum)",
                        aws_service_name(request->service));
        out->verdict = (struct attempt_verdict){ FATE_DOUBT, RETRY_TRANSIENT, MEND_NOTHING, BELAY_UNKNOWN };
        response->error_code = strdup("DamagedAnswer");
        return;
    }
    if ((response->http.status < 200 || response->http.status >= 300) &&
        !aws_error_parse(request->service, &response->http, &response->error_code,
                         &response->error_message)) {
        out->verdict = (struct attempt_verdict){ FATE_DOUBT, RETRY_NEVER, MEND_NOTHING, BELAY_UNKNOWN };
        return;
    }
    out->verdict = aws_error_judge(request->service, response->http.status, response->error_code);
}

/* No answer came. `sent` is the result of http_send(). */
static struct attempt_verdict judge_silence(enum belay_code sent)
{
    assert(sent != BELAY_OK);
    if (sent == BELAY_UNKNOWN) {
        return (struct attempt_verdict){ FATE_DOUBT, RETRY_TRANSIENT, MEND_NOTHING, BELAY_UNKNOWN };
    }
    return (struct attempt_verdict){ FATE_NOTHING, sent == BELAY_UNREACHABLE ? RETRY_TRANSIENT : RETRY_NEVER,
                                     MEND_NOTHING, sent };
}

void aws_attempt(struct aws_client *client, const struct credentials *credentials,
                 const struct aws_request *request, int64_t timeout_ms, struct aws_response *response,
                 struct attempt *out, struct belay_error *err)
{
    struct prepared prepared = { 0 };

    assert(timeout_ms > 0 && (credentials == NULL || credentials->access_key_id != NULL));
    http_response_release(&response->http);
    free(response->error_code);
    free(response->error_message);
    response->error_code = response->error_message = NULL;

    out->sent = prepare_attempt(client, credentials, request, &prepared, err);
    if (out->sent == BELAY_OK) {
        const struct http_client_request http = { .method = method_of(request),
                                                  .url = prepared.url,
                                                  .headers = prepared.headers,
                                                  .n_headers = prepared.n_headers,
                                                  .body = request->body,
                                                  .body_len = request->body_len,
                                                  .timeout_ms = timeout_ms,
                                                  .max_answer = request->max_answer,
                                                  .may_repeat = request->reads_only };

        response->sent_unix_ms = platform_unix_ms(client->platform);
        out->sent = http_send(client->http, &http, &response->http, err);
        response->received_unix_ms = platform_unix_ms(client->platform);
    }
    if (out->sent == BELAY_OK) {
        judge_answer(request, response, out, err);
    } else {
        out->verdict = judge_silence(out->sent);
    }
    prepared_release(&prepared);
}
