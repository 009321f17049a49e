/*
 * A write of a blob: the later pieces of a large content, then the first one, with which all of it is there.
 *
 *     blob_upload() ... -> blob_put() -+-- done, refused, or the lock is not held
 *          ^                           +-- pieces are missing: the server lost them in a crash
 *          +---------------------------+
 *
 * After a lost answer the same blob_put() is sent again: the server recognises its tag. It refuses what comes after
 * the deadline, so the outcome is known soon after, even if no answer comes.
 *
 * A removal is a blob_put() without a content.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "store/blob/blob_store.h"
#include "store/postgresql/postgresql_blob.h"

enum { UPLOADS_MAX = 3, PAUSE_MS = 100 };
/* Of blob_put() in state.sql. */
enum { PUT_DONE = 0, PUT_REFUSED = 1, PUT_LATE = 4, PUT_INCOMPLETE = 6, PUT_NOT_HELD = 7 };

struct blob_write {
    struct pg_blobs *blobs;
    const struct belay_blob_put *put;
    char tag[UUID_TEXT_SIZE];
    int64_t until_boot_ms;
    bool in_doubt; /* a call that may have been executed was not answered */
};

/* A call that was answered. */
struct blob_answer {
    const PGresult *result;
    int64_t asked_boot_ms;
    int64_t until_boot_ms;
};

/*
 * Whether to call again after an answer that was lost: the server may have crashed, and is back soon. Before any
 * call was lost, an unreachable server has changed nothing.
 */
static bool is_worth_another(enum belay_code code, int64_t until_boot_ms, bool *in_doubt)
{
    *in_doubt = *in_doubt || code == BELAY_UNKNOWN;
    if (!*in_doubt || (code != BELAY_UNKNOWN && code != BELAY_UNREACHABLE) ||
        clock_boot_ms() + PAUSE_MS >= until_boot_ms) {
        return false;
    }
    (void)poll(NULL, 0, PAUSE_MS);
    return true;
}

/*
 * A repeated call that finds its work done changes nothing, so its commit waits for no disk and no standby: the first
 * one may have been cut off while it waited.
 */
static enum belay_code settle_repeated(struct pg_store *store, int64_t until_boot_ms, struct belay_error *err)
{
    int64_t left_ms = until_boot_ms - clock_boot_ms();

    return pg_settle(store, left_ms > 0 ? left_ms : 1, err) == BELAY_OK ? BELAY_OK : BELAY_UNREACHABLE;
}

/* ---- pieces ---- */

static enum belay_code upload_piece(const struct blob_write *write, int n, const char *data, size_t len,
                                    struct belay_error *err)
{
    char number[24];
    const char *values[] = { write->tag, number, NULL };
    struct pg_call call = { PG_BLOB_UPLOAD, values, 3, false, 0 };
    struct pg_bytes bytes = { .data = data, .len = (int)len, .at = 2 };
    int64_t until_boot_ms = clock_boot_ms() + pg_timeout_ms(write->blobs->store, 0);
    enum belay_code code;
    bool in_doubt = false;

    (void)snprintf(number, sizeof number, "%d", n);
    do {
        PGresult *result = NULL;

        code = pg_call_bytes(write->blobs->store, &call, &bytes, &result, err);
        PQclear(result);
    } while (is_worth_another(code, until_boot_ms, &in_doubt));
    /* A piece is nothing without its blob. */
    return code == BELAY_UNKNOWN
               ? error_set(err, BELAY_UNREACHABLE, "PostgreSQL did not answer; nothing was changed")
               : code;
}

static enum belay_code upload(const struct blob_write *write, struct belay_error *err)
{
    const char *data = write->put->data;
    size_t len = write->put->len;
    enum belay_code code = BELAY_OK;
    int n = 1;

    for (size_t done = PG_PIECE; code == BELAY_OK && done < len; done += PG_PIECE) {
        code = upload_piece(write, n++, data + done, len - done < PG_PIECE ? len - done : PG_PIECE, err);
        blob_progress(&write->blobs->base, done, len);
    }
    return code;
}

/* ---- the lock ---- */

/* As the functions take it; NULL: there is none. */
struct lock_values {
    const char *store;
    const char *key;
    const char *lock_id;
    char token[24];
};

static struct lock_values values_of(const struct belay_blob_lock *lock)
{
    struct lock_values values = { .token = "0" };

    if (lock != NULL) {
        values = (struct lock_values){ .store = lock->store, .key = lock->key, .lock_id = lock->lock_id };
        (void)snprintf(values.token, sizeof values.token, "%" PRIu64, lock->token);
    }
    return values;
}

/* The present holder, or the last one. */
static void name_holder(const struct belay_blob_lock *lock, const PGresult *result, struct belay_error *err)
{
    struct belay_info *info = calloc(1, sizeof *info);

    if (info == NULL || PQgetisnull(result, 0, 2)) {
        free(info);
        return;
    }
    info->key = strdup(lock->key);
    info->locked_by = strdup(PQgetvalue(result, 0, 2));
    info->locked_by_name = strdup(PQgetvalue(result, 0, 3));
    info->token = (uint64_t)pg_number(result, 0, 4);
    info->status = PQgetvalue(result, 0, 5)[0] == 't' ? BELAY_STATUS_ACTIVE : BELAY_STATUS_RELEASED;
    if (info->key == NULL || info->locked_by == NULL || info->locked_by_name == NULL) {
        belay_info_free(info);
        return;
    }
    error_set_holder(err, info);
}

static enum belay_code refuse_lock(const struct belay_blob_lock *lock, const PGresult *result,
                                   struct belay_error *err)
{
    const char *name = PQgetvalue(result, 0, 3);
    uint64_t token = (uint64_t)pg_number(result, 0, 4);
    bool is_held = PQgetvalue(result, 0, 5)[0] == 't';

    if (token == lock->token) {
        (void)error_set(err, BELAY_NOT_HOLDER,
                        "the lock '%.200s' with the token %" PRIu64 " %s: nothing was changed", lock->key,
                        lock->token, is_held ? "has another id" : "was released, or its lease has expired");
    } else if (token == 0) {
        (void)error_set(err, BELAY_NOT_HOLDER, "there is no lock '%.200s': nothing was changed", lock->key);
    } else {
        (void)error_set(err, BELAY_NOT_HOLDER,
                        "the lock '%.200s' %s %.200s with the token %" PRIu64 "; our token is %" PRIu64
                        ": nothing was changed",
                        lock->key, is_held ? "is held by" : "was taken since by",
                        name[0] == '\0' ? PQgetvalue(result, 0, 2) : name, token, lock->token);
    }
    name_holder(lock, result, err);
    return BELAY_NOT_HOLDER;
}

/* ---- the server's clock ---- */

/* While the server does not know of a jump of its clock, the lock would seem to be lost. */
static enum belay_code get_ready(struct pg_store *store, int64_t until_boot_ms, struct belay_error *err)
{
    enum belay_code code = pg_reach(store, until_boot_ms - clock_boot_ms(), err);

    return code == BELAY_OK ? pg_mend_clock(store, until_boot_ms, err) : code;
}

/*
 * Takes in the time of an answer. If the clock jumped, the lease seemed to have ended, or the call to be late without
 * being late: *out_again, once all leases have begun again. What was done is done.
 */
static enum belay_code judge_put_by_clock(struct pg_store *store, const struct blob_answer *answer,
                                          bool *out_again, struct belay_error *err)
{
    int64_t outcome = pg_number(answer->result, 0, 0);
    bool depends = outcome == PUT_NOT_HELD || outcome == PUT_LATE;
    enum belay_code code;

    pg_saw_clock(store, pg_number(answer->result, 0, 1), answer->asked_boot_ms);
    code = pg_mend_clock(store, answer->until_boot_ms, depends ? err : NULL);
    *out_again = depends && code == BELAY_OK && clock_boot_ms() < answer->until_boot_ms &&
                 (outcome == PUT_LATE || pg_was_mended_since(store, answer->asked_boot_ms));
    return depends ? code : BELAY_OK;
}

/* Of a call that must not be executed later. */
static void set_time_limit(struct pg_store *store, int64_t until_boot_ms, struct pg_call *call,
                           char out_deadline[24])
{
    int64_t left_ms = until_boot_ms - clock_boot_ms();

    call->timeout_ms = left_ms > 0 ? left_ms : 1; /* 0 would be the usual time */
    (void)snprintf(out_deadline, 24, "%" PRId64, pg_deadline_ms(store, call->timeout_ms));
}

static enum belay_code say_late(bool in_doubt, struct belay_error *err)
{
    return error_set(err, in_doubt ? BELAY_UNKNOWN : BELAY_UNREACHABLE,
                     "PostgreSQL did not come to it in time");
}

/* No later failure, such as of the login, undoes the call that was not answered. */
static enum belay_code say_in_doubt(const char *name, const char *what, enum belay_code code,
                                    struct belay_error *err)
{
    if (code != BELAY_UNKNOWN && err != NULL) {
        (void)error_wrap(err, "PostgreSQL did not answer: '%.200s' may have been %s", name, what);
        err->code = BELAY_UNKNOWN;
    }
    return BELAY_UNKNOWN;
}

/* ---- the blob ---- */

/* BELAY_CANCELLED: pieces are missing. */
static enum belay_code read_put(const struct blob_write *write, const PGresult *result,
                                struct belay_error *err)
{
    enum belay_code code;

    switch ((int)pg_number(result, 0, 0)) {
    case PUT_DONE:
        return BELAY_OK;
    case PUT_INCOMPLETE:
        return error_set(err, BELAY_CANCELLED, "PostgreSQL keeps losing pieces of '%.400s'",
                         write->put->name);
    case PUT_LATE:
        return say_late(write->in_doubt, err);
    case PUT_NOT_HELD:
        code = refuse_lock(write->put->lock, result, err);
        break;
    default:
        code = error_set(err, BELAY_REFUSED, "'%.400s' has changed", write->put->name);
    }
    /* An earlier call that was not answered may have written what another client has replaced since. */
    return write->in_doubt ? error_set(err, BELAY_UNKNOWN,
                                       "the connection to PostgreSQL was lost; '%.300s' has changed since, "
                                       "and may have been written before",
                                       write->put->name)
                           : code;
}

/* One call. *out_again: its answer counts for nothing if another call can be made. */
static enum belay_code put_once(struct blob_write *write, bool *out_again, struct belay_error *err)
{
    const struct belay_blob_put *put = write->put;
    struct lock_values held = values_of(put->lock);
    char size[24], deadline[24];
    const char *values[] = { put->name,  write->tag, put->expected == NULL ? NULL : put->expected->text,
                             size,       NULL,       deadline,
                             held.store, held.key,   held.lock_id,
                             held.token };
    struct pg_store *store = write->blobs->store;
    struct pg_call call = { PG_BLOB_PUT, values, 10, false, 0 };
    struct pg_bytes bytes = { .data = put->len == 0 ? "" : put->data,
                              .len = (int)(put->len < PG_PIECE ? put->len : PG_PIECE),
                              .at = 4 };
    struct blob_answer answer = { .until_boot_ms = write->until_boot_ms };
    PGresult *result = NULL;
    enum belay_code code = get_ready(store, write->until_boot_ms, err);

    *out_again = false;
    if (code != BELAY_OK) {
        return code;
    }
    answer.asked_boot_ms = clock_boot_ms();
    (void)snprintf(size, sizeof size, "%zu", put->len);
    set_time_limit(store, write->until_boot_ms, &call, deadline);
    code = pg_call_bytes(store, &call, &bytes, &result, err);
    answer.result = result;
    if (code == BELAY_OK) {
        code = judge_put_by_clock(store, &answer, out_again, err);
    }
    if (code == BELAY_OK) {
        code = read_put(write, result, err);
    }
    PQclear(result);
    return code;
}

static enum belay_code call_put(struct blob_write *write, struct belay_error *err)
{
    enum belay_code code;
    bool again;

    do {
        code = put_once(write, &again, err);
        if (again) {
            belay_error_release(err);
            code = put_once(write, &again, err);
        }
    } while (code != BELAY_OK && is_worth_another(code, write->until_boot_ms, &write->in_doubt));
    if (code == BELAY_OK && write->in_doubt) {
        code = settle_repeated(write->blobs->store, write->until_boot_ms, err);
    }
    /* CANCELLED: pieces are missing, so that it was not written. */
    return write->in_doubt && code != BELAY_OK && code != BELAY_CANCELLED
               ? say_in_doubt(write->put->name, "written", code, err)
               : code;
}

enum belay_code pg_blob_put(struct pg_blobs *blobs, const struct belay_blob_put *put,
                            struct belay_blob_tag *out_tag, struct belay_error *err)
{
    struct blob_write write = { .blobs = blobs, .put = put };
    enum belay_code code = blob_put_check(put->name, put->len, err);

    if (code == BELAY_OK && !uuid_make(write.tag)) {
        code = error_set(err, BELAY_BUG, "the system has no random numbers");
    }
    if (code != BELAY_OK) {
        return code;
    }
    blob_progress(&blobs->base, 0, put->len);
    code = BELAY_CANCELLED;
    for (int i = 0; code == BELAY_CANCELLED && i < UPLOADS_MAX; i++) {
        code = upload(&write, err);
        write.until_boot_ms = clock_boot_ms() + pg_timeout_ms(blobs->store, 0);
        if (code == BELAY_OK) {
            code = call_put(&write, err);
        }
    }
    blob_progress(&blobs->base, put->len, put->len);
    if (code == BELAY_OK) {
        *out_tag = (struct belay_blob_tag){ 0 };
        (void)snprintf(out_tag->text, sizeof out_tag->text, "%s", write.tag);
    }
    return code == BELAY_CANCELLED ? BELAY_UNREACHABLE : code;
}

/* ---- removing ---- */

static enum belay_code read_removal(const struct pg_store *store, const struct belay_blob_lock *lock,
                                    const PGresult *result, struct belay_error *err)
{
    switch ((int)pg_number(result, 0, 0)) {
    case PUT_DONE:
        return BELAY_OK;
    case PUT_LATE:
        return say_late(false, err);
    case PUT_NOT_HELD:
        return refuse_lock(lock, result, err);
    default:
        return error_set(err, BELAY_CONFIG,
                         "the schema '%s' has functions for deployment state of an earlier belay: run `belay "
                         "table create`",
                         store->params.schema);
    }
}

/* As put_once(). The first version of blob_put() removes nothing: it refuses, as no blob has the tag "-". */
static enum belay_code remove_once(struct pg_store *store, const char *name,
                                   const struct belay_blob_lock *lock, int64_t until_boot_ms, bool *out_again,
                                   struct belay_error *err)
{
    struct lock_values held = values_of(lock);
    char deadline[24];
    const char *values[] = { name,     NULL,       "-",      "0",          NULL,
                             deadline, held.store, held.key, held.lock_id, held.token };
    struct pg_call call = { PG_BLOB_PUT, values, 10, false, 0 };
    struct blob_answer answer = { .until_boot_ms = until_boot_ms };
    PGresult *result = NULL;
    enum belay_code code = get_ready(store, until_boot_ms, err);

    *out_again = false;
    if (code != BELAY_OK) {
        return code;
    }
    answer.asked_boot_ms = clock_boot_ms();
    set_time_limit(store, until_boot_ms, &call, deadline);
    code = pg_call(store, &call, &result, err);
    answer.result = result;
    if (code == BELAY_OK) {
        code = judge_put_by_clock(store, &answer, out_again, err);
    }
    if (code == BELAY_OK) {
        code = read_removal(store, lock, result, err);
    }
    PQclear(result);
    return code;
}

enum belay_code pg_blob_remove(struct pg_blobs *blobs, const char *name, const struct belay_blob_lock *lock,
                               struct belay_error *err)
{
    int64_t until_boot_ms = clock_boot_ms() + pg_timeout_ms(blobs->store, 0);
    bool in_doubt = false;
    bool again;
    enum belay_code code = belay_blob_name_check(name, err);

    if (code != BELAY_OK) {
        return code;
    }
    do {
        code = remove_once(blobs->store, name, lock, until_boot_ms, &again, err);
        if (again) {
            belay_error_release(err);
            code = remove_once(blobs->store, name, lock, until_boot_ms, &again, err);
        }
    } while (is_worth_another(code, until_boot_ms, &in_doubt));
    if (code == BELAY_OK && in_doubt) {
        code = settle_repeated(blobs->store, until_boot_ms, err);
    }
    return code != BELAY_OK && in_doubt ? say_in_doubt(name, "removed", code, err) : code;
}
