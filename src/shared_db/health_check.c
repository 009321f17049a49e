/*
 * The health check of applications (S3.4).
 *
 *     answer                             document    cautious    (the rule)
 *     200                                UP          UP
 *     401, 403, 429, 5xx but 502 to 504  DOWN        UNKNOWN
 *     any other                          DOWN        DOWN
 *     no answer                          UNKNOWN     UNKNOWN
 *
 * An application is UP if one URL is UP, else UNKNOWN if one is UNKNOWN, else DOWN.
 * One that is recorded as stopped (app_record.c) and accepts no connection is DOWN.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "client/items.h"
#include "http_client/probe.h"
#include "network/loader.h"
#include "shared_db/shared_db_internal.h"

const char *belay_health_name(enum belay_health health)
{
    return health == BELAY_HEALTH_UP ? "UP" : health == BELAY_HEALTH_DOWN ? "DOWN" : "UNKNOWN";
}

void belay_app_status_free(struct belay_app_status *status)
{
    if (status == NULL) {
        return;
    }
    for (size_t i = 0; i < status->n_urls; i++) {
        free(status->urls[i].url);
        free(status->urls[i].reason);
    }
    free(status->urls);
    free(status->app);
    free(status->reason);
    free(status);
}

/* ---- judging ---- */

static enum belay_health health_of_status(int status, bool cautious)
{
    if (status == 0) {
        return BELAY_HEALTH_UNKNOWN;
    }
    if (status == 200) {
        return BELAY_HEALTH_UP;
    }
    if (cautious && (status == 401 || status == 403 || status == 429 ||
                     (status >= 500 && status <= 599 && (status < 502 || status > 504)))) {
        return BELAY_HEALTH_UNKNOWN;
    }
    return BELAY_HEALTH_DOWN;
}

static struct belay_app_status *status_new(const char *name, size_t n_urls)
{
    struct belay_app_status *status = calloc(1, sizeof *status);

    if (status == NULL) {
        return NULL;
    }
    status->app = strdup(name);
    status->urls = calloc(n_urls + 1, sizeof *status->urls);
    status->at_unix_ms = clock_unix_ms();
    status->connected = true; /* false only after no URL could be reached */
    if (status->app == NULL || status->urls == NULL) {
        belay_app_status_free(status);
        return NULL;
    }
    return status;
}

static void judge_urls(const struct shared_db_settings *settings, struct belay_app_status *status,
                       const struct belay_app *app)
{
    const struct belay_url_status *decides = NULL;
    char text[1400];

    status->connected = status->n_urls == 0;
    for (size_t i = 0; i < status->n_urls; i++) {
        const struct belay_url_status *one = &status->urls[i];

        status->connected = status->connected || one->connected || one->http_code != 0;
        if (decides == NULL || one->status == BELAY_HEALTH_UP ||
            (decides->status == BELAY_HEALTH_DOWN && one->status == BELAY_HEALTH_UNKNOWN)) {
            decides = decides != NULL && decides->status == BELAY_HEALTH_UP ? decides : one;
        }
    }
    if (decides == NULL) {
        app_status_set_reason(status, "it has no URL to check");
        return;
    }
    status->status = decides->status;
    status->http_code = decides->http_code;
    if (decides->status == BELAY_HEALTH_UNKNOWN) {
        if (decides->http_code != 0) {
            (void)snprintf(text, sizeof text, "%.1024s answered %d", decides->url, decides->http_code);
        } else {
            (void)snprintf(text, sizeof text, "%.1024s: %.200s", decides->url,
                           decides->reason == NULL ? "no answer" : decides->reason);
        }
        app_status_set_reason(status, text);
    }
    app_record_apply(settings, app, status->connected ? SILENCE_NONE : SILENCE_UNREACHED, status);
}

/* ---- probing ---- */

enum { ALLOW_MAX = 64 };

struct health_probes {
    struct net_probe *probes;              /* owned */
    struct address_range allow[ALLOW_MAX]; /* controller.quick_status_allow */
    size_t n_allow;
    char **urls;         /* owned; of the gateway; NULL: the applications' URLs */
    char *authorization; /* owned; for the gateway; NULL: none */
    size_t n;
};

static void health_probes_release(struct health_probes *batch)
{
    for (size_t i = 0; i < batch->n; i++) {
        free(batch->probes[i].body);
        if (batch->urls != NULL) {
            free(batch->urls[i]);
        }
    }
    if (batch->authorization != NULL) {
        explicit_bzero(batch->authorization, strlen(batch->authorization));
    }
    free(batch->authorization);
    free(batch->probes);
    free(batch->urls);
}

static enum belay_code load_allowed_ranges(const struct belay_config *config, struct health_probes *batch,
                                           struct belay_error *err)
{
    for (;; batch->n_allow++) {
        char name[64];
        const char *text;

        (void)snprintf(name, sizeof name, "controller.quick_status_allow.%zu", batch->n_allow);
        text = belay_config_get(config, name);
        if (text == NULL) {
            return BELAY_OK;
        }
        if (batch->n_allow == ALLOW_MAX) {
            return error_set(err, BELAY_CONFIG, "controller.quick_status_allow: more than %d ranges",
                             ALLOW_MAX);
        }
        if (!address_range_parse(text, &batch->allow[batch->n_allow])) {
            return error_set(err, BELAY_CONFIG,
                             "%s: '%.60s' is not a range of addresses, such as 10.1.0.0/16 or ::1", name,
                             text);
        }
    }
}

static bool name_probes(const struct shared_db_settings *settings, struct belay_app *const *apps, size_t n,
                        struct health_probes *batch)
{
    size_t total = 0;

    for (size_t i = 0; i < n; i++) {
        total += settings->gateway_url != NULL ? 1 : apps[i]->n_urls;
    }
    batch->probes = calloc(total + 1, sizeof *batch->probes);
    batch->urls = settings->gateway_url == NULL ? NULL : calloc(total + 1, sizeof *batch->urls);
    if (batch->probes == NULL || (settings->gateway_url != NULL && batch->urls == NULL)) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; settings->gateway_url == NULL && k < apps[i]->n_urls; k++) {
            batch->probes[batch->n++] = (struct net_probe){ .url = apps[i]->urls[k],
                                                            .public_only = apps[i]->public_only,
                                                            .allow = batch->allow,
                                                            .n_allow = batch->n_allow };
        }
        if (settings->gateway_url != NULL) {
            batch->urls[batch->n] = gateway_make_url(settings->gateway_url, apps[i]->name);
            if (batch->urls[batch->n] == NULL) {
                return false;
            }
            batch->probes[batch->n] = gateway_probe(batch->urls[batch->n], batch->authorization);
            batch->n++;
        }
    }
    return true;
}

static bool take_url_answers(const struct shared_db_settings *settings, const struct belay_app *app,
                             const struct net_probe *probes, struct belay_app_status *status)
{
    for (size_t i = 0; i < app->n_urls; i++) {
        struct belay_url_status *one = &status->urls[status->n_urls++];

        *one = (struct belay_url_status){ .url = strdup(app->urls[i]),
                                          .http_code = probes[i].status,
                                          .took_ms = probes[i].took_ms,
                                          .connected = probes[i].connected,
                                          .status = health_of_status(probes[i].status, settings->cautious),
                                          .reason = probes[i].status != 0 ? NULL : strdup(probes[i].why) };
        if (one->url == NULL) {
            return false;
        }
    }
    judge_urls(settings, status, app);
    return true;
}

static enum belay_code take_all_answers(const struct shared_db_settings *settings,
                                        struct belay_app *const *apps, size_t n,
                                        const struct health_probes *batch,
                                        struct belay_app_status **out_statuses, struct belay_error *err)
{
    size_t at = 0;
    size_t made = 0;
    bool ok = true;

    for (; ok && made < n; made++) {
        struct belay_app_status *status = status_new(apps[made]->name, apps[made]->n_urls);

        out_statuses[made] = status;
        if (status == NULL) {
            ok = false;
        } else if (settings->gateway_url != NULL) {
            gateway_take(settings, apps[made], &batch->probes[at++], status);
        } else {
            ok = take_url_answers(settings, apps[made], &batch->probes[at], status);
            at += apps[made]->n_urls;
        }
    }
    for (size_t i = 0; !ok && i < made; i++) {
        belay_app_status_free(out_statuses[i]);
    }
    return ok ? BELAY_OK : error_no_memory(err);
}

enum belay_code health_check_all(const struct shared_db_settings *settings, struct belay_app *const *apps,
                                 size_t n, struct belay_app_status **out_statuses, struct belay_error *err)
{
    struct health_probes batch = { 0 };
    const struct net_module *net = NULL;
    enum belay_code code = load_allowed_ranges(settings->config, &batch, err);

    if (code == BELAY_OK) {
        code = gateway_authorization(settings, &batch.authorization, err);
    }
    if (code == BELAY_OK && !name_probes(settings, apps, n, &batch)) {
        code = error_no_memory(err);
    }
    if (code == BELAY_OK && batch.n > 0) {
        code = loader_net(&net, err);
    }
    if (code == BELAY_OK && batch.n > 0) {
        code = net->probe_all(batch.probes, batch.n, settings->quick_timeout_ms, settings->ca_file, err);
    }
    if (code == BELAY_OK) {
        code = take_all_answers(settings, apps, n, &batch, out_statuses, err);
    }
    health_probes_release(&batch);
    return code;
}

enum belay_code belay_app_check_health(struct belay_client *client, const char *name,
                                       struct belay_app_status **out_status, struct belay_error *err)
{
    struct shared_db_settings settings = shared_db_settings(client_config(client));
    struct belay_app *app = NULL;
    enum belay_code code = belay_app_get(client, name, &app, err);

    settings.gateway_url = NULL; /* the caller is a gateway's client: check directly */
    if (code == BELAY_OK) {
        code = health_check_all(&settings, &app, 1, out_status, err);
        if (code == BELAY_OK && (*out_status)->status == BELAY_HEALTH_UP) {
            app_record_clear(client, app);
        }
    } else if (code == BELAY_NOT_FOUND) {
        struct belay_app_status *status = status_new(name, 0);

        code = status == NULL ? error_no_memory(err) : BELAY_OK;
        if (status != NULL) {
            app_status_set_reason(status, "it is not in the registry");
            *out_status = status;
        }
    }
    belay_app_free(app);
    return code;
}
