/*
 * One HTTP request and its answer, and whether a request that failed can have
 * been acted on. The client is a port: the real one is libcurl's (http_open),
 * tests bring others.
 */
#ifndef HTTP_CLIENT_HTTP_H
#define HTTP_CLIENT_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "belay.h"

struct sockaddr; /* of the system */

struct http_header {
    const char *name;
    const char *value;
};

struct http_request {
    const char *method;
    const char *url; /* complete and already percent-encoded: it goes out as it is */
    const struct http_header *headers;
    size_t n_headers;
    const void *body;
    size_t body_len;
    int64_t connect_timeout_ms; /* 0: the client's */
    int64_t timeout_ms;         /* for all of it; 0: the client's */
    size_t max_answer;          /* bytes of the body; 0: the client's */
    bool may_repeat;            /* sending it twice does no harm: a connection that turns out to be
                                   dead is replaced without a word */
    bool direct;                /* past any proxy: link-local services */
    bool follow_redirects;

    /*
     * Each may be NULL. on_data takes the body as it comes, which is then not kept;
     * false ends the request. should_stop is asked about once a second, and after
     * every piece; true ends it, and the connection. Either way: BELAY_CANCELLED.
     * A descriptor above 0 in wake_fd has it asked at once when it can be read.
     */
    bool (*on_data)(void *context, int status, const char *data, size_t len);
    bool (*should_stop)(void *context);
    int wake_fd;
    void *context;
    /* NULL, or asked for each address before a connection to it is opened, whatever name led there. False: not there. */
    bool (*may_connect)(void *context, const struct sockaddr *to);
    bool endless; /* no timeout for all of it; but a minute without a byte is one */
};

/* Names in lower case. Use http_response_header() to look one up. */
struct http_answer_header {
    char *name;
    char *value;
};

struct http_response {
    int status;
    struct http_answer_header *headers; /* owned */
    size_t n_headers;
    char *body; /* owned; ends in '\0', which body_len does not count; never NULL after success */
    size_t body_len;
    int64_t date_unix_ms; /* of the Date header; 0: none that can be read */
};

void http_response_release(struct http_response *response); /* leaves it empty */
const char *http_response_header(const struct http_response *response, const char *name); /* or NULL */
bool http_response_add_header(struct http_response *response, const char *name, size_t name_len,
                              const char *value, size_t value_len);

struct http;

struct http_ops {
    /*
     * BELAY_OK: there is an answer, whatever its status. BELAY_UNREACHABLE: not
     * one byte of the request was sent. BELAY_UNKNOWN: some was, and no whole
     * answer came. BELAY_CONFIG: the request or the settings cannot work (a bad
     * URL, no CA bundle); nothing was sent. BELAY_CANCELLED: on_data or should_stop
     * ended it.
     */
    enum belay_code (*send)(struct http *http, const struct http_request *request,
                            struct http_response *out_response, struct belay_error *err);
    void (*close)(struct http *http);
};

struct http {
    const struct http_ops *ops;
};

struct http_options {
    int64_t connect_timeout_ms; /* 0: 3 s */
    int64_t timeout_ms;         /* 0: 10 s */
    size_t max_answer;          /* 0: 16 MiB */
    const char *ca_bundle;      /* a file of certificates in PEM; NULL: the system's */
    const char *user_agent;     /* NULL: "belay/VERSION" */
};

/*
 * A client that any number of threads may use. Connections stay open and are
 * used again. Opening it costs nothing; libcurl is started at the first request.
 */
enum belay_code http_open(const struct http_options *options, struct http **out_http,
                          struct belay_error *err);

/* One request by libcurl's client, opened for it alone: no connection of another call is used. */
enum belay_code http_send_once(const struct http_options *options, const struct http_request *request,
                               int *out_status, struct belay_error *err);

/*
 * A client for one server and without TLS, in which case nothing of libcurl is
 * loaded: a command that takes a lock through a server on this machine spends
 * most of its time on that. `base_url` is what every request's URL begins with,
 * "http://HOST:PORT"; with a `unix_path` the requests go to that socket. No
 * proxies, no redirects.
 */
enum belay_code http_plain_open(const char *base_url, const char *unix_path,
                                const struct http_options *options, struct http **out_http,
                                struct belay_error *err);

enum belay_code http_send(struct http *http, const struct http_request *request,
                          struct http_response *out_response, struct belay_error *err);
void http_close(struct http *http); /* NULL does nothing */

/* "Sun, 06 Nov 1994 08:49:37 GMT" in ms since 1970; 0 if it is not such a date. */
int64_t http_parse_date(const char *text);

/* belay_http_post() of belay.h, inside belay-net.so (post.c). */
enum belay_code net_post(const struct belay_http_post *post, int *out_status, struct belay_error *err);

#endif
