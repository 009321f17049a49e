#include "http_kit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"

/* --- the handler: what it does is in the path --- */

static struct kit *kit_of(void *context)
{
    return context;
}

static void forget(struct kit *kit, struct http_request *request)
{
    for (size_t i = 0; i < kit->n_waiting; i++) {
        if (kit->waiting[i] == request) {
            kit->waiting[i] = kit->waiting[--kit->n_waiting];
            atomic_fetch_sub(&kit->n_waiting_now, 1);
            return;
        }
    }
}

static void on_hangup(struct http_request *request, enum http_hangup what, void *context)
{
    struct kit *kit = context;

    if (what == HTTP_GONE) {
        forget(kit, request);
        atomic_fetch_add(&kit->n_gone, 1);
        return;
    }
    atomic_fetch_add(&kit->n_half, 1);
    if (strcmp(request->path, "/leave-when-half-closed") == 0) {
        forget(kit, request);
        http_answer_error(request, 409, "left", "you hung up");
    }
}

static void wait_for_release(struct kit *kit, struct http_request *request)
{
    http_on_hangup(request, on_hangup, kit);
    kit->waiting[kit->n_waiting++] = request;
    atomic_fetch_add(&kit->n_waiting_now, 1);
}

/* Last come, first answered: the order must not show. */
static void release_all(struct kit *kit)
{
    while (kit->n_waiting > 0) {
        struct http_request *request = kit->waiting[--kit->n_waiting];
        atomic_fetch_sub(&kit->n_waiting_now, 1);
        http_answer(request, 200, NULL, 0, request->query, strlen(request->query));
    }
}

static void echo(struct http_request *request)
{
    char text[32];
    const char *mark = http_header(request, "X-Mark");
    struct http_header headers[] = {
        { "X-Method", request->method },
        { "X-Headers", text },
        { "X-Mark", mark == NULL ? "none" : mark },
    };

    (void)snprintf(text, sizeof text, "%zu", request->n_headers);
    http_answer(request, 200, headers, 3, request->body, request->body_len);
}

static void who(struct http_request *request)
{
    char text[200];

    (void)snprintf(text, sizeof text, "%s loopback=%d unix=%d uid=%lld tls=%d", request->peer->text,
                   request->peer->is_loopback, request->peer->is_unix, (long long)(int)request->peer->uid,
                   request->is_tls);
    http_answer(request, 200, NULL, 0, text, strlen(text));
}

static void big(struct http_request *request)
{
    char number[32] = "0";
    size_t len;
    char *body;

    http_query_get(request->query, "bytes", number, sizeof number);
    len = strtoul(number, NULL, 10);
    body = malloc(len + 1);
    assert_non_null(body);
    memset(body, 'b', len);
    http_answer(request, 200, NULL, 0, body, len);
    free(body);
}

struct kit_shared {
    struct kit *kit;
    char data[];
};

char kit_shared_byte(size_t at)
{
    return (char)('a' + at % 23);
}

static void release_shared(void *owner)
{
    struct kit_shared *shared = owner;

    atomic_fetch_add(&shared->kit->n_released, 1);
    free(shared);
}

static void share(struct kit *kit, struct http_request *request)
{
    char number[32] = "0";
    size_t len;
    struct kit_shared *shared;
    struct http_shared body;

    (void)http_query_get(request->query, "bytes", number, sizeof number);
    len = (size_t)strtoul(number, NULL, 10);
    shared = malloc(sizeof *shared + len);
    assert_non_null(shared);
    shared->kit = kit;
    for (size_t i = 0; i < len; i++) {
        shared->data[i] = kit_shared_byte(i);
    }
    body = (struct http_shared){ shared->data, len, release_shared, shared, false };
    http_answer_shared(request, 200, NULL, 0, &body);
}

static void stream_some(struct http_request *request)
{
    static const struct http_header type = { "Content-Type", "text/event-stream" };

    http_stream_begin(request, 200, &type, 1);
    http_stream_send(request, "data: one\n\n", 11);
    http_stream_send(request, "data: two\n\n", 11);
    http_stream_end(request);
}

/* Send as fast as possible to a peer that may not read. */
static void flood(struct kit *kit, struct http_request *request)
{
    static char data[4096];

    memset(data, 'f', sizeof data);
    http_on_hangup(request, on_hangup, kit);
    http_stream_begin(request, 200, NULL, 0);
    for (int i = 0; i < 100000; i++) {
        if (!http_stream_send(request, data, sizeof data)) {
            return;
        }
        atomic_fetch_add(&kit->n_streamed, sizeof data);
    }
}

static void open_stream(struct kit *kit, struct http_request *request)
{
    http_stream_begin(request, 200, NULL, 0);
    http_stream_send(request, "data: begun\n\n", 13);
    http_on_hangup(request, on_hangup, kit);
}

static void split(struct http_request *request)
{
    static const struct http_header bad = { "X-Bad", "a\r\nSet-Cookie: b" };

    http_answer(request, 200, &bad, 1, "never", 5);
}

static bool admit(void *context, const struct http_request *request, size_t *max_body)
{
    (void)context;
    (void)max_body;
    return strcmp(request->path, "/unwanted") != 0;
}

static void handle(void *context, struct http_request *request)
{
    struct kit *kit = kit_of(context);

    atomic_fetch_add(&kit->n_handled, 1);
    if (request->is_unwanted) {
        assert_int_equal(request->body_len, 0);
        http_answer_error(request, 401, "unauthorized", "no");
    } else if (strcmp(request->path, "/wait") == 0 || strcmp(request->path, "/leave-when-half-closed") == 0) {
        wait_for_release(kit, request);
    } else if (strcmp(request->path, "/release") == 0) {
        release_all(kit);
        http_answer(request, 204, NULL, 0, NULL, 0);
    } else if (strcmp(request->path, "/known") == 0) {
        http_mark_known(request);
        http_answer(request, 200, NULL, 0, NULL, 0);
    } else if (strcmp(request->path, "/echo") == 0) {
        echo(request);
    } else if (strcmp(request->path, "/who") == 0) {
        who(request);
    } else if (strcmp(request->path, "/big") == 0) {
        big(request);
    } else if (strcmp(request->path, "/shared") == 0) {
        share(kit, request);
    } else if (strcmp(request->path, "/stream") == 0) {
        stream_some(request);
    } else if (strcmp(request->path, "/open-stream") == 0) {
        open_stream(kit, request);
    } else if (strcmp(request->path, "/flood") == 0) {
        flood(kit, request);
    } else if (strcmp(request->path, "/split") == 0) {
        split(request);
    } else {
        http_answer(request, 200, NULL, 0, request->path, strlen(request->path));
    }
}

static void notice(void *context, const struct http_notice *what)
{
    assert_non_null(what->text);
    atomic_fetch_add(&kit_of(context)->n_notices, 1);
}

static uint64_t committed_lsn(void *context)
{
    return atomic_load(&kit_of(context)->committed_lsn);
}

/* --- the thread --- */

static void *serve(void *context)
{
    struct kit *kit = context;

    assert_true(loop_run(kit->loop));
    return NULL;
}

struct kit *kit_start(const struct kit_options *options)
{
    static int count;
    struct kit_options none = { .with_unix = false };
    struct kit *kit = calloc(1, sizeof *kit);
    struct http_listen listen[2] = { { .address = "127.0.0.1:0" } };
    struct http_options http = { .listen = listen,
                                 .n_listen = 1,
                                 .handle = handle,
                                 .admit = admit,
                                 .notice = notice,
                                 .committed_lsn = committed_lsn };
    struct belay_error err = BELAY_ERROR_INIT;
    char address[80];
    pthread_t *thread = malloc(sizeof *thread);

    assert_non_null(kit);
    assert_non_null(thread);
    options = options == NULL ? &none : options;
    listen[0].is_tls = options->certificate != NULL;
    http.limits = options->limits;
    if (http.limits.max_per_peer == 0) {
        http.limits.max_per_peer = KIT_MAX_WAITING; /* all clients are on this machine */
    }
    http.tls_certificate = options->certificate;
    http.tls_key = options->key;
    http.context = kit;
    if (options->with_unix) {
        (void)snprintf(kit->unix_path, sizeof kit->unix_path, "/tmp/belay-http-%d-%d.sock", (int)getpid(),
                       ++count);
        (void)snprintf(address, sizeof address, "unix:%s", kit->unix_path);
        listen[1] = (struct http_listen){ .address = address };
        http.n_listen = 2;
    }
    kit->loop = loop_new();
    assert_non_null(kit->loop);
    if (http_server_open(kit->loop, &http, &kit->server, &err) != BELAY_OK) {
        fail_msg("%s", err.text);
    }
    kit->port = (int)strtol(strrchr(http_server_address(kit->server, 0), ':') + 1, NULL, 10);
    assert_int_equal(pthread_create(thread, NULL, serve, kit), 0);
    kit->thread = thread;
    return kit;
}

struct posted {
    struct loop_task task; /* first */
    struct kit *kit;
    void (*call)(struct kit *kit, void *context);
    void *context;
    sem_t done;
};

static void run_posted(struct loop_task *task)
{
    struct posted *posted = (struct posted *)(void *)task;

    posted->call(posted->kit, posted->context);
    sem_post(&posted->done);
}

void kit_call(struct kit *kit, void (*call)(struct kit *kit, void *context), void *context)
{
    struct posted posted = { .task = { .run = run_posted }, .kit = kit, .call = call, .context = context };

    sem_init(&posted.done, 0, 0);
    loop_post(kit->loop, &posted.task);
    while (sem_wait(&posted.done) != 0) {
        assert_int_equal(errno, EINTR);
    }
    sem_destroy(&posted.done);
}

static void stop(struct kit *kit, void *context)
{
    (void)context;
    loop_stop(kit->loop);
}

void kit_stop(struct kit *kit)
{
    pthread_t *thread = kit->thread;

    kit_call(kit, stop, NULL);
    pthread_join(*thread, NULL);
    http_server_close(kit->server);
    loop_free(kit->loop);
    free(thread);
    free(kit);
}

void kit_until(atomic_int *counter, int least)
{
    int64_t until_ms = clock_boot_ms() + KIT_PATIENCE_MS;

    while (atomic_load(counter) < least) {
        if (clock_boot_ms() > until_ms) {
            fail_msg("the counter is %d and not %d", atomic_load(counter), least);
        }
        usleep(500);
    }
}

/* --- clients --- */

static struct client *client_new(int fd)
{
    struct client *client = calloc(1, sizeof *client);
    struct timeval patience = { .tv_sec = KIT_PATIENCE_MS / 1000 };

    assert_non_null(client);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    client->fd = fd;
    return client;
}

struct client *client_connect(struct kit *kit)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)kit->port) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return client_new(fd);
}

struct client *client_connect_unix(struct kit *kit)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    memcpy(address.sun_path, kit->unix_path, strlen(kit->unix_path) + 1);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return client_new(fd);
}

void client_close(struct client *client)
{
    if (client->ssl != NULL) {
        SSL_free(client->ssl);
    }
    close(client->fd);
    free(client);
}

void client_send_n(struct client *client, const void *data, size_t len)
{
    const char *from = data;

    while (len > 0) {
        ssize_t n = client->ssl != NULL ? SSL_write(client->ssl, from, (int)len)
                                        : send(client->fd, from, len, MSG_NOSIGNAL);
        if (n <= 0) {
            return; /* the server may have refused and closed: reading shows it */
        }
        from += n;
        len -= (size_t)n;
    }
}

void client_send(struct client *client, const char *text)
{
    client_send_n(client, text, strlen(text));
}

size_t client_fill(struct client *client)
{
    size_t room = sizeof client->data - client->len - 1;
    ssize_t n;

    assert_true(room > 0);
    n = client->ssl != NULL ? SSL_read(client->ssl, client->data + client->len, (int)room)
                            : recv(client->fd, client->data + client->len, room, 0);
    if (n < 0 && client->ssl == NULL && errno == EAGAIN) {
        fail_msg("the server says nothing");
    }
    if (n <= 0) {
        return 0;
    }
    client->len += (size_t)n;
    client->data[client->len] = '\0';
    return (size_t)n;
}

static void consume(struct client *client, size_t len)
{
    memmove(client->data, client->data + len, client->len - len + 1);
    client->len -= len;
}

static void need(struct client *client, size_t len)
{
    while (client->len < len) {
        if (client_fill(client) == 0) {
            fail_msg("the connection ended after: %s", client->data);
        }
    }
}

static void read_head(struct client *client, struct answer *out)
{
    char *end;
    size_t len;

    need(client, 1);
    while ((end = strstr(client->data, "\r\n\r\n")) == NULL) {
        need(client, client->len + 1);
    }
    len = (size_t)(end - client->data) + 4;
    assert_true(len < sizeof out->head);
    memcpy(out->head, client->data, len);
    out->head[len] = '\0';
    consume(client, len);
    assert_int_equal(strncmp(out->head, "HTTP/1.1 ", 9), 0);
    out->status = (int)strtol(out->head + 9, NULL, 10);
    out->body_len = 0;
    out->body[0] = '\0';
}

static void take_body(struct client *client, struct answer *out, size_t len)
{
    need(client, len);
    assert_true(out->body_len + len < sizeof out->body);
    memcpy(out->body + out->body_len, client->data, len);
    out->body_len += len;
    out->body[out->body_len] = '\0';
    consume(client, len);
}

static void read_chunks(struct client *client, struct answer *out)
{
    for (;;) {
        char *end;
        size_t len;

        while ((end = strstr(client->data, "\r\n")) == NULL) {
            need(client, client->len + 1);
        }
        len = strtoul(client->data, NULL, 16);
        consume(client, (size_t)(end - client->data) + 2);
        take_body(client, out, len);
        client_expect_bytes(client, "\r\n");
        if (len == 0) {
            return;
        }
    }
}

void client_read_head_answer(struct client *client, struct answer *out)
{
    read_head(client, out);
}

void client_read(struct client *client, struct answer *out)
{
    const char *length;

    read_head(client, out);
    length = strstr(out->head, "Content-Length: ");
    if (strstr(out->head, "Transfer-Encoding: chunked") != NULL) {
        read_chunks(client, out);
    } else if (length != NULL) {
        take_body(client, out, strtoul(length + 16, NULL, 10));
    }
}

void client_expect_bytes(struct client *client, const char *text)
{
    size_t len = strlen(text);

    need(client, len);
    assert_memory_equal(client->data, text, len);
    consume(client, len);
}

void client_expect_end(struct client *client)
{
    if (client_fill(client) > 0 || client->len > 0) {
        fail_msg("expected the end, got: %s", client->data);
    }
}

void client_expect_shared(struct client *client, size_t len)
{
    struct answer answer;
    char line[64];
    size_t at = 0;

    read_head(client, &answer);
    (void)snprintf(line, sizeof line, "Content-Length: %zu", len);
    assert_true(answer_has(&answer, line));
    while (at < len) {
        size_t n;

        need(client, 1);
        n = client->len < len - at ? client->len : len - at;
        for (size_t i = 0; i < n; i++, at++) {
            if (client->data[i] != kit_shared_byte(at)) {
                fail_msg("byte %zu of %zu is wrong", at, len);
            }
        }
        consume(client, n);
    }
}

void kit_expect_alive(struct kit *kit)
{
    struct client *client = client_connect(kit);
    struct answer answer;

    client_send(client, "GET /alive HTTP/1.1\r\nHost: x\r\n\r\n");
    client_read(client, &answer);
    assert_int_equal(answer.status, 200);
    assert_string_equal(answer.body, "/alive");
    client_close(client);
}

bool answer_has(const struct answer *answer, const char *header_line)
{
    size_t len = strlen(header_line);

    for (const char *line = answer->head; line != NULL && *line != '\0'; line = strstr(line, "\r\n")) {
        line += strncmp(line, "\r\n", 2) == 0 ? 2 : 0;
        if (strncasecmp(line, header_line, len) == 0) {
            return true;
        }
    }
    return false;
}
