/*
 * One HTTP request and its answer, and whether a failed request may have been carried out. The
 * client is an interface: the real one uses libcurl (http_open), tests have others.
 */
#ifndef HTTP_CLIENT_HTTP_H
#define HTTP_CLIENT_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "belay.h"

struct sockaddr; /* of the system */

struct http_client_header {
    const char *name;
    const char *value;
};

struct http_client_request {
    const char *method;
    const char *url; /* complete and percent-encoded: sent as it is */
    const struct http_client_header *headers;
    size_t n_headers;
    const void *body;
    size_t body_len;
    int64_t connect_timeout_ms; /* 0: the client's */
    int64_t timeout_ms;         /* for the whole request; 0: the client's */
    size_t max_answer;          /* bytes of the body; 0: the client's */
    bool may_repeat;            /* idempotent: a dead connection is replaced silently */
    bool direct;                /* without a proxy: link-local services */

    /*
     * Each may be NULL. `cancel` ends the request and its connection once it is requested; should_stop does if it
     * returns true. Both are asked about once a second, after every piece of the answer, and, if wake_fd is above 0, as
     * soon as that is readable. on_data takes the body of an answer with status 200 in pieces, which are then not kept;
     * if it returns false, the request ends. All three result in BELAY_CANCELLED.
     */
    struct belay_cancel *cancel;
    bool (*on_data)(void *context, const char *data, size_t len);
    bool (*should_stop)(void *context);
    int wake_fd;
    void *context;
    /*
     * NULL, or called for each address before a connection is opened, whatever its name was.
     * False: do not connect.
     */
    bool (*may_connect)(void *context, const struct sockaddr *to);
    bool endless; /* no timeout for the whole request; but a minute without a byte is one */
};

/* Names in lower case. Look one up with http_response_header(). */
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
    int64_t date_unix_ms; /* of the Date header; 0: none, or unreadable */
};

void http_response_release(struct http_response *response); /* leaves it empty */
const char *http_response_header(const struct http_response *response, const char *name); /* or NULL */
bool http_response_add_header(struct http_response *response, const char *name, size_t name_len,
                              const char *value, size_t value_len);

struct http;

struct http_ops {
    /*
     * BELAY_OK: there is an answer, whatever its status. BELAY_UNREACHABLE: no byte of the
     * request was sent. BELAY_UNKNOWN: some bytes were sent, and no complete answer arrived.
     * BELAY_CONFIG: the request or the settings cannot work (a bad URL, no CA bundle); nothing
     * was sent. BELAY_CANCELLED: `cancel`, on_data or should_stop ended it.
     */
    enum belay_code (*send)(struct http *http, const struct http_client_request *request,
                            struct http_response *out_response, struct belay_error *err);
    void (*close)(struct http *http);
};

struct http {
    const struct http_ops *ops;
};

struct http_client_options {
    int64_t connect_timeout_ms; /* 0: 3 s */
    int64_t timeout_ms;         /* 0: 10 s */
    size_t max_answer;          /* 0: 16 MiB */
    const char *ca_bundle;      /* a file of certificates in PEM; NULL: the system's */
};

/* The options with the defaults filled in. `options` may be NULL. */
struct http_client_options http_options_complete(const struct http_client_options *options);

/*
 * A client for any number of threads. Connections stay open and are reused. Opening is cheap;
 * libcurl starts with the first request.
 */
enum belay_code http_open(const struct http_client_options *options, struct http **out_http,
                          struct belay_error *err);

/* One request with a libcurl client of its own: no connection of another call is used. */
enum belay_code http_send_once(const struct http_client_options *options,
                               const struct http_client_request *request, int *out_status,
                               struct belay_error *err);

/*
 * A client for one server without TLS. It does not load libcurl, which takes most of the time
 * of a command that acquires a lock through a server on this machine. `base_url` is the
 * beginning of every request's URL, "http://HOST:PORT"; with a `unix_path` the requests go to
 * that socket. No proxies, no redirects.
 */
enum belay_code http_plain_open(const char *base_url, const char *unix_path,
                                const struct http_client_options *options, struct http **out_http,
                                struct belay_error *err);

/* Whether its `cancel` or should_stop ends the request. */
bool http_request_should_stop(const struct http_client_request *request);

enum belay_code http_send(struct http *http, const struct http_client_request *request,
                          struct http_response *out_response, struct belay_error *err);
void http_close(struct http *http); /* NULL does nothing */

/* Parses "Sun, 06 Nov 1994 08:49:37 GMT" into ms since 1970; 0 if it is not such a date. */
int64_t http_parse_date(const char *text);

/* belay_http_post() of belay.h, inside belay-net.so (post.c). */
enum belay_code net_post(const struct belay_http_post *post, int *out_status, struct belay_error *err);

#endif
