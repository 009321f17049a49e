/* TLS by OpenSSL, without blocking. */
#include "server/http/http_internal.h"

#include <errno.h>
#include <limits.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

#define PLAIN_ANSWER                                                                                         \
    "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: application/json\r\n"                    \
    "\r\n{\"error\":{\"code\":\"bad_request\",\"message\":\"this port speaks TLS only: use https://\"}}\n"

static enum belay_code tls_refused(struct belay_error *err, const char *what, const char *file)
{
    char text[256] = "";
    unsigned long problem = ERR_get_error();

    ERR_error_string_n(problem, text, sizeof text);
    ERR_clear_error();
    if (ERR_GET_LIB(problem) == ERR_LIB_PEM && ERR_GET_REASON(problem) == PEM_R_NO_START_LINE) {
        return error_set(err, BELAY_CONFIG, "%s '%s': not a PEM file, which has a line '-----BEGIN ...'",
                         what, file);
    }
    if (ERR_GET_LIB(problem) == ERR_LIB_SYS) {
        return error_set(err, BELAY_CONFIG, "%s '%s': %s", what, file, strerror(ERR_GET_REASON(problem)));
    }
    return error_set(
        err, BELAY_CONFIG, "%s '%s': %s", what, file,
        problem == 0 ? "not usable"
                     : (ERR_reason_error_string(problem) != NULL ? ERR_reason_error_string(problem) : text));
}

/* ---- input and output ---- */

/*
 * OpenSSL's own socket BIO raises SIGPIPE when the client has gone. A library does
 * not change the program's signals, so OpenSSL gets a BIO that does not raise it.
 */
static BIO_METHOD *method; /* made once, for the life of the process */
static pthread_once_t made_once = PTHREAD_ONCE_INIT;

static int fd_of(BIO *bio)
{
    const struct conn *conn = BIO_get_data(bio);

    return conn->watch.fd;
}

static int bio_write(BIO *bio, const char *data, int len)
{
    ssize_t n = send(fd_of(bio), data, (size_t)len, MSG_NOSIGNAL);

    BIO_clear_retry_flags(bio);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        BIO_set_retry_write(bio);
    }
    return (int)n;
}

static int bio_read(BIO *bio, char *out, int size)
{
    ssize_t n = recv(fd_of(bio), out, (size_t)size, 0);

    BIO_clear_retry_flags(bio);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
        BIO_set_retry_read(bio);
    }
    if (n == 0) {
        BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
    }
    return (int)n;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    (void)number;
    (void)pointer;
    if (command == BIO_CTRL_EOF) {
        return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
    }
    return command == BIO_CTRL_FLUSH || command == BIO_CTRL_DUP ? 1 : 0;
}

static void make_method(void)
{
    method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "belay connection");
    if (method == NULL) {
        return;
    }
    BIO_meth_set_write(method, bio_write);
    BIO_meth_set_read(method, bio_read);
    BIO_meth_set_ctrl(method, bio_control);
}

static BIO *bio_new(struct conn *conn)
{
    BIO *bio;

    pthread_once(&made_once, make_method);
    bio = method == NULL ? NULL : BIO_new(method);
    if (bio != NULL) {
        BIO_set_data(bio, conn);
        BIO_set_init(bio, 1);
    }
    return bio;
}

/* ---- certificates ---- */

/* HTTP/1.1 if the client offers it; nothing else is supported. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                           const unsigned char *in, unsigned in_len, void *context)
{
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *chosen = NULL;

    (void)ssl;
    (void)context;
    if (SSL_select_next_proto(&chosen, out_len, ours, sizeof ours - 1, in, in_len) !=
        OPENSSL_NPN_NEGOTIATED) {
        return SSL_TLSEXT_ERR_NOACK;
    }
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

enum belay_code tls_load(const char *certificate, const char *key, SSL_CTX **out_tls, struct belay_error *err)
{
    SSL_CTX *tls = SSL_CTX_new(TLS_server_method());
    enum belay_code code = BELAY_OK;

    if (tls == NULL) {
        return error_no_memory(err);
    }
    ERR_clear_error();
    SSL_CTX_set_min_proto_version(tls, TLS1_2_VERSION);
    SSL_CTX_set_options(tls,
                        SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_mode(tls, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_alpn_select_cb(tls, choose_protocol, NULL);
    if (SSL_CTX_use_certificate_chain_file(tls, certificate) != 1) {
        code = tls_refused(err, "the TLS certificate", certificate);
    } else if (SSL_CTX_use_PrivateKey_file(tls, key, SSL_FILETYPE_PEM) != 1) {
        code = tls_refused(err, "the TLS key", key);
    } else if (SSL_CTX_check_private_key(tls) != 1) {
        code = tls_refused(err, "the TLS key does not belong to the certificate", certificate);
    }
    if (code == BELAY_OK) {
        *out_tls = tls;
        tls = NULL;
    }
    SSL_CTX_free(tls);
    return code;
}

bool tls_start(struct conn *conn)
{
    BIO *bio = bio_new(conn);

    conn->ssl = conn->server->tls == NULL ? NULL : SSL_new(conn->server->tls);
    if (conn->ssl == NULL || bio == NULL) {
        BIO_free(bio);
        ERR_clear_error();
        return false;
    }
    SSL_set_bio(conn->ssl, bio, bio); /* takes over the one reference, for both directions */
    SSL_set_accept_state(conn->ssl);
    return true;
}

/* Must be called right after the call that failed. IO_AGAIN, IO_FAILED, or 0 at a proper end. */
static int tls_result(struct conn *conn, int result)
{
    switch (SSL_get_error(conn->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        return IO_AGAIN;
    case SSL_ERROR_WANT_WRITE:
        conn->tls_wants_out = true;
        return IO_AGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    default:
        return IO_FAILED;
    }
}

/* The client uses http:// for https://: answer in plain HTTP. */
static void answer_plain_http(struct conn *conn, unsigned long problem)
{
    if (ERR_GET_REASON(problem) == SSL_R_HTTP_REQUEST) {
        /* Closing with something unread would take the answer back. */
        (void)recv(conn->watch.fd, conn->server->scratch, sizeof conn->server->scratch, MSG_DONTWAIT);
        (void)send(conn->watch.fd, PLAIN_ANSWER, sizeof PLAIN_ANSWER - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)shutdown(conn->watch.fd, SHUT_WR);
    }
}

int tls_handshake(struct conn *conn)
{
    char text[256];
    const char *reason;
    unsigned long problem;
    int result;
    int outcome;

    ERR_clear_error();
    conn->tls_wants_out = false;
    result = SSL_accept(conn->ssl);
    if (result == 1) {
        return 1;
    }
    outcome = tls_result(conn, result);
    if (outcome == IO_AGAIN) {
        return IO_AGAIN;
    }
    problem = ERR_get_error();
    reason = problem == 0 ? "the client went away" : ERR_reason_error_string(problem);
    answer_plain_http(conn, problem);
    ERR_clear_error();
    (void)snprintf(text, sizeof text, "the TLS handshake failed: %s", reason == NULL ? "unknown" : reason);
    server_notice(conn->server, conn, 0, text);
    return IO_FAILED;
}

ssize_t tls_recv(struct conn *conn, char *out, size_t size)
{
    int n;

    ERR_clear_error();
    n = SSL_read(conn->ssl, out, (int)(size > INT_MAX ? INT_MAX : size));
    return n > 0 ? n : tls_result(conn, n);
}

ssize_t tls_send(struct conn *conn, const char *data, size_t len)
{
    int n;
    int outcome;

    ERR_clear_error();
    n = SSL_write(conn->ssl, data, (int)(len > INT_MAX ? INT_MAX : len));
    if (n > 0) {
        return n;
    }
    outcome = tls_result(conn, n);
    return outcome == IO_AGAIN ? IO_AGAIN : IO_FAILED;
}

bool tls_has_more(const struct conn *conn)
{
    return SSL_has_pending(conn->ssl) == 1;
}

void tls_close_notify(struct conn *conn)
{
    if (conn->ssl != NULL && conn->state == CONN_OPEN) {
        ERR_clear_error();
        (void)SSL_shutdown(conn->ssl);
        ERR_clear_error();
    }
}
