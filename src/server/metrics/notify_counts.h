/* The counters of notifications, for Prometheus. */
#ifndef SERVER_METRICS_NOTIFY_COUNTS_H
#define SERVER_METRICS_NOTIFY_COUNTS_H

#include "base/buf.h"

struct notify;

/* Nothing if no target is configured. */
void notify_counts_write(const struct notify *notify, struct buf *out);

#endif
