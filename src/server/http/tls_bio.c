/*
 * OpenSSL's own socket BIO raises SIGPIPE when the client has gone. A library does
 * not change the program's signals, so OpenSSL gets a BIO that does not raise it.
 */
#include "server/http/http_internal.h"

#include <errno.h>
#include <openssl/bio.h>
#include <pthread.h>

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

BIO *tls_bio_new(struct conn *conn)
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
