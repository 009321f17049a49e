/* One attempt: sign, send, and judge the answer. */
#include <stdlib.h>
#include <string.h>

#include "aws/aws_client.h"
#include "base/buf.h"
#include "base/error.h"

/* Added to the caller's headers: host, date, token, hash, authorization, and no compression. */
enum { OWN_HEADERS = 6, MAX_URL = 1 << 20 };

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

static struct sigv4_identity identity_of(struct aws_client *client, const struct credentials *credentials,
                                         const struct aws_request *request)
{
    return (struct sigv4_identity){
        .access_key_id = credentials->access_key_id,
        .secret_access_key = credentials->secret_access_key,
        .session_token = credentials->session_token,
        /* Without a region only the global STS is reachable, which requires this one in signatures. */
        .region = client->region != NULL ? client->region : "us-east-1",
        .service = aws_service_name(request->service),
        .unix_ms = platform_unix_ms(client->platform) + atomic_load(&client->skew_ms),
    };
}

static struct sigv4_request to_sign(const struct aws_request *request, const struct prepared *prepared)
{
    return (struct sigv4_request){
        .method = request->method == NULL ? "POST" : request->method,
        .path = prepared->path,
        .query = request->query,
        .headers = prepared->headers,
        .n_headers = prepared->n_headers,
        .body = request->body,
        .body_len = request->body_len,
        .is_s3 = request->service == AWS_S3,
    };
}

static void prepared_add_header(struct prepared *prepared, const char *name, const char *value)
{
    prepared->headers[prepared->n_headers++] = (struct http_client_header){ name, value };
}

static enum belay_code sign_attempt(struct aws_client *client, const struct credentials *credentials,
                                    const struct aws_request *request, struct prepared *prepared,
                                    struct belay_error *err)
{
    struct sigv4_identity identity = identity_of(client, credentials, request);
    struct sigv4_request subject = to_sign(request, prepared);
    enum belay_code code = sigv4_sign(client->signer, &subject, &identity, &prepared->signature, err);

    if (code != BELAY_OK) {
        return code;
    }
    prepared_add_header(prepared, "x-amz-date", prepared->signature.amz_date);
    if (credentials->session_token != NULL) {
        prepared_add_header(prepared, "x-amz-security-token", credentials->session_token);
    }
    if (subject.is_s3) {
        prepared_add_header(prepared, "x-amz-content-sha256", prepared->signature.payload_hash);
    }
    prepared_add_header(prepared, "Authorization", prepared->signature.authorization);
    return BELAY_OK;
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
    return code;
}

static bool is_success(int status)
{
    return status >= 200 && status < 300;
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
    if (!is_success(response->http.status) &&
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
    struct http_client_request http = { 0 };

    http_response_release(&response->http);
    free(response->error_code);
    free(response->error_message);
    response->error_code = response->error_message = NULL;

    out->sent = prepare_attempt(client, credentials, request, &prepared, err);
    if (out->sent == BELAY_OK) {
        http.method = request->method == NULL ? "POST" : request->method;
        http.url = prepared.url;
        http.headers = prepared.headers;
        http.n_headers = prepared.n_headers;
        http.body = request->body;
        http.body_len = request->body_len;
        http.timeout_ms = timeout_ms;
        http.max_answer = request->max_answer;
        http.may_repeat = request->reads_only;
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
