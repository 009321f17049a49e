/* The registry through a server: applications, and the decisions about databases. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "client/items.h"
#include "http_client/uri.h"
#include "remote/remote_internal.h"

enum { LIST_TIMEOUT_MS = 60000 };

static bool is_app(const char *space)
{
    return strcmp(space, BELAY_SPACE_APPS) == 0;
}

static void add_item_path(struct buf *path, const char *space, const char *name, const char *rest)
{
    buf_adds(path, is_app(space) ? "/v1/apps/" : "/v1/databases/");
    uri_encode(path, name, strlen(name), false);
    buf_adds(path, rest);
}

/* {"version", ...} as an item. False without memory. */
static bool item_from_json(const json_t *object, const char *name, struct belay_item *out_item)
{
    struct belay_item item = { .name = strdup(name), .value = json_dumps(object, JSON_COMPACT) };

    item.version = (uint64_t)json_integer_value(json_object_get(object, "version"));
    item.version = item.version == 0 ? 1 : item.version; /* a decision has no version, but exists */
    if (item.name == NULL || item.value == NULL) {
        belay_item_release(&item);
        return false;
    }
    *out_item = item;
    return true;
}

/* Whether an answer is an application or a database at all. */
static bool is_item(const char *space, const json_t *answer)
{
    return is_app(space) ? json_is_string(json_object_get(answer, "name"))
                         : json_object_get(answer, "last") != NULL;
}

enum belay_code remote_item_get(struct backend *base, const char *space, const char *name,
                                struct belay_item *out_item, struct belay_error *err)
{
    struct remote *remote = (struct remote *)base;
    struct buf path = BUF_INIT(REMOTE_URL_MAX);
    json_t *answer = NULL;
    json_t *object;
    enum belay_code code;

    add_item_path(&path, space, name, "");
    code = remote_send_get(remote, &path, NULL, &answer, err);
    if (code == BELAY_OK && !is_item(space, answer)) {
        code = remote_say_not_belay(remote, err);
    }
    object = is_app(space) ? answer : json_object_get(answer, "last");
    if (code == BELAY_NOT_FOUND || (code == BELAY_OK && json_is_null(object))) {
        struct belay_item none = { .name = strdup(name) };

        code = none.name == NULL ? error_no_memory(err) : BELAY_OK;
        *out_item = none;
    } else if (code == BELAY_OK && !item_from_json(object, name, out_item)) {
        code = error_no_memory(err);
    }
    json_decref(answer);
    return code;
}

/* The item has what we wrote: an earlier attempt, whose answer was lost, did it, and refused this one. */
static bool was_written(struct backend *base, const struct belay_item_write *write, const json_t *body,
                        uint64_t *out_version)
{
    struct belay_item item = { 0 };
    json_t *there = NULL;
    json_t *wanted = json_copy((json_t *)body);
    bool ours = false;

    if (remote_item_get(base, write->space, write->name, &item, NULL) == BELAY_OK && item.version != 0) {
        there = json_loads(item.value, 0, NULL);
        (void)json_object_del(there, "version");
        (void)json_object_del(wanted, "version");
        ours = there != NULL && wanted != NULL && json_equal(there, wanted) == 1;
        *out_version = item.version;
    }
    belay_item_release(&item);
    json_decref(there);
    json_decref(wanted);
    return ours;
}

static enum belay_code put_value(struct backend *base, const struct belay_item_write *write, const char *path,
                                 uint64_t *out_version, struct belay_error *err)
{
    json_t *body = json_loads(write->value, 0, NULL);
    struct remote_call call = { .method = "PUT", .path = path, .body = body };
    json_t *answer = NULL;
    enum belay_code code;

    if (body == NULL) {
        return error_no_memory(err);
    }
    if (is_app(write->space) && write->any_version) {
        (void)json_object_del(body, "version");
    } else if (is_app(write->space)) {
        (void)json_object_set_new(body, "version", json_integer((json_int_t)write->version));
    }
    code = remote_send_again((struct remote *)base, &call, &answer, err);
    if (code == BELAY_HELD || code == BELAY_UNKNOWN) { /* 409 has no other meaning here */
        bool ours = was_written(base, write, body, out_version);

        code = ours ? BELAY_OK
               : code == BELAY_HELD
                   ? error_set(err, BELAY_REFUSED, "'%.200s' is of another version", write->name)
                   : code;
    } else if (code == BELAY_OK && is_app(write->space) && !is_item(write->space, answer)) {
        code = remote_say_not_belay((struct remote *)base, err);
    } else if (code == BELAY_OK) {
        *out_version = (uint64_t)json_integer_value(json_object_get(answer, "version"));
    }
    json_decref(answer);
    json_decref(body);
    return code;
}

enum belay_code remote_item_put(struct backend *base, const struct belay_item_write *write,
                                uint64_t *out_version, struct belay_error *err)
{
    struct buf path = BUF_INIT(REMOTE_URL_MAX);
    struct remote_call call = { .method = "DELETE", .tries = 1 };
    json_t *answer = NULL;
    enum belay_code code;

    add_item_path(&path, write->space, write->name, is_app(write->space) ? "" : "/last");
    if (write->value == NULL && !write->any_version) {
        buf_addf(&path, "?version=%" PRIu64, write->version);
    }
    call.path = path.data;
    if (path.failed) {
        code = error_no_memory(err);
    } else if (write->value != NULL) {
        code = put_value(base, write, path.data, out_version, err);
    } else {
        code = remote_send((struct remote *)base, &call, &answer, err);
        code = code == BELAY_HELD
                   ? error_set(err, BELAY_REFUSED, "'%.200s' is of another version", write->name)
                   : code;
        *out_version = 0;
    }
    json_decref(answer);
    buf_release(&path);
    return code;
}

/* Call `fn` for each item. An answer without the list is an error, not an empty registry. */
static enum belay_code hand_on_items(struct remote *remote, const char *space, const json_t *answer,
                                     belay_item_fn fn, void *context, struct belay_error *err)
{
    const json_t *list = json_object_get(answer, is_app(space) ? "apps" : "databases");
    bool go_on = true;

    if (!json_is_array(list)) {
        return remote_say_not_belay(remote, err);
    }
    for (size_t i = 0; go_on && i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(one, is_app(space) ? "name" : "database"));
        const json_t *value = is_app(space) ? one : json_object_get(one, "last");
        struct belay_item item = { 0 };

        if (name == NULL) {
            return remote_say_not_belay(remote, err);
        }
        if (json_is_null(value)) {
            continue;
        }
        if (!item_from_json(value, name, &item)) {
            return error_no_memory(err);
        }
        go_on = fn(context, &item);
        belay_item_release(&item);
    }
    return BELAY_OK;
}

enum belay_code remote_item_list(struct backend *base, const char *space, belay_item_fn fn, void *context,
                                 bool *out_is_partial, struct belay_error *err)
{
    struct remote *remote = (struct remote *)base;
    struct remote_call call = { .method = "GET",
                                .path = is_app(space) ? "/v1/apps" : "/v1/databases",
                                .timeout_ms = LIST_TIMEOUT_MS };
    json_t *answer = NULL;
    enum belay_code code = remote_send_again(remote, &call, &answer, err);

    if (code == BELAY_OK) {
        code = hand_on_items(remote, space, answer, fn, context, err);
    }
    if (code == BELAY_OK) {
        *out_is_partial = json_is_true(json_object_get(answer, "is_partial"));
    }
    json_decref(answer);
    return code;
}

/* The server records the decision and its event. The sinks of this process get the event as well. */
enum belay_code remote_decide(struct backend *base, const struct client_decision *decision,
                              struct belay_error *err)
{
    const struct remote *remote = (struct remote *)base;
    struct belay_event now = *decision->event;
    uint64_t version;
    enum belay_code code = remote_item_put(base, &decision->write, &version, err);

    if (remote->on_event != NULL && code != BELAY_REDIRECTED) {
        now.at_unix_ms = clock_unix_ms();
        remote->on_event(remote->context, &now);
    }
    return code;
}
