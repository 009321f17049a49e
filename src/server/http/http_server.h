/*
 * The HTTP/1.1 server of `belay serve`: connections, parsing, limits, TLS, and
 * answers that may come later. Knows nothing of locks.
 *
 * Everything here is called in the loop's thread, and calls back in it.
 * http_answer() and the stream functions never call back: neither the handler
 * nor a hang-up notice runs inside them. Handlers may therefore walk their own
 * lists while they answer.
 */
#ifndef SERVER_HTTP_HTTP_SERVER_H
#define SERVER_HTTP_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/address.h"
#include "belay.h"
#include "server/http/loop.h"

struct http_server;

/* --- a request --- */

struct http_header {
    const char *name;
    const char *value;
};

enum { HTTP_PEER_TEXT_SIZE = 64 };

struct http_peer {
    char text[HTTP_PEER_TEXT_SIZE]; /* "192.0.2.7:40112", "[2001:db8::1]:40112" or "unix:uid=1000,pid=77" */
    bool is_loopback;               /* 127.0.0.0/8 or ::1; false for a unix socket */
    bool is_unix;
    bool is_trusted; /* connected where http_listen.is_trusted is set */
    uid_t uid;       /* of a unix socket's client when it connected; else (uid_t)-1 */
    pid_t pid;       /* the same; else 0 */
};

/*
 * Read only. Valid, with all it points to, until it is answered, its stream
 * has ended, or its last hang-up notice has returned.
 */
struct http_request {
    uint64_t id;                       /* counts up from 1 in one server */
    const char *method;                /* "GET", "LOCK", … */
    const char *path;                  /* as it came, percent-encoded, begins with '/'; or "*" */
    const char *query;                 /* as it came, without '?'; "" if there is none */
    const struct http_header *headers; /* in order, white space around the values removed */
    size_t n_headers;
    const char *body; /* followed by a '\0' that does not count; "" if there is none */
    size_t body_len;
    const struct http_peer *peer;
    int64_t received_ms; /* boot clock, when its first byte was there */
    bool is_tls;
    bool is_head;     /* the answer's body will be counted, but not sent */
    bool is_unwanted; /* admit() returned false: its body is not read, and the handler refuses it */
    bool is_stale;    /* its client may have stopped waiting: see input_is_stale() */
    void *user;       /* the handler's own; NULL at first */
};

/*
 * Take over the body without a copy; the caller frees it. It is followed by a '\0'. NULL:
 * no memory. It counts against max_bodies_bytes until the request is answered.
 */
char *http_take_body(struct http_request *request, size_t *out_len);

/* The client has authenticated: when there are too many connections, others are closed before this one. */
void http_mark_known(struct http_request *request);

/* No further request of its connection is handled before this one is answered. */
void http_read_no_more(struct http_request *request);

/* The first header of that name in any case, or NULL. */
const char *http_header(const struct http_request *request, const char *name);

/* --- answering --- */

/*
 * Answer a request, now or later, once. `headers` and `body` are copied. Date,
 * Content-Length and Connection are added here. Answers to pipelined requests
 * leave in the order of the requests. A header that would break the answer
 * apart (control characters) makes it a 500.
 */
void http_answer(struct http_request *request, int status, const struct http_header *headers,
                 size_t n_headers, const void *body, size_t body_len);

/*
 * The same without a copy: the body must not change until release(owner) is called,
 * once, in the loop's thread: when it is sent or the client is gone, which may
 * be before this returns. It is sent in pieces, so that other connections do not wait.
 */
struct http_shared {
    const char *data;
    size_t len;
    void (*release)(void *owner);
    void *owner;
    bool is_own; /* no other answer has this body: it counts against max_unsent_bytes */
};
void http_answer_shared(struct http_request *request, int status, const struct http_header *headers,
                        size_t n_headers, const struct http_shared *body);

/* The same with {"error":{"code":…,"message":…,"lock":null}} as its body. */
void http_answer_error(struct http_request *request, int status, const char *code, const char *message);

/*
 * An answer whose end is not known yet, such as Server-Sent Events. Afterwards
 * http_stream_send() any number of times, then http_stream_end().
 */
void http_stream_begin(struct http_request *request, int status, const struct http_header *headers,
                       size_t n_headers);

/*
 * False if the client reads too slowly: more than max_stream_bytes would wait
 * for it. Its connection is then closed; the hang-up notice comes in the loop's next turn.
 */
bool http_stream_send(struct http_request *request, const void *data, size_t len);
/* Whether what was sent last still waits to be durable. If more is added now, all of it waits for a later LSN. */
bool http_stream_is_waiting(const struct http_request *request);
void http_stream_end(struct http_request *request);

/*
 * An event of the client of a request that has no (complete) answer yet.
 *
 * A client that has closed its sending side may be gone, or may still be reading: TCP does
 * not tell. So there are two notices. HALF_CLOSED comes at once, and the request is still
 * valid: a handler that waits for something on the client's behalf stops waiting and
 * answers; one that is about to answer ignores the notice. GONE comes when nothing can
 * be delivered any more, and is the last notice of the request. (After a closed unix
 * socket, a reset, or http_server_close(), GONE follows at once.)
 */
enum http_hangup { HTTP_HALF_CLOSED, HTTP_GONE };

typedef void http_hangup_notice(struct http_request *request, enum http_hangup what, void *context);
void http_on_hangup(struct http_request *request, http_hangup_notice *notice, void *context);
/*
 * After HALF_CLOSED: send an interim answer, which a client that still reads ignores. To one that is gone it cannot be
 * delivered, so that GONE follows. For an answer that takes long to make.
 */
void http_probe(struct http_request *request);

/* --- the server --- */

enum {
    HTTP_DEFAULT_MAX_BODY = 1 << 20,
    HTTP_DEFAULT_MAX_BODIES = 256 << 20,
    HTTP_DEFAULT_MAX_HEAD = 16 << 10,
    HTTP_DEFAULT_MAX_TARGET = 8 << 10,
    HTTP_DEFAULT_MAX_CONNECTIONS = 12000,
    HTTP_DEFAULT_MAX_PER_PEER = 1000,
    HTTP_DEFAULT_EVICT_MS = 1000,
    HTTP_DEFAULT_MAX_PIPELINED = 16,
    HTTP_DEFAULT_MAX_STREAM = 256 << 10,
    HTTP_DEFAULT_MAX_UNSENT = 1 << 30,
    HTTP_DEFAULT_HANDSHAKE_MS = 10000,
    HTTP_DEFAULT_HEAD_MS = 10000,
    HTTP_DEFAULT_BODY_MS = 30000,
    HTTP_LARGE_BODY_MS = 600000, /* where admit() allows more */
    HTTP_DEFAULT_IDLE_MS = 75000,
    HTTP_DEFAULT_SEND_MS = 30000,
    HTTP_HARD_MAX_HEAD = 64 << 10, /* the parser's own limit is above this */
};

/* A field left 0 has its default, above. */
struct http_limits {
    size_t max_body_bytes;   /* of one request: 413 */
    size_t max_bodies_bytes; /* of all requests together: 503; an eighth of it is kept for small ones */
    size_t max_head_bytes;   /* request line and headers: 431 */
    size_t max_target_bytes; /* path and query: 414 */
    size_t max_connections;  /* more: idle ones are closed, new ones get 503 or wait in the kernel's queue */
    size_t max_per_peer;     /* of one address; nearly all for unix sockets and http_options.unlimited */
    size_t max_pipelined;    /* requests in progress on one connection */
    size_t max_stream_bytes; /* waiting for a stream's reader */
    size_t max_unsent_bytes; /* of all answers that were not read: slow readers are disconnected */
    int64_t handshake_ms;    /* of TLS */
    int64_t head_ms;         /* from a request's first byte to the end of its headers: 408 */
    int64_t body_ms;         /* from there to the end of its body: 408 */
    int64_t idle_ms;         /* between requests */
    int64_t send_ms;         /* in which the client reads no byte of its answer */
    int64_t evict_ms;        /* a connection that was idle for so long may be closed to make room */
};

struct http_listen {
    const char *address; /* "127.0.0.1:7420", "[::1]:7420", "localhost:7420", "unix:/run/b.sock"; or NULL */
    int fd;              /* with address NULL: a listening socket inherited from systemd; taken over */
    bool is_tls;
    mode_t unix_mode; /* of a new unix socket; 0 means 0600 */
    bool is_trusted;  /* clients that connect here need no token */
};

/* For the log. */
struct http_notice {
    int status;       /* of the refusal, or 0 */
    const char *peer; /* "" if it is about no connection */
    const char *text;
};

struct http_options {
    const struct http_listen *listen;
    size_t n_listen;
    struct http_limits limits;
    const char *tls_certificate; /* PEM file, chain included; NULL without TLS */
    const char *tls_key;         /* PEM file */
    void (*handle)(void *context, struct http_request *request);
    /*
     * Called when the headers are complete: whether to read the body, and how large
     * it may be, in bytes (*max_body is max_body_bytes at first). False: the handler is
     * called at once, with is_unwanted set, to refuse it. Not called if there is no body, or if
     * it arrived together with the headers. May be NULL.
     */
    bool (*admit)(void *context, const struct http_request *request, size_t *max_body);
    /* Requests and connections that were refused without the handler, and so on; may be NULL. */
    void (*notice)(void *context, const struct http_notice *notice);
    /* The LSN of the newest commit: answers wait until it is durable. NULL: answers are sent at once. */
    uint64_t (*committed_lsn)(void *context);
    void *context;                         /* borrowed */
    const struct address_range *unlimited; /* copied; peers that many clients share, such as a proxy */
    size_t n_unlimited;
};

/* Listen, and serve while the loop runs. `loop` must outlive the server. */
enum belay_code http_server_open(struct loop *loop, const struct http_options *options,
                                 struct http_server **out_server, struct belay_error *err);

/* Drops every connection (their requests get GONE) and closes. Between turns of the loop, not from a callback. */
void http_server_close(struct http_server *server);

/*
 * All up to this log sequence number (LSN) is durable: send what waited for it. See http_options.committed_lsn.
 * An answer takes the LSN of the moment when it is made, and answers on one connection leave in the order of
 * their requests. Not from a callback of this header.
 */
void http_server_set_durable(struct http_server *server, uint64_t lsn);
/* How many connections, up to `limit`, wait for a greater LSN. Streams are not counted. */
size_t http_server_count_waiting(const struct http_server *server, uint64_t lsn, size_t limit);
/* Whether any connection, with a stream or without, waits for an LSN. */
bool http_server_is_waiting(const struct http_server *server);

/*
 * Stop accepting, close idle connections, and let the others finish with
 * `Connection: close`; after limit_ms they are closed. `done` is called once,
 * when the last connection is closed, from the loop; it may stop the loop.
 */
void http_server_drain(struct http_server *server, int64_t limit_ms, loop_hook *done, void *context);

/* Read certificate and key again, for new connections. On error nothing changes. */
enum belay_code http_server_reload_tls(struct http_server *server, struct belay_error *err);

/* Serve a connected stream socket, which is taken over; on failure (false) it is closed. */
bool http_server_adopt(struct http_server *server, int fd);

/*
 * "127.0.0.1:43121" of listening socket number `index`, as bound: for port 0. NULL if there is none. They are in
 * the order of http_options.listen, but a host name may have opened several.
 */
const char *http_server_address(const struct http_server *server, size_t index);
/* The same as http_options.listen has it; NULL: the socket was inherited, or there is none. */
const char *http_server_given(const struct http_server *server, size_t index);
size_t http_server_connections(const struct http_server *server);

/* --- paths and queries (request_uri.c) --- */

struct http_slice {
    const char *data; /* borrowed */
    size_t len;
};

/*
 * Split a path at its slashes, before any decoding: "/v1/locks/a%2Fb" is the
 * three segments "v1", "locks" and "a%2Fb". Returns how many there are, which may be
 * more than max; only max are written. "/" is one empty segment.
 */
size_t http_path_split(const char *path, struct http_slice *out, size_t max);

/*
 * Decode %XX into `out`, which is '\0'-terminated. False if it does not fit, an
 * escape is malformed, or it decodes to a NUL; `out` is then undefined.
 */
bool http_decode(struct http_slice raw, char *out, size_t out_size);

enum http_found { HTTP_ABSENT, HTTP_FOUND, HTTP_MALFORMED };

/* The decoded value of the first `name` in a query ('+' is a space); "a" alone has the value "". */
enum http_found http_query_get(const char *query, const char *name, char *out, size_t out_size);

/* Walk through a query: start with *cursor = query. False at its end. Names and values are still encoded. */
bool http_query_next(const char **cursor, struct http_slice *out_name, struct http_slice *out_value);

#endif
