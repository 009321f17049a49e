#include "server/core/sse.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "server/core/server.h"

bool streams_have_room(const struct streams *all, const struct exchange *x, size_t most)
{
    size_t n = 0;

    for (const struct stream *stream = all->first; stream != NULL; stream = stream->next) {
        n += strcmp(stream->x->who, x->who) == 0;
    }
    return all->n < most && exchange_has_share(x, n, most);
}

void stream_begin(struct streams *all, struct stream *stream, struct exchange *x)
{
    const struct http_header headers[] = { { "Content-Type", "text/event-stream" },
                                           { "Cache-Control", "no-store" },
                                           { "X-Accel-Buffering", "no" },
                                           { "X-Request-Id", x->id } };

    assert(x->stream == NULL && x->pending == NULL && x->holder == NULL && x->request != NULL);
    stream->all = all;
    stream->x = x;
    stream->next = all->first;
    stream->back = &all->first;
    if (all->first != NULL) {
        all->first->back = &stream->next;
    }
    all->first = stream;
    all->n++;
    x->stream = stream;
    http_stream_begin(x->request, 200, headers, sizeof headers / sizeof headers[0]);
}

void stream_send(struct stream *stream, const char *text, size_t len)
{
    if (!stream->is_cut && !http_stream_send(stream->x->request, text, len)) {
        stream->is_cut = true;
        log_note(&stream->x->server->log, LOG_WARN, stream->all->name,
                 "%s reads too slowly, or is gone, and is cut off", stream->x->request->peer->text);
    }
}

void streams_send(struct streams *all, const char *text, size_t len)
{
    for (struct stream *stream = all->first; stream != NULL; stream = stream->next) {
        stream_send(stream, text, len);
    }
}

void stream_forget(struct stream *stream)
{
    struct streams *all = stream->all;

    assert(all->n > 0 && *stream->back == stream);
    assert(stream->x->stream == stream);
    stream->x->stream = NULL;
    *stream->back = stream->next;
    if (stream->next != NULL) {
        stream->next->back = stream->back;
    }
    all->n--;
    if (all->n == 0 && all->on_empty != NULL) {
        all->on_empty(all);
    }
    free(stream);
}

void stream_end(struct stream *stream)
{
    struct exchange *x = stream->x;
    struct http_request *request = x->request;

    stream_forget(stream);
    exchange_end(x, 200);
    http_stream_end(request);
}

void streams_end(struct streams *all)
{
    struct stream *next;

    for (struct stream *stream = all->first; stream != NULL; stream = next) {
        next = stream->next;
        stream_end(stream);
    }
}

void streams_end_session(struct streams *all, uint64_t session)
{
    struct stream *next;

    for (struct stream *stream = all->first; stream != NULL; stream = next) {
        next = stream->next;
        if (stream->x->session == session) {
            stream_end(stream);
        }
    }
}

static bool take_id(void *context, const struct belay_event *event)
{
    *(uint64_t *)context = event->id;
    return true;
}

enum belay_code stream_last_event(struct belay_client *client, uint64_t *out_id, struct belay_error *err)
{
    return belay_events(client, NULL, 0, 1, take_id, out_id, err);
}
