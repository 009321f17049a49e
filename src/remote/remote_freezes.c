/* Freezes through a server. */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "http_client/uri.h"
#include "remote/remote_internal.h"
#include "json/json_read.h"

static void set_utc(json_t *body, const char *name, int64_t unix_ms)
{
    char text[CLOCK_TEXT_SIZE];

    if (unix_ms != 0) {
        remote_set_text(body, name, clock_format_utc(text, unix_ms, true));
    }
}

static void fill_freeze(json_t *body, const struct freeze_request *request)
{
    remote_set_text(body, "reason", request->reason);
    remote_set_text(body, "by", request->by);
    if (request->kind != FREEZE_BEGIN) {
        return;
    }
    remote_set_text(body, "id", request->id);
    remote_set_text(body, "pattern", request->pattern);
    set_utc(body, "from", request->from_unix_ms);
    set_utc(body, "until", request->until_unix_ms);
    if (request->for_ms != 0) {
        (void)json_object_set_new(body, "for_ms", json_integer(request->for_ms));
    }
}

static enum belay_code hand_on_freezes(struct remote *remote, const json_t *answer, belay_freeze_fn fn,
                                       void *context, struct belay_error *err)
{
    const json_t *list = json_object_get(answer, "freezes");
    bool go_on = true;

    if (!json_is_array(list)) {
        return remote_say_not_belay(remote, err);
    }
    for (size_t i = 0; go_on && i < json_array_size(list); i++) {
        if (!json_read_freeze(json_array_get(list, i), fn, context, &go_on)) {
            return remote_say_not_belay(remote, err);
        }
    }
    return BELAY_OK;
}

/* It can be sent again: the client chooses the id of a new freeze, and a freeze that was ended no longer exists. */
enum belay_code remote_freezes(struct backend *base, const struct freeze_request *request, belay_freeze_fn fn,
                               void *context, struct belay_error *err)
{
    static const char *const methods[] = {
        [FREEZE_LIST] = "GET", [FREEZE_BEGIN] = "POST", [FREEZE_END] = "DELETE"
    };
    struct remote *remote = (struct remote *)base;
    struct buf path = BUF_INIT(REMOTE_URL_MAX);
    json_t *body = request->kind == FREEZE_LIST ? NULL : json_object();
    struct remote_call call = { .method = methods[request->kind], .body = body };
    json_t *answer = NULL;
    enum belay_code code;

    buf_adds(&path, "/v1/freezes");
    if (request->kind == FREEZE_END) {
        buf_adds(&path, "/");
        uri_encode(&path, request->id, strlen(request->id), false);
    }
    if (body != NULL) {
        fill_freeze(body, request);
    }
    call.path = path.data;
    code = path.failed || (body == NULL && request->kind != FREEZE_LIST)
               ? error_no_memory(err)
               : remote_send_again(remote, &call, &answer, err);
    if (code == BELAY_OK) {
        code = hand_on_freezes(remote, answer, fn, context, err);
    }
    json_decref(answer);
    json_decref(body);
    buf_release(&path);
    return code;
}
