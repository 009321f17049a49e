/* The table of routes: it drives dispatch, 405 and /openapi.json. */
#ifndef SERVER_CORE_ROUTES_H
#define SERVER_CORE_ROUTES_H

#include "server/core/histogram.h"
#include "server/core/json_body.h"
#include "server/core/server.h"

enum { ROUTE_QUERY_MAX = 18, ROUTE_STATUS_MAX = 14, ROUTE_NAMES_MAX = 3 };
#define ROUTE_LARGE_BODY ((size_t)200 << 20)

struct route_query {
    const char *name;
    const char *type; /* of JSON Schema */
    const char *about;
};

struct route {
    const char *method;
    const char *path; /* with {key} for a key, {name}, {id}; at most ROUTE_NAMES_MAX of them */
    enum role role;   /* ROLE_NONE: needs no token */
    route_handler *handle;
    const struct body_field *fields; /* of the body; NULL: no body */
    struct route_query query[ROUTE_QUERY_MAX + 1];
    const char *schema; /* of a 200: "Lock", "LockList", …; or a media type */
    int statuses[ROUTE_STATUS_MAX + 1];
    const char *summary;
    const char *body; /* the schema of a body that no table describes; NULL: see `fields` */
    job_fn *job;      /* what `handle` starts (job.h); NULL: it starts none */
};

extern const struct route routes[];
extern const size_t n_routes;

/*
 * The route for this request. NULL: none; then *out_allow lists the methods of the path ("GET, HEAD"), or is empty
 * if there is no such path. `names` are those in the path, still encoded; data is NULL for an absent one.
 */
enum { ROUTE_ALLOW_SIZE = 64 };
const struct route *route_find(const struct http_request *request, struct http_slice names[ROUTE_NAMES_MAX],
                               char out_allow[ROUTE_ALLOW_SIZE]);

/* A client with the role may send a body of ROUTE_LARGE_BODY bytes. */
bool route_is_large(const struct route *route);

/* Requests of one route that were answered: how many, by the first digit of the status (0: none), and how long it took. */
struct route_counts {
    uint64_t by_status[6];
    struct histogram took; /* seconds, with the bounds histogram_short_s */
};
/* For each route, and a last one for requests without a route. NULL: no memory. */
struct route_counts *route_counts_new(void);
/* A request was answered; `route` NULL: none matched. */
void route_count(struct route_counts *counts, const struct route *route, int status, int64_t took_us);

/* Its path or its body names the lock or locks that it is about, and a table describes the body. */
bool route_names_lock(const struct route *route);

/* False, and answered, if the query has a name that the route does not know. */
bool route_check_query(struct exchange *x);

/* Schemas in the short form of api/openapi_schemas.c; each list ends in NULL. */
extern const char *const shared_db_schemas[]; /* shared_db_schema.c */
extern const char *const state_schemas[];     /* state_schema.c */
extern const char *const dashboard_schemas[]; /* dashboard_schema.c */

/* The whole OpenAPI document; NULL without memory. */
char *openapi_make(void);

#endif
