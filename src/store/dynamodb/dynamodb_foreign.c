/*
 * Items that other programs write, too, and not always well-formed: times as text or numbers,
 * in any zone; locks without an owner or an expiry, which are free; and locks without an id
 * for each acquisition.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fnv.h"
#include "base/text.h"
#include "store/dynamodb/dynamodb_internal.h"

#define FOREIGN_PREFIX "foreign-"
#define NEVER_MS INT64_C(253402300799000) /* the last second of the year 9999 */

static void warn_free(const struct ddb_store *store, const char *key, const char *what)
{
    char text[700];

    if (store->on_warning != NULL) {
        (void)snprintf(text, sizeof text, "lock '%.512s' in table '%.100s' has no %s, and counts as free",
                       key, store->params.table, what);
        store->on_warning(store->warn_context, text);
    }
}

bool ddb_is_foreign_id(const char *lock_id)
{
    return text_has_prefix(lock_id, FOREIGN_PREFIX);
}

enum { FOREIGN_ID_SIZE = 40 };

/* The id of a holder without one: made of its name and the time of its acquisition. */
static bool foreign_id_of(const struct layout *layout, const json_t *item, char out[FOREIGN_ID_SIZE])
{
    const char *owner = item_text(item, layout_name_of(layout, FIELD_OWNER));
    const char *since = item_text(item, layout_name_of(layout, FIELD_LOCKED_AT));

    if (owner == NULL || item_text(item, layout_name_of(layout, FIELD_LOCK_ID)) != NULL) {
        return false;
    }
    (void)snprintf(out, FOREIGN_ID_SIZE, FOREIGN_PREFIX "%016" PRIx64,
                   fnv_field(fnv_field(FNV_INIT, owner), since));
    return true;
}

static void replace_field(char **text, const char *with, bool *ok)
{
    free(*text);
    *text = strdup(with == NULL ? "" : with);
    *ok = *ok && *text != NULL;
}

/* Terraform: one attribute contains everything as JSON, and no lease. */
static void read_info(const struct layout *layout, const json_t *item, struct belay_record *record, bool *ok)
{
    static const struct {
        const char *member;
        const char *meta;
    } shown[] = { { "Operation", "operation" }, { "Path", "path" } };
    const char *text = item_text(item, layout->info);
    json_t *info = text == NULL ? NULL : json_loads(text, 0, NULL);

    record->held = text != NULL;
    if (!record->held) {
        return;
    }
    replace_field(&record->lock_id, json_string_value(json_object_get(info, "ID")), ok);
    replace_field(&record->owner, json_string_value(json_object_get(info, "Who")), ok);
    replace_field(&record->owner_name, record->owner, ok);
    (void)ddb_parse_time(json_string_value(json_object_get(info, "Created")), &record->locked_at_unix_ms);
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        const char *value = json_string_value(json_object_get(info, shown[i].member));

        if (value != NULL) {
            ddb_add_meta(record, shown[i].meta, value, ok);
        }
    }
    record->expires_ms = NEVER_MS;
    record->expires_at_unix_ms = NEVER_MS;
    json_decref(info);
}

/* The lock client for Java writes milliseconds, the one for Go "20s". Neither says when the lease began. */
static void read_lease_text(struct ddb_store *store, const struct layout *layout, const json_t *item,
                            struct belay_record *record)
{
    const char *text = item_text(item, layout->lease_text);
    char *end;

    record->held = text != NULL && item_text(item, layout->released_flag) == NULL;
    if (!record->held) {
        return;
    }
    record->ttl_ms = strtoll(text, &end, 10);
    if (*end != '\0' && !belay_parse_duration(text, &record->ttl_ms)) {
        record->ttl_ms = 0;
    }
    record->last_heartbeat_ms = ddb_clock_judge_ms(store);
    record->expires_ms = record->last_heartbeat_ms + record->ttl_ms;
    record->expires_at_unix_ms = record->expires_ms;
}

static bool decide_held(struct ddb_store *store, const char *key, const json_t *item,
                        const struct belay_record *record)
{
    const struct layout *layout = store->layout;
    const char *word = item_text(item, layout_name_of(layout, FIELD_STATUS));

    if (word != NULL && layout_word_is_free(layout, word)) {
        return false;
    }
    if (record->owner[0] == '\0') {
        warn_free(store, key, "owner");
        return false;
    }
    if (record->expires_ms == 0) {
        warn_free(store, key, "end that can be read");
        return false;
    }
    return true;
}

void ddb_foreign_holder(struct ddb_store *store, const char *key, const json_t *item,
                        struct belay_record *record, bool *ok)
{
    const struct layout *layout = store->layout;
    char id[FOREIGN_ID_SIZE];

    if (layout->info != NULL) {
        read_info(layout, item, record, ok);
    } else if (layout->lease_text != NULL) {
        read_lease_text(store, layout, item, record);
    } else {
        record->held = decide_held(store, key, item, record);
    }
    if (record->held) {
        record->outcome = BELAY_OUTCOME_NONE;
        record->heartbeat_ms = record->heartbeat_ms > 0 ? record->heartbeat_ms : layout->heartbeat_ms;
        record->stale_after_ms = record->stale_after_ms > 0 ? record->stale_after_ms : layout->stale_after_ms;
    }
    if (record->lock_id[0] == '\0' && foreign_id_of(layout, item, id)) {
        replace_field(&record->lock_id, id, ok);
    }
}
