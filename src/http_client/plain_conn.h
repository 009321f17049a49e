/* A connection without TLS, with deadlines and cancellation; for http_plain.c only. */
#ifndef HTTP_CLIENT_PLAIN_CONN_H
#define HTTP_CLIENT_PLAIN_CONN_H

#include <sys/types.h>

#include "http_client/http.h"

/* The deadline of one request, and its cancellation. */
struct plain_limit {
    const struct http_client_request *request; /* borrowed; its cancel, should_stop and wake_fd */
    int64_t until_ms;                          /* boot clock */
};

enum plain_io { PLAIN_DONE, PLAIN_TIMEOUT, PLAIN_STOPPED, PLAIN_FAILED }; /* FAILED: errno says why */

/* `host` without brackets. With `unix_path`, `host` and `port` are ignored. *out_fd is the caller's. */
enum plain_io plain_connect(const char *unix_path, const char *host, unsigned port,
                            const struct plain_limit *limit, int *out_fd, const char **out_why);

/* Nothing to read and not closed by the peer: it can be reused. */
bool plain_is_quiet(int fd);

/* Writes everything. *out_sent counts the bytes, also after a failure. */
enum plain_io plain_write(int fd, const char *data, size_t len, const struct plain_limit *limit,
                          size_t *out_sent);
/* Reads at least one byte; 0 in *out_n is the end. */
enum plain_io plain_read(int fd, char *out, size_t size, const struct plain_limit *limit, size_t *out_n);

#endif
