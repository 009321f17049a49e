/*
 * Where a receiver of packets is, by name: a resolver may take its time, or never
 * answer, and nobody may wait for that with a lock. A thread asks; what is sent
 * meanwhile is kept, as far as it fits.
 */
#ifndef TELEMETRY_STATSD_RESOLVER_H
#define TELEMETRY_STATSD_RESOLVER_H

#include <stdbool.h>
#include <stddef.h>

struct statsd_resolver;

/* NULL: no memory, or no thread can be had. */
struct statsd_resolver *statsd_resolver_new(const char *host, const char *port);

/* From any thread. */
void statsd_resolver_send(struct statsd_resolver *resolver, const char *data, size_t len);

/* What went wrong, once for each time it begins to; false: nothing new. */
bool statsd_resolver_problem(struct statsd_resolver *resolver, char *out, size_t size);

/* Waits for at most a second, and only if something is still to be sent. */
void statsd_resolver_wait(struct statsd_resolver *resolver);
void statsd_resolver_free(struct statsd_resolver *resolver); /* NULL does nothing */

/* A socket that sends there; -1 with errno. */
int statsd_connect(int family, const void *address, size_t len);

#endif
