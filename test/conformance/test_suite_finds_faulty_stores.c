/*
 * The suite must be able to fail: for every rule of the port there is a store
 * that breaks it and nothing else (support/faulty_store.h), and each must be found.
 *
 * With BELAY_SUITE_ALL=1 in the environment it runs every case against every
 * broken store and lists the cases that none of them makes fail.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/faulty_store.h"
#include "support/memstore.h"
#include "support/suite.h"

struct world {
    struct memstore_data *data;
    int64_t now_ms;
    enum faulty_store_rule rule;
};

static int64_t read_clock(void *ctx)
{
    return __atomic_load_n(&((struct world *)ctx)->now_ms, __ATOMIC_SEQ_CST);
}

static int64_t read_wall_clock(void *ctx)
{
    return 1730816000000 + read_clock(ctx);
}

static struct belay_store *open_store(void *ctx)
{
    struct world *world = ctx;

    return faulty_store_new(memstore_open(world->data), world->rule);
}

static void advance(void *ctx, int64_t ms)
{
    (void)__atomic_add_fetch(&((struct world *)ctx)->now_ms, ms, __ATOMIC_SEQ_CST);
}

static bool run_case(size_t i, enum faulty_store_rule rule, char *why, size_t why_size)
{
    struct world world = { .now_ms = 1000, .rule = rule };
    struct suite_fixture fixture = { .open = open_store,
                                     .advance = advance,
                                     .ctx = &world,
                                     .timeout_ms = rule == FAULTY_NOTHING ? 0 : 150,
                                     .keeps_events = true,
                                     .keeps_modes = true,
                                     .keeps_items = true,
                                     .keeps_freezes = true,
                                     .knows_used_ids = true,
                                     .clock_stands = true };
    bool passed = true;

    world.data = memstore_data_new(read_clock, read_wall_clock, &world);
    memstore_keep_items(world.data);
    if (suite_applies(i, &fixture)) {
        passed = suite_run(i, &fixture, why, why_size);
    }
    memstore_data_free(world.data);
    return passed;
}

static void a_store_that_breaks_nothing_passes_every_case(void **state)
{
    char why[400];
    int failed = 0;

    (void)state;
    for (size_t i = 0; i < suite_count(); i++) {
        if (!run_case(i, FAULTY_NOTHING, why, sizeof why)) {
            print_error("%s: %s\n", suite_name(i), why);
            failed++;
        }
    }
    assert_int_equal(failed, 0);
}

/* Cases that take long are left for the mistakes that no other case finds. */
static bool is_slow(size_t i)
{
    return strstr(suite_name(i), "many") != NULL || strstr(suite_name(i), "five_hundred") != NULL;
}

static void is_found(void **state)
{
    enum faulty_store_rule rule = *(const enum faulty_store_rule *)*state;
    char why[400];

    for (int slow = 0; slow <= 1; slow++) {
        for (size_t i = 0; i < suite_count(); i++) {
            if (is_slow(i) == (slow == 1) && !run_case(i, rule, why, sizeof why)) {
                print_message("             by %s: %s\n", suite_name(i), why);
                return;
            }
        }
    }
    fail_msg("no case fails on a store that %s", faulty_store_name(rule));
}

/* Every case is the proof of something: none should pass whatever is broken. */
static void list_cases_that_never_fail(void)
{
    char why[400];

    for (size_t i = 0; i < suite_count(); i++) {
        int rule = FAULTY_NOTHING + 1;

        while (rule < FAULTY_COUNT && run_case(i, (enum faulty_store_rule)rule, why, sizeof why)) {
            rule++;
        }
        if (rule == FAULTY_COUNT) {
            printf("no broken store makes it fail: %s\n", suite_name(i));
        }
    }
}

int main(void)
{
    static enum faulty_store_rule rules[FAULTY_COUNT];
    static char names[FAULTY_COUNT][100];
    struct CMUnitTest tests[FAULTY_COUNT];

    if (getenv("BELAY_SUITE_ALL") != NULL) {
        list_cases_that_never_fail();
        return 0;
    }
    tests[0] = (struct CMUnitTest)cmocka_unit_test(a_store_that_breaks_nothing_passes_every_case);
    for (int i = 1; i < FAULTY_COUNT; i++) {
        rules[i] = (enum faulty_store_rule)i;
        (void)snprintf(names[i], sizeof names[i], "a_store_is_found_that_%s", faulty_store_name(rules[i]));
        tests[i] = (struct CMUnitTest){ names[i], is_found, NULL, NULL, &rules[i] };
    }
    return cmocka_run_group_tests_name("broken stores", tests, NULL, NULL);
}
