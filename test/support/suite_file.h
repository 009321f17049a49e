/* Shared by the programs that run the suite on a store in a file: a new file for each case, and a test clock. */
#ifndef SUPPORT_SUITE_FILE_H
#define SUPPORT_SUITE_FILE_H

#include "store/sqlite/sqlite_store.h"
#include "support/suite_main.h"

/* Both clocks of the store, which stand still until the suite advances them. */
extern const struct sqlite_hooks suite_file_clocks;

/* The file of the present case. */
const char *suite_file_path(void);

/* `begin` and `end` of a suite_program. `open` opens suite_file_path(). */
bool suite_file_begin(struct belay_store *(*open)(void *ctx), struct suite_fixture *out_fixture);
void suite_file_end(void);

#endif
