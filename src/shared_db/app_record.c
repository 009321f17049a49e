/*
 * The record of an application: it is stopped, or its stop was requested. A record
 * makes an application DOWN only while nothing contradicts it:
 *
 *     seen UP, started, registered with other URLs      the record is cleared
 *     older than controller.stopped_record_max_age      ignored
 *     a connection was accepted, or anything answered   ignored
 *     the gateway itself failed                         ignored
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "client/items.h"
#include "shared_db/shared_db_internal.h"

/* Clocks differ between machines; a record from further in the future has no known age. */
enum { AHEAD_MAX_MS = 5 * 60 * 1000 };

#define SEEN_UP "belay (seen UP)"

void app_status_set_reason(struct belay_app_status *status, const char *reason)
{
    free(status->reason);
    status->reason = strdup(reason); /* may be NULL: only the text is lost */
}

/* ---- judging ---- */

static bool is_young(const struct shared_db_settings *settings, const struct belay_app *app)
{
    int64_t age_ms = clock_unix_ms() - app->since_unix_ms;

    return app->since_unix_ms > 0 && age_ms >= -(int64_t)AHEAD_MAX_MS &&
           age_ms <= settings->record_max_age_ms;
}

void app_record_apply(const struct shared_db_settings *settings, const struct belay_app *app,
                      enum app_silence silence, struct belay_app_status *status)
{
    bool is_stopped = app->state == BELAY_APP_STOPPED;
    char text[900], at[CLOCK_TEXT_SIZE];

    if (status->status != BELAY_HEALTH_UNKNOWN || app->state == BELAY_APP_RUNNING ||
        silence == SILENCE_NONE || (!is_stopped && silence != SILENCE_UNREACHED)) {
        return;
    }
    (void)clock_format_utc(at, app->since_unix_ms, false);
    if (!is_young(settings, app)) {
        (void)snprintf(text, sizeof text, "%.600s; the record of %s that it is stopped is too old",
                       status->reason == NULL ? "no answer" : status->reason,
                       app->since_unix_ms > 0 ? at : "an unknown time");
        app_status_set_reason(status, text);
        return;
    }
    (void)snprintf(text, sizeof text, "%s, and %s at %s by %.128s",
                   silence == SILENCE_UNREACHED ? "cannot be reached" : "does not answer",
                   is_stopped ? "was recorded as stopped" : "its stop was requested", at,
                   app->by == NULL ? "?" : app->by);
    status->status = BELAY_HEALTH_DOWN;
    app_status_set_reason(status, text);
}

/* ---- recording ---- */

/* Else there is a later record. */
static bool is_same_record(const struct belay_app *app, const void *context)
{
    const struct belay_app *seen = context;

    return app->state == seen->state && app->since_unix_ms == seen->since_unix_ms;
}

void app_record_clear(struct belay_client *client, const struct belay_app *seen)
{
    const struct app_mark mark = { .name = seen->name,
                                   .state = BELAY_APP_RUNNING,
                                   .by = SEEN_UP,
                                   .applies = is_same_record,
                                   .context = seen };

    if (seen->state != BELAY_APP_RUNNING) {
        (void)app_mark(client, &mark, NULL, NULL);
    }
}

enum belay_code app_record_stop_requested(struct belay_client *client, const char *name, const char *by,
                                          int64_t *out_since_unix_ms, struct belay_error *err)
{
    struct belay_app *app = NULL;
    enum belay_code code = belay_app_set_state(client, name, BELAY_APP_STOP_REQUESTED, by, &app, err);

    if (code == BELAY_OK) {
        *out_since_unix_ms = app->since_unix_ms;
    }
    belay_app_free(app);
    return code;
}

/* An application that is seen UP while it shuts down keeps its request; a start cancels it. */
static bool is_request_open(const struct belay_app *app, const void *requested_unix_ms)
{
    return app->state == BELAY_APP_STOP_REQUESTED
               ? app->since_unix_ms == *(const int64_t *)requested_unix_ms
               : app->state == BELAY_APP_RUNNING && app->by != NULL && text_has_prefix(app->by, SEEN_UP);
}

enum belay_code app_record_renew_request(struct belay_client *client, const char *name, const char *by,
                                         int64_t *requested_unix_ms, struct belay_error *err)
{
    const struct app_mark mark = { .name = name,
                                   .state = BELAY_APP_STOP_REQUESTED,
                                   .by = by != NULL ? by : client_user_name(client),
                                   .applies = is_request_open,
                                   .context = requested_unix_ms };
    struct belay_app *app = NULL;
    enum belay_code code = app_mark(client, &mark, &app, err);

    if (code == BELAY_OK && app == NULL) {
        code = error_set(err, BELAY_REFUSED, "another state was recorded since");
    } else if (code == BELAY_OK) {
        *requested_unix_ms = app->since_unix_ms;
    }
    belay_app_free(app);
    return code;
}

/* Else the application was started, or seen UP. */
static bool is_last_request(const struct belay_app *app, const void *requested_unix_ms)
{
    return app->state == BELAY_APP_STOP_REQUESTED &&
           app->since_unix_ms == *(const int64_t *)requested_unix_ms;
}

enum belay_code app_record_stopped(struct belay_client *client, const char *name, int64_t requested_unix_ms,
                                   struct belay_error *err)
{
    const struct app_mark mark = {
        .name = name, .state = BELAY_APP_STOPPED, .applies = is_last_request, .context = &requested_unix_ms
    };

    return app_mark(client, &mark, NULL, err);
}
