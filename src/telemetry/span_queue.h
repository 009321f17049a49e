/* A bounded queue of spans, and one thread that sends them to the receiver. */
#ifndef TELEMETRY_SPAN_QUEUE_H
#define TELEMETRY_SPAN_QUEUE_H

#include <jansson.h>

#include "belay.h"

struct span_queue;

struct span_target {
    const char *url;
    const char *headers; /* "name=value,name=value"; NULL: none */
    const char *service;
    const char *ca_file; /* certificates to trust, in PEM; NULL: the system's */
};

enum belay_code span_queue_open(const struct span_target *target, struct span_queue **out,
                                struct belay_error *err);
/* Takes ownership; drops the span if the queue is full. */
void span_queue_put(struct span_queue *queue, json_t *span);
/* An attribute of a span, or of the service; a new reference. */
json_t *span_attribute(const char *name, const char *value);
uint64_t span_queue_dropped(const struct span_queue *queue);
void span_queue_close(struct span_queue *queue); /* sends the rest, for at most one second */

#endif
