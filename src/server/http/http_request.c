#include "server/http/http_internal.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *http_header(const struct http_request *request, const char *name)
{
    int first = tolower((unsigned char)*name);

    for (size_t i = 0; i < request->n_headers; i++) {
        if (tolower((unsigned char)*request->headers[i].name) == first &&
            strcasecmp(request->headers[i].name, name) == 0) {
            return request->headers[i].value;
        }
    }
    return NULL;
}

void http_on_hangup(struct http_request *request, http_hangup_notice *notice, void *context)
{
    struct request *own = (struct request *)request;

    own->notice = notice;
    own->notice_context = context;
}

void http_mark_known(struct http_request *request)
{
    ((struct request *)request)->conn->is_known = true;
}

void http_read_no_more(struct http_request *request)
{
    struct request *own = (struct request *)request;

    own->conn->stops_at = own;
}

char *http_take_body(struct http_request *request, size_t *out_len)
{
    struct request *own = (struct request *)request;
    size_t len = own->body.len;
    char *body = buf_take(&own->body);

    if (body != NULL) {
        *out_len = len;
        request->body = "";
        request->body_len = 0;
    }
    return body;
}

void request_release_shared(struct request *request)
{
    struct http_shared shared = request->shared;

    request->shared = (struct http_shared){ 0 };
    if (shared.release != NULL) {
        shared.release(shared.owner);
    }
}

bool request_refuse(struct request *request, int status, const char *text)
{
    if (request->refuse_status == 0) {
        request->refuse_status = status;
        request->refuse_text = text;
    }
    return false;
}

/* Empty it for its next use; a large one is freed. */
static void reuse(struct buf *buf, size_t keep, size_t max)
{
    if (buf->cap > keep) {
        buf_release(buf);
    }
    buf->len = 0;
    buf->max = max;
    buf->failed = false;
}

struct request *request_new(struct conn *conn)
{
    struct http_server *server = conn->server;
    struct request *request = server->spare_requests;
    struct buf text = BUF_INIT(0);
    struct buf body = BUF_INIT(0);
    struct buf ready = BUF_INIT(0);

    if (request != NULL) {
        server->spare_requests = request->next;
        server->n_spare_requests--;
        text = request->text;
        body = request->body;
        ready = request->ready;
    } else {
        request = malloc(sizeof *request);
        if (request == NULL) {
            return NULL;
        }
    }
    /* The two arrays have counters: to clear them would take longer than all the rest. */
    memset(request, 0, offsetof(struct request, at));
    memset((char *)request + offsetof(struct request, n_headers), 0,
           sizeof *request - offsetof(struct request, n_headers));
    request->text = text;
    request->body = body;
    request->ready = ready;
    reuse(&request->text, SPARE_TEXT, server->limits.max_head_bytes + MAX_HEADERS * 2 + 2);
    reuse(&request->body, SPARE_BODY, server->limits.max_body_bytes);
    reuse(&request->ready, SPARE_TEXT, MAX_ANSWER);
    request->max_body = server->limits.max_body_bytes;
    request->conn = conn;
    request->pub.id = ++server->last_id;
    request->pub.peer = &conn->peer;
    request->pub.is_tls = conn->ssl != NULL;
    request->pub.received_ms = loop_now_ms(server->loop);
    request->pub.method = "";
    request->pub.path = "";
    request->pub.query = "";
    request->pub.body = "";
    head_begin(request);
    return request;
}

static void request_destroy(struct request *request)
{
    buf_release(&request->text);
    buf_release(&request->body);
    buf_release(&request->ready);
    free(request);
}

void request_free(struct request *request)
{
    struct http_server *server;

    if (request == NULL) {
        return;
    }
    assert(request->conn != NULL); /* else it is spare already */
    server = request->conn->server;
    server->bodies_bytes -= request->counted;
    request_release_shared(request);
    request->conn = NULL;
    if (server->n_spare_requests >= SPARE_REQUESTS) {
        request_destroy(request);
        return;
    }
    reuse(&request->text, SPARE_TEXT, 0);
    reuse(&request->body, SPARE_BODY, 0);
    reuse(&request->ready, SPARE_TEXT, 0);
    request->next = server->spare_requests;
    server->spare_requests = request;
    server->n_spare_requests++;
}

void requests_release(struct http_server *server)
{
    while (server->spare_requests != NULL) {
        struct request *request = server->spare_requests;
        server->spare_requests = request->next;
        request_destroy(request);
    }
    server->n_spare_requests = 0;
}
