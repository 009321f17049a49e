/*
 * For the SQL of maintenance and of a restart, on the column `numbers` (sqlite_record.c) and on lock ids:
 *     belay_number(numbers, 'name')                 one of them
 *     belay_with(numbers, 'name', value, ...)       the same with other values
 *     belay_hash(key, lock_id)                      identifies an acquisition
 *     belay_born(lock_id)                           when its id was made, if known
 */
#include <string.h>

#include "base/fnv.h"
#include "store/sqlite/sqlite_internal.h"

static const char *const names[N_NUMBERS] = {
    [NUM_REVISION] = "revision",
    [NUM_TOKEN] = "token",
    [NUM_OUTCOME] = "outcome",
    [NUM_STALE_REPORTED] = "stale_noted",
    [NUM_TTL] = "ttl_ms",
    [NUM_HEARTBEAT] = "heartbeat_ms",
    [NUM_STALE_AFTER] = "stale_after_ms",
    [NUM_BEAT] = "beat_ms",
    [NUM_FREED] = "freed_ms",
    [NUM_LOCKED_AT] = "locked_at_unix_ms",
    [NUM_EXPIRES_AT] = "expires_at_unix_ms",
    [NUM_BEAT_AT] = "beat_at_unix_ms",
    [NUM_FREED_AT] = "freed_at_unix_ms",
    [NUM_MODE] = "mode",
    [NUM_SLOTS] = "slots",
};

uint64_t hash_text(const char *text)
{
    uint64_t hash = fnv_text(FNV_INIT, text);

    hash ^= hash >> 32; /* the high bits of FNV are weak for short strings */
    hash *= 0xd6e8feb86659fd93ULL;
    return hash ^ hash >> 32;
}

int64_t hash_acquisition(const char *key, const char *lock_id)
{
    return (int64_t)(hash_text(key) * 31 + hash_text(lock_id));
}

/*
 * belay's ids begin with the time (RFC 9562, version 7), and `acquisitions` is in that order,
 * so that new ids go to its end and old ones are deleted at its beginning: a step changes a
 * few pages instead of one for each id. Other ids work as well, but slower.
 */
int64_t id_born(const char *lock_id)
{
    int64_t born = 0;

    if (strlen(lock_id) != 36 || lock_id[8] != '-' || lock_id[14] != '7') {
        return 0;
    }
    for (size_t i = 0; i < 13; i++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit = i == 8 ? "0" : memchr(digits, lock_id[i], sizeof digits - 1);

        if (digit == NULL) {
            return 0;
        }
        born = i == 8 ? born : born << 4 | (int64_t)(digit - digits);
    }
    return born;
}

/* ---- the functions ---- */

static bool find_number(sqlite3_value *value, size_t *out_index)
{
    const char *name = (const char *)sqlite3_value_text(value);

    for (size_t i = 0; name != NULL && i < N_NUMBERS; i++) {
        if (strcmp(names[i], name) == 0) {
            *out_index = i;
            return true;
        }
    }
    return false;
}

static bool numbers_from_value(sqlite3_value *value, int64_t out[N_NUMBERS])
{
    const unsigned char *packed = sqlite3_value_blob(value);

    return numbers_read(packed, (size_t)sqlite3_value_bytes(value), out);
}

static void number_function(sqlite3_context *context, int n, sqlite3_value **values)
{
    int64_t numbers[N_NUMBERS];
    size_t index;

    (void)n;
    if (numbers_from_value(values[0], numbers) && find_number(values[1], &index)) {
        sqlite3_result_int64(context, numbers[index]);
    } else {
        sqlite3_result_error_code(context, SQLITE_CORRUPT);
    }
}

static void with_function(sqlite3_context *context, int n, sqlite3_value **values)
{
    unsigned char packed[NUMBERS_MAX];
    int64_t numbers[N_NUMBERS];
    bool good = numbers_from_value(values[0], numbers);

    for (int i = 1; good && i + 1 < n; i += 2) {
        size_t index = 0;

        good = find_number(values[i], &index);
        numbers[index] = sqlite3_value_int64(values[i + 1]);
    }
    if (good) {
        sqlite3_result_blob(context, packed, (int)numbers_write(numbers, packed), SQLITE_TRANSIENT);
    } else {
        sqlite3_result_error_code(context, SQLITE_CORRUPT);
    }
}

static void hash_function(sqlite3_context *context, int n, sqlite3_value **values)
{
    const char *key = (const char *)sqlite3_value_text(values[0]);
    const char *lock_id = (const char *)sqlite3_value_text(values[1]);

    (void)n;
    if (key != NULL && lock_id != NULL) {
        sqlite3_result_int64(context, hash_acquisition(key, lock_id));
    }
}

static void born_function(sqlite3_context *context, int n, sqlite3_value **values)
{
    const char *lock_id = (const char *)sqlite3_value_text(values[0]);

    (void)n;
    sqlite3_result_int64(context, lock_id == NULL ? 0 : id_born(lock_id));
}

int db_add_functions(struct sqlite_store *store)
{
    static const struct {
        const char *name;
        int n;
        void (*function)(sqlite3_context *, int, sqlite3_value **);
    } functions[] = { { "belay_number", 2, number_function },
                      { "belay_with", -1, with_function },
                      { "belay_hash", 2, hash_function },
                      { "belay_born", 1, born_function } };
    int rc = SQLITE_OK;

    for (size_t i = 0; rc == SQLITE_OK && !store->has_functions && i < sizeof functions / sizeof functions[0];
         i++) {
        rc = sqlite3_create_function_v2(store->db, functions[i].name, functions[i].n,
                                        SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL, functions[i].function, NULL,
                                        NULL, NULL);
    }
    store->has_functions = rc == SQLITE_OK;
    return rc;
}
