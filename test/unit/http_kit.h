/* A server in a thread of its own, on loopback, and clients that write raw bytes to it. */
#ifndef TEST_HTTP_KIT_H
#define TEST_HTTP_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/http/http_server.h"

enum {
    KIT_MAX_WAITING = 16384,
    KIT_PATIENCE_MS = 20000, /* before a test gives up; never reached when all is well */
};

struct kit {
    struct loop *loop;
    struct http_server *server;
    void *thread; /* the pthread_t, once started */
    int port;
    char unix_path[64];
    struct http_request *waiting[KIT_MAX_WAITING]; /* the server thread's */
    size_t n_waiting;
    atomic_int n_handled;
    atomic_int n_waiting_now;
    atomic_int n_half;
    atomic_int n_gone;
    atomic_int n_notices;
    atomic_int n_drained;
    atomic_int n_released;          /* shared bodies */
    atomic_size_t n_streamed;       /* bytes the flooding stream accepted */
    _Atomic uint64_t committed_lsn; /* that answers wait for; 0: they are sent at once */
};

struct kit_options {
    struct http_limits limits;
    const char *certificate; /* with a key: TLS */
    const char *key;
    bool with_unix;
};

struct kit *kit_start(const struct kit_options *options); /* NULL for the defaults */
void kit_stop(struct kit *kit);
/* Run in the server's thread, and wait for it. */
void kit_call(struct kit *kit, void (*call)(struct kit *kit, void *context), void *context);
/* Wait until *counter is at least `least`. */
void kit_until(atomic_int *counter, int least);

struct client {
    int fd;
    void *ssl; /* SSL *, with TLS */
    char data[1 << 17];
    size_t len;
};

struct answer {
    int status;
    char head[8192];
    char body[1 << 16];
    size_t body_len;
};

struct client *client_connect(struct kit *kit);
struct client *client_connect_unix(struct kit *kit);
void client_close(struct client *client);
void client_send(struct client *client, const char *text);
void client_send_n(struct client *client, const void *data, size_t len);
/* The next answer, whole. Fails the test if the connection ends before. */
void client_read(struct client *client, struct answer *out);
void client_read_head_answer(struct client *client, struct answer *out); /* of a HEAD: no body follows */
/* The next bytes are `text`. */
void client_expect_bytes(struct client *client, const char *text);
/* The server closes, without a further byte. */
void client_expect_end(struct client *client);
/* One more read from the socket; 0 at its end or after an error. */
size_t client_fill(struct client *client);

/* Byte number `at` of what GET /shared?bytes=N answers. */
char kit_shared_byte(size_t at);
/* The next answer is one of those, of `len` bytes, to the byte. */
void client_expect_shared(struct client *client, size_t len);

/* A new connection is answered: whatever happened before, the others are served. */
void kit_expect_alive(struct kit *kit);
bool answer_has(const struct answer *answer, const char *header_line);

#endif
