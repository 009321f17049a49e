#include "http_client/platform.h"

#include <errno.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/text.h"

static int64_t system_unix_ms(void *context)
{
    (void)context;
    return clock_unix_ms();
}

static int64_t system_mono_ms(void *context)
{
    (void)context;
    return clock_boot_ms();
}

static void system_sleep_ms(void *context, int64_t ms)
{
    struct timespec rest = { (time_t)(ms / 1000), (long)(ms % 1000) * 1000000L };

    (void)context;
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &rest, &rest) == EINTR) {
    }
}

static double system_random(void *context)
{
    uint64_t bits;

    (void)context;
    /* Without random bytes every pause has the average length: worse, but no reason to fail. */
    if (!random_bytes(&bits, sizeof bits)) {
        return 0.5;
    }
    return (double)(bits >> 11) / 9007199254740992.0;
}

static const char *system_env(void *context, const char *name)
{
    (void)context;
    return getenv(name);
}

static const struct platform system_platform = {
    system_unix_ms, system_mono_ms, system_sleep_ms, system_random, system_env, NULL,
};

const struct platform *platform_system(void)
{
    return &system_platform;
}

int64_t platform_unix_ms(const struct platform *platform)
{
    return platform->unix_ms(platform->context);
}

int64_t platform_mono_ms(const struct platform *platform)
{
    return platform->mono_ms(platform->context);
}

void platform_sleep_ms(const struct platform *platform, int64_t ms)
{
    if (ms > 0) {
        platform->sleep_ms(platform->context, ms);
    }
}

double platform_random(const struct platform *platform)
{
    return platform->random(platform->context);
}

const char *platform_env(const struct platform *platform, const char *name)
{
    const char *value = platform->env(platform->context, name);

    return value == NULL || *value == '\0' ? NULL : value;
}

bool platform_env_is_true(const struct platform *platform, const char *name)
{
    const char *value = platform_env(platform, name);

    return value != NULL && strcasecmp(value, "true") == 0;
}
