/*
 * Work that may take long, in a thread of a pool: the loop goes on meanwhile.
 *
 * A job is made by a handler in the loop's thread, worked on in another, and answered in the loop's again. Its work touches nothing of the server but
 * the client, which any thread may use, and what is said here to be for it.
 */
#ifndef SERVER_CORE_JOBS_H
#define SERVER_CORE_JOBS_H

#include <stdatomic.h>

#include "base/pool.h"
#include "server/core/server.h"

/* The key of a database's lock is this and its identifier. */
#define DB_LOCK_PREFIX "LOCK#DB#"

enum { JOBS_MAX = 64, JOBS_LONG_MAX = 16, JOB_BY_SIZE = 512, JOB_TAG_SIZE = 256 };

struct job {
    struct loop_task task;
    struct job *next, *prev;
    struct server *server;     /* borrowed */
    struct exchange *exchange; /* the loop's; for the work only what does not change: exchange_may_see() */
    struct pool_job in_pool;
    struct belay_cancel *cancel; /* owned; requested when the server stops */
    bool is_long;
    atomic_bool is_revoked; /* its token has lost its rights: what has not begun is not begun */
    void (*work)(struct job *job);
    /* For the work. */
    char key[BELAY_KEY_MAX + 1];     /* the name in the path */
    char more[2][BELAY_KEY_MAX + 1]; /* further names in it */
    enum role role;
    char who[AUTH_NAME_MAX + 1];         /* the token's name; "" without tokens */
    unsigned char hash[AUTH_HASH_BYTES]; /* of the token; zeros without one */
    char by[JOB_BY_SIZE];
    char *body; /* owned; of the request */
    size_t body_len;
    char *query;                                  /* owned; as it came */
    char *if_match, *if_none_match, *content_md5; /* owned; headers; NULL: not there */
    /* Its result: an answer, or an error. */
    char *answer;              /* owned; JSON */
    size_t answer_len;         /* 0: it is a text */
    struct http_shared shared; /* or this; data NULL: nothing */
    const char *type;          /* of either; NULL: JSON */
    int status;                /* of either; 0: 200, or what the error says */
    char etag[JOB_TAG_SIZE];   /* "": none */
    struct belay_error err;
};

struct jobs {
    struct pool *pool; /* owned; a thread for each, so that none waits for another */
    struct job *first;
    size_t n;
    size_t n_long;
};

/* False without memory. */
bool jobs_open(struct server *server);
/* Answers the exchange later, or at once with 503 if there are too many. */
void job_start(struct exchange *x, void (*work)(struct job *job), bool is_long);
/*
 * The name under which something is recorded: what they say, marked with who they are (the
 * token's name, else where the request came from); said NULL: who they are.
 * BELAY_INVALID if that is no name.
 */
enum belay_code job_name_by(struct job *job, const char *said, char *out, size_t size);
/* A value of the query, decoded; false if it is not there or too long. */
bool job_query(const struct job *job, const char *name, char *out, size_t size);
/* Ask all to end: what waits or runs a command answers soon after. */
void jobs_cancel(struct server *server);
/* Tell stops and starts whose token has lost its rights: the tokens were read again. */
void jobs_revoke(struct server *server);
/* The same, and wait for them; then there are no more. */
void jobs_close(struct server *server);

/* For any thread: a line of the log, and an event that on_event() then gets in the loop's. */
void server_say(struct server *server, enum log_level level, const char *event, const char *text);
void server_post_event(struct server *server, const struct belay_event *event);
/* What the client calls for every event, in whichever thread (serve.c). */
void server_on_event(void *context, const struct belay_event *event);

#endif
