/* Commits that go wrong: before the inner store sees them, or after. */
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include "support/faulty_store_internal.h"

enum { WRITES_MAX = 8, DROPS_MAX = 16, FEW_EVENTS = 64 };

/* A batch of our own, to be bent. */
struct bent {
    struct belay_batch batch;
    struct belay_write writes[WRITES_MAX];
    struct belay_record values[WRITES_MAX]; /* strings borrowed */
    struct belay_event *events;             /* owned */
    struct belay_record seen[WRITES_MAX];   /* owned: as they were before */
    int64_t now_ms;
    const char *drops[DROPS_MAX];
    struct belay_put_ticket ticket;
    struct belay_put_intent intent;
    char keys[WRITES_MAX][BELAY_KEY_MAX + 1];
    char cut[256];
};

static void copy_batch(struct faulty_store *b, const struct belay_batch *batch, struct bent *bent)
{
    memset(bent, 0, sizeof *bent);
    bent->events = calloc(batch->n_events + 1, sizeof *bent->events);
    if (batch->n_writes > WRITES_MAX || bent->events == NULL) {
        abort();
    }
    bent->batch = *batch;
    bent->batch.writes = bent->writes;
    bent->batch.events = bent->events;
    for (size_t i = 0; i < batch->n_writes; i++) {
        struct belay_write *w = &bent->writes[i];

        *w = batch->writes[i];
        if (b->rule == FAULTY_KEYS_IGNORE_CASE) {
            faulty_store_lower(w->key, bent->keys[i]);
            w->key = bent->keys[i];
        }
        if (w->values != NULL) {
            bent->values[i] = *w->values;
        }
        w->values = &bent->values[i];
        (void)b->inner->ops->get(b->inner, &w->key, 1, &bent->seen[i], &bent->now_ms, NULL);
    }
    for (size_t i = 0; i < batch->n_events; i++) {
        bent->events[i] = batch->events[i];
    }
}

static bool sets_last_id(const struct belay_write *w, const struct belay_record *r)
{
    return (w->set & BELAY_SET_IDENTITY) != 0 && faulty_store_same(r->lock_id, w->values->lock_id);
}

static bool tickets_are_over(const struct belay_record *r, int64_t now_ms)
{
    for (size_t i = 0; i < r->n_tickets; i++) {
        if (r->tickets[i].expires_ms > now_ms) {
            return false;
        }
    }
    return true;
}

static void bend_free(enum faulty_store_rule rule, struct belay_write *w, const struct belay_record *r,
                      int64_t now_ms)
{
    bool last_id = sets_last_id(w, r);
    bool holds = false;

    if (rule == FAULTY_IGNORES_FREE) {
        holds = true;
    } else if (rule == FAULTY_FREE_IGNORES_TICKETS) {
        holds = !r->held && r->n_intents == 0 && !last_id;
    } else if (rule == FAULTY_FREE_IGNORES_TICKETS_THAT_ARE_OVER) {
        holds = !r->held && r->n_intents == 0 && !last_id && tickets_are_over(r, now_ms);
    } else if (rule == FAULTY_FREE_IGNORES_INTENTS) {
        holds = !r->held && r->n_tickets == 0 && !last_id;
    } else if (rule == FAULTY_FREE_ACCEPTS_THE_LAST_ID) {
        holds = !r->held && r->n_tickets == 0 && r->n_intents == 0;
    } else if (rule == FAULTY_FREE_TAKES_WHAT_IS_OVER) {
        holds = r->held && now_ms >= r->expires_ms && r->n_tickets == 0 && r->n_intents == 0;
    }
    w->condition = holds ? BELAY_IF_ANY : w->condition;
    if (rule == FAULTY_FREE_WANTS_NO_RECORD || (rule == FAULTY_FREE_ASKS_FOR_AN_ID_IT_DOES_NOT_SET &&
                                                faulty_store_same(r->lock_id, w->values->lock_id))) {
        w->condition = BELAY_IF_ABSENT;
    }
}

static void bend_open(enum faulty_store_rule rule, struct belay_write *w, const struct belay_record *r)
{
    if (rule == FAULTY_OPEN_MINDS_INTENTS && r->n_intents > 0) {
        w->condition = BELAY_IF_FREE;
    } else if (rule == FAULTY_OPEN_IGNORES_TICKETS && !r->held) {
        w->condition = BELAY_IF_ANY;
    }
}

static void bend_unchanged(enum faulty_store_rule rule, struct belay_write *w, const struct belay_record *r)
{
    if (rule == FAULTY_IGNORES_UNCHANGED) {
        w->condition = BELAY_IF_ANY;
    } else if (rule == FAULTY_CHECKS_THEN_WRITES && w->revision == r->revision) {
        (void)usleep(200);
        w->condition = BELAY_IF_ANY;
    } else if (rule == FAULTY_REVISION_STAYS && w->revision == 1) {
        w->revision = r->revision;
    }
}

static void bend_held_by(enum faulty_store_rule rule, struct belay_write *w, const struct belay_record *r,
                         int64_t now_ms)
{
    bool live = w->condition == BELAY_IF_LIVE_BY;

    if (rule == FAULTY_HELD_BY_ACCEPTS_ANY_ID && !live && r->held) {
        w->lock_id = r->lock_id;
    } else if (rule == FAULTY_IDS_IGNORE_CASE && r->held && strcasecmp(r->lock_id, w->lock_id) == 0) {
        w->lock_id = r->lock_id;
    } else if (rule == FAULTY_HELD_BY_ACCEPTS_WHO_HELD_LAST && !live &&
               faulty_store_same(r->lock_id, w->lock_id)) {
        w->condition = BELAY_IF_ANY;
    } else if (rule == FAULTY_HELD_BY_WANTS_A_LIVE_LEASE) {
        w->condition = BELAY_IF_LIVE_BY;
    } else if (rule == FAULTY_LIVE_BY_IGNORES_EXPIRY) {
        w->condition = BELAY_IF_HELD_BY;
    } else if (rule == FAULTY_LIVE_BY_HOLDS_AT_THE_END && now_ms == r->expires_ms) {
        w->condition = BELAY_IF_HELD_BY;
    } else if (rule == FAULTY_CREATES_ON_RELEASE && r->revision == 0) {
        w->condition = BELAY_IF_ANY;
        w->set |= BELAY_SET_ACQUIRED;
    }
}

static const struct belay_holder *find_holder(const struct belay_record *r, const char *lock_id)
{
    for (size_t i = 0; i < r->n_holders; i++) {
        if (faulty_store_same(r->holders[i].lock_id, lock_id)) {
            return &r->holders[i];
        }
    }
    return NULL;
}

/* The same for a lock that has several holders. */
static void bend_held_by_one(enum faulty_store_rule rule, struct belay_write *w, const struct belay_record *r,
                             int64_t now_ms)
{
    bool found = find_holder(r, w->lock_id) != NULL;

    if (rule == FAULTY_ONE_OF_SEVERAL_ACCEPTS_ANY_ID && w->co_holder && r->n_holders > 0 && !found) {
        w->lock_id = r->holders[0].lock_id;
    } else if (rule == FAULTY_HELD_BY_ACCEPTS_ONE_OF_SEVERAL && found) {
        w->co_holder = true;
    } else if (rule == FAULTY_ONE_HOLDER_LIVES_AS_LONG_AS_ANY && found && now_ms < r->expires_ms) {
        w->condition = BELAY_IF_HELD_BY;
    }
}

static void bend_condition(struct faulty_store *b, struct bent *bent, size_t i)
{
    struct belay_write *w = &bent->writes[i];
    const struct belay_record *r = &bent->seen[i];

    switch (w->condition) {
    case BELAY_IF_ANY:
        break;
    case BELAY_IF_ABSENT:
        w->condition = b->rule == FAULTY_IGNORES_ABSENT ? BELAY_IF_ANY : w->condition;
        break;
    case BELAY_IF_FREE:
        bend_free(b->rule, w, r, bent->now_ms);
        break;
    case BELAY_IF_FREE_FOR_INTENT:
        bend_open(b->rule, w, r);
        break;
    case BELAY_IF_UNCHANGED:
        bend_unchanged(b->rule, w, r);
        break;
    case BELAY_IF_HELD_BY:
    case BELAY_IF_LIVE_BY:
        bend_held_by(b->rule, w, r, bent->now_ms);
        bend_held_by_one(b->rule, w, r, bent->now_ms);
        break;
    case BELAY_IF_OCCUPIED:
        w->condition = b->rule == FAULTY_QUEUES_FOR_WHAT_IS_FREE ? BELAY_IF_ANY : w->condition;
        break;
    case BELAY_IF_NEXT:
        if ((b->rule == FAULTY_IGNORES_TURNS && !r->held && r->n_intents == 0) ||
            (b->rule == FAULTY_TAKES_TURNS_WHILE_HELD && r->held)) {
            w->condition = BELAY_IF_ANY;
        }
        break;
    }
}

static void bend_holders(enum faulty_store_rule rule, struct bent *bent, size_t i)
{
    struct belay_write *w = &bent->writes[i];
    const struct belay_record *r = &bent->seen[i];

    if (rule == FAULTY_KEEPS_HOLDERS_THAT_ARE_DROPPED) {
        w->n_drop_holders = 0;
    } else if (rule == FAULTY_A_RELEASE_ENDS_ALL_HOLDERS && w->co_holder &&
               (w->set & BELAY_SET_RELEASED) != 0) {
        w->drop_holders = bent->drops;
        w->n_drop_holders = 0;
        for (size_t k = 0; k < r->n_holders && w->n_drop_holders < DROPS_MAX; k++) {
            if (!faulty_store_same(r->holders[k].lock_id, w->lock_id)) {
                bent->drops[w->n_drop_holders++] = r->holders[k].lock_id;
            }
        }
    } else if (rule == FAULTY_FORGETS_THE_SLOTS) {
        bent->values[i].slots = 0;
    } else if (rule == FAULTY_A_NEW_HOLDER_FREES_NOTHING && (w->set & BELAY_SET_ACQUIRED) != 0) {
        w->set &= ~(unsigned)BELAY_SET_FREED;
    } else if (rule == FAULTY_ACCEPTS_A_CHANGE_OF_NO_HOLDER && w->co_holder &&
               (w->set & BELAY_SET_ACQUIRED) == 0 && find_holder(r, w->lock_id) == NULL &&
               (w->condition == BELAY_IF_ANY || w->condition == BELAY_IF_UNCHANGED)) {
        w->co_holder = false;
        w->set = 0;
    }
}

static void bend_values(enum faulty_store_rule rule, struct bent *bent, size_t i)
{
    struct belay_write *w = &bent->writes[i];
    struct belay_record *values = &bent->values[i];

    if (rule == FAULTY_CLEARS_UNNAMED_METADATA && w->set != 0 && (w->set & BELAY_SET_METADATA) == 0) {
        w->set |= BELAY_SET_METADATA;
        values->n_metadata = 0;
    } else if (rule == FAULTY_LEASE_SETS_LIVENESS_TOO && (w->set & BELAY_SET_LEASE) != 0) {
        w->set |= BELAY_SET_LIVENESS;
    } else if (rule == FAULTY_TTL_ZERO_IS_ZERO && values->ttl_ms == 0) {
        values->ttl_ms = 1;
    } else if (rule == FAULTY_LEASE_IN_WHOLE_SECONDS) {
        values->ttl_ms = (values->ttl_ms + 999) / 1000 * 1000;
    } else if (rule == FAULTY_EVERY_OUTCOME_IS_COMPLETED) {
        values->outcome = BELAY_OUTCOME_COMPLETED;
    } else if (rule == FAULTY_KEEPS_32_METADATA && values->n_metadata > 32) {
        values->n_metadata = 32;
    } else if (rule == FAULTY_CUTS_LONG_TEXT && values->owner != NULL &&
               strlen(values->owner) >= sizeof bent->cut) {
        memcpy(bent->cut, values->owner, sizeof bent->cut - 1);
        values->owner = bent->cut;
    }
}

/* Have the write drop one more ticket. */
static void drop_too(struct bent *bent, struct belay_write *w, const char *lock_id)
{
    if (w->n_drop_tickets == DROPS_MAX) {
        return;
    }
    for (size_t d = 0; w->drop_tickets != bent->drops && d < w->n_drop_tickets; d++) {
        bent->drops[d] = w->drop_tickets[d];
    }
    bent->drops[w->n_drop_tickets++] = lock_id;
    w->drop_tickets = bent->drops;
}

static void bend_puts(enum faulty_store_rule rule, struct bent *bent, size_t i)
{
    struct belay_write *w = &bent->writes[i];
    const struct belay_record *r = &bent->seen[i];

    if (rule == FAULTY_REPLACED_TICKET_GOES_TO_THE_END && w->put_ticket != NULL) {
        drop_too(bent, w, w->put_ticket->lock_id);
    } else if (rule == FAULTY_TICKETS_FORGET_THE_OWNER && w->put_ticket != NULL) {
        bent->ticket = *w->put_ticket;
        bent->ticket.owner = "";
        w->put_ticket = &bent->ticket;
    } else if (rule == FAULTY_TICKETS_FORGET_THE_MODE && w->put_ticket != NULL) {
        bent->ticket = *w->put_ticket;
        bent->ticket.mode = BELAY_EXCLUSIVE;
        w->put_ticket = &bent->ticket;
    } else if (rule == FAULTY_INTENTS_FORGET_THAT_THEY_ARE_SHARED && w->n_put_intents == 1) {
        bent->intent = *w->put_intents;
        bent->intent.shared = false;
        w->put_intents = &bent->intent;
    } else if (rule == FAULTY_PUTS_CREATE_NOTHING && r->revision == 0 && w->condition == BELAY_IF_ANY) {
        w->put_ticket = NULL;
        w->n_put_intents = 0;
    } else if (rule == FAULTY_DROPS_AFTER_IT_PUTS && w->n_put_intents > 0 && w->n_drop_intents > 0) {
        w->n_put_intents = 0;
    }
}

/* False: the write is an error, which it should not be. */
static bool bend_drops(enum faulty_store_rule rule, struct bent *bent, size_t i)
{
    struct belay_write *w = &bent->writes[i];
    const struct belay_record *r = &bent->seen[i];
    bool drops = w->n_drop_tickets + w->n_drop_intents > 0;

    if (rule == FAULTY_DROPS_ONE_TICKET_ONLY && w->n_drop_tickets > 1) {
        w->n_drop_tickets = 1;
    } else if (rule == FAULTY_CREATES_ON_DROP && r->revision == 0 && w->set == 0 && drops) {
        w->set = BELAY_SET_ACQUIRED | BELAY_SET_RELEASED;
    } else if (rule == FAULTY_DROPPING_NOTHING_IS_AN_ERROR && w->n_drop_tickets > 0) {
        return r->n_tickets > 0 && w->n_drop_intents == 0;
    }
    for (size_t k = 0; rule == FAULTY_TAKING_CLEARS_THE_LINE && k < r->n_tickets; k++) {
        if ((w->set & BELAY_SET_IDENTITY) != 0) {
            drop_too(bent, w, r->tickets[k].lock_id);
        }
    }
    return true;
}

static void bend_events(enum faulty_store_rule rule, struct bent *bent)
{
    for (size_t i = 0; i < bent->batch.n_events; i++) {
        struct belay_event *event = &bent->events[i];

        if (rule == FAULTY_EVENTS_WITHOUT_THE_TOKEN && event->token == BELAY_TOKEN_OF_BATCH) {
            event->token = 0;
        }
        if (rule == FAULTY_EVENTS_WITHOUT_THE_DURATION && event->duration_ms == BELAY_DURATION_HELD) {
            event->duration_ms = -1;
        }
        if (rule == FAULTY_EVENTS_ARE_ALL_OF_THE_FIRST_KEY && event->locked_by == NULL &&
            bent->batch.n_writes > 1) {
            event->locked_by = bent->seen[0].owner;
            event->locked_by_name = bent->seen[0].owner_name;
        }
        if (rule == FAULTY_EVENTS_WITHOUT_THE_METADATA && event->metadata == NULL) {
            static const struct belay_meta none[1];

            event->metadata = none; /* not NULL: explicitly none */
        }
    }
    if (rule == FAULTY_FORGETS_EVENTS) {
        bent->batch.n_events = 0;
    }
}

struct id_search {
    const char *id;
    bool found;
};

static bool has_id(void *context, const struct belay_record *record, int64_t now_ms)
{
    struct id_search *search = context;

    (void)now_ms;
    search->found = search->found || faulty_store_same(record->lock_id, search->id);
    return !search->found;
}

/* Whether the id counts as used although it must not be checked yet, or not for this key. */
static bool wrongly_used(struct faulty_store *b, const struct bent *bent)
{
    struct id_search search = { bent->batch.require_unused_id, false };

    if (search.id == NULL) {
        return false;
    }
    if (b->rule == FAULTY_AN_ID_IS_USED_FOR_ALL_KEYS &&
        !faulty_store_same(bent->seen[0].lock_id, search.id)) {
        (void)b->inner->ops->scan(b->inner, &(struct belay_scan){ 0 }, has_id, &search, NULL);
    }
    return search.found ||
           (b->rule == FAULTY_ASKS_FOR_USED_IDS_FIRST && faulty_store_same(bent->seen[0].lock_id, search.id));
}

/* As one that asks for freezes whatever a batch does. */
static bool hinders_holder(struct faulty_store *b, const struct belay_batch *batch)
{
    struct belay_item list = { 0 };
    bool is_there;

    if (b->rule != FAULTY_FREEZES_HINDER_HOLDERS || !batch->check_freezes ||
        (batch->writes[0].set & BELAY_SET_ACQUIRED) != 0) {
        return false;
    }
    (void)b->inner->ops->item_get(b->inner, BELAY_SPACE_FREEZES, "list", &list, NULL);
    is_there = list.version != 0;
    belay_item_release(&list);
    return is_there;
}

static enum belay_code bend_batch(struct faulty_store *b, struct bent *bent)
{
    for (size_t i = 0; i < bent->batch.n_writes; i++) {
        bend_condition(b, bent, i);
        bend_values(b->rule, bent, i);
        bend_holders(b->rule, bent, i);
        bend_puts(b->rule, bent, i);
        if (!bend_drops(b->rule, bent, i)) {
            return BELAY_INVALID;
        }
    }
    bend_events(b->rule, bent);
    if (b->rule == FAULTY_ACCEPTS_USED_IDS ||
        (b->rule == FAULTY_ONLY_THE_FIRST_KEY_HAS_USED_IDS && bent->batch.n_writes > 1)) {
        bent->batch.require_unused_id = NULL;
    }
    if ((b->rule == FAULTY_REFUSES_AN_EMPTY_BATCH && bent->batch.n_writes == 0) ||
        (b->rule == FAULTY_HAS_ROOM_FOR_FEW_EVENTS && bent->batch.n_events > FEW_EVENTS)) {
        return BELAY_INVALID;
    }
    if (b->rule == FAULTY_IGNORES_FREEZES) {
        bent->batch.check_freezes = false;
    } else if (b->rule == FAULTY_IGNORES_THE_GRACE) {
        bent->batch.freeze_grace_ms = 0;
    }
    if (hinders_holder(b, &bent->batch)) {
        return BELAY_FROZEN;
    }
    return wrongly_used(b, bent) ? BELAY_ID_USED : BELAY_OK;
}

/* ---- after ------------------------------------------------------------- */

/* Commit another write, which is not reported. */
static void commit_secretly(struct faulty_store *b, const struct belay_batch *batch)
{
    struct belay_commit done = { 0 };

    (void)b->inner->ops->commit(b->inner, batch, &done, NULL);
    belay_commit_release(&done);
}

/* Drop the same tickets of the key that sorts next. */
static void spread_drops(struct faulty_store *b, const struct belay_batch *batch)
{
    struct belay_write write = { .key = "l" };

    if (b->rule == FAULTY_A_DROP_REACHES_THE_NEXT_KEY && batch->n_writes > 0 &&
        faulty_store_same(batch->writes[0].key, "k")) {
        write.drop_tickets = batch->writes[0].drop_tickets;
        write.n_drop_tickets = batch->writes[0].n_drop_tickets;
        commit_secretly(b, &(struct belay_batch){ .writes = &write, .n_writes = 1 });
    }
}

static void bend_refusal(struct faulty_store *b, const struct bent *bent, struct belay_commit *out)
{
    if (b->rule == FAULTY_APPLIES_THEN_REFUSES && out->refused > 0) {
        commit_secretly(b, &(struct belay_batch){ .writes = bent->writes, .n_writes = out->refused });
    } else if (b->rule == FAULTY_EVENT_ON_REFUSAL && bent->batch.n_events > 0) {
        commit_secretly(b, &(struct belay_batch){ .events = bent->events, .n_events = bent->batch.n_events });
    } else if (b->rule == FAULTY_REFUSES_WITH_WRONG_INDEX) {
        out->refused = bent->batch.n_writes - 1;
    } else if (b->rule == FAULTY_REFUSES_WITHOUT_RECORD) {
        belay_record_release(&out->records[0]);
        out->n_records = 0;
    }
}

static void bend_token(struct faulty_store *b, struct belay_commit *out)
{
    uint64_t was = out->token;

    if (b->rule == FAULTY_TOKEN_REPEATS && was != 0) {
        out->token = 7;
    } else if (b->rule == FAULTY_TOKEN_PER_HANDLE && was != 0) {
        pthread_mutex_lock(&b->mutex);
        out->token = ++b->tokens;
        pthread_mutex_unlock(&b->mutex);
    } else if (b->rule == FAULTY_TOKEN_WITH_EVERY_WRITE && out->n_records > 0) {
        out->token = out->records[0].token;
    }
    for (size_t i = 0; i < out->n_records && was != 0; i++) {
        if (out->records[i].token == was) {
            out->records[i].token = out->token;
        }
    }
}

static void bend_images(struct faulty_store *b, struct bent *bent, struct belay_commit *out)
{
    for (size_t i = 0; b->rule == FAULTY_STALE_AFTER_IMAGE && i < out->n_records; i++) {
        struct belay_record fresh = out->records[i];

        out->records[i] = bent->seen[i];
        bent->seen[i] = fresh;
    }
    for (size_t i = 0; b->rule == FAULTY_IMAGES_BACKWARDS && i < out->n_records / 2; i++) {
        struct belay_record swap = out->records[i];

        out->records[i] = out->records[out->n_records - 1 - i];
        out->records[out->n_records - 1 - i] = swap;
    }
}

/* Do the first write only, and give the others' records as if nothing were amiss. */
static enum belay_code commit_first_only(struct faulty_store *b, struct bent *bent, struct belay_commit *out,
                                         struct belay_error *err)
{
    size_t n = bent->batch.n_writes;
    struct belay_record *records;
    enum belay_code code;

    bent->batch.n_writes = 1;
    code = b->inner->ops->commit(b->inner, &bent->batch, out, err);
    bent->batch.n_writes = n;
    if (code == BELAY_OK) {
        records = realloc(out->records, n * sizeof *records);
        for (size_t i = 1; i < n; i++) {
            records[i] = bent->seen[i];
            memset(&bent->seen[i], 0, sizeof bent->seen[i]);
        }
        out->records = records;
        out->n_records = n;
    }
    return code;
}

enum belay_code faulty_store_commit(struct belay_store *store, const struct belay_batch *batch,
                                    struct belay_commit *out, struct belay_error *err)
{
    struct faulty_store *b = (struct faulty_store *)store;
    struct bent bent;
    enum belay_code code;

    copy_batch(b, batch, &bent);
    faulty_store_forget(b);
    code = bend_batch(b, &bent);
    if (code == BELAY_OK && b->rule == FAULTY_DROPS_THE_SECOND_WRITE && batch->n_writes > 1) {
        code = commit_first_only(b, &bent, out, err);
    } else if (code == BELAY_OK) {
        code = b->inner->ops->commit(b->inner, &bent.batch, out, err);
    }
    if (code == BELAY_REFUSED) {
        bend_refusal(b, &bent, out);
    } else if (code == BELAY_OK) {
        spread_drops(b, batch);
        bend_token(b, out);
        bend_images(b, &bent, out);
    }
    if (code == BELAY_FROZEN && b->rule == FAULTY_DOES_NOT_SAY_WHAT_IS_FROZEN) {
        free(out->frozen);
        out->frozen = NULL;
    }
    out->now_ms = faulty_store_bend_clock(b, out->now_ms);
    for (size_t i = 0; i < out->n_records; i++) {
        faulty_store_bend_record(b, &out->records[i]);
    }
    for (size_t i = 0; i < batch->n_writes; i++) {
        belay_record_release(&bent.seen[i]);
    }
    free(bent.events);
    return code;
}
