/*
 * Changed keys and stale locks, read from the store for the dashboards. A worker reads them.
 */
#ifndef SERVER_DASHBOARD_LOCK_ROWS_H
#define SERVER_DASHBOARD_LOCK_ROWS_H

#include <jansson.h>

#include "server/core/work.h"
#include "server/dashboard/changed_keys.h"

enum { LOCK_ROWS_KEYS = 200, LOCK_ROWS_BYTES = 96 << 10, LOCK_ROWS_STALE = 500 };

struct lock_rows {
    struct work work; /* the caller sets `done` */
    bool wants_stale;
    bool tells; /* the rows are to be sent, even if there are none */
    /* lock_rows.c's */
    struct belay_client *client; /* borrowed */
    char *keys[LOCK_ROWS_KEYS];  /* owned */
    size_t n_keys;
    json_t *json;                 /* owned; made by the worker */
    char *stale[LOCK_ROWS_STALE]; /* owned; keys */
    size_t n_stale;
};

void lock_rows_init(struct lock_rows *rows, struct belay_client *client, work_fn *done);
/* Take as many changed keys as are sent at once. */
void lock_rows_take(struct lock_rows *rows, struct changes *changes);
/* For the next use. */
void lock_rows_clear(struct lock_rows *rows);

#endif
