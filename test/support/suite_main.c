#include "support/suite_main.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct suite_program *running;

static void run_case(void **state)
{
    size_t i = *(const size_t *)*state;
    struct suite_fixture fixture;
    char why[400] = "";
    bool applies;
    bool passed = true;

    if (!running->begin(&fixture)) {
        fail_msg("no fresh %s store could be made", running->name);
    }
    applies = suite_applies(i, &fixture);
    if (applies) {
        passed = suite_run(i, &fixture, why, sizeof why);
    }
    running->end();
    if (!passed) {
        fail_msg("[%s] %s: %s", suite_promise(i), suite_name(i), why);
    }
    if (!applies) {
        skip();
    }
}

int suite_main(const struct suite_program *program)
{
    const char *each = getenv("BELAY_SUITE_EVERY");
    size_t every = each == NULL || atoi(each) < 1 ? 1 : (size_t)atoi(each);
    size_t n = suite_count();
    size_t n_tests = 0;
    struct CMUnitTest *tests = calloc(n, sizeof *tests);
    size_t *numbers = calloc(n, sizeof *numbers);
    int failed = 1;

    for (size_t i = 0; tests != NULL && numbers != NULL && i < n; i++) {
        if (i % every == 0) {
            numbers[n_tests] = i;
            tests[n_tests] = (struct CMUnitTest){ suite_name(i), run_case, NULL, NULL, &numbers[n_tests] };
            n_tests++;
        }
    }
    running = program;
    /* A run that found nothing to run has proved nothing. */
    if (n_tests > 0) {
        failed = _cmocka_run_group_tests(program->name, tests, n_tests, NULL, NULL);
    }
    free(tests);
    free(numbers);
    return failed;
}
