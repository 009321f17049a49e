#include "lock/lease.h"

#include <assert.h>

#include "base/saturate.h"

enum {
    LEAD_MIN_MS = 10,
    LEAD_MAX_MS = 1000,
    ROOM_MAX_MS = 30000, /* between a heartbeat and the deadline: two thirds of the lease, up to this */
    RETRY_MIN_MS = 20,
    RETRY_MAX_MS = 5000
};

static int64_t clamp(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

int64_t lease_deadline_ms(int64_t sent_ms, int64_t ttl_ms, int64_t margin_ms)
{
    int64_t lead = clamp(ttl_ms / 20, LEAD_MIN_MS, LEAD_MAX_MS);

    assert(margin_ms >= 0);
    return sub_saturated(add_saturated(sent_ms, ttl_ms), margin_ms + lead);
}

static void lease_set_times(struct lease *lease, int64_t sent_ms, int64_t deadline_ms, int64_t ttl_ms)
{
    int64_t lasts_ms = deadline_ms > sent_ms ? sub_saturated(deadline_ms, sent_ms) : 0;
    int64_t latest_ms = lasts_ms - clamp(lasts_ms / 3 * 2, 0, ROOM_MAX_MS);

    assert(lease->heartbeat_ms >= 0);
    lease->ttl_ms = ttl_ms;
    lease->deadline_ms = deadline_ms;
    lease->beat_ms = lease->heartbeat_ms < latest_ms ? lease->heartbeat_ms : latest_ms;
    assert(lease->beat_ms <= lease->heartbeat_ms && lease->beat_ms <= lasts_ms);
    lease->next_beat_ms = lease->heartbeat_ms > 0 ? add_saturated(sent_ms, lease->beat_ms) : INT64_MAX;
    assert(lasts_ms == 0 || lease->next_beat_ms == INT64_MAX || lease->next_beat_ms <= deadline_ms);
}

void lease_begin(struct lease *lease, int64_t sent_ms, int64_t deadline_ms, int64_t ttl_ms,
                 int64_t heartbeat_ms)
{
    assert(heartbeat_ms >= 0);
    lease->heartbeat_ms = heartbeat_ms;
    lease->over = false;
    lease_set_times(lease, sent_ms, deadline_ms, ttl_ms);
}

void lease_renewed(struct lease *lease, int64_t sent_ms, int64_t deadline_ms, int64_t ttl_ms)
{
    if (lease->over) {
        return; /* on_lost was called already, and that is final */
    }
    lease_set_times(lease, sent_ms, deadline_ms, ttl_ms);
}

void lease_beat_failed(struct lease *lease, int64_t now_ms)
{
    if (lease->heartbeat_ms > 0) {
        lease->next_beat_ms = now_ms + clamp(lease->beat_ms / 8, RETRY_MIN_MS, RETRY_MAX_MS);
    }
}

enum lease_due lease_due(struct lease *lease, int64_t now_ms)
{
    if (lease_has_run_out(lease, now_ms)) {
        lease->over = true;
        return LEASE_LOST;
    }
    return lease_wants_beat(lease, now_ms) ? LEASE_BEAT : LEASE_QUIET;
}

int64_t lease_next_ms(const struct lease *lease)
{
    if (lease->over) {
        return INT64_MAX;
    }
    return lease->next_beat_ms < lease->deadline_ms ? lease->next_beat_ms : lease->deadline_ms;
}

void lease_end(struct lease *lease)
{
    lease->over = true;
}
