#include "server/metrics/notify_counts.h"

#include "server/metrics/text_format.h"
#include "server/notify/notify.h"

static void write_result(struct buf *out, const char *name, const char *result, unsigned long long value)
{
    buf_adds(out, "belay_notifications_total");
    text_label(out, "{", "target", name, NOTIFY_NAME_SIZE);
    buf_addf(out, ",result=\"%s\"} %llu\n", result, value);
}

void notify_counts_write(const struct notify *notify, struct buf *out)
{
    struct notify_counts counts;

    if (!notify_counts_at(notify, 0, &counts)) {
        return;
    }
    text_head(out, "belay_notifications_total", "counter",
              "Notifications sent or dropped, and calls that failed, by target.");
    for (size_t i = 0; notify_counts_at(notify, i, &counts); i++) {
        write_result(out, counts.name, "sent", counts.sent);
        write_result(out, counts.name, "failed", counts.failed);
        write_result(out, counts.name, "dropped", counts.dropped);
    }
    text_head(out, "belay_notifications_queued", "gauge",
              "Notifications that are still to be sent, by target.");
    for (size_t i = 0; notify_counts_at(notify, i, &counts); i++) {
        buf_adds(out, "belay_notifications_queued");
        text_label(out, "{", "target", counts.name, NOTIFY_NAME_SIZE);
        buf_addf(out, "} %zu\n", counts.queued);
    }
}
