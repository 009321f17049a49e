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

static double system_chance(void *context)
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

static const struct net_port system_port = {
    system_unix_ms, system_mono_ms, system_sleep_ms, system_chance, system_env, NULL,
};

const struct net_port *net_port_system(void)
{
    return &system_port;
}

int64_t port_unix_ms(const struct net_port *port)
{
    return port->unix_ms(port->context);
}

int64_t port_mono_ms(const struct net_port *port)
{
    return port->mono_ms(port->context);
}

void port_sleep_ms(const struct net_port *port, int64_t ms)
{
    if (ms > 0) {
        port->sleep_ms(port->context, ms);
    }
}

double port_chance(const struct net_port *port)
{
    return port->chance(port->context);
}

const char *port_env(const struct net_port *port, const char *name)
{
    const char *value = port->env(port->context, name);

    return value == NULL || *value == '\0' ? NULL : value;
}

bool port_env_is_true(const struct net_port *port, const char *name)
{
    const char *value = port_env(port, name);

    return value != NULL && strcasecmp(value, "true") == 0;
}
