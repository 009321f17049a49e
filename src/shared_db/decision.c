/* Decisions: names, release, and the overall code. */
#include <stdlib.h>
#include <string.h>

#include "shared_db/shared_db_internal.h"

const char *belay_db_action_name(enum belay_db_action action)
{
    switch (action) {
    case BELAY_DB_STOPPED:
        return "stopped";
    case BELAY_DB_STARTED:
        return "started";
    case BELAY_DB_SKIPPED_SHARED_ACTIVE:
        return "skipped_shared_active";
    case BELAY_DB_SKIPPED_LOCK:
        return "skipped_lock";
    case BELAY_DB_SKIPPED:
        return "skipped";
    case BELAY_DB_ERROR:
        break;
    }
    return "error";
}

void names_free(char **names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(names[i]);
    }
    free(names);
}

void belay_db_result_release(struct belay_db_result *result)
{
    free(result->database);
    free(result->kind);
    free(result->host);
    free(result->reason);
    free(result->by);
    names_free(result->sharing_apps, result->n_sharing);
    names_free(result->active_apps, result->n_active);
    memset(result, 0, sizeof *result);
}

void belay_db_results_free(struct belay_db_results *results)
{
    if (results == NULL) {
        return;
    }
    for (size_t i = 0; i < results->n; i++) {
        belay_db_result_release(&results->results[i]);
    }
    free(results->results);
    free(results);
}

/* An error takes precedence over a skip, so that the exit code shows it. */
enum belay_code belay_db_results_code(const struct belay_db_results *results)
{
    enum belay_code code = BELAY_OK;

    for (size_t i = 0; i < results->n; i++) {
        const struct belay_db_result *result = &results->results[i];

        if (result->action == BELAY_DB_ERROR) {
            return result->code == BELAY_OK ? BELAY_UNREACHABLE : result->code;
        }
        if (result->action == BELAY_DB_SKIPPED_LOCK || result->action == BELAY_DB_SKIPPED_SHARED_ACTIVE) {
            code = BELAY_HELD;
        }
    }
    return code;
}
