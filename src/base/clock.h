/* Clocks, and times and durations as text. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int64_t clock_boot_ms(void); /* CLOCK_BOOTTIME of this process's time namespace */
int64_t clock_boot_us(void); /* the same, for measurements */
int64_t clock_unix_ms(void); /* wall clock: for display */

enum { CLOCK_TEXT_SIZE = 32 };

/* "2024-11-05T14:32:15.123Z"; with `millis` false "2024-11-05T14:32:15Z". Returns `out`. */
char *clock_format_utc(char out[CLOCK_TEXT_SIZE], int64_t unix_ms, bool millis);

/*
 * The reverse. Accepts the forms of other programs, too: a fraction of any length, and a zone
 * such as +02:00, +0200 or none, which is UTC. False for NULL and for anything else.
 */
bool clock_parse_iso(const char *text, int64_t *out_unix_ms);
/*
 * RFC 3339 only, with 'T' and a zone, for times that people type. Never returns 0, which means "no time" to its
 * callers: 1970-01-01T00:00:00Z is 1.
 */
bool clock_parse_rfc3339(const char *text, int64_t *out_unix_ms);
/* The start of a period: such a time, or a duration before now, such as "7d". False for anything else. */
bool clock_parse_since(const char *text, int64_t now_unix_ms, int64_t *out_unix_ms);
int64_t clock_parse_utc(const char *text); /* 0 instead of false */

/* For display: "0s", "340ms", "4m 12s", "3h 45m", "2d 3h". Returns `out`. */
char *clock_format_span(char out[CLOCK_TEXT_SIZE], int64_t ms);

/* As in options: "500ms", "30s", "1h30m". Returns `out`. */
char *clock_format_duration(char out[CLOCK_TEXT_SIZE], int64_t ms);

#endif
