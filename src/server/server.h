/*
 * The HTTP API of `belay serve`, over include/belay.h and the front in
 * src/server/http. For src/server only. One thread: the loop's.
 */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include <jansson.h>

#include "belay.h"
#include "server/auth.h"
#include "server/http/http_server.h"
#include "server/log.h"
#include "server/waits.h"

struct route;
struct feed;

struct server {
    struct loop *loop;           /* owned */
    struct http_server *http;    /* owned */
    struct belay_client *client; /* owned */
    struct belay_config *config; /* owned; the client borrows it, so it stays as it was at the start */
    struct tokens tokens;        /* owned; replaced on SIGHUP */
    struct delays delays;        /* answers to wrong tokens that are held back */
    struct waits waits;
    struct feed *feed; /* owned; those who listen to events */
    struct log log;
    struct timer turn_timer; /* when the client has more to do */
    char run[17];            /* what begins the ids of this run's requests */
    bool is_insecure;        /* --insecure */
    bool is_draining;
    bool has_failed; /* the store cannot say what is on disk */
    char *openapi;   /* owned; made once */
};

enum { REQUEST_ID_SIZE = 65 };

/* One request that is being answered. */
struct exchange {
    struct server *server;        /* borrowed */
    struct http_request *request; /* borrowed; NULL once the client is gone */
    const struct route *route;    /* NULL: none fits */
    const struct token *token;    /* borrowed; for the handler only: SIGHUP may end it */
    struct wait *wait;            /* borrowed; NULL: waits for no lock */
    struct listener_entry *entry; /* borrowed; NULL: listens to no events */
    const char *allow;            /* borrowed; with a 405: the methods of this path */
    enum role role;
    char who[AUTH_NAME_MAX + 1]; /* "" if nobody had to say */
    char id[REQUEST_ID_SIZE];
    char key[BELAY_KEY_MAX + 1]; /* "" until it is known */
};

/* ---- exchange.c ---- */

/* What the HTTP front calls. */
void exchange_handle(void *context, struct http_request *request);

/* Each answers, writes the log line and frees the exchange. */
void reply(struct exchange *x, int status, json_t *body); /* takes the body */
/* 200 and the lock, with its id: for who has just named it or been given it. */
void reply_lock(struct exchange *x, const struct belay_info *info);
void reply_text(struct exchange *x, int status, const char *type, const char *text, size_t len);
void reply_error(struct exchange *x, const struct belay_error *err);
/* `more` (taken; may be NULL) is an object whose members are added to the error. */
void reply_error_with(struct exchange *x, int status, const struct belay_error *err, json_t *more);
void reply_problem(struct exchange *x, int status, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The client is gone, or its stream has ended: only the log line is left to do. */
void exchange_end(struct exchange *x, int status);

int status_of(enum belay_code code);

/* The name under which what was done is recorded: who authenticated, else where it came from. */
void exchange_by(const struct exchange *x, char *out, size_t size);

/* False, and answered, if the token may not touch this key. */
bool exchange_may_touch(struct exchange *x, const char *key);

/* ---- json.c: locks and events as this caller may see them ---- */

/* With the lock id only for admins and for the token that acquired it. */
json_t *lock_for(const struct exchange *x, const struct belay_info *info);
/* With the lock id, for who has just named it or been given it. */
json_t *lock_for_holder(const struct belay_info *info);
json_t *event_for(const struct exchange *x, const struct belay_event *event);
/* A copy of the error with its holder as this caller may see it. */
json_t *error_for(const struct exchange *x, const struct belay_error *err);

/* ---- the handlers ---- */

typedef void route_handler(struct exchange *x);
route_handler handle_acquire, handle_adopt, handle_renew, handle_release, handle_force,
    handle_lost;                                                                  /* locks.c */
route_handler handle_get, handle_list, handle_history, handle_queue, handle_free; /* reads.c */
route_handler handle_health, handle_ready, handle_openapi, handle_page;           /* about.c */
route_handler handle_events;                                                      /* feed.c */

#endif
