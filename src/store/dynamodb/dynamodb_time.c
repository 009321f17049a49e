/* Times as other programs write them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "store/dynamodb/dynamodb_internal.h"

#define SECONDS_MAX INT64_C(99999999999) /* larger numbers are milliseconds: the year 5138 */

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

bool ddb_parse_time(const char *text, int64_t *out_unix_ms)
{
    return text != NULL && strspn(text, "0123456789.") == strlen(text) ? parse_number(text, out_unix_ms)
                                                                       : clock_parse_iso(text, out_unix_ms);
}

/* An expiry is rounded up: a lease is never shorter than promised. */
json_t *ddb_time_value(enum layout_format format, int64_t unix_ms, bool round_up)
{
    char text[CLOCK_TEXT_SIZE];
    int64_t whole_s = (unix_ms + (round_up ? 999 : 0)) / 1000;

    if (format == FORMAT_RFC3339) {
        return av_text(clock_format_utc(text, whole_s * 1000, false));
    }
    if (format == FORMAT_ISO_MS) {
        return av_text(clock_format_utc(text, unix_ms, true));
    }
    return av_int(format == FORMAT_SECONDS ? whole_s : unix_ms);
}
