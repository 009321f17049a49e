/*
 * The events of a lock as OpenTelemetry spans:
 *
 *     the client's span (traceparent)
 *       lock.acquire            from the request to the grant or the refusal
 *         lock.wait             in the queue
 *         store.commit
 *       lock.hold               from the grant to the release
 *         store.commit          of each renewal, and of the release
 *
 * A lock id names one acquisition, so it connects the events.
 */
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/fnv.h"
#include "base/text.h"
#include "telemetry/sinks.h"
#include "telemetry/span_queue.h"
#include "json/json_write.h"

enum { TRACE_HEX = 32, SPAN_HEX = 16, BUCKETS = 1024, BUCKET_MAX = 8 };

/* One acquisition, by its lock id. */
struct lock_trace {
    struct lock_trace *next;
    char lock_id[BELAY_ID_MAX + 1];
    char trace_id[TRACE_HEX + 1];
    char parent[SPAN_HEX + 1]; /* "": the trace begins here */
    char acquire[SPAN_HEX + 1];
    char hold[SPAN_HEX + 1];
    int64_t asked_ns;    /* when a client with a span of its own requested the lock; 0: unknown */
    int64_t first_ns;    /* start of the earliest span inside lock.acquire */
    int64_t held_ns;     /* when the lock was granted; 0: not by this process */
    bool hold_is_remote; /* `hold` is a span that the client sends */
    uint64_t key_hash; /* of the first key that an event named: of several keys, only this one makes spans */
    bool is_over;      /* kept for the events of its other keys */
};

struct traces {
    struct span_queue *queue; /* owned */
    char trace_id[TRACE_HEX + 1];
    char parent[SPAN_HEX + 1];
    pthread_mutex_t mutex; /* guards the buckets */
    struct lock_trace *buckets[BUCKETS];
};

/* ---- ids ---- */

static void random_hex(char *out, size_t digits)
{
    unsigned char bytes[TRACE_HEX / 2];

    do {
        if (!random_bytes(bytes, digits / 2)) {
            memset(bytes, 0x5a, sizeof bytes); /* no randomness available yet: use a fixed id */
        }
    } while (bytes[0] == 0);
    text_hex(out, bytes, digits / 2);
}

static bool is_hex(const char *text, size_t n)
{
    return strspn(text, "0123456789abcdef") >= n && strspn(text, "0") < n;
}

/* "00-TRACE-SPAN-FLAGS"; later versions may append fields. */
static bool read_traceparent(const char *text, char trace_id[TRACE_HEX + 1], char parent[SPAN_HEX + 1])
{
    if (text == NULL || strlen(text) < 55 || strncmp(text, "ff", 2) == 0 || text[2] != '-' ||
        text[35] != '-' || text[52] != '-' || strspn(text, "0123456789abcdef") != 2 ||
        strspn(text + 53, "0123456789abcdef") < 2 || !is_hex(text + 3, TRACE_HEX) ||
        !is_hex(text + 36, SPAN_HEX) || (strncmp(text, "00", 2) == 0 && text[55] != '\0') ||
        (text[55] != '\0' && text[55] != '-')) {
        return false;
    }
    (void)snprintf(trace_id, TRACE_HEX + 1, "%.*s", TRACE_HEX, text + 3);
    (void)snprintf(parent, SPAN_HEX + 1, "%.*s", SPAN_HEX, text + 36);
    return true;
}

/* ---- traces by lock id ---- */

static struct lock_trace **trace_bucket(struct traces *traces, const char *lock_id)
{
    return &traces->buckets[fnv_text(FNV_INIT, lock_id) % BUCKETS];
}

/* A bucket keeps only the newest: locks that are released elsewhere must not pile up. */
static void trim_bucket(struct lock_trace *trace)
{
    for (int i = 1; trace != NULL && i < BUCKET_MAX; i++) {
        trace = trace->next;
    }
    while (trace != NULL && trace->next != NULL) {
        struct lock_trace *old = trace->next;

        trace->next = old->next;
        free(old);
    }
}

/* Find or add; NULL if out of memory. */
static struct lock_trace *find_trace(struct traces *traces, const char *lock_id)
{
    struct lock_trace **bucket = trace_bucket(traces, lock_id);
    struct lock_trace *trace;

    for (trace = *bucket; trace != NULL; trace = trace->next) {
        if (strcmp(trace->lock_id, lock_id) == 0) {
            return trace;
        }
    }
    trace = calloc(1, sizeof *trace);
    if (trace == NULL) {
        return NULL;
    }
    (void)snprintf(trace->lock_id, sizeof trace->lock_id, "%s", lock_id);
    memcpy(trace->parent, traces->parent, sizeof trace->parent);
    memcpy(trace->trace_id, traces->trace_id, sizeof trace->trace_id);
    if (trace->trace_id[0] == '\0') {
        random_hex(trace->trace_id, TRACE_HEX);
    }
    random_hex(trace->acquire, SPAN_HEX);
    random_hex(trace->hold, SPAN_HEX);
    trace->next = *bucket;
    *bucket = trace;
    trim_bucket(trace);
    return trace;
}

static void remove_trace(struct traces *traces, const char *lock_id)
{
    struct lock_trace **at = trace_bucket(traces, lock_id);

    while (*at != NULL && strcmp((*at)->lock_id, lock_id) != 0) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        struct lock_trace *trace = *at;

        *at = trace->next;
        free(trace);
    }
}

/* ---- spans ---- */

struct span {
    const char *name;
    const char *id; /* NULL: a new one */
    const char *parent;
    int64_t began_ns;
    int64_t ended_ns;
    const char *error; /* NULL: none */
};

static void add_attribute(json_t *attributes, const char *name, const char *value)
{
    if (value != NULL && *value != '\0') {
        (void)json_array_append_new(attributes, span_attribute(name, value));
    }
}

static void put_span(struct traces *traces, const struct lock_trace *trace, const struct span *span,
                     const struct belay_event *event)
{
    char id[SPAN_HEX + 1];
    char began[24];
    char ended[24];
    json_t *attributes = json_array();
    json_t *object;

    assert(span->name != NULL && span->parent != NULL && trace->trace_id[0] != '\0');
    random_hex(id, SPAN_HEX);
    (void)snprintf(began, sizeof began, "%lld", (long long)span->began_ns);
    (void)snprintf(ended, sizeof ended, "%lld", (long long)span->ended_ns);
    add_attribute(attributes, "lock.key", event->key);
    add_attribute(attributes, "lock.id", event->lock_id);
    add_attribute(attributes, "lock.owner", event->locked_by);
    add_attribute(attributes, "lock.event", event->type);
    object = json_pack("{s:s, s:s, s:s, s:i, s:s, s:s, s:o}", "traceId", trace->trace_id, "spanId",
                       span->id == NULL ? id : span->id, "name", span->name, "kind", 1, "startTimeUnixNano",
                       began, "endTimeUnixNano", ended, "attributes", attributes);
    if (object != NULL && span->parent[0] != '\0') {
        (void)json_object_set_new(object, "parentSpanId", json_string(span->parent));
    }
    if (object != NULL && span->error != NULL) {
        (void)json_object_set_new(object, "status",
                                  json_pack("{s:i, s:o}", "code", 2, "message", wire_text(span->error)));
    }
    span_queue_put(traces->queue, object);
}

static int64_t now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void put_commit(struct traces *traces, struct lock_trace *trace, const char *parent,
                       const struct belay_event *event, int64_t end_ns)
{
    struct span span = { .name = "store.commit",
                         .parent = parent,
                         .began_ns = end_ns - event->commit_us * 1000,
                         .ended_ns = end_ns };

    if (event->commit_us > 0) {
        trace->first_ns =
            trace->first_ns == 0 || span.began_ns < trace->first_ns ? span.began_ns : trace->first_ns;
        put_span(traces, trace, &span, event);
    }
}

/* Durations are rounded to milliseconds: a span must not begin before its request. */
static int64_t began_ns(const struct lock_trace *trace, int64_t end_ns, int64_t took_ms)
{
    int64_t ns = end_ns - (took_ms > 0 ? took_ms : 0) * 1000000;

    return ns < trace->asked_ns ? trace->asked_ns : ns;
}

static void end_wait(struct traces *traces, struct lock_trace *trace, const struct belay_event *event)
{
    int64_t end_ns = now_ns();
    struct span span = { .name = "lock.wait",
                         .parent = trace->acquire,
                         .began_ns = began_ns(trace, end_ns, event->duration_ms),
                         .ended_ns = end_ns };

    trace->first_ns = span.began_ns;
    put_span(traces, trace, &span, event);
}

static void end_acquire(struct traces *traces, struct lock_trace *trace, const struct belay_event *event,
                        const char *error)
{
    int64_t end_ns = now_ns();
    struct span span = { .name = "lock.acquire",
                         .id = trace->acquire,
                         .parent = trace->parent,
                         .began_ns = began_ns(trace, end_ns, event->duration_ms),
                         .ended_ns = end_ns,
                         .error = error };

    put_commit(traces, trace, trace->acquire, event, end_ns);
    if (trace->first_ns != 0 && trace->first_ns < span.began_ns) {
        span.began_ns = trace->first_ns; /* durations are rounded to milliseconds */
    }
    put_span(traces, trace, &span, event);
    trace->held_ns = end_ns;
}

static void end_hold(struct traces *traces, struct lock_trace *trace, const struct belay_event *event,
                     const char *error)
{
    int64_t end_ns = now_ns();
    int64_t held_ms = event->duration_ms > 0 ? event->duration_ms : 0;
    struct span span = { .name = "lock.hold",
                         .id = trace->hold,
                         .parent = trace->parent,
                         .began_ns = trace->held_ns != 0 ? trace->held_ns : end_ns - held_ms * 1000000,
                         .ended_ns = end_ns,
                         .error = error };
    int64_t commit_ns = end_ns - event->commit_us * 1000;

    if (trace->held_ns == 0 && trace->first_ns != 0 && trace->first_ns < span.began_ns) {
        span.began_ns = trace->first_ns;
    }
    if (commit_ns < span.began_ns) {
        span.began_ns = commit_ns;
    }
    put_commit(traces, trace, trace->hold, event, end_ns);
    if (!trace->hold_is_remote) {
        put_span(traces, trace, &span, event);
    }
}

/* The trace of an acquisition that is not over. */
static struct lock_trace *begin_trace(struct traces *traces, const char *lock_id)
{
    struct lock_trace *trace = find_trace(traces, lock_id);

    if (trace != NULL && trace->is_over) {
        remove_trace(traces, lock_id);
        trace = find_trace(traces, lock_id);
    }
    return trace;
}

/*
 * Whether an event only repeats for another key of the acquisition what the event of its first key said. After the
 * end of the trace only another end can be such a repetition: any other event begins a new acquisition, whose id was
 * used before.
 */
static bool repeats_first_key(const struct lock_trace *trace, const struct belay_event *event)
{
    const char *type = event->type;
    bool is_end = strcmp(type, "lock.released") == 0 || strcmp(type, "lock.forced") == 0 ||
                  strcmp(type, "lock.lost") == 0;

    return trace->key_hash != 0 && trace->key_hash != fnv_text(FNV_INIT, event->key) &&
           (!trace->is_over || is_end);
}

/* True if this was the last event of the lock id. */
static bool trace_event(struct traces *traces, struct lock_trace *trace, const struct belay_event *event)
{
    const char *type = event->type;

    assert(!trace->is_over);
    if (strcmp(type, "wait.ended") == 0 && event->duration_ms >= 0) {
        end_wait(traces, trace, event);
        if (event->reason != NULL && strcmp(event->reason, "cancelled") == 0) {
            end_acquire(traces, trace, event, event->reason); /* no further event follows */
            return true;
        }
    } else if (strcmp(type, "lock.acquired") == 0 || strcmp(type, "lock.adopted") == 0) {
        end_acquire(traces, trace, event, NULL);
    } else if (strcmp(type, "lock.refused") == 0) {
        end_acquire(traces, trace, event, event->reason == NULL ? "refused" : event->reason);
        return true;
    } else if (strcmp(type, "lock.renewed") == 0) {
        put_commit(traces, trace, trace->hold, event, now_ns());
    } else if (strcmp(type, "lock.released") == 0) {
        end_hold(traces, trace, event, NULL);
        return true;
    } else if (strcmp(type, "lock.lost") == 0 || strcmp(type, "lock.forced") == 0) {
        end_hold(traces, trace, event, event->reason == NULL ? type : event->reason);
        return true;
    }
    return false;
}

void traces_event(struct traces *traces, const struct belay_event *event)
{
    struct lock_trace *trace;

    if (event->lock_id == NULL || event->lock_id[0] == '\0' || strcmp(event->type, "lock.taken_over") == 0 ||
        strcmp(event->type, "lock.stale") == 0) {
        return; /* events about another client's lock */
    }
    (void)pthread_mutex_lock(&traces->mutex);
    trace = find_trace(traces, event->lock_id);
    if (trace != NULL && !repeats_first_key(trace, event)) {
        trace = begin_trace(traces, event->lock_id);
        if (trace != NULL) {
            trace->key_hash = fnv_text(FNV_INIT, event->key);
            trace->is_over = trace_event(traces, trace, event);
        }
    }
    (void)pthread_mutex_unlock(&traces->mutex);
}

/*
 * The trace of a lock id, as a part of the trace that the client's span belongs to; `out_span` is that span. NULL: the
 * traceparent is invalid, or out of memory. Call it with the mutex held.
 */
static struct lock_trace *join_client_trace(struct traces *traces, const char *lock_id,
                                            const char *traceparent, char out_span[SPAN_HEX + 1])
{
    char trace_id[TRACE_HEX + 1];
    struct lock_trace *trace =
        read_traceparent(traceparent, trace_id, out_span) ? begin_trace(traces, lock_id) : NULL;

    if (trace != NULL) {
        memcpy(trace->trace_id, trace_id, sizeof trace_id);
    }
    return trace;
}

void traces_set_parent(struct traces *traces, const char *lock_id, const char *traceparent)
{
    char span[SPAN_HEX + 1];
    struct lock_trace *trace;

    (void)pthread_mutex_lock(&traces->mutex);
    trace = join_client_trace(traces, lock_id, traceparent, span);
    if (trace != NULL) {
        memcpy(trace->parent, span, sizeof span);
        trace->asked_ns = now_ns();
    }
    (void)pthread_mutex_unlock(&traces->mutex);
}

void traces_set_hold_span(struct traces *traces, const char *lock_id, const char *traceparent)
{
    char span[SPAN_HEX + 1];
    struct lock_trace *trace;

    (void)pthread_mutex_lock(&traces->mutex);
    trace = join_client_trace(traces, lock_id, traceparent, span);
    if (trace != NULL) {
        memcpy(trace->hold, span, sizeof span);
        trace->hold_is_remote = true;
    }
    (void)pthread_mutex_unlock(&traces->mutex);
}

bool traces_parent_for(struct traces *traces, const char *lock_id, bool is_held,
                       char out[BELAY_TRACEPARENT_SIZE])
{
    struct lock_trace *trace;

    (void)pthread_mutex_lock(&traces->mutex);
    trace = begin_trace(traces, lock_id);
    if (trace != NULL) {
        if (trace->first_ns == 0) {
            trace->first_ns = now_ns(); /* spans of the receiver begin after this */
        }
        (void)snprintf(out, BELAY_TRACEPARENT_SIZE, "00-%s-%s-01", trace->trace_id,
                       is_held ? trace->hold : trace->acquire);
    }
    (void)pthread_mutex_unlock(&traces->mutex);
    return trace != NULL;
}

uint64_t traces_dropped_spans(const struct traces *traces)
{
    return span_queue_dropped(traces->queue);
}

/* ---- open and close ---- */

bool traces_url(char *out, size_t size)
{
    const char *disabled = env_text("OTEL_SDK_DISABLED");
    const char *exporter = env_text("OTEL_TRACES_EXPORTER");
    const char *base = env_text("OTEL_EXPORTER_OTLP_ENDPOINT");
    const char *whole = env_text("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    int n;

    if ((disabled != NULL && strcmp(disabled, "true") == 0) ||
        (exporter != NULL && strcmp(exporter, "none") == 0) || (whole == NULL && base == NULL)) {
        return false;
    }
    n = whole != NULL ? snprintf(out, size, "%s", whole)
                      : snprintf(out, size, "%s%sv1/traces", base, base[strlen(base) - 1] == '/' ? "" : "/");
    return n > 0 && (size_t)n < size;
}

enum belay_code traces_open(const struct telemetry_options *options, const char *url, struct traces **out,
                            struct belay_error *err)
{
    const char *name = env_text("OTEL_SERVICE_NAME");
    struct span_target target = { .headers = getenv("OTEL_EXPORTER_OTLP_HEADERS"),
                                  .ca_file = getenv("OTEL_EXPORTER_OTLP_CERTIFICATE") };
    struct traces *traces;
    enum belay_code code;

    if (!text_has_prefix(url, "http://") && !text_has_prefix(url, "https://")) {
        if (options->on_warning != NULL) {
            options->on_warning(
                options->context,
                "cannot send traces: OTEL_EXPORTER_OTLP_ENDPOINT is not a URL such as http://127.0.0.1:4318");
        }
        return BELAY_OK;
    }
    traces = calloc(1, sizeof *traces);
    if (traces == NULL) {
        return error_no_memory(err);
    }
    target.url = url;
    target.service = name != NULL ? name : options->service;
    code = span_queue_open(&target, &traces->queue, err);
    if (code != BELAY_OK) {
        free(traces);
        return code;
    }
    (void)pthread_mutex_init(&traces->mutex, NULL);
    (void)read_traceparent(options->traceparent, traces->trace_id, traces->parent);
    *out = traces;
    return BELAY_OK;
}

void traces_close(struct traces *traces)
{
    if (traces == NULL) {
        return;
    }
    span_queue_close(traces->queue);
    for (size_t i = 0; i < BUCKETS; i++) {
        while (traces->buckets[i] != NULL) {
            struct lock_trace *trace = traces->buckets[i];

            traces->buckets[i] = trace->next;
            free(trace);
        }
    }
    (void)pthread_mutex_destroy(&traces->mutex);
    free(traces);
}
