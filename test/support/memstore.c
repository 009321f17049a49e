#include "support/memstore.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"

/* How often wait() looks whether the virtual clock has moved or it was cancelled. */
enum { WAIT_SLICE_MS = 2 };

struct used_id {
    char *key;
    char *lock_id;
};

struct wake_count {
    char *lock_id; /* NULL: all events */
    uint32_t count;
};

struct memstore_data {
    pthread_mutex_t mutex;
    pthread_cond_t woken;
    int64_t (*now_ms)(void *ctx);
    int64_t (*unix_ms)(void *ctx);
    void *ctx;
    struct belay_store_terms terms;
    bool knows_used_ids;

    struct belay_record *records; /* by key */
    size_t n_records;
    uint64_t last_revision;
    uint64_t last_token;
    uint64_t last_seq;
    struct belay_event *events; /* all strings in them are owned */
    size_t n_events;
    size_t cap_events;
    struct used_id *used;
    size_t n_used;
    char **dead;
    size_t n_dead;
    struct wake_count *wakes;
    size_t n_wakes;
    size_t total_wakes;
};

struct memstore {
    struct belay_store base;
    struct memstore_data *data; /* borrowed */
};

static struct memstore_data *data_of(struct belay_store *store)
{
    return ((struct memstore *)store)->data;
}

/* ---- memory ------------------------------------------------------------- */

static void *must(void *memory)
{
    if (memory == NULL) {
        abort();
    }
    return memory;
}

static void *grow(void *array, size_t n, size_t size)
{
    return must(realloc(array, n * size));
}

static char *copy(const char *text)
{
    return must(strdup(text != NULL ? text : ""));
}

static char *copy_or_null(const char *text)
{
    return text != NULL ? copy(text) : NULL;
}

static void replace(char **text, const char *with)
{
    char *old = *text;

    *text = copy(with);
    free(old);
}

static bool same(const char *a, const char *b)
{
    return a != NULL && b != NULL && strcmp(a, b) == 0;
}

/* ---- the machine's own clocks ------------------------------------------- */

static int64_t machine_boot_ms(void *ctx)
{
    (void)ctx;
    return clock_boot_ms();
}

static int64_t machine_unix_ms(void *ctx)
{
    (void)ctx;
    return clock_unix_ms();
}

/* ---- records ------------------------------------------------------------ */

static struct belay_record *find(const struct memstore_data *data, const char *key)
{
    for (size_t i = 0; i < data->n_records; i++) {
        if (strcmp(data->records[i].key, key) == 0) {
            return &data->records[i];
        }
    }
    return NULL;
}

static void make_absent(struct belay_record *record, const char *key)
{
    memset(record, 0, sizeof *record);
    record->key = copy(key);
    record->lock_id = copy("");
    record->owner = copy("");
    record->owner_name = copy("");
}

static struct belay_record *create(struct memstore_data *data, const char *key)
{
    size_t at = 0;

    data->records = grow(data->records, data->n_records + 1, sizeof *data->records);
    while (at < data->n_records && strcmp(data->records[at].key, key) < 0) {
        at++;
    }
    memmove(&data->records[at + 1], &data->records[at], (data->n_records - at) * sizeof *data->records);
    data->n_records++;
    make_absent(&data->records[at], key);
    return &data->records[at];
}

static bool is_dead(const struct memstore_data *data, const char *lock_id)
{
    for (size_t i = 0; i < data->n_dead; i++) {
        if (strcmp(data->dead[i], lock_id) == 0) {
            return true;
        }
    }
    return false;
}

/* The record of `key` as it is, for the caller to keep. */
static void read_record(const struct memstore_data *data, const char *key, struct belay_record *out)
{
    const struct belay_record *record = find(data, key);

    if (record == NULL) {
        make_absent(out, key);
        return;
    }
    if (!belay_record_copy(record, out)) {
        abort();
    }
    for (size_t i = 0; i < out->n_tickets; i++) {
        out->tickets[i].dead = is_dead(data, out->tickets[i].lock_id);
    }
}

/* ---- conditions --------------------------------------------------------- */

static bool is_holder(const struct belay_record *record, const char *lock_id)
{
    return record != NULL && record->held && same(record->lock_id, lock_id);
}

static bool is_free_for(const struct belay_record *record, const struct belay_write *write)
{
    if (record == NULL) {
        return true;
    }
    if (record->held || record->n_tickets > 0 || record->n_intents > 0) {
        return false;
    }
    return (write->set & BELAY_SET_IDENTITY) == 0 || !same(record->lock_id, write->values->lock_id);
}

static bool holds(const struct memstore_data *data, const struct belay_write *write, int64_t now)
{
    const struct belay_record *record = find(data, write->key);

    switch (write->condition) {
    case BELAY_IF_ANY:
        return true;
    case BELAY_IF_ABSENT:
        return record == NULL;
    case BELAY_IF_FREE:
        return is_free_for(record, write);
    case BELAY_IF_OPEN:
        return record == NULL || (!record->held && record->n_tickets == 0);
    case BELAY_IF_UNCHANGED:
        return (record != NULL ? record->revision : 0) == write->revision;
    case BELAY_IF_HELD_BY:
        return is_holder(record, write->lock_id);
    case BELAY_IF_LIVE_BY:
        return is_holder(record, write->lock_id) && now < record->expires_ms;
    }
    abort();
}

static bool was_used(const struct memstore_data *data, const char *key, const char *lock_id)
{
    for (size_t i = 0; i < data->n_used; i++) {
        if (strcmp(data->used[i].key, key) == 0 && strcmp(data->used[i].lock_id, lock_id) == 0) {
            return true;
        }
    }
    return false;
}

static void note_used(struct memstore_data *data, const char *key, const char *lock_id)
{
    if (was_used(data, key, lock_id)) {
        return;
    }
    data->used = grow(data->used, data->n_used + 1, sizeof *data->used);
    data->used[data->n_used].key = copy(key);
    data->used[data->n_used].lock_id = copy(lock_id);
    data->n_used++;
}

/* ---- writes ------------------------------------------------------------- */

/* The clocks and the token of one batch. */
struct moment {
    int64_t now_ms;
    int64_t unix_ms;
    uint64_t token;
    int64_t held_ms; /* how long writes[0] had been held, by what people read */
};

static void set_metadata(struct belay_record *record, const struct belay_record *values)
{
    meta_free(record->metadata, record->n_metadata);
    record->metadata = meta_copy(values->metadata, values->n_metadata);
    record->n_metadata = record->metadata != NULL ? values->n_metadata : 0;
}

static void set_lease(struct belay_record *record, int64_t ttl_ms, const struct moment *moment)
{
    if (ttl_ms > 0) {
        record->ttl_ms = ttl_ms;
    }
    record->expires_ms = moment->now_ms + record->ttl_ms;
    record->expires_at_unix_ms = moment->unix_ms + record->ttl_ms;
    record->beat_ms = moment->now_ms;
    record->beat_at_unix_ms = moment->unix_ms;
    record->stale_noted = false;
}

static void set_freed(struct belay_record *record, const struct moment *moment)
{
    record->freed_ms = moment->now_ms;
    record->freed_at_unix_ms = moment->unix_ms;
}

static void set_fields(struct memstore_data *data, struct belay_record *record,
                       const struct belay_write *write, const struct moment *moment)
{
    const struct belay_record *values = write->values;

    if ((write->set & BELAY_SET_TAKEN) != 0) {
        record->held = true;
        record->outcome = BELAY_OUTCOME_NONE;
        record->locked_at_unix_ms = moment->unix_ms;
    }
    if ((write->set & BELAY_SET_IDENTITY) != 0) {
        replace(&record->lock_id, values->lock_id);
        record->token = moment->token;
        note_used(data, record->key, record->lock_id);
    }
    if ((write->set & BELAY_SET_OWNER) != 0) {
        replace(&record->owner, values->owner);
        replace(&record->owner_name, values->owner_name);
    }
    if ((write->set & BELAY_SET_METADATA) != 0) {
        set_metadata(record, values);
    }
    if ((write->set & BELAY_SET_TERMS) != 0) {
        record->outlives = values->outlives;
        record->heartbeat_ms = values->heartbeat_ms;
        record->stale_after_ms = values->stale_after_ms;
    }
    if ((write->set & BELAY_SET_LEASE) != 0) {
        set_lease(record, values->ttl_ms, moment);
    }
    if ((write->set & BELAY_SET_RELEASED) != 0) {
        record->held = false;
        record->outcome = values->outcome;
        set_freed(record, moment);
    }
    if ((write->set & BELAY_SET_FREED) != 0) {
        set_freed(record, moment);
    }
    if ((write->set & BELAY_SET_STALE_NOTED) != 0) {
        record->stale_noted = true;
    }
}

static void free_ticket(struct belay_ticket *ticket)
{
    free(ticket->lock_id);
    free(ticket->key);
    free(ticket->owner);
    free(ticket->owner_name);
}

static void drop_ticket(struct belay_record *record, const char *lock_id)
{
    for (size_t i = 0; i < record->n_tickets; i++) {
        if (strcmp(record->tickets[i].lock_id, lock_id) == 0) {
            free_ticket(&record->tickets[i]);
            record->n_tickets--;
            memmove(&record->tickets[i], &record->tickets[i + 1],
                    (record->n_tickets - i) * sizeof *record->tickets);
            return;
        }
    }
}

static void drop_intent(struct belay_record *record, const char *lock_id)
{
    for (size_t i = 0; i < record->n_intents; i++) {
        if (strcmp(record->intents[i].lock_id, lock_id) == 0) {
            free(record->intents[i].lock_id);
            free(record->intents[i].key);
            record->n_intents--;
            memmove(&record->intents[i], &record->intents[i + 1],
                    (record->n_intents - i) * sizeof *record->intents);
            return;
        }
    }
}

static void put_ticket(struct memstore_data *data, struct belay_record *record,
                       const struct belay_put_ticket *put, int64_t now)
{
    struct belay_ticket *ticket = NULL;

    for (size_t i = 0; i < record->n_tickets; i++) {
        if (strcmp(record->tickets[i].lock_id, put->lock_id) == 0) {
            ticket = &record->tickets[i];
        }
    }
    if (ticket == NULL) {
        record->tickets = grow(record->tickets, record->n_tickets + 1, sizeof *record->tickets);
        ticket = &record->tickets[record->n_tickets++];
        memset(ticket, 0, sizeof *ticket);
        ticket->seq = ++data->last_seq;
    }
    replace(&ticket->lock_id, put->lock_id);
    replace(&ticket->key, put->key);
    replace(&ticket->owner, put->owner);
    replace(&ticket->owner_name, put->owner_name);
    ticket->since_unix_ms = put->since_unix_ms;
    ticket->expires_ms = now + put->ttl_ms;
}

static void put_intent(struct belay_record *record, const struct belay_put_intent *put, int64_t now)
{
    struct belay_intent *intent;

    drop_intent(record, put->lock_id);
    record->intents = grow(record->intents, record->n_intents + 1, sizeof *record->intents);
    intent = &record->intents[record->n_intents++];
    intent->lock_id = copy(put->lock_id);
    intent->key = copy(put->key);
    intent->expires_ms = now + put->ttl_ms;
}

/* Whether a write brings a record into being that was not there: only who takes or puts does. */
static bool creates(const struct belay_write *write)
{
    return (write->set & BELAY_SET_TAKEN) != 0 || write->put_ticket != NULL || write->put_intent != NULL;
}

static void apply(struct memstore_data *data, const struct belay_write *write, const struct moment *moment)
{
    struct belay_record *record = find(data, write->key);

    if (record == NULL && !creates(write)) {
        return;
    }
    if (record == NULL) {
        record = create(data, write->key);
    }
    set_fields(data, record, write, moment);
    for (size_t i = 0; i < write->n_drop_tickets; i++) {
        drop_ticket(record, write->drop_tickets[i]);
    }
    for (size_t i = 0; i < write->n_drop_intents; i++) {
        drop_intent(record, write->drop_intents[i]);
    }
    if (write->put_ticket != NULL) {
        put_ticket(data, record, write->put_ticket, moment->now_ms);
    }
    if (write->put_intent != NULL) {
        put_intent(record, write->put_intent, moment->now_ms);
    }
    record->revision = ++data->last_revision;
}

/* ---- events ------------------------------------------------------------- */

static void keep_event(struct memstore_data *data, const struct belay_event *event,
                       const struct moment *moment)
{
    struct belay_event *kept;

    if (data->n_events == data->cap_events) {
        data->cap_events = data->cap_events == 0 ? 16 : 2 * data->cap_events;
        data->events = grow(data->events, data->cap_events, sizeof *data->events);
    }
    kept = &data->events[data->n_events++];
    *kept = *event;
    kept->id = data->n_events;
    kept->at_unix_ms = moment->unix_ms;
    kept->token = event->token == BELAY_TOKEN_OF_BATCH ? moment->token : event->token;
    kept->duration_ms = event->duration_ms == BELAY_DURATION_HELD ? moment->held_ms : event->duration_ms;
    kept->type = copy(event->type);
    kept->key = copy(event->key);
    kept->lock_id = copy(event->lock_id);
    kept->locked_by = copy(event->locked_by);
    kept->locked_by_name = copy(event->locked_by_name);
    kept->by = copy_or_null(event->by);
    kept->reason = copy_or_null(event->reason);
    kept->metadata = meta_copy(event->metadata, event->n_metadata);
}

static void free_event(struct belay_event *event)
{
    free((char *)event->type);
    free((char *)event->key);
    free((char *)event->lock_id);
    free((char *)event->locked_by);
    free((char *)event->locked_by_name);
    free((char *)event->by);
    free((char *)event->reason);
    meta_free((struct belay_meta *)event->metadata, event->n_metadata);
}

/* ---- wake-ups ----------------------------------------------------------- */

static struct wake_count *wake_of(struct memstore_data *data, const char *lock_id)
{
    struct wake_count *wake;

    for (size_t i = 0; i < data->n_wakes; i++) {
        if (data->wakes[i].lock_id == lock_id || same(data->wakes[i].lock_id, lock_id)) {
            return &data->wakes[i];
        }
    }
    data->wakes = grow(data->wakes, data->n_wakes + 1, sizeof *data->wakes);
    wake = &data->wakes[data->n_wakes++];
    wake->lock_id = copy_or_null(lock_id);
    wake->count = 0;
    return wake;
}

static void wake_locked(struct memstore_data *data, const char *lock_id)
{
    wake_of(data, lock_id)->count++;
    data->total_wakes++;
    pthread_cond_broadcast(&data->woken);
}

/* ---- the port ----------------------------------------------------------- */

static void memstore_close(struct belay_store *store)
{
    free(store);
}

static enum belay_code memstore_get(struct belay_store *store, const char *const *keys, size_t n,
                                    struct belay_record *out_records, int64_t *out_now_ms,
                                    struct belay_error *err)
{
    struct memstore_data *data = data_of(store);

    (void)err;
    pthread_mutex_lock(&data->mutex);
    for (size_t i = 0; i < n; i++) {
        read_record(data, keys[i], &out_records[i]);
    }
    *out_now_ms = data->now_ms(data->ctx);
    pthread_mutex_unlock(&data->mutex);
    return BELAY_OK;
}

static void answer(const struct memstore_data *data, const struct belay_write *writes, size_t n,
                   struct belay_commit *out)
{
    out->n_records = n;
    out->records = n > 0 ? must(calloc(n, sizeof *out->records)) : NULL;
    for (size_t i = 0; i < n; i++) {
        read_record(data, writes[i].key, &out->records[i]);
    }
}

static bool hands_out_token(const struct belay_batch *batch)
{
    for (size_t i = 0; i < batch->n_writes; i++) {
        if ((batch->writes[i].set & BELAY_SET_IDENTITY) != 0) {
            return true;
        }
    }
    return false;
}

/* All conditions hold: do it. */
static void perform(struct memstore_data *data, const struct belay_batch *batch, struct belay_commit *out)
{
    struct moment moment = { out->now_ms, data->unix_ms(data->ctx), 0, 0 };
    const struct belay_record *first = batch->n_writes > 0 ? find(data, batch->writes[0].key) : NULL;

    if (first != NULL && moment.unix_ms > first->locked_at_unix_ms) {
        moment.held_ms = moment.unix_ms - first->locked_at_unix_ms;
    }
    if (hands_out_token(batch)) {
        moment.token = ++data->last_token;
    }
    for (size_t i = 0; i < batch->n_writes; i++) {
        apply(data, &batch->writes[i], &moment);
    }
    for (size_t i = 0; i < batch->n_events; i++) {
        keep_event(data, &batch->events[i], &moment);
    }
    if (batch->n_events > 0) {
        wake_locked(data, NULL);
    }
    out->token = moment.token;
    answer(data, batch->writes, batch->n_writes, out);
}

/*
 * The conditions come before the memory of used ids: a repeated acquire whose
 * first answer was lost must be refused and find itself in the record (L5).
 */
static enum belay_code commit_locked(struct memstore_data *data, const struct belay_batch *batch,
                                     struct belay_commit *out, struct belay_error *err)
{
    out->now_ms = data->now_ms(data->ctx);
    for (size_t i = 0; i < batch->n_writes; i++) {
        if (!holds(data, &batch->writes[i], out->now_ms)) {
            out->refused = i;
            answer(data, &batch->writes[i], 1, out);
            return BELAY_REFUSED;
        }
    }
    if (data->knows_used_ids && batch->unused_id != NULL && batch->n_writes > 0 &&
        was_used(data, batch->writes[0].key, batch->unused_id)) {
        return error_set(err, BELAY_ID_USED, "lock id '%s' was used before", batch->unused_id);
    }
    perform(data, batch, out);
    return BELAY_OK;
}

static enum belay_code memstore_commit(struct belay_store *store, const struct belay_batch *batch,
                                       struct belay_commit *out, struct belay_error *err)
{
    struct memstore_data *data = data_of(store);
    enum belay_code code;

    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&data->mutex);
    code = commit_locked(data, batch, out, err);
    pthread_mutex_unlock(&data->mutex);
    return code;
}

/* The first record after `after` that the scan asks for; false if there is none. */
static bool scan_next(struct memstore_data *data, const struct belay_scan *scan, const char *after,
                      struct belay_record *out, int64_t *out_now_ms)
{
    bool found = false;

    pthread_mutex_lock(&data->mutex);
    for (size_t i = 0; i < data->n_records && !found; i++) {
        const struct belay_record *record = &data->records[i];

        if ((after == NULL || strcmp(record->key, after) > 0) && (record->held || !scan->held_only) &&
            (scan->prefix == NULL || text_has_prefix(record->key, scan->prefix))) {
            read_record(data, record->key, out);
            found = true;
        }
    }
    *out_now_ms = data->now_ms(data->ctx);
    pthread_mutex_unlock(&data->mutex);
    return found;
}

/* The callbacks run without the mutex, so that they may use the store. */
static enum belay_code memstore_scan(struct belay_store *store, const struct belay_scan *scan,
                                     belay_record_fn fn, void *context, struct belay_error *err)
{
    struct belay_record record;
    char *after = copy_or_null(scan->after);
    bool more = true;
    int64_t now;

    (void)err;
    while (more && scan_next(data_of(store), scan, after, &record, &now)) {
        free(after);
        after = copy(record.key);
        more = fn(context, &record, now);
        belay_record_release(&record);
    }
    free(after);
    return BELAY_OK;
}

static bool event_matches(const struct belay_event *event, const struct belay_events_query *query)
{
    return event->id > query->after && (query->key == NULL || strcmp(event->key, query->key) == 0) &&
           (query->prefix == NULL || text_has_prefix(event->key, query->prefix));
}

/* Events are never changed nor removed while the data lives: what is borrowed stays. */
static enum belay_code memstore_events(struct belay_store *store, const struct belay_events_query *query,
                                       belay_event_fn fn, void *context, struct belay_error *err)
{
    struct memstore_data *data = data_of(store);
    struct belay_event *found = NULL;
    size_t n = 0;
    size_t from;

    (void)err;
    pthread_mutex_lock(&data->mutex);
    for (size_t i = 0; i < data->n_events; i++) {
        if (event_matches(&data->events[i], query)) {
            found = grow(found, n + 1, sizeof *found);
            found[n++] = data->events[i];
        }
    }
    pthread_mutex_unlock(&data->mutex);
    from = query->last > 0 && n > query->last ? n - query->last : 0;
    for (size_t i = from; i < n && fn(context, &found[i]); i++) {
    }
    free(found);
    return BELAY_OK;
}

static struct belay_store_terms memstore_terms(struct belay_store *store)
{
    return data_of(store)->terms;
}

static uint32_t memstore_listen(struct belay_store *store, const char *lock_id)
{
    struct memstore_data *data = data_of(store);
    uint32_t count;

    pthread_mutex_lock(&data->mutex);
    count = wake_of(data, lock_id)->count;
    pthread_mutex_unlock(&data->mutex);
    return count;
}

static void sleep_slice(struct memstore_data *data)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += WAIT_SLICE_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_cond_timedwait(&data->woken, &data->mutex, &until);
}

/*
 * Ends by the test's clock, or by the machine's, whichever is first: a virtual
 * clock that stands still must not hang a thread.
 */
static void memstore_wait(struct belay_store *store, const char *lock_id, uint32_t listened,
                          int64_t timeout_ms, struct belay_cancel *cancel)
{
    struct memstore_data *data = data_of(store);
    int64_t machine_end = clock_boot_ms() + timeout_ms;
    int64_t end;

    pthread_mutex_lock(&data->mutex);
    end = data->now_ms(data->ctx) + timeout_ms;
    while (wake_of(data, lock_id)->count == listened && data->now_ms(data->ctx) < end &&
           clock_boot_ms() < machine_end && !(cancel != NULL && belay_cancel_requested(cancel))) {
        sleep_slice(data);
    }
    pthread_mutex_unlock(&data->mutex);
}

static void memstore_wake(struct belay_store *store, const char *lock_id)
{
    struct memstore_data *data = data_of(store);

    pthread_mutex_lock(&data->mutex);
    wake_locked(data, lock_id);
    pthread_mutex_unlock(&data->mutex);
}

static const struct belay_store_ops memstore_ops = {
    .name = "memory",
    .close = memstore_close,
    .get = memstore_get,
    .commit = memstore_commit,
    .scan = memstore_scan,
    .events = memstore_events,
    .terms = memstore_terms,
    .listen = memstore_listen,
    .wait = memstore_wait,
    .wake = memstore_wake,
};

/* ---- the test's side ---------------------------------------------------- */

struct memstore_data *memstore_data_new(int64_t (*now_ms)(void *ctx), int64_t (*unix_ms)(void *ctx),
                                        void *ctx)
{
    struct memstore_data *data = must(calloc(1, sizeof *data));
    pthread_condattr_t attributes;

    pthread_mutex_init(&data->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&data->woken, &attributes);
    pthread_condattr_destroy(&attributes);
    data->now_ms = now_ms != NULL ? now_ms : machine_boot_ms;
    data->unix_ms = unix_ms != NULL ? unix_ms : machine_unix_ms;
    data->ctx = ctx;
    data->terms = (struct belay_store_terms){ 0, 1000, 1000, 60000 };
    data->knows_used_ids = true;
    return data;
}

void memstore_data_free(struct memstore_data *data)
{
    if (data == NULL) {
        return;
    }
    for (size_t i = 0; i < data->n_records; i++) {
        belay_record_release(&data->records[i]);
    }
    for (size_t i = 0; i < data->n_events; i++) {
        free_event(&data->events[i]);
    }
    for (size_t i = 0; i < data->n_used; i++) {
        free(data->used[i].key);
        free(data->used[i].lock_id);
    }
    for (size_t i = 0; i < data->n_dead; i++) {
        free(data->dead[i]);
    }
    for (size_t i = 0; i < data->n_wakes; i++) {
        free(data->wakes[i].lock_id);
    }
    free(data->records);
    free(data->events);
    free(data->used);
    free(data->dead);
    free(data->wakes);
    pthread_cond_destroy(&data->woken);
    pthread_mutex_destroy(&data->mutex);
    free(data);
}

struct belay_store *memstore_open(struct memstore_data *data)
{
    struct memstore *store = must(calloc(1, sizeof *store));

    store->base.ops = &memstore_ops;
    store->data = data;
    return &store->base;
}

void memstore_set_terms(struct memstore_data *data, struct belay_store_terms terms)
{
    data->terms = terms;
}

void memstore_set_knows_used_ids(struct memstore_data *data, bool knows)
{
    data->knows_used_ids = knows;
}

void memstore_set_waiter_dead(struct memstore_data *data, const char *lock_id, bool dead)
{
    size_t kept = 0;

    pthread_mutex_lock(&data->mutex);
    for (size_t i = 0; i < data->n_dead; i++) {
        if (strcmp(data->dead[i], lock_id) == 0) {
            free(data->dead[i]);
        } else {
            data->dead[kept++] = data->dead[i];
        }
    }
    data->n_dead = kept;
    if (dead) {
        data->dead = grow(data->dead, kept + 1, sizeof *data->dead);
        data->dead[data->n_dead++] = copy(lock_id);
    }
    pthread_mutex_unlock(&data->mutex);
}

const struct belay_record *memstore_records(const struct memstore_data *data, size_t *out_n)
{
    *out_n = data->n_records;
    return data->records;
}

size_t memstore_event_count(struct memstore_data *data)
{
    size_t n;

    pthread_mutex_lock(&data->mutex);
    n = data->n_events;
    pthread_mutex_unlock(&data->mutex);
    return n;
}

size_t memstore_wake_count(struct memstore_data *data)
{
    size_t n;

    pthread_mutex_lock(&data->mutex);
    n = data->total_wakes;
    pthread_mutex_unlock(&data->mutex);
    return n;
}
