/*
 * Answers that come later: their order, clients that hang up meanwhile, streams, and the end of the
 * server. It runs in a thread (pthread_create in http_kit.c).
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "http_kit.h"

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"

enum { STREAM_LIMIT = 100000, PIPELINE_LIMIT = 4 };

static int start(void **state)
{
    struct kit_options options = {
        .limits = { .max_stream_bytes = STREAM_LIMIT, .max_pipelined = PIPELINE_LIMIT, .send_ms = 300 },
        .with_unix = true,
    };

    *state = kit_start(&options);
    return 0;
}

static int stop(void **state)
{
    kit_stop(*state);
    return 0;
}

static void release(struct kit *kit)
{
    struct client *client = client_connect(kit);
    struct answer answer;

    client_send(client, GET("/release"));
    client_read(client, &answer);
    client_close(client);
}

static void an_answer_may_come_later(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect(kit);
    struct answer answer;

    client_send(client, GET("/wait?a"));
    kit_until(&kit->n_waiting_now, 1);
    release(kit);
    client_read(client, &answer);
    assert_string_equal(answer.body, "a");
    client_close(client);
}

static void pipelined_requests_are_answered_in_their_order(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect(kit);
    struct answer answer;

    client_send(client, GET("/wait?1") GET("/now2") GET("/wait?3"));
    kit_until(&kit->n_waiting_now, 2);
    release(kit); /* which answers 3 before 1 */
    client_read(client, &answer);
    assert_string_equal(answer.body, "1");
    client_read(client, &answer);
    assert_string_equal(answer.body, "/now2");
    client_read(client, &answer);
    assert_string_equal(answer.body, "3");
    client_close(client);
}

static void no_more_than_the_limit_are_under_way_on_one_connection(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect(kit);
    struct answer answer;
    int handled = atomic_load(&kit->n_handled);

    for (int i = 0; i < 3 * PIPELINE_LIMIT; i++) {
        client_send(client, GET("/wait?n"));
    }
    kit_until(&kit->n_waiting_now, PIPELINE_LIMIT);
    kit_expect_alive(kit);
    assert_int_equal(atomic_load(&kit->n_handled), handled + PIPELINE_LIMIT + 1);
    for (int i = 0; i < 3; i++) {
        kit_until(&kit->n_waiting_now, PIPELINE_LIMIT);
        release(kit);
    }
    for (int i = 0; i < 3 * PIPELINE_LIMIT; i++) {
        client_read(client, &answer);
        assert_string_equal(answer.body, "n");
    }
    client_close(client);
}

static void requests_behind_a_full_pipeline_are_read_afterwards(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect(kit);
    struct answer answer;

    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < PIPELINE_LIMIT; i++) {
            client_send(client, GET("/wait?n"));
        }
        kit_until(&kit->n_waiting_now, PIPELINE_LIMIT);
        kit_expect_alive(kit); /* the second half stays in the socket */
    }
    for (int round = 0; round < 2; round++) {
        kit_until(&kit->n_waiting_now, PIPELINE_LIMIT);
        release(kit);
    }
    for (int i = 0; i < 2 * PIPELINE_LIMIT; i++) {
        client_read(client, &answer);
        assert_string_equal(answer.body, "n");
    }
    client_close(client);
}

static void many_pipelined_requests_in_one_write_are_all_answered(void **state)
{
    struct client *client = client_connect(*state);
    struct answer answer;

    for (int round = 0; round < 20; round++) {
        client_send(client, GET("/1") GET("/2") GET("/3") GET("/4") GET("/5") GET("/6") GET("/7"));
    }
    for (int i = 0; i < 140; i++) {
        char path[16];
        client_read(client, &answer);
        (void)snprintf(path, sizeof path, "/%d", i % 7 + 1);
        assert_string_equal(answer.body, path);
    }
    client_close(client);
}

/* Issue 4: a client that hangs up leaves the queue at once. */
static void a_client_that_disconnects_is_noticed_at_once(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect(kit);
    int half = atomic_load(&kit->n_half);
    int64_t since_ms;

    client_send(client, GET("/leave-when-half-closed"));
    kit_until(&kit->n_waiting_now, 1);
    since_ms = clock_boot_ms();
    client_close(client);
    kit_until(&kit->n_half, half + 1);
    assert_int_equal(atomic_load(&kit->n_waiting_now), 0);
    assert_true(clock_boot_ms() - since_ms < 2000);
}

static void a_reset_connection_is_gone_at_once(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect(kit);
    struct linger now = { .l_onoff = 1, .l_linger = 0 };
    int gone = atomic_load(&kit->n_gone);

    client_send(client, GET("/wait"));
    kit_until(&kit->n_waiting_now, 1);
    assert_int_equal(setsockopt(client->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    client_close(client);
    kit_until(&kit->n_gone, gone + 1);
    assert_int_equal(atomic_load(&kit->n_waiting_now), 0);
}

static void a_closed_unix_socket_is_gone_at_once(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect_unix(kit);
    int gone = atomic_load(&kit->n_gone);

    client_send(client, GET("/wait") GET("/wait"));
    kit_until(&kit->n_waiting_now, 2);
    client_close(client);
    kit_until(&kit->n_gone, gone + 2);
    assert_int_equal(atomic_load(&kit->n_waiting_now), 0);
}

static void a_disconnect_is_noticed_behind_a_full_pipeline(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect(kit);
    int half = atomic_load(&kit->n_half);

    for (int i = 0; i < 2 * PIPELINE_LIMIT; i++) {
        client_send(client, GET("/wait"));
    }
    kit_until(&kit->n_waiting_now, PIPELINE_LIMIT);
    client_close(client);
    kit_until(&kit->n_half, half + PIPELINE_LIMIT);
    release(kit); /* the rest of its requests is read and discarded */
    kit_until(&kit->n_gone, 1);
    kit_expect_alive(kit);
}

static void requests_behind_a_full_pipeline_are_notified_of_the_disconnect_too(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect(kit);
    struct answer answer;
    int half = atomic_load(&kit->n_half);
    char text[1000] = "";

    for (int i = 0; i < 2 * PIPELINE_LIMIT; i++) {
        strcat(text, GET("/wait?n"));
    }
    client_send(client, text);
    kit_until(&kit->n_waiting_now, PIPELINE_LIMIT);
    assert_int_equal(shutdown(client->fd, SHUT_WR), 0);
    kit_until(&kit->n_half, half + PIPELINE_LIMIT);
    release(kit);
    kit_until(&kit->n_half, half + 2 * PIPELINE_LIMIT);
    release(kit);
    for (int i = 0; i < 2 * PIPELINE_LIMIT; i++) {
        client_read(client, &answer);
        assert_string_equal(answer.body, "n");
    }
    client_expect_end(client);
    client_close(client);
}

static void a_half_closed_client_that_still_reads_gets_its_answer(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect(kit);
    struct answer answer;
    int half = atomic_load(&kit->n_half);

    client_send(client, GET("/wait?x"));
    assert_int_equal(shutdown(client->fd, SHUT_WR), 0);
    kit_until(&kit->n_half, half + 1);
    release(kit);
    client_read(client, &answer);
    assert_string_equal(answer.body, "x");
    client_expect_end(client);
    client_close(client);
}

static void a_half_closed_client_may_count_as_disconnected(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect(kit);
    struct answer answer;

    client_send(client, GET("/now") GET("/leave-when-half-closed") GET("/wait?never"));
    kit_until(&kit->n_waiting_now, 2);
    assert_int_equal(shutdown(client->fd, SHUT_WR), 0);
    client_read(client, &answer);
    assert_string_equal(answer.body, "/now");
    client_read(client, &answer);
    assert_int_equal(answer.status, 409);
    client_close(client);
    release(kit);
    kit_expect_alive(kit);
}

static void requests_sent_before_a_disconnect_are_still_done(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect_unix(kit);
    int handled = atomic_load(&kit->n_handled);

    client_send(client, GET("/1") GET("/2"));
    client_close(client);
    kit_until(&kit->n_handled, handled + 2);
}

static void the_peer_of_a_request_is_known(void **state)
{
    struct client *client = client_connect(*state);
    struct answer answer;
    char text[100];

    client_send(client, GET("/who"));
    client_read(client, &answer);
    assert_int_equal(strncmp(answer.body, "127.0.0.1:", 10), 0);
    assert_non_null(strstr(answer.body, "loopback=1 unix=0 uid=-1 tls=0"));
    client_close(client);
    client = client_connect_unix(*state);
    client_send(client, GET("/who"));
    client_read(client, &answer);
    (void)snprintf(text, sizeof text, "unix:uid=%d,pid=%d loopback=0 unix=1 uid=%d tls=0", (int)getuid(),
                   (int)getpid(), (int)getuid());
    assert_string_equal(answer.body, text);
    client_close(client);
}

static void a_stream_comes_in_chunks_and_the_connection_stays_open(void **state)
{
    struct client *client = client_connect(*state);
    struct answer answer;

    client_send(client, GET("/stream") GET("/next"));
    client_read(client, &answer);
    assert_true(answer_has(&answer, "Transfer-Encoding: chunked\r\n"));
    assert_true(answer_has(&answer, "Content-Type: text/event-stream\r\n"));
    assert_string_equal(answer.body, "data: one\n\ndata: two\n\n");
    client_read(client, &answer);
    assert_string_equal(answer.body, "/next");
    client_close(client);
}

static void a_stream_to_http_1_0_ends_with_the_connection(void **state)
{
    struct client *client = client_connect(*state);
    struct answer answer;

    client_send(client, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    client_read(client, &answer);
    assert_false(answer_has(&answer, "Transfer-Encoding"));
    client_expect_bytes(client, "data: one\n\ndata: two\n\n");
    client_expect_end(client);
    client_close(client);
}

static void the_first_event_of_a_stream_arrives_before_its_end(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect(kit);
    struct answer answer;
    int half = atomic_load(&kit->n_half);

    client_send(client, GET("/open-stream"));
    client_read_head_answer(client, &answer);
    client_expect_bytes(client, "d\r\ndata: begun\n\n\r\n");
    client_close(client);
    kit_until(&kit->n_half, half + 1);
}

static void a_stream_behind_another_answer_waits_for_it(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect(kit);
    struct answer answer;

    client_send(client, GET("/wait?first") GET("/stream") GET("/next"));
    kit_until(&kit->n_waiting_now, 1);
    release(kit);
    client_read(client, &answer);
    assert_string_equal(answer.body, "first");
    client_read(client, &answer);
    assert_string_equal(answer.body, "data: one\n\ndata: two\n\n");
    client_read(client, &answer);
    assert_string_equal(answer.body, "/next");
    client_close(client);
}

static void a_slow_reader_of_a_stream_is_disconnected(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect(kit);
    int gone = atomic_load(&kit->n_gone);
    int small = 4096;

    (void)setsockopt(client->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    client_send(client, GET("/flood"));
    kit_until(&kit->n_gone, gone + 1);
    /* The kernel and the server buffer a part of it, not everything. */
    assert_true(atomic_load(&kit->n_streamed) > 0);
    assert_true(atomic_load(&kit->n_streamed) < 64 << 20);
    client_close(client);
    kit_expect_alive(kit);
}

static void a_client_that_does_not_read_its_answer_is_disconnected(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect(kit);
    int notices = atomic_load(&kit->n_notices);

    client_send(client, GET("/big?bytes=20000000"));
    kit_until(&kit->n_notices, notices + 1);
    kit_expect_alive(kit);
    client_close(client);
}

static void a_large_answer_arrives_whole_at_a_slow_reader(void **state)
{
    struct client *client = client_connect(*state);
    char start_of_body[64];
    size_t total = 0;

    client_send(client, GET("/big?bytes=3000000") GET("/next"));
    (void)snprintf(start_of_body, sizeof start_of_body, "Content-Length: 3000000\r\n");
    while (total < 3000000) {
        size_t n = client_fill(client);
        assert_true(n > 0);
        total += n;
        if (total == n) {
            assert_non_null(strstr(client->data, start_of_body));
        }
        client->len = 0;
    }
    client_close(client);
}

/* --- bodies that are not copied --- */

static void a_shared_body_is_sent_in_order_and_released(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect(kit);
    struct answer answer;
    int before = atomic_load(&kit->n_released);

    client_send(client, GET("/wait?1") GET("/shared?bytes=5000000") GET("/shared?bytes=70000") GET("/now4"));
    kit_until(&kit->n_waiting_now, 1);
    release(kit);
    client_read(client, &answer);
    assert_string_equal(answer.body, "1");
    client_expect_shared(client, 5000000);
    client_expect_shared(client, 70000);
    client_read(client, &answer);
    assert_string_equal(answer.body, "/now4");
    kit_until(&kit->n_released, before + 2);
    client_send(client, GET("/shared?bytes=10")); /* the connection stays open for small bodies */
    client_expect_shared(client, 10);
    kit_until(&kit->n_released, before + 3);
    assert_int_equal(atomic_load(&kit->n_released), before + 3);
    client_close(client);
}

static void a_shared_body_is_released_when_its_reader_disconnects(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect(kit);
    int before = atomic_load(&kit->n_released);

    client_send(client, GET("/shared?bytes=60000000") GET("/shared?bytes=100000"));
    assert_true(client_fill(client) > 0);
    kit_expect_alive(kit); /* others are served while it does not read */
    assert_int_equal(atomic_load(&kit->n_released), before);
    client_close(client);
    kit_until(&kit->n_released, before + 1); /* the second was not read any more, or is released too */
}

static void head_of_a_shared_body_sends_the_length_only(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect(kit);
    struct answer answer;
    int before = atomic_load(&kit->n_released);

    client_send(client, "HEAD /shared?bytes=5000000 HTTP/1.1\r\nHost: x\r\n\r\n");
    client_read_head_answer(client, &answer);
    assert_true(answer_has(&answer, "Content-Length: 5000000"));
    kit_until(&kit->n_released, before + 1);
    client_close(client);
}

/* --- the end --- */

static void drained(void *context)
{
    struct kit *kit = context;

    atomic_fetch_add(&kit->n_drained, 1);
}

static void drain(struct kit *kit, void *context)
{
    http_server_drain(kit->server, *(int64_t *)context, drained, kit);
}

static void draining_answers_requests_in_progress_and_closes_the_rest(void **state)
{
    struct kit *kit = kit_start(NULL);
    struct client *idle = client_connect(kit);
    struct client *waiting = client_connect(kit);
    struct client *halfway = client_connect(kit);
    struct answer answer;
    int64_t limit_ms = 60000;

    (void)state;
    client_send(idle, GET("/x"));
    client_read(idle, &answer);
    client_send(halfway, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nab");
    client_send(waiting, GET("/wait?w"));
    kit_until(&kit->n_waiting_now, 1);
    kit_call(kit, drain, &limit_ms);
    client_expect_end(idle);
    assert_int_equal(atomic_load(&kit->n_drained), 0);
    client_send(halfway, "cd");
    client_read(halfway, &answer);
    assert_string_equal(answer.body, "abcd");
    assert_true(answer_has(&answer, "Connection: close\r\n"));
    client_expect_end(halfway);
    client_close(waiting); /* which ends the last one; its notice is a hang-up, as ever */
    kit_until(&kit->n_half, 1);
    client_close(idle);
    client_close(halfway);
    kit_stop(kit);
}

static void answer_waiting(struct kit *kit, void *context)
{
    (void)context;
    while (kit->n_waiting > 0) {
        atomic_fetch_sub(&kit->n_waiting_now, 1);
        http_answer_error(kit->waiting[--kit->n_waiting], 503, "stopping", "the server stops");
    }
}

static void draining_ends_when_the_last_waiter_is_answered(void **state)
{
    struct kit *kit = kit_start(NULL);
    struct client *client = client_connect(kit);
    struct answer answer;
    int64_t limit_ms = 60000;

    (void)state;
    client_send(client, GET("/wait?1") GET("/wait?2"));
    kit_until(&kit->n_waiting_now, 2);
    kit_call(kit, drain, &limit_ms);
    kit_call(kit, answer_waiting, NULL);
    client_read(client, &answer);
    assert_int_equal(answer.status, 503);
    assert_false(answer_has(&answer, "Connection: close"));
    client_read(client, &answer);
    assert_true(answer_has(&answer, "Connection: close"));
    client_expect_end(client);
    kit_until(&kit->n_drained, 1);
    client_close(client);
    kit_stop(kit);
}

static void draining_disconnects_clients_that_are_not_answered_in_time(void **state)
{
    struct kit *kit = kit_start(NULL);
    struct client *client = client_connect(kit);
    int64_t limit_ms = 50;

    (void)state;
    client_send(client, GET("/wait"));
    kit_until(&kit->n_waiting_now, 1);
    kit_call(kit, drain, &limit_ms);
    kit_until(&kit->n_drained, 1);
    assert_int_equal(atomic_load(&kit->n_gone), 1);
    client_expect_end(client);
    client_close(client);
    kit_stop(kit);
}

static void draining_an_idle_server_ends_at_once(void **state)
{
    struct kit *kit = kit_start(NULL);
    int64_t limit_ms = 60000;

    (void)state;
    kit_call(kit, drain, &limit_ms);
    kit_until(&kit->n_drained, 1);
    kit_stop(kit);
}

static void closing_the_server_notifies_waiting_requests(void **state)
{
    struct kit *kit = kit_start(NULL);
    struct client *client = client_connect(kit);

    (void)state;
    client_send(client, GET("/wait") GET("/wait") GET("/open-stream") "GET /half");
    kit_until(&kit->n_handled, 3);
    kit_stop(kit); /* the sanitizers watch what it leaves behind */
    client_close(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_may_come_later),
        cmocka_unit_test(pipelined_requests_are_answered_in_their_order),
        cmocka_unit_test(no_more_than_the_limit_are_under_way_on_one_connection),
        cmocka_unit_test(requests_behind_a_full_pipeline_are_read_afterwards),
        cmocka_unit_test(many_pipelined_requests_in_one_write_are_all_answered),
        cmocka_unit_test(a_client_that_disconnects_is_noticed_at_once),
        cmocka_unit_test(a_reset_connection_is_gone_at_once),
        cmocka_unit_test(a_closed_unix_socket_is_gone_at_once),
        cmocka_unit_test(a_disconnect_is_noticed_behind_a_full_pipeline),
        cmocka_unit_test(requests_behind_a_full_pipeline_are_notified_of_the_disconnect_too),
        cmocka_unit_test(a_half_closed_client_that_still_reads_gets_its_answer),
        cmocka_unit_test(a_half_closed_client_may_count_as_disconnected),
        cmocka_unit_test(requests_sent_before_a_disconnect_are_still_done),
        cmocka_unit_test(the_peer_of_a_request_is_known),
        cmocka_unit_test(a_stream_comes_in_chunks_and_the_connection_stays_open),
        cmocka_unit_test(a_stream_to_http_1_0_ends_with_the_connection),
        cmocka_unit_test(the_first_event_of_a_stream_arrives_before_its_end),
        cmocka_unit_test(a_stream_behind_another_answer_waits_for_it),
        cmocka_unit_test(a_slow_reader_of_a_stream_is_disconnected),
        cmocka_unit_test(a_client_that_does_not_read_its_answer_is_disconnected),
        cmocka_unit_test(a_large_answer_arrives_whole_at_a_slow_reader),
        cmocka_unit_test(a_shared_body_is_sent_in_order_and_released),
        cmocka_unit_test(a_shared_body_is_released_when_its_reader_disconnects),
        cmocka_unit_test(head_of_a_shared_body_sends_the_length_only),
        cmocka_unit_test(draining_answers_requests_in_progress_and_closes_the_rest),
        cmocka_unit_test(draining_ends_when_the_last_waiter_is_answered),
        cmocka_unit_test(draining_disconnects_clients_that_are_not_answered_in_time),
        cmocka_unit_test(draining_an_idle_server_ends_at_once),
        cmocka_unit_test(closing_the_server_notifies_waiting_requests),
    };

    return cmocka_run_group_tests_name("http answers that come later", tests, start, stop);
}
