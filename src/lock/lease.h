/*
 * A holder's own view of its lease (L6).
 *
 * It counts on the holder's boot clock, from before the request was sent. So it always
 * ends before the lease in the store does: a slow answer only makes it shorter.
 *
 *        sent        answered                    deadline   end in the store
 *     ----+-------------+------- beat --- beat ------+--------+------->
 *         |<-------------- ttl - margin - lead ----->|
 *
 * The lead is the time in which a holder is notified of its loss and stops. Between a
 * heartbeat and the deadline there must be time for a renewal that hangs or fails, and for
 * another one; if the heartbeat asked for leaves less, it comes earlier.
 */
#ifndef LOCK_LEASE_H
#define LOCK_LEASE_H

#include <stdbool.h>
#include <stdint.h>

struct lease {
    int64_t ttl_ms;
    int64_t heartbeat_ms; /* as asked for; 0: the lease is not renewed */
    int64_t beat_ms;      /* from one renewal to the next: heartbeat_ms or less */
    int64_t deadline_ms;  /* boot clock; the holder may rely on the lock until then */
    int64_t next_beat_ms; /* boot clock; INT64_MAX: never */
    bool over;            /* lost, or released */
};

enum lease_due {
    LEASE_QUIET, /* nothing to do before lease_next_ms() */
    LEASE_BEAT,  /* renew it now */
    LEASE_LOST   /* the deadline has passed: notify the holder. Returned once. */
};

/*
 * The deadline of a lease of `ttl_ms` whose request was sent at `sent_ms`. `margin_ms` is by how
 * much the store's clock may differ from ours.
 */
int64_t lease_deadline_ms(int64_t sent_ms, int64_t ttl_ms, int64_t margin_ms);

/* The deadline is that of lease_deadline_ms() or, if a server has set one, an earlier one. */
void lease_begin(struct lease *lease, int64_t sent_ms, int64_t deadline_ms, int64_t ttl_ms,
                 int64_t heartbeat_ms);

/* A renewal that was sent at `sent_ms` has succeeded. */
void lease_renewed(struct lease *lease, int64_t sent_ms, int64_t deadline_ms, int64_t ttl_ms);

/* A renewal failed, and the lock may still be held: the next one is due soon. */
void lease_beat_failed(struct lease *lease, int64_t now_ms);

/* When lease_due() is next something other than LEASE_QUIET, on the boot clock. */
int64_t lease_next_ms(const struct lease *lease);

void lease_end(struct lease *lease);

static inline bool lease_is_live(const struct lease *lease, int64_t now_ms)
{
    return !lease->over && now_ms < lease->deadline_ms;
}

/* The deadline has passed, and the holder was not notified yet: call on_lost. */
static inline bool lease_has_run_out(const struct lease *lease, int64_t now_ms)
{
    return !lease->over && now_ms >= lease->deadline_ms;
}

/* A renewal is due, and the deadline has not passed. */
static inline bool lease_wants_beat(const struct lease *lease, int64_t now_ms)
{
    return lease_is_live(lease, now_ms) && now_ms >= lease->next_beat_ms;
}

/* For a caller that renews and watches in one place: the next thing to do. LEASE_LOST also ends the lease here. */
enum lease_due lease_due(struct lease *lease, int64_t now_ms);

#endif
