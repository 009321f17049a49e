/* An HTTP request or a call to EC2 as an action. The identifier goes where {database} stands. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/text.h"
#include "belay/store.h"
#include "http_client/probe.h"
#include "network/loader.h"
#include "shared_db/shared_db_internal.h"

enum { FILLED_MAX = 64 * 1024 };

/* Percent-encoded in a URL; identifiers and kinds have nothing in them that JSON would have to escape. */
static void add_value(struct buf *out, const char *value, bool in_url)
{
    for (const char *at = value; *at != '\0'; at++) {
        if (in_url && !isalnum((unsigned char)*at) && strchr("-._~", *at) == NULL) {
            buf_addf(out, "%%%02X", (unsigned char)*at);
        } else {
            buf_add(out, at, 1);
        }
    }
}

static char *fill(const char *template, const struct guard_place *place, bool in_url)
{
    struct buf out = BUF_INIT(FILLED_MAX);
    char *text;

    for (const char *at = template; *at != '\0';) {
        if (text_has_prefix(at, "{database}")) {
            add_value(&out, place->database, in_url);
            at += strlen("{database}");
        } else if (text_has_prefix(at, "{kind}")) {
            add_value(&out, place->kind, in_url);
            at += strlen("{kind}");
        } else {
            buf_add(&out, at++, 1);
        }
    }
    text = buf_take(&out);
    buf_release(&out);
    return text;
}

static bool should_stop(void *context)
{
    const struct guard_place *place = context;

    return atomic_load(place->lost) || (place->cancel != NULL && belay_cancel_requested(place->cancel));
}

/* What ended it, if it was ended. */
static enum belay_code ended(const struct guard_place *place, enum belay_code code, struct belay_error *err)
{
    return code == BELAY_CANCELLED && atomic_load(place->lost)
               ? error_set(err, BELAY_LOST, "the lease was lost during the request")
               : code;
}

enum belay_code deed_http(const struct guard_deed *deed, const struct guard_place *place, int64_t timeout_ms,
                          struct belay_error *err)
{
    char *url = fill(deed->url, place, true);
    char *body = deed->body == NULL ? NULL : fill(deed->body, place, false);
    struct net_once once = { .method = deed->method != NULL ? deed->method
                                       : body != NULL       ? "POST"
                                                            : "GET",
                             .url = url,
                             .body = body,
                             .content_type = deed->content_type,
                             .ca_file = place->settings->ca_file,
                             .timeout_ms = timeout_ms,
                             .should_stop = should_stop,
                             .context = (void *)place };
    const struct net_module *net = NULL;
    enum belay_code code =
        url == NULL || (deed->body != NULL && body == NULL) ? error_no_memory(err) : loader_net(&net, err);
    int status = 0;

    if (code == BELAY_OK) {
        code = ended(place, net->once(&once, &status, err), err);
    }
    if (code == BELAY_OK && (status < 200 || status > 299)) {
        code = error_set(err, BELAY_UNREACHABLE, "%s %.200s answered %d", once.method, url, status);
    }
    free(url);
    free(body);
    return code;
}

static enum belay_code call_ec2(const char *operation, const struct guard_place *place, int64_t timeout_ms,
                                char state[EC2_STATE_SIZE], struct belay_error *err)
{
    const struct net_module *net = NULL;
    enum belay_code code;

    if (!guard_is_instance(place->database)) {
        return error_set(err, BELAY_CONFIG,
                         "'%.200s' is no EC2 instance id: register the database as KIND=i-...@HOST:PORT, or "
                         "configure another action for '%.64s'",
                         place->database, place->kind);
    }
    code = loader_net(&net, err);
    return code == BELAY_OK ? net->ec2(operation, place->database, timeout_ms, state, err) : code;
}

enum belay_code deed_ec2(const struct guard_deed *deed, const struct guard_place *place, int64_t timeout_ms,
                         struct belay_error *err)
{
    char state[EC2_STATE_SIZE];

    return call_ec2(deed->ec2_start ? "StartInstances" : "StopInstances", place, timeout_ms, state, err);
}

enum belay_code deed_ec2_look(const struct guard_deed *deed, const struct guard_place *place,
                              int64_t timeout_ms, bool *out_is_there, struct belay_error *err)
{
    char state[EC2_STATE_SIZE] = "";
    enum belay_code code = should_stop((void *)place)
                               ? BELAY_CANCELLED
                               : call_ec2("DescribeInstances", place, timeout_ms, state, err);

    *out_is_there = code == BELAY_OK && strcmp(state, deed->ec2_start ? "running" : "stopped") == 0;
    return ended(place, code, err);
}
