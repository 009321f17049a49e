#include <string.h>

#include "telemetry/sinks.h"

static void add(struct measure *out, size_t *n, const char *name, double value, const char *unit, char statsd)
{
    out[(*n)++] = (struct measure){ .name = name, .value = value, .unit = unit, .statsd = statsd };
}

/* clang-format off */
static const struct {
    const char *event;
    const char *counter;
} counters[] = {
    { "lock.acquired", "lock.acquisition.success" },
    { "lock.refused", "lock.acquisition.failure" },
    { "lock.renewed", "lock.heartbeat.success" },
    { "heartbeat.failed", "lock.heartbeat.failure" },
    { "lock.stale", "lock.stale.detected" },
    { "lock.taken_over", "lock.expired" }, /* S0.7: it ran out without being completed */
    { "lock.forced", "lock.forced" },
    { "lock.lost", "lock.lost" },
};
/* clang-format on */

size_t measure_event(const struct belay_event *event, struct measure out[MEASURES_MAX])
{
    size_t n = 0;

    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++) {
        if (strcmp(event->type, counters[i].event) == 0) {
            add(out, &n, counters[i].counter, 1, "Count", 'c');
        }
    }
    if (event->duration_ms < 0) {
        return n;
    }
    if (strcmp(event->type, "lock.acquired") == 0) {
        add(out, &n, "lock.acquisition.duration", (double)event->duration_ms, "Milliseconds", 'm');
    } else if (strcmp(event->type, "lock.released") == 0 || strcmp(event->type, "lock.forced") == 0) {
        add(out, &n, "lock.held.duration", (double)event->duration_ms / 1000.0, "Seconds", 'm');
    } else if (strcmp(event->type, "wait.ended") == 0) {
        add(out, &n, "lock.wait.duration", (double)event->duration_ms, "Milliseconds", 'm');
    }
    return n;
}
