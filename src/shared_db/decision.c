/* Decisions: names, release, and the overall code. */
#include <stdlib.h>
#include <string.h>

#include "shared_db/shared_db_internal.h"

static const char *const action_names[] = {
    [BELAY_DB_STOPPED] = "stopped",
    [BELAY_DB_STARTED] = "started",
    [BELAY_DB_SKIPPED_SHARED_ACTIVE] = "skipped_shared_active",
    [BELAY_DB_SKIPPED_LOCK] = "skipped_lock",
    [BELAY_DB_SKIPPED] = "skipped",
    [BELAY_DB_ERROR] = "error",
};

const char *belay_db_action_name(enum belay_db_action action)
{
    return action_names[action <= BELAY_DB_ERROR ? action : BELAY_DB_ERROR];
}

bool db_action_parse(const char *name, enum belay_db_action *out_action)
{
    for (int i = 0; name != NULL && i <= BELAY_DB_ERROR; i++) {
        if (strcmp(name, action_names[i]) == 0) {
            *out_action = (enum belay_db_action)i;
            return true;
        }
    }
    return false;
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
