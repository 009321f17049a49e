/* Arithmetic with times from outside: results are clamped to the range of int64_t. */
#ifndef BASE_SATURATE_H
#define BASE_SATURATE_H

#include <stdint.h>

static inline int64_t add_saturated(int64_t a, int64_t b)
{
    int64_t sum;

    return !__builtin_add_overflow(a, b, &sum) ? sum : b < 0 ? INT64_MIN : INT64_MAX;
}

static inline int64_t sub_saturated(int64_t a, int64_t b)
{
    int64_t difference;

    return !__builtin_sub_overflow(a, b, &difference) ? difference : b < 0 ? INT64_MAX : INT64_MIN;
}

/* A floating-point number as an integer; 0 for NaN. */
static inline int64_t saturate(double value)
{
    return value != value ? 0 : value >= 9.2e18 ? INT64_MAX : value <= -9.2e18 ? INT64_MIN : (int64_t)value;
}

#endif
