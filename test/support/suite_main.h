/* A cmocka program that runs the whole suite on one store, each case as a test of its own name. */
#ifndef SUPPORT_SUITE_MAIN_H
#define SUPPORT_SUITE_MAIN_H

#include "support/suite.h"

/*
 * `begin` makes a fixture on fresh, empty data before each case, `end` takes it
 * away. Cases that do not apply are skipped. BELAY_SUITE_EVERY=N in the
 * environment runs only each N-th case.
 */
struct suite_program {
    const char *name;
    bool (*begin)(struct suite_fixture *out_fixture);
    void (*end)(void);
};

int suite_main(const struct suite_program *program);

#endif
