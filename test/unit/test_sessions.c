/* Sessions of the dashboard: their life and number, which tests of a real server would have to wait for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <openssl/sha.h>

#include "server/core/sessions.h"

enum { NOW = 1000 };

/* That of auth.c, which needs the rest of the server. */
void token_hash(const char *secret, size_t len, unsigned char out[AUTH_HASH_BYTES])
{
    (void)SHA256((const unsigned char *)secret, len, out);
}

static struct http_header headers[2] = { { "Host", "belay.example:7420" }, { "Cookie", "" } };
static const struct http_request request = { .method = "GET", .headers = headers, .n_headers = 2 };

/* The table of these first tokens; each has its number as its hash. */
static struct tokens tokens_of(struct token *items, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        memset(&items[i], 0, sizeof items[i]);
        memcpy(items[i].hash, &i, sizeof i);
        items[i].role = ROLE_READER;
    }
    return (struct tokens){ .items = items, .n = n, .n_refs = 1 };
}

/* The cookie of a new session, as a browser sends it. */
static const char *begin(struct sessions *sessions, const struct token *token, int64_t now_ms)
{
    static char cookies[4][SESSION_COOKIE_SIZE];
    static size_t n;
    char *cookie = cookies[n++ % 4];

    assert_true(session_begin(sessions, token, &request, now_ms, cookie));
    cookie[strcspn(cookie, ";")] = '\0';
    return cookie;
}

static bool is_good(const struct sessions *sessions, const struct tokens *tokens, const char *cookie,
                    int64_t now_ms)
{
    const struct token *token = NULL;
    uint64_t number = 0;

    headers[1].value = cookie;
    return session_check(sessions, tokens, &request, now_ms, &token, &number) == AUTH_OK && number > 0;
}

static void a_session_ends_after_its_time(void **state)
{
    struct token items[1];
    struct tokens tokens = tokens_of(items, 1);
    struct sessions sessions = { 0 };
    const char *cookie = begin(&sessions, &items[0], NOW);

    (void)state;
    assert_true(is_good(&sessions, &tokens, cookie, NOW));
    assert_true(is_good(&sessions, &tokens, cookie, NOW + SESSION_MS - 1));
    assert_false(is_good(&sessions, &tokens, cookie, NOW + SESSION_MS));
    (void)begin(&sessions, &items[0], NOW + SESSION_MS);
    assert_int_equal(sessions.n, 1); /* the one that ended is gone */
    sessions_release(&sessions);
}

static void the_oldest_session_ends_when_there_are_too_many(void **state)
{
    enum { TOKENS = SESSIONS_MAX / SESSIONS_PER_TOKEN + 1 };
    struct token items[TOKENS];
    struct tokens tokens = tokens_of(items, TOKENS);
    struct sessions sessions = { 0 };
    char first[SESSION_COOKIE_SIZE];
    char second[SESSION_COOKIE_SIZE];
    const char *last;

    (void)state;
    (void)snprintf(first, sizeof first, "%s", begin(&sessions, &items[0], NOW));
    (void)snprintf(second, sizeof second, "%s", begin(&sessions, &items[1], NOW));
    for (size_t i = 2; i < SESSIONS_MAX; i++) {
        (void)begin(&sessions, &items[i % TOKENS], NOW);
    }
    assert_true(is_good(&sessions, &tokens, first, NOW));
    last = begin(&sessions, &items[2], NOW);
    assert_int_equal(sessions.n, SESSIONS_MAX);
    assert_false(is_good(&sessions, &tokens, first, NOW));
    assert_true(is_good(&sessions, &tokens, second, NOW));
    assert_true(is_good(&sessions, &tokens, last, NOW));
    sessions_release(&sessions);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_ends_after_its_time),
        cmocka_unit_test(the_oldest_session_ends_when_there_are_too_many),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
