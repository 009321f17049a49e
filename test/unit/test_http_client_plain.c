/* The HTTP client without libcurl, on a server with scripted answers, over a unix socket. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/address.h"
#include "base/clock.h"
#include "http_client/http.h"

struct place {
    char folder[64];
    char path[400];
    int fd;
    pthread_t thread;
    const char *const *answers; /* one a request; NULL ends a connection, two end all */
    struct http *http;
    atomic_int n_closed;
};

static void *answer_all(void *context)
{
    struct place *place = context;
    const char *const *at = place->answers;
    char request[4096];

    while (*at != NULL) {
        int fd = accept(place->fd, NULL, NULL);

        for (; fd >= 0 && *at != NULL; at++) {
            if (read(fd, request, sizeof request) <= 0) {
                break;
            }
            (void)!send(fd, *at, strlen(*at), MSG_NOSIGNAL); /* the client may have disconnected */
        }
        (void)close(fd);
        place->n_closed++;
        at++;
    }
    return NULL;
}

static void listen_at(struct place *place)
{
    struct sockaddr_un un;
    int folder;

    place->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(unix_address(place->path, &un, &folder));
    assert_int_equal(bind(place->fd, (const struct sockaddr *)&un, sizeof un), 0);
    assert_int_equal(listen(place->fd, 8), 0);
    if (folder >= 0) {
        (void)close(folder);
    }
}

static void begin(struct place *place, const char *const *answers)
{
    struct http_client_options options = { .max_answer = 64, .timeout_ms = 20000 };
    struct belay_error err = BELAY_ERROR_INIT;

    (void)snprintf(place->folder, sizeof place->folder, "/tmp/belay-plain-XXXXXX");
    assert_non_null(mkdtemp(place->folder));
    if (place->path[0] == '\0') {
        (void)snprintf(place->path, sizeof place->path, "%s/s", place->folder);
    }
    place->answers = answers;
    place->fd = -1;
    if (answers != NULL) {
        listen_at(place);
        assert_int_equal(pthread_create(&place->thread, NULL, answer_all, place), 0);
    }
    assert_int_equal(http_plain_open("http://localhost", place->path, &options, &place->http, &err),
                     BELAY_OK);
}

static void end(struct place *place)
{
    http_close(place->http);
    if (place->answers != NULL) {
        (void)pthread_join(place->thread, NULL);
        (void)close(place->fd);
    }
    (void)unlink(place->path);
    (void)rmdir(place->folder);
}

static enum belay_code ask(struct place *place, const char *method, struct http_response *response)
{
    struct http_client_request request = { .method = method, .url = "http://localhost/v1/locks?x=y" };
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_code code = http_send(place->http, &request, response, &err);

    belay_error_release(&err);
    return code;
}

static void assert_body(struct place *place, const char *body)
{
    struct http_response response = { 0 };

    assert_int_equal(ask(place, "GET", &response), BELAY_OK);
    assert_int_equal(response.status, 200);
    assert_string_equal(response.body, body);
    assert_int_equal(response.body_len, strlen(body));
    http_response_release(&response);
}

static void a_body_is_read_with_any_kind_of_length(void **state)
{
    static const char *const answers[] = {
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: "
        "chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end", NULL, NULL
    };
    struct place place = { 0 };

    (void)state;
    begin(&place, answers);
    assert_body(&place, "hello");
    assert_body(&place, "hello"); /* on the same connection */
    assert_body(&place, "to the end");
    end(&place);
}

static void a_connection_that_was_closed_meanwhile_is_replaced(void **state)
{
    static const char *const answers[] = { "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", NULL,
                                           "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb", NULL, NULL };
    struct place place = { 0 };

    (void)state;
    begin(&place, answers);
    assert_body(&place, "a");
    while (place.n_closed == 0) {
        (void)sched_yield(); /* else it may be sent before, and its outcome is unknown */
    }
    assert_body(&place, "b");
    end(&place);
}

static void a_request_that_took_all_its_time_is_not_repeated(void **state)
{
    static const char *const answers[] = { "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", "", "", NULL,
                                           NULL };
    struct http_client_request request = {
        .method = "GET", .url = "http://localhost/", .timeout_ms = 50, .may_repeat = true
    };
    struct http_response response = { 0 };
    struct belay_error err = BELAY_ERROR_INIT;
    struct place place = { 0 };

    (void)state;
    begin(&place, answers);
    assert_body(&place, "a");
    assert_int_equal(http_send(place.http, &request, &response, &err), BELAY_UNKNOWN);
    while (place.n_closed == 0) {
        (void)sched_yield();
    }
    assert_int_equal(fcntl(place.fd, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(accept(place.fd, NULL, NULL), -1); /* there was no second connection */
    assert_int_equal(errno, EAGAIN);
    end(&place);
    belay_error_release(&err);
}

static void a_request_that_was_sent_and_not_answered_is_unknown(void **state)
{
    static const char *const broken[] = {
        "",                                                 /* closes */
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", /* and closes */
        "SSH-2.0-OpenSSH\r\n",                              /* no HTTP */
        "HTTP/1.1 200 OK\r\nContent-Length: 70\r\n\r\n"     /* too much */
        "0123456789012345678901234567890123456789012345678901234567890123456789",
    };

    (void)state;
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        const char *const answers[] = { broken[i], NULL, NULL };
        struct http_response response = { 0 };
        struct place place = { 0 };

        begin(&place, answers);
        assert_int_equal(ask(&place, "POST", &response), BELAY_UNKNOWN);
        assert_null(response.body);
        end(&place);
    }
}

static void a_missing_server_is_unreachable(void **state)
{
    struct http_response response = { 0 };
    struct place place = { 0 };

    (void)state;
    begin(&place, NULL);
    assert_int_equal(ask(&place, "POST", &response), BELAY_UNREACHABLE);
    end(&place);
}

static void a_socket_path_may_be_longer_than_an_address(void **state)
{
    static const char *const answers[] = { "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na", NULL, NULL };
    struct place place = { 0 };
    char folder[200];

    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/belay-plain-%ld-%0150d", (long)getpid(), 1);
    assert_int_equal(mkdir(folder, 0700), 0);
    (void)snprintf(place.path, sizeof place.path, "%s/socket", folder);
    begin(&place, answers);
    assert_body(&place, "a");
    end(&place);
    assert_int_equal(rmdir(folder), 0);
}

static bool stop_now(void *context)
{
    return *(bool *)context;
}

static void a_descriptor_ends_a_request_at_once(void **state)
{
    static const char *const answers[] = { "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "", NULL,
                                           NULL };
    struct http_response response = { 0 };
    struct belay_error err = BELAY_ERROR_INIT;
    bool stop = true;
    struct http_client_request request = { .method = "GET",
                                           .url = "http://localhost/",
                                           .should_stop = stop_now,
                                           .context = &stop,
                                           .wake_fd = eventfd(1, EFD_CLOEXEC) };
    struct place place = { 0 };

    (void)state;
    begin(&place, answers);
    assert_int_equal(http_send(place.http, &request, &response, &err), BELAY_CANCELLED);
    end(&place);
    (void)close(request.wake_fd);
    belay_error_release(&err);
}

/* A listener whose queue of connections is full: further ones wait. Below the ports that the kernel hands out. */
static int listen_to_nobody(struct sockaddr_in *address, int filling[], size_t n)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = -1;

    *address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    for (unsigned i = 0; rc != 0 && i < 100; i++) {
        address->sin_port = htons((uint16_t)(20000 + ((unsigned)getpid() + i * 97) % 12000));
        rc = bind(fd, (const struct sockaddr *)address, sizeof *address);
    }
    assert_int_equal(rc, 0);
    assert_int_equal(listen(fd, 0), 0);
    for (size_t i = 0; i < n; i++) {
        filling[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)!connect(filling[i], (const struct sockaddr *)address, sizeof *address);
    }
    return fd;
}

static void a_connection_takes_no_longer_than_its_request_may(void **state)
{
    struct http_client_options options = { .connect_timeout_ms = 60000 };
    struct belay_error err = BELAY_ERROR_INIT;
    struct http_client_request request = { .method = "GET", .timeout_ms = 50 };
    struct http_response response = { 0 };
    struct sockaddr_in address;
    struct http *http = NULL;
    char url[64];
    int filling[4];
    int fd = listen_to_nobody(&address, filling, 4);
    int64_t began_ms = clock_boot_ms();

    (void)state;
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%d", ntohs(address.sin_port));
    request.url = url;
    assert_int_equal(http_plain_open(url, NULL, &options, &http, &err), BELAY_OK);
    assert_int_equal(http_send(http, &request, &response, &err), BELAY_UNREACHABLE);
    assert_true(clock_boot_ms() - began_ms < 30000);
    http_close(http);
    belay_error_release(&err);
    for (size_t i = 0; i < 4; i++) {
        (void)close(filling[i]);
    }
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_body_is_read_with_any_kind_of_length),
        cmocka_unit_test(a_connection_that_was_closed_meanwhile_is_replaced),
        cmocka_unit_test(a_request_that_took_all_its_time_is_not_repeated),
        cmocka_unit_test(a_request_that_was_sent_and_not_answered_is_unknown),
        cmocka_unit_test(a_missing_server_is_unreachable),
        cmocka_unit_test(a_socket_path_may_be_longer_than_an_address),
        cmocka_unit_test(a_descriptor_ends_a_request_at_once),
        cmocka_unit_test(a_connection_takes_no_longer_than_its_request_may),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
