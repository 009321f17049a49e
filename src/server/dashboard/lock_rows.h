/*
 * What has become of some keys, and which locks are stale, asked of the store for
 * the dashboards, as work of a worker.
 */
#ifndef SERVER_DASHBOARD_LOCK_ROWS_H
#define SERVER_DASHBOARD_LOCK_ROWS_H

#include <jansson.h>

#include "server/core/work.h"
#include "server/dashboard/changed_keys.h"

enum { LOOK_KEYS = 200, LOOK_BYTES = 96 << 10, LOOK_STALE = 500 };

struct look {
    struct work work; /* `done` is the caller's */
    bool wants_stale;
    bool tells; /* the rows are to be told, even if there are none */
    /* the look's own */
    struct belay_client *client; /* borrowed */
    char *keys[LOOK_KEYS];       /* owned */
    size_t n_keys;
    json_t *rows;            /* owned; made by the worker */
    char *stale[LOOK_STALE]; /* owned; keys */
    size_t n_stale;
};

void look_init(struct look *look, struct belay_client *client, work_fn *done);
/* Take as many changed keys as are to be told at once. */
void look_take(struct look *look, struct changes *changes);
/* Forget what was asked and found: for the next. */
void look_clear(struct look *look);

#endif
