/*
 * The server's clock, which answers tell, beside this machine's boot clock, which is never set. What one process
 * knows of both is kept in the database (table clocks) for the next one on the same machine: a command that was
 * started after a step of the server's clock notices it, too.
 */
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/saturate.h"
#include "store/postgresql/postgresql_internal.h"

enum {
    STEP_REPORTED_MS = 1000,
    KEEP_EVERY_MS = 60000,
    TELL_ATTEMPTS = 3,
    DRIFT = 5000 /* two clocks drift apart by less than 1 ms in this many */
};
#define CLOCK_LAST_MS INT64_C(253402300799999) /* the end of the year 9999 */

int64_t pg_server_ms(struct pg_store *store)
{
    int64_t now_ms;

    (void)pthread_mutex_lock(&store->mutex);
    now_ms = clock_boot_ms() + store->clock_offset_ms;
    (void)pthread_mutex_unlock(&store->mutex);
    return now_ms;
}

int64_t pg_deadline_ms(struct pg_store *store, int64_t left_ms)
{
    return add_saturated(pg_server_ms(store), left_ms);
}

/*
 * The most that the offset can be if the clock has not jumped: what the answer said that left least room, and how far
 * the clocks may have drifted apart since. The last answer would not do: a clock that gains a second again and again,
 * or is slewed for long, ends leases as early as one that jumps. With the mutex.
 */
static int64_t most_at(const struct pg_store *store, int64_t boot_ms)
{
    int64_t age_ms = boot_ms - store->clock_most_boot_ms;

    return store->clock_most_ms + (age_ms > 0 ? age_ms / DRIFT : 0);
}

/*
 * The answer was made between asking and now, so the offset is known up to the time that took. The
 * clock jumped forward if the least that the offset can be is more than the most that it could be.
 *
 * `now` is as soon as possible: while this waits for the mutex, the bounds would become wider. So threads may come
 * here in another order than their answers were made in. An answer that was asked for before the last one that counts
 * was seen may be older than it: it tells of a jump, if it shows one, and of nothing else. Else it would put the old
 * time back, and the same jump would be found twice.
 */
void pg_saw_clock(struct pg_store *store, int64_t now_ms, int64_t asked_boot_ms)
{
    int64_t boot_ms = clock_boot_ms();
    int64_t offset_ms = now_ms - boot_ms;
    int64_t limit_ms =
        store->params.clock_step_ms > STEP_REPORTED_MS ? store->params.clock_step_ms : STEP_REPORTED_MS;
    int64_t step_ms = 0;
    char text[160];

    assert(asked_boot_ms <= boot_ms);
    (void)pthread_mutex_lock(&store->mutex);
    if (store->has_clock && offset_ms - most_at(store, boot_ms) > limit_ms) {
        step_ms = offset_ms - most_at(store, boot_ms);
        store->has_jumped = true;
        store->jumped_again = store->is_mending;
        store->kept_boot_ms = -KEEP_EVERY_MS;
    }
    if (step_ms > 0 || !store->has_clock || asked_boot_ms >= store->clock_seen_boot_ms) {
        if (step_ms > 0 || !store->has_clock || now_ms - asked_boot_ms < most_at(store, boot_ms)) {
            store->clock_most_ms = now_ms - asked_boot_ms;
            store->clock_most_boot_ms = boot_ms;
        }
        store->has_clock = true;
        store->clock_offset_ms = offset_ms;
        store->clock_seen_boot_ms = boot_ms;
    }
    (void)pthread_mutex_unlock(&store->mutex);
    if (step_ms > 0 && store->options.on_warning != NULL) {
        (void)snprintf(
            text, sizeof text,
            "the clock of the PostgreSQL server jumped forward by %lld ms: all leases begin again, "
            "but some may have ended too early",
            (long long)step_ms);
        store->options.on_warning(store->options.warn_context, text);
    }
}

enum belay_code pg_ask_time(struct pg_store *store, int64_t *out_now_ms, struct belay_error *err)
{
    struct pg_call call = { PG_HELLO, NULL, 0, true, 0 };
    int64_t asked_boot_ms = clock_boot_ms();
    PGresult *result = NULL;
    enum belay_code code = pg_call(store, &call, &result, err);

    if (code == BELAY_OK) {
        *out_now_ms = pg_number(result, 0, 1);
        pg_saw_clock(store, *out_now_ms, asked_boot_ms);
    }
    PQclear(result);
    return code;
}

/* ---- telling the server ---- */

/*
 * By a clock that jumped, leases seem to have ended. So the jump is pending until the server has begun all leases
 * again, and meanwhile no answer leaves the store that a client could take a lock over by:
 *
 *     a thread with an answer   no jump is pending ------------------------------> it returns the answer
 *                               one is, and no thread tells the server ----------> it does: mended, or UNREACHABLE
 *                               one is, and another thread is telling it --------> it waits for that one
 */
enum mending { NOT_NEEDED, IS_MINE, IS_LATE };

static enum mending begin_mending(struct pg_store *store, int64_t until_boot_ms)
{
    enum mending mending = IS_LATE;
    bool in_time = true;

    (void)pthread_mutex_lock(&store->mutex);
    while (in_time && store->has_jumped && store->is_mending) {
        in_time = pg_wait_until(&store->mended, &store->mutex, until_boot_ms);
    }
    if (!store->has_jumped) {
        mending = NOT_NEEDED;
    } else if (!store->is_mending) {
        assert(store->has_clock);
        mending = IS_MINE;
        store->is_mending = true;
        store->jumped_again = false;
    }
    (void)pthread_mutex_unlock(&store->mutex);
    return mending;
}

/*
 * What was asked for in the millisecond of the mend may have been answered before it, and is asked for again. So no
 * thread goes on in that millisecond: else its next attempts could be in it as well, until there are none left.
 */
static void end_mending(struct pg_store *store, bool is_mended)
{
    int64_t mended_boot_ms = clock_boot_ms();

    while (is_mended && clock_boot_ms() == mended_boot_ms) {
        (void)nanosleep(&(struct timespec){ 0, 100000 }, NULL);
    }
    (void)pthread_mutex_lock(&store->mutex);
    assert(store->has_jumped && store->is_mending);
    store->is_mending = false;
    if (is_mended) {
        assert(mended_boot_ms >= store->mended_boot_ms);
        store->has_jumped = store->jumped_again;
        store->mended_boot_ms = mended_boot_ms;
    }
    (void)pthread_cond_broadcast(&store->mended);
    (void)pthread_mutex_unlock(&store->mutex);
}

/* *out_mended: false: by now the server's clock is not where this store believes it to be. */
static enum belay_code tell_jump(struct pg_store *store, int64_t until_boot_ms, bool *out_mended,
                                 struct belay_error *err)
{
    char text[24];
    const char *values[] = { text };
    int64_t left_ms = until_boot_ms - clock_boot_ms();
    struct pg_call call = { PG_CLOCK_JUMPED, values, 1, false, left_ms };
    PGresult *result = NULL;
    enum belay_code code;

    if (left_ms <= 0) {
        return error_set(err, BELAY_UNREACHABLE, "PostgreSQL did not answer in time");
    }
    (void)snprintf(text, sizeof text, "%lld", (long long)pg_server_ms(store));
    code = pg_call(store, &call, &result, err);
    *out_mended = code == BELAY_OK && strcmp(PQgetvalue(result, 0, 0), "t") == 0;
    PQclear(result);
    return code;
}

enum belay_code pg_mend_clock(struct pg_store *store, int64_t until_boot_ms, struct belay_error *err)
{
    struct belay_error why = BELAY_ERROR_INIT;
    enum mending mending = begin_mending(store, until_boot_ms);
    enum belay_code code = BELAY_OK;
    bool is_mended = false;
    int64_t now_ms;

    if (mending == NOT_NEEDED) {
        return BELAY_OK;
    }
    for (int i = 0; mending == IS_MINE && code == BELAY_OK && !is_mended && i < TELL_ATTEMPTS; i++) {
        code = i == 0 ? BELAY_OK : pg_ask_time(store, &now_ms, &why);
        code = code == BELAY_OK ? tell_jump(store, until_boot_ms, &is_mended, &why) : code;
    }
    if (mending == IS_MINE) {
        end_mending(store, is_mended);
    }
    code = is_mended
               ? BELAY_OK
               : error_set(err, BELAY_UNREACHABLE,
                           "the clock of the PostgreSQL server jumped forward, and it has not begun all "
                           "leases again yet%s%s",
                           why.text[0] == '\0' ? "" : ": ", why.text);
    belay_error_release(&why);
    return code;
}

bool pg_has_jumped(struct pg_store *store)
{
    bool has_jumped;

    (void)pthread_mutex_lock(&store->mutex);
    has_jumped = store->has_jumped;
    (void)pthread_mutex_unlock(&store->mutex);
    return has_jumped;
}

bool pg_was_mended_since(struct pg_store *store, int64_t boot_ms)
{
    bool was_mended;

    (void)pthread_mutex_lock(&store->mutex);
    was_mended = store->mended_boot_ms >= boot_ms;
    (void)pthread_mutex_unlock(&store->mutex);
    return was_mended;
}

/* ---- what processes on one machine know in common ---- */

static void append_word(char *out, size_t size, const char *word)
{
    size_t used = strlen(out);

    for (size_t i = 0; word[i] != '\0' && used + 1 < size; i++) {
        if (isalnum((unsigned char)word[i]) || word[i] == '-') { /* it goes into SQL as it is */
            out[used++] = word[i];
        }
    }
    out[used] = '\0';
}

void pg_name_machine(char *out, size_t size)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    char text[64] = "";
    ssize_t n;

    out[0] = '\0';
    if (file == NULL) {
        return;
    }
    if (fgets(text, sizeof text, file) != NULL) {
        append_word(out, size, text);
        n = readlink("/proc/self/ns/time", text, sizeof text - 1); /* -1: a kernel without */
        text[n < 0 ? 0 : n] = '\0';
        append_word(out, size, text);
    }
    (void)fclose(file);
}

/* With the mutex. */
static bool is_outdated(const struct pg_store *store, int64_t now_boot_ms)
{
    return store->machine[0] != '\0' && now_boot_ms - store->kept_boot_ms >= KEEP_EVERY_MS;
}

bool pg_clock_has_upkeep(struct pg_store *store)
{
    bool has_upkeep;

    (void)pthread_mutex_lock(&store->mutex);
    has_upkeep = store->has_jumped || is_outdated(store, clock_boot_ms());
    (void)pthread_mutex_unlock(&store->mutex);
    return has_upkeep;
}

/* *out_most_ms: what is to be kept. A jump that the server was not told of is not: the next process must see it. */
static bool is_due(struct pg_store *store, int64_t now_boot_ms, int64_t *out_most_ms)
{
    bool due;

    (void)pthread_mutex_lock(&store->mutex);
    due = !store->has_jumped && is_outdated(store, now_boot_ms);
    store->kept_boot_ms = due ? now_boot_ms : store->kept_boot_ms;
    *out_most_ms = most_at(store, now_boot_ms);
    (void)pthread_mutex_unlock(&store->mutex);
    return due;
}

/* Any role may have written any numbers. Times that no clock can have shown would hide each jump from now on. */
static bool is_credible(const struct pg_known_clock *before)
{
    return before->known && before->boot_ms >= -CLOCK_LAST_MS && before->boot_ms <= clock_boot_ms() &&
           before->server_ms >= 0 && before->server_ms <= CLOCK_LAST_MS;
}

/* Unless another thread has met the clock meanwhile: it knows more. */
static void recall(struct pg_store *store, const struct pg_known_clock *before)
{
    bool is_known = is_credible(before);
    int64_t offset_ms = is_known ? before->server_ms - before->boot_ms : 0;

    (void)pthread_mutex_lock(&store->mutex);
    if (!store->has_clock) {
        store->kept_boot_ms = is_known ? before->boot_ms : -KEEP_EVERY_MS;
    }
    if (is_known && !store->has_clock) {
        store->has_clock = true;
        store->clock_offset_ms = store->clock_most_ms = offset_ms;
        store->clock_most_boot_ms = before->boot_ms;
    }
    (void)pthread_mutex_unlock(&store->mutex);
}

enum belay_code pg_meet_clock(struct pg_store *store, struct pg_conn *conn,
                              const struct pg_known_clock *before, int64_t now_ms, int64_t asked_boot_ms,
                              struct belay_error *err)
{
    char sql[160 + PG_NAME_MAX + sizeof store->machine];
    int64_t now_boot_ms = clock_boot_ms();
    int64_t most_ms;

    recall(store, before);
    pg_saw_clock(store, now_ms, asked_boot_ms);
    if (is_due(store, now_boot_ms, &most_ms)) {
        (void)snprintf(sql, sizeof sql, "SELECT \"%s\".keep_clock('%s', %lld, %lld)", store->params.schema,
                       store->machine, (long long)(now_boot_ms + most_ms), (long long)now_boot_ms);
        (void)pg_conn_run(conn, sql, NULL, NULL); /* a standby refuses it, and the call that follows */
    }
    return PQtransactionStatus(conn->pg) == PQTRANS_IDLE
               ? BELAY_OK
               : error_set(err, BELAY_UNREACHABLE, "PostgreSQL did not answer in time");
}

void pg_keep_clock_if_due(struct pg_store *store)
{
    int64_t now_boot_ms = clock_boot_ms();
    char server[24], boot[24];
    const char *values[] = { store->machine, server, boot };
    struct pg_call call = { PG_KEEP_CLOCK, values, 3, false, 0 };
    PGresult *result = NULL;
    int64_t most_ms;

    if (is_due(store, now_boot_ms, &most_ms)) {
        (void)snprintf(server, sizeof server, "%lld", (long long)(now_boot_ms + most_ms));
        (void)snprintf(boot, sizeof boot, "%lld", (long long)now_boot_ms);
        (void)pg_call(store, &call, &result, NULL); /* the next one tries again */
        PQclear(result);
    }
}
