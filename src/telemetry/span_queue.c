#include "telemetry/span_queue.h"

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/paths.h"
#include "base/pool.h"
#include "telemetry/otlp_module.h"
#include "json/json_write.h"

enum {
    QUEUE_MAX = 2048,
    BATCH_MAX = 256,
    TRIES = 4,
    LINGER_MS = 200,
    POST_TIMEOUT_MS = 10000,
    CLOSE_STEPS = 10,
    STOP_STEPS = 50
};

struct span_queue {
    char *url;
    char *headers;
    char *service;
    char *ca_file; /* NULL: the system's */
    void *module;
    otlp_post_fn post;
    pthread_t sender;
    bool has_sender;

    pthread_mutex_t mutex; /* guards the rest */
    pthread_cond_t changed;
    json_t *spans[QUEUE_MAX]; /* a ring */
    size_t first;
    size_t n;
    bool closing;
    bool done; /* the sender has ended */
    atomic_uint_fast64_t dropped;
    atomic_bool stop; /* do not wait for the answer any longer */
};

/* libcurl is in a module of its own, so that processes without traces do not load it. */
static enum belay_code load_sender(struct span_queue *queue, struct belay_error *err)
{
    char path[MODULE_PATH_MAX];
    void *found;

    if (!module_path("belay-otlp.so", path)) {
        return error_set(err, BELAY_CONFIG,
                         "cannot send traces: the module belay-otlp.so is not installed beside the program; "
                         "install it or unset OTEL_EXPORTER_OTLP_ENDPOINT");
    }
    queue->module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (queue->module == NULL) {
        return error_set(err, BELAY_CONFIG, "cannot load '%.200s': %.300s", path, dlerror());
    }
    found = dlsym(queue->module, "belay_otlp_post");
    memcpy(&queue->post, &found, sizeof found);
    return found != NULL
               ? BELAY_OK
               : error_set(err, BELAY_CONFIG, "'%.200s' is not a module of belay %s", path, belay_version());
}

enum belay_code span_queue_open(const struct span_target *target, struct span_queue **out,
                                struct belay_error *err)
{
    struct span_queue *queue = calloc(1, sizeof *queue);
    enum belay_code code;

    if (queue == NULL) {
        return error_no_memory(err);
    }
    (void)pthread_mutex_init(&queue->mutex, NULL);
    cond_init(&queue->changed);
    queue->url = strdup(target->url);
    queue->headers = strdup(target->headers == NULL ? "" : target->headers);
    queue->service = strdup(target->service);
    queue->ca_file = target->ca_file == NULL ? NULL : strdup(target->ca_file);
    code = queue->url == NULL || queue->headers == NULL || queue->service == NULL ||
                   (target->ca_file != NULL && queue->ca_file == NULL)
               ? error_no_memory(err)
               : load_sender(queue, err);
    if (code != BELAY_OK) {
        span_queue_close(queue);
        return code;
    }
    *out = queue;
    return BELAY_OK;
}

/* ---- the sender ---- */

json_t *span_attribute(const char *name, const char *value)
{
    return json_pack("{s:s, s:{s:o}}", "key", name, "value", "stringValue", wire_text(value));
}

static json_t *wrap_spans(const struct span_queue *queue, json_t *spans)
{
    return json_pack("{s:[{s:{s:[o]}, s:[{s:{s:s, s:s}, s:o}]}]}", "resourceSpans", "resource", "attributes",
                     span_attribute("service.name", queue->service), "scopeSpans", "scope", "name", "belay",
                     "version", belay_version(), "spans", spans);
}

/* Call it with the mutex held. */
static void wait_for_change(struct span_queue *queue, int64_t ms)
{
    cond_wait_for(&queue->changed, &queue->mutex, ms);
}

static bool is_worth_a_retry(int status)
{
    return status == 0 || status == 429 || (status >= 502 && status <= 504);
}

/* Call it without the mutex. Spans that the receiver rejects are dropped and counted. */
static void post_batch(struct span_queue *queue, json_t *spans)
{
    size_t n = json_array_size(spans);
    json_t *body = wrap_spans(queue, spans);
    char *text = body == NULL ? NULL : json_dumps(body, JSON_COMPACT);
    int status = 0;

    for (int i = 0; text != NULL && i < TRIES; i++) {
        bool closing;

        status = queue->post(&(struct otlp_post){ .url = queue->url,
                                                  .headers = queue->headers,
                                                  .ca_file = queue->ca_file,
                                                  .body = text,
                                                  .len = strlen(text),
                                                  .timeout_ms = POST_TIMEOUT_MS,
                                                  .stop = &queue->stop });
        if (!is_worth_a_retry(status)) {
            break;
        }
        (void)pthread_mutex_lock(&queue->mutex);
        if (!queue->closing) {
            wait_for_change(queue, 500L << i);
        }
        closing = queue->closing;
        (void)pthread_mutex_unlock(&queue->mutex);
        if ((closing && i > 0) || atomic_load(&queue->stop)) {
            break;
        }
    }
    if (status < 200 || status > 299) {
        (void)atomic_fetch_add(&queue->dropped, n);
    }
    free(text);
    json_decref(body);
}

/* Call it with the mutex held. NULL when the queue is empty and closing. */
static json_t *next_batch(struct span_queue *queue)
{
    json_t *spans;

    while (queue->n == 0 && !queue->closing) {
        (void)pthread_cond_wait(&queue->changed, &queue->mutex);
    }
    if (queue->n == 0 || atomic_load(&queue->stop)) {
        return NULL;
    }
    if (queue->n < BATCH_MAX && !queue->closing) {
        wait_for_change(queue, LINGER_MS); /* more spans of the same operation follow soon */
    }
    assert(queue->n <= QUEUE_MAX);
    spans = json_array();
    for (size_t i = 0; i < BATCH_MAX && queue->n > 0; i++, queue->n--) {
        (void)json_array_append_new(spans, queue->spans[queue->first]);
        queue->first = (queue->first + 1) % QUEUE_MAX;
    }
    return spans;
}

static void *send_spans(void *context)
{
    struct span_queue *queue = context;
    json_t *spans;

    (void)pthread_mutex_lock(&queue->mutex);
    while ((spans = next_batch(queue)) != NULL) {
        (void)pthread_mutex_unlock(&queue->mutex);
        post_batch(queue, spans);
        (void)pthread_mutex_lock(&queue->mutex);
    }
    assert(!queue->done && queue->closing);
    queue->done = true;
    (void)pthread_cond_broadcast(&queue->changed);
    (void)pthread_mutex_unlock(&queue->mutex);
    return NULL;
}

void span_queue_put(struct span_queue *queue, json_t *span)
{
    if (span == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&queue->mutex);
    if (!queue->has_sender) {
        queue->has_sender = thread_start(&queue->sender, send_spans, queue);
    }
    assert(queue->n <= QUEUE_MAX && queue->first < QUEUE_MAX && !queue->done);
    if (queue->n == QUEUE_MAX || !queue->has_sender) {
        (void)atomic_fetch_add(&queue->dropped, 1);
        json_decref(span);
    } else {
        queue->spans[(queue->first + queue->n) % QUEUE_MAX] = span;
        queue->n++;
        (void)pthread_cond_broadcast(&queue->changed);
    }
    (void)pthread_mutex_unlock(&queue->mutex);
}

uint64_t span_queue_dropped(const struct span_queue *queue)
{
    return atomic_load(&queue->dropped);
}

/* True if the sender has ended; do not wait for a receiver that does not answer. */
static bool join_sender(struct span_queue *queue)
{
    bool done;

    if (!queue->has_sender) {
        return true;
    }
    (void)pthread_mutex_lock(&queue->mutex);
    queue->closing = true;
    (void)pthread_cond_broadcast(&queue->changed);
    for (int i = 0; !queue->done && i < CLOSE_STEPS; i++) {
        wait_for_change(queue, 100);
    }
    /* The sender checks `stop` often, but not while it sets up TLS, which must not run while the process exits. */
    atomic_store(&queue->stop, true);
    for (int i = 0; !queue->done && i < STOP_STEPS; i++) {
        wait_for_change(queue, 100);
    }
    done = queue->done;
    (void)pthread_mutex_unlock(&queue->mutex);
    (void)(done ? pthread_join(queue->sender, NULL) : pthread_detach(queue->sender));
    return done;
}

void span_queue_close(struct span_queue *queue)
{
    if (queue == NULL || !join_sender(queue)) {
        return; /* the sender still uses the queue; the process exits before it is done */
    }
    for (size_t i = 0; i < queue->n; i++) {
        json_decref(queue->spans[(queue->first + i) % QUEUE_MAX]);
    }
    (void)pthread_cond_destroy(&queue->changed);
    (void)pthread_mutex_destroy(&queue->mutex);
    free(queue->url);
    free(queue->headers);
    free(queue->service);
    free(queue->ca_file);
    free(queue); /* the module stays loaded: libcurl must not be unloaded */
}
