/* Times as other programs write them. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "store/dynamodb/dynamodb_internal.h"

#define SECONDS_MAX INT64_C(99999999999) /* more than that is in milliseconds: the year 5138 */

/* "1705333200", "1705333200123", "1705333200.5" */
static bool parse_number(const char *text, int64_t *out_unix_ms)
{
    char *end;
    long long number;

    errno = 0;
    number = strtoll(text, &end, 10);
    if (errno != 0 || end == text) {
        return false;
    }
    if (*end == '.') {
        end += 1 + strspn(end + 1, "0123456789");
    }
    if (*end != '\0' || number < 0) {
        return false;
    }
    *out_unix_ms = number > SECONDS_MAX ? number : number * 1000;
    return true;
}

/* ".123456789" in ms, up to the end of the digits. */
static int64_t parse_fraction(const char **at)
{
    int64_t ms = 0;
    int64_t weight = 100;

    if (**at != '.' && **at != ',') {
        return 0;
    }
    for ((*at)++; isdigit((unsigned char)**at); (*at)++) {
        ms += (**at - '0') * weight;
        weight /= 10;
    }
    return ms;
}

/* "Z", "+02:00", "-0700"; nothing is taken for UTC. */
static bool parse_zone(const char *at, int64_t *out_ms)
{
    int hours, minutes, used = 0;
    int sign = *at == '-' ? -1 : 1;

    *out_ms = 0;
    if (*at == '\0' || strcmp(at, "Z") == 0 || strcmp(at, "z") == 0) {
        return true;
    }
    if (*at != '+' && *at != '-') {
        return false;
    }
    if (sscanf(at + 1, "%2d:%2d%n", &hours, &minutes, &used) != 2 &&
        sscanf(at + 1, "%2d%2d%n", &hours, &minutes, &used) != 2) {
        return false;
    }
    *out_ms = sign * (hours * INT64_C(60) + minutes) * 60000;
    return at[1 + used] == '\0';
}

bool ddb_parse_time(const char *text, int64_t *out_unix_ms)
{
    struct tm tm = { 0 };
    int64_t ms, zone_ms;
    int used = 0;
    const char *at;

    if (text == NULL) {
        return false;
    }
    if (strspn(text, "0123456789.") == strlen(text)) {
        return parse_number(text, out_unix_ms);
    }
    if (sscanf(text, "%4d-%2d-%2d%*1[Tt ]%2d:%2d:%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
               &tm.tm_min, &tm.tm_sec, &used) != 6 ||
        used == 0) {
        return false;
    }
    at = text + used;
    ms = parse_fraction(&at);
    if (!parse_zone(at, &zone_ms)) {
        return false;
    }
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    *out_unix_ms = (int64_t)timegm(&tm) * 1000 + ms - zone_ms;
    return true;
}

/* An expiry is rounded up: a lease is never shorter than what was promised. */
json_t *ddb_time_value(enum layout_format format, int64_t unix_ms, bool round_up)
{
    char text[CLOCK_TEXT_SIZE];
    int64_t whole_s = (unix_ms + (round_up ? 999 : 0)) / 1000;

    switch (format) {
    case FORMAT_SECONDS:
        return av_int(whole_s);
    case FORMAT_RFC3339:
        return av_text(clock_format_utc(text, whole_s * 1000, false));
    case FORMAT_ISO_MS:
        return av_text(clock_format_utc(text, unix_ms, true));
    case FORMAT_TEXT:
    case FORMAT_NUMBER:
    case FORMAT_SWITCH:
    case FORMAT_MAP:
    case FORMAT_MILLIS:
        break;
    }
    return av_int(unix_ms);
}
