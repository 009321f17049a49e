/* A connection without TLS, with deadlines and a way to be stopped; for http_plain.c only. */
#ifndef HTTP_CLIENT_PLAIN_CONN_H
#define HTTP_CLIENT_PLAIN_CONN_H

#include <sys/types.h>

#include "http_client/http.h"

/* How long one request may take, and who may end it. */
struct plain_limit {
    const struct http_request *request; /* borrowed; should_stop and wake_fd */
    int64_t until_ms;                   /* boot clock */
};

enum plain_io { PLAIN_DONE, PLAIN_TIMEOUT, PLAIN_STOPPED, PLAIN_FAILED }; /* FAILED: errno says why */

/* `host` without brackets. With `unix_path` neither it nor `port` counts. *out_fd is the caller's. */
enum plain_io plain_connect(const char *unix_path, const char *host, unsigned port,
                            const struct plain_limit *limit, int *out_fd, const char **out_why);

/* Nothing to read on it and not closed by the other side: it can be used again. */
bool plain_is_quiet(int fd);

/* All of it. *out_sent counts what was, also if the rest failed. */
enum plain_io plain_write(int fd, const char *data, size_t len, const struct plain_limit *limit,
                          size_t *out_sent);
/* At least one byte; 0 in *out_n is the end. */
enum plain_io plain_read(int fd, char *out, size_t size, const struct plain_limit *limit, size_t *out_n);

#endif
