/*
 * libcurl's pre-request callback tells whether a failed request was sent: it runs when the
 * connection is established (with TLS and proxy) and before the first byte. The same callback
 * prevents libcurl from repeating a request: when a reused connection dies without a byte of
 * answer, libcurl would repeat even a POST, which the service may have carried out.
 */
#include "http_client/http_exchange.h"

#include <string.h>
#include <strings.h>

enum { MAX_HEADERS = 200 };

static size_t on_body(char *data, size_t size, size_t n, void *context)
{
    struct curl_exchange *exchange = context;
    const struct http_client_request *request = exchange->request;
    long status = 0;

    if (request->on_data != NULL) {
        (void)curl_easy_getinfo(exchange->curl, CURLINFO_RESPONSE_CODE, &status);
        if (status == 200) {
            exchange->stopped = !request->on_data(request->context, data, size * n);
            return exchange->stopped ? 0 : size * n;
        }
    }
    if (n > exchange->body.max - exchange->body.len) {
        exchange->too_large = true;
        return 0;
    }
    buf_add(&exchange->body, data, size * n);
    exchange->no_memory = exchange->no_memory || exchange->body.failed;
    return exchange->no_memory ? 0 : size * n;
}

static void trim(const char **start, const char **end)
{
    while (*start < *end && strchr(" \t\r\n", **start) != NULL) {
        (*start)++;
    }
    while (*end > *start && strchr(" \t\r\n", (*end)[-1]) != NULL) {
        (*end)--;
    }
}

static size_t on_header(char *data, size_t size, size_t n, void *context)
{
    struct curl_exchange *exchange = context;
    const char *colon = memchr(data, ':', n);
    const char *end = data + n;
    const char *value;

    if (n >= 5 && memcmp(data, "HTTP/", 5) == 0) {
        http_response_release(&exchange->response); /* the previous head was a 1xx */
        return size * n;
    }
    if (colon == NULL) {
        return size * n;
    }
    if (exchange->response.n_headers >= MAX_HEADERS) {
        exchange->too_large = true;
        return 0;
    }
    value = colon + 1;
    trim(&value, &end);
    if (!http_response_add_header(&exchange->response, data, (size_t)(colon - data), value,
                                  (size_t)(end - value))) {
        exchange->no_memory = true;
        return 0;
    }
    return size * n;
}

static int on_begin(void *context, char *primary_ip, char *local_ip, int primary_port, int local_port)
{
    struct curl_exchange *exchange = context;

    (void)primary_ip;
    (void)local_ip;
    (void)primary_port;
    (void)local_port;
    if (exchange->begun > 0 && !exchange->request->may_repeat) {
        exchange->not_resent = true;
        return CURL_PREREQFUNC_ABORT;
    }
    exchange->begun++;
    return CURL_PREREQFUNC_OK;
}

static int on_curl_progress(void *context, curl_off_t down_total, curl_off_t down, curl_off_t up_total,
                            curl_off_t up)
{
    struct curl_exchange *exchange = context;

    (void)down_total;
    (void)down;
    (void)up_total;
    (void)up;
    exchange->stopped = exchange->stopped || http_request_should_stop(exchange->request);
    return exchange->stopped ? 1 : 0;
}

/* Headers that libcurl would add: no pause for 100-continue, no content type by default. */
static const char *const unwanted[] = { "Expect:", "Content-Type:" };
enum { N_UNWANTED = sizeof unwanted / sizeof unwanted[0] };

static bool has_header(const struct http_client_request *request, const char *name, size_t len)
{
    for (size_t i = 0; i < request->n_headers; i++) {
        if (strlen(request->headers[i].name) == len &&
            strncasecmp(request->headers[i].name, name, len) == 0) {
            return true;
        }
    }
    return false;
}

struct curl_slist *exchange_headers(const struct http_client_request *request, bool *out_failed)
{
    struct curl_slist *list = NULL;
    struct buf line = BUF_INIT(1 << 20);

    *out_failed = false;
    for (size_t i = 0; i < request->n_headers + N_UNWANTED; i++) {
        struct curl_slist *grown;

        line.len = 0;
        if (i >= request->n_headers) {
            const char *name = unwanted[i - request->n_headers];
            if (has_header(request, name, strlen(name) - 1)) {
                continue;
            }
            buf_adds(&line, name);
        } else if (request->headers[i].value[0] == '\0') {
            buf_addf(&line, "%s;", request->headers[i].name); /* libcurl's syntax for an empty one */
        } else {
            buf_addf(&line, "%s: %s", request->headers[i].name, request->headers[i].value);
        }
        grown = line.failed ? NULL : curl_slist_append(list, line.data);
        if (grown == NULL) {
            *out_failed = true;
            break;
        }
        list = grown;
    }
    buf_release(&line);
    return list;
}

static void set_up_body(CURL *curl, const struct http_client_request *request)
{
    if (request->body_len > 0 || strcmp(request->method, "POST") == 0 ||
        strcmp(request->method, "PUT") == 0) {
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_len);
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body_len > 0 ? request->body : "");
    } else if (strcmp(request->method, "HEAD") == 0) {
        (void)curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    }
    (void)curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request->method);
}

void exchange_attach(struct curl_exchange *exchange, CURL *curl)
{
    exchange->curl = curl;
    if (exchange->request->should_stop != NULL || exchange->request->cancel != NULL) {
        (void)curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_curl_progress);
        (void)curl_easy_setopt(curl, CURLOPT_XFERINFODATA, exchange);
        (void)curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    }
    set_up_body(curl, exchange->request);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, exchange);
    (void)curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    (void)curl_easy_setopt(curl, CURLOPT_HEADERDATA, exchange);
    (void)curl_easy_setopt(curl, CURLOPT_PREREQFUNCTION, on_begin);
    (void)curl_easy_setopt(curl, CURLOPT_PREREQDATA, exchange);
}
