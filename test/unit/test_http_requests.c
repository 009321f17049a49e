/* Accepted and refused requests. The server runs in a thread (pthread_create in http_kit.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http_kit.h"

enum { SMALL_BODY = 1000, SMALL_HEAD = 2000, SMALL_TARGET = 500 };

static int start(void **state)
{
    struct kit_options options = { .limits = { .max_body_bytes = SMALL_BODY,
                                               .max_head_bytes = SMALL_HEAD,
                                               .max_target_bytes = SMALL_TARGET } };

    *state = kit_start(&options);
    return 0;
}

static int stop(void **state)
{
    kit_stop(*state);
    return 0;
}

/* Send, and read the one answer. */
static void ask(struct kit *kit, const char *text, struct answer *out)
{
    struct client *client = client_connect(kit);

    client_send(client, text);
    client_read(client, out);
    client_close(client);
}

static void a_get_is_answered_with_date_and_length(void **state)
{
    struct answer answer;

    ask(*state, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n", &answer);
    assert_int_equal(answer.status, 200);
    assert_string_equal(answer.body, "/x");
    assert_true(answer_has(&answer, "Content-Length: 2\r\n"));
    assert_true(answer_has(&answer, "Date: "));
    assert_non_null(strstr(answer.head, " GMT\r\n"));
    assert_false(answer_has(&answer, "Connection:"));
}

static void every_method_that_terraform_uses_arrives(void **state)
{
    const char *methods[] = { "GET", "POST", "PUT", "DELETE", "LOCK", "UNLOCK", "PATCH", "OPTIONS" };
    struct client *client = client_connect(*state);

    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        struct answer answer;
        char text[100];
        (void)snprintf(text, sizeof text, "%s /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi",
                       methods[i]);
        client_send(client, text);
        client_read(client, &answer);
        (void)snprintf(text, sizeof text, "X-Method: %s\r\n", methods[i]);
        assert_int_equal(answer.status, 200);
        assert_true(answer_has(&answer, text));
        assert_string_equal(answer.body, "hi");
    }
    client_close(client);
}

static void the_answer_to_head_has_a_length_and_no_body(void **state)
{
    struct client *client = client_connect(*state);
    struct answer answer;

    client_send(client, "HEAD /four HTTP/1.1\r\nHost: x\r\n\r\nGET /next HTTP/1.1\r\nHost: x\r\n\r\n");
    client_read_head_answer(client, &answer);
    assert_int_equal(answer.status, 200);
    assert_true(answer_has(&answer, "Content-Length: 5\r\n"));
    client_read(client, &answer);
    assert_string_equal(answer.body, "/next");
    client_close(client);
}

static void a_204_has_neither_length_nor_body(void **state)
{
    struct answer answer;

    ask(*state, "POST /release HTTP/1.1\r\nHost: x\r\n\r\n", &answer);
    assert_int_equal(answer.status, 204);
    assert_false(answer_has(&answer, "Content-Length"));
}

static void a_connection_is_kept_unless_one_side_says_close(void **state)
{
    struct client *client = client_connect(*state);
    struct answer answer;

    client_send(client, "GET /1 HTTP/1.1\r\nHost: x\r\n\r\n");
    client_read(client, &answer);
    client_send(client, "GET /2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    client_read(client, &answer);
    assert_string_equal(answer.body, "/2");
    assert_true(answer_has(&answer, "Connection: close\r\n"));
    client_expect_end(client);
    client_close(client);
}

static void http_1_0_needs_no_host_and_closes_unless_asked(void **state)
{
    struct client *client = client_connect(*state);
    struct answer answer;

    client_send(client, "GET /1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    client_read(client, &answer);
    assert_true(answer_has(&answer, "Connection: keep-alive\r\n"));
    client_send(client, "GET /2 HTTP/1.0\r\n\r\n");
    client_read(client, &answer);
    assert_true(answer_has(&answer, "Connection: close\r\n"));
    client_expect_end(client);
    client_close(client);
}

static void a_body_may_come_in_chunks_with_extensions_and_trailers(void **state)
{
    struct answer answer;

    ask(*state,
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\nX-Mark: m\r\n\r\n"
        "3\r\nabc\r\n0A;name=\"v\"\r\n0123456789\r\n000\r\nX-Mark: trailer\r\nX-More: 1\r\n\r\n",
        &answer);
    assert_int_equal(answer.status, 200);
    assert_string_equal(answer.body, "abc0123456789");
    assert_true(answer_has(&answer, "X-Mark: m\r\n")); /* trailers are not headers */
}

static void a_request_may_come_one_byte_at_a_time(void **state)
{
    const char text[] =
        "POST /echo HTTP/1.1\r\nHost: x\r\nX-Mark:  a b \r\nTransfer-Encoding: chunked\r\n\r\n"
        "4\r\nabcd\r\n0\r\n\r\n";
    struct client *client = client_connect(*state);
    struct answer answer;

    for (size_t i = 0; i < sizeof text - 1; i++) {
        client_send_n(client, text + i, 1);
        usleep(300);
    }
    client_read(client, &answer);
    assert_int_equal(answer.status, 200);
    assert_string_equal(answer.body, "abcd");
    assert_true(answer_has(&answer, "X-Mark: a b\r\n"));
    assert_true(answer_has(&answer, "X-Headers: 3\r\n"));
    client_close(client);
}

static void a_client_that_expects_100_continue_gets_it(void **state)
{
    struct client *client = client_connect(*state);
    struct answer answer;

    client_send(client, "PUT /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    client_expect_bytes(client, "HTTP/1.1 100 Continue\r\n\r\n");
    client_send(client, "abc");
    client_read(client, &answer);
    assert_string_equal(answer.body, "abc");
    /* A client that does not wait gets no 100: its body is already there. */
    client_send(client,
                "PUT /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nxyz");
    client_read(client, &answer);
    assert_int_equal(answer.status, 200);
    assert_string_equal(answer.body, "xyz");
    client_close(client);
}

static void a_100_continue_is_sent_after_earlier_answers(void **state)
{
    struct kit *kit = *state;
    struct client *client = client_connect(kit);
    struct answer answer;

    client_send(client, "GET /wait?1 HTTP/1.1\r\nHost: x\r\n\r\n"
                        "PUT /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    kit_until(&kit->n_waiting_now, 1);
    ask(kit, "POST /release HTTP/1.1\r\nHost: x\r\n\r\n", &answer);
    client_read(client, &answer);
    assert_string_equal(answer.body, "1");
    client_expect_bytes(client, "HTTP/1.1 100 Continue\r\n\r\n");
    client_send(client, "abc");
    client_read(client, &answer);
    assert_string_equal(answer.body, "abc");
    client_close(client);
}

static void a_body_that_is_too_large_is_refused_before_it_is_sent(void **state)
{
    struct client *client = client_connect(*state);
    struct answer answer;

    client_send(client,
                "PUT /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1001\r\n\r\n");
    client_read(client, &answer);
    assert_int_equal(answer.status, 413);
    client_expect_end(client);
    client_close(client);
}

static void an_unrequested_upgrade_is_an_ordinary_request(void **state)
{
    struct client *client = client_connect(*state);
    struct answer answer;

    client_send(client,
                "GET /1 HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n\r\n"
                "GET /2 HTTP/1.1\r\nHost: x\r\n\r\n");
    client_read(client, &answer);
    assert_int_equal(answer.status, 200);
    client_read(client, &answer);
    assert_string_equal(answer.body, "/2");
    client_close(client);
}

static void an_absolute_address_is_its_path(void **state)
{
    struct answer answer;

    ask(*state, "GET http://host:80/a%2Fb?q HTTP/1.1\r\nHost: x\r\n\r\n", &answer);
    assert_string_equal(answer.body, "/a%2Fb");
    ask(*state, "GET http://host?q HTTP/1.1\r\nHost: x\r\n\r\n", &answer);
    assert_string_equal(answer.body, "/");
}

static void an_empty_line_before_a_request_is_ignored(void **state)
{
    struct client *client = client_connect(*state);
    struct answer answer;

    client_send(client, "\r\nGET /1 HTTP/1.1\r\nHost: x\r\n\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n");
    client_read(client, &answer);
    client_read(client, &answer);
    assert_string_equal(answer.body, "/2");
    client_close(client);
}

static void a_header_cannot_break_an_answer_apart(void **state)
{
    struct answer answer;

    ask(*state, "GET /split HTTP/1.1\r\nHost: x\r\n\r\n", &answer);
    assert_int_equal(answer.status, 500);
    assert_null(strstr(answer.head, "Set-Cookie"));
}

struct refusal {
    int status;
    const char *text;
};

#define HOST "Host: x\r\n"
#define POST "POST /echo HTTP/1.1\r\nHost: x\r\n"
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"
/* Request smuggling. */
#define INNER "GET /inner HTTP/1.1\r\nHost: x\r\n\r\n"

static const struct refusal refusals[] = {
    /* two readings of where the request ends */
    { 400, POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" INNER },
    { 400, POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" INNER },
    { 400, POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello" INNER },
    { 400, POST "Content-Length: 5\r\nContent-Length: 0\r\n\r\nhello" INNER },
    { 400, POST "Content-Length: 5, 5\r\n\r\nhello" INNER },
    { 400, POST "Content-Length: +5\r\n\r\nhello" INNER },
    { 400, POST "Content-Length: -5\r\n\r\nhello" INNER },
    { 400, POST "Content-Length: 0x5\r\n\r\nhello" INNER },
    { 400, POST "Content-Length: 5 5\r\n\r\nhello" INNER },
    { 400, POST "Content-Length:\r\n\r\nhello" INNER },
    { 400, POST "Content-Length: 99999999999999999999999999\r\n\r\nhello" INNER },
    { 400, POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" INNER },
    { 501, POST "Transfer-Encoding: identity\r\n\r\n" INNER },
    { 501, POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" INNER },
    { 501, POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" INNER },
    { 400, "POST /echo HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" INNER },
    { 400, POST "Content-Length : 5\r\n\r\nhello" INNER },
    { 400, POST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" INNER },
    { 400, POST "X-A: b\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" INNER },
    { 400, POST "X-A: b\r\n\tfolded\r\n\r\n" INNER },
    /* line ends */
    { 400, "GET / HTTP/1.1\nHost: x\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\nHost: x\n\r\n" },
    { 400, "GET / HTTP/1.1\r\nHost: x\r\n\n" },
    { 400, "GET / HTTP/1.1\r\nHost: x\r\n\rX" },
    { 400, "GET / HTTP/1.1\r\nHost: x\rX-A: b\r\n\r\n" },
    { 400, "\nGET / HTTP/1.1\r\nHost: x\r\n\r\n" },
    { 400, "\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n" },
    /* chunks */
    { 400, CHUNKED "5\nhello\r\n0\r\n\r\n" },
    { 400, CHUNKED "5\r\nhelloXX0\r\n\r\n" },
    { 400, CHUNKED "5\r\nhello\n0\r\n\r\n" },
    { 400, CHUNKED "5\rXhello\r\n0\r\n\r\n" },
    { 400, CHUNKED "5 \r\nhello\r\n0\r\n\r\n" },
    { 400, CHUNKED "+5\r\nhello\r\n0\r\n\r\n" },
    { 400, CHUNKED "0x5\r\nhello\r\n0\r\n\r\n" },
    { 400, CHUNKED "\r\nhello\r\n0\r\n\r\n" },
    { 400, CHUNKED "5;a\nb\r\nhello\r\n0\r\n\r\n" },
    { 400, CHUNKED "0\r\nX: y\nZ: 1\r\n\r\n" },
    { 400, CHUNKED "0\r\n X: y\r\n\r\n" },
    { 413, CHUNKED "FFFFFFFFFFFFFFFFF\r\n" },
    { 413, CHUNKED "3E9\r\n" },
    /* the first line, the host, the names */
    { 505, "GET /\r\nHost : x\r\n\r\n" },
    { 505, "GET / HTTP/2.0\r\n" HOST "\r\n" },
    { 505, "GET / HTTP/0.9\r\n" HOST "\r\n" },
    { 505, "GET / HTTP/1.10\r\n" HOST "\r\n" },
    { 505, "GET /\r\n\r\n" },
    { 501, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" },
    { 501, "BREW /pot HTTP/1.1\r\n" HOST "\r\n" },
    { 501, "CONNECT x:443 HTTP/1.1\r\n" HOST "\r\n" },
    { 400, "get / HTTP/1.1\r\n" HOST "\r\n" },
    { 400, "GET  / HTTP/1.1\r\n" HOST "\r\n" },
    { 400, "GET /  HTTP/1.1\r\n" HOST "\r\n" },
    { 400, "GET /a b HTTP/1.1\r\n" HOST "\r\n" },
    { 400, "GET /\xc3\xa9 HTTP/1.1\r\n" HOST "\r\n" },
    { 400, "GET /a\tb HTTP/1.1\r\n" HOST "\r\n" },
    { 400, "GET /#a HTTP/1.1\r\n" HOST "\r\n" },
    { 400, "GET a HTTP/1.1\r\n" HOST "\r\n" },
    { 400, "GET / ICE/1.0\r\n" HOST "\r\n" },
    { 400, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" },
    { 400, "GET / HTTP/1.1\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\n" HOST HOST "\r\n" },
    { 400, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\n" HOST ": novalue\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\n" HOST "No colon\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\n" HOST "X(Y): z\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\n" HOST "X: a\x01z\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\n" HOST "X: \x01z\r\n\r\n" },
    { 400, "GET / HTTP/1.1\r\n" HOST "X: \x7f\r\n\r\n" },
    { 417, POST "Expect: miracles\r\nContent-Length: 1\r\n\r\n" },
};

static void expect_refusal(struct kit *kit, const struct refusal *refusal)
{
    struct client *client = client_connect(kit);
    int handled = atomic_load(&kit->n_handled);
    struct answer answer;

    client_send(client, refusal->text);
    client_read(client, &answer);
    if (answer.status != refusal->status) {
        fail_msg("%d instead of %d for:\n%s\n%s", answer.status, refusal->status, refusal->text, answer.body);
    }
    assert_true(answer_has(&answer, "Connection: close\r\n"));
    assert_true(answer_has(&answer, "Content-Type: application/json\r\n"));
    assert_int_equal(strncmp(answer.body, "{\"error\":{\"code\":\"", 18), 0);
    client_expect_end(client);
    client_close(client);
    assert_int_equal(atomic_load(&kit->n_handled), handled);
}

/* L8: what could be read in two ways changes nothing, and nothing after it on the connection is done. */
static void a_malformed_request_is_refused_and_never_handled(void **state)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        expect_refusal(*state, &refusals[i]);
    }
    kit_expect_alive(*state);
}

static void malformed_requests_in_single_bytes_are_refused_too(void **state)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct client *client = client_connect(*state);
        struct answer answer;
        size_t len = strlen(refusals[i].text);

        for (size_t at = 0; at < len; at++) {
            client_send_n(client, refusals[i].text + at, 1);
            usleep(50);
        }
        client_read(client, &answer);
        if (answer.status != refusals[i].status) {
            fail_msg("%d instead of %d for:\n%s", answer.status, refusals[i].status, refusals[i].text);
        }
        client_close(client);
    }
}

static void a_name_with_a_nul_is_refused(void **state)
{
    static const char text[] = "GET / HTTP/1.1\r\nHost: x\r\nX\0Y: z\r\n\r\n";
    static const char value[] = "GET / HTTP/1.1\r\nHost: x\r\nX: y\0z\r\n\r\n";
    struct answer answer;
    struct client *client = client_connect(*state);

    client_send_n(client, text, sizeof text - 1);
    client_read(client, &answer);
    assert_int_equal(answer.status, 400);
    client_close(client);
    client = client_connect(*state);
    client_send_n(client, value, sizeof value - 1);
    client_read(client, &answer);
    assert_int_equal(answer.status, 400);
    client_close(client);
}

/* "GET /aaa… HTTP/1.1", "X: aaa…" and the like, of exactly the given length. */
static char *filled(const char *before, size_t n, const char *after)
{
    char *text = malloc(strlen(before) + n + strlen(after) + 1);

    assert_non_null(text);
    strcpy(text, before);
    memset(text + strlen(before), 'a', n);
    strcpy(text + strlen(before) + n, after);
    return text;
}

static void expect_status(struct kit *kit, char *text, int status)
{
    struct answer answer;

    ask(kit, text, &answer);
    assert_int_equal(answer.status, status);
    free(text);
}

static void each_kind_of_oversized_request_has_its_status(void **state)
{
    const char *end = " HTTP/1.1\r\nHost: x\r\n\r\n";
    const char *first = "GET / HTTP/1.1\r\nHost: x\r\nX: ";

    expect_status(*state, filled("GET /", SMALL_TARGET - 1, end), 200);
    expect_status(*state, filled("GET /", SMALL_TARGET, end), 414);
    expect_status(*state, filled("GET /", 100000, end), 414);
    expect_status(*state, filled(first, SMALL_HEAD - strlen(first) - 4, "\r\n\r\n"), 200);
    expect_status(*state, filled(first, SMALL_HEAD - strlen(first) - 3, "\r\n\r\n"), 431);
    expect_status(*state, filled(first, 100000, "\r\n\r\n"), 431);
    expect_status(*state, filled(POST "Content-Length: 1000\r\n\r\n", 1000, ""), 200);
    expect_status(*state, filled(POST "Content-Length: 1001\r\n\r\n", 1001, ""), 413);
    expect_status(*state, filled(CHUNKED "3E8\r\n", 1000, "\r\n0\r\n\r\n"), 200);
    expect_status(*state, filled(CHUNKED "3E8\r\n", 1000, "\r\n1\r\na\r\n0\r\n\r\n"), 413);
    expect_status(*state, filled(CHUNKED "1;", SMALL_HEAD, "\r\na\r\n0\r\n\r\n"), 413);
    kit_expect_alive(*state);
}

static void a_refusal_is_readable_although_the_body_is_still_on_its_way(void **state)
{
    struct client *client = client_connect(*state);
    struct answer answer;
    char *text = filled(POST "Content-Length: 2000000\r\n\r\n", 1000000, "");

    client_send(client, text);
    client_read(client, &answer);
    assert_int_equal(answer.status, 413);
    assert_int_equal(recv(client->fd, text, 1, 0),
                     0); /* an orderly end: a reset can take the answer with it */
    client_close(client);
    free(text);
}

static void there_may_be_64_headers(void **state)
{
    char text[4000] = "GET /echo HTTP/1.1\r\nHost: x\r\n";
    struct answer answer;

    for (int i = 0; i < 63; i++) {
        strcat(text, "A:b\r\n");
    }
    strcat(text, "\r\n");
    ask(*state, text, &answer);
    assert_int_equal(answer.status, 200);
    assert_true(answer_has(&answer, "X-Headers: 64\r\n"));
    strcpy(text + strlen(text) - 2, "A:b\r\n\r\n");
    ask(*state, text, &answer);
    assert_int_equal(answer.status, 431);
}

static void a_request_that_ends_early_is_refused_if_the_client_still_reads(void **state)
{
    const char *texts[] = { "GET / HT", POST "Content-Length: 5\r\n\r\nhel", CHUNKED "5\r\nhello\r\n" };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct client *client = client_connect(*state);
        struct answer answer;
        client_send(client, texts[i]);
        assert_int_equal(shutdown(client->fd, SHUT_WR), 0);
        client_read(client, &answer);
        assert_int_equal(answer.status, 400);
        client_expect_end(client);
        client_close(client);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_get_is_answered_with_date_and_length),
        cmocka_unit_test(every_method_that_terraform_uses_arrives),
        cmocka_unit_test(the_answer_to_head_has_a_length_and_no_body),
        cmocka_unit_test(a_204_has_neither_length_nor_body),
        cmocka_unit_test(a_connection_is_kept_unless_one_side_says_close),
        cmocka_unit_test(http_1_0_needs_no_host_and_closes_unless_asked),
        cmocka_unit_test(a_body_may_come_in_chunks_with_extensions_and_trailers),
        cmocka_unit_test(a_request_may_come_one_byte_at_a_time),
        cmocka_unit_test(a_client_that_expects_100_continue_gets_it),
        cmocka_unit_test(a_100_continue_is_sent_after_earlier_answers),
        cmocka_unit_test(a_body_that_is_too_large_is_refused_before_it_is_sent),
        cmocka_unit_test(an_unrequested_upgrade_is_an_ordinary_request),
        cmocka_unit_test(an_absolute_address_is_its_path),
        cmocka_unit_test(an_empty_line_before_a_request_is_ignored),
        cmocka_unit_test(a_header_cannot_break_an_answer_apart),
        cmocka_unit_test(a_malformed_request_is_refused_and_never_handled),
        cmocka_unit_test(malformed_requests_in_single_bytes_are_refused_too),
        cmocka_unit_test(a_name_with_a_nul_is_refused),
        cmocka_unit_test(each_kind_of_oversized_request_has_its_status),
        cmocka_unit_test(a_refusal_is_readable_although_the_body_is_still_on_its_way),
        cmocka_unit_test(there_may_be_64_headers),
        cmocka_unit_test(a_request_that_ends_early_is_refused_if_the_client_still_reads),
    };

    return cmocka_run_group_tests_name("http requests", tests, start, stop);
}
