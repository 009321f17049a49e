#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "belay.h"

static int64_t read_ms(clockid_t id)
{
    struct timespec t;

    (void)clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t clock_boot_ms(void)
{
    return read_ms(CLOCK_BOOTTIME);
}

int64_t clock_boot_us(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t clock_unix_ms(void)
{
    return read_ms(CLOCK_REALTIME);
}

int64_t belay_now_boot_ms(void)
{
    return clock_boot_ms();
}

static void put_digits(char *out, int n, int value, char end)
{
    out[n] = end;
    while (n > 0) {
        out[--n] = (char)('0' + value % 10);
        value /= 10;
    }
}

char *clock_format_utc(char out[CLOCK_TEXT_SIZE], int64_t unix_ms, bool millis)
{
    int64_t fraction = unix_ms % 1000;
    time_t seconds;
    struct tm tm;

    if (fraction < 0) {
        fraction += 1000;
    }
    seconds = (time_t)((unix_ms - fraction) / 1000);
    memset(&tm, 0, sizeof tm);
    (void)gmtime_r(&seconds, &tm);
    if (tm.tm_year < -1900 || tm.tm_year > 9999 - 1900) {
        (void)snprintf(out, CLOCK_TEXT_SIZE, "%lldms", (long long)unix_ms);
        return out;
    }
    /* Digit by digit: a server writes several of these for every request, and strftime() took a tenth of it. */
    put_digits(out, 4, tm.tm_year + 1900, '-');
    put_digits(out + 5, 2, tm.tm_mon + 1, '-');
    put_digits(out + 8, 2, tm.tm_mday, 'T');
    put_digits(out + 11, 2, tm.tm_hour, ':');
    put_digits(out + 14, 2, tm.tm_min, ':');
    put_digits(out + 17, 2, tm.tm_sec, millis ? '.' : 'Z');
    if (millis) {
        put_digits(out + 20, 3, (int)fraction, 'Z');
    }
    out[millis ? 24 : 20] = '\0';
    return out;
}

int64_t clock_parse_utc(const char *text)
{
    struct tm tm = { 0 };
    int millis = 0;
    int n = 0;

    if (text == NULL || sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
                               &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &n) != 6) {
        return 0;
    }
    if (text[n] == '.' && sscanf(text + n, ".%3d", &millis) != 1) {
        millis = 0;
    }
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    return (int64_t)timegm(&tm) * 1000 + millis;
}

static const struct unit {
    const char *name;
    int64_t ms;
} units[] = { { "d", 86400000 }, { "h", 3600000 }, { "m", 60000 }, { "s", 1000 } };
enum { N_UNITS = sizeof units / sizeof units[0] };

char *clock_format_span(char out[CLOCK_TEXT_SIZE], int64_t ms)
{
    if (ms < 0) {
        ms = 0;
    }
    if (ms < 1000) {
        (void)snprintf(out, CLOCK_TEXT_SIZE, ms == 0 ? "0s" : "%" PRId64 "ms", ms);
        return out;
    }
    for (size_t i = 0; i < N_UNITS; i++) {
        if (ms < units[i].ms) {
            continue;
        }
        int n = snprintf(out, CLOCK_TEXT_SIZE, "%" PRId64 "%s", ms / units[i].ms, units[i].name);
        int64_t rest = i + 1 < N_UNITS ? ms % units[i].ms / units[i + 1].ms : 0;
        if (rest > 0) {
            (void)snprintf(out + n, CLOCK_TEXT_SIZE - (size_t)n, " %" PRId64 "%s", rest, units[i + 1].name);
        }
        break;
    }
    return out;
}

char *clock_format_duration(char out[CLOCK_TEXT_SIZE], int64_t ms)
{
    size_t n = 0;

    out[0] = '\0';
    for (size_t i = 0; i < N_UNITS; i++) {
        if (ms >= units[i].ms) {
            n += (size_t)snprintf(out + n, CLOCK_TEXT_SIZE - n, "%" PRId64 "%s", ms / units[i].ms,
                                  units[i].name);
            ms %= units[i].ms;
        }
    }
    if (ms > 0 || n == 0) {
        (void)snprintf(out + n, CLOCK_TEXT_SIZE - n, n == 0 && ms == 0 ? "0s" : "%" PRId64 "ms", ms);
    }
    return out;
}

/* The unit at `text`, longest first: "ms" is not minutes. */
static int64_t unit_ms(const char *text, size_t *out_len)
{
    if (strncmp(text, "ms", 2) == 0) {
        *out_len = 2;
        return 1;
    }
    for (size_t i = 0; i < N_UNITS; i++) {
        if (text[0] == units[i].name[0]) {
            *out_len = 1;
            return units[i].ms;
        }
    }
    return 0;
}

bool belay_parse_duration(const char *text, int64_t *out_ms)
{
    const int64_t most = INT64_MAX / 86400000 / 2;
    int64_t total = 0;
    int64_t last_unit = INT64_MAX;

    if (text == NULL || *text == '\0') {
        return false;
    }
    if (strcmp(text, "0") == 0) {
        *out_ms = 0;
        return true;
    }
    while (*text != '\0') {
        int64_t count = 0;
        int64_t unit;
        size_t len = 0;

        if (*text < '0' || *text > '9') {
            return false;
        }
        for (; *text >= '0' && *text <= '9'; text++) {
            count = count * 10 + (*text - '0');
            if (count > most) {
                return false;
            }
        }
        unit = unit_ms(text, &len);
        /* Larger units first, each once: "30m1h" is more likely a slip than a wish. */
        if (unit == 0 || unit >= last_unit || count > (INT64_MAX / 4 - total) / unit) {
            return false;
        }
        total += count * unit;
        last_unit = unit;
        text += len;
    }
    *out_ms = total;
    return true;
}
