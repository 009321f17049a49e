/* Answers that wait until their log sequence number is durable. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "http_kit.h"

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"

enum { SEND_MS = 200, IDLE_MS = 600 };

static int start(void **state)
{
    struct kit_options options = { .limits = { .send_ms = SEND_MS, .idle_ms = IDLE_MS }, .with_unix = true };

    *state = kit_start(&options);
    return 0;
}

static int stop(void **state)
{
    kit_stop(*state);
    return 0;
}

static void set_durable(struct kit *kit, void *context)
{
    http_server_set_durable(kit->server, *(const uint64_t *)context);
}

static void sync_to(struct kit *kit, uint64_t lsn)
{
    kit_call(kit, set_durable, &lsn);
}

static void do_nothing(struct kit *kit, void *context)
{
    (void)kit;
    (void)context;
}

/* Send a request whose handler finds this LSN committed, and wait until the handler has returned. */
static void ask(struct kit *kit, struct client *client, const char *text, uint64_t lsn)
{
    int before = atomic_load(&kit->n_handled);

    atomic_store(&kit->committed_lsn, lsn);
    client_send(client, text);
    kit_until(&kit->n_handled, before + 1);
    kit_call(kit, do_nothing, NULL);
}

static void expect_answer(struct client *client, const char *body)
{
    struct answer answer;

    client_read(client, &answer);
    assert_string_equal(answer.body, body);
}

static void expect_nothing(const struct client *client)
{
    char byte;

    assert_int_equal(recv(client->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK), -1);
    assert_true(errno == EAGAIN || errno == EWOULDBLOCK);
}

struct count {
    uint64_t lsn;
    size_t n;
};

static void count_waiting(struct kit *kit, void *context)
{
    struct count *count = context;

    count->n = http_server_count_waiting(kit->server, count->lsn, SIZE_MAX);
}

static size_t n_waiting_above(struct kit *kit, uint64_t lsn)
{
    struct count count = { .lsn = lsn };

    kit_call(kit, count_waiting, &count);
    return count.n;
}

static void only_answers_up_to_the_durable_lsn_are_sent(void **state)
{
    struct kit *kit = *state;
    struct client *first = client_connect(kit);
    struct client *second = client_connect(kit);

    ask(kit, first, GET("/a"), 1);
    ask(kit, second, GET("/b"), 2);
    assert_int_equal(n_waiting_above(kit, 0), 2);
    assert_int_equal(n_waiting_above(kit, 1), 1);
    expect_nothing(first);
    sync_to(kit, 1);
    expect_answer(first, "/a");
    expect_nothing(second);
    assert_int_equal(n_waiting_above(kit, 1), 1);
    sync_to(kit, 2);
    expect_answer(second, "/b");
    assert_int_equal(n_waiting_above(kit, 0), 0);
    client_close(first);
    client_close(second);
}

static void an_answer_is_sent_at_once_if_all_is_durable(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect(kit);

    sync_to(kit, 7);
    ask(kit, client, GET("/a"), 7);
    expect_answer(client, "/a");
    client_close(client);
}

/* Pipelined requests: the first answer does not wait for what the second one did. */
static void each_answer_on_a_connection_waits_for_its_own_lsn(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect(kit);

    ask(kit, client, GET("/a"), 1);
    ask(kit, client, GET("/b"), 2);
    ask(kit, client, GET("/c"), 2);
    sync_to(kit, 1);
    expect_answer(client, "/a");
    expect_nothing(client);
    sync_to(kit, 2);
    expect_answer(client, "/b");
    expect_answer(client, "/c");
    client_close(client);
}

static void a_durable_answer_waits_for_the_one_before_it(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect(kit);
    struct client *other = client_connect(kit);

    ask(kit, client, GET("/wait?late"), 1);
    ask(kit, client, GET("/b"), 1);
    sync_to(kit, 1);
    expect_nothing(client);
    ask(kit, other, GET("/release"), 2); /* answers /wait */
    expect_nothing(client);
    sync_to(kit, 2);
    expect_answer(client, "late");
    expect_answer(client, "/b");
    client_close(client);
    client_close(other);
}

static void a_shared_body_waits_with_its_head(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect(kit);

    ask(kit, client, GET("/shared?bytes=200000"), 1);
    ask(kit, client, GET("/b"), 2);
    expect_nothing(client);
    sync_to(kit, 1);
    client_expect_shared(client, 200000);
    expect_nothing(client);
    sync_to(kit, 2);
    expect_answer(client, "/b");
    client_close(client);
}

static void a_stream_waits_and_is_not_counted(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect(kit);
    struct answer answer;

    ask(kit, client, GET("/open-stream"), 1);
    expect_nothing(client);
    assert_int_equal(n_waiting_above(kit, 0), 0);
    sync_to(kit, 1);
    client_read_head_answer(client, &answer);
    client_expect_bytes(client, "d\r\ndata: begun\n\n\r\n");
    client_close(client);
}

static void nothing_is_sent_in_the_place_of_a_client_that_has_gone(void **state)
{
    struct kit *kit = *state;
    struct client *first = client_connect(kit);
    struct client *second = client_connect(kit);
    struct linger reset = { .l_onoff = 1 };
    int gone = atomic_load(&kit->n_gone);

    ask(kit, first, GET("/a"), 1);
    ask(kit, first, GET("/wait?x"), 1); /* whose end the handler is told */
    assert_int_equal(setsockopt(first->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
    client_close(first);
    kit_until(&kit->n_gone, gone + 1);
    ask(kit, second, GET("/b"), 2);
    sync_to(kit, 1);
    expect_nothing(second);
    sync_to(kit, 2);
    expect_answer(second, "/b");
    client_close(second);
}

/* Over a unix socket the end of a client is known at once, whatever it sent before. */
static void what_was_asked_before_hanging_up_is_done(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect_unix(kit);
    int before = atomic_load(&kit->n_handled);

    ask(kit, client, GET("/a"), 1);
    ask(kit, client, GET("/b"), 2);
    client_send(client, GET("/c"));
    client_close(client);
    kit_until(&kit->n_handled, before + 3);
}

static void a_client_that_says_nothing_new_is_not_put_off(void **state)
{
    struct kit *kit = *state;
    struct client *stray = client_connect(kit);
    struct client *half = client_connect(kit);
    struct client *other = client_connect(kit);

    ask(kit, stray, GET("/a"), 1);
    ask(kit, half, GET("/b"), 1);
    client_send(stray, "\r\n");
    assert_int_equal(shutdown(half->fd, SHUT_WR), 0);
    ask(kit, other, GET("/c"), 2); /* which came after these, and is handled */
    sync_to(kit, 1);
    expect_answer(stray, "/a");
    expect_answer(half, "/b");
    expect_nothing(other);
    client_close(stray);
    client_close(half);
    client_close(other);
}

static void a_client_is_not_cut_off_while_its_answer_waits(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect(kit);
    struct client *idle;

    ask(kit, client, GET("/a"), 1);
    idle = client_connect(kit);
    client_expect_end(idle); /* so IDLE_MS are over, and SEND_MS */
    sync_to(kit, 1);
    expect_answer(client, "/a");
    client_expect_end(client); /* from now on it is idle */
    client_close(client);
    client_close(idle);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        TEST(only_answers_up_to_the_durable_lsn_are_sent),
        TEST(an_answer_is_sent_at_once_if_all_is_durable),
        TEST(each_answer_on_a_connection_waits_for_its_own_lsn),
        TEST(a_durable_answer_waits_for_the_one_before_it),
        TEST(a_shared_body_waits_with_its_head),
        TEST(a_stream_waits_and_is_not_counted),
        TEST(nothing_is_sent_in_the_place_of_a_client_that_has_gone),
        TEST(what_was_asked_before_hanging_up_is_done),
        TEST(a_client_that_says_nothing_new_is_not_put_off),
        TEST(a_client_is_not_cut_off_while_its_answer_waits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
