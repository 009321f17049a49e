/* The texts of /openapi.json that the table of routes lacks: the id of each operation, for generated clients, and more than a summary. */
#include "server/api/openapi_texts.h"

#include <stddef.h>
#include <string.h>

/* clang-format off */
static const struct operation_text texts[] = {
    { "POST /v1/locks/{key}/acquire", "acquireLock",
      "Rely on the lock for valid_for_ms, counted from before the request was sent. With your own lock_id the request can be repeated: it returns the same lock and token.",
      "{\"locked_by\":\"build-17\",\"ttl_ms\":600000,\"lock_id\":\"build-17-a\"}" },
    { "POST /v1/locks/{key}/adopt", "adoptLock",
      "The old id is invalid afterwards: if two clients were given it, one succeeds and the other gets not_holder. The lock gets a new token.",
      "{\"lock_id\":\"build-17-a\",\"new_lock_id\":\"job-9-a\",\"locked_by\":\"job-9\"}" },
    { "POST /v1/locks/{key}/renew", "renewLock",
      "Restarts the lease with its whole ttl, or with a new one. A lease that is over cannot be renewed, even if the lock is free.",
      "{\"lock_id\":\"build-17-a\"}" },
    { "POST /v1/locks/{key}/release", "releaseLock",
      "Can be repeated as long as no other client has acquired the lock since. Releasing the lock_id of a wait gives up its place in the queue.",
      "{\"lock_id\":\"build-17-a\",\"outcome\":\"completed\"}" },
    { "POST /v1/locks/{key}/held", "awaitLossOfLock",
      "Answered as soon as lock_id no longer holds the lock, otherwise after wait_ms. It does not renew the lease.",
      "{\"lock_id\":\"build-17-a\",\"wait_ms\":60000}" },
    { "GET /v1/locks/{key}/check", "checkLockByQuery", "For a receiver that was sent a fencing token: is it the current one of this key, and is the lock held?", NULL },
    { "POST /v1/locks/{key}/check", "checkLock", "valid_for_ms counts from before the request was sent, and is never longer than the holder itself may rely on the lock.",
      "{\"lock_id\":\"build-17-a\",\"for_ms\":30000}" },
    { "POST /v1/locks/{key}/lost", "reportLossOfLock", "Adds lock.lost to the history and changes nothing else.", "{\"lock_id\":\"build-17-a\",\"reason\":\"no answer in time\"}" },
    { "POST /v1/acquire", "acquire", "As POST /v1/locks/{key}/acquire. Several keys are acquired all or none, under one lock_id and with a token each.", NULL },
    { "POST /v1/adopt", "adopt", "As POST /v1/locks/{key}/adopt.", "{\"key\":\"deploy-api-prod\",\"lock_id\":\"build-17-a\",\"new_lock_id\":\"job-9-a\"}" },
    { "POST /v1/renew", "renew", "As POST /v1/locks/{key}/renew. Several keys are renewed all or none.", "{\"key\":\"deploy-api-prod\",\"lock_id\":\"build-17-a\"}" },
    { "POST /v1/release", "release", "As POST /v1/locks/{key}/release. Of several keys, those that the id still holds are released.", "{\"key\":\"deploy-api-prod\",\"lock_id\":\"build-17-a\"}" },
    { "POST /v1/held", "awaitLoss", "As POST /v1/locks/{key}/held. Of several keys, the first that is lost is reported.", "{\"key\":\"deploy-api-prod\",\"lock_id\":\"build-17-a\"}" },
    { "POST /v1/check", "check", "As POST /v1/locks/{key}/check.", "{\"key\":\"deploy-api-prod\",\"lock_id\":\"build-17-a\"}" },
    { "POST /v1/lost", "reportLoss", "As POST /v1/locks/{key}/lost.", "{\"key\":\"deploy-api-prod\",\"lock_id\":\"build-17-a\"}" },
    { "GET /v1/locks", "listLocks", "One page. A token with keys sees only the locks that match: a page may be short or empty and still have a next_cursor.", NULL },
    { "GET /v1/locks/{key}", "getLock", "lock_id is shown only to admins and to the token that acquired the lock.", NULL },
    { "DELETE /v1/locks/{key}", "forceUnlock", "Ends the lock of the current holder and records who did it and why. With lock_id, that lock only and no later one.",
      "{\"lock_id\":\"build-17-a\",\"reason\":\"the runner was deleted\",\"by\":\"alice\"}" },
    { "GET /v1/locks/{key}/history", "getLockHistory", "Every acquisition, renewal, release, refusal, loss and forced unlock is one event.", NULL },
    { "GET /v1/locks/{key}/queue", "getQueue", "All waiters. For a key that was never held, lock is the lock above it that it waits for.", NULL },
    { "DELETE /v1/locks/{key}/queue", "leaveQueue", "A cancelled request with a webhook causes no call.", NULL },
    { "GET /v1/locks/{key}/free", "getFree", "The result is no guarantee: to get the lock, acquire it. The error names the obstacle.", NULL },
    { "GET /v1/events", "streamEvents", "Starts with the next event, or after the one that Last-Event-ID names. A comment every 15 seconds keeps the connection open.", NULL },
    { "GET /v1/freezes", "listFreezes", "A freeze refuses new acquisitions of the keys that match its pattern; holders keep their locks.", NULL },
    { "POST /v1/freezes", "createFreeze", "With your own id the request can be repeated.", "{\"pattern\":\"web-*\",\"reason\":\"Black Friday\",\"for_ms\":86400000}" },
    { "DELETE /v1/freezes/{id}", "deleteFreeze", "The answer has the freezes that were ended.", "{\"reason\":\"over\"}" },
    { "GET /v1/locks/{key}/tree", "getTree", "At most 200 of the locks below it.", NULL },
    { "GET /v1/live", "streamChangedLocks", "Changes are collected and sent at most four times a second; read the list again after reset.", NULL },
    { "GET /v1/stats", "getStats", "Counts what the store keeps of its history, for the keys that the token may see; from and until say which time that is.", NULL },
    { "GET /v1/activity", "getActivity", "Counted from the events, in steps of 1, 5 or 15 minutes; percentiles are accurate to within a quarter.", NULL },
    { "GET /v1/timeline", "getTimeline", "At most the last 5,000 such events, among the last 50,000 of all types, oldest first. If there were more, is_complete is false and from says where they begin.", NULL },
    { "GET /v1/me", "getMe", "Without configured tokens the name is null and the role is admin.", NULL },
    { "POST /v1/session", "createSession", "Sets an HttpOnly, SameSite=Strict cookie that authorizes further requests like the token, for 12 hours at most. With the cookie, requests that change something need an Origin of this server or the header Belay-Session. Without configured tokens there is no cookie, and expires_at is null.", NULL },
    { "DELETE /v1/session", "deleteSession", "Also ends the event streams of the session.", NULL },
    { "GET /v1/backup", "getBackup", "Includes everything that was acknowledged before. One at a time; not on a DynamoDB store.", NULL },
    { "GET /v1/store", "getStore", "Two servers with the same id share their locks.", NULL },
    { "GET /healthz", "getHealth", "For liveness: it does not ask the store.", NULL },
    { "GET /v1/apps", "listApps", "is_partial is true if the keys of the token hide any of them.", NULL },
    { "POST /v1/apps", "registerApp", "An application that exists is not changed: 409.", "{\"name\":\"shop\",\"urls\":[\"https://shop.example/health\"],\"databases\":[\"postgres=10.0.1.5:5432\"]}" },
    { "GET /v1/apps/{name}", "getApp", "With its databases, its state, and the version to replace it by.", NULL },
    { "PUT /v1/apps/{name}", "putApp", "A token needs the key LOCK#DB#ID for each database that it adds.", "{\"urls\":[\"https://shop.example/health\"],\"databases\":[\"postgres=10.0.1.5:5432\"]}" },
    { "DELETE /v1/apps/{name}", "deleteApp", "Its databases no longer count it as a user.", NULL },
    { "POST /v1/apps/{name}/mark", "markApp", "For an application that was started or stopped by hand.", "{\"state\":\"stopped\",\"by\":\"alice\"}" },
    { "GET /status/quick", "getQuickStatus", "An application that is not in the registry is UNKNOWN.", NULL },
    { "GET /v1/databases", "listDatabases", "Those that a registered application names.", NULL },
    { "GET /v1/databases/{id}", "getDatabase", "The id is that of the registry, such as 10.0.1.5:5432.", NULL },
    { "POST /v1/databases/{id}/stop", "stopDatabase", "Runs the action in the server's configuration under the lock of the database. The answer is 200 whatever was decided.", "{\"app\":\"shop\",\"by\":\"alice\"}" },
    { "POST /v1/databases/{id}/start", "startDatabase", "Runs the action in the server's configuration under the lock of the database.", "{\"by\":\"alice\"}" },
    { "PUT /v1/databases/{id}/last", "recordDecision", "Internal: do not use it otherwise.", NULL },
    { "GET /v1/state", "listStates", "The stack and the environment of each.", NULL },
    { "GET /v1/state/{stack}/{environment}", "getState", "The document as stored. A damaged state is 503 bad_content, unless unverified is set.", NULL },
    { "POST /v1/state/{stack}/{environment}/backup", "backupState", "Whatever its checksums say.", NULL },
    { "PUT /v1/state/{stack}/{environment}", "putState", "lock_id must hold the lock stack:STACK:env:ENVIRONMENT; the save renews its lease.", NULL },
    { "POST /v1/state/{stack}/{environment}/stamp", "stampState", "For the start of a deployment: from then on the state itself refuses writes with an older lock.", NULL },
    { "GET /v1/state/{stack}/{environment}/history", "getStateHistory", "With limit 0 the versions alone, even if the state is damaged.", NULL },
    { "GET /v1/state/{stack}/{environment}/history/{version}", "getStateVersion", "As it was saved.", NULL },
    { "GET /v1/state/{stack}/{environment}/verify", "verifyState", "Each finding names the part, and whether it is an error.", NULL },
    { "POST /v1/state/{stack}/{environment}/restore", "restoreState", "Show a person what would change, then restore with the ETag that was shown in If-Match.", "{\"version\":\"latest\"}" },
    { "POST /v1/state/{stack}/{environment}/adopt", "adoptState", "Afterwards the checksums fit again.", "{\"version\":\"latest\"}" },
    { "GET /v1/terraform", "listTerraformStates", "Name, size and time of each.", NULL },
    { "GET /v1/terraform/{name}", "getTerraformState", "404 if there is none: Terraform then starts with an empty one.", NULL },
    { "POST /v1/terraform/{name}", "writeTerraformState", "A lower serial of the same lineage is refused; the same bytes again are not.", NULL },
    { "PUT /v1/terraform/{name}", "putTerraformState", "As POST.", NULL },
    { "DELETE /v1/terraform/{name}", "deleteTerraformState", "Acquires the lock while it works, or uses that of ID.", NULL },
    { "LOCK /v1/terraform/{name}", "lockTerraform", "The key of the lock is terraform/NAME. Can be repeated.", NULL },
    { "UNLOCK /v1/terraform/{name}", "unlockTerraform", "Can be repeated.", NULL },
    { "POST /v1/terraform/{name}/lock", "postTerraformLock", "As LOCK, for proxies that do not know it.", NULL },
    { "PUT /v1/terraform/{name}/lock", "putTerraformLock", "As LOCK, for proxies that do not know it.", NULL },
    { "DELETE /v1/terraform/{name}/lock", "deleteTerraformLock", "As UNLOCK, for proxies that do not know it.", NULL },
    { "GET /v1/terraform/{name}/versions", "listTerraformVersions", "A state that was removed keeps its versions.", NULL },
    { "GET /v1/terraform/{name}/versions/{version}", "getTerraformVersion", "As Terraform wrote it.", NULL },
    { "POST /v1/terraform/{name}/restore", "restoreTerraformState", "Acquires the lock while it works, or uses that of ID. The answer is the restored state.", "{\"version\":\"2\"}" },
    { "GET /readyz", "getReadiness", "For load balancers and health checks.", NULL },
    { "GET /metrics", "getMetrics", "In the text format of Prometheus.", NULL },
    { "GET /openapi.json", "getOpenapi", "Generated from the tables that the server parses requests with.", NULL },
    { "GET /", "getDashboard", "A page for people. Its data needs a token.", NULL },
    { "GET /ui/{file}", "getDashboardFile", "Scripts and styles of the page.", NULL },
};

/* The first prefix that fits. */
static const struct operation_tag tags[] = {
    { "/v1/freezes", "Freezes", "Refuse new acquisitions" },
    { "/v1/apps", "Databases", "Applications and the databases they share" },
    { "/v1/databases", "Databases", NULL },
    { "/status/", "Databases", NULL },
    { "/v1/state", "State", "Deployment states" },
    { "/v1/terraform", "Terraform", "Terraform's http backend" },
    { "/v1/events", "Events", "Streams and counts of what happens" },
    { "/v1/live", "Events", NULL },
    { "/v1/stats", "Events", NULL },
    { "/v1/activity", "Events", NULL },
    { "/v1/timeline", "Events", NULL },
    { "/v1/me", "Server", "About the server" },
    { "/v1/session", "Server", NULL },
    { "/v1/store", "Server", NULL },
    { "/v1/backup", "Server", NULL },
    { "/v1/", "Locks", "Acquire, renew and release locks, and read them" },
    { "/", "Server", NULL },
};
/* clang-format on */

const struct operation_text *openapi_text(const char *method, const char *path)
{
    size_t len = strlen(method);

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const char *operation = texts[i].operation;

        if (strncmp(operation, method, len) == 0 && operation[len] == ' ' &&
            strcmp(operation + len + 1, path) == 0) {
            return &texts[i];
        }
    }
    return NULL; /* the linters of test/openapi name it */
}

const char *openapi_tag(const char *path)
{
    size_t i = 0;

    while (strncmp(path, tags[i].prefix, strlen(tags[i].prefix)) != 0) {
        i++; /* the last one fits every path */
    }
    return tags[i].name;
}

const struct operation_tag *openapi_tags(size_t *out_n)
{
    *out_n = sizeof tags / sizeof tags[0];
    return tags;
}
