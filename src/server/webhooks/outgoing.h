/*
 * One POST to a receiver outside: headers, signature, the rules for addresses, and what its answer means. Webhooks of
 * locks and notifications both send it.
 */
#ifndef SERVER_WEBHOOKS_OUTGOING_H
#define SERVER_WEBHOOKS_OUTGOING_H

#include "belay.h"

enum { OUTGOING_HEADERS = 5, OUTGOING_WHY_SIZE = 128 };

struct webhook_settings;

/* The worker's while it is being sent. */
struct outgoing {
    char *body; /* owned */
    char attempt_text[16];
    char signature[160];
    struct belay_meta headers[OUTGOING_HEADERS];
    struct belay_http_post post;
    int status;
    enum belay_code code;
    struct belay_error err;
};

/* The strings are borrowed until the call is over. */
struct outgoing_call {
    const char *url;
    const char *secret;      /* "": not signed */
    const char *event;       /* Belay-Event */
    const char *delivery_id; /* Belay-Delivery: the same for each attempt; NULL: none */
    int attempt;             /* from 1 */
    int64_t timeout_ms;
};

/* Headers and signature for outgoing->body. False: no memory. */
bool outgoing_prepare(struct outgoing *outgoing, const struct outgoing_call *call,
                      const struct webhook_settings *settings, struct belay_cancel *cancel);
/* In a worker. */
void outgoing_send(struct outgoing *outgoing);
void outgoing_release(struct outgoing *outgoing);

/* A 2xx. */
bool outgoing_is_accepted(const struct outgoing *outgoing);
/* A receiver that refuses, or an address that must not be called, stays so. */
bool outgoing_is_worth_another(const struct outgoing *outgoing);
/* Why it was not accepted. Returns `out`. */
char *outgoing_why(const struct outgoing *outgoing, char out[OUTGOING_WHY_SIZE]);

#endif
