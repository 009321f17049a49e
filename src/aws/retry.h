/*
 * When to retry a request, and after which pause: the standard mode of AWS's SDKs as of 2026.
 * A quota per service keeps a fleet from overloading a service that is down: each retry takes
 * from it, each success gives back. Pauses have full jitter, from 0 to a limit that doubles.
 */
#ifndef AWS_RETRY_H
#define AWS_RETRY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "http_client/platform.h"

enum retry_kind {
    RETRY_NEVER,     /* the answer would be the same */
    RETRY_TRANSIENT, /* a transient failure: soon */
    RETRY_THROTTLE   /* overload: later */
};

enum { RETRY_QUOTA = 500, RETRY_COST = 14, RETRY_COST_THROTTLE = 5 };

struct retry_quota {
    pthread_mutex_t mutex;
    int tokens;
};

void retry_quota_init(struct retry_quota *quota);
void retry_quota_release(struct retry_quota *quota);
/* The cost, or 0 if too little is left. */
int retry_quota_take(struct retry_quota *quota, enum retry_kind kind);
/* After a success: the cost of the last retry, or 1 if there was none. */
void retry_quota_give(struct retry_quota *quota, int last_cost);

/*
 * The pause before retry number i (0 is the first). `asked_ms` is the server's
 * x-amz-retry-after, or negative: it can only make the pause longer, by at most 5 s.
 */
int64_t retry_pause_ms(const struct platform *platform, enum retry_kind kind, int64_t base_ms, unsigned i,
                       int64_t asked_ms);

#endif
