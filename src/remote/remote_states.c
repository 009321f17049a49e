/*
 * States through a server. Documents are read byte for byte as they are stored, and the caller
 * verifies them. The server writes them, under a lock that the client holds there.
 */
#include "remote/remote_states.h"

#include <inttypes.h>
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

enum { STATES_TIMEOUT_MS = 600000, NAME_SIZE = BELAY_BLOB_NAME_MAX + 1 };

struct remote_states {
    struct belay_blob_store blob;
    struct states_server server;
    struct remote *remote; /* owned */
};

static struct remote_states *of_server(struct states_server *server)
{
    return (struct remote_states *)((char *)server - offsetof(struct remote_states, server));
}

/* ---- one request ---- */

struct states_call {
    const char *method;
    struct buf path; /* owned; with its query */
    const void *body;
    size_t len;
    const char *if_match; /* NULL: none */
    const char *if_none_match;
};
#define STATES_CALL(verb)                                                                                    \
    {                                                                                                        \
        .method = (verb), .path = BUF_INIT(REMOTE_URL_MAX)                                                   \
    }

static void add_state_path(struct states_call *call, const struct belay_state_name *name, const char *rest)
{
    buf_adds(&call->path, "/v1/state/");
    uri_encode(&call->path, name->stack, strlen(name->stack), false);
    buf_adds(&call->path, "/");
    uri_encode(&call->path, name->environment, strlen(name->environment), false);
    buf_adds(&call->path, rest);
}

/* As remote_judge(), for statuses that have another meaning for states than for locks. */
static enum belay_code judge_state_answer(const struct remote *remote, const struct http_response *response,
                                          struct belay_error *err)
{
    json_t *body = json_loadb(response->body, response->body_len, JSON_REJECT_DUPLICATES, NULL);
    const json_t *error = json_object_get(body, "error");
    const char *name = json_string_value(json_object_get(error, "code"));
    const char *message = json_string_value(json_object_get(error, "message"));
    enum belay_code special = BELAY_OK;
    enum belay_code code;

    if (name != NULL && message != NULL) {
        special = response->status == 412                                       ? BELAY_NOT_HOLDER
                  : response->status == 409 && strcmp(name, "refused") == 0     ? BELAY_CONFIG
                  : response->status == 503 && strcmp(name, "bad_content") == 0 ? BELAY_BAD_CONTENT
                  : response->status == 503 && strcmp(name, "bad_config") == 0  ? BELAY_CONFIG
                                                                                : BELAY_OK;
    }
    code = special != BELAY_OK ? error_set(err, special, "%s", message)
                               : remote_judge(remote, response->status, body, NULL, err);
    json_decref(body);
    return code;
}

/* The caller releases the answer. */
static enum belay_code send_once(struct remote_states *states, struct states_call *call,
                                 struct http_response *out, struct belay_error *err)
{
    struct remote *remote = states->remote;
    const struct remote_front *front = remote_front(remote);
    struct http_client_header headers[REMOTE_MORE_HEADERS];
    struct http_client_request request = { .method = call->method,
                                           .url = call->path.failed ? NULL : call->path.data,
                                           .headers = headers,
                                           .body = call->body,
                                           .body_len = call->len,
                                           .timeout_ms = STATES_TIMEOUT_MS,
                                           .max_answer = BELAY_BLOB_SIZE_MAX,
                                           .may_repeat = strcmp(call->method, "GET") == 0 };
    enum belay_code code;

    if (call->if_match != NULL) {
        headers[request.n_headers++] = (struct http_client_header){ "If-Match", call->if_match };
    }
    if (call->if_none_match != NULL) {
        headers[request.n_headers++] = (struct http_client_header){ "If-None-Match", call->if_none_match };
    }
    code = remote_exchange(remote, front, &request, out, err);
    if (code == BELAY_OK && out->status != 200) {
        code = judge_state_answer(remote, out, err);
        code = code == BELAY_OK ? remote_say_not_belay(remote, err) : code;
    }
    code = request.may_repeat ? remote_read_fault(code, err) : code;
    return remote_fault(remote, front, code, err);
}

/* With retries while nothing was changed: a read whose answer was lost, or a write that was not done. Releases call->path. */
static enum belay_code send_until_answered(struct remote_states *states, struct states_call *call,
                                           struct http_response *out, struct belay_error *err)
{
    int64_t began_ms = clock_boot_ms();
    enum belay_code code;

    for (int faults = 1;; faults++) {
        code = send_once(states, call, out, err);
        if (code != BELAY_UNREACHABLE ||
            !remote_should_retry(states->remote, faults, REMOTE_TRIES, began_ms)) {
            break;
        }
        http_response_release(out);
        client_sleep(remote_backoff_ms(states->remote, faults), NULL);
    }
    buf_release(&call->path);
    return code;
}

/* Send, and parse the answer as JSON. */
static enum belay_code call_json(struct remote_states *states, struct states_call *call, json_t **out_json,
                                 struct belay_error *err)
{
    struct http_response response = { 0 };
    enum belay_code code = send_until_answered(states, call, &response, err);

    if (code == BELAY_OK) {
        *out_json = json_loadb(response.body, response.body_len, 0, NULL);
        code = *out_json == NULL ? remote_say_not_belay(states->remote, err) : BELAY_OK;
    }
    http_response_release(&response);
    return code;
}

/* Send, and return the answer as a blob with its ETag. */
static enum belay_code call_blob(struct remote_states *states, struct states_call *call,
                                 struct belay_blob *out_blob, struct belay_error *err)
{
    struct http_response response = { 0 };
    enum belay_code code = send_until_answered(states, call, &response, err);
    const char *etag = code == BELAY_OK ? http_response_header(&response, "etag") : NULL;

    if (code == BELAY_OK && (etag == NULL || strlen(etag) > BELAY_BLOB_TAG_MAX)) {
        code = remote_say_not_belay(states->remote, err);
    }
    if (code == BELAY_OK) {
        *out_blob = (struct belay_blob){ response.body, response.body_len, { { 0 }, { 0 } } };
        (void)snprintf(out_blob->tag.text, sizeof out_blob->tag.text, "%s", etag);
        response.body = NULL;
    }
    http_response_release(&response);
    return code;
}

/* ---- reading ---- */

/* Split "stacks/STACK/ENVIRONMENT/REST"; `copy` has the strings. False: the name has another form. */
static bool split_name(const char *name, char copy[NAME_SIZE], struct belay_state_name *out,
                       const char **rest)
{
    char *parts[3];
    char *at = copy;

    if (strlen(name) >= NAME_SIZE || !text_has_prefix(name, "stacks/")) {
        return false;
    }
    strcpy(copy, name);
    for (size_t i = 0; i < 3; i++) {
        parts[i] = at;
        at = strchr(at, '/');
        if (at == NULL) {
            return false;
        }
        *at++ = '\0';
    }
    *out = (struct belay_state_name){ parts[1], parts[2] };
    *rest = at;
    return true;
}

static enum belay_code get(struct belay_blob_store *base, const char *name, struct belay_blob *out_blob,
                           struct belay_error *err)
{
    struct states_call call = STATES_CALL("GET");
    struct belay_state_name state;
    char copy[NAME_SIZE];
    const char *rest;
    bool is_state = split_name(name, copy, &state, &rest);

    if (is_state && text_has_prefix(rest, "history/")) {
        add_state_path(&call, &state, "/history/");
        uri_encode(&call.path, rest + strlen("history/"), strlen(rest + strlen("history/")), false);
    } else if (is_state && strcmp(rest, "state.json") == 0) {
        add_state_path(&call, &state, "");
    } else {
        return error_set(err, BELAY_NOT_FOUND, "a server has no '%.200s'", name);
    }
    uri_add_parameter(&call.path, "unverified", "true");
    return call_blob((struct remote_states *)base, &call, out_blob, err);
}

/* Lists the snapshots of one state; a server lists nothing else as blobs. */
static enum belay_code list(struct belay_blob_store *base, const char *prefix, bool shallow, belay_blob_fn fn,
                            void *context, struct belay_error *err)
{
    struct states_call call = STATES_CALL("GET");
    struct belay_state_name state;
    char copy[NAME_SIZE];
    const char *rest;
    json_t *answer = NULL;
    const json_t *versions;
    enum belay_code code;

    (void)shallow;
    if (!split_name(prefix, copy, &state, &rest) || strcmp(rest, "history/") != 0) {
        return error_set(err, BELAY_CONFIG, "a server does not list '%.200s'", prefix);
    }
    add_state_path(&call, &state, "/history?limit=0");
    code = call_json((struct remote_states *)base, &call, &answer, err);
    versions = json_object_get(answer, "versions");
    if (code == BELAY_OK && !json_is_array(versions)) {
        code = remote_say_not_belay(((struct remote_states *)base)->remote, err);
    }
    /* The server has the newest first; a list is in the order of names. */
    for (size_t i = json_array_size(versions); code == BELAY_OK && i > 0; i--) {
        const json_t *version = json_array_get(versions, i - 1);
        const char *name = json_string_value(json_object_get(version, "name"));
        char path[2 * NAME_SIZE];
        struct belay_blob_entry entry = { path, 0, 0 };

        if (name == NULL || strlen(name) >= NAME_SIZE) {
            code = remote_say_not_belay(((struct remote_states *)base)->remote, err);
            break;
        }
        (void)snprintf(path, sizeof path, "%s%s", prefix, name);
        entry.size = (uint64_t)json_integer_value(json_object_get(version, "size"));
        if (!fn(context, &entry)) {
            break;
        }
    }
    json_decref(answer);
    return code;
}

static enum belay_code put_if(struct belay_blob_store *base, const char *name, const void *data, size_t len,
                              const struct belay_blob_tag *expected, struct belay_blob_tag *out_tag,
                              struct belay_error *err)
{
    (void)base;
    (void)data;
    (void)len;
    (void)expected;
    (void)out_tag;
    return error_set(err, BELAY_CONFIG, "'%.200s' is for the server to write", name);
}

static enum belay_code remove_blob(struct belay_blob_store *base, const char *name, struct belay_error *err)
{
    (void)base;
    return error_set(err, BELAY_CONFIG, "'%.200s' is for the server to remove", name);
}

static void close_states(struct belay_blob_store *base)
{
    struct remote_states *states = (struct remote_states *)base;

    states->remote->base.ops->close(&states->remote->base);
    free(states);
}

static const struct belay_blob_ops blob_ops = {
    .name = "server", .close = close_states, .get = get, .put_if = put_if, .list = list, .remove = remove_blob
};

static enum belay_code server_list(struct states_server *server, belay_state_fn fn, void *context,
                                   struct belay_error *err)
{
    struct states_call call = STATES_CALL("GET");
    json_t *answer = NULL;
    const json_t *states;
    enum belay_code code;

    buf_adds(&call.path, "/v1/state");
    code = call_json(of_server(server), &call, &answer, err);
    states = json_object_get(answer, "states");
    if (code == BELAY_OK && !json_is_array(states)) {
        code = remote_say_not_belay(of_server(server)->remote, err);
    }
    for (size_t i = 0; code == BELAY_OK && i < json_array_size(states); i++) {
        const json_t *state = json_array_get(states, i);
        struct belay_state_name name = { json_string_value(json_object_get(state, "stack")),
                                         json_string_value(json_object_get(state, "environment")) };

        if (name.stack == NULL || name.environment == NULL) {
            code = remote_say_not_belay(of_server(server)->remote, err);
            break;
        }
        if (!fn(context, &name, (uint64_t)json_integer_value(json_object_get(state, "size")),
                json_read_time(state, "modified"))) {
            break;
        }
    }
    json_decref(answer);
    return code;
}

/* ---- writing ---- */

static enum belay_code server_begin(struct states_server *server, const struct belay_state_name *name,
                                    const char *lock_id, struct belay_blob *out_blob, struct belay_error *err)
{
    struct states_call call = STATES_CALL("POST");

    add_state_path(&call, name, "/stamp");
    uri_add_parameter(&call.path, "lock_id", lock_id);
    return call_blob(of_server(server), &call, out_blob, err);
}

static void add_deployment_query(struct states_call *call, const struct belay_deployment *said,
                                 const struct belay_deployment *detected)
{
    char ms[24];

    if (said != NULL) {
        uri_add_parameter(&call->path, "deployment_id", said->deployment_id);
        uri_add_parameter(&call->path, "triggered_by", said->triggered_by);
        uri_add_parameter(&call->path, "git_commit", said->git_commit);
        uri_add_parameter(&call->path, "git_branch", said->git_branch);
        uri_add_parameter(&call->path, "version", said->version);
        uri_add_parameter(&call->path, "status", said->status);
        uri_add_parameter(&call->path, "user",
                          said->user != NULL ? said->user
                          : detected == NULL ? NULL
                                             : detected->user);
        if (said->duration_ms >= 0) {
            (void)snprintf(ms, sizeof ms, "%" PRId64, said->duration_ms);
            uri_add_parameter(&call->path, "duration_ms", ms);
        }
    }
    if (said != NULL && detected != NULL) {
        uri_add_parameter(&call->path, "detected_deployment_id", detected->deployment_id);
        uri_add_parameter(&call->path, "detected_triggered_by", detected->triggered_by);
        uri_add_parameter(&call->path, "detected_git_commit", detected->git_commit);
        uri_add_parameter(&call->path, "detected_git_branch", detected->git_branch);
    }
}

/* The version from which the document was made: the loaded content, or the serial in the document. */
static void add_condition(struct states_call *call, const struct states_put *put)
{
    const struct belay_state_write *write = put->write;

    if (write->loaded != NULL) {
        call->if_match = write->loaded->text;
        uri_add_parameter(&call->path, "own", write->exact ? NULL : "true");
    } else if (write->exact) {
        call->if_none_match = "*";
    } else if (put->rest[0] == '\0') {
        call->if_match = "*";
    }
}

static enum belay_code take_saved(struct remote_states *states, const json_t *answer,
                                  struct states_saved *out, struct belay_error *err)
{
    const char *snapshot = json_string_value(json_object_get(answer, "snapshot"));
    const char *etag = json_string_value(json_object_get(answer, "etag"));

    if (etag == NULL || strlen(etag) > BELAY_BLOB_TAG_MAX) {
        return remote_say_not_belay(states->remote, err);
    }
    *out = (struct states_saved){ .snapshot = snapshot == NULL ? NULL : strdup(snapshot) };
    (void)snprintf(out->tag.text, sizeof out->tag.text, "%s", etag);
    return BELAY_OK;
}

static enum belay_code server_put(struct states_server *server, const struct belay_state_name *name,
                                  const struct states_put *put, struct states_saved *out,
                                  struct belay_error *err)
{
    struct remote_states *states = of_server(server);
    bool is_save = put->rest[0] == '\0';
    struct states_call call = STATES_CALL(is_save ? "PUT" : "POST");
    json_t *version = is_save || put->snapshot == NULL ? NULL : json_pack("{s:s}", "version", put->snapshot);
    char *body = version == NULL ? NULL : json_dumps(version, JSON_COMPACT);
    json_t *answer = NULL;
    enum belay_code code;

    add_state_path(&call, name, put->rest);
    uri_add_parameter(&call.path, "lock_id", put->write->lock == NULL ? NULL : put->write->lock->lock_id);
    uri_add_parameter(&call.path, "keep_locked", put->write->keep_locked ? "true" : NULL);
    uri_add_parameter(&call.path, "unchanged", is_save && put->text == NULL ? "true" : NULL);
    add_deployment_query(&call, put->write->deployment, put->write->detected);
    add_condition(&call, put);
    call.body = is_save ? put->text : body;
    call.len = is_save ? (put->text == NULL ? 0 : put->len) : body == NULL ? 0 : strlen(body);
    code = call_json(states, &call, &answer, err);
    if (code == BELAY_OK) {
        code = take_saved(states, answer, out, err);
    }
    json_decref(version);
    json_decref(answer);
    free(body);
    return code;
}

static enum belay_code server_backup(struct states_server *server, const struct belay_state_name *name,
                                     char **out_snapshot, struct belay_error *err)
{
    struct remote_states *states = of_server(server);
    struct states_call call = STATES_CALL("POST");
    json_t *answer = NULL;
    const char *snapshot;
    enum belay_code code;

    add_state_path(&call, name, "/backup");
    code = call_json(states, &call, &answer, err);
    snapshot = json_string_value(json_object_get(answer, "snapshot"));
    if (code == BELAY_OK && snapshot == NULL) {
        code = remote_say_not_belay(states->remote, err);
    }
    if (code == BELAY_OK && snapshot != NULL) {
        *out_snapshot = strdup(snapshot);
        code = *out_snapshot == NULL ? error_no_memory(err) : BELAY_OK;
    }
    json_decref(answer);
    return code;
}

static const struct states_server_ops server_ops = { server_begin, server_put, server_backup, server_list };

enum belay_code remote_states_open(const char *url, const struct remote_options *options,
                                   struct belay_blob_store **out_store, struct states_server **out_server,
                                   char **out_url, struct belay_error *err)
{
    struct remote_states *states = calloc(1, sizeof *states);
    struct backend *remote = NULL;
    enum belay_code code =
        states == NULL ? error_no_memory(err) : remote_open(url, options, &remote, out_url, err);

    if (code != BELAY_OK) {
        free(states);
        return code;
    }
    states->blob.ops = &blob_ops;
    states->server.ops = &server_ops;
    states->remote = (struct remote *)remote;
    *out_store = &states->blob;
    *out_server = &states->server;
    return BELAY_OK;
}
