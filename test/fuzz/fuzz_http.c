/*
 * The request path under bytes of any kind.
 *
 * One input is sent to a server twice: in one piece, and in pieces cut at places
 * that the input itself chooses. Both times the same requests must reach the
 * handler and the same statuses come back, every handled request must be answered,
 * every answer must parse, and nothing may be left when the client has gone.
 *
 * FUZZ_SHOW=1 prints the answers.
 */
#include "fuzz.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http_parse/http_parse.h"
#include "server/http/http_server.h"

enum {
    MAX_BODY = 600,
    MAX_HEAD = 1500,
    MAX_TARGET = 300,
    MAX_PIPELINED = 3,
    MAX_WAITING = 64,
    MAX_SEEN = 1 << 16,
    QUIET_TURNS = 4,
    HANG_UP_MS = 500,
    CONTROL_BYTES = 2, /* of an input: flags, and where it is cut */
    FLAG_HALF_CLOSE = 1,
    FLAG_HANG_UP_EARLY = 2,
};

/* The results of one run. */
struct run {
    char seen[MAX_SEEN]; /* the requests, as text */
    size_t seen_len;
    bool is_head[1024];
    size_t n_handled;
    size_t n_refused;
    char out[1 << 20]; /* what the client read */
    size_t out_len;
    int statuses[1024];
    size_t n_answers;
};

static struct loop *loop;
static struct http_server *server;
static struct run *run;
static struct http_request *waiting[MAX_WAITING];
static size_t n_waiting;

static void see(const char *data, size_t len)
{
    for (size_t i = 0; i < len && run->seen_len + 1 < MAX_SEEN; i++) {
        run->seen[run->seen_len++] = data[i];
    }
}

static void see_text(const char *text)
{
    see(text, strlen(text));
    see("|", 1);
}

static bool is_plain(const char *text, bool allows_space)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == 0x7f || (c < 0x21 && !(allows_space && (c == ' ' || c == '\t')))) {
            return false;
        }
    }
    return true;
}

static void check_request(const struct http_request *request)
{
    fuzz_must(request->path[0] == '/' || strcmp(request->path, "*") == 0, "a path does not begin with '/'");
    fuzz_must(is_plain(request->path, false) && is_plain(request->query, false),
              "a control character in a path");
    fuzz_must(strlen(request->path) + strlen(request->query) <= MAX_TARGET, "a path is too long");
    fuzz_must(request->body_len <= MAX_BODY && request->body[request->body_len] == '\0',
              "a body is too long");
    for (size_t i = 0; i < request->n_headers; i++) {
        fuzz_must(is_plain(request->headers[i].name, false), "a control character in a header's name");
        fuzz_must(is_plain(request->headers[i].value, true), "a control character in a header");
        fuzz_must(strchr(request->headers[i].name, ':') == NULL, "a colon in a header's name");
    }
    fuzz_must(!(http_header(request, "Content-Length") != NULL &&
                http_header(request, "Transfer-Encoding") != NULL),
              "two lengths");
}

static void record_request(const struct http_request *request)
{
    char text[8192];
    char value[64];

    see_text(request->method);
    see_text(request->path);
    see_text(request->query);
    for (size_t i = 0; i < request->n_headers; i++) {
        see_text(request->headers[i].name);
        see_text(request->headers[i].value);
    }
    see(request->body, request->body_len);
    see("\n", 1);
    /* The helpers see what the world sends, too. */
    (void)http_decode((struct http_slice){ request->path, strlen(request->path) }, text, sizeof text);
    (void)http_query_get(request->query, "name", value, sizeof value);
    if (run->n_handled < 1024) {
        run->is_head[run->n_handled] = request->is_head;
    }
    run->n_handled++;
}

static void on_hangup(struct http_request *request, enum http_hangup what, void *context)
{
    (void)context;
    for (size_t i = 0; what == HTTP_GONE && i < n_waiting; i++) {
        if (waiting[i] == request) {
            waiting[i] = waiting[--n_waiting];
            return;
        }
    }
    fuzz_must(what == HTTP_HALF_CLOSED, "GONE for a request that is not waiting");
}

static void handle(void *context, struct http_request *request)
{
    static const struct http_header type = { "Content-Type", "text/plain" };

    (void)context;
    check_request(request);
    record_request(request);
    if (strncmp(request->path, "/later", 6) == 0 && n_waiting < MAX_WAITING) {
        http_on_hangup(request, on_hangup, NULL);
        waiting[n_waiting++] = request;
    } else if (strncmp(request->path, "/stream", 7) == 0) {
        http_stream_begin(request, 200, &type, 1);
        (void)http_stream_send(request, "one\n", 4);
        http_stream_end(request);
    } else {
        http_answer(request, 200, &type, 1, request->body, request->body_len);
    }
}

static void notice(void *context, const struct http_notice *what)
{
    (void)context;
    run->n_refused += what->status != 0;
}

static void set_up(void)
{
    struct http_options options = { .handle = handle, .notice = notice };
    struct belay_error err = BELAY_ERROR_INIT;

    options.limits = (struct http_limits){ .max_body_bytes = MAX_BODY,
                                           .max_head_bytes = MAX_HEAD,
                                           .max_target_bytes = MAX_TARGET,
                                           .max_pipelined = MAX_PIPELINED };
    loop = loop_new();
    fuzz_must(loop != NULL, "no loop");
    fuzz_must(http_server_open(loop, &options, &server, &err) == BELAY_OK, "no server");
}

static void tear_down(void)
{
    http_server_close(server);
    loop_free(loop);
    server = NULL;
    loop = NULL;
}

static void read_out(int fd)
{
    ssize_t n;

    while ((n = recv(fd, run->out + run->out_len, sizeof run->out - run->out_len, MSG_DONTWAIT)) > 0) {
        run->out_len += (size_t)n;
    }
}

/* Poll until nothing happens; then answer the waiting requests, newest first, and continue. */
static void settle(int fd)
{
    size_t before;
    size_t out_before;
    bool was_answered;

    do {
        was_answered = n_waiting > 0;
        before = run->n_handled;
        out_before = run->out_len;
        for (int i = 0; i < QUIET_TURNS; i++) {
            fuzz_must(loop_turn(loop, 0), "the loop does not turn");
            read_out(fd);
        }
        was_answered = was_answered || n_waiting > 0;
        while (n_waiting > 0) {
            http_answer(waiting[--n_waiting], 200, NULL, 0, "later", 5);
        }
    } while (was_answered || run->n_handled != before || run->out_len != out_before);
}

static void send_pieces(int fd, const uint8_t *data, size_t len, uint8_t cut)
{
    size_t at = 0;
    unsigned step = cut;

    while (at < len) {
        size_t piece = cut == 0 ? len - at : 1 + (step = step * 73 + 41) % 29;
        piece = piece > len - at ? len - at : piece;
        if (send(fd, data + at, piece, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)piece) {
            return; /* refused and closed */
        }
        at += piece;
        fuzz_must(loop_turn(loop, 0), "the loop does not turn");
        read_out(fd);
    }
}

static void run_once(const uint8_t *data, size_t len, uint8_t flags, uint8_t cut)
{
    int ends[2];

    fuzz_must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "no sockets");
    fuzz_must(http_server_adopt(server, ends[1]), "not adopted");
    send_pieces(ends[0], data, len, cut);
    if ((flags & FLAG_HANG_UP_EARLY) == 0) {
        settle(ends[0]);
        if ((flags & FLAG_HALF_CLOSE) != 0) {
            (void)shutdown(ends[0], SHUT_WR);
            settle(ends[0]);
            fuzz_must(http_server_connections(server) == 0, "a half-closed connection stays open");
        }
    }
    close(ends[0]);
    /* The kernel may be late with the hang-up: a process that looks at our descriptors keeps one open for a moment. */
    for (int i = 0; i < QUIET_TURNS && http_server_connections(server) > 0; i++) {
        fuzz_must(loop_turn(loop, HANG_UP_MS), "the loop does not turn");
    }
    fuzz_must(http_server_connections(server) == 0, "a connection stays open");
    fuzz_must(loop_turn(loop, 0), "the loop does not turn"); /* frees it */
    fuzz_must(n_waiting == 0, "a request was not told of the hang-up");
}

/* --- the answers --- */

static int on_head_end(http_parse_state *parser)
{
    struct run *it = parser->data;

    if (parser->status_code == 100) {
        return 0;
    }
    fuzz_must(it->n_answers < it->n_handled + it->n_refused, "more answers than requests");
    it->statuses[it->n_answers % 1024] = (int)parser->status_code;
    return it->n_answers < it->n_handled && it->n_answers < 1024 && it->is_head[it->n_answers] ? 1 : 0;
}

static int on_end(http_parse_state *parser)
{
    struct run *it = parser->data;

    it->n_answers += parser->status_code != 100;
    return 0;
}

static void check_answers(struct run *it)
{
    static const http_parse_callbacks callbacks = { .on_headers_complete = on_head_end,
                                                    .on_message_complete = on_end };
    struct http_parse parse;
    enum http_parse_result result;
    size_t parsed;

    http_parse_responses(&parse, &callbacks, it);
    result = http_parse_run(&parse, it->out, it->out_len, &parsed);
    if (getenv("FUZZ_SHOW") != NULL) {
        (void)fwrite(it->out, 1, it->out_len, stderr);
    }
    fuzz_must(parsed == it->out_len && result == HTTP_PARSE_MORE, "an answer does not parse");
    (void)http_parse_end(&parse); /* the end completes an answer without a length */
    /* A refused HEAD has no body after its length, which this parser cannot know. */
    fuzz_must(it->n_answers + (it->n_refused > 0) >= it->n_handled + it->n_refused,
              "a request has no answer");
}

static void fuzz_http(const uint8_t *data, size_t len)
{
    static struct run whole;
    static struct run cut;
    uint8_t flags;

    if (len < CONTROL_BYTES || len > FUZZ_MAX_INPUT) {
        return;
    }
    if (server == NULL) {
        set_up();
    }
    flags = data[0];
    for (int i = 0; i < 2; i++) {
        run = i == 0 ? &whole : &cut;
        run->seen_len = run->n_handled = run->n_refused = run->out_len = run->n_answers = 0;
        run_once(data + CONTROL_BYTES, len - CONTROL_BYTES, flags, i == 0 ? 0 : (uint8_t)(data[1] | 1));
        if ((flags & FLAG_HANG_UP_EARLY) == 0) {
            check_answers(run);
        }
    }
    if ((flags & FLAG_HANG_UP_EARLY) == 0) {
        fuzz_must(whole.seen_len == cut.seen_len && memcmp(whole.seen, cut.seen, whole.seen_len) == 0,
                  "cut into pieces, it is other requests");
        fuzz_must(whole.n_refused == cut.n_refused, "cut into pieces, it is refused otherwise");
        fuzz_must(whole.n_answers == cut.n_answers, "cut into pieces, it has other answers");
        /* A request with two faults may be refused for either. */
        for (size_t i = 0; i < whole.n_answers && i < 1024; i++) {
            fuzz_must(whole.statuses[i] == cut.statuses[i] ||
                          (whole.statuses[i] >= 400 && cut.statuses[i] >= 400),
                      "cut into pieces, it has another status");
        }
    }
}

const struct fuzz_target fuzz_targets[] = { { "http", fuzz_http, tear_down }, { 0 } };
