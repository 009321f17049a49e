/*
 * Where events go besides the store: an audit trail, metrics, traces.
 *
 * Everything hears of the same events (belay_client_options.on_event) and makes
 * its own of them. A sink that fails is said once and never keeps a lock
 * waiting: lines are written without waiting for a disk, packets are sent
 * without an answer, and spans stand in a queue of bounded length.
 */
#ifndef TELEMETRY_TELEMETRY_H
#define TELEMETRY_TELEMETRY_H

#include "belay.h"

struct telemetry;

struct telemetry_options {
    const struct belay_config *config; /* borrowed */
    const char *metrics;               /* of --metrics: "emf", "emf:FILE", "statsd:HOST:PORT"; NULL */
    const char *service;               /* what a trace calls us: "belay", "belay-serve" */
    const char *traceparent;           /* the span that all of this belongs to; NULL: a trace of its own */
    void (*on_warning)(void *context, const char *text);
    void *context;
};

/*
 * What the options and the configuration ask for (audit, metrics, the OTEL_...
 * of the environment). *out is NULL if that is nothing at all. BELAY_CONFIG
 * names the setting that is wrong.
 */
enum belay_code telemetry_open(const struct telemetry_options *options, struct telemetry **out,
                               struct belay_error *err);
void telemetry_event(struct telemetry *telemetry, const struct belay_event *event); /* any thread */
void telemetry_reopen(struct telemetry *telemetry); /* files, after a rotation */
/* Sends what is left, for a second at most. NULL is fine. */
void telemetry_close(struct telemetry *telemetry);

/*
 * The span that a lock is held in, as a traceparent for who works under it, or
 * that in which it is acquired. False: there are no traces.
 */
bool telemetry_traceparent(struct telemetry *telemetry, const char *lock_id, bool is_held,
                           char out[BELAY_TRACEPARENT_SIZE]);
/* What is done for this lock id belongs to that span of somebody else's. A wrong text is ignored. */
void telemetry_set_parent(struct telemetry *telemetry, const char *lock_id, const char *traceparent);
/* The same of a holder that tells of the holding itself: what is done for it goes into its span. */
void telemetry_set_hold_span(struct telemetry *telemetry, const char *lock_id, const char *traceparent);

/* How many spans were dropped because nobody took them; for a server's own metrics. */
uint64_t telemetry_dropped_spans(const struct telemetry *telemetry);

#endif
