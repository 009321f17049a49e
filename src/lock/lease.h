/*
 * A holder's own view of its lease (L6).
 *
 * It is counted on the holder's boot clock from before the request was sent, so
 * that it always ends before the store's: whatever the answer took to come back
 * only makes it shorter.
 *
 *        sent        answered                    deadline   end in the store
 *     ----+-------------+------- beat --- beat ------+--------+------->
 *         |<-------------- ttl - margin - lead ----->|
 *
 * The lead is the time that a holder needs to be notified of its loss and to stop. A heartbeat
 * that leaves too little time before the deadline, for a renewal that hangs or
 * fails and for another one, is brought forward.
 */
#ifndef LOCK_LEASE_H
#define LOCK_LEASE_H

#include <stdbool.h>
#include <stdint.h>

struct lease {
    int64_t ttl_ms;
    int64_t heartbeat_ms; /* as asked for; 0: it is not renewed */
    int64_t beat_ms;      /* how long after a renewal the next one is due: the heartbeat, or sooner */
    int64_t deadline_ms;  /* boot clock; not to be relied upon from here on */
    int64_t next_beat_ms; /* boot clock; INT64_MAX: never */
    bool over;            /* lost, or released */
};

enum lease_due {
    LEASE_QUIET, /* nothing to do before lease_next_ms() */
    LEASE_BEAT,  /* renew it now */
    LEASE_LOST   /* the deadline has passed: tell the holder. Said once. */
};

/*
 * Until when a lease may be relied upon that lasts `ttl_ms` from `sent_ms`. The
 * margin is the store's: by how much its clock may differ from ours.
 */
int64_t lease_deadline_ms(int64_t sent_ms, int64_t ttl_ms, int64_t margin_ms);

/* The deadline is as lease_deadline_ms() has it, or sooner: a server says when. */
void lease_begin(struct lease *lease, int64_t sent_ms, int64_t deadline_ms, int64_t ttl_ms,
                 int64_t heartbeat_ms);

/* A renewal that was sent at `sent_ms` is known to have happened. */
void lease_renewed(struct lease *lease, int64_t sent_ms, int64_t deadline_ms, int64_t ttl_ms);

/* A renewal failed in a way that proves nothing: try again soon, within the lease. */
void lease_beat_failed(struct lease *lease, int64_t now_ms);

/* When lease_due() next has something to say. */
int64_t lease_next_ms(const struct lease *lease);

void lease_end(struct lease *lease);

static inline bool lease_is_live(const struct lease *lease, int64_t now_ms)
{
    return !lease->over && now_ms < lease->deadline_ms;
}

/* Its deadline has come while it is still held: call on_lost. */
static inline bool lease_has_run_out(const struct lease *lease, int64_t now_ms)
{
    return !lease->over && now_ms >= lease->deadline_ms;
}

/* A renewal is due, and in time. */
static inline bool lease_wants_beat(const struct lease *lease, int64_t now_ms)
{
    return lease_is_live(lease, now_ms) && now_ms >= lease->next_beat_ms;
}

/* What is due, for a caller that renews and watches in one place. LEASE_LOST also ends the lease here. */
enum lease_due lease_due(struct lease *lease, int64_t now_ms);

#endif
