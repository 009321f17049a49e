/* Whether a lock is still that of an id or a token: for holders, and for receivers that verify a token. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "server/core/json_body.h"
#include "server/core/server.h"

static void read_and_check(struct exchange *x)
{
    struct belay_error err = BELAY_ERROR_INIT;
    const char *id = x->found_id[0] == '\0' ? NULL : x->found_id;
    const char *keys[BELAY_KEYS_MAX];
    size_t n = exchange_keys(x, keys);
    enum belay_code code = BELAY_OK;
    json_t *locks = json_array();

    for (size_t i = 0; code == BELAY_OK && i < n; i++) {
        struct belay_info *info = NULL;

        code = belay_check(x->server->client, keys[i], id, x->check.token, x->check.for_ms, &info, &err);
        if (code == BELAY_OK && json_array_append_new(locks, lock_for(x, info)) != 0) {
            code = error_no_memory(&err);
        }
        belay_info_free(info);
    }
    if (code == BELAY_OK) {
        reply_locks(x, locks);
    } else {
        json_decref(locks);
        reply_error(x, &err);
    }
    belay_error_release(&err);
}

/* `lock_id` may be NULL. */
static void begin_check(struct exchange *x, const char *lock_id)
{
    if (x->keys != NULL && x->keys->n > 1 && x->check.token != 0) {
        reply_problem(x, 400, "invalid", "token is of one key: give the lock_id with several keys");
        return;
    }
    if (lock_id != NULL && strlen(lock_id) > BELAY_ID_MAX) {
        reply_problem(x, 400, "invalid", "lock_id has more than %d bytes", BELAY_ID_MAX);
        return;
    }
    if (lock_id != NULL && *lock_id == '\0') {
        reply_problem(x, 400, "invalid", "lock_id is empty: leave it out, or say whose lock it should be");
        return;
    }
    (void)snprintf(x->found_id, sizeof x->found_id, "%s", lock_id == NULL ? "" : lock_id);
    exchange_read(x, WORK_READ, read_and_check, NULL);
}

void handle_check(struct exchange *x)
{
    x->check.token = (uint64_t)x->body->token;
    x->check.for_ms = x->body->for_ms;
    begin_check(x, x->body->lock_id);
}

void handle_check_get(struct exchange *x)
{
    char id[BELAY_ID_MAX + 1];
    enum http_found found = http_query_get(x->request->query, "lock_id", id, sizeof id);
    struct belay_error err = BELAY_ERROR_INIT;
    int64_t token = 0;

    if (!exchange_may_touch(x, x->key)) {
        return;
    }
    if (query_number(x->query, "token", 1, INT64_MAX, &token, &err) != BELAY_OK ||
        query_number(x->query, "for_ms", 0, BELAY_TTL_MAX_MS, &x->check.for_ms, &err) != BELAY_OK) {
        reply_error(x, &err);
        belay_error_release(&err);
        return;
    }
    if (found == HTTP_MALFORMED) {
        reply_problem(x, 400, "invalid", "lock_id is over %d bytes or not percent-encoded", BELAY_ID_MAX);
        return;
    }
    x->check.token = (uint64_t)token;
    begin_check(x, found == HTTP_FOUND ? id : NULL);
}
