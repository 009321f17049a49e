/*
 * Whether a request comes from a page of another site, in a browser on this machine. Such a page can send requests to
 * this server, also under a name of its own that resolves to this machine (DNS rebinding). Without tokens the server
 * must refuse it.
 */
#ifndef SERVER_CORE_SITE_H
#define SERVER_CORE_SITE_H

#include "server/http/http_server.h"

struct server;

enum { SITE_NAMES_MAX = 32, SITE_NAME_SIZE = 256 };

/* The host names that the server was told to listen on. */
struct site_names {
    char all[SITE_NAMES_MAX][SITE_NAME_SIZE];
    size_t n;
    char last[SITE_NAME_SIZE]; /* the last Host that passed; "": none yet */
};
/* "name:port" of --listen; addresses, unix sockets and NULL are ignored. */
void site_add_name(struct site_names *names, const char *listen);

enum site_problem { SITE_FINE, SITE_OTHER_ORIGIN, SITE_OTHER_HOST };
enum site_problem site_check(struct server *server, const struct http_request *request);

#endif
