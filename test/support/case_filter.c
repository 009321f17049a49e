/* BELAY_TEST_CASE in the environment is a pattern of the cases to run; tools/test -k sets it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* Linked into every cmocka program, so that none needs code of its own for it. */
__attribute__((constructor)) static void filter_cases(void)
{
    cmocka_set_test_filter(getenv("BELAY_TEST_CASE"));
}
