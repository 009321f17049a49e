/* Many clients, slow ones, and a server at its limits. It runs in a thread (pthread_create in http_kit.c). */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "http_kit.h"

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"

/* A client's buffer is large: these need only a descriptor. */
static int plain_connect(struct kit *kit)
{
    struct client *client = client_connect(kit);
    int fd = dup(client->fd);

    assert_true(fd >= 0);
    client_close(client);
    return fd;
}

static void expect_408(struct client *client)
{
    struct answer answer;

    client_read(client, &answer);
    assert_int_equal(answer.status, 408);
    assert_true(answer_has(&answer, "Connection: close\r\n"));
    client_expect_end(client);
    client_close(client);
}

static void a_head_that_takes_too_long_is_a_408(void **state)
{
    struct kit_options options = { .limits = { .head_ms = 100 } };
    struct kit *kit = kit_start(&options);
    struct client *client = client_connect(kit);

    (void)state;
    client_send(client, "GET /x HTTP/1.1\r\nHos");
    expect_408(client);
    kit_stop(kit);
}

static void a_body_that_takes_too_long_is_a_408(void **state)
{
    struct kit_options options = { .limits = { .head_ms = 60000, .body_ms = 100 } };
    struct kit *kit = kit_start(&options);
    struct client *client = client_connect(kit);

    (void)state;
    client_send(client, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
    expect_408(client);
    kit_stop(kit);
}

/* Dripping does not buy time: the limit counts from the first byte. */
static void a_byte_now_and_then_does_not_prolong_a_request(void **state)
{
    struct kit_options options = { .limits = { .head_ms = 300 } };
    struct kit *kit = kit_start(&options);
    struct client *client = client_connect(kit);
    int64_t since_ms = clock_boot_ms();

    (void)state;
    client_send(client, "GET /x HTTP/1.1\r\nX: ");
    while (clock_boot_ms() - since_ms < 450) {
        client_send(client, "a");
        usleep(20000);
    }
    expect_408(client);
    kit_expect_alive(kit);
    kit_stop(kit);
}

static void an_idle_connection_is_closed_silently(void **state)
{
    struct kit_options options = { .limits = { .idle_ms = 100 } };
    struct kit *kit = kit_start(&options);
    struct client *fresh = client_connect(kit);
    struct client *used = client_connect(kit);
    struct answer answer;

    (void)state;
    client_send(used, GET("/x"));
    client_read(used, &answer);
    client_expect_end(used);
    client_expect_end(fresh);
    client_close(used);
    client_close(fresh);
    kit_stop(kit);
}

static void a_request_that_waits_for_its_answer_is_not_idle(void **state)
{
    struct kit_options options = { .limits = { .idle_ms = 50, .head_ms = 50, .body_ms = 50 } };
    struct kit *kit = kit_start(&options);
    struct client *client = client_connect(kit);
    struct client *other = client_connect(kit);
    struct answer answer;

    (void)state;
    client_send(client, GET("/wait?still-here"));
    kit_until(&kit->n_waiting_now, 1);
    client_expect_end(other); /* 50 ms later */
    usleep(100000);
    client_close(other);
    other = client_connect(kit);
    client_send(other, GET("/release"));
    client_read(client, &answer);
    assert_string_equal(answer.body, "still-here");
    client_expect_end(client); /* and after its answer it is */
    client_close(client);
    client_close(other);
    kit_stop(kit);
}

static void connections_above_the_limit_get_503(void **state)
{
    struct kit_options options = { .limits = { .max_connections = 3, .evict_ms = KIT_PATIENCE_MS } };
    struct kit *kit = kit_start(&options);
    struct client *clients[3];
    struct client *surplus;
    struct answer answer;

    (void)state;
    for (int i = 0; i < 3; i++) {
        clients[i] = client_connect(kit);
        client_send(clients[i], GET("/x"));
        client_read(clients[i], &answer);
        assert_int_equal(answer.status, 200);
    }
    surplus = client_connect(kit);
    client_send(surplus, GET("/x"));
    client_read(surplus, &answer);
    assert_int_equal(answer.status, 503);
    client_expect_end(surplus);
    client_close(surplus);
    client_send(clients[1], GET("/still-served"));
    client_read(clients[1], &answer);
    assert_string_equal(answer.body, "/still-served");
    client_close(clients[0]);
    for (int tries = 0; tries < 1000; tries++) {
        surplus = client_connect(kit);
        client_send(surplus, GET("/x"));
        client_read(surplus, &answer);
        client_close(surplus);
        if (answer.status == 200) {
            break; /* once the server has seen the others leave */
        }
    }
    assert_int_equal(answer.status, 200);
    client_close(clients[1]);
    client_close(clients[2]);
    kit_stop(kit);
}

static void connections_far_above_the_limit_wait_and_are_served_later(void **state)
{
    struct kit_options options = { .limits = { .max_connections = 2, .evict_ms = KIT_PATIENCE_MS } };
    struct kit *kit = kit_start(&options);
    struct client *first = client_connect(kit);
    struct answer answer;
    int fds[200];

    (void)state;
    client_send(first, GET("/x"));
    client_read(first, &answer);
    for (int i = 0; i < 200; i++) {
        fds[i] = plain_connect(kit);
    }
    client_send(first, GET("/still-served"));
    client_read(first, &answer);
    assert_string_equal(answer.body, "/still-served");
    for (int i = 0; i < 200; i++) {
        close(fds[i]);
    }
    client_close(first);
    for (int tries = 0; tries < 1000; tries++) {
        struct client *client = client_connect(kit);
        client_send(client, GET("/x"));
        client_read(client, &answer);
        client_close(client);
        if (answer.status == 200) {
            break;
        }
    }
    assert_int_equal(answer.status, 200);
    kit_stop(kit);
}

static struct client *come(struct kit *kit, const char *request, int status)
{
    struct client *client = client_connect(kit);
    struct answer answer;

    client_send(client, request);
    if (status != 0) {
        client_read(client, &answer);
        assert_int_equal(answer.status, status);
    }
    return client;
}

/* Issue 12, item 16: idle clients do not block others. */
static void idle_connections_make_room_the_oldest_stranger_first(void **state)
{
    enum { MAX = 8, OF_ONE_PEER = 7, LATE = 3 };
    struct kit_options options = { .limits = { .max_connections = MAX, .evict_ms = 1 } };
    struct kit *kit = kit_start(&options);
    const int leave[LATE] = { 2, 3, 0 }; /* strangers first, though others are idle for longer */
    struct client *clients[OF_ONE_PEER + LATE];
    struct answer answer;

    (void)state;
    clients[0] = come(kit, GET("/known"), 200);
    clients[1] = come(kit, GET("/wait"), 0);
    kit_until(&kit->n_waiting_now, 1);
    clients[2] = come(kit, GET("/x"), 200);
    (void)poll(NULL, 0, 5); /* the clock counts milliseconds */
    clients[3] = come(kit, "GET /never-ends HTTP/1.1\r\nHost", 0);
    for (int i = 4; i < OF_ONE_PEER; i++) {
        (void)poll(NULL, 0, 5);
        clients[i] = come(kit, GET("/known"), 200);
    }
    for (int i = 0; i < LATE; i++) {
        (void)poll(NULL, 0, 5);
        clients[OF_ONE_PEER + i] = come(kit, GET("/known"), 200);
        client_expect_end(clients[leave[i]]);
    }
    client_send(clients[4], GET("/release"));
    client_read(clients[4], &answer);
    assert_int_equal(answer.status, 204);
    client_read(clients[1], &answer);
    assert_int_equal(answer.status, 200);
    for (int i = 0; i < OF_ONE_PEER + LATE; i++) {
        client_close(clients[i]);
    }
    kit_stop(kit);
}

static void one_address_has_a_limit_of_its_own(void **state)
{
    enum { MAX = 5 };
    struct kit_options options = { .limits = { .max_per_peer = MAX, .evict_ms = KIT_PATIENCE_MS },
                                   .with_unix = true };
    struct kit *kit = kit_start(&options);
    struct client *clients[MAX];
    struct client *other;
    struct answer answer;

    (void)state;
    for (int i = 0; i < MAX; i++) {
        clients[i] = come(kit, GET("/x"), 200);
    }
    other = come(kit, GET("/x"), 503);
    client_expect_end(other);
    client_close(other);
    other = client_connect_unix(kit);
    client_send(other, GET("/x"));
    client_read(other, &answer);
    assert_int_equal(answer.status, 200);
    client_close(other);
    for (int i = 0; i < MAX; i++) {
        client_close(clients[i]);
    }
    for (int tries = 0; tries < 1000 && answer.status != 201; tries++) {
        other = client_connect(kit);
        client_send(other, GET("/x"));
        client_read(other, &answer);
        client_close(other);
        if (answer.status == 200) {
            answer.status = 201; /* once the server has seen the others leave */
        }
    }
    assert_int_equal(answer.status, 201);
    kit_stop(kit);
}

static void one_client_does_not_get_all_connections(void **state)
{
    enum { MAX = 16 };
    struct kit_options options = { .limits = { .max_connections = MAX }, .with_unix = true };
    struct kit *kit = kit_start(&options);
    struct client *clients[MAX - 1];
    struct client *other;
    struct answer answer;

    (void)state;
    for (int i = 0; i < MAX - 1; i++) {
        clients[i] = come(kit, GET("/wait"), 0);
    }
    kit_until(&kit->n_waiting_now, MAX - 1);
    other = come(kit, GET("/x"), 503);
    client_close(other);
    other = client_connect_unix(kit);
    client_send(other, GET("/release"));
    client_read(other, &answer);
    assert_int_equal(answer.status, 204);
    client_close(other);
    for (int i = 0; i < MAX - 1; i++) {
        client_read(clients[i], &answer);
        client_close(clients[i]);
    }
    kit_stop(kit);
}

/* Issue 12, item 16: nothing is kept of a body before its sender is known. */
static void an_unwanted_body_is_refused_before_it_is_sent(void **state)
{
    struct kit *kit = kit_start(NULL);
    const char *const heads[] = {
        "POST /unwanted HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n",
        "POST /unwanted HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999\r\n\r\n",
        "POST /unwanted HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /unwanted HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        struct client *client = client_connect(kit);
        struct answer answer;

        client_send(client, heads[i]);
        client_read(client, &answer);
        assert_int_equal(answer.status, 401);
        assert_non_null(strstr(answer.head, "Connection: close"));
        client_send(client, "some of it"); /* it was on its way: no reset may take the answer away */
        client_expect_end(client);
        client_close(client);
    }
    kit_stop(kit);
}

static void a_short_unwanted_body_is_skipped_and_the_connection_stays_open(void **state)
{
    struct kit *kit = kit_start(NULL);
    struct client *client = client_connect(kit);
    struct answer answer;

    (void)state;
    for (int i = 0; i < 3; i++) {
        client_send(client, "POST /unwanted HTTP/1.1\r\nHost: x\r\nContent-Length: 23\r\n\r\n");
        client_read(client, &answer);
        assert_int_equal(answer.status, 401);
        client_send(client, "GET /in-the-");
        client_send(client, "body HTTP/1" GET("/next"));
        client_read(client, &answer);
        assert_string_equal(answer.body, "/next");
    }
    client_close(client);
    kit_stop(kit);
}

static void slow_readers_are_disconnected_when_their_answers_take_too_much_memory(void **state)
{
    enum { SLOW = 8, NEVER_MS = 600000 };
    struct kit_options options = { .limits = { .max_unsent_bytes = 64 << 20, .send_ms = NEVER_MS } };
    struct kit *kit = kit_start(&options);
    struct client *small = client_connect(kit);
    struct client *slow[SLOW];
    struct answer answer;

    (void)state;
    client_send(small, GET("/now"));
    for (size_t i = 0; i < SLOW; i++) {
        slow[i] = client_connect(kit);
        client_send(slow[i], GET("/big?bytes=20000000"));
    }
    kit_until(&kit->n_notices, SLOW - 3); /* three of them fit */
    client_read(small, &answer);
    assert_int_equal(answer.status, 200);
    kit_expect_alive(kit);
    for (size_t i = 0; i < SLOW; i++) {
        client_close(slow[i]);
    }
    client_close(small);
    kit_stop(kit);
}

static void large_bodies_leave_room_for_small_ones(void **state)
{
    enum { MANY = 40, PART = 16000 };
    struct kit_options options = { .limits = { .max_bodies_bytes = 400000 } };
    struct kit *kit = kit_start(&options);
    struct client *large[MANY];
    struct client *client = client_connect(kit);
    struct answer answer;
    char body[PART + 1];
    int n = 0;

    (void)state;
    memset(body, 'b', PART);
    body[PART] = '\0';
    for (int i = 0; i < MANY; i++) { /* each lacks its last byte, as long as it likes */
        large[i] = client_connect(kit);
        client_send(large[i], "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 20001\r\n\r\n");
        client_send(large[i], body);
    }
    kit_until(&kit->n_notices, 1);
    for (int i = 0; i < 3; i++) {
        client_send(client, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 16000\r\n\r\n");
        client_send(client, body);
        client_read(client, &answer);
        assert_int_equal(answer.status, 200);
    }
    for (int i = 0; i < MANY; i++) { /* small ones fill the rest */
        struct client *small = client_connect(kit);

        client_send(small, "POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 16000\r\n\r\n");
        client_send(small, body);
        client_close(large[i]);
        large[i] = small;
        n++;
    }
    client_send(client, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nrenew");
    client_read(client, &answer);
    assert_int_equal(answer.status, 200);
    assert_int_equal(n, MANY);
    for (int i = 0; i < MANY; i++) {
        client_close(large[i]);
    }
    client_close(client);
    kit_stop(kit);
}

static void bodies_of_all_together_have_a_limit(void **state)
{
    struct kit_options options = { .limits = { .max_body_bytes = 2000, .max_bodies_bytes = 3000 } };
    struct kit *kit = kit_start(&options);
    struct client *first = client_connect(kit);
    struct client *second = client_connect(kit);
    struct answer answer;
    char body[2001];

    (void)state;
    memset(body, 'b', 2000);
    body[2000] = '\0';
    client_send(first, "POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n");
    client_send(first, body);
    kit_until(&kit->n_waiting_now, 1);
    client_send(second, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n");
    client_send(second, body);
    client_read(second, &answer);
    assert_int_equal(answer.status, 503);
    client_close(second);
    second = client_connect(kit);
    client_send(second, GET("/release"));
    client_read(first, &answer);
    client_read(second, &answer);
    for (int i = 0; i < 3; i++) {
        client_send(second, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n");
        client_send(second, body);
        client_read(second, &answer);
        assert_int_equal(answer.status, 200); /* what was answered no longer counts */
    }
    client_close(second);
    client_close(first);
    kit_stop(kit);
}

/* Slow, silent and stuck ones beside one that is in a hurry. */
static void slow_clients_do_not_slow_the_others(void **state)
{
    enum { SLOW = 300 };
    struct kit *kit = kit_start(NULL);
    struct client *quick = client_connect(kit);
    int slow[SLOW];
    struct answer answer;

    (void)state;
    for (int i = 0; i < SLOW; i++) {
        const char *begin = i % 3 == 0 ? "GET /slow HT" : i % 3 == 1 ? "" : GET("/big?bytes=1000000");
        slow[i] = plain_connect(kit);
        assert_int_equal(send(slow[i], begin, strlen(begin), MSG_NOSIGNAL), (ssize_t)strlen(begin));
    }
    for (int i = 0; i < 500; i++) {
        client_send(quick, GET("/quick"));
        client_read(quick, &answer);
        assert_int_equal(answer.status, 200);
        (void)!send(slow[i % SLOW], "T", 1, MSG_NOSIGNAL);
    }
    for (int i = 0; i < SLOW; i++) {
        close(slow[i]);
    }
    client_close(quick);
    kit_stop(kit);
}

static void raise_descriptor_limit(void)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void two_thousand_waiting_connections_are_held_and_answered(void **state)
{
    /* By hand: BELAY_HTTP_CROWD=9900 (two descriptors each). */
    const char *wanted = getenv("BELAY_HTTP_CROWD");
    int count = wanted == NULL ? 2000 : (int)strtol(wanted, NULL, 10);
    struct kit *kit = kit_start(NULL);
    struct client *control;
    struct answer answer;
    int *fds = calloc((size_t)count, sizeof *fds);

    (void)state;
    assert_non_null(fds);
    raise_descriptor_limit();
    for (int i = 0; i < count; i++) {
        fds[i] = plain_connect(kit);
        assert_true(send(fds[i], GET("/wait?w"), strlen(GET("/wait?w")), MSG_NOSIGNAL) > 0);
    }
    kit_until(&kit->n_waiting_now, count);
    kit_expect_alive(kit);
    control = client_connect(kit);
    client_send(control, GET("/release"));
    client_read(control, &answer);
    for (int i = 0; i < count; i++) {
        char text[256] = "";
        ssize_t n = recv(fds[i], text, sizeof text - 1, 0);
        assert_true(n > 0);
        assert_int_equal(strncmp(text, "HTTP/1.1 200", 12), 0);
        assert_int_equal(text[n - 1], 'w');
        close(fds[i]);
    }
    client_close(control);
    kit_stop(kit);
    free(fds);
}

/*
 * Make a socket, let the limit fall so that the server cannot accept, and connect.
 * The limit counts numbers, not descriptors: below the lowest in use none can be had.
 */
static void reconnect_under(struct kit *kit, struct client *client, const struct rlimit *limit)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)kit->port) };
    struct timeval patience = { .tv_sec = KIT_PATIENCE_MS / 1000 };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    close(client->fd);
    client->fd = fd;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, limit), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
}

/* No descriptor is left: those connected are served, the others wait, and are served once there is one. */
static void without_descriptors_the_connected_are_still_served(void **state)
{
    struct kit *kit = kit_start(NULL);
    struct client *connected = client_connect(kit);
    struct client *late = client_connect(kit);
    struct rlimit before;
    struct rlimit none;
    struct answer answer;
    int notices;

    (void)state;
    client_send(connected, GET("/x"));
    client_read(connected, &answer);
    client_send(late, GET("/x"));
    client_read(late, &answer);
    notices = atomic_load(&kit->n_notices);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){ .rlim_cur = 3, .rlim_max = before.rlim_max };
    reconnect_under(kit, late, &none);
    client_send(late, GET("/late"));
    kit_until(&kit->n_notices, notices + 1);
    client_send(connected, GET("/still-served"));
    client_read(connected, &answer);
    assert_string_equal(answer.body, "/still-served");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    client_read(late, &answer);
    assert_string_equal(answer.body, "/late");
    client_close(connected);
    client_close(late);
    kit_stop(kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_that_takes_too_long_is_a_408),
        cmocka_unit_test(a_body_that_takes_too_long_is_a_408),
        cmocka_unit_test(a_byte_now_and_then_does_not_prolong_a_request),
        cmocka_unit_test(an_idle_connection_is_closed_silently),
        cmocka_unit_test(a_request_that_waits_for_its_answer_is_not_idle),
        cmocka_unit_test(connections_above_the_limit_get_503),
        cmocka_unit_test(connections_far_above_the_limit_wait_and_are_served_later),
        cmocka_unit_test(idle_connections_make_room_the_oldest_stranger_first),
        cmocka_unit_test(one_address_has_a_limit_of_its_own),
        cmocka_unit_test(one_client_does_not_get_all_connections),
        cmocka_unit_test(an_unwanted_body_is_refused_before_it_is_sent),
        cmocka_unit_test(a_short_unwanted_body_is_skipped_and_the_connection_stays_open),
        cmocka_unit_test(slow_readers_are_disconnected_when_their_answers_take_too_much_memory),
        cmocka_unit_test(large_bodies_leave_room_for_small_ones),
        cmocka_unit_test(bodies_of_all_together_have_a_limit),
        cmocka_unit_test(slow_clients_do_not_slow_the_others),
        cmocka_unit_test(two_thousand_waiting_connections_are_held_and_answered),
        cmocka_unit_test(without_descriptors_the_connected_are_still_served),
    };

    return cmocka_run_group_tests_name("http crowd", tests, NULL, NULL);
}
