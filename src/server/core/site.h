/*
 * Whether a request comes from a page of somebody else's in a browser on this machine.
 * Such a page can send requests here, also under a name of its own that was made to point
 * here (DNS rebinding). Where no token is asked for, it must not pass for a person.
 */
#ifndef SERVER_CORE_SITE_H
#define SERVER_CORE_SITE_H

#include "server/http/http_server.h"

struct server;

enum { SITE_NAMES_MAX = 32, SITE_NAME_SIZE = 256 };

/* The names of hosts that the server was told to listen on. */
struct site_names {
    char all[SITE_NAMES_MAX][SITE_NAME_SIZE];
    size_t n;
    char last[SITE_NAME_SIZE]; /* the Host that was last found to be the server's own; "" at first */
};
/* "name:port", as it is listened on; addresses, unix sockets and NULL are passed over. */
void site_add_name(struct site_names *names, const char *listen);

enum site_problem { SITE_FINE, SITE_OTHER_ORIGIN, SITE_OTHER_HOST };
enum site_problem site_check(struct server *server, const struct http_request *request);

#endif
