/* The client of a server, on a server whose answers are JSON and not belay's. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "belay.h"

enum { FIRST_PORT = 24000, LAST_PORT = 31999 };

struct stranger {
    int fd;
    int port;
    pthread_t thread;
};

static void *answer_all(void *context)
{
    static const char answer[] =
        "HTTP/1.1 200 OK\r\nContent-Length: 13\r\nConnection: close\r\n\r\n{\"a\": [1, 2]}";
    const struct stranger *stranger = context;
    char request[4096];
    int fd;

    while ((fd = accept(stranger->fd, NULL, NULL)) >= 0) {
        if (read(fd, request, sizeof request) > 0) {
            (void)!send(fd, answer, strlen(answer), MSG_NOSIGNAL);
        }
        (void)close(fd);
    }
    return NULL;
}

static void begin(struct stranger *stranger)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    int rc = -1;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    stranger->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (stranger->port = FIRST_PORT; rc != 0 && stranger->port <= LAST_PORT;) {
        address.sin_port = htons((uint16_t)++stranger->port);
        rc = bind(stranger->fd, (const struct sockaddr *)&address, sizeof address);
    }
    assert_int_equal(rc, 0);
    assert_int_equal(listen(stranger->fd, 8), 0);
    assert_int_equal(pthread_create(&stranger->thread, NULL, answer_all, stranger), 0);
}

static void end(struct stranger *stranger)
{
    (void)shutdown(stranger->fd, SHUT_RDWR); /* accept() returns */
    (void)pthread_join(stranger->thread, NULL);
    (void)close(stranger->fd);
}

static bool see_info(void *context, const struct belay_info *info)
{
    (void)context;
    (void)info;
    fail_msg("a lock");
    return true;
}

static bool see_event(void *context, const struct belay_event *event)
{
    (void)context;
    (void)event;
    fail_msg("an event");
    return true;
}

/* Neither "no locks" nor "it is free": a decision may rest on that. */
static void a_strange_answer_is_no_empty_list_and_no_free_lock(void **state)
{
    const struct belay_lock_options at_once = BELAY_LOCK_OPTIONS_INIT;
    struct belay_client_options options = BELAY_CLIENT_OPTIONS_INIT;
    struct belay_client *client = NULL;
    struct stranger stranger;
    char url[64];
    bool more = true;

    (void)state;
    begin(&stranger);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d", stranger.port);
    options.store_url = url;
    assert_int_equal(belay_client_open(&options, &client, NULL), BELAY_OK);
    assert_int_equal(belay_list(client, NULL, see_info, NULL, &more, NULL), BELAY_CONFIG);
    assert_true(more);
    assert_int_equal(belay_history(client, "k", 0, see_event, NULL, NULL), BELAY_CONFIG);
    assert_int_equal(belay_wait_until_free(client, "k", &at_once, NULL), BELAY_CONFIG);
    belay_client_close(client);
    end(&stranger);
}

static void a_strange_answer_is_an_error_and_leaves_the_result_as_it_was(void **state)
{
    struct belay_client_options options = BELAY_CLIENT_OPTIONS_INIT;
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_client *client = NULL;
    struct stranger stranger;
    char url[64], place;
    struct belay_stats *stats = (struct belay_stats *)(void *)&place;
    struct belay_info *info = (struct belay_info *)(void *)&place;

    (void)state;
    begin(&stranger);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d", stranger.port);
    options.store_url = url;
    assert_int_equal(belay_client_open(&options, &client, &err), BELAY_OK);
    assert_int_equal(belay_stats(client, NULL, &stats, &err), BELAY_CONFIG);
    assert_ptr_equal(stats, &place);
    assert_int_equal(belay_get(client, "k", &info, &err), BELAY_CONFIG);
    assert_ptr_equal(info, &place);
    belay_client_close(client);
    belay_error_release(&err);
    end(&stranger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_strange_answer_is_an_error_and_leaves_the_result_as_it_was),
        cmocka_unit_test(a_strange_answer_is_no_empty_list_and_no_free_lock),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
