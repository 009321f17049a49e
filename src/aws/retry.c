#include "aws/retry.h"

#include <assert.h>

enum { MOST_MS = 20000, THROTTLE_BASE_MS = 1000, ASKED_MOST_MS = 5000 };

void retry_quota_init(struct retry_quota *quota)
{
    (void)pthread_mutex_init(&quota->mutex, NULL);
    quota->tokens = RETRY_QUOTA;
}

void retry_quota_release(struct retry_quota *quota)
{
    (void)pthread_mutex_destroy(&quota->mutex);
}

int retry_quota_take(struct retry_quota *quota, enum retry_kind kind)
{
    int cost = kind == RETRY_THROTTLE ? RETRY_COST_THROTTLE : RETRY_COST;

    (void)pthread_mutex_lock(&quota->mutex);
    if (quota->tokens < cost) {
        cost = 0;
    }
    quota->tokens -= cost;
    assert(quota->tokens >= 0);
    (void)pthread_mutex_unlock(&quota->mutex);
    return cost;
}

void retry_quota_give(struct retry_quota *quota, int last_cost)
{
    (void)pthread_mutex_lock(&quota->mutex);
    quota->tokens += last_cost > 0 ? last_cost : 1;
    if (quota->tokens > RETRY_QUOTA) {
        quota->tokens = RETRY_QUOTA;
    }
    (void)pthread_mutex_unlock(&quota->mutex);
}

int64_t retry_pause_ms(const struct platform *platform, enum retry_kind kind, int64_t base_ms, unsigned i,
                       int64_t asked_ms)
{
    int64_t most = kind == RETRY_THROTTLE ? THROTTLE_BASE_MS : base_ms;
    int64_t pause;

    for (; i > 0 && most < MOST_MS; i--) {
        most *= 2;
    }
    if (most > MOST_MS) {
        most = MOST_MS;
    }
    pause = (int64_t)(platform_random(platform) * (double)most);
    if (asked_ms > pause) {
        pause = asked_ms < pause + ASKED_MOST_MS ? asked_ms : pause + ASKED_MOST_MS;
    }
    return pause;
}
