#include "store/dynamodb/dynamodb_layout.h"

#include <string.h>

/* clang-format off */
static const struct layout layouts[] = {
    {
        .name = "belay",
        .keys = { { .name = "lock_key", .before = "", .after = "", .has_key = true } },
        .n_keys = 1,
        .fields = {
            [FIELD_STATUS] = { "status", FORMAT_TEXT },
            [FIELD_LOCK_ID] = { "lock_id", FORMAT_TEXT },
            [FIELD_TOKEN] = { "token", FORMAT_NUMBER },
            [FIELD_OWNER] = { "locked_by", FORMAT_TEXT },
            [FIELD_OWNER_NAME] = { "locked_by_name", FORMAT_TEXT },
            [FIELD_OUTCOME] = { "outcome", FORMAT_TEXT },
            [FIELD_OUTLIVES] = { "outlives_process", FORMAT_SWITCH },
            [FIELD_STALE_NOTED] = { "stale_noted", FORMAT_SWITCH },
            [FIELD_LEASE] = { "ttl_ms", FORMAT_NUMBER },
            [FIELD_HEARTBEAT] = { "heartbeat_ms", FORMAT_NUMBER },
            [FIELD_STALE_AFTER] = { "stale_after_ms", FORMAT_NUMBER },
            [FIELD_EXPIRES] = { "expires_at", FORMAT_MILLIS },
            [FIELD_BEAT] = { "last_heartbeat", FORMAT_MILLIS },
            [FIELD_FREED] = { "freed_at", FORMAT_MILLIS },
            [FIELD_LOCKED_AT] = { "locked_at", FORMAT_MILLIS },
            [FIELD_METADATA] = { "metadata", FORMAT_MAP },
            [FIELD_REVISION] = { "revision", FORMAT_NUMBER },
            [FIELD_TTL] = { "ttl", FORMAT_SECONDS },
        },
        .held_word = "active",
        .completed_word = "released",
        .failed_word = "released",
        .forced_word = "released",
    },
};
/* clang-format on */
enum { N_LAYOUTS = sizeof layouts / sizeof layouts[0] };

const struct layout *layout_builtin(const char *name)
{
    for (size_t i = 0; i < N_LAYOUTS; i++) {
        if (strcmp(layouts[i].name, name) == 0) {
            return &layouts[i];
        }
    }
    return NULL;
}

const char *layout_builtin_names(void)
{
    return "belay, chatops, resource, runvoy, appregistry, deployer, terraform, awslabs, dynamolock";
}
