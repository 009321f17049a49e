/*
 * The server's clock, which answers tell, beside this machine's boot clock, which is never set. What one process
 * knows of both is kept in the database (table clocks) for the next one on the same machine: a command that was
 * started after a step of the server's clock notices it, too.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/saturate.h"
#include "store/postgresql/postgresql_internal.h"

enum {
    STEP_REPORTED_MS = 1000,
    KEEP_EVERY_MS = 60000,
    DRIFT = 5000 /* two clocks drift apart by less than 1 ms in this many */
};

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
 * The answer was made between asking and now, so the offset is known up to the time that took. The
 * clock jumped forward if the least that the offset can be is more than the most that it could be.
 */
void pg_saw_clock(struct pg_store *store, int64_t now_ms, int64_t asked_boot_ms)
{
    int64_t offset_ms = now_ms - clock_boot_ms();
    int64_t limit_ms =
        store->params.clock_step_ms > STEP_REPORTED_MS ? store->params.clock_step_ms : STEP_REPORTED_MS;
    int64_t step_ms = 0;
    char text[160];

    (void)pthread_mutex_lock(&store->mutex);
    if (store->has_clock && offset_ms - store->clock_most_ms > limit_ms) {
        step_ms = offset_ms - store->clock_most_ms;
        store->jumped_to_ms = now_ms;
        store->kept_boot_ms = -KEEP_EVERY_MS;
    }
    store->has_clock = true;
    store->clock_offset_ms = offset_ms;
    store->clock_most_ms = now_ms - asked_boot_ms;
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

/* ---- telling the server ---- */

static int64_t take_jump(struct pg_store *store)
{
    int64_t jumped_to_ms;

    (void)pthread_mutex_lock(&store->mutex);
    jumped_to_ms = store->jumped_to_ms;
    store->jumped_to_ms = 0;
    (void)pthread_mutex_unlock(&store->mutex);
    return jumped_to_ms;
}

/* It could not be told: the next answer tries again. */
static void put_back_jump(struct pg_store *store, int64_t jumped_to_ms)
{
    (void)pthread_mutex_lock(&store->mutex);
    store->jumped_to_ms = jumped_to_ms;
    (void)pthread_mutex_unlock(&store->mutex);
}

bool pg_mend_clock(struct pg_store *store)
{
    char text[24];
    const char *values[] = { text };
    struct pg_call call = { PG_CLOCK_JUMPED, values, 1, false, 0 };
    PGresult *result = NULL;
    int64_t jumped_to_ms = take_jump(store);
    bool done;

    if (jumped_to_ms == 0) {
        return false;
    }
    (void)snprintf(text, sizeof text, "%lld", (long long)jumped_to_ms);
    done = pg_call(store, &call, &result, NULL) == BELAY_OK;
    PQclear(result);
    if (!done) {
        put_back_jump(store, jumped_to_ms);
    }
    return done;
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

static bool is_due(struct pg_store *store, int64_t now_boot_ms)
{
    bool due;

    (void)pthread_mutex_lock(&store->mutex);
    due = store->machine[0] != '\0' && store->jumped_to_ms == 0 &&
          now_boot_ms - store->kept_boot_ms >= KEEP_EVERY_MS;
    store->kept_boot_ms = due ? now_boot_ms : store->kept_boot_ms;
    (void)pthread_mutex_unlock(&store->mutex);
    return due;
}

static void recall(struct pg_store *store, const struct pg_known_clock *before)
{
    int64_t offset_ms = before->server_ms - before->boot_ms;

    (void)pthread_mutex_lock(&store->mutex);
    store->kept_boot_ms = before->known ? before->boot_ms : -KEEP_EVERY_MS;
    if (before->known) {
        store->has_clock = true;
        store->clock_offset_ms = offset_ms;
        store->clock_most_ms = offset_ms + (clock_boot_ms() - before->boot_ms) / DRIFT;
    }
    (void)pthread_mutex_unlock(&store->mutex);
}

enum belay_code pg_meet_clock(struct pg_store *store, struct pg_conn *conn,
                              const struct pg_known_clock *before, int64_t now_ms, int64_t asked_boot_ms,
                              struct belay_error *err)
{
    char sql[160 + PG_NAME_MAX + sizeof store->machine];
    int64_t jumped_to_ms;

    recall(store, before);
    pg_saw_clock(store, now_ms, asked_boot_ms);
    jumped_to_ms = take_jump(store);
    if (jumped_to_ms != 0) {
        (void)snprintf(sql, sizeof sql, "SELECT \"%s\".clock_jumped(%lld)", store->params.schema,
                       (long long)jumped_to_ms);
        if (pg_conn_run(conn, sql, NULL, NULL) != BELAY_OK) {
            put_back_jump(store, jumped_to_ms);
        }
    }
    if (is_due(store, clock_boot_ms())) {
        (void)snprintf(sql, sizeof sql, "SELECT \"%s\".keep_clock('%s', %lld, %lld)", store->params.schema,
                       store->machine, (long long)now_ms, (long long)asked_boot_ms);
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

    if (is_due(store, now_boot_ms)) {
        (void)pthread_mutex_lock(&store->mutex);
        most_ms = store->clock_most_ms;
        (void)pthread_mutex_unlock(&store->mutex);
        (void)snprintf(server, sizeof server, "%lld", (long long)(now_boot_ms + most_ms));
        (void)snprintf(boot, sizeof boot, "%lld", (long long)now_boot_ms);
        (void)pg_call(store, &call, &result, NULL); /* the next one tries again */
        PQclear(result);
    }
}
