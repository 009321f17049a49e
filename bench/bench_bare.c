/*
 * What SQLite itself allows: upserts of one narrow row a second, each in a
 * transaction of its own, in WAL with synchronous=NORMAL, over KEYS keys.
 * An acquire+release pair is two transactions, each of two rows.
 *
 *     bench_bare FILE SECONDS KEYS
 */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SCATTER 2654435761UL

static const char schema[] =
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
    "CREATE TABLE IF NOT EXISTS locks (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID";
static const char upsert[] = "INSERT INTO locks VALUES (?1, ?2) "
                             "ON CONFLICT (key) DO UPDATE SET value = excluded.value";

static double now_s(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int put(sqlite3_stmt *statement, unsigned long number, unsigned long keys)
{
    char key[32];
    char value[200];
    int rc;

    (void)snprintf(key, sizeof key, "bench-%07lu", number * SCATTER % keys);
    (void)snprintf(value, sizeof value, "%0150lu", number);
    rc = sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC);
    if (rc == SQLITE_OK) {
        rc = sqlite3_bind_text(statement, 2, value, -1, SQLITE_STATIC);
    }
    if (rc == SQLITE_OK) {
        (void)sqlite3_step(statement);
        rc = sqlite3_reset(statement);
    }
    return rc;
}

int main(int argc, char **argv)
{
    sqlite3_stmt *statement = NULL;
    sqlite3 *db = NULL;
    unsigned long keys, done = 0;
    double seconds, began;
    int rc;

    if (argc != 4 || (keys = strtoul(argv[3], NULL, 10)) == 0) {
        (void)fprintf(stderr, "usage: bench_bare FILE SECONDS KEYS\n");
        return 64;
    }
    seconds = strtod(argv[2], NULL);
    rc = sqlite3_open(argv[1], &db);
    if (rc == SQLITE_OK) {
        rc = sqlite3_exec(db, schema, NULL, NULL, NULL);
    }
    if (rc == SQLITE_OK) {
        rc = sqlite3_prepare_v2(db, upsert, -1, &statement, NULL);
    }
    began = now_s();
    while (rc == SQLITE_OK && now_s() - began < seconds) {
        rc = put(statement, done++, keys);
    }
    if (rc == SQLITE_OK) {
        (void)printf("%.0f\n", (double)done / (now_s() - began));
    } else {
        (void)fprintf(stderr, "bench_bare: %s\n", sqlite3_errmsg(db));
    }
    (void)sqlite3_finalize(statement);
    (void)sqlite3_close(db);
    return rc == SQLITE_OK ? 0 : 1;
}
