/* The schemas of the dashboard's own answers, for /openapi.json. */
#include "server/core/routes.h"

/* clang-format off */
const char *const dashboard_schemas[] = {
    "Session {name string?, role string(reader|locker|admin), expires_at time?}",
    "TimelineEvent {id integer, timestamp time, event "
    "string(lock.acquired|lock.adopted|lock.released|lock.forced|lock.lost|lock.taken_over|wait.began|wait.ended), "
    "lock_key string, token integer?, locked_by string?, locked_by_name string?, by string?, reason "
    "string?, duration_seconds number?}",
    "Timeline {now time, from time `no event after this is missing`, last_id integer `for after`, "
    "events TimelineEvent[], is_complete boolean `false: there were more events than are answered`}",
    NULL
};
