/*
 * The HTTP layer with a handler that does nothing, for bench/http_load.
 *
 *     http_hello [ADDRESS [SECONDS [deferred]]]
 *
 * Ends by itself after SECONDS (60). With "deferred" the answers are given in
 * the hook at the end of the turn, as a commit shared by many requests would.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/http/http_server.h"

enum { MAX_DEFERRED = 65536 };

struct hello {
    struct loop *loop;
    bool is_deferred;
    struct http_request *waiting[MAX_DEFERRED];
    size_t n_waiting;
    struct timer end;
};

static struct hello hello;

static void answer(struct http_request *request)
{
    static const char body[] = "{\"hello\":true}\n";
    static const struct http_header type = { "Content-Type", "application/json" };

    http_answer(request, 200, &type, 1, body, sizeof body - 1);
}

static void forget(struct http_request *request, enum http_hangup what, void *context)
{
    (void)context;
    for (size_t i = 0; what == HTTP_GONE && i < hello.n_waiting; i++) {
        if (hello.waiting[i] == request) {
            hello.waiting[i] = hello.waiting[--hello.n_waiting];
        }
    }
}

static void handle(void *context, struct http_request *request)
{
    (void)context;
    if (!hello.is_deferred || hello.n_waiting == MAX_DEFERRED) {
        answer(request);
        return;
    }
    http_on_hangup(request, forget, NULL);
    hello.waiting[hello.n_waiting++] = request;
}

static void before_sleep(void *context)
{
    (void)context;
    for (size_t i = 0; i < hello.n_waiting; i++) {
        answer(hello.waiting[i]);
    }
    hello.n_waiting = 0;
}

static void on_end(struct timer *timer)
{
    (void)timer;
    loop_stop(hello.loop);
}

int main(int argc, char **argv)
{
    struct http_listen where = { .address = argc > 1 ? argv[1] : "127.0.0.1:7499" };
    struct http_options options = { .listen = &where, .n_listen = 1, .handle = handle };
    struct belay_error err = BELAY_ERROR_INIT;
    struct http_server *server = NULL;
    long seconds = argc > 2 ? strtol(argv[2], NULL, 10) : 60;

    hello.is_deferred = argc > 3 && strcmp(argv[3], "deferred") == 0;
    hello.loop = loop_new();
    if (hello.loop == NULL) {
        perror("http_hello");
        return 1;
    }
    if (http_server_open(hello.loop, &options, &server, &err) != BELAY_OK) {
        (void)fprintf(stderr, "http_hello: %s\n", err.text);
        loop_free(hello.loop);
        return 1;
    }
    hello.end.fire = on_end;
    loop_timer_set(hello.loop, &hello.end, loop_now_ms(hello.loop) + seconds * 1000);
    loop_before_sleep(hello.loop, before_sleep, NULL);
    loop_run(hello.loop);
    http_server_close(server);
    loop_free(hello.loop);
    return 0;
}
