/* Opening a server, or a list of servers ("fronts"), and reading its credential; closing it. */
#include "remote/remote.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/error.h"
#include "base/secret.h"
#include "base/store_url.h"
#include "base/text.h"
#include "http_client/uri.h"
#include "remote/remote_internal.h"

/* ---- the credential ---- */

static enum belay_code load_token(struct remote *remote, const char *path, struct belay_error *err)
{
    enum belay_code code = secret_read_bearer(path, &remote->authorization, err);
    const char *source = secret_token_source(path);

    if (code != BELAY_OK) {
        return source == path ? error_wrap(err, "BELAY_AUTH_FILE") : code;
    }
    remote->auth_file = strdup(source);
    return remote->auth_file == NULL ? error_no_memory(err) : BELAY_OK;
}

/* ---- opening ---- */

static void remote_close(struct backend *base)
{
    struct remote *remote = (struct remote *)base;

    for (size_t i = 0; i < remote->n_fronts; i++) {
        http_close(remote->fronts[i].http);
        free(remote->fronts[i].url);
    }
    free(remote->authorization);
    free(remote->auth_file);
    free(remote);
}

static const struct backend_ops ops = {
    .close = remote_close,
    .run = remote_run,
    .get = remote_get,
    .check = remote_check,
    .list = remote_list,
    .events = remote_events,
    .stats = remote_stats,
    .past_holds = remote_past_holds,
    .watch = remote_watch,
    .note = remote_note,
    .check_free = remote_check_free,
    .await_loss = remote_await_loss,
    .item_get = remote_item_get,
    .item_put = remote_item_put,
    .item_list = remote_item_list,
    .decide = remote_decide,
    .freezes = remote_freezes,
    .backup = remote_backup,
    .identity = remote_identity,
    .credential = remote_credential,
};

/* Parse the URL of a front. Sets *in_the_clear if requests to it are not encrypted. */
static enum belay_code front_set_url(struct remote_front *front, const char *url, bool *in_the_clear,
                                     struct belay_error *err)
{
    static const struct store_url_kind kind = { .scheme = "a server's URL", .place_is_a_url = true };
    struct buf text = BUF_INIT(REMOTE_URL_MAX);
    char shown[STORE_URL_SHOWN];
    struct uri uri;
    char *place = NULL;
    enum belay_code code;

    code = store_url_parse(&kind, url, NULL, &place, NULL, err);
    if (code != BELAY_OK) {
        return code;
    }
    if (!uri_parse(place, &uri)) {
        free(place);
        return error_set(err, BELAY_INVALID,
                         "'%.200s' is not a server's URL: write http://HOST:PORT or https://HOST:PORT; a "
                         "token belongs in BELAY_AUTH_TOKEN or in the file that BELAY_AUTH_FILE names",
                         text_has_prefix(url, "http") && strchr(url, '@') != NULL
                             ? "(with a password)"
                             : store_url_show(url, shown));
    }
    free(place);
    buf_addf(&text, "%s://%s%s", uri.tls ? "https" : "http", uri.authority, uri.path);
    front->direct = address_is_this_machine(uri.host);
    *in_the_clear = *in_the_clear || (!uri.tls && !front->direct);
    uri_release(&uri);
    front->url = buf_take(&text);
    return front->url == NULL ? error_no_memory(err) : BELAY_OK;
}

/* The variables that libcurl reads: http_proxy in lower case only, all_proxy in both. */
static bool has_proxy(void)
{
    static const char *const names[] = { "http_proxy", "all_proxy", "ALL_PROXY" };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);

        if (value != NULL && *value != '\0') {
            return true;
        }
    }
    return false;
}

static enum belay_code front_open(struct remote_front *front, const struct remote_options *options,
                                  struct belay_error *err)
{
    struct http_client_options http_options = { .ca_bundle = options->ca_file };

    if (text_has_prefix(front->url, "https:") || (!front->direct && has_proxy())) {
        return options->open_curl(&http_options, &front->http, err);
    }
    return http_plain_open(front->url, options->socket, &http_options, &front->http, err);
}

static enum belay_code add_front(struct remote *remote, const char *url, const struct remote_options *options,
                                 bool *in_the_clear, struct belay_error *err)
{
    struct remote_front *front = &remote->fronts[remote->n_fronts];
    char shown[STORE_URL_SHOWN];
    enum belay_code code;

    if (remote->n_fronts == REMOTE_FRONTS_MAX) {
        return error_set(err, BELAY_INVALID, "a list of servers has at most %d URLs: '%s' is one more",
                         (int)REMOTE_FRONTS_MAX, store_url_show(url, shown));
    }
    remote->n_fronts++;
    code = front_set_url(front, url, in_the_clear, err);
    for (size_t i = 0; code == BELAY_OK && i + 1 < remote->n_fronts; i++) {
        if (strcmp(remote->fronts[i].url, front->url) == 0) {
            code = error_set(err, BELAY_INVALID, "the list of servers names '%.200s' twice", url);
        }
    }
    return code == BELAY_OK ? front_open(front, options, err) : code;
}

/* The length of the first URL of a list, with parameters that follow it, which front_set_url() refuses. */
static size_t first_length(const char *urls)
{
    size_t len = strcspn(urls, ",");

    while (urls[len] == ',') {
        const char *next = urls + len + 1;
        size_t n = strcspn(next, ",");

        if (memchr(next, '=', n) == NULL || text_has_prefix(next, "http://") ||
            text_has_prefix(next, "https://")) {
            break;
        }
        len += 1 + n;
    }
    return len;
}

/* Add the fronts of "http://a:1,http://b:2". *out_shown is the list in full; the caller frees it. */
static enum belay_code add_fronts(struct remote *remote, const char *urls,
                                  const struct remote_options *options, bool *out_in_the_clear,
                                  char **out_shown, struct belay_error *err)
{
    struct buf shown = BUF_INIT(REMOTE_FRONTS_MAX * REMOTE_URL_MAX);
    bool has_more = true;
    enum belay_code code = BELAY_OK;

    while (code == BELAY_OK && has_more) {
        size_t len = first_length(urls);
        char *url = strndup(urls, len);

        has_more = urls[len] == ',';
        urls += len + (has_more ? 1 : 0);
        code =
            url == NULL ? error_no_memory(err)
            : len == 0
                ? error_set(err, BELAY_INVALID,
                            "the list of servers has an empty URL: write http://HOST:PORT,http://HOST:PORT")
                : add_front(remote, url, options, out_in_the_clear, err);
        if (code == BELAY_OK) {
            buf_addf(&shown, "%s%s", shown.len == 0 ? "" : ",", remote->fronts[remote->n_fronts - 1].url);
        }
        free(url);
    }
    if (code == BELAY_OK && (*out_shown = buf_take(&shown)) == NULL) {
        code = error_no_memory(err);
    }
    buf_release(&shown);
    return code;
}

enum belay_code remote_open(const char *url, const struct remote_options *options,
                            struct backend **out_remote, char **out_url, struct belay_error *err)
{
    struct remote *remote = calloc(1, sizeof *remote);
    bool in_the_clear = false;
    char *shown = NULL;
    enum belay_code code;

    if (remote == NULL) {
        return error_no_memory(err);
    }
    remote->base.ops = &ops;
    remote->is_local = options->socket != NULL;
    remote->moved = options->moved;
    remote->owner = options->owner;
    remote->traceparent = options->traceparent;
    remote->on_event = options->on_event;
    remote->on_warning = options->on_warning;
    remote->context = options->context;
    code = add_fronts(remote, url, options, &in_the_clear, &shown, err);
    if (code == BELAY_OK && options->socket == NULL && secret_token_source(options->auth_file) != NULL) {
        code = load_token(remote, options->auth_file, err);
    }
    if (code != BELAY_OK) {
        free(shown);
        remote_close(&remote->base);
        return code;
    }
    if (in_the_clear && remote->authorization != NULL && options->on_warning != NULL) {
        options->on_warning(options->context, "the token goes over the network as plain text: use https://");
    }
    *out_remote = &remote->base;
    *out_url = shown;
    return BELAY_OK;
}

void remote_limit(struct backend *remote, int tries, int64_t answer_ms)
{
    struct remote *self = (struct remote *)remote;

    assert(tries > 0 && answer_ms > 0);
    self->tries = tries;
    self->answer_ms = answer_ms;
}
