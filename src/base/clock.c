#include "base/clock.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
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

/*
 * A server formats several times for every request: strftime() took a tenth of that time,
 * gmtime_r(), which first checks the time zone, a hundredth.
 */
#define YEAR_0_MS INT64_C(-62167219200000)
#define YEAR_10000_MS INT64_C(253402300800000)
enum { DAY_MS = 86400000, DAYS_400_YEARS = 146097, DAYS_4_YEARS = 1461, DAYS_5_MONTHS = 153 };

struct date {
    unsigned year, month, day;
};

/*
 * With years that begin in March, the leap day is the last day, and the months have 31, 30,
 * 31, 30, 31 days again and again. Then every step is the same: the remainder of n days in m
 * units is counted in m-ths of a day, so that the division is exact.
 */
static struct date date_of(unsigned days_since_year_0)
{
    /* Counted from the first of March of the year -400. */
    unsigned left = 4 * (days_since_year_0 + DAYS_400_YEARS - 60) + 3;
    unsigned century = left / DAYS_400_YEARS;
    unsigned year;
    unsigned month;

    left = left % DAYS_400_YEARS / 4 * 4 + 3;
    year = left / DAYS_4_YEARS;
    left = left % DAYS_4_YEARS / 4 * 5 + 2;
    month = left / DAYS_5_MONTHS;
    return (struct date){ .year = 100 * century + year - 400 + (month >= 10),
                          .month = month < 10 ? month + 3 : month - 9,
                          .day = left % DAYS_5_MONTHS / 5 + 1 };
}

static void put_two(char *out, unsigned value, char end)
{
    text_two_digits(out, value);
    out[2] = end;
}

char *clock_format_utc(char out[CLOCK_TEXT_SIZE], int64_t unix_ms, bool millis)
{
    uint64_t since_year_0_ms = (uint64_t)unix_ms - (uint64_t)YEAR_0_MS;
    struct date date;
    unsigned ms;

    if (unix_ms < YEAR_0_MS || unix_ms >= YEAR_10000_MS) {
        (void)snprintf(out, CLOCK_TEXT_SIZE, "%lldms", (long long)unix_ms);
        return out;
    }
    date = date_of((unsigned)(since_year_0_ms / DAY_MS));
    ms = (unsigned)(since_year_0_ms % DAY_MS);
    put_two(out, date.year / 100, '0');
    put_two(out + 2, date.year % 100, '-');
    put_two(out + 5, date.month, '-');
    put_two(out + 8, date.day, 'T');
    put_two(out + 11, ms / 3600000, ':');
    put_two(out + 14, ms / 60000 % 60, ':');
    put_two(out + 17, ms / 1000 % 60, millis ? '.' : 'Z');
    if (millis) {
        put_two(out + 20, ms % 1000 / 10, (char)('0' + ms % 10));
        out[23] = 'Z';
    }
    out[millis ? 24 : 20] = '\0';
    return out;
}

/* Reads exactly n digits. */
static bool take_digits(const char **text, int n, int *out)
{
    int value = 0;

    for (int i = 0; i < n; i++) {
        char c = (*text)[i];
        if (c < '0' || c > '9') {
            return false;
        }
        value = value * 10 + (c - '0');
    }
    *text += n;
    *out = value;
    return true;
}

static bool take_one_of(const char **text, const char *any_of)
{
    if (**text == '\0' || strchr(any_of, **text) == NULL) {
        return false;
    }
    (*text)++;
    return true;
}

static bool parse_fraction(const char **text, int *out_ms)
{
    int scale = 100;

    if (**text != '.' && **text != ',') {
        return true;
    }
    (*text)++;
    if (!isdigit((unsigned char)**text)) {
        return false;
    }
    for (; isdigit((unsigned char)**text); (*text)++) {
        *out_ms += (**text - '0') * scale;
        scale /= 10;
    }
    return true;
}

static bool parse_zone(const char **text, int *out_minutes)
{
    int sign = **text == '-' ? -1 : 1;
    int hours;
    int minutes = 0;

    if (**text == 'Z' || **text == 'z') {
        (*text)++;
        return true;
    }
    if (**text == '\0') {
        return true;
    }
    if (!take_one_of(text, "+-") || !take_digits(text, 2, &hours)) {
        return false;
    }
    if (**text == ':') {
        (*text)++;
    }
    if (**text != '\0' && !take_digits(text, 2, &minutes)) {
        return false;
    }
    *out_minutes = sign * (hours * 60 + minutes);
    return hours < 24 && minutes < 60;
}

/* timegm() would make March of the 30th of February. */
static int days_of_month(const struct tm *tm)
{
    static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    int year = tm->tm_year + 1900;
    bool is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);

    return days[tm->tm_mon] + (tm->tm_mon == 1 && is_leap ? 1 : 0);
}

static bool in_range(const struct tm *tm)
{
    return tm->tm_mon >= 0 && tm->tm_mon < 12 && tm->tm_mday >= 1 && tm->tm_mday <= days_of_month(tm) &&
           tm->tm_hour < 24 && tm->tm_min < 60 && tm->tm_sec <= 60;
}

bool clock_parse_iso(const char *text, int64_t *out_unix_ms)
{
    struct tm tm = { 0 };
    int ms = 0;
    int zone = 0;

    if (text == NULL || !take_digits(&text, 4, &tm.tm_year) || !take_one_of(&text, "-") ||
        !take_digits(&text, 2, &tm.tm_mon) || !take_one_of(&text, "-") ||
        !take_digits(&text, 2, &tm.tm_mday) || !take_one_of(&text, "Tt ") ||
        !take_digits(&text, 2, &tm.tm_hour) || !take_one_of(&text, ":") ||
        !take_digits(&text, 2, &tm.tm_min) || !take_one_of(&text, ":") ||
        !take_digits(&text, 2, &tm.tm_sec) || !parse_fraction(&text, &ms) || !parse_zone(&text, &zone) ||
        *text != '\0') {
        return false;
    }
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    if (!in_range(&tm)) {
        return false;
    }
    *out_unix_ms = ((int64_t)timegm(&tm) - (int64_t)zone * 60) * 1000 + ms;
    return true;
}

bool clock_parse_rfc3339(const char *text, int64_t *out_unix_ms)
{
    static const char form[] = "0000-00-00T00:00:00";
    size_t at = 0;

    for (; form[at] != '\0'; at++) {
        if (form[at] == '0' ? text[at] < '0' || text[at] > '9' : text[at] != form[at]) {
            return false;
        }
    }
    if (text[at] == '.') {
        at += 1 + strspn(text + at + 1, "0123456789");
    }
    if (strcmp(text + at, "Z") != 0 &&
        ((text[at] != '+' && text[at] != '-') || strlen(text + at) != 6 || text[at + 3] != ':')) {
        return false;
    }
    if (!clock_parse_iso(text, out_unix_ms)) {
        return false;
    }
    *out_unix_ms = *out_unix_ms == 0 ? 1 : *out_unix_ms;
    return true;
}

int64_t clock_parse_utc(const char *text)
{
    int64_t unix_ms = 0;

    (void)clock_parse_iso(text, &unix_ms);
    return unix_ms;
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

bool clock_parse_since(const char *text, int64_t now_unix_ms, int64_t *out_unix_ms)
{
    int64_t ago_ms;

    if (!belay_parse_duration(text, &ago_ms)) {
        return clock_parse_rfc3339(text, out_unix_ms);
    }
    *out_unix_ms = now_unix_ms > ago_ms ? now_unix_ms - ago_ms : 1;
    return true;
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
        /* Larger units first, each once: "30m1h" is probably a mistake. */
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
