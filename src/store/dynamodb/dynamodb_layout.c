#include "store/dynamodb/dynamodb_layout.h"

#include <stdio.h>
#include <string.h>

#define WHOLE_KEY(attribute)                                                                                 \
    {                                                                                                        \
        .name = (attribute), .before = "", .after = "", .has_key = true                                      \
    }

/* Amazon's lock client and its port to Go write the same attributes. */
#define LEASE_DURATION_LAYOUT(layout_name)                                                                   \
    {                                                                                                        \
        .name = (layout_name), .keys = { WHOLE_KEY("key") }, .n_keys = 1, .queue_prefix = "belay-line#",     \
        .fields = { [FIELD_OWNER] = { "ownerName", FORMAT_TEXT } }, .lease_text = "leaseDuration",           \
        .released_flag = "isReleased", .release_deletes = true, .read_only = true                            \
    }

/*
 * The layouts of the five documents (docs/requirements.md) have the names and types of their
 * programs. Where a document has no lock id (000, 003), belay adds one attribute for it, which
 * those programs ignore.
 */
/* clang-format off */
static const struct layout layouts[] = {
    {
        .name = "belay",
        .keys = { WHOLE_KEY("lock_key") },
        .n_keys = 1,
        .fields = {
            [FIELD_STATUS] = { "status", FORMAT_TEXT },
            [FIELD_LOCK_ID] = { "lock_id", FORMAT_TEXT },
            [FIELD_RELEASED_ID] = { "released_id", FORMAT_TEXT },
            [FIELD_TOKEN] = { "token", FORMAT_NUMBER },
            [FIELD_OWNER] = { "locked_by", FORMAT_TEXT },
            [FIELD_OWNER_NAME] = { "locked_by_name", FORMAT_TEXT },
            [FIELD_ACQUIRED_BY] = { "acquired_by", FORMAT_TEXT },
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
    {
        .name = "chatops", /* S0.3 */
        .keys = { WHOLE_KEY("lockKey") },
        .n_keys = 1,
        .queue_prefix = "belay-line#",
        .fields = {
            [FIELD_STATUS] = { "status", FORMAT_TEXT },
            [FIELD_LOCK_ID] = { "lockId", FORMAT_TEXT },
            [FIELD_OWNER] = { "lockedBy", FORMAT_TEXT },
            [FIELD_OWNER_NAME] = { "lockedByName", FORMAT_TEXT },
            [FIELD_LOCKED_AT] = { "lockedAt", FORMAT_ISO_MS },
            [FIELD_EXPIRES] = { "ttl", FORMAT_SECONDS },
            [FIELD_FREED] = { "completedAt", FORMAT_ISO_MS },
        },
        .extras = {
            { .name = "component", .meta = "component" },
            { .name = "environment", .meta = "environment" },
            { .name = "correlationId", .meta = "correlation_id" },
        },
        .n_extras = 3,
        .has_key_parts = true,
        .held_word = "IN_PROGRESS",
        .completed_word = "COMPLETED",
        .failed_word = "FAILED",
        .forced_word = "FAILED",
    },
    {
        .name = "resource", /* S1.1 */
        .keys = { { .name = "PK", .before = "LOCK#", .after = "", .has_key = true },
                  { .name = "SK", .before = "LOCK", .after = "" } },
        .n_keys = 2,
        .queue_prefix = "BELAY-LINE#",
        .fields = {
            [FIELD_LOCK_ID] = { "LockID", FORMAT_TEXT },
            [FIELD_OWNER] = { "Owner", FORMAT_TEXT },
            [FIELD_LOCKED_AT] = { "AcquiredAt", FORMAT_RFC3339 },
            [FIELD_EXPIRES] = { "ExpiresAt", FORMAT_RFC3339 },
            [FIELD_TTL] = { "TTL", FORMAT_SECONDS },
        },
        .release_deletes = true,
    },
    {
        .name = "runvoy", /* S2.2 */
        .keys = { WHOLE_KEY("lock_name") },
        .n_keys = 1,
        .queue_prefix = "belay-line#",
        .fields = {
            [FIELD_STATUS] = { "status", FORMAT_TEXT },
            [FIELD_LOCK_ID] = { "lock_id", FORMAT_TEXT },
            [FIELD_OWNER] = { "execution_id", FORMAT_TEXT },
            [FIELD_OWNER_NAME] = { "user_email", FORMAT_TEXT },
            [FIELD_LOCKED_AT] = { "acquired_at", FORMAT_RFC3339 },
            [FIELD_EXPIRES] = { "expires_at", FORMAT_SECONDS },
            [FIELD_METADATA] = { "metadata", FORMAT_MAP },
        },
        .owner_name_meta = "user_email",
        .release_expires = true,
        .held_word = "active",
        .completed_word = "released",
        .failed_word = "released",
        .forced_word = "released",
    },
    {
        .name = "appregistry", /* S3.1 */
        .keys = { { .name = "app_name", .before = "LOCK#DB#", .after = "", .has_key = true } },
        .n_keys = 1,
        .queue_prefix = "LOCK#BELAY-LINE#",
        .fields = {
            [FIELD_LOCK_ID] = { "lock_id", FORMAT_TEXT },
            [FIELD_OWNER] = { "owner_id", FORMAT_TEXT },
            [FIELD_LOCKED_AT] = { "created_at", FORMAT_SECONDS },
            [FIELD_EXPIRES] = { "ttl", FORMAT_SECONDS },
        },
        .extras = {
            { .name = "lock_type", .value = "database" },
            { .name = "db_identifier", .value = "{key}" },
        },
        .n_extras = 2,
        .release_deletes = true,
        .takes_whole_key = true,
    },
    {
        .name = "deployer", /* S4.4 */
        .keys = { WHOLE_KEY("lockKey") },
        .n_keys = 1,
        .queue_prefix = "belay-line#",
        .fields = {
            [FIELD_LOCK_ID] = { "lockId", FORMAT_TEXT },
            [FIELD_OWNER] = { "lockedBy", FORMAT_TEXT },
            [FIELD_LOCKED_AT] = { "lockedAt", FORMAT_SECONDS },
            [FIELD_EXPIRES] = { "expiresAt", FORMAT_SECONDS },
            [FIELD_BEAT] = { "lastHeartbeat", FORMAT_SECONDS },
            [FIELD_METADATA] = { "metadata", FORMAT_MAP },
        },
        .release_deletes = true,
        .heartbeat_ms = 30000,
        .stale_after_ms = 120000,
    },
    {
        .name = "terraform",
        .keys = { WHOLE_KEY("LockID") },
        .n_keys = 1,
        .queue_prefix = "belay-line#",
        .info = "Info",
        .release_deletes = true,
        .read_only = true,
    },
    LEASE_DURATION_LAYOUT("awslabs"),
    LEASE_DURATION_LAYOUT("dynamolock"),
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

bool layout_word_is_free(const struct layout *layout, const char *word)
{
    return (layout->completed_word != NULL && strcmp(word, layout->completed_word) == 0) ||
           (layout->failed_word != NULL && strcmp(word, layout->failed_word) == 0) ||
           (layout->forced_word != NULL && strcmp(word, layout->forced_word) == 0);
}

/* "build-my-app-prod" is build, my-app and prod: the first and the last part contain no '-'. */
char *layout_key_part(const struct layout *layout, const char *key, const char *part)
{
    const char *first = strchr(key, '-');
    const char *last = strrchr(key, '-');

    if (!layout->has_key_parts || first == NULL || first == last) {
        return NULL;
    }
    if (strcmp(part, "command") == 0) {
        return strndup(key, (size_t)(first - key));
    }
    if (strcmp(part, "component") == 0) {
        return strndup(first + 1, (size_t)(last - first - 1));
    }
    return strcmp(part, "environment") == 0 ? strdup(last + 1) : NULL;
}

const char *layout_short_key(const struct layout *layout, const char *key)
{
    size_t n = strlen(layout->keys[0].before);

    return layout->takes_whole_key && strncmp(key, layout->keys[0].before, n) == 0 && key[n] != '\0' ? key + n
                                                                                                     : key;
}
