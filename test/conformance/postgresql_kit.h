/* A PostgreSQL of the test's own, with one schema of belay's and a session that may do everything. */
#ifndef TEST_POSTGRESQL_KIT_H
#define TEST_POSTGRESQL_KIT_H

#include "store/postgresql/postgresql_internal.h"

struct pg_kit {
    struct pg_conn *admin;
    char database[80]; /* its URL */
    char url[160];     /* of the schema in it */
};
extern struct pg_kit kit;

/* False: the reason is on stderr. pg_kit_stop() is due in any case. */
bool pg_kit_start(const char *schema);
void pg_kit_stop(void);

/* By the session of kit.admin. False, or -1: the reason is on stderr. */
bool pg_kit_run(const char *sql);
int64_t pg_kit_number(const char *sql);
/* The server's clock from now on, as the functions of the schema see it, compared with the machine's. */
bool pg_kit_set_clock(const char *schema, int64_t ahead_ms);

/* NULL options: as a client has them, but that the machine may be busy. NULL: the reason is on stderr. */
struct belay_store *pg_kit_open(const char *url, const struct postgresql_options *options);

/* One write, which must be done: any; to take an exclusive lock; to put or renew a place in its queue. */
void pg_kit_commit(struct belay_store *store, const struct belay_write *write);
void pg_kit_take(struct belay_store *store, const char *key, const char *lock_id, int64_t ttl_ms);
void pg_kit_queue(struct belay_store *store, const char *key, const char *lock_id, int64_t ttl_ms);

#endif
