#include "telemetry/telemetry.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "telemetry/sinks.h"
#include "json/json_write.h"

struct telemetry {
    struct telemetry_options options;
    pthread_mutex_t mutex; /* guards the files: a thread may reopen them while another writes */
    struct log_sink audit;
    struct log_sink emf;
    struct statsd statsd;
    struct traces *traces; /* owned; NULL: none */
};

static enum belay_code open_metrics(struct telemetry *telemetry, const char *setting, const char *what,
                                    struct belay_error *err)
{
    if (strcmp(what, "emf") == 0) {
        return log_sink_open(&telemetry->emf, setting, "stderr", err);
    }
    if (text_has_prefix(what, "emf:") && what[4] != '\0') {
        return log_sink_open(&telemetry->emf, setting, what + 4, err);
    }
    if (text_has_prefix(what, "statsd:")) {
        return statsd_open(&telemetry->statsd, setting, what + 7, err);
    }
    return error_set(err, BELAY_INVALID, "invalid %s '%s': use emf, emf:FILE or statsd:HOST:PORT", setting,
                     what);
}

/* --metrics is typed: what is wrong with it is no fault of the configuration. */
static enum belay_code open_typed_metrics(struct telemetry *telemetry, const char *what,
                                          struct belay_error *err)
{
    struct belay_error failure = BELAY_ERROR_INIT;
    enum belay_code code = open_metrics(telemetry, "--metrics", what, &failure);

    if (code == BELAY_OK) {
        return BELAY_OK;
    }
    return error_move(err, code == BELAY_CONFIG ? BELAY_INVALID : code, &failure);
}

enum belay_code telemetry_open(const struct telemetry_options *options, struct telemetry **out,
                               struct belay_error *err)
{
    const char *audit = belay_config_get(options->config, "audit.file");
    const char *emf = belay_config_get(options->config, "metrics.emf");
    const char *statsd = belay_config_get(options->config, "metrics.statsd");
    struct telemetry *telemetry = calloc(1, sizeof *telemetry);
    enum belay_code code = BELAY_OK;
    char url[2048];

    if (telemetry == NULL) {
        return error_no_memory(err);
    }
    telemetry->options = *options;
    telemetry->audit.fd = telemetry->emf.fd = telemetry->statsd.fd = -1;
    (void)pthread_mutex_init(&telemetry->mutex, NULL);
    if (audit != NULL && *audit != '\0') {
        code = log_sink_open(&telemetry->audit, "audit.file", audit, err);
    }
    if (code == BELAY_OK && options->metrics != NULL) {
        code = open_typed_metrics(telemetry, options->metrics, err);
    }
    if (code == BELAY_OK && emf != NULL && *emf != '\0' && telemetry->emf.kind == LOG_SINK_NONE) {
        code = log_sink_open(&telemetry->emf, "metrics.emf", emf, err);
    }
    if (code == BELAY_OK && statsd != NULL && *statsd != '\0' && !statsd_is_open(&telemetry->statsd)) {
        code = statsd_open(&telemetry->statsd, "metrics.statsd", statsd, err);
    }
    if (code == BELAY_OK && traces_url(url, sizeof url)) {
        code = traces_open(options, url, &telemetry->traces, err);
    }
    if (code != BELAY_OK || (telemetry->audit.kind == LOG_SINK_NONE && telemetry->emf.kind == LOG_SINK_NONE &&
                             !statsd_is_open(&telemetry->statsd) && telemetry->traces == NULL)) {
        telemetry_close(telemetry);
        telemetry = NULL;
    }
    if (code == BELAY_OK) {
        *out = telemetry;
    }
    return code;
}

static void warn_of_sink(const struct telemetry *telemetry, const char *what, const struct log_sink *sink)
{
    const char *why = errno == ENXIO    ? "no process reads it"
                      : errno == EAGAIN ? "it is full"
                                        : strerror(errno);
    char text[512];

    if (telemetry->options.on_warning != NULL &&
        sink->kind != LOG_SINK_STDERR) { /* the warning itself goes there */
        (void)snprintf(text, sizeof text, "%s: cannot write to %s: %s", what,
                       sink->path == NULL ? "its log" : sink->path, why);
        telemetry->options.on_warning(telemetry->options.context, text);
    }
}

static void warn_of_statsd(const struct telemetry *telemetry)
{
    char why[200];
    char text[300];

    if (statsd_problem(&telemetry->statsd, why, sizeof why) && telemetry->options.on_warning != NULL) {
        (void)snprintf(text, sizeof text, "metrics: cannot send to StatsD: %s", why);
        telemetry->options.on_warning(telemetry->options.context, text);
    }
}

/* Warn once per series of failures: a full disk must not flood the log. */
static void put_line(struct telemetry *telemetry, struct log_sink *sink, const char *what,
                     enum belay_level level, char *line)
{
    bool done;

    if (line == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&telemetry->mutex);
    done = log_sink_write(sink, level, line);
    if (!done && !sink->has_failed) {
        warn_of_sink(telemetry, what, sink);
    }
    sink->has_failed = !done;
    (void)pthread_mutex_unlock(&telemetry->mutex);
    free(line);
}

void telemetry_event(struct telemetry *telemetry, const struct belay_event *event)
{
    if (telemetry == NULL) {
        return;
    }
    if (telemetry->audit.kind != LOG_SINK_NONE) {
        put_line(telemetry, &telemetry->audit, "audit", event->level, wire_line(wire_event(event)));
    }
    if (telemetry->emf.kind != LOG_SINK_NONE) {
        put_line(telemetry, &telemetry->emf, "metrics", event->level,
                 emf_line(telemetry->options.config, event));
    }
    if (statsd_is_open(&telemetry->statsd)) {
        statsd_send(&telemetry->statsd, telemetry->options.config, event);
        warn_of_statsd(telemetry);
    }
    if (telemetry->traces != NULL) {
        traces_event(telemetry->traces, event);
    }
}

void telemetry_reopen(struct telemetry *telemetry)
{
    if (telemetry == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&telemetry->mutex);
    if (!log_sink_reopen(&telemetry->audit)) {
        warn_of_sink(telemetry, "audit", &telemetry->audit);
    }
    if (!log_sink_reopen(&telemetry->emf)) {
        warn_of_sink(telemetry, "metrics", &telemetry->emf);
    }
    (void)pthread_mutex_unlock(&telemetry->mutex);
}

bool telemetry_traceparent(struct telemetry *telemetry, const char *lock_id, bool is_held,
                           char out[BELAY_TRACEPARENT_SIZE])
{
    return telemetry != NULL && telemetry->traces != NULL &&
           traces_parent_for(telemetry->traces, lock_id, is_held, out);
}

void telemetry_set_hold_span(struct telemetry *telemetry, const char *lock_id, const char *traceparent)
{
    if (telemetry != NULL && telemetry->traces != NULL) {
        traces_set_hold_span(telemetry->traces, lock_id, traceparent);
    }
}

void telemetry_set_parent(struct telemetry *telemetry, const char *lock_id, const char *traceparent)
{
    if (telemetry != NULL && telemetry->traces != NULL) {
        traces_set_parent(telemetry->traces, lock_id, traceparent);
    }
}

uint64_t telemetry_dropped_spans(const struct telemetry *telemetry)
{
    return telemetry == NULL || telemetry->traces == NULL ? 0 : traces_dropped_spans(telemetry->traces);
}

void telemetry_close(struct telemetry *telemetry)
{
    if (telemetry == NULL) {
        return;
    }
    traces_close(telemetry->traces);
    log_sink_close(&telemetry->audit);
    log_sink_close(&telemetry->emf);
    statsd_finish(&telemetry->statsd);
    warn_of_statsd(telemetry);
    statsd_close(&telemetry->statsd);
    (void)pthread_mutex_destroy(&telemetry->mutex);
    free(telemetry);
}
