/*
 * Send packets to a host given by name. A thread resolves the name, because DNS may be slow and must not block a lock
 * operation. Packets sent before that are queued, up to a limit.
 */
#ifndef TELEMETRY_STATSD_RESOLVER_H
#define TELEMETRY_STATSD_RESOLVER_H

#include <stdbool.h>
#include <stddef.h>

struct statsd_resolver;

/* NULL: out of memory, or no thread can be started. */
struct statsd_resolver *statsd_resolver_new(const char *host, const char *port);

/* Call it from any thread. */
void statsd_resolver_send(struct statsd_resolver *resolver, const char *data, size_t len);

/* The first error; true only once. */
bool statsd_resolver_problem(struct statsd_resolver *resolver, char *out, size_t size);

/* Wait for the resolution, for at most one second, if packets are queued. */
void statsd_resolver_wait(struct statsd_resolver *resolver);
void statsd_resolver_free(struct statsd_resolver *resolver); /* accepts NULL */

#endif
