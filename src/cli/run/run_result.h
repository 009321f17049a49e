/* How `belay run` ended, for --result FILE. */
#ifndef CLI_RUN_RUN_RESULT_H
#define CLI_RUN_RUN_RESULT_H

#include "cli/core/cli.h"

struct run_result {
    const char *key;    /* NULL: not even that is known */
    const char *result; /* "completed", "failed", "lost", "not_acquired", "cancelled" */
    int exit_code;
    int signal;                    /* that ended COMMAND; 0: none */
    char reason[700];              /* empty: none */
    const struct belay_info *lock; /* as it was last; NULL: it ran without one, or did not run */
};

/* Check, before anything is done, that the file can be written later. */
enum belay_code run_result_check(const char *path, struct belay_error *err);

/* Write it as one JSON object: whoever reads the file finds all of it, or the file of before. */
enum belay_code run_result_write(const char *path, const struct run_result *result, struct belay_error *err);

#endif
