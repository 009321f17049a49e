/* Threads that read the clock of a DynamoDB store while an answer of another one sets it (L7). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "store/dynamodb/dynamodb_internal.h"

enum { MAX_SKEW_MS = 2000 };
#define DATE_MS INT64_C(1730816000000)

static int64_t now_ms;
static int64_t stopped_ms; /* for how long a thread is stopped */
static bool others_answer; /* another thread takes in an answer as soon as it can */
static struct ddb_store *store;

static int64_t date_ms(void *context)
{
    (void)context;
    return DATE_MS + now_ms;
}

/* The thread may be stopped after it has read the clock, and another one goes on; not if the mutex keeps that out. */
static int64_t boot_ms(void *context)
{
    int64_t read_ms = now_ms;

    (void)context;
    if (others_answer && pthread_mutex_trylock(&store->clock.mutex) == 0) {
        (void)pthread_mutex_unlock(&store->clock.mutex);
        others_answer = false;
        now_ms += stopped_ms;
        ddb_clock_set_date(store, date_ms(NULL), now_ms);
        others_answer = true;
    }
    return read_ms;
}

static int set_up(void **state)
{
    store = calloc(1, sizeof *store);
    assert_non_null(store);
    now_ms = 1000;
    stopped_ms = 10000;
    store->hooks.boot_ms = boot_ms;
    store->hooks.unix_ms = date_ms;
    store->params.max_skew_ms = MAX_SKEW_MS;
    ddb_clock_init(store);
    ddb_clock_set_date(store, date_ms(NULL), now_ms);
    others_answer = true;
    *state = store;
    return 0;
}

static int tear_down(void **state)
{
    others_answer = false;
    ddb_clock_release(store);
    free(*state);
    return 0;
}

/* It would refuse every change. */
static void a_right_clock_is_not_taken_for_a_wrong_one(void **state)
{
    (void)state;
    assert_int_equal(ddb_clock_skew_ms(store), 0);
}

/* It would take a live lock. */
static void a_lease_is_judged_by_no_later_time(void **state)
{
    (void)state;
    stopped_ms = DDB_DATE_RESOLUTION_MS / 2; /* the bounds of the two answers overlap */
    ddb_clock_set_date(store, date_ms(NULL), now_ms);
    others_answer = false;
    assert_true(ddb_clock_judge_ms(store) <= date_ms(NULL));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_right_clock_is_not_taken_for_a_wrong_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_lease_is_judged_by_no_later_time, set_up, tear_down),
    };

    return cmocka_run_group_tests_name("dynamodb clock", tests, NULL, NULL);
}
