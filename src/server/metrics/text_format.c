#include "server/metrics/text_format.h"

#include <string.h>

void text_head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void text_gauge(struct buf *out, const char *name, const char *help, double value)
{
    text_head(out, name, "gauge", help);
    buf_addf(out, "%s %.15g\n", name, value);
}

/* Where to cut a text to at most `max` bytes without splitting a character. */
static size_t cut(const char *value, size_t max)
{
    size_t len = 0;

    while (len < max && value[len] != '\0') {
        len++;
    }
    while (value[len] != '\0' && len > 0 && ((unsigned char)value[len] & 0xc0) == 0x80) {
        len--;
    }
    return len;
}

void text_label(struct buf *out, const char *before, const char *name, const char *value, size_t max)
{
    size_t len = cut(value, max);
    size_t plain;

    buf_adds(out, before);
    buf_adds(out, name);
    buf_adds(out, "=\"");
    for (size_t i = 0; i < len; i += plain + 1) {
        for (plain = 0; i + plain < len && strchr("\\\"\n", value[i + plain]) == NULL;) {
            plain++;
        }
        buf_add(out, value + i, plain);
        if (i + plain < len) {
            buf_add(out, "\\", 1);
            buf_add(out, value[i + plain] == '\n' ? "n" : value + i + plain, 1);
        }
    }
    buf_adds(out, "\"");
}

void text_histogram(struct buf *out, const char *name, const char *labels, const struct histogram *histogram,
                    const double *bounds, size_t n)
{
    const char *comma = *labels == '\0' ? "" : ",";
    const char *open = *labels == '\0' ? "" : "{";
    const char *close = *labels == '\0' ? "" : "}";
    uint64_t below = 0;

    for (size_t i = 0; i < n; i++) {
        below += histogram->buckets[i];
        buf_addf(out, "%s_bucket{%s%sle=\"%g\"} %llu\n", name, labels, comma, bounds[i],
                 (unsigned long long)below);
    }
    buf_addf(out, "%s_bucket{%s%sle=\"+Inf\"} %llu\n", name, labels, comma,
             (unsigned long long)histogram->count);
    buf_addf(out, "%s_sum%s%s%s %.15g\n%s_count%s%s%s %llu\n", name, open, labels, close, histogram->sum,
             name, open, labels, close, (unsigned long long)histogram->count);
}
