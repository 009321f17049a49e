/* TLS: agreed on, refused, reloaded. The server runs in a thread (pthread_create in http_kit.c). */
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "http_kit.h"

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"

static char directory[] = "/tmp/belay-http-tls-XXXXXX";
static char certificate[64];
static char key[64];

static FILE *open_file(const char *path)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    return file;
}

/* A certificate that signs itself, for the name given. */
static void make_certificate(const char *name)
{
    EVP_PKEY *pair = EVP_EC_gen("P-256");
    X509 *made = X509_new();
    X509_NAME *subject;
    FILE *file;

    assert_non_null(pair);
    assert_non_null(made);
    X509_set_version(made, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made), 1);
    X509_gmtime_adj(X509_getm_notBefore(made), -60);
    X509_gmtime_adj(X509_getm_notAfter(made), 3600);
    X509_set_pubkey(made, pair);
    subject = X509_get_subject_name(made);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(made, subject);
    assert_true(X509_sign(made, pair, EVP_sha256()) > 0);
    file = open_file(certificate);
    assert_int_equal(PEM_write_X509(file, made), 1);
    assert_int_equal(fclose(file), 0);
    file = open_file(key);
    assert_int_equal(PEM_write_PrivateKey(file, pair, NULL, NULL, 0, NULL, NULL), 1);
    assert_int_equal(fclose(file), 0);
    X509_free(made);
    EVP_PKEY_free(pair);
}

static int start(void **state)
{
    struct kit_options options = { .certificate = certificate,
                                   .key = key,
                                   .limits = { .handshake_ms = 200 } };

    assert_non_null(mkdtemp(directory));
    (void)snprintf(certificate, sizeof certificate, "%s/cert.pem", directory);
    (void)snprintf(key, sizeof key, "%s/key.pem", directory);
    make_certificate("first");
    *state = kit_start(&options);
    return 0;
}

static int stop(void **state)
{
    kit_stop(*state);
    unlink(certificate);
    unlink(key);
    rmdir(directory);
    return 0;
}

/* NULL if the server does not agree to `version`. */
static struct client *tls_connect(struct kit *kit, int version)
{
    static const unsigned char offers[] = "\x02h2\x08http/1.1";
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    struct client *client = client_connect(kit);
    SSL *ssl;

    assert_non_null(context);
    SSL_CTX_set_security_level(context, 0);
    SSL_CTX_set_min_proto_version(context, version);
    SSL_CTX_set_max_proto_version(context, version);
    SSL_CTX_set_alpn_protos(context, offers, sizeof offers - 1);
    ssl = SSL_new(context);
    assert_non_null(ssl);
    SSL_set_fd(ssl, client->fd);
    client->ssl = ssl;
    SSL_CTX_free(context);
    if (SSL_connect(ssl) != 1) {
        client_close(client);
        return NULL;
    }
    return client;
}

static void expect_name(struct client *client, const char *name)
{
    X509 *theirs = SSL_get1_peer_certificate(client->ssl);
    char text[64] = "";

    assert_non_null(theirs);
    X509_NAME_get_text_by_NID(X509_get_subject_name(theirs), NID_commonName, text, sizeof text);
    assert_string_equal(text, name);
    X509_free(theirs);
}

static void requests_come_and_answers_go_over_tls_1_2_and_1_3(void **state)
{
    const int versions[] = { TLS1_2_VERSION, TLS1_3_VERSION };

    for (int i = 0; i < 2; i++) {
        struct client *client = tls_connect(*state, versions[i]);
        const unsigned char *protocol = NULL;
        unsigned protocol_len = 0;
        struct answer answer;

        assert_non_null(client);
        SSL_get0_alpn_selected(client->ssl, &protocol, &protocol_len);
        assert_int_equal(protocol_len, 8);
        assert_memory_equal(protocol, "http/1.1", 8);
        client_send(client, GET("/who") GET("/2") GET("/big?bytes=60000"));
        client_read(client, &answer);
        assert_non_null(strstr(answer.body, "tls=1"));
        client_read(client, &answer);
        assert_string_equal(answer.body, "/2");
        client_read(client, &answer);
        assert_int_equal(answer.body_len, 60000);
        client_send(client, GET("/shared?bytes=3000000"));
        client_expect_shared(client, 3000000);
        client_close(client);
    }
}

static void tls_1_1_is_refused(void **state)
{
    assert_null(tls_connect(*state, TLS1_1_VERSION));
}

static void a_large_body_arrives_over_tls(void **state)
{
    struct client *client = tls_connect(*state, TLS1_3_VERSION);
    struct answer answer;
    char *body = malloc(60001);

    assert_non_null(client);
    assert_non_null(body);
    memset(body, 'x', 60000);
    body[60000] = '\0';
    client_send(client, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n");
    client_send(client, body);
    client_read(client, &answer);
    assert_int_equal(answer.body_len, 60000);
    client_close(client);
    free(body);
}

/* One record may hold more requests than may be under way at a time. */
static void requests_buffered_by_openssl_are_not_forgotten(void **state)
{
    struct client *client = tls_connect(*state, TLS1_3_VERSION);
    struct answer answer;
    char text[16000] = "";

    assert_non_null(client);
    for (int i = 0; i < 200; i++) {
        strcat(text, GET("/again"));
    }
    client_send(client, text);
    client_send(client, text);
    for (int i = 0; i < 400; i++) {
        client_read(client, &answer);
        assert_string_equal(answer.body, "/again");
    }
    client_close(client);
}

static void a_waiting_client_that_disconnects_is_noticed(void **state)
{
    struct kit *kit = *state;
    struct client *client = tls_connect(kit, TLS1_3_VERSION);

    assert_non_null(client);
    client_send(client, GET("/wait"));
    kit_until(&kit->n_waiting_now, 1);
    client_close(client); /* without a word of TLS */
    kit_until(&kit->n_gone, 1);
    assert_int_equal(atomic_load(&kit->n_waiting_now), 0);
}

static void a_plain_http_request_to_a_tls_port_is_answered(void **state)
{
    struct client *client = client_connect(*state);
    struct answer answer;

    client_send(client, GET("/"));
    client_read(client, &answer);
    assert_int_equal(answer.status, 400);
    client_close(client);
}

static void a_handshake_that_never_ends_is_cut_off(void **state)
{
    struct client *silent = client_connect(*state);
    struct client *begun = client_connect(*state);
    struct client *good;

    client_send_n(begun, "\x16\x03\x01\x02", 4);
    good = tls_connect(*state, TLS1_3_VERSION);
    assert_non_null(good);
    client_close(good);
    client_expect_end(silent);
    client_expect_end(begun);
    client_close(silent);
    client_close(begun);
}

static void reload(struct kit *kit, void *context)
{
    struct belay_error err = BELAY_ERROR_INIT;

    *(enum belay_code *)context = http_server_reload_tls(kit->server, &err);
}

static void a_new_certificate_is_shown_to_new_connections_only(void **state)
{
    struct client *old = tls_connect(*state, TLS1_3_VERSION);
    struct client *fresh;
    struct answer answer;
    enum belay_code code = BELAY_BUG;

    assert_non_null(old);
    expect_name(old, "first");
    make_certificate("second");
    kit_call(*state, reload, &code);
    assert_int_equal(code, BELAY_OK);
    fresh = tls_connect(*state, TLS1_3_VERSION);
    assert_non_null(fresh);
    expect_name(fresh, "second");
    client_send(old, GET("/old"));
    client_read(old, &answer);
    assert_string_equal(answer.body, "/old");
    client_close(old);
    client_close(fresh);
}

static void a_bad_certificate_changes_nothing(void **state)
{
    enum belay_code code = BELAY_OK;
    struct client *client;
    FILE *file = open_file(certificate);

    (void)fputs("not a certificate\n", file);
    assert_int_equal(fclose(file), 0);
    kit_call(*state, reload, &code);
    assert_int_equal(code, BELAY_CONFIG);
    client = tls_connect(*state, TLS1_3_VERSION);
    assert_non_null(client);
    expect_name(client, "second");
    client_close(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_come_and_answers_go_over_tls_1_2_and_1_3),
        cmocka_unit_test(tls_1_1_is_refused),
        cmocka_unit_test(a_large_body_arrives_over_tls),
        cmocka_unit_test(requests_buffered_by_openssl_are_not_forgotten),
        cmocka_unit_test(a_waiting_client_that_disconnects_is_noticed),
        cmocka_unit_test(a_plain_http_request_to_a_tls_port_is_answered),
        cmocka_unit_test(a_handshake_that_never_ends_is_cut_off),
        cmocka_unit_test(a_new_certificate_is_shown_to_new_connections_only),
        cmocka_unit_test(a_bad_certificate_changes_nothing),
    };

    return cmocka_run_group_tests_name("http over TLS", tests, start, stop);
}
