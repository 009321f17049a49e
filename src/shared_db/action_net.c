/* An HTTP request or an EC2 call as an action. The identifier replaces {database}. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/text.h"
#include "belay/store.h"
#include "http_client/http.h"
#include "http_client/probe.h"
#include "http_client/uri.h"
#include "network/loader.h"
#include "shared_db/shared_db_internal.h"

enum { FILLED_MAX = 64 * 1024 };

/* Percent-encoded in a URL; identifiers and kinds never need escaping in JSON. */
static void add_filled(struct buf *out, const char *value, bool in_url)
{
    if (in_url) {
        uri_encode(out, value, strlen(value), false);
    } else {
        buf_adds(out, value);
    }
}

static char *fill_template(const char *template, const struct action_context *context, bool in_url)
{
    struct buf out = BUF_INIT(FILLED_MAX);

    for (const char *at = template; *at != '\0';) {
        if (text_has_prefix(at, "{database}")) {
            add_filled(&out, context->database, in_url);
            at += strlen("{database}");
        } else if (text_has_prefix(at, "{kind}")) {
            add_filled(&out, context->kind, in_url);
            at += strlen("{kind}");
        } else {
            buf_add(&out, at++, 1);
        }
    }
    return buf_take(&out);
}

static bool action_should_stop(void *opaque)
{
    const struct action_context *context = opaque;

    return atomic_load(context->lost) || (context->cancel != NULL && belay_cancel_requested(context->cancel));
}

/* A request that was cancelled because the lease was lost ends with BELAY_LOST. */
static enum belay_code ended(const struct action_context *context, enum belay_code code,
                             struct belay_error *err)
{
    return code == BELAY_CANCELLED && atomic_load(context->lost)
               ? error_set(err, BELAY_LOST, "the lease was lost during the request")
               : code;
}

enum belay_code action_run_http(const struct action_step *step, const struct action_context *context,
                                int64_t timeout_ms, struct belay_error *err)
{
    char *url = fill_template(step->url, context, true);
    char *body = step->body == NULL ? NULL : fill_template(step->body, context, false);
    const struct http_client_options options = { .ca_bundle = context->settings->ca_file };
    const struct http_client_header type = { "content-type", step->content_type != NULL
                                                                 ? step->content_type
                                                                 : "application/json" };
    const struct http_client_request request = { .method = step->method != NULL ? step->method
                                                           : body != NULL       ? "POST"
                                                                                : "GET",
                                                 .url = url,
                                                 .headers = &type,
                                                 .n_headers = body == NULL ? 0 : 1,
                                                 .body = body,
                                                 .body_len = strlen(text_or_empty(body)),
                                                 .timeout_ms = timeout_ms,
                                                 .should_stop = action_should_stop,
                                                 .context = (void *)context };
    const struct net_module *net = NULL;
    enum belay_code code =
        url == NULL || (step->body != NULL && body == NULL) ? error_no_memory(err) : loader_net(&net, err);
    int status = 0;

    if (code == BELAY_OK) {
        code = ended(context, net->send_once(&options, &request, &status, err), err);
    }
    if (code == BELAY_OK && (status < 200 || status > 299)) {
        code = error_set(err, BELAY_UNREACHABLE, "%s %.200s answered %d", request.method, url, status);
    }
    free(url);
    free(body);
    return code;
}

static enum belay_code call_ec2(const char *operation, const struct action_context *context,
                                int64_t timeout_ms, char state[EC2_STATE_SIZE], struct belay_error *err)
{
    const struct net_module *net = NULL;
    enum belay_code code;

    if (!db_is_instance(context->database)) {
        return error_set(
            err, BELAY_CONFIG,
            "'%.200s' is not an EC2 instance id: register the database as KIND=i-...@HOST:PORT, or "
            "configure another action for '%.64s'",
            context->database, context->kind);
    }
    code = loader_net(&net, err);
    return code == BELAY_OK ? net->ec2(operation, context->database, timeout_ms, state, err) : code;
}

enum belay_code action_run_ec2(const struct action_step *step, const struct action_context *context,
                               int64_t timeout_ms, struct belay_error *err)
{
    char state[EC2_STATE_SIZE];

    return call_ec2(step->ec2_start ? "StartInstances" : "StopInstances", context, timeout_ms, state, err);
}

enum belay_code action_check_ec2(const struct action_step *step, const struct action_context *context,
                                 int64_t timeout_ms, bool *out_is_there, struct belay_error *err)
{
    char state[EC2_STATE_SIZE] = "";
    enum belay_code code = action_should_stop((void *)context)
                               ? BELAY_CANCELLED
                               : call_ec2("DescribeInstances", context, timeout_ms, state, err);

    *out_is_there = code == BELAY_OK && strcmp(state, step->ec2_start ? "running" : "stopped") == 0;
    return ended(context, code, err);
}
