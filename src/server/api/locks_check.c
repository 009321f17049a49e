/* Whether a lock is still that of an id or a token: for holders, and for receivers that verify a token. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "server/core/json_body.h"
#include "server/core/server.h"

static void ask_check(struct exchange *x)
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
    exchange_read(x, WORK_READ, ask_check, NULL);
}

void handle_check(struct exchange *x)
{
    x->check.token = (uint64_t)x->body->token;
    x->check.for_ms = x->body->for_ms;
    begin_check(x, x->body->lock_id);
}

/* A whole number of the query. False, and answered, if it is not from `min` to `max`; *out stays if it is absent. */
static bool read_query_number(struct exchange *x, const char *name, int64_t min, int64_t max, int64_t *out)
{
    char text[24];
    enum http_found found = http_query_get(x->request->query, name, text, sizeof text);
    long long value;

    if (found == HTTP_ABSENT) {
        return true;
    }
    errno = 0;
    value = found == HTTP_FOUND && *text != '\0' && strspn(text, "0123456789") == strlen(text)
                ? strtoll(text, NULL, 10)
                : -1;
    if (errno != 0 || value < min || value > max) {
        reply_problem(x, 400, "invalid", "%s must be a whole number from %" PRId64 " to %" PRId64, name, min,
                      max);
        return false;
    }
    *out = value;
    return true;
}

void handle_check_get(struct exchange *x)
{
    char id[BELAY_ID_MAX + 1];
    enum http_found found = http_query_get(x->request->query, "lock_id", id, sizeof id);
    int64_t token = 0;

    if (!exchange_may_touch(x, x->key) || !read_query_number(x, "token", 1, INT64_MAX, &token) ||
        !read_query_number(x, "for_ms", 0, BELAY_TTL_MAX_MS, &x->check.for_ms)) {
        return;
    }
    if (found == HTTP_MALFORMED) {
        reply_problem(x, 400, "invalid", "lock_id is over %d bytes or not percent-encoded", BELAY_ID_MAX);
        return;
    }
    x->check.token = (uint64_t)token;
    begin_check(x, found == HTTP_FOUND ? id : NULL);
}
