#include "http_client/http.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "belay/store.h"

enum { DEFAULT_CONNECT_MS = 3000, DEFAULT_TOTAL_MS = 10000, DEFAULT_MAX_ANSWER = 16 << 20 };

struct http_client_options http_options_complete(const struct http_client_options *options)
{
    struct http_client_options complete = { 0 };

    if (options != NULL) {
        complete = *options;
    }
    if (complete.connect_timeout_ms <= 0) {
        complete.connect_timeout_ms = DEFAULT_CONNECT_MS;
    }
    if (complete.timeout_ms <= 0) {
        complete.timeout_ms = DEFAULT_TOTAL_MS;
    }
    if (complete.max_answer == 0) {
        complete.max_answer = DEFAULT_MAX_ANSWER;
    }
    return complete;
}

bool http_request_should_stop(const struct http_client_request *request)
{
    return belay_cancel_requested(request->cancel) ||
           (request->should_stop != NULL && request->should_stop(request->context));
}

enum belay_code http_send(struct http *http, const struct http_client_request *request,
                          struct http_response *out_response, struct belay_error *err)
{
    enum belay_code code;

    assert(request->method != NULL && request->url != NULL && request->timeout_ms >= 0);
    assert(request->n_headers == 0 || request->headers != NULL);
    assert(request->body_len == 0 || request->body != NULL);
    code = http->ops->send(http, request, out_response, err);
    assert(code != BELAY_OK || out_response->body != NULL); /* an empty one is not NULL */
    assert(code == BELAY_OK || err == NULL || err->code == code);
    return code;
}

void http_close(struct http *http)
{
    if (http != NULL) {
        http->ops->close(http);
    }
}

void http_response_release(struct http_response *response)
{
    if (response == NULL) {
        return;
    }
    for (size_t i = 0; i < response->n_headers; i++) {
        free(response->headers[i].name);
        free(response->headers[i].value);
    }
    free(response->headers);
    free(response->body);
    memset(response, 0, sizeof *response);
}

const char *http_response_header(const struct http_response *response, const char *name)
{
    for (size_t i = 0; i < response->n_headers; i++) {
        if (strcasecmp(response->headers[i].name, name) == 0) {
            return response->headers[i].value;
        }
    }
    return NULL;
}

bool http_response_add_header(struct http_response *response, const char *name, size_t name_len,
                              const char *value, size_t value_len)
{
    struct http_answer_header *grown =
        realloc(response->headers, (response->n_headers + 1) * sizeof *response->headers);
    struct http_answer_header *header;

    if (grown == NULL) {
        return false;
    }
    response->headers = grown;
    header = &grown[response->n_headers];
    header->name = strndup(name, name_len);
    header->value = strndup(value, value_len);
    if (header->name == NULL || header->value == NULL) {
        free(header->name);
        free(header->value);
        return false;
    }
    for (char *c = header->name; *c != '\0'; c++) {
        *c = (char)tolower((unsigned char)*c);
    }
    response->n_headers++;
    return true;
}
