/*
 * Audit log, metrics and traces, all made from the same events (belay_client_options.on_event).
 *
 * A sink never blocks a lock operation: lines are written without fsync, metric packets are sent without an answer,
 * and spans wait in a bounded queue. A sink that fails causes one warning.
 */
#ifndef TELEMETRY_TELEMETRY_H
#define TELEMETRY_TELEMETRY_H

#include "belay.h"

struct telemetry;

struct telemetry_options {
    const struct belay_config *config; /* borrowed */
    const char *metrics;     /* of --metrics: "emf", "emf:FILE", "statsd:HOST:PORT"; NULL: as configured */
    const char *service;     /* service name in traces: "belay", "belay-serve" */
    const char *traceparent; /* parent of all spans; NULL: each lock starts a trace */
    void (*on_warning)(void *context, const char *text);
    void *context;
};

/*
 * Open the sinks that the options, the configuration and the environment (OTEL_...) name. *out is NULL if they name
 * none. BELAY_CONFIG names the wrong setting.
 */
enum belay_code telemetry_open(const struct telemetry_options *options, struct telemetry **out,
                               struct belay_error *err);
void telemetry_event(struct telemetry *telemetry, const struct belay_event *event); /* any thread */
void telemetry_reopen(struct telemetry *telemetry); /* reopen log files after rotation */
/* Sends the rest, for at most one second. Accepts NULL. */
void telemetry_close(struct telemetry *telemetry);

/* The traceparent of a lock's hold span, for work done under the lock, or of its acquire span. False: no traces. */
bool telemetry_traceparent(struct telemetry *telemetry, const char *lock_id, bool is_held,
                           char out[BELAY_TRACEPARENT_SIZE]);
/* Make the spans of this lock id children of a client's span. An invalid traceparent is ignored. */
void telemetry_set_parent(struct telemetry *telemetry, const char *lock_id, const char *traceparent);
/* The client sends the hold span itself: use it as the parent of our commit spans. */
void telemetry_set_hold_span(struct telemetry *telemetry, const char *lock_id, const char *traceparent);

/* The number of spans that the receiver did not take; for a server's own metrics. */
uint64_t telemetry_dropped_spans(const struct telemetry *telemetry);

#endif
