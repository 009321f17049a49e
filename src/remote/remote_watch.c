/* GET /v1/events, Server-Sent Events. A stream that breaks is resumed after the last event. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "client/items.h"
#include "http_client/uri.h"
#include "remote/remote_internal.h"
#include "json/json_read.h"

enum {
    LINE_MAX_BYTES = 2 << 20,
    SILENT_MS = 35000 /* a front that sends nothing for so long hangs: it sends a comment every 15 s */
};

struct remote_watching {
    belay_event_fn fn;
    void *context;
    struct belay_cancel *cancel;
    uint64_t *after;       /* borrowed; the id of the last event */
    bool has_begun;        /* *after is known; it may be 0, if the store has no events yet */
    bool connected;        /* data has arrived for the present request */
    bool has_others;       /* there are other fronts, to change to if this one hangs */
    int64_t heard_boot_ms; /* when the last data arrived, or else the request was sent */
    bool stopped;          /* fn has returned false */
    bool failed;           /* no memory */
    bool is_strange;       /* the data is not a stream of events */
    struct buf line;       /* owned; the present line so far */
};

/*
 * Each event of the server is one line of data, which contains what the other lines repeat. The id
 * before the first event says where the stream begins, so that it can be resumed from there.
 */
static void on_line(struct remote_watching *watching, const char *line)
{
    json_t *event = NULL;
    bool go_on = true;

    if (*line != '\0' && *line != '\r' && *line != ':' && !text_has_prefix(line, "id:") &&
        !text_has_prefix(line, "data:") && !text_has_prefix(line, "event:") &&
        !text_has_prefix(line, "retry:")) {
        watching->is_strange = true;
        return;
    }
    if (text_has_prefix(line, "id:") && !watching->has_begun) {
        *watching->after = strtoull(line + strlen("id:"), NULL, 10);
        watching->has_begun = true;
    }
    if (text_has_prefix(line, "data:")) {
        event = json_loads(line + strlen("data:"), 0, NULL);
        if (event != NULL &&
            json_read_event(event, watching->fn, watching->context, &go_on, watching->after)) {
            watching->stopped = !go_on;
        }
    }
    json_decref(event);
}

static bool on_events(void *context, const char *data, size_t len)
{
    struct remote_watching *watching = context;
    const char *end = data + len;

    assert(!watching->stopped && !watching->failed);
    watching->connected = true;
    watching->heard_boot_ms = clock_boot_ms();
    while (data < end && !watching->stopped && !watching->is_strange) {
        const char *newline = memchr(data, '\n', (size_t)(end - data));
        const char *stop = newline == NULL ? end : newline;

        buf_add(&watching->line, data, (size_t)(stop - data));
        if (watching->line.failed) {
            watching->failed = true;
            return false;
        }
        if (newline != NULL) {
            on_line(watching, watching->line.data == NULL ? "" : watching->line.data);
            buf_release(&watching->line);
            watching->line = (struct buf)BUF_INIT(LINE_MAX_BYTES);
        }
        data = stop + (newline != NULL);
    }
    return !watching->stopped && !watching->is_strange;
}

/* The server sends data as soon as a stream begins. */
static bool is_hung(void *context)
{
    const struct remote_watching *watching = context;
    int64_t limit_ms = watching->connected ? SILENT_MS : REMOTE_ANSWER_SEVERAL_MS;

    return watching->has_others && clock_boot_ms() - watching->heard_boot_ms > limit_ms;
}

/* One connection, until it ends. */
static enum belay_code listen_once(struct remote *remote, const char *prefix,
                                   struct remote_watching *watching, struct belay_error *err)
{
    const struct remote_front *front = remote_front(remote);
    struct buf path = BUF_INIT(REMOTE_URL_MAX);
    char id[24];
    const struct http_client_header resume = { "Last-Event-ID", id };
    struct http_response response = { 0 };
    struct http_client_request request = { .method = "GET",
                                           .headers = &resume,
                                           .n_headers = watching->has_begun ? 1 : 0,
                                           .may_repeat = true,
                                           .on_data = on_events,
                                           .cancel = watching->cancel,
                                           .should_stop = is_hung,
                                           .context = watching,
                                           .endless = true };
    json_t *body = NULL;
    enum belay_code code;

    (void)snprintf(id, sizeof id, "%llu", (unsigned long long)*watching->after);
    buf_adds(&path, "/v1/events");
    uri_add_parameter(&path, "prefix", text_or_empty(prefix));
    request.url = path.failed ? NULL : path.data;
    code = remote_exchange(remote, front, &request, &response, err);
    if (code == BELAY_OK && response.status != 200) {
        body = json_loadb(response.body, response.body_len, 0, NULL);
        code = remote_judge(remote, response.status, body, NULL, err);
    }
    /* An answer that is not a stream may end without a line feed. */
    if (response.status == 200 && watching->line.len > 0 && !watching->stopped && !watching->failed) {
        on_line(watching, watching->line.data);
    }
    if (watching->is_strange) {
        code = remote_say_not_belay(remote, err);
    }
    json_decref(body);
    http_response_release(&response);
    buf_release(&path);
    if (!watching->failed && !watching->stopped && !belay_cancel_requested(watching->cancel)) {
        bool is_fault = code == BELAY_OK || code == BELAY_CANCELLED; /* the stream ended, or hung */

        code = remote_fault(remote, front, is_fault ? BELAY_UNREACHABLE : code, err);
    }
    return code;
}

enum belay_code remote_watch(struct backend *base, const char *prefix, uint64_t *after, belay_event_fn fn,
                             void *context, struct belay_cancel *cancel, struct belay_error *err)
{
    struct remote *remote = (struct remote *)base;
    struct remote_watching watching = { .fn = fn,
                                        .context = context,
                                        .cancel = cancel,
                                        .after = after,
                                        .has_others = remote->n_fronts > 1,
                                        .has_begun = *after != 0,
                                        .line = BUF_INIT(LINE_MAX_BYTES) };
    enum belay_code code = BELAY_OK;
    bool ever_connected = false;
    int64_t began_ms = clock_boot_ms();
    int faults = 0;

    if (remote->n_fronts > 1 && !atomic_load(&remote->has_id)) {
        char id[BELAY_STORE_ID_SIZE]; /* learn it before the stream: one of another store is then refused */

        code = remote_identity_until(remote, cancel, id, err);
        if (code != BELAY_OK) {
            return belay_cancel_requested(cancel) ? BELAY_OK : code;
        }
    }
    while (!watching.stopped && !belay_cancel_requested(cancel)) {
        watching.connected = false;
        watching.heard_boot_ms = clock_boot_ms();
        code = listen_once(remote, prefix, &watching, err);
        buf_release(&watching.line);
        watching.line = (struct buf)BUF_INIT(LINE_MAX_BYTES);
        ever_connected = ever_connected || watching.connected;
        /* After a stream that ended, wait before the next attempt: the server may close each at once. */
        faults = watching.connected ? (int)remote->n_fronts : faults + 1;
        if (watching.failed) {
            code = error_no_memory(err);
        }
        if ((code != BELAY_OK && code != BELAY_UNREACHABLE && code != BELAY_UNKNOWN) ||
            (!ever_connected && !remote_should_retry(remote, faults, REMOTE_TRIES, began_ms))) {
            break;
        }
        client_sleep(remote_backoff_ms(remote, faults), cancel);
    }
    buf_release(&watching.line);
    return watching.stopped || belay_cancel_requested(cancel) ? BELAY_OK : code;
}
