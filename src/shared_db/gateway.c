/*
 * The status of an application from a gateway (`controller.api_gateway_url`).
 *
 *     200 and {"app": its name, "status": UP, DOWN or UNKNOWN}   that status
 *     any other answer, or none                                  UNKNOWN
 *
 * Only the first is an answer about the application. A gateway that fails, or that
 * rejects our token, says nothing about it: a record of its stop does not count then.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/secret.h"
#include "base/text.h"
#include "http_client/probe.h"
#include "http_client/uri.h"
#include "shared_db/shared_db_internal.h"

enum { GATEWAY_URL_MAX = 8192 };

char *gateway_make_url(const char *base, const char *name)
{
    struct buf url = BUF_INIT(GATEWAY_URL_MAX);
    size_t n = strlen(base);

    while (n > 0 && base[n - 1] == '/') {
        n--;
    }
    buf_add(&url, base, n);
    buf_adds(&url, "/status/quick?app=");
    uri_encode(&url, name, strlen(name), false);
    return buf_take(&url);
}

/* Whether the connection is encrypted or stays on this machine. */
static bool is_private(const char *url, bool *out_is_local)
{
    struct uri uri;
    bool is_tls;

    if (!uri_parse(url, &uri)) { /* such as a name in another alphabet: it is judged by libcurl */
        *out_is_local = false;
        return text_has_prefix(url, "https://") && strchr(url, '@') == NULL;
    }
    is_tls = uri.tls;
    *out_is_local = address_is_this_machine(uri.host);
    uri_release(&uri);
    return is_tls || *out_is_local;
}

enum belay_code gateway_authorization(const struct shared_db_settings *settings, char **out_header,
                                      struct belay_error *err)
{
    enum belay_code code;
    bool is_local;

    if (settings->gateway_url == NULL || settings->auth_file == NULL ||
        !is_private(settings->gateway_url, &is_local)) {
        *out_header = NULL;
        return BELAY_OK;
    }
    code = secret_read_bearer(settings->auth_file, out_header, err);
    return code == BELAY_OK ? code : error_wrap(err, "cannot read the token for the gateway");
}

struct net_probe gateway_probe(const char *url, const char *authorization)
{
    bool is_local = false;

    (void)is_private(url, &is_local);
    /* No proxy for this machine: it would see the token of a plain request. */
    return (
        struct net_probe){ .url = url, .get = true, .use_proxy = !is_local, .authorization = authorization };
}

static void say_failure(const struct shared_db_settings *settings, const struct net_probe *probe,
                        struct belay_app_status *status)
{
    bool is_refused = probe->status == 401 || probe->status == 403;
    char text[600];

    if (probe->status == 0) {
        (void)snprintf(text, sizeof text, "%.150s: %.200s", probe->url, probe->why);
    } else {
        (void)snprintf(text, sizeof text, "%.150s answered %d without a status%s", probe->url, probe->status,
                       !is_refused ? ""
                       : probe->authorization != NULL
                           ? ": the token in BELAY_AUTH_TOKEN or BELAY_AUTH_FILE is not accepted"
                       : settings->auth_file == NULL
                           ? ": set BELAY_AUTH_TOKEN to a token, or BELAY_AUTH_FILE to a file with one"
                           : ": a token is sent only over https:// and to this machine");
    }
    app_status_set_reason(status, text);
}

void gateway_take(const struct shared_db_settings *settings, const struct belay_app *app,
                  const struct net_probe *probe, struct belay_app_status *status)
{
    json_t *root = probe->status == 200 && probe->body != NULL ? json_loads(probe->body, 0, NULL) : NULL;
    const char *word = json_string_value(json_object_get(root, "status"));
    const char *reason = json_string_value(json_object_get(root, "reason"));
    const char *named = json_string_value(json_object_get(root, "app"));
    const json_t *connected = json_object_get(root, "connected");
    bool is_about_it = word != NULL && named != NULL && strcmp(named, app->name) == 0;
    char text[400];

    if (!is_about_it) {
        say_failure(settings, probe, status);
        json_decref(root);
        return;
    }
    status->http_code = (int)json_integer_value(json_object_get(root, "http_code"));
    status->status = strcmp(word, "UP") == 0     ? BELAY_HEALTH_UP
                     : strcmp(word, "DOWN") == 0 ? BELAY_HEALTH_DOWN
                                                 : BELAY_HEALTH_UNKNOWN;
    status->connected = !json_is_false(connected);
    if (reason != NULL) {
        (void)snprintf(text, sizeof text, "%.390s", reason);
        app_status_set_reason(status, text);
    }
    if (strcmp(word, "UNKNOWN") == 0 && status->http_code == 0) {
        app_record_apply(settings, app,
                         json_is_false(connected) ? SILENCE_UNREACHED
                         : connected == NULL      ? SILENCE_UNREPORTED
                                                  : SILENCE_NONE,
                         status);
    }
    json_decref(root);
}
