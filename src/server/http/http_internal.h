/*
 * Shared by the files of the HTTP server.
 *
 * A connection:
 *
 *     accept --> HANDSHAKE (TLS only) --> OPEN --> LINGER --> DEAD
 *                     |                    |                    ^
 *                     +--------------------+--------------------+
 *
 * OPEN: bytes go to the request being read (`current`). A complete request joins the queue
 * (`first` to `last`), the handler is called, and the next request is read. Its answer is
 * collected in the request (`ready`), and moves to `out` when the request is at the head of
 * the queue and the answer is durable (answer.c).
 * LINGER: the last answer is sent, but the client may still be sending. If the socket were
 * closed now, the kernel could discard that answer, so the server reads on for a moment.
 * DEAD: closed; the memory is freed at the end of the loop's turn.
 *
 * Only functions that the loop calls directly close a connection. A function that
 * answers and finds the socket broken sets `is_broken` and schedules `task`.
 */
#ifndef SERVER_HTTP_HTTP_INTERNAL_H
#define SERVER_HTTP_HTTP_INTERNAL_H

#include <openssl/types.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/address.h"
#include "base/buf.h"
#include "http_parse/http_parse.h"
#include "server/http/http_server.h"

enum {
    READ_SIZE = 64 << 10,    /* one read, and so the most that is kept unparsed */
    READS_PER_EVENT = 8,     /* then other connections come first */
    REQUESTS_PER_INPUT = 16, /* likewise */
    STALE_MS = 1500,         /* a server that is not suspended reads a request much sooner */
    SEND_SIZE = 1 << 20,     /* one write: a fast reader must not occupy the loop */
    SENDS_PER_EVENT = 2,     /* then other connections come first */
    MAX_UNSENT = 256 << 10,  /* no further request is read while so much waits to be sent */
    MAX_ANSWER = 1 << 30,    /* of one connection's unsent bytes: more is a bug */
    MAX_HEADERS = 64,        /* of one request: 431 */
    MAX_BLANK_BYTES = 4,     /* line ends tolerated in front of a request */
    CHUNK_OVERHEAD = 8,      /* bytes around chunks per byte of body, besides max_head_bytes */
    TINY_BODY = 1 << 10,     /* a renewal or a release: always accepted */
    SMALL_BODY = 16 << 10,   /* an eighth of max_bodies_bytes is reserved for these */
    MAX_SKIPPED = 64 << 10,  /* of an unwanted body, so that its connection can be used again */
    LINGER_MS = 2000,
    ACCEPT_PAUSE_MS = 100, /* after the system had no descriptor or memory left */
    ACCEPTS_PER_EVENT = 64,
    REFUSED_ROOM = 64,     /* connections above the limit that are answered 503 */
    SPARE_REQUESTS = 1024, /* kept for reuse */
    SPARE_BUFFERS = 64,
    SPARE_TEXT = 4 << 10, /* larger buffers are not kept */
    SPARE_BODY = 16 << 10,
    SPARE_OUT = 64 << 10,
    DATE_SIZE = 40,
    PEER_BUCKETS = 4096,
};

#define NO_DEADLINE INT64_MAX

enum body_kind { BODY_NONE, BODY_LENGTH, BODY_CHUNKED };

/* The part of a chunked body that comes next (request_read.c). */
enum chunk_state {
    CHUNK_SIZE_FIRST, /* the first digit of a size */
    CHUNK_SIZE,
    CHUNK_EXTENSION,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    TRAILER_FIRST, /* the first byte of a line after the last chunk */
    TRAILER,
    TRAILER_LF,
    TRAILER_END_LF,
};

enum text_part { PART_NONE, PART_TARGET, PART_NAME, PART_VALUE };

/* Offsets into the text, which moves while it grows. */
struct header_at {
    uint32_t name;
    uint32_t value;
};

struct request {
    struct http_request pub; /* first: a pointer to it is a pointer to the request */
    struct request *next;
    struct conn *conn; /* borrowed */

    struct buf text; /* target, then names and values, each with its '\0' */
    struct header_at at[MAX_HEADERS];
    struct http_header headers[MAX_HEADERS];
    size_t n_headers;
    size_t target_len;
    size_t head_bytes; /* raw bytes of the head so far */
    size_t line_bytes; /* of its first line; 0 while that is not complete */
    enum text_part part;
    char last_byte; /* of the input before */
    int minor;      /* of HTTP/1.x */
    bool is_head_done;
    bool is_keep_alive;
    bool wants_continue;

    enum body_kind body_kind;
    enum chunk_state chunk;
    size_t max_body;     /* bytes */
    uint64_t body_len;   /* as its head says; of a chunked one as far as it is there */
    uint64_t body_left;  /* of the body, or of this chunk */
    size_t around_bytes; /* sizes, extensions and trailers of chunks */
    struct buf body;
    size_t counted; /* of the body, in http_server.bodies_bytes */
    int64_t body_from_ms;

    int refuse_status; /* set with refuse_text when the request cannot be accepted */
    const char *refuse_text;

    struct buf ready;          /* the answer, until it may be sent: in its turn, and once `lsn` is durable */
    uint64_t lsn;              /* what was committed when it was last added to; 0: nothing was yet */
    struct http_shared shared; /* behind it; data NULL: nothing, or all of it is sent */
    size_t shared_sent;
    bool is_answered; /* with `shared` it stays at the head of the queue until that is sent */
    bool is_streaming;
    bool is_chunked; /* the stream */
    bool was_told_half_closed;
    http_hangup_notice *notice;
    void *notice_context; /* borrowed */
};

/* Connections that are counted together (peers.c). */
struct peer_key {
    struct address address; /* of IPv6 its network; of a unix socket the user */
    bool is_unix;
};

struct peer_group {
    struct peer_group *next; /* in its bucket */
    struct peer_key key;
    size_t n; /* connections */
};

enum conn_state { CONN_HANDSHAKE, CONN_OPEN, CONN_LINGER, CONN_DEAD };

struct conn {
    struct loop_watch watch;
    struct loop_task task;
    struct timer timer; /* fires at or before deadline_ms, and then checks it */
    struct http_server *server;
    struct conn *previous;
    struct conn *next;
    SSL *ssl; /* owned; NULL without TLS */
    enum conn_state state;
    uint32_t interest;
    int64_t deadline_ms;
    int64_t sent_ms; /* when the client last read something, or had nothing to read */
    struct http_parse parser;
    struct request *current;
    struct request *first;
    struct request *last;
    struct request *stops_at; /* no further request is read until it is answered; NULL: none */
    size_t n_queued;          /* from `first` to `last` */
    struct buf stash;         /* read, but not parsed yet: the queue is full */
    struct buf out;
    size_t out_sent;
    uint64_t skip_left; /* bytes of a body that the handler refused */
    unsigned blank_bytes;
    struct conn *next_waiting;
    struct conn **waiting_at; /* in http_server.waiting; NULL: `first` does not wait for durability */
    bool is_busy;             /* inside conn_input(): answers are sent together afterwards */
    bool is_half_closed;      /* the client has closed its sending side */
    bool is_input_stale;      /* see input_is_stale(), of what was read last */
    bool is_eof;              /* and all that it sent is read */
    bool is_broken;           /* nothing can be sent any more */
    bool is_last;             /* no further request will be read: close after the answers */
    bool must_linger;         /* the client may not have read its answer when the socket is closed */
    bool tls_wants_out;       /* TLS has to write before it can read */
    bool is_known;            /* its client has authenticated */
    struct peer_group *group;
    size_t max_of_group; /* connections of the same peer */
    struct http_peer peer;
};

struct listener {
    struct loop_watch watch;
    struct http_server *server;
    char address[128];
    const char *given; /* borrowed: of http_options.listen; NULL: it was inherited */
    char *unix_path;   /* owned; removed at the end */
    bool is_tls;
    bool is_trusted;
};

struct http_server {
    struct loop *loop; /* borrowed */
    struct http_limits limits;
    void (*handle)(void *context, struct http_request *request);
    void (*notice)(void *context, const struct http_notice *notice);
    bool (*admit)(void *context, const struct http_request *request, size_t *max_body);
    uint64_t (*committed_lsn)(void *context);
    void *context; /* borrowed */
    struct listener *listeners;
    size_t n_listeners;
    struct timer accept_timer;
    bool is_accept_paused;
    struct conn *conns;
    struct conn *waiting; /* those whose first answer waits until its LSN is durable */
    uint64_t durable_lsn;
    size_t n_conns;
    struct peer_group *peers[PEER_BUCKETS];
    uint64_t peer_seed;
    struct address_range *unlimited; /* owned; peers that many clients share, such as a proxy */
    size_t n_unlimited;
    int64_t no_idle_until_ms; /* no connection is evicted before this time */
    int64_t evict_said_ms;
    uint64_t last_id;
    size_t bodies_bytes;
    int64_t unsent_look_ms; /* unread answers are not measured before this time */
    struct request *spare_requests;
    size_t n_spare_requests;
    struct buf spare_buffers[SPARE_BUFFERS];
    size_t n_spare_buffers;
    SSL_CTX *tls;
    char *tls_certificate;
    char *tls_key;
    int64_t date_s;
    char date[DATE_SIZE];
    bool is_draining;
    bool was_done_told;
    struct timer drain_timer;
    struct loop_task drain_task;
    loop_hook *done;
    void *done_context; /* borrowed */
    char scratch[READ_SIZE];
};

/* http_server.c */
void server_notice(struct http_server *server, const struct conn *conn, int status, const char *text);
void server_on_conn_closed(struct http_server *server);

/* listen.c */
enum belay_code listeners_open(struct http_server *server, const struct http_options *options,
                               struct belay_error *err);
void listeners_close(struct http_server *server);
void listeners_resume(struct http_server *server);

/* peers.c */
void peer_describe(struct http_peer *peer, int fd, const struct sockaddr_storage *address, socklen_t len);
void address_format(char *out, size_t size, const struct sockaddr_storage *address);
bool peer_enter(struct conn *conn, const struct sockaddr_storage *address); /* false: no memory */
void peer_leave(struct conn *conn);
/* Make room for a new connection by closing idle ones. NULL, or the reason why there is none. */
const char *peer_make_room(struct conn *conn);

/* connection.c */
struct conn *conn_open(struct http_server *server, int fd, const struct sockaddr_storage *address,
                       socklen_t address_len, bool is_tls);
void conn_close(struct conn *conn);
void conn_later(struct conn *conn);
void conn_deadline(struct conn *conn, int64_t at_ms);
enum { IO_AGAIN = -1, IO_FAILED = -2 };
size_t conn_unsent(const struct conn *conn);
void conn_flush(struct conn *conn);
struct buf *conn_out(struct conn *conn);
/* Move an answer behind what is to be sent. */
void conn_add_out(struct conn *conn, struct buf *answer);

/* http_request.c */
bool conn_can_take(const struct conn *conn);
/* Returns how many bytes it took; the caller stashes the rest. */
size_t conn_input(struct conn *conn, const char *data, size_t len);
void conn_input_stash(struct conn *conn);
void conn_tell_half_closed(struct conn *conn);
/* Answer with an error, and read no further request. */
void conn_refuse(struct conn *conn, int status, const char *text);
void request_free(struct request *request);
void request_release_shared(struct request *request);
void requests_release(struct http_server *server);

/* request_read.c: how many bytes were taken. Check refuse_status afterwards. */
void head_begin(struct request *request);
size_t head_input(struct conn *conn, const char *data, size_t len);
bool head_name_is_sound(const char *name);
bool head_value_is_sound(const char *value, size_t len);
size_t body_input(struct request *request, const char *data, size_t len, bool *out_is_complete);

/* answer.c */
bool answer_is_durable(const struct request *request);
/* The connection is closed: it no longer waits for its answers to be durable. */
void answer_stop_waiting(struct conn *conn);
/* False, and nothing is added: a header is malformed. */
bool answer_head(struct request *request, struct buf *to, int status, const struct http_header *headers,
                 size_t n_headers);
struct buf *answer_target(struct request *request);
void answer_finished(struct request *request);
/* Move to conn->out the answers that may be sent, from the head of the queue, and remove their requests. */
void answer_advance(struct conn *conn);
void answer_added(struct request *request);
void conn_send_continue(struct conn *conn);

/* unsent.c: close connections of slow readers if all unread answers take too much memory. */
void unsent_limit(struct http_server *server);

/* tls.c */
enum belay_code tls_load(const char *certificate, const char *key, SSL_CTX **out_tls,
                         struct belay_error *err);
bool tls_start(struct conn *conn);
/* 1 when agreed, IO_AGAIN, or IO_FAILED. */
int tls_handshake(struct conn *conn);
ssize_t tls_recv(struct conn *conn, char *out, size_t size);
ssize_t tls_send(struct conn *conn, const char *data, size_t len);
bool tls_has_more(const struct conn *conn);
void tls_close_notify(struct conn *conn);

#endif
