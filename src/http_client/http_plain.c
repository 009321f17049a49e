/*
 * The HTTP client without libcurl: HTTP/1.1 to one server, over TCP or a unix socket, parsed
 * by src/http_parse. A connection is used by one thread at a time; idle ones are on a stack.
 * Idle connections are checked before they are reused. If one still dies before a byte of the
 * answer, it is replaced if the request may be repeated; otherwise the caller gets
 * BELAY_UNKNOWN.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "http_client/plain_conn.h"
#include "http_client/uri.h"
#include "http_parse/http_parse.h"
#include "version.h"

enum {
    MAX_IDLE = 16,
    MAX_ANSWER_HEADERS = 200,
    MAX_HEAD = 64 << 10,
    MAX_REQUEST = 64 << 20,
    READ_SIZE = 16 << 10,
    SILENCE_MS = 60000 /* of a request without a timeout */
};

struct http_plain {
    struct http base;
    pthread_mutex_t mutex;
    int idle[MAX_IDLE]; /* owned; a stack, guarded by mutex */
    size_t n_idle;
    struct uri uri;                     /* owned */
    char *unix_path;                    /* owned; NULL: TCP */
    size_t skip;                        /* length of the URL before its path */
    struct http_client_options options; /* complete */
};

/* An answer that is being read. */
struct plain_reading {
    const struct http_client_request *request; /* borrowed */
    struct http_response response;
    struct buf name;
    struct buf value;
    struct buf body;
    bool in_value;
    bool is_done;
    bool keeps;   /* the connection can be reused */
    bool stopped; /* `cancel`, on_data or should_stop ended it */
    const char *why;
};

/* ---- parsing; a result other than 0 ends it ---- */

static int stop_reading(struct plain_reading *reading, const char *why)
{
    reading->why = why;
    return -1;
}

static int flush_header(struct plain_reading *reading)
{
    struct http_response *response = &reading->response;

    if (reading->name.len == 0) {
        return 0;
    }
    if (reading->name.failed || reading->value.failed || response->n_headers >= MAX_ANSWER_HEADERS) {
        return stop_reading(reading, "the head of the answer is too large");
    }
    if (!http_response_add_header(response, reading->name.data, reading->name.len,
                                  reading->value.data == NULL ? "" : reading->value.data,
                                  reading->value.len)) {
        return stop_reading(reading, "out of memory");
    }
    buf_release(&reading->name);
    buf_release(&reading->value);
    reading->name = reading->value = (struct buf)BUF_INIT(MAX_HEAD);
    return 0;
}

static int on_header_name(http_parse_state *parser, const char *data, size_t len)
{
    struct plain_reading *reading = parser->data;
    int rc = reading->in_value ? flush_header(reading) : 0;

    reading->in_value = false;
    buf_add(&reading->name, data, len);
    return rc;
}

static int on_header_value(http_parse_state *parser, const char *data, size_t len)
{
    struct plain_reading *reading = parser->data;

    reading->in_value = true;
    buf_add(&reading->value, data, len);
    return 0;
}

static int on_head(http_parse_state *parser)
{
    struct plain_reading *reading = parser->data;

    reading->response.status = (int)parser->status_code;
    if (parser->status_code < 100 || parser->status_code > 999) {
        return stop_reading(reading, "the answer has no HTTP status");
    }
    if (flush_header(reading) != 0) {
        return -1;
    }
    return strcmp(reading->request->method, "HEAD") == 0 ? 1 : 0; /* 1: no body will come */
}

static int on_plain_body(http_parse_state *parser, const char *data, size_t len)
{
    struct plain_reading *reading = parser->data;
    const struct http_client_request *request = reading->request;

    if (request->on_data != NULL && reading->response.status == 200) {
        reading->stopped = !request->on_data(request->context, data, len);
        return reading->stopped ? -1 : 0;
    }
    if (len > reading->body.max - reading->body.len) {
        return stop_reading(reading, "the answer is too large");
    }
    buf_add(&reading->body, data, len);
    return reading->body.failed ? stop_reading(reading, "out of memory") : 0;
}

static int on_message_end(http_parse_state *parser)
{
    struct plain_reading *reading = parser->data;

    if (parser->status_code / 100 == 1) { /* an interim answer: the real one follows */
        http_response_release(&reading->response);
        return 0;
    }
    reading->is_done = true;
    reading->keeps = http_parse_keeps_alive(parser);
    return http_parse_pause(parser); /* further bytes do not belong to this answer */
}

static const http_parse_callbacks callbacks = { .on_header_field = on_header_name,
                                                .on_header_value = on_header_value,
                                                .on_headers_complete = on_head,
                                                .on_body = on_plain_body,
                                                .on_message_complete = on_message_end };

/* ---- one exchange ---- */

static const char *io_reason(enum plain_io io)
{
    return io == PLAIN_TIMEOUT ? "it took too long" : strerror(errno);
}

static enum belay_code say_stopped(const struct http_plain *client, struct belay_error *err)
{
    return error_set(err, BELAY_CANCELLED, "the request to %s was cancelled", client->uri.authority);
}

/* The server's name in messages. */
static const char *server_name(const struct http_plain *client)
{
    return client->unix_path != NULL ? client->unix_path : client->uri.authority;
}

static enum belay_code say_unreachable(const struct http_plain *client, const char *why,
                                       struct belay_error *err)
{
    /* The URL has none, which the user may have forgotten. */
    const char *port = client->unix_path == NULL && client->uri.port == 80 ? ":80" : "";

    return error_set(err, BELAY_UNREACHABLE, "cannot reach %.300s%s: %s", server_name(client), port, why);
}

static enum belay_code say_no_answer(const struct http_plain *client, const char *why,
                                     struct belay_error *err)
{
    return error_set(err, BELAY_UNKNOWN, "no answer from %.300s to a request that was sent: %s",
                     server_name(client), why);
}

static char *request_text(const struct http_plain *client, const struct http_client_request *request,
                          size_t *out_len)
{
    struct buf text = BUF_INIT(MAX_REQUEST);
    const char *path = request->url + client->skip;

    buf_addf(&text, "%s %s%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: belay/" BELAY_VERSION "\r\nAccept: */*\r\n",
             request->method, *path == '/' ? "" : "/", path, client->uri.authority);
    for (size_t i = 0; i < request->n_headers; i++) {
        buf_addf(&text, "%s: %s\r\n", request->headers[i].name, request->headers[i].value);
    }
    if (request->body != NULL || strcmp(request->method, "POST") == 0) {
        buf_addf(&text, "Content-Length: %zu\r\n", request->body_len);
    }
    buf_adds(&text, "\r\n");
    if (request->body != NULL) {
        buf_add(&text, request->body, request->body_len); /* in one packet */
    }
    *out_len = text.len;
    return buf_take(&text);
}

/* BELAY_OK: reading->is_done, or the connection was closed. */
static enum belay_code read_response(const struct http_plain *client, int fd, struct plain_reading *reading,
                                     struct plain_limit *limit, bool *out_nothing_came,
                                     struct belay_error *err)
{
    char *data = malloc(READ_SIZE);
    struct http_parse parse;

    *out_nothing_came = true;
    http_parse_responses(&parse, &callbacks, reading);
    while (data != NULL && !reading->is_done && reading->why == NULL) {
        enum plain_io io;
        enum http_parse_result result;
        size_t n = 0, taken;

        if (reading->request->endless) {
            limit->until_ms = clock_boot_ms() + SILENCE_MS;
        }
        io = plain_read(fd, data, READ_SIZE, limit, &n);
        reading->stopped = io == PLAIN_STOPPED;
        if (io != PLAIN_DONE) {
            reading->why = io_reason(io);
            break;
        }
        *out_nothing_came = *out_nothing_came && n == 0;
        result = n == 0 ? http_parse_end(&parse) : http_parse_run(&parse, data, n, &taken);
        if (!reading->is_done && reading->why == NULL && (n == 0 || result != HTTP_PARSE_MORE)) {
            reading->why = n == 0 ? "the connection was closed before an answer came" : "not HTTP";
        }
    }
    free(data);
    return reading->stopped ? say_stopped(client, err)
           : reading->is_done
               ? BELAY_OK
               : say_no_answer(client, reading->why == NULL ? "out of memory" : reading->why, err);
}

static enum belay_code hand_over(struct plain_reading *reading, struct http_response *out_response,
                                 struct belay_error *err)
{
    assert(reading->is_done);
    reading->response.body_len = reading->body.len;
    reading->response.body = buf_take(&reading->body);
    if (reading->response.body == NULL) {
        return error_set(err, BELAY_UNKNOWN, "out of memory for an answer");
    }
    *out_response = reading->response;
    memset(&reading->response, 0, sizeof reading->response);
    return BELAY_OK;
}

static int take_idle(struct http_plain *client)
{
    int fd = -1;

    (void)pthread_mutex_lock(&client->mutex);
    while (fd < 0 && client->n_idle > 0) {
        fd = client->idle[--client->n_idle];
        if (!plain_is_quiet(fd)) {
            (void)close(fd);
            fd = -1;
        }
    }
    (void)pthread_mutex_unlock(&client->mutex);
    return fd;
}

static void give_back_connection(struct http_plain *client, int fd)
{
    assert(fd >= 0);
    (void)pthread_mutex_lock(&client->mutex);
    assert(client->n_idle <= MAX_IDLE);
    if (client->n_idle < MAX_IDLE) {
        client->idle[client->n_idle++] = fd;
        fd = -1;
    }
    (void)pthread_mutex_unlock(&client->mutex);
    if (fd >= 0) {
        (void)close(fd);
    }
}

/* `whole` is the limit of the request, which its connection does not exceed either. */
static enum belay_code open_connection(struct http_plain *client, const struct http_client_request *request,
                                       const struct plain_limit *whole, int *out_fd, struct belay_error *err)
{
    int64_t ms =
        request->connect_timeout_ms > 0 ? request->connect_timeout_ms : client->options.connect_timeout_ms;
    int64_t until_ms = clock_boot_ms() + ms;
    struct plain_limit limit = { request, until_ms < whole->until_ms ? until_ms : whole->until_ms };
    const char *why = NULL;
    enum plain_io io =
        plain_connect(client->unix_path, client->uri.host, client->uri.port, &limit, out_fd, &why);

    if (io == PLAIN_STOPPED) {
        return say_stopped(client, err);
    }
    return io == PLAIN_DONE ? BELAY_OK : say_unreachable(client, why != NULL ? why : io_reason(io), err);
}

/* *out_may_repeat: the request was lost with a connection that had been idle for too long. */
static enum belay_code exchange_once(struct http_plain *client, const struct http_client_request *request,
                                     const char *text, size_t len, bool fresh,
                                     struct http_response *out_response, bool *out_may_repeat,
                                     struct belay_error *err)
{
    int64_t ms = request->timeout_ms > 0 ? request->timeout_ms : client->options.timeout_ms;
    struct plain_limit limit = { request, clock_boot_ms() + ms };
    struct plain_reading reading = { .request = request,
                                     .name = BUF_INIT(MAX_HEAD),
                                     .value = BUF_INIT(MAX_HEAD),
                                     .body = BUF_INIT(request->max_answer > 0 ? request->max_answer
                                                                              : client->options.max_answer) };
    int fd = fresh ? -1 : take_idle(client);
    bool was_idle = fd >= 0;
    bool nothing_came = true;
    size_t sent = 0;
    enum belay_code code = was_idle ? BELAY_OK : open_connection(client, request, &limit, &fd, err);
    enum plain_io io;

    if (code != BELAY_OK) {
        return code;
    }
    assert(fd >= 0);
    io = plain_write(fd, text, len, &limit, &sent);
    assert(io != PLAIN_DONE || sent == len);
    if (io == PLAIN_DONE) {
        code = read_response(client, fd, &reading, &limit, &nothing_came, err);
    } else if (io == PLAIN_STOPPED) {
        code = say_stopped(client, err);
    } else {
        code = sent == 0 ? say_unreachable(client, io_reason(io), err)
                         : say_no_answer(client, io_reason(io), err);
    }
    assert(code != BELAY_UNREACHABLE || sent == 0); /* what was sent may have been done */
    /* A server that took the whole time would take it once more. */
    *out_may_repeat = was_idle && nothing_came && code != BELAY_CANCELLED &&
                      clock_boot_ms() < limit.until_ms && (request->may_repeat || sent == 0);
    if (code == BELAY_OK) {
        code = hand_over(&reading, out_response, err);
    }
    if (code == BELAY_OK && reading.keeps) {
        give_back_connection(client, fd);
    } else {
        (void)close(fd);
    }
    http_response_release(&reading.response);
    buf_release(&reading.name);
    buf_release(&reading.value);
    buf_release(&reading.body);
    return code;
}

static enum belay_code http_plain_send(struct http *http, const struct http_client_request *request,
                                       struct http_response *out_response, struct belay_error *err)
{
    struct http_plain *client = (struct http_plain *)http;
    size_t len = 0;
    char *text = request_text(client, request, &len);
    bool may_repeat = false;
    enum belay_code code;

    if (text == NULL) {
        return error_no_memory(err);
    }
    code = exchange_once(client, request, text, len, false, out_response, &may_repeat, err);
    if (code != BELAY_OK && may_repeat) {
        code = exchange_once(client, request, text, len, true, out_response, &may_repeat, err);
    }
    free(text);
    return code;
}

static void http_plain_close(struct http *http)
{
    struct http_plain *client = (struct http_plain *)http;

    for (size_t i = 0; i < client->n_idle; i++) {
        (void)close(client->idle[i]);
    }
    (void)pthread_mutex_destroy(&client->mutex);
    uri_release(&client->uri);
    free(client->unix_path);
    free(client);
}

static const struct http_ops http_plain_ops = { http_plain_send, http_plain_close };

enum belay_code http_plain_open(const char *base_url, const char *unix_path,
                                const struct http_client_options *options, struct http **out_http,
                                struct belay_error *err)
{
    struct http_plain *client = calloc(1, sizeof *client);

    if (client == NULL) {
        return error_no_memory(err);
    }
    client->base.ops = &http_plain_ops;
    (void)pthread_mutex_init(&client->mutex, NULL);
    client->options = http_options_complete(options);
    client->unix_path = unix_path == NULL ? NULL : strdup(unix_path);
    if (!uri_parse(base_url, &client->uri) || client->uri.tls) {
        http_plain_close(&client->base);
        return error_set(err, BELAY_CONFIG, "'%.200s' is not a http:// URL", base_url);
    }
    if (unix_path != NULL && client->unix_path == NULL) {
        http_plain_close(&client->base);
        return error_no_memory(err);
    }
    client->skip = strlen("http://") + strcspn(base_url + strlen("http://"), "/?");
    *out_http = &client->base;
    return BELAY_OK;
}
