/*
 * The platform under the network code: clocks, sleep, random numbers and the environment.
 * Tests replace it, so that an hour of retries and refreshes takes no time and is
 * reproducible.
 */
#ifndef HTTP_CLIENT_PLATFORM_H
#define HTTP_CLIENT_PLATFORM_H

#include <stdbool.h>
#include <stdint.h>

struct net_port {
    int64_t (*unix_ms)(void *context); /* wall clock: signatures and the expiry of credentials */
    int64_t (*mono_ms)(void *context); /* monotonic: timeouts and pauses */
    void (*sleep_ms)(void *context, int64_t ms);
    double (*chance)(void *context); /* 0 <= x < 1 */
    /* A variable of the environment, or NULL. Valid until the next call. */
    const char *(*env)(void *context, const char *name);
    void *context;
};

const struct net_port *net_port_system(void);

int64_t port_unix_ms(const struct net_port *port);
int64_t port_mono_ms(const struct net_port *port);
void port_sleep_ms(const struct net_port *port, int64_t ms); /* returns at once if ms <= 0 */
double port_chance(const struct net_port *port);
const char *port_env(const struct net_port *port, const char *name); /* NULL also for an empty one */
bool port_env_is_true(const struct net_port *port, const char *name);

#endif
