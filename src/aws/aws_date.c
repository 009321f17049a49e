#include "aws/aws_date.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

/* Reads exactly n digits. */
static bool digits(const char **text, int n, int *out)
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

static bool literal(const char **text, const char *any_of)
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
    if (!literal(text, "+-") || !digits(text, 2, &hours)) {
        return false;
    }
    if (**text == ':') {
        (*text)++;
    }
    if (**text != '\0' && !digits(text, 2, &minutes)) {
        return false;
    }
    *out_minutes = sign * (hours * 60 + minutes);
    return hours < 24 && minutes < 60;
}

static bool in_range(const struct tm *tm)
{
    return tm->tm_mon >= 0 && tm->tm_mon < 12 && tm->tm_mday >= 1 && tm->tm_mday <= 31 && tm->tm_hour < 24 &&
           tm->tm_min < 60 && tm->tm_sec <= 60;
}

bool date_parse_iso(const char *text, int64_t *out_unix_ms)
{
    struct tm tm;
    int ms = 0;
    int zone = 0;

    memset(&tm, 0, sizeof tm);
    if (!digits(&text, 4, &tm.tm_year) || !literal(&text, "-") || !digits(&text, 2, &tm.tm_mon) ||
        !literal(&text, "-") || !digits(&text, 2, &tm.tm_mday) || !literal(&text, "Tt ") ||
        !digits(&text, 2, &tm.tm_hour) || !literal(&text, ":") || !digits(&text, 2, &tm.tm_min) ||
        !literal(&text, ":") || !digits(&text, 2, &tm.tm_sec) || !parse_fraction(&text, &ms) ||
        !parse_zone(&text, &zone) || *text != '\0') {
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
