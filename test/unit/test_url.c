/* src/http_parse/url.c: what is a URL, and what are its parts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "http_parse/url.h"

static void check(const char *text, const char *host, unsigned port, const char *path, const char *query)
{
    struct url url;

    if (!url_split(text, &url)) {
        fail_msg("'%s' is refused", text);
    }
    assert_int_equal(url.host.len, strlen(host));
    assert_memory_equal(url.host.at, host, url.host.len);
    assert_int_equal(url.port, port);
    assert_int_equal(url.path.len, strlen(path));
    assert_memory_equal(url.path.at, path, url.path.len);
    assert_int_equal(url.query.len, strlen(query));
    assert_memory_equal(url.query.at, query, url.query.len);
}

static void a_url_is_split_into_its_parts(void **state)
{
    (void)state;
    check("http://a", "a", 80, "", "");
    check("HTTPS://a.b-c_d/", "a.b-c_d", 443, "/", "");
    check("http://a:7420/x/y?p=q&r", "a", 7420, "/x/y", "p=q&r");
    check("http://a?p", "a", 80, "", "p");
    check("http://a/?", "a", 80, "/", "");
    check("http://a/b:c@d", "a", 80, "/b:c@d", "");
    check("http://[::1]:1/x", "::1", 1, "/x", "");
    check("http://[fe80::1%eth0]", "fe80::1%eth0", 80, "", "");
    check("http://a:65535#f", "a", 65535, "", "");
}

static void user_and_fragment_are_seen(void **state)
{
    struct url url;

    (void)state;
    assert_true(url_split("http://me:secret@a:1/", &url));
    assert_true(url.has_user && !url.has_fragment && url.has_port);
    assert_true(url_split("http://a/#me@b", &url));
    assert_true(!url.has_user && url.has_fragment && !url.has_port);
}

static void text_that_is_no_url_is_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "a",
        "ftp://a",
        "http:/a",
        "http://",
        "http:///x",
        "http://:80",
        "http://a:",
        "http://a:x",
        "http://a:-1",
        "http://a:65536",
        "http://a:1:2",
        "http://a b",
        "http://a/b c",
        "http://a\t",
        "http://[::1",
        "http://[]",
        "http://[g]",
        "http://[::1]x",
        "http://a@",
        "http://a@b@c",
        "http://a\\b",
        "http://%61",
        "http://a,b",
        "http://[::1%]",
        "http://a/\x7f",
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct url url;

        if (url_split(bad[i], &url)) {
            fail_msg("'%s' is taken for a URL", bad[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_url_is_split_into_its_parts),
        cmocka_unit_test(user_and_fragment_are_seen),
        cmocka_unit_test(text_that_is_no_url_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
