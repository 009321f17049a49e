/*
 * The conformance suite of the public interface, on one place where locks can be:
 *
 *     test_api [sqlite | owned | http | http-dynamodb | postgresql | http-postgresql]
 *
 * sqlite: a file; owned: the same while a server owns it, through its socket; http:
 * a server on a file; http-dynamodb, http-postgresql: a server on DynamoDB Local, on
 * PostgreSQL; postgresql: a database. The server is the belay beside this program
 * (test/support/serve.py).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/api_kit.h"
#include "support/server.h"

enum { TESTS_MAX = 64, PATH_SIZE = 300 };

static char directory[64];
static char url[PATH_SIZE];
static struct server server;
static struct server database;

static bool is_word(const char *which, const char *word)
{
    return strcmp(which, word) == 0;
}

/* Start a script that is given the belay beside this program. */
static bool start_with_belay(struct server *started, const char *script, const char *more)
{
    char program[PATH_SIZE] = "";
    char argument[3 * PATH_SIZE];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    char *slash = n > 0 ? strrchr(program, '/') : NULL;

    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    (void)snprintf(argument, sizeof argument, "%s/belay %s", program, more);
    return server_start(started, script, argument);
}

static bool start_server(const char *kind)
{
    char more[2 * PATH_SIZE];

    (void)snprintf(more, sizeof more, "%s %s", directory, kind);
    return start_with_belay(&server, BELAY_SOURCE_DIR "/test/support/serve.py", more);
}

static bool start_database(void)
{
    if (!start_with_belay(&database, BELAY_SOURCE_DIR "/test/support/postgresql.py", "")) {
        return false;
    }
    (void)snprintf(url, sizeof url, "postgresql://postgres@127.0.0.1:%d/postgres?max_clock_step=10ms",
                   database.port);
    return true;
}

static bool begin(const char *which)
{
    (void)snprintf(directory, sizeof directory, "/tmp/belay-api-XXXXXX");
    if (mkdtemp(directory) == NULL) {
        return false;
    }
    (void)snprintf(url, sizeof url, "sqlite:%s/locks.db", directory);
    if (is_word(which, "sqlite")) {
        return true;
    }
    if (strstr(which, "postgresql") != NULL && !start_database()) {
        return false;
    }
    if (is_word(which, "postgresql")) {
        return true;
    }
    if (!start_server(is_word(which, "http-dynamodb") ? "dynamodb" : database.port > 0 ? url : "sqlite")) {
        return false;
    }
    if (!is_word(which, "owned")) {
        (void)snprintf(url, sizeof url, "http://127.0.0.1:%d", server.port);
    }
    return true;
}

static void end(void)
{
    char command[PATH_SIZE];

    server_stop(&server);
    server_stop(&database);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", directory);
    if (directory[0] != '\0' && system(command) != 0) {
        (void)fprintf(stderr, "%s stays\n", directory);
    }
}

static size_t gather(struct CMUnitTest *tests, struct api_place *place)
{
    const struct CMUnitTest *const groups[] = { api_holding, api_waiting, api_reading };
    const size_t sizes[] = { n_api_holding, n_api_waiting, n_api_reading };
    size_t n = 0;

    for (size_t g = 0; g < sizeof sizes / sizeof sizes[0]; g++) {
        for (size_t i = 0; i < sizes[g] && n < TESTS_MAX; i++) {
            tests[n] = groups[g][i];
            tests[n++].initial_state = place;
        }
    }
    return n;
}

int main(int argc, char **argv)
{
    const char *which = argc > 1 ? argv[1] : "sqlite";
    bool is_file = is_word(which, "sqlite") || is_word(which, "owned");
    struct api_place place = { url, !is_word(which, "http-dynamodb"), is_file };
    struct CMUnitTest tests[TESTS_MAX];
    size_t n = gather(tests, &place);
    int failed = 1;

    if (!begin(which)) {
        (void)fprintf(stderr, "'%s' cannot be had\n", which);
    } else if (n > 0) {
        failed = _cmocka_run_group_tests(which, tests, n, NULL, NULL);
    }
    end();
    return failed;
}
