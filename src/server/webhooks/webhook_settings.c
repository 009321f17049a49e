/* server.webhooks of the configuration, and the check of URLs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/secret.h"
#include "base/text.h"
#include "http_parse/url.h"
#include "server/webhooks/webhooks.h"

static enum belay_code load_allowed_ranges(const struct belay_config *config, struct webhook_settings *out,
                                           struct belay_error *err)
{
    for (;; out->n_allow++) {
        char name[64];
        const char *text;

        (void)snprintf(name, sizeof name, "server.webhooks.allow.%zu", out->n_allow);
        text = belay_config_get(config, name);
        if (text == NULL) {
            return BELAY_OK;
        }
        if (out->n_allow == WEBHOOK_ALLOW_MAX) {
            return error_set(err, BELAY_CONFIG, "server.webhooks.allow: more than %d ranges",
                             WEBHOOK_ALLOW_MAX);
        }
        if (!address_range_parse(text, &out->allow[out->n_allow])) {
            return error_set(err, BELAY_CONFIG,
                             "%s: '%.60s' is not a range of addresses, such as 10.1.0.0/16 or ::1", name,
                             text);
        }
        out->allow_texts[out->n_allow] = text;
    }
}

enum belay_code webhook_settings_load(const struct belay_config *config, struct webhook_settings *out,
                                      struct belay_error *err)
{
    const char *max = belay_config_get(config, "server.webhooks.max");
    const char *secret_file = belay_config_get(config, "server.webhooks.secret_file");
    enum belay_code code;

    memset(out, 0, sizeof *out);
    out->max = max == NULL ? WEBHOOK_DEFAULT_MAX : strtoul(max, NULL, 10);
    out->ca_file = belay_config_get(config, "server.webhooks.ca_file");
    code = load_allowed_ranges(config, out, err);
    if (code == BELAY_OK && secret_file != NULL) {
        code = secret_read(secret_file, out->secret, sizeof out->secret, err);
        if (code != BELAY_OK) {
            return error_wrap(err, "server.webhooks.secret_file");
        }
    }
    return code;
}

/* ---- URLs ---- */

static bool is_localhost(const char *host)
{
    size_t n = strlen(host);

    n -= n > 0 && host[n - 1] == '.'; /* a name may end in a dot */
    return (n == 9 && strncasecmp(host, "localhost", 9) == 0) ||
           (n > 10 && strncasecmp(host + n - 10, ".localhost", 10) == 0);
}

static bool may_call(const struct webhook_settings *settings, const struct address *address)
{
    return address_is_public(address) || address_is_within(address, settings->allow, settings->n_allow);
}

/*
 * A check without I/O. A name is resolved when it is called, and belay_http_post() checks the address then.
 */
static bool may_call_host(const struct webhook_settings *settings, const char *host)
{
    struct address address;
    struct address other;

    if (is_localhost(host)) {
        return address_parse("127.0.0.1", &address) && address_parse("::1", &other) &&
               (may_call(settings, &address) || may_call(settings, &other));
    }
    return !address_parse(host, &address) || may_call(settings, &address);
}

static bool is_plain_url(const char *url)
{
    for (; *url != '\0'; url++) {
        if (*url <= ' ' || *url > '~') {
            return false;
        }
    }
    return true;
}

enum belay_code webhook_check_url(const struct webhook_settings *settings, const char *url,
                                  char out_host[WEBHOOK_HOST_SIZE], struct belay_error *err)
{
    struct url parts;
    size_t len;

    if (strlen(url) > WEBHOOK_URL_MAX || !is_plain_url(url) || !url_split(url, &parts)) {
        return error_set(err, BELAY_INVALID,
                         "webhook.url must be an http:// or https:// URL of at most %d characters, "
                         "percent-encoded",
                         WEBHOOK_URL_MAX);
    }
    if (parts.has_user) {
        return error_set(err, BELAY_INVALID, "webhook.url must have no user and no password in it");
    }
    len = parts.host.len;
    if (len >= WEBHOOK_HOST_SIZE) {
        return error_set(err, BELAY_INVALID, "webhook.url: the name of its host is too long");
    }
    memcpy(out_host, parts.host.at, len);
    out_host[len] = '\0';
    if (!may_call_host(settings, out_host)) {
        return error_set(
            err, BELAY_INVALID,
            "webhook.url: '%.100s' is not a public address; the server's administrator can allow "
            "it (server.webhooks.allow)",
            out_host);
    }
    return BELAY_OK;
}
