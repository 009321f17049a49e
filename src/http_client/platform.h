/*
 * The platform under the network code: clocks, sleep, random numbers and the environment.
 * Tests replace it, so that an hour of retries and refreshes takes no time and is
 * reproducible.
 */
#ifndef HTTP_CLIENT_PLATFORM_H
#define HTTP_CLIENT_PLATFORM_H

#include <stdbool.h>
#include <stdint.h>

struct platform {
    int64_t (*unix_ms)(void *context); /* wall clock: signatures and the expiry of credentials */
    int64_t (*mono_ms)(void *context); /* monotonic: timeouts and pauses */
    void (*sleep_ms)(void *context, int64_t ms);
    double (*random)(void *context); /* 0 <= x < 1 */
    /* A variable of the environment, or NULL. Valid as long as the environment does not change. */
    const char *(*env)(void *context, const char *name);
    void *context;
};

const struct platform *platform_system(void);

int64_t platform_unix_ms(const struct platform *platform);
int64_t platform_mono_ms(const struct platform *platform);
void platform_sleep_ms(const struct platform *platform, int64_t ms); /* returns at once if ms <= 0 */
double platform_random(const struct platform *platform);
const char *platform_env(const struct platform *platform, const char *name); /* NULL also for an empty one */
bool platform_env_is_true(const struct platform *platform, const char *name);

#endif
