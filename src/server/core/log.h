/* The log: one line for each request and notice, JSON or text, on standard error. Never a token or a lock id. */
#ifndef SERVER_CORE_LOG_H
#define SERVER_CORE_LOG_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct log {
    struct buf out; /* written at the end of a turn: one write for many lines */
    bool is_json;
    bool is_file;          /* standard error is a file or closed: writing does not block */
    pthread_mutex_t mutex; /* a store on the network warns from its own threads */
};

enum log_level { LOG_INFO, LOG_WARN, LOG_ERROR };

struct log_request {
    const char *id;
    const char *method;
    const char *path; /* without the query, which may hold secrets */
    const char *peer;
    const char *who;
    const char *reason; /* of a 5xx; NULL: none */
    int status;         /* 499: the client was gone before the answer */
    int64_t duration_ms;
};

void log_begin(struct log *log, bool is_json);
void log_request(struct log *log, const struct log_request *line);
void log_note(struct log *log, enum log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void log_flush(struct log *log); /* as much as the reader takes */
void log_end(struct log *log);   /* waits for a slow reader, but not for long */

#endif
