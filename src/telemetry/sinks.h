/* The sinks behind telemetry.h; private to src/telemetry. */
#ifndef TELEMETRY_SINKS_H
#define TELEMETRY_SINKS_H

#include <jansson.h>
#include <stdbool.h>

#include "telemetry/telemetry.h"

/* ---- lines to a file, standard error, syslog or the journal (log_sink.c) ---- */

enum log_sink_kind { LOG_SINK_NONE, LOG_SINK_STDERR, LOG_SINK_FILE, LOG_SINK_SYSLOG, LOG_SINK_JOURNALD };

struct log_sink {
    enum log_sink_kind kind;
    char *path; /* owned; LOG_SINK_FILE */
    int fd;     /* -1: none */
    bool has_failed;
    bool is_torn; /* the last line was written in part */
};

/* `where` is "stderr", "syslog", "journald" or a path. Errors name `setting`. */
enum belay_code log_sink_open(struct log_sink *sink, const char *setting, const char *where,
                              struct belay_error *err);
/* Write one line, given without its newline. False with errno on failure. */
bool log_sink_write(struct log_sink *sink, enum belay_level level, const char *text);
bool log_sink_reopen(struct log_sink *sink); /* false with errno: the old file stays open */
void log_sink_close(struct log_sink *sink);

/* A connected datagram socket that does not block: a daemon that does not read must not block a lock. -1 with errno. */
int connect_datagram(int family, const void *address, size_t len);

/* ---- metrics of an event (metric_map.c) ---- */

/* One metric of an event, by the names of S0.7, S3.9 and S4.11. */
struct metric {
    const char *name; /* "lock.acquisition.duration" */
    double value;
    const char *unit; /* CloudWatch's: "Count", "Milliseconds", "Seconds" */
    char statsd;      /* 'c' counter, 'g' gauge, 'm' timing in ms */
};
enum { METRICS_MAX = 4 };
size_t metric_map_event(const struct belay_event *event, struct metric out[METRICS_MAX]);
/* True for the outcome of a database stop or start; event_database() is the database's id. */
bool event_is_of_database(const struct belay_event *event);
const char *event_database(const struct belay_event *event);

/* ---- CloudWatch's embedded metric format (emf.c) ---- */

/* The caller frees it. NULL: the event has no metrics. */
char *emf_line(const struct belay_config *config, const struct belay_event *event);

/* ---- StatsD and DogStatsD (statsd.c) ---- */

struct statsd_resolver;

struct statsd {
    int fd;                           /* -1: none, or the resolver has it */
    struct statsd_resolver *resolver; /* owned; NULL: the address is numeric */
};
enum belay_code statsd_open(struct statsd *statsd, const char *setting, const char *address,
                            struct belay_error *err);
void statsd_send(struct statsd *statsd, const struct belay_config *config, const struct belay_event *event);
bool statsd_is_open(const struct statsd *statsd);
/* Reports once that the host cannot be resolved; resolution is retried. */
bool statsd_problem(const struct statsd *statsd, char *out, size_t size);
/* Before closing: wait briefly for packets whose host is not resolved yet. */
void statsd_finish(const struct statsd *statsd);
void statsd_close(struct statsd *statsd);

/* ---- OpenTelemetry (traces.c) ---- */

struct traces;
/* The receiver's URL from the environment; false: none. */
bool traces_url(char *out, size_t size);
/* *out is NULL if the text is not a URL, which is reported as a warning. */
enum belay_code traces_open(const struct telemetry_options *options, const char *url, struct traces **out,
                            struct belay_error *err);
void traces_event(struct traces *traces, const struct belay_event *event);
bool traces_parent_for(struct traces *traces, const char *lock_id, bool is_held,
                       char out[BELAY_TRACEPARENT_SIZE]);
void traces_set_hold_span(struct traces *traces, const char *lock_id, const char *traceparent);
void traces_set_parent(struct traces *traces, const char *lock_id, const char *traceparent);
uint64_t traces_dropped_spans(const struct traces *traces);
void traces_close(struct traces *traces);

#endif
