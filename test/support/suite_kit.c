/* The writes and readings that most cases are made of. */
#include "support/suite_kit.h"

struct belay_record *holder(struct suite *s, const char *lock_id, int64_t ttl_ms)
{
    struct belay_record *values = suite_alloc(s, sizeof *values);
    struct belay_meta *metadata = suite_alloc(s, 2 * sizeof *metadata);

    metadata[0] = (struct belay_meta){ "for", suite_text(s, "the sake of %s", lock_id) };
    metadata[1] = (struct belay_meta){ "branch", "main" };
    values->lock_id = suite_text(s, "%s", lock_id);
    values->owner = suite_text(s, "owner of %s", lock_id);
    values->owner_name = suite_text(s, "%s@example", lock_id);
    values->acquired_by = suite_text(s, "token of %s", lock_id);
    values->metadata = metadata;
    values->n_metadata = 2;
    values->ttl_ms = ttl_ms;
    values->heartbeat_ms = 30000;
    values->stale_after_ms = 120000;
    values->outcome = BELAY_OUTCOME_COMPLETED;
    values->stale_reported = true;
    return values;
}

const struct answer *take_for(struct suite *s, const char *key, const char *lock_id, int64_t ttl_ms)
{
    return commit1(s, &(struct belay_write){ .key = key,
                                             .condition = BELAY_IF_FREE,
                                             .set = BELAY_SET_HOLDER,
                                             .values = holder(s, lock_id, ttl_ms) });
}

const struct answer *take(struct suite *s, const char *key, const char *lock_id)
{
    return take_for(s, key, lock_id, LONG_MS);
}

const struct answer *release(struct suite *s, const char *key, const char *lock_id)
{
    return commit1(s, &(struct belay_write){ .key = key,
                                             .condition = BELAY_IF_HELD_BY,
                                             .lock_id = lock_id,
                                             .set = BELAY_SET_RELEASED,
                                             .values = holder(s, lock_id, LONG_MS) });
}

const struct answer *queue(struct suite *s, const char *key, const char *lock_id, int64_t ttl_ms)
{
    struct belay_put_ticket ticket = { .lock_id = lock_id,
                                       .key = key,
                                       .owner = suite_text(s, "owner of %s", lock_id),
                                       .owner_name = suite_text(s, "%s@example", lock_id),
                                       .since_unix_ms = 1730816000123,
                                       .ttl_ms = ttl_ms };

    return commit1(s, &(struct belay_write){ .key = key,
                                             .condition = BELAY_IF_UNCHANGED,
                                             .revision = look(s, s->a, key)->revision,
                                             .put_ticket = &ticket });
}

const struct answer *intend(struct suite *s, const char *key, const char *lock_id, int64_t ttl_ms)
{
    struct belay_put_intent intent = { .lock_id = lock_id,
                                       .key = suite_text(s, "%s:below", key),
                                       .ttl_ms = ttl_ms };

    return commit1(s, &(struct belay_write){ .key = key,
                                             .condition = BELAY_IF_UNCHANGED,
                                             .revision = look(s, s->a, key)->revision,
                                             .put_intents = &intent,
                                             .n_put_intents = 1 });
}

const struct answer *unqueue(struct suite *s, const char *key, const char *lock_id)
{
    return commit1(s, &(struct belay_write){ .key = key, .drop_tickets = &lock_id, .n_drop_tickets = 1 });
}

const struct answer *acquire_with(struct suite *s, const char *key, const char *lock_id,
                                  const struct belay_batch *options)
{
    struct belay_batch batch = *options;
    struct belay_record *values = holder(s, lock_id, LONG_MS);
    struct belay_write write = {
        .key = key, .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER, .values = values
    };
    struct belay_event event = { .level = BELAY_LEVEL_INFO,
                                 .type = "lock.acquired",
                                 .key = key,
                                 .lock_id = lock_id,
                                 .locked_by = values->owner,
                                 .locked_by_name = values->owner_name,
                                 .metadata = values->metadata,
                                 .n_metadata = values->n_metadata,
                                 .token = BELAY_TOKEN_OF_BATCH,
                                 .duration_ms = -1 };

    batch.writes = &write;
    batch.n_writes = 1;
    batch.events = &event;
    batch.n_events = 1;
    return commit(s, s->a, &batch);
}

const struct answer *claim_with(struct suite *s, const char *lock_id, const struct belay_batch *options)
{
    struct belay_batch batch = *options;
    struct belay_record *values = holder(s, lock_id, LONG_MS);
    struct belay_write write = { .key = "k",
                                 .condition = BELAY_IF_NEXT,
                                 .lock_id = lock_id,
                                 .set = BELAY_SET_HOLDER,
                                 .values = values,
                                 .drop_tickets = &lock_id,
                                 .n_drop_tickets = 1 };
    struct belay_event events[2] = { { .level = BELAY_LEVEL_INFO,
                                       .type = "wait.ended",
                                       .key = "k",
                                       .lock_id = lock_id,
                                       .locked_by = values->owner,
                                       .locked_by_name = values->owner_name,
                                       .metadata = values->metadata,
                                       .n_metadata = values->n_metadata,
                                       .reason = "acquired",
                                       .duration_ms = 7 } };

    events[1] = events[0];
    events[1].type = "lock.acquired";
    events[1].reason = NULL;
    events[1].token = BELAY_TOKEN_OF_BATCH;
    events[1].duration_ms = -1;
    batch.writes = &write;
    batch.n_writes = 1;
    batch.events = events;
    batch.n_events = 2;
    return commit(s, s->a, &batch);
}

const struct answer *check_only(struct suite *s, const char *key, enum belay_condition condition)
{
    return commit1(s, &(struct belay_write){ .key = key,
                                             .condition = condition,
                                             .set = BELAY_SET_FREED,
                                             .values = holder(s, "check-only", LONG_MS) });
}

size_t intent_at(const struct belay_record *record, const char *lock_id)
{
    size_t i = 0;

    while (i < record->n_intents && !same_text(record->intents[i].lock_id, lock_id)) {
        i++;
    }
    return i;
}

const char *meta_of(const struct belay_record *record, const char *name)
{
    for (size_t i = 0; i < record->n_metadata; i++) {
        if (same_text(record->metadata[i].name, name)) {
            return record->metadata[i].value;
        }
    }
    return NULL;
}

struct key_list {
    struct suite *s;
    const char *text;
};

static bool add_key(void *context, const struct belay_record *record, int64_t now_ms)
{
    struct key_list *list = context;

    list->s->now_ms = now_ms;
    list->text = suite_text(list->s, "%s%s ", list->text, record->key);
    return true;
}

const char *scan_keys(struct suite *s, struct belay_store *store, const struct belay_scan *scan)
{
    struct key_list list = { s, "" };

    return store->ops->scan(store, scan, add_key, &list, NULL) == BELAY_OK ? list.text : "(scan failed)";
}
