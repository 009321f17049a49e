/* Answers that are held back until they may leave, as those of a server are until they are on disk. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "http_kit.h"

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"

enum { SEND_MS = 200, IDLE_MS = 600 };

static void hold(struct kit *kit, void *context)
{
    (void)context;
    http_server_hold(kit->server);
}

static void seal(struct kit *kit, void *context)
{
    (void)context;
    http_server_seal(kit->server);
}

static void unseal(struct kit *kit, void *context)
{
    (void)context;
    http_server_unseal(kit->server);
}

/* What is unsealed. */
static void send_out(struct kit *kit, void *context)
{
    (void)context;
    http_server_let_out(kit->server);
}

static void let_out(struct kit *kit, void *context)
{
    unseal(kit, context);
    send_out(kit, context);
}

static int start(void **state)
{
    struct kit_options options = { .limits = { .send_ms = SEND_MS, .idle_ms = IDLE_MS }, .with_unix = true };

    *state = kit_start(&options);
    kit_call(*state, hold, NULL);
    return 0;
}

static int stop(void **state)
{
    kit_stop(*state);
    return 0;
}

/* Ask, and wait until it is answered as far as the handler can tell. */
static void ask(struct kit *kit, struct client *client, const char *text)
{
    int before = atomic_load(&kit->n_handled);

    client_send(client, text);
    kit_until(&kit->n_handled, before + 1);
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

static void only_what_was_sealed_is_let_out(void **state)
{
    struct kit *kit = *state;
    struct client *first = client_connect(kit);
    struct client *second = client_connect(kit);

    ask(kit, first, GET("/a"));
    kit_call(kit, seal, NULL);
    ask(kit, second, GET("/b"));
    expect_nothing(first);
    kit_call(kit, let_out, NULL);
    expect_answer(first, "/a");
    expect_nothing(second);
    kit_call(kit, seal, NULL);
    kit_call(kit, let_out, NULL);
    expect_answer(second, "/b");
    client_close(first);
    client_close(second);
}

static void others_may_be_sealed_before_the_first_are_let_out(void **state)
{
    struct kit *kit = *state;
    struct client *first = client_connect(kit);
    struct client *second = client_connect(kit);

    ask(kit, first, GET("/a"));
    kit_call(kit, seal, NULL);
    ask(kit, second, GET("/b"));
    kit_call(kit, unseal, NULL);
    kit_call(kit, seal, NULL);
    expect_nothing(first);
    kit_call(kit, send_out, NULL);
    expect_answer(first, "/a");
    expect_nothing(second);
    kit_call(kit, let_out, NULL);
    expect_answer(second, "/b");
    client_close(first);
    client_close(second);
}

static void nothing_is_let_out_in_the_place_of_who_has_gone(void **state)
{
    struct kit *kit = *state;
    struct client *first = client_connect(kit);
    struct client *second = client_connect(kit);
    struct linger reset = { .l_onoff = 1 };
    int gone = atomic_load(&kit->n_gone);

    ask(kit, first, GET("/a"));
    client_send(first, GET("/wait?x")); /* whose end the handler is told */
    kit_until(&kit->n_waiting_now, 1);
    kit_call(kit, seal, NULL);
    assert_int_equal(setsockopt(first->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
    client_close(first);
    kit_until(&kit->n_gone, gone + 1);
    kit_call(kit, unseal, NULL);
    ask(kit, second, GET("/b"));
    kit_call(kit, seal, NULL);
    kit_call(kit, send_out, NULL);
    expect_nothing(second);
    kit_call(kit, let_out, NULL);
    expect_answer(second, "/b");
    client_close(second);
}

/* Else who asks anew during each sync would never be in the one that ends. */
static void who_asks_again_before_it_is_told_is_not_heard_a_third_time(void **state)
{
    struct kit *kit = *state;
    struct client *eager = client_connect(kit);
    struct client *other = client_connect(kit);
    int before = atomic_load(&kit->n_handled);

    ask(kit, eager, GET("/a"));
    kit_call(kit, seal, NULL);
    ask(kit, eager, GET("/b"));
    client_send(eager, GET("/c"));
    ask(kit, other, GET("/d")); /* which came after it, and is heard */
    assert_int_equal(atomic_load(&kit->n_handled), before + 3);
    kit_call(kit, let_out, NULL);
    expect_nothing(eager); /* /a has waited for /b */
    kit_call(kit, seal, NULL);
    kit_call(kit, let_out, NULL);
    expect_answer(eager, "/a");
    expect_answer(eager, "/b");
    expect_answer(other, "/d");
    kit_until(&kit->n_handled, before + 4);
    kit_call(kit, seal, NULL);
    kit_call(kit, let_out, NULL);
    expect_answer(eager, "/c");
    client_close(eager);
    client_close(other);
}

/* Over a unix socket the end of a client is known at once, whatever it sent before. */
static void what_was_asked_before_hanging_up_is_done_though_it_was_late(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect_unix(kit);
    int before = atomic_load(&kit->n_handled);

    ask(kit, client, GET("/a"));
    kit_call(kit, seal, NULL);
    ask(kit, client, GET("/b"));
    client_send(client, GET("/c"));
    client_close(client);
    kit_until(&kit->n_handled, before + 3);
}

static void who_was_sealed_and_says_nothing_new_is_not_put_off(void **state)
{
    struct kit *kit = *state;
    struct client *stray = client_connect(kit);
    struct client *half = client_connect(kit);
    struct client *other = client_connect(kit);

    ask(kit, stray, GET("/a"));
    ask(kit, half, GET("/b"));
    kit_call(kit, seal, NULL);
    client_send(stray, "\r\n");
    assert_int_equal(shutdown(half->fd, SHUT_WR), 0);
    ask(kit, other, GET("/c")); /* which came after these, and is heard */
    kit_call(kit, let_out, NULL);
    expect_answer(stray, "/a");
    expect_answer(half, "/b");
    expect_nothing(other);
    client_close(stray);
    client_close(half);
    client_close(other);
}

static void who_is_kept_waiting_by_us_is_not_cut_off_for_it(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect(kit);
    struct client *idle;

    ask(kit, client, GET("/a"));
    idle = client_connect(kit);
    client_expect_end(idle); /* so IDLE_MS are over, and SEND_MS */
    kit_call(kit, seal, NULL);
    kit_call(kit, let_out, NULL);
    expect_answer(client, "/a");
    client_expect_end(client); /* from now on it is idle */
    client_close(client);
    client_close(idle);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)
    const struct CMUnitTest tests[] = {
        TEST(only_what_was_sealed_is_let_out),
        TEST(others_may_be_sealed_before_the_first_are_let_out),
        TEST(nothing_is_let_out_in_the_place_of_who_has_gone),
        TEST(who_asks_again_before_it_is_told_is_not_heard_a_third_time),
        TEST(what_was_asked_before_hanging_up_is_done_though_it_was_late),
        TEST(who_was_sealed_and_says_nothing_new_is_not_put_off),
        TEST(who_is_kept_waiting_by_us_is_not_cut_off_for_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
