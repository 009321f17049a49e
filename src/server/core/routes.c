#include "server/core/routes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/suggest.h"
#include "base/text.h"
#include "server/core/job.h"

enum { SEGMENTS_MAX = 6 };

#define STATE_FAILS 400, 401, 403, 404, 503
#define TF_FAILS 400, 401, 403, 503 /* a name that was never used is no error */
#define DEPLOYMENT_QUERY                                                                                     \
    { "deployment_id", "string", "for its history; by default a new one" },                                  \
        { "triggered_by", "string", "likewise; by default the token's name" },                               \
        { "git_commit", "string", "likewise" }, { "git_branch", "string", "likewise" },                      \
        { "version", "string", "what was deployed" },                                                        \
        { "user", "string", "the person behind it, without tokens" },                                        \
        { "duration_ms", "integer", "how long it took" },                                                    \
    {                                                                                                        \
        "status", "string", "success or failed"                                                              \
    }
/* For clients that keep states through this server (src/remote/remote_states.c). */
#define DETECTED_QUERY                                                                                       \
    { "detected_deployment_id", "string", "if neither the query nor the document has one" },                 \
        { "detected_triggered_by", "string", "likewise" }, { "detected_git_commit", "string", "likewise" },  \
    {                                                                                                        \
        "detected_git_branch", "string", "likewise"                                                          \
    }
#define UNVERIFIED_QUERY                                                                                     \
    {                                                                                                        \
        "unverified", "boolean", "as stored, ignoring its checksums"                                         \
    }
/* Terraform sends the same query with every method, so each route takes the names of the others. */
#define TF_QUERY                                                                                             \
    { "ID", "string", "the id of Terraform's lock" },                                                        \
        { "force", "boolean", "of a write: accept a lower serial; for admins" },                             \
    {                                                                                                        \
        "lease", "string", "how long its lock lasts after the last request, such as 30m; or none"            \
    }
#define LOCK_FAILS 400, 401, 403, 404, 409, 413, 503, 504

/* clang-format off */
const struct route routes[] = {
    { "POST", "/v1/locks/{key}/acquire", ROLE_LOCKER, handle_acquire, acquire_fields + BODY_KEY_FIELDS, { { 0 } }, "Lock",
      { 200, 202, 400, 401, 403, 409, 413, 503, 504 }, "Acquire a lock, with an optional wait in the queue", NULL, NULL },
    { "POST", "/v1/locks/{key}/adopt", ROLE_LOCKER, handle_adopt, adopt_fields + BODY_KEY_FIELDS, { { 0 } }, "Lock",
      { 200, LOCK_FAILS }, "Exchange a lock_id you were given for one of your own", NULL, NULL },
    { "POST", "/v1/locks/{key}/renew", ROLE_LOCKER, handle_renew, renew_fields + BODY_KEY_FIELDS, { { 0 } }, "Lock",
      { 200, LOCK_FAILS }, "Renew the lease for its whole ttl", NULL, NULL },
    { "POST", "/v1/locks/{key}/release", ROLE_LOCKER, handle_release, release_fields + BODY_KEY_FIELDS, { { 0 } }, "Lock",
      { 200, LOCK_FAILS }, "Release your own lock", NULL, NULL },
    { "POST", "/v1/locks/{key}/held", ROLE_LOCKER, handle_held, held_fields + BODY_KEY_AND_PROFILE, { { 0 } }, "Lock",
      { 200, 400, 401, 403, 404, 409, 413, 503 }, "Wait for the loss of your lock; 200 if you still hold it", NULL, NULL },
    { "GET", "/v1/locks/{key}/check", ROLE_READER, handle_check_get, NULL,
      { { "token", "integer", "it must be the current one" },
        { "for_ms", "integer", "the lock must be valid for at least so long; by default for any time" },
        { "lock_id", "string", "it must be the holder's; better in the body of a POST, as proxies log the query" } },
      "Lock", { 200, 400, 401, 403, 404, 409, 503 }, "Whether a token is the current one, and the lock is held", NULL, NULL },
    { "POST", "/v1/locks/{key}/check", ROLE_READER, handle_check, check_fields + BODY_KEY_AND_PROFILE, { { 0 } }, "Lock",
      { 200, 400, 401, 403, 404, 409, 413, 503 }, "Whether a lock_id or token holds the lock; changes nothing", NULL, NULL },
    { "POST", "/v1/locks/{key}/lost", ROLE_LOCKER, handle_lost, lost_fields + BODY_KEY_AND_PROFILE, { { 0 } }, "Noted",
      { 200, 400, 401, 403, 413, 503 }, "Record that you have lost a lock: you could no longer prove its lease", NULL, NULL },
    { "POST", "/v1/acquire", ROLE_LOCKER, handle_acquire, acquire_fields, { { 0 } }, "LockOrGrants",
      { 200, 202, 400, 401, 403, 409, 413, 503, 504 }, "Acquire, with the key, its parts or several keys in the body", NULL, NULL },
    { "POST", "/v1/adopt", ROLE_LOCKER, handle_adopt, adopt_fields, { { 0 } }, "LockOrGrants",
      { 200, LOCK_FAILS }, "Adopt, with the key, its parts or several keys in the body", NULL, NULL },
    { "POST", "/v1/renew", ROLE_LOCKER, handle_renew, renew_fields, { { 0 } }, "LockOrGrants",
      { 200, LOCK_FAILS }, "Renew, with the key, its parts or several keys in the body", NULL, NULL },
    { "POST", "/v1/release", ROLE_LOCKER, handle_release, release_fields, { { 0 } }, "LockOrGrants",
      { 200, LOCK_FAILS }, "Release, with the key, its parts or several keys in the body", NULL, NULL },
    { "POST", "/v1/held", ROLE_LOCKER, handle_held, held_fields, { { 0 } }, "LockOrGrants",
      { 200, 400, 401, 403, 404, 409, 413, 503 }, "Wait for the loss of your lock, with the key, its parts or several keys in the body", NULL, NULL },
    { "POST", "/v1/check", ROLE_READER, handle_check, check_fields, { { 0 } }, "LockOrGrants",
      { 200, 400, 401, 403, 404, 409, 413, 503 }, "Check, with the key, its parts or several keys in the body", NULL, NULL },
    { "POST", "/v1/lost", ROLE_LOCKER, handle_lost, lost_fields, { { 0 } }, "Noted",
      { 200, 400, 401, 403, 413, 503 }, "Record that you have lost a lock, with the key or its parts in the body", NULL, NULL },
    { "GET", "/v1/locks", ROLE_READER, handle_list, NULL,
      { { "prefix", "string", "only keys that begin with this" },
        { "status", "string", "active, expired, released or all; by default active and expired" },
        { "stale", "boolean", "only those without their heartbeat" },
        { "limit", "integer", "at most so many, 1 to 1000; by default 100" },
        { "cursor", "string", "next_cursor of the page before" } },
      "LockList", { 200, 400, 401, 403, 503 }, "Locks in the order of their keys", NULL, NULL },
    { "GET", "/v1/locks/{key}", ROLE_READER, handle_get, NULL, { { 0 } }, "Lock",
      { 200, 400, 401, 403, 404, 503 }, "One lock", NULL, NULL },
    { "DELETE", "/v1/locks/{key}", ROLE_ADMIN, handle_force, force_fields,
      { { "reason", "string", "why, if it is not in the body" },
        { "lock_id", "string", "end this lock and no later one" } },
      "Lock", { 200, LOCK_FAILS }, "Force-release the lock of another holder", NULL, NULL },
    { "GET", "/v1/locks/{key}/history", ROLE_READER, handle_history, NULL,
      { { "limit", "integer", "the last so many, 1 to 10000; by default 100" } },
      "EventList", { 200, 400, 401, 403, 404, 503 }, "The events of one lock, oldest first", NULL, NULL },
    { "GET", "/v1/locks/{key}/queue", ROLE_READER, handle_queue, NULL,
      { { "estimate", "boolean", "estimate when each waiter has its turn" } }, "Queue",
      { 200, 400, 401, 403, 404, 503 }, "The holder and the waiters, in order", NULL, NULL },
    { "DELETE", "/v1/locks/{key}/queue", ROLE_LOCKER, handle_leave, NULL,
      { { "lock_id", "string", "of the waiting request; needed" } },
      "Queued", { 200, 400, 401, 403, 404 }, "Leave the queue: a request with a webhook, or one that waits", NULL, NULL },
    { "GET", "/v1/locks/{key}/free", ROLE_READER, handle_free, NULL,
      { { "shared", "boolean", "for a shared lock" },
        { "slots", "integer", "for a lock with so many slots" } }, "Free",
      { 200, 400, 401, 403, 409, 503 }, "Whether it could be acquired now, considering the keys above and below it", NULL, NULL },
    { "GET", "/v1/events", ROLE_READER, handle_events, NULL,
      { { "prefix", "string", "only events of keys that begin with this" },
        { "last_event_id", "integer", "go on after this one, for clients that cannot send Last-Event-ID" } },
      "text/event-stream", { 200, 400, 401, 403, 404, 503 }, "Events as they happen, as Server-Sent Events", NULL, NULL },
    { "GET", "/v1/freezes", ROLE_READER, handle_freezes, NULL, { { 0 } }, "FreezeList", { 200, 400, 401, 403, 503 },
      "The freezes that are in force or begin later, as far as they concern the keys of the token", NULL, NULL },
    { "POST", "/v1/freezes", ROLE_ADMIN, handle_freeze, freeze_fields, { { 0 } }, "FreezeList",
      { 200, 400, 401, 403, 409, 413, 503, 504 }, "Refuse new acquisitions of all keys that match a pattern", NULL, NULL },
    { "DELETE", "/v1/freezes/{id}", ROLE_ADMIN, handle_unfreeze, unfreeze_fields, { { 0 } }, "FreezeList",
      { 200, 400, 401, 403, 404, 413, 503, 504 }, "End a freeze by its id, or all with exactly this pattern", NULL, NULL },
    { "GET", "/v1/locks/{key}/tree", ROLE_READER, handle_tree, NULL, { { 0 } }, "Tree",
      { 200, 400, 401, 403, 503 }, "The locks above and below it, which exclude each other", NULL, NULL },
    { "GET", "/v1/live", ROLE_READER, handle_dashboard_stream, NULL, { { 0 } },
      "text/event-stream", { 200, 400, 401, 403, 503 }, "Locks that have changed, collected for dashboards", NULL, NULL },
    { "GET", "/v1/activity", ROLE_READER, handle_activity, NULL,
      { { "hours", "integer", "the last so many, 1 to 24; by default 6" } },
      "Activity", { 200, 400, 401, 403 }, "Locks acquired, refused, held and waited for in the last hours", NULL, NULL },
    { "GET", "/v1/stats", ROLE_READER, handle_stats, NULL,
      { { "key", "string", "of this lock" },
        { "prefix", "string", "of locks whose keys begin with this" },
        { "since", "string", "a duration such as 7d, or a time; by default all that is kept" },
        { "by", "string", "divide the numbers by day, profile or key" } },
      "Stats", { 200, 400, 401, 403, 503 }, "Statistics from the history: hold and wait times, acquisitions, refusals", NULL, NULL },
    { "GET", "/v1/timeline", ROLE_READER, handle_timeline, NULL,
      { { "hours", "integer", "the last so many, 1 to 24; by default 6" },
        { "after", "integer", "only events after this one: last_id of the answer before" } },
      "Timeline", { 200, 400, 401, 403, 404, 503 }, "Who held what when: the events that begin or end a hold or a wait", NULL, NULL },
    { "GET", "/v1/me", ROLE_READER, handle_me, NULL, { { 0 } }, "Me", { 200, 400, 401, 403 },
      "The name and rights of the token", NULL, NULL },
    { "POST", "/v1/session", ROLE_READER, handle_session_post, NULL, { { 0 } }, "Session", { 200, 400, 401, 403 },
      "Exchange the token for a cookie, for the dashboard", NULL, NULL },
    { "DELETE", "/v1/session", ROLE_READER, handle_session_delete, NULL, { { 0 } }, "Empty", { 200, 400, 401, 403 },
      "End the session of the cookie", NULL, NULL },
    { "GET", "/v1/backup", ROLE_ADMIN, handle_backup, NULL, { { 0 } }, "application/vnd.sqlite3",
      { 200, 400, 401, 403, 503 }, "A consistent copy of the lock database, for belay restore", NULL, NULL },
    { "GET", "/v1/store", ROLE_READER, handle_job, NULL, { { 0 } }, "Store", { 200, 400, 401, 403, 503 },
      "The id of the lock store: the same through every server that uses it", NULL, job_store },
    { "GET", "/healthz", ROLE_NONE, handle_health, NULL, { { 0 } }, "Health", { 200, 413 }, "The server runs", NULL, NULL },
    { "GET", "/v1/apps", ROLE_READER, handle_job, NULL, { { 0 } }, "AppList",
      { 200, 400, 401, 403, 503 }, "All applications, in the order of their names", NULL, job_apps },
    { "POST", "/v1/apps", ROLE_LOCKER, handle_job, NULL, { { 0 } }, "App",
      { 200, 400, 401, 403, 409, 413, 503, 504 }, "Register an application", "NewApp", job_app_post },
    { "GET", "/v1/apps/{name}", ROLE_READER, handle_app, NULL, { { 0 } }, "App",
      { 200, 400, 401, 403, 404, 503 }, "One application", NULL, job_app_get },
    { "PUT", "/v1/apps/{name}", ROLE_LOCKER, handle_app, NULL, { { 0 } }, "App",
      { 200, 400, 401, 403, 409, 413, 503, 504 },
      "Register or replace; with a version, only if that is the present one (0: if there is none)", "NewApp", job_app_put },
    { "DELETE", "/v1/apps/{name}", ROLE_ADMIN, handle_app, NULL,
      { { "version", "integer", "only if it is still of this version" } }, "Empty",
      { 200, 400, 401, 403, 404, 409, 503, 504 }, "Remove an application from the registry", NULL, job_app_delete },
    { "POST", "/v1/apps/{name}/mark", ROLE_LOCKER, handle_app, NULL, { { 0 } }, "App",
      { 200, 400, 401, 403, 404, 409, 413, 503, 504 }, "Record that it is running or stopped", "Mark", job_app_mark },
    { "GET", "/status/quick", ROLE_READER, handle_quick, NULL,
      { { "app", "string", "the application's name" } }, "AppStatus", { 200, 400, 401, 403, 503 },
      "Ask an application whether it is up", NULL, job_quick },
    { "GET", "/v1/databases", ROLE_READER, handle_job, NULL, { { 0 } }, "DatabaseList",
      { 200, 400, 401, 403, 503 }, "Databases, their applications and the last decision", NULL, job_databases },
    { "GET", "/v1/databases/{id}", ROLE_READER, handle_database, NULL, { { 0 } }, "Database",
      { 200, 400, 401, 403, 404, 503 }, "One database", NULL, job_database },
    { "POST", "/v1/databases/{id}/stop", ROLE_LOCKER, handle_database_change, NULL, { { 0 } }, "Decisions",
      { 200, 400, 401, 403, 404, 413, 503, 504 }, "Stop it if no other application uses it", "StopRequest", job_db_stop },
    { "POST", "/v1/databases/{id}/start", ROLE_LOCKER, handle_database_change, NULL, { { 0 } }, "Decisions",
      { 200, 400, 401, 403, 404, 413, 503, 504 }, "Start it, under the same lock", "StopRequest", job_db_start },
    { "PUT", "/v1/databases/{id}/last", ROLE_LOCKER, handle_database, NULL, { { 0 } }, "Empty",
      { 200, 400, 401, 403, 413, 503, 504 }, "Record a client's decision: belay db stop does so itself", "Decision", job_db_record },
    { "GET", "/v1/state", ROLE_READER, handle_states, NULL, { { 0 } }, "StateList", { 200, 400, 401, 403, 503 },
      "All deployment states", NULL, job_states },
    { "GET", "/v1/state/{stack}/{environment}", ROLE_READER, handle_state_read, NULL, { UNVERIFIED_QUERY }, "State",
      { 200, STATE_FAILS }, "A deployment state, verified, with its ETag", NULL, job_state_get },
    { "POST", "/v1/state/{stack}/{environment}/backup", ROLE_LOCKER, handle_state_read, NULL, { { 0 } }, "Snapshot",
      { 200, STATE_FAILS }, "Copy it, valid or not, to a new version", NULL, job_state_backup },
    { "PUT", "/v1/state/{stack}/{environment}", ROLE_LOCKER, handle_state_write, NULL,
      { { "lock_id", "string", "of the stack's lock, which must be held" },
        { "keep_locked", "boolean", "the deployment goes on" },
        { "own", "boolean", "with If-Match: what this lock has saved since counts as that, too" },
        { "unchanged", "boolean", "there is no body: the state stays, and the deployment is recorded in it" },
        DEPLOYMENT_QUERY, DETECTED_QUERY },
      "Saved", { 200, STATE_FAILS, 409, 412, 413, 428, 504 },
      "Save it; If-Match names the version it was made from (If-None-Match: * if there was none)", "State", job_state_put },
    { "POST", "/v1/state/{stack}/{environment}/stamp", ROLE_LOCKER, handle_state_write, NULL,
      { { "lock_id", "string", "of the stack's lock, which must be held" } }, "State",
      { 200, STATE_FAILS, 409, 504 }, "Load it, and refuse writes under older locks from now on", NULL, job_state_stamp },
    { "GET", "/v1/state/{stack}/{environment}/history", ROLE_READER, handle_state_read, NULL,
      { { "limit", "integer", "the last so many deployments, by default 1000; 0: the versions only, even of a damaged state" } },
      "StateHistory", { 200, STATE_FAILS }, "Its deployments and versions, newest first", NULL, job_state_history },
    { "GET", "/v1/state/{stack}/{environment}/history/{version}", ROLE_READER, handle_state_read, NULL,
      { UNVERIFIED_QUERY }, "State", { 200, STATE_FAILS }, "One version: by its name, index or timestamp, or latest", NULL, job_state_snapshot },
    { "GET", "/v1/state/{stack}/{environment}/verify", ROLE_READER, handle_state_read, NULL, { { 0 } },
      "Verified", { 200, STATE_FAILS }, "Verify every part of it against its checksum", NULL, job_state_verify },
    { "POST", "/v1/state/{stack}/{environment}/restore", ROLE_ADMIN, handle_state_write, NULL,
      { { "lock_id", "string", "of the stack's lock; without it the lock is taken for the restore" },
        { "keep_locked", "boolean", "the deployment goes on" },
        DEPLOYMENT_QUERY },
      "Saved", { 200, STATE_FAILS, 409, 412, 413, 504 },
      "Save an old version as a new one; with If-Match, only if that is the present one", "Restore", job_state_restore },
    { "POST", "/v1/state/{stack}/{environment}/adopt", ROLE_ADMIN, handle_state_write, NULL,
      { { "lock_id", "string", "of the stack's lock; without it the lock is taken for it" },
        { "keep_locked", "boolean", "the deployment goes on" }, DEPLOYMENT_QUERY },
      "Saved", { 200, STATE_FAILS, 409, 412, 413, 504 },
      "Accept the state, or a version of it, as another program wrote it, ignoring its checksums", "Adopt", job_state_adopt },
    { "GET", "/v1/terraform", ROLE_READER, handle_states, NULL, { { 0 } }, "TerraformList",
      { 200, 400, 401, 403, 503 }, "All Terraform states", NULL, job_tf_list },
    { "GET", "/v1/terraform/{name}", ROLE_LOCKER, handle_tf_read, NULL, { TF_QUERY }, "TerraformState",
      { 200, STATE_FAILS }, "Terraform's state, as Terraform wrote it", NULL, job_tf_get },
    { "POST", "/v1/terraform/{name}", ROLE_LOCKER, handle_tf_write, NULL, { TF_QUERY }, "Empty",
      { 200, TF_FAILS, 409, 413, 423, 504 }, "Write it, under the lock that ID names", "TerraformState", job_tf_put },
    { "PUT", "/v1/terraform/{name}", ROLE_LOCKER, handle_tf_write, NULL, { TF_QUERY }, "Empty",
      { 200, TF_FAILS, 409, 413, 423, 504 }, "The same, for update_method PUT", "TerraformState", job_tf_put },
    { "DELETE", "/v1/terraform/{name}", ROLE_ADMIN, handle_tf_write, NULL, { TF_QUERY }, "Empty",
      { 200, TF_FAILS, 409, 423, 504 }, "Remove it; its versions stay", NULL, job_tf_delete },
    { "LOCK", "/v1/terraform/{name}", ROLE_LOCKER, handle_tf_write, NULL, { TF_QUERY }, "TerraformLock",
      { 200, TF_FAILS, 409, 413, 423, 504 }, "Acquire its lock", "TerraformLock", job_tf_lock },
    { "UNLOCK", "/v1/terraform/{name}", ROLE_LOCKER, handle_tf_write, NULL, { TF_QUERY }, "Empty",
      { 200, TF_FAILS, 409, 413, 504 }, "Release its lock; without a body: that of any holder", "TerraformLock", job_tf_unlock },
    { "POST", "/v1/terraform/{name}/lock", ROLE_LOCKER, handle_tf_write, NULL, { TF_QUERY }, "TerraformLock",
      { 200, TF_FAILS, 409, 413, 423, 504 }, "Acquire its lock, for lock_method POST", "TerraformLock", job_tf_lock },
    { "PUT", "/v1/terraform/{name}/lock", ROLE_LOCKER, handle_tf_write, NULL, { TF_QUERY }, "TerraformLock",
      { 200, TF_FAILS, 409, 413, 423, 504 }, "The same, for lock_method PUT", "TerraformLock", job_tf_lock },
    { "DELETE", "/v1/terraform/{name}/lock", ROLE_LOCKER, handle_tf_write, NULL, { TF_QUERY }, "Empty",
      { 200, TF_FAILS, 409, 413, 504 }, "Release its lock, for unlock_method DELETE", "TerraformLock", job_tf_unlock },
    { "GET", "/v1/terraform/{name}/versions", ROLE_READER, handle_tf_read, NULL, { { 0 } }, "VersionList",
      { 200, TF_FAILS }, "Its versions, newest first", NULL, job_tf_versions },
    { "GET", "/v1/terraform/{name}/versions/{version}", ROLE_LOCKER, handle_tf_read, NULL, { { 0 } },
      "TerraformState", { 200, STATE_FAILS }, "One version: by its name, index or timestamp, or latest", NULL, job_tf_version },
    { "POST", "/v1/terraform/{name}/restore", ROLE_ADMIN, handle_tf_write, NULL, { TF_QUERY }, "TerraformState",
      { 200, STATE_FAILS, 409, 412, 413, 423, 504 },
      "Make an old version the present one; with If-Match, only if that is the present one", "Restore", job_tf_restore },
    { "GET", "/readyz", ROLE_NONE, handle_ready, NULL, { { 0 } }, "Health", { 200, 413, 503 },
      "The store answers and the server is not stopping", NULL, NULL },
    { "GET", "/metrics", ROLE_READER, handle_metrics, NULL, { { 0 } }, "text/plain", { 200, 400, 401, 403 },
      "Counters and histograms for Prometheus", NULL, NULL },
    { "GET", "/openapi.json", ROLE_NONE, handle_openapi, NULL, { { 0 } }, "application/json", { 200, 413 }, "This document", NULL, NULL },
    { "GET", "/", ROLE_NONE, handle_page, NULL, { { 0 } }, "text/html", { 200, 413 }, "The dashboard", NULL, NULL },
    { "GET", "/ui/{file}", ROLE_NONE, handle_asset, NULL, { { 0 } }, "*/*", { 200, 404 },
      "A file of the dashboard", NULL, NULL },
};
/* clang-format on */
const size_t n_routes = sizeof routes / sizeof routes[0];

/* Compare by segments, without splitting the route's path. */
static bool path_fits(const char *wanted, const struct http_slice *segments, size_t n,
                      struct http_slice names[ROUTE_NAMES_MAX])
{
    size_t n_names = 0;

    for (size_t i = 0; i < n; i++) {
        if (*wanted++ != '/') {
            return false;
        }
        if (*wanted == '{' && n_names < ROUTE_NAMES_MAX) {
            names[n_names++] = segments[i];
            wanted = strchrnul(wanted, '/');
        } else if (strncmp(wanted, segments[i].data, segments[i].len) != 0) {
            return false;
        } else {
            wanted += segments[i].len; /* a longer segment of the route does not continue with a slash */
        }
    }
    memset(names + n_names, 0, (ROUTE_NAMES_MAX - n_names) * sizeof *names);
    return *wanted == '\0';
}

static bool method_fits(const char *wanted, const char *method)
{
    return strcmp(wanted, method) == 0 || (strcmp(wanted, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

const struct route *route_find(const struct http_request *request, struct http_slice names[ROUTE_NAMES_MAX],
                               char out_allow[ROUTE_ALLOW_SIZE])
{
    struct http_slice segments[SEGMENTS_MAX];
    size_t n = request->path[0] == '/' ? http_path_split(request->path, segments, SEGMENTS_MAX) : 0;
    size_t len = 0;

    out_allow[0] = '\0';
    if (n == 0 || n > SEGMENTS_MAX) {
        return NULL;
    }
    for (size_t i = 0; i < n_routes; i++) {
        if (!path_fits(routes[i].path, segments, n, names)) {
            continue;
        }
        if (method_fits(routes[i].method, request->method)) {
            return &routes[i];
        }
        len += (size_t)snprintf(out_allow + len, ROUTE_ALLOW_SIZE - len, "%s%s", len == 0 ? "" : ", ",
                                strcmp(routes[i].method, "GET") == 0 ? "GET, HEAD" : routes[i].method);
    }
    return NULL;
}

bool route_is_large(const struct route *route)
{
    return route->job == job_tf_put || route->job == job_state_put;
}

struct route_counts *route_counts_new(void)
{
    return calloc(n_routes + 1, sizeof(struct route_counts));
}

void route_count(struct route_counts *counts, const struct route *route, int status, int64_t took_us)
{
    struct route_counts *own = &counts[route == NULL ? n_routes : (size_t)(route - routes)];
    int class = status / 100;

    own->by_status[class >= 1 && class <= 5 ? class : 0]++;
    histogram_add(&own->took, HISTOGRAM_BOUNDS(histogram_short_s), (double)took_us / 1e6);
}

bool route_names_lock(const struct route *route)
{
    return route->fields != NULL &&
           (text_has_prefix(route->path, "/v1/locks/{key}") || strcmp(route->fields[0].name, "key") == 0);
}

static bool refuse_query(struct exchange *x, const char *name)
{
    const char *names[ROUTE_QUERY_MAX];
    const char *nearest;
    size_t n = 0;

    for (; n < ROUTE_QUERY_MAX && x->route->query[n].name != NULL; n++) {
        names[n] = x->route->query[n].name;
    }
    nearest = suggest_name(name, names, n);
    if (nearest != NULL) {
        reply_problem(x, 400, "invalid", "there is no parameter '%.60s'; did you mean '%s'?", name, nearest);
    } else {
        reply_problem(x, 400, "invalid", "this path has no parameter '%.60s'", name);
    }
    return false;
}

bool route_check_query(struct exchange *x)
{
    const char *cursor = x->request->query;
    struct http_slice name;
    struct http_slice value;

    while (http_query_next(&cursor, &name, &value)) {
        char text[64] = "";
        bool known = false;

        if (name.len == 0 && value.len == 0) {
            continue;
        }
        if (!http_decode(name, text, sizeof text)) {
            text[0] = '\0';
        }
        for (size_t i = 0; i < ROUTE_QUERY_MAX && x->route->query[i].name != NULL; i++) {
            known = known || strcmp(x->route->query[i].name, text) == 0;
        }
        if (!known) {
            return refuse_query(x, text);
        }
    }
    return true;
}

enum belay_code query_number(const char *query, const char *name, int64_t min, int64_t max, int64_t *out,
                             struct belay_error *err)
{
    char text[24];
    enum http_found found = http_query_get(query, name, text, sizeof text);
    long long value;

    if (found == HTTP_ABSENT) {
        return BELAY_OK;
    }
    errno = 0;
    value = found == HTTP_FOUND && *text != '\0' && strspn(text, "0123456789") == strlen(text)
                ? strtoll(text, NULL, 10)
                : -1;
    if (errno != 0 || value < min || value > max) {
        return error_set(err, BELAY_INVALID, "%s must be a whole number from %" PRId64 " to %" PRId64, name,
                         min, max);
    }
    *out = value;
    return BELAY_OK;
}

enum belay_code query_key(const char *query, const char *name, char space[BELAY_KEY_MAX + 1],
                          const char **out, struct belay_error *err)
{
    enum http_found found = http_query_get(query, name, space, BELAY_KEY_MAX + 1);

    if (found == HTTP_MALFORMED) {
        return error_set(err, BELAY_INVALID, "%s is over %d bytes or not percent-encoded", name,
                         BELAY_KEY_MAX);
    }
    if (found == HTTP_FOUND && *space != '\0') {
        *out = space;
    }
    return BELAY_OK;
}
