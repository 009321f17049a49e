/* The conformance suite on the SQLite store, on a clock of the test's own. */
#include <stdio.h>
#include <stdlib.h>

#include "support/suite_file.h"

static struct belay_store *open_store(void *ctx)
{
    struct belay_store *store = NULL;
    struct belay_error err = BELAY_ERROR_INIT;
    char *url = NULL;

    (void)ctx;
    if (sqlite_store_open(suite_file_path(), &suite_file_clocks, &store, &url, &err) != BELAY_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        belay_error_release(&err);
        return NULL;
    }
    free(url);
    return store;
}

static bool begin(struct suite_fixture *out_fixture)
{
    return suite_file_begin(open_store, out_fixture);
}

int main(void)
{
    static const struct suite_program program = { "sqlite", begin, suite_file_end };

    return suite_main(&program);
}
