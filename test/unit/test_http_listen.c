/* Where the server listens. No thread here: the loop is turned by hand. */
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "http_kit.h"

struct site {
    struct loop *loop;
    struct http_server *server;
    char path[64];
};

static void handle(void *context, struct http_request *request)
{
    (void)context;
    http_answer(request, 200, NULL, 0, "ok", 2);
}

static int start(void **state)
{
    struct site *site = calloc(1, sizeof *site);

    assert_non_null(site);
    site->loop = loop_new();
    (void)snprintf(site->path, sizeof site->path, "/tmp/belay-listen-%d.sock", (int)getpid());
    *state = site;
    return 0;
}

static int stop(void **state)
{
    struct site *site = *state;

    http_server_close(site->server);
    loop_free(site->loop);
    unlink(site->path);
    free(site);
    return 0;
}

static enum belay_code open_at(struct site *site, struct http_listen where, struct belay_error *err)
{
    struct http_options options = { .listen = &where, .n_listen = 1, .handle = handle };

    http_server_close(site->server);
    site->server = NULL;
    return http_server_open(site->loop, &options, &site->server, err);
}

static int client_of(const struct sockaddr *address, socklen_t len)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    if (connect(fd, address, len) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static int unix_client(const char *path)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };

    memcpy(un.sun_path, path, strlen(path) + 1);
    return client_of((struct sockaddr *)&un, sizeof un);
}

static void expect_served(struct site *site, int fd)
{
    const char *text = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    char answer[256] = "";

    assert_true(fd >= 0);
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
    for (int i = 0; i < 5; i++) {
        assert_true(loop_turn(site->loop, 10));
    }
    assert_true(recv(fd, answer, sizeof answer - 1, MSG_DONTWAIT) > 0);
    assert_int_equal(strncmp(answer, "HTTP/1.1 200 ", 13), 0);
    close(fd);
}

static void an_invalid_address_is_refused_by_name(void **state)
{
    const char *bad[] = { "",           "7420",           "localhost",
                          "localhost:", "localhost:http", "::1:7420",
                          "[::1:7420",  "unix:",          "no.such.host.invalid:1" };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct belay_error err = BELAY_ERROR_INIT;
        assert_int_equal(open_at(*state, (struct http_listen){ .address = bad[i] }, &err), BELAY_INVALID);
        assert_non_null(strstr(err.text, i == 7 ? "socket" : bad[i]));
    }
}

static void a_port_in_use_is_refused_with_its_name(void **state)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct site other = { .loop = ((struct site *)*state)->loop };
    char address[64];

    assert_int_equal(open_at(*state, (struct http_listen){ .address = "127.0.0.1:0" }, &err), BELAY_OK);
    (void)snprintf(address, sizeof address, "%s", http_server_address(((struct site *)*state)->server, 0));
    assert_int_equal(open_at(&other, (struct http_listen){ .address = address }, &err), BELAY_UNREACHABLE);
    assert_non_null(strstr(err.text, address));
    assert_null(other.server);
}

static void a_name_opens_every_address_it_has(void **state)
{
    struct site *site = *state;
    struct belay_error err = BELAY_ERROR_INIT;
    bool has_ipv4 = false;

    assert_int_equal(open_at(site, (struct http_listen){ .address = "localhost:0" }, &err), BELAY_OK);
    for (size_t i = 0; http_server_address(site->server, i) != NULL; i++) {
        const char *address = http_server_address(site->server, i);
        has_ipv4 = has_ipv4 || strncmp(address, "127.0.0.1:", 10) == 0;
        assert_true(strncmp(address, "127.0.0.1:", 10) == 0 || strncmp(address, "[::1]:", 6) == 0);
    }
    assert_true(has_ipv4);
}

static void a_unix_socket_is_for_its_owner_and_goes_with_the_server(void **state)
{
    struct site *site = *state;
    struct belay_error err = BELAY_ERROR_INIT;
    char address[80];
    struct stat st;

    (void)snprintf(address, sizeof address, "unix:%s", site->path);
    assert_int_equal(open_at(site, (struct http_listen){ .address = address }, &err), BELAY_OK);
    assert_int_equal(stat(site->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    expect_served(site, unix_client(site->path));
    http_server_close(site->server);
    site->server = NULL;
    assert_int_not_equal(stat(site->path, &st), 0);
}

static void a_stale_unix_socket_is_replaced_and_a_live_one_is_not(void **state)
{
    struct site *site = *state;
    struct site other = { .loop = site->loop };
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    struct belay_error err = BELAY_ERROR_INIT;
    char address[80];
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    memcpy(un.sun_path, site->path, strlen(site->path) + 1);
    assert_int_equal(bind(fd, (struct sockaddr *)&un, sizeof un), 0);
    close(fd); /* as a server does that is killed */
    (void)snprintf(address, sizeof address, "unix:%s", site->path);
    assert_int_equal(open_at(site, (struct http_listen){ .address = address, .unix_mode = 0666 }, &err),
                     BELAY_OK);
    assert_int_equal(open_at(&other, (struct http_listen){ .address = address }, &err), BELAY_UNREACHABLE);
    expect_served(site, unix_client(site->path));
}

static void a_file_in_the_way_of_a_unix_socket_is_left_alone(void **state)
{
    struct site *site = *state;
    struct belay_error err = BELAY_ERROR_INIT;
    struct stat st;
    char address[80];
    FILE *file = fopen(site->path, "w");

    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    (void)snprintf(address, sizeof address, "unix:%s", site->path);
    assert_int_equal(open_at(site, (struct http_listen){ .address = address }, &err), BELAY_UNREACHABLE);
    assert_int_equal(stat(site->path, &st), 0);
    assert_true(S_ISREG(st.st_mode));
}

/* Issue 4: systemd's socket activation. */
static void an_inherited_socket_is_served(void **state)
{
    struct site *site = *state;
    struct sockaddr_in in = { .sin_family = AF_INET };
    socklen_t len = sizeof in;
    struct belay_error err = BELAY_ERROR_INIT;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(open_at(site, (struct http_listen){ .fd = fd }, &err),
                     BELAY_INVALID); /* not listening */
    assert_int_equal(bind(fd, (struct sockaddr *)&in, sizeof in), 0);
    assert_int_equal(listen(fd, 10), 0);
    assert_int_equal(open_at(site, (struct http_listen){ .fd = fd }, &err), BELAY_OK);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &len), 0);
    expect_served(site, client_of((struct sockaddr *)&in, sizeof in));
    assert_int_equal(open_at(site, (struct http_listen){ .fd = 9999 }, &err), BELAY_INVALID);
}

static void tls_without_a_certificate_is_refused(void **state)
{
    struct belay_error err = BELAY_ERROR_INIT;

    assert_int_equal(open_at(*state, (struct http_listen){ .address = "127.0.0.1:0", .is_tls = true }, &err),
                     BELAY_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_invalid_address_is_refused_by_name, start, stop),
        cmocka_unit_test_setup_teardown(a_port_in_use_is_refused_with_its_name, start, stop),
        cmocka_unit_test_setup_teardown(a_name_opens_every_address_it_has, start, stop),
        cmocka_unit_test_setup_teardown(a_unix_socket_is_for_its_owner_and_goes_with_the_server, start, stop),
        cmocka_unit_test_setup_teardown(a_stale_unix_socket_is_replaced_and_a_live_one_is_not, start, stop),
        cmocka_unit_test_setup_teardown(a_file_in_the_way_of_a_unix_socket_is_left_alone, start, stop),
        cmocka_unit_test_setup_teardown(an_inherited_socket_is_served, start, stop),
        cmocka_unit_test_setup_teardown(tls_without_a_certificate_is_refused, start, stop),
    };

    return cmocka_run_group_tests_name("http listening", tests, NULL, NULL);
}
