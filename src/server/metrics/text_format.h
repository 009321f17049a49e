/* The text format of Prometheus, version 0.0.4. */
#ifndef SERVER_METRICS_TEXT_FORMAT_H
#define SERVER_METRICS_TEXT_FORMAT_H

#include "base/buf.h"
#include "server/core/histogram.h"

void text_head(struct buf *out, const char *name, const char *type, const char *help);
void text_gauge(struct buf *out, const char *name, const char *help, double value);
/* Append BEFORE name="value", escaped, with at most `max` bytes of the value. */
void text_label(struct buf *out, const char *before, const char *name, const char *value, size_t max);
/* `labels` without the braces; "" for none. */
void text_histogram(struct buf *out, const char *name, const char *labels, const struct histogram *histogram,
                    const double *bounds, size_t n);

#endif
