/* Clocks, and times and durations as text. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int64_t clock_boot_ms(void); /* CLOCK_BOOTTIME of this process's time namespace */
int64_t clock_boot_us(void); /* the same, to measure with */
int64_t clock_unix_ms(void); /* wall clock: for people */

enum { CLOCK_TEXT_SIZE = 32 };

/* "2024-11-05T14:32:15.123Z"; with `millis` false "2024-11-05T14:32:15Z". Returns `out`. */
char *clock_format_utc(char out[CLOCK_TEXT_SIZE], int64_t unix_ms, bool millis);

/* The same the other way, for what was written by us; 0 for NULL and for anything else. */
int64_t clock_parse_utc(const char *text);

/* As people say it: "0s", "340ms", "4m 12s", "3h 45m", "2d 3h". Returns `out`. */
char *clock_format_span(char out[CLOCK_TEXT_SIZE], int64_t ms);

/* As it is typed: "500ms", "30s", "1h30m". Returns `out`. */
char *clock_format_duration(char out[CLOCK_TEXT_SIZE], int64_t ms);

#endif
