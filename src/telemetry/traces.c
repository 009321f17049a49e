/*
 * What happens to a lock as OpenTelemetry spans:
 *
 *     whoever asked (traceparent)
 *       lock.acquire            from the request to the lock, or to the refusal
 *         lock.wait             in line
 *         store.commit
 *       lock.hold               from the lock to its end
 *         store.commit          of each renewal, and of the release
 *
 * A lock id names one acquisition, so it is what ties events together.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/error.h"
#include "base/fnv.h"
#include "telemetry/sinks.h"
#include "telemetry/span_queue.h"
#include "json/json_write.h"

enum { TRACE_HEX = 32, SPAN_HEX = 16, BUCKETS = 1024, THREADS_MAX = 8 };

/* One acquisition, by its lock id. */
struct thread {
    struct thread *next;
    char lock_id[BELAY_ID_MAX + 1];
    char trace[TRACE_HEX + 1];
    char parent[SPAN_HEX + 1]; /* "" if the trace begins here */
    char acquire[SPAN_HEX + 1];
    char hold[SPAN_HEX + 1];
    int64_t asked_ns; /* when it was asked for, by who has a span of its own for it; 0: not known */
    int64_t first_ns; /* when the earliest span inside the acquisition began */
    int64_t held_ns;  /* when the holding began; 0: not here */
    bool is_theirs;   /* `hold` is a span of the holder's own */
};

struct traces {
    struct span_queue *queue; /* owned */
    char trace[TRACE_HEX + 1];
    char parent[SPAN_HEX + 1];
    pthread_mutex_t mutex; /* guards the threads */
    struct thread *buckets[BUCKETS];
};

/* ---- ids ---- */

static void random_hex(char *out, size_t digits)
{
    unsigned char bytes[TRACE_HEX / 2];

    do {
        if (getrandom(bytes, digits / 2, 0) != (ssize_t)(digits / 2)) {
            memset(bytes, 0x5a, sizeof bytes); /* before the kernel has any: better a dull id than none */
        }
    } while (bytes[0] == 0);
    for (size_t i = 0; i < digits / 2; i++) {
        (void)snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    }
}

static bool is_hex(const char *text, size_t n)
{
    return strspn(text, "0123456789abcdef") >= n && strspn(text, "0") < n;
}

/* "00-TRACE-SPAN-FLAGS"; of a later version the first four fields count. */
static bool read_traceparent(const char *text, char trace[TRACE_HEX + 1], char parent[SPAN_HEX + 1])
{
    if (text == NULL || strlen(text) < 55 || strncmp(text, "ff", 2) == 0 || text[2] != '-' ||
        text[35] != '-' || text[52] != '-' || strspn(text, "0123456789abcdef") != 2 ||
        strspn(text + 53, "0123456789abcdef") < 2 || !is_hex(text + 3, TRACE_HEX) ||
        !is_hex(text + 36, SPAN_HEX) || (strncmp(text, "00", 2) == 0 && text[55] != '\0') ||
        (text[55] != '\0' && text[55] != '-')) {
        return false;
    }
    (void)snprintf(trace, TRACE_HEX + 1, "%.*s", TRACE_HEX, text + 3);
    (void)snprintf(parent, SPAN_HEX + 1, "%.*s", SPAN_HEX, text + 36);
    return true;
}

/* ---- acquisitions under way ---- */

static struct thread **bucket_of(struct traces *traces, const char *lock_id)
{
    return &traces->buckets[fnv_text(FNV_INIT, lock_id) % BUCKETS];
}

/* A bucket keeps the latest few: what was never released here must not pile up. */
static void trim(struct thread *thread)
{
    for (int i = 1; thread != NULL && i < THREADS_MAX; i++) {
        thread = thread->next;
    }
    while (thread != NULL && thread->next != NULL) {
        struct thread *old = thread->next;

        thread->next = old->next;
        free(old);
    }
}

/* NULL only if there is no memory. */
static struct thread *thread_of(struct traces *traces, const char *lock_id)
{
    struct thread **bucket = bucket_of(traces, lock_id);
    struct thread *thread;

    for (thread = *bucket; thread != NULL; thread = thread->next) {
        if (strcmp(thread->lock_id, lock_id) == 0) {
            return thread;
        }
    }
    thread = calloc(1, sizeof *thread);
    if (thread == NULL) {
        return NULL;
    }
    (void)snprintf(thread->lock_id, sizeof thread->lock_id, "%s", lock_id);
    memcpy(thread->parent, traces->parent, sizeof thread->parent);
    memcpy(thread->trace, traces->trace, sizeof thread->trace);
    if (thread->trace[0] == '\0') {
        random_hex(thread->trace, TRACE_HEX);
    }
    random_hex(thread->acquire, SPAN_HEX);
    random_hex(thread->hold, SPAN_HEX);
    thread->next = *bucket;
    *bucket = thread;
    trim(thread);
    return thread;
}

static void thread_end(struct traces *traces, const char *lock_id)
{
    struct thread **at = bucket_of(traces, lock_id);

    while (*at != NULL && strcmp((*at)->lock_id, lock_id) != 0) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        struct thread *thread = *at;

        *at = thread->next;
        free(thread);
    }
}

/* ---- spans ---- */

struct span {
    const char *name;
    const char *id; /* NULL: a new one */
    const char *parent;
    int64_t began_ns;
    int64_t ended_ns;
    const char *fault; /* NULL: none */
};

static void add_text(json_t *attributes, const char *name, const char *value)
{
    if (value != NULL && *value != '\0') {
        (void)json_array_append_new(
            attributes, json_pack("{s:s, s:{s:o}}", "key", name, "value", "stringValue", wire_text(value)));
    }
}

static void put_span(struct traces *traces, const struct thread *thread, const struct span *span,
                     const struct belay_event *event)
{
    char id[SPAN_HEX + 1];
    char began[24];
    char ended[24];
    json_t *attributes = json_array();
    json_t *object;

    random_hex(id, SPAN_HEX);
    (void)snprintf(began, sizeof began, "%lld", (long long)span->began_ns);
    (void)snprintf(ended, sizeof ended, "%lld", (long long)span->ended_ns);
    add_text(attributes, "lock.key", event->key);
    add_text(attributes, "lock.id", event->lock_id);
    add_text(attributes, "lock.owner", event->locked_by);
    add_text(attributes, "lock.event", event->type);
    object = json_pack("{s:s, s:s, s:s, s:i, s:s, s:s, s:o}", "traceId", thread->trace, "spanId",
                       span->id == NULL ? id : span->id, "name", span->name, "kind", 1, "startTimeUnixNano",
                       began, "endTimeUnixNano", ended, "attributes", attributes);
    if (object != NULL && span->parent[0] != '\0') {
        (void)json_object_set_new(object, "parentSpanId", json_string(span->parent));
    }
    if (object != NULL && span->fault != NULL) {
        (void)json_object_set_new(object, "status",
                                  json_pack("{s:i, s:o}", "code", 2, "message", wire_text(span->fault)));
    }
    span_queue_put(traces->queue, object);
}

static int64_t now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void put_commit(struct traces *traces, struct thread *thread, const char *parent,
                       const struct belay_event *event, int64_t end_ns)
{
    struct span span = { .name = "store.commit",
                         .parent = parent,
                         .began_ns = end_ns - event->commit_us * 1000,
                         .ended_ns = end_ns };

    if (event->commit_us > 0) {
        thread->first_ns =
            thread->first_ns == 0 || span.began_ns < thread->first_ns ? span.began_ns : thread->first_ns;
        put_span(traces, thread, &span, event);
    }
}

/* Durations in milliseconds are rounded: what was asked for did not begin before it was. */
static int64_t began_ns(const struct thread *thread, int64_t end_ns, int64_t took_ms)
{
    int64_t ns = end_ns - (took_ms > 0 ? took_ms : 0) * 1000000;

    return ns < thread->asked_ns ? thread->asked_ns : ns;
}

static void end_wait(struct traces *traces, struct thread *thread, const struct belay_event *event)
{
    int64_t end_ns = now_ns();
    struct span span = { .name = "lock.wait",
                         .parent = thread->acquire,
                         .began_ns = began_ns(thread, end_ns, event->duration_ms),
                         .ended_ns = end_ns };

    thread->first_ns = span.began_ns;
    put_span(traces, thread, &span, event);
}

static void end_acquire(struct traces *traces, struct thread *thread, const struct belay_event *event,
                        const char *fault)
{
    int64_t end_ns = now_ns();
    struct span span = { .name = "lock.acquire",
                         .id = thread->acquire,
                         .parent = thread->parent,
                         .began_ns = began_ns(thread, end_ns, event->duration_ms),
                         .ended_ns = end_ns,
                         .fault = fault };

    put_commit(traces, thread, thread->acquire, event, end_ns);
    if (thread->first_ns != 0 && thread->first_ns < span.began_ns) {
        span.began_ns = thread->first_ns; /* times in milliseconds are rounded */
    }
    put_span(traces, thread, &span, event);
    thread->held_ns = end_ns;
}

static void end_hold(struct traces *traces, struct thread *thread, const struct belay_event *event,
                     const char *fault)
{
    int64_t end_ns = now_ns();
    int64_t held_ms = event->duration_ms > 0 ? event->duration_ms : 0;
    struct span span = { .name = "lock.hold",
                         .id = thread->hold,
                         .parent = thread->parent,
                         .began_ns = thread->held_ns != 0 ? thread->held_ns : end_ns - held_ms * 1000000,
                         .ended_ns = end_ns,
                         .fault = fault };
    int64_t commit_ns = end_ns - event->commit_us * 1000;

    if (thread->held_ns == 0 && thread->first_ns != 0 && thread->first_ns < span.began_ns) {
        span.began_ns = thread->first_ns;
    }
    if (commit_ns < span.began_ns) {
        span.began_ns = commit_ns;
    }
    put_commit(traces, thread, thread->hold, event, end_ns);
    if (!thread->is_theirs) {
        put_span(traces, thread, &span, event);
    }
}

/* True if nothing more comes for this lock id. */
static bool follow(struct traces *traces, struct thread *thread, const struct belay_event *event)
{
    const char *type = event->type;

    if (strcmp(type, "wait.ended") == 0 && event->duration_ms >= 0) {
        end_wait(traces, thread, event);
        if (event->reason != NULL && strcmp(event->reason, "cancelled") == 0) {
            end_acquire(traces, thread, event, event->reason); /* nothing more is said of it */
            return true;
        }
    } else if (strcmp(type, "lock.acquired") == 0 || strcmp(type, "lock.adopted") == 0) {
        end_acquire(traces, thread, event, NULL);
    } else if (strcmp(type, "lock.refused") == 0) {
        end_acquire(traces, thread, event, event->reason == NULL ? "refused" : event->reason);
        return true;
    } else if (strcmp(type, "lock.renewed") == 0) {
        put_commit(traces, thread, thread->hold, event, now_ns());
    } else if (strcmp(type, "lock.released") == 0) {
        end_hold(traces, thread, event, NULL);
        return true;
    } else if (strcmp(type, "lock.lost") == 0 || strcmp(type, "lock.forced") == 0) {
        end_hold(traces, thread, event, event->reason == NULL ? type : event->reason);
        return true;
    }
    return false;
}

void traces_event(struct traces *traces, const struct belay_event *event)
{
    struct thread *thread;

    if (event->lock_id == NULL || event->lock_id[0] == '\0' || strcmp(event->type, "lock.taken_over") == 0 ||
        strcmp(event->type, "lock.stale") == 0) {
        return; /* of somebody else's lock */
    }
    (void)pthread_mutex_lock(&traces->mutex);
    thread = thread_of(traces, event->lock_id);
    if (thread != NULL && follow(traces, thread, event)) {
        thread_end(traces, event->lock_id);
    }
    (void)pthread_mutex_unlock(&traces->mutex);
}

void traces_belongs(struct traces *traces, const char *lock_id, const char *traceparent)
{
    char trace[TRACE_HEX + 1];
    char parent[SPAN_HEX + 1];
    struct thread *thread;

    if (!read_traceparent(traceparent, trace, parent)) {
        return;
    }
    (void)pthread_mutex_lock(&traces->mutex);
    thread = thread_of(traces, lock_id);
    if (thread != NULL) {
        memcpy(thread->trace, trace, sizeof trace);
        memcpy(thread->parent, parent, sizeof parent);
        thread->asked_ns = now_ns();
    }
    (void)pthread_mutex_unlock(&traces->mutex);
}

void traces_held_in(struct traces *traces, const char *lock_id, const char *traceparent)
{
    char trace[TRACE_HEX + 1];
    char hold[SPAN_HEX + 1];
    struct thread *thread;

    if (!read_traceparent(traceparent, trace, hold)) {
        return;
    }
    (void)pthread_mutex_lock(&traces->mutex);
    thread = thread_of(traces, lock_id);
    if (thread != NULL) {
        memcpy(thread->trace, trace, sizeof trace);
        memcpy(thread->hold, hold, sizeof hold);
        thread->is_theirs = true;
    }
    (void)pthread_mutex_unlock(&traces->mutex);
}

bool traces_parent_for(struct traces *traces, const char *lock_id, bool is_held,
                       char out[BELAY_TRACEPARENT_SIZE])
{
    struct thread *thread;

    (void)pthread_mutex_lock(&traces->mutex);
    thread = thread_of(traces, lock_id);
    if (thread != NULL) {
        if (thread->first_ns == 0) {
            thread->first_ns = now_ns(); /* whoever is given it begins after this */
        }
        (void)snprintf(out, BELAY_TRACEPARENT_SIZE, "00-%s-%s-01", thread->trace,
                       is_held ? thread->hold : thread->acquire);
    }
    (void)pthread_mutex_unlock(&traces->mutex);
    return thread != NULL;
}

uint64_t traces_dropped(const struct traces *traces)
{
    return span_queue_dropped(traces->queue);
}

/* ---- open and close ---- */

static bool is_set(const char *name, const char *value)
{
    const char *now = getenv(name);

    return now != NULL && strcmp(now, value) == 0;
}

/* The receiver's address from the environment; false: there is none. */
static bool target_url(char *out, size_t size)
{
    const char *base = getenv("OTEL_EXPORTER_OTLP_ENDPOINT");
    const char *whole = getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    int n;

    if (is_set("OTEL_SDK_DISABLED", "true") || is_set("OTEL_TRACES_EXPORTER", "none")) {
        return false;
    }
    if (whole != NULL && *whole != '\0') {
        n = snprintf(out, size, "%s", whole);
    } else if (base != NULL && *base != '\0') {
        n = snprintf(out, size, "%s%sv1/traces", base, base[strlen(base) - 1] == '/' ? "" : "/");
    } else {
        return false;
    }
    return n > 0 && (size_t)n < size;
}

enum belay_code traces_open(const struct telemetry_options *options, struct traces **out,
                            struct belay_error *err)
{
    const char *name = getenv("OTEL_SERVICE_NAME");
    struct span_target target = { .headers = getenv("OTEL_EXPORTER_OTLP_HEADERS"),
                                  .ca_file = getenv("OTEL_EXPORTER_OTLP_CERTIFICATE") };
    struct traces *traces;
    enum belay_code code;
    char url[2048];

    if (!target_url(url, sizeof url)) {
        return BELAY_OK;
    }
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) {
        if (options->on_warning != NULL) {
            options->on_warning(
                options->context,
                "no traces: OTEL_EXPORTER_OTLP_ENDPOINT must be a URL such as http://127.0.0.1:4318");
        }
        return BELAY_OK;
    }
    traces = calloc(1, sizeof *traces);
    if (traces == NULL) {
        return error_no_memory(err);
    }
    target.url = url;
    target.service = name != NULL && *name != '\0' ? name : options->service;
    code = span_queue_open(&target, &traces->queue, err);
    if (code != BELAY_OK) {
        free(traces);
        return code;
    }
    (void)pthread_mutex_init(&traces->mutex, NULL);
    (void)read_traceparent(options->traceparent, traces->trace, traces->parent);
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
            struct thread *thread = traces->buckets[i];

            traces->buckets[i] = thread->next;
            free(thread);
        }
    }
    (void)pthread_mutex_destroy(&traces->mutex);
    free(traces);
}
