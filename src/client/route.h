/* For src/client/ only. */
#ifndef CLIENT_ROUTE_H
#define CLIENT_ROUTE_H

#include "belay.h"

struct client_remote;

/* The server to ask now; NULL: the store. */
struct client_remote *client_via(struct belay_client *client);

/*
 * After an answer through `used`: true if the locks are to be asked for in
 * another place now, the next client_via(). Else *code is what to report.
 */
bool client_moved(struct belay_client *client, const struct client_remote *used, enum belay_code *code,
                  struct belay_error *err);

#endif
