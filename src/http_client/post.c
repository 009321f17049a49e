#include "http_client/http.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/address.h"
#include "base/error.h"
#include "belay/store.h"

enum { HEADERS_MAX = 16, ALLOW_MAX = 64, DEFAULT_TIMEOUT_MS = 10000 };

struct post_call {
    const struct belay_http_post *post;
    struct address_range allow[ALLOW_MAX];
    size_t n_allow;
    struct address refused;
};

/* The address that the connection would go to, whatever the name was. */
static bool may_connect(void *context, const struct sockaddr *to)
{
    struct post_call *call = context;
    struct address address;

    if (!address_of_socket(to, &address)) {
        return false;
    }
    call->refused = address;
    return address_is_public(&address) || address_is_within(&address, call->allow, call->n_allow);
}

/* Only the status matters; the body is discarded. */
static bool ignore_data(void *context, const char *data, size_t len)
{
    (void)context;
    (void)data;
    (void)len;
    return true;
}

static enum belay_code check_post(struct post_call *call, struct belay_error *err)
{
    const struct belay_http_post *post = call->post;
    const char *host = post->url == NULL ? NULL : strstr(post->url, "://");

    if (host == NULL ||
        (strncasecmp(post->url, "http://", 7) != 0 && strncasecmp(post->url, "https://", 8) != 0)) {
        return error_set(err, BELAY_INVALID, "the URL must begin with http:// or https://");
    }
    if (memchr(host + 3, '@', strcspn(host + 3, "/?#")) != NULL) {
        return error_set(err, BELAY_INVALID, "the URL must have no user and no password in it");
    }
    if (post->n_headers > HEADERS_MAX || post->n_allow > ALLOW_MAX) {
        return error_set(err, BELAY_INVALID, "more than %d headers, or %d ranges to allow", HEADERS_MAX,
                         ALLOW_MAX);
    }
    for (; call->n_allow < post->n_allow; call->n_allow++) {
        const char *range = post->allow[call->n_allow];

        if (!address_range_parse(range, &call->allow[call->n_allow])) {
            return error_set(err, BELAY_INVALID, "'%.60s' is not a range of addresses, such as 10.1.0.0/16",
                             range);
        }
    }
    return BELAY_OK;
}

enum belay_code net_post(const struct belay_http_post *post, int *out_status, struct belay_error *err)
{
    int64_t timeout_ms = post->timeout_ms > 0 ? post->timeout_ms : DEFAULT_TIMEOUT_MS;
    struct http_client_options options = { .timeout_ms = timeout_ms,
                                           .max_answer = 1 << 20,
                                           .ca_bundle = post->ca_file };
    struct post_call call = { .post = post };
    struct http_client_header headers[HEADERS_MAX];
    struct http_client_request request = { .method = "POST",
                                           .url = post->url,
                                           .headers = headers,
                                           .n_headers = post->n_headers,
                                           .body = post->body,
                                           .body_len = post->body_len,
                                           .connect_timeout_ms = timeout_ms,
                                           .direct = true,
                                           .on_data = ignore_data,
                                           .cancel = post->cancel,
                                           .may_connect = may_connect,
                                           .context = &call };
    char text[ADDRESS_TEXT_SIZE];
    enum belay_code code = check_post(&call, err);

    for (size_t i = 0; code == BELAY_OK && i < post->n_headers; i++) {
        headers[i] = (struct http_client_header){ post->headers[i].name, post->headers[i].value };
    }
    if (code == BELAY_OK) {
        code = http_send_once(&options, &request, out_status, err);
    }
    if (code == BELAY_NOT_PERMITTED) {
        address_text(&call.refused, text);
        (void)error_wrap(err, "%s is not a public address", text);
    }
    return code;
}
