/* Schemas of applications and databases, for /openapi.json. */
#include "server/core/routes.h"

/* clang-format off */
const char *const shared_db_schemas[] = {
    "Empty object",
    "AppDatabase {kind string, id string `an EC2 instance id, else HOST:PORT`, host string?}",
    "App {name string, urls string[], databases AppDatabase[], labels map of string, state "
    "string(running|stopped|stop_requested), since time?, by string?, public_only boolean `registered "
    "by a token that is no admin's: asked on public and allowed addresses only`, version integer}",
    "NewApp {-name string, urls string[], -databases object/string[] `{kind, id, host} or KIND=ID`, "
    "-labels map of string, -state string(running|stopped|stop_requested), -version integer}",
    "AppList {is_partial boolean `the keys of the token hide others`, apps App[]}",
    "Mark {state string(running|stopped), -by string}",
    "AppStatus {app string, status string(UP|DOWN|UNKNOWN), http_code integer?, timestamp time, "
    "reason string?, -connected boolean `false: no connection to it could be made`}",
    "Decision {database string, kind string, host string?, action "
    "string(stopped|started|skipped_shared_active|skipped_lock|skipped|error), reason string?, shared "
    "boolean, sharing_apps string[], active_apps string[], -lock_attempts integer, -lock_ms integer, "
    "-at time?, -by string?, -verb string(stop|start), -is_done boolean `false: it is about to be "
    "done, and only an event`}",
    "Decisions {results Decision[]}",
    "StopRequest {-app string `the application on whose behalf: it is not asked; that its stop was "
    "requested is recorded, and that it is stopped or running`, -dry_run boolean, -wait_ms "
    "integer>=0, -by string}",
    "Database {database string, kind string, host string?, shared boolean, apps {app string, state "
    "string, since string?}[], last Decision?}",
    "DatabaseList {is_partial boolean `the keys of the token hide others`, databases Database[]}",
    NULL
};
