/*
 * ?observe=1: only the local boot clock is trusted.
 * A lease that stayed unchanged for its whole length while this machine observed it has
 * expired. The time of the first observation is kept on disk, in
 * $XDG_STATE_HOME/belay/observe, so that a short-lived process continues the observation of an
 * earlier one. An observation of another boot does not count.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fnv.h"
#include "store/dynamodb/dynamodb_internal.h"

enum { BOOT_ID_SIZE = 40 };

static uint64_t hash_number(uint64_t hash, int64_t number)
{
    char text[24];

    (void)snprintf(text, sizeof text, "%" PRId64, number);
    return fnv_field(hash, text);
}

static void read_boot_id(char out[BOOT_ID_SIZE])
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    if (file == NULL || fgets(out, BOOT_ID_SIZE, file) == NULL) {
        out[0] = '\0';
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    out[strcspn(out, "\n")] = '\0';
}

/* ---- on disk ------------------------------------------------------------------ */

static bool state_home(char *out, size_t size)
{
    const char *xdg = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    int n;

    if (xdg != NULL && xdg[0] == '/') {
        n = snprintf(out, size, "%s", xdg);
    } else if (home != NULL && home[0] == '/') {
        n = snprintf(out, size, "%s/.local/state", home);
    } else {
        return false;
    }
    return n > 0 && (size_t)n < size;
}

static bool make_directories(char *path)
{
    for (char *at = strchr(path + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST) {
            *at = '/';
            return false;
        }
        *at = '/';
    }
    return true;
}

/* One file for each observed lease. */
static bool file_of(const struct ddb_store *store, uint64_t what, char *out, size_t size)
{
    const char *endpoint = aws_endpoint(store->aws, AWS_DYNAMODB);
    uint64_t name = fnv_field(fnv_field(what, store->params.table), endpoint == NULL ? "" : endpoint);
    char home[2048];
    int n;

    if (!state_home(home, sizeof home)) {
        return false;
    }
    n = snprintf(out, size, "%s/belay/observe/%016" PRIx64, home, name);
    return n > 0 && (size_t)n < size;
}

static bool load_observation(const char *path, const char *boot_id, uint64_t state, int64_t *out_since_ms)
{
    FILE *file = fopen(path, "re");
    char then[BOOT_ID_SIZE] = "";
    uint64_t seen = 0;
    bool found;

    if (file == NULL) {
        return false;
    }
    found = fscanf(file, "%39s %" SCNx64 " %" SCNd64, then, &seen, out_since_ms) == 3 && seen == state &&
            strcmp(then, boot_id) == 0;
    (void)fclose(file);
    return found;
}

/* Atomically: half a number would be another time. */
static void save_observation(const char *path, const char *boot_id, uint64_t state, int64_t since_ms)
{
    char temporary[2300];
    FILE *file;
    int n = snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());

    if (n < 0 || (size_t)n >= sizeof temporary || !make_directories(temporary)) {
        return;
    }
    file = fopen(temporary, "we");
    if (file == NULL) {
        return;
    }
    n = fprintf(file, "%s %016" PRIx64 " %" PRId64 "\n", boot_id, state, since_ms);
    if (fclose(file) != 0 || n < 0 || rename(temporary, path) != 0) {
        (void)unlink(temporary);
    }
}

/* ---- looking -------------------------------------------------------------------- */

/* How long the lease has been unchanged. Without a directory, only this process's observations count. */
static int64_t unchanged_ms(struct ddb_store *store, uint64_t what, uint64_t state)
{
    struct ddb_observed *observed = &store->observed[what % OBSERVED_MAX];
    int64_t now_ms = ddb_boot_ms(store);
    char boot_id[BOOT_ID_SIZE];
    char path[2200];
    int64_t since_ms = now_ms;

    (void)pthread_mutex_lock(&store->seen.mutex);
    if (observed->what != what || observed->state != state) {
        bool has_file = file_of(store, what, path, sizeof path);

        read_boot_id(boot_id);
        if (!has_file || boot_id[0] == '\0' || !load_observation(path, boot_id, state, &since_ms) ||
            since_ms > now_ms) {
            since_ms = now_ms;
            if (has_file && boot_id[0] != '\0') {
                save_observation(path, boot_id, state, since_ms);
            }
        }
        *observed = (struct ddb_observed){ what, state, since_ms };
    }
    since_ms = observed->since_ms;
    (void)pthread_mutex_unlock(&store->seen.mutex);
    return now_ms - since_ms;
}

static void remove_observation(const struct ddb_store *store, uint64_t what)
{
    char path[2200];

    if (file_of(store, what, path, sizeof path)) {
        (void)unlink(path);
    }
}

void ddb_observe(struct ddb_store *store, const json_t *queue, struct belay_record *record)
{
    int64_t now_ms = ddb_clock_judge_ms(store);
    uint64_t what = fnv_field(FNV_INIT, record->key);

    for (size_t i = 0; i < record->n_holders; i++) {
        struct belay_holder *holder = &record->holders[i];
        uint64_t of_it = fnv_field(fnv_field(what, "holder"), holder->lock_id);
        uint64_t state = hash_number(hash_number(of_it, holder->expires_ms), holder->last_heartbeat_ms);

        holder->expires_ms = now_ms + holder->ttl_ms - unchanged_ms(store, of_it, state);
    }
    if (record->held && record->n_holders == 0) {
        uint64_t state = hash_number(hash_number(fnv_field(what, record->lock_id), record->expires_ms),
                                     record->last_heartbeat_ms);

        record->expires_ms = now_ms + record->ttl_ms - unchanged_ms(store, what, state);
    } else if (!record->held && record->revision != 0) {
        remove_observation(store, what);
    }
    for (size_t i = 0; i < record->n_intents; i++) {
        struct belay_intent *intent = &record->intents[i];
        uint64_t below = fnv_field(fnv_field(what, "intent"), intent->lock_id);
        uint64_t state = hash_number(below, intent->expires_ms);

        intent->expires_ms =
            now_ms + ddb_intent_ttl_ms(queue, intent->lock_id) - unchanged_ms(store, below, state);
    }
}
