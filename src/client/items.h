/* The items of a client's store, which are not locks; src/shared_db uses them besides belay.h. */
#ifndef CLIENT_ITEMS_H
#define CLIENT_ITEMS_H

#include "belay/store.h"

/* As the port's functions of these names, on the client's store or server. */
enum belay_code client_item_get(struct belay_client *client, const char *space, const char *name,
                                struct belay_item *out_item, struct belay_error *err);
enum belay_code client_item_put(struct belay_client *client, const struct belay_item_write *write,
                                uint64_t *out_version, struct belay_error *err);
/* *out_is_partial: a server has left out what the token may not see. */
enum belay_code client_item_list(struct belay_client *client, const char *space, belay_item_fn fn,
                                 void *context, bool *out_is_partial, struct belay_error *err);

const struct belay_config *client_config(const struct belay_client *client); /* may be NULL */
/* A server checks, records and audits by itself. */
bool client_is_remote(const struct belay_client *client);
/*
 * Record a decision about a database, and its event. A server is sent the decision and
 * records both by itself: its history has it, whatever the outcome.
 */
struct client_decision {
    struct belay_item_write write;
    bool is_done; /* else it is only begun, and only its event is kept */
    const struct belay_event *event;
};
enum belay_code client_decide(struct belay_client *client, const struct client_decision *decision,
                              struct belay_error *err);
/* "user@host", for people; the client's for as long as it lives. */
const char *client_user_name(struct belay_client *client);
/* Sleep that a cancel ends. */
void client_sleep(int64_t ms, struct belay_cancel *cancel);

#endif
