#include "support/memstore.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/text.h"
#include "support/memstore_internal.h"

/* How often wait() looks whether the virtual clock has moved or it was cancelled. */
enum { WAIT_SLICE_MS = 1 };

struct memstore {
    struct belay_store base;
    struct memstore_data *data; /* borrowed */
};

struct memstore_data *mem_data(struct belay_store *store)
{
    return ((struct memstore *)store)->data;
}

/* ---- memory ------------------------------------------------------------- */

void *mem_must(void *memory)
{
    if (memory == NULL) {
        abort();
    }
    return memory;
}

void *mem_grow(void *array, size_t n, size_t size)
{
    return mem_must(realloc(array, n * size));
}

char *mem_copy(const char *text)
{
    return mem_must(strdup(text != NULL ? text : ""));
}

char *mem_copy_or_null(const char *text)
{
    return text != NULL ? mem_copy(text) : NULL;
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

struct belay_record *mem_find(const struct memstore_data *data, const char *key)
{
    for (size_t i = 0; i < data->n_records; i++) {
        if (strcmp(data->records[i].key, key) == 0) {
            return &data->records[i];
        }
    }
    return NULL;
}

void mem_make_absent(struct belay_record *record, const char *key)
{
    memset(record, 0, sizeof *record);
    record->key = mem_copy(key);
    record->lock_id = mem_copy("");
    record->owner = mem_copy("");
    record->owner_name = mem_copy("");
    record->acquired_by = mem_copy("");
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

void mem_read(const struct memstore_data *data, const char *key, struct belay_record *out)
{
    const struct belay_record *record = mem_find(data, key);

    if (record == NULL) {
        mem_make_absent(out, key);
        return;
    }
    if (!belay_record_copy(record, out)) {
        abort();
    }
    for (size_t i = 0; i < out->n_tickets; i++) {
        out->tickets[i].dead = is_dead(data, out->tickets[i].lock_id);
    }
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
    data->wakes = mem_grow(data->wakes, data->n_wakes + 1, sizeof *data->wakes);
    wake = &data->wakes[data->n_wakes++];
    wake->lock_id = mem_copy_or_null(lock_id);
    wake->count = 0;
    return wake;
}

void mem_wake(struct memstore_data *data, const char *lock_id)
{
    wake_of(data, lock_id)->count++;
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
    struct memstore_data *data = mem_data(store);

    (void)err;
    pthread_mutex_lock(&data->mutex);
    for (size_t i = 0; i < n; i++) {
        mem_read(data, keys[i], &out_records[i]);
    }
    *out_now_ms = data->now_ms(data->ctx);
    pthread_mutex_unlock(&data->mutex);
    return BELAY_OK;
}

static enum belay_code memstore_commit(struct belay_store *store, const struct belay_batch *batch,
                                       struct belay_commit *out, struct belay_error *err)
{
    struct memstore_data *data = mem_data(store);
    enum belay_code code;

    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&data->mutex);
    code = mem_commit(data, batch, out, err);
    pthread_mutex_unlock(&data->mutex);
    return code;
}

/* The first record after `after` that matches the scan; false if there is none. */
static bool scan_next(struct memstore_data *data, const struct belay_scan *scan, const char *after,
                      struct belay_record *out, int64_t *out_now_ms)
{
    bool found = false;

    pthread_mutex_lock(&data->mutex);
    for (size_t i = 0; i < data->n_records && !found; i++) {
        const struct belay_record *record = &data->records[i];

        if ((after == NULL || strcmp(record->key, after) > 0) && (record->held || !scan->held_only) &&
            (scan->prefix == NULL || text_has_prefix(record->key, scan->prefix))) {
            mem_read(data, record->key, out);
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
    char *after = mem_copy_or_null(scan->after);
    bool more = true;
    int64_t now;

    (void)err;
    while (more && scan_next(mem_data(store), scan, after, &record, &now)) {
        free(after);
        after = mem_copy(record.key);
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
    struct memstore_data *data = mem_data(store);
    struct belay_event *found = NULL;
    size_t n = 0;
    size_t from;

    (void)err;
    pthread_mutex_lock(&data->mutex);
    for (size_t i = 0; i < data->n_events; i++) {
        if (event_matches(&data->events[i], query)) {
            found = mem_grow(found, n + 1, sizeof *found);
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

static struct belay_store_capabilities memstore_capabilities(struct belay_store *store)
{
    return mem_data(store)->capabilities;
}

static uint32_t memstore_listen(struct belay_store *store, const char *lock_id)
{
    struct memstore_data *data = mem_data(store);
    uint32_t count;

    pthread_mutex_lock(&data->mutex);
    count = wake_of(data, lock_id)->count;
    pthread_mutex_unlock(&data->mutex);
    return count;
}

/*
 * Not on a condition variable: with several threads and short timeouts one of glibc 2.36 hung here, in
 * pthread_cond_signal(). Its bug 25847 is about such a variable.
 */
static void sleep_slice(struct memstore_data *data)
{
    pthread_mutex_unlock(&data->mutex);
    nanosleep(&(struct timespec){ .tv_nsec = WAIT_SLICE_MS * 1000000L }, NULL);
    pthread_mutex_lock(&data->mutex);
}

/*
 * Ends by the test's clock, or by the machine's, whichever is first: a virtual
 * clock that stands still must not hang a thread.
 */
static void memstore_wait(struct belay_store *store, const char *lock_id, uint32_t listened,
                          int64_t timeout_ms, struct belay_cancel *cancel)
{
    struct memstore_data *data = mem_data(store);
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
    struct memstore_data *data = mem_data(store);

    pthread_mutex_lock(&data->mutex);
    mem_wake(data, lock_id);
    pthread_mutex_unlock(&data->mutex);
}

static const struct belay_store_ops memstore_ops = {
    .name = "memory",
    .close = memstore_close,
    .get = memstore_get,
    .commit = memstore_commit,
    .scan = memstore_scan,
    .events = memstore_events,
    .capabilities = memstore_capabilities,
    .listen = memstore_listen,
    .wait = memstore_wait,
    .wake = memstore_wake,
};

/* ---- the test's side ---------------------------------------------------- */

struct memstore_data *memstore_data_new(int64_t (*now_ms)(void *ctx), int64_t (*unix_ms)(void *ctx),
                                        void *ctx)
{
    struct memstore_data *data = mem_must(calloc(1, sizeof *data));

    data->ops = memstore_ops;
    pthread_mutex_init(&data->mutex, NULL);
    data->now_ms = now_ms != NULL ? now_ms : machine_boot_ms;
    data->unix_ms = unix_ms != NULL ? unix_ms : machine_unix_ms;
    data->ctx = ctx;
    data->capabilities = (struct belay_store_capabilities){ .is_local = true,
                                                            .claim_ms = 1000,
                                                            .poll_ms = 1000,
                                                            .ticket_ttl_ms = 60000,
                                                            .takes_turns = true,
                                                            .has_modes = true };
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
        mem_free_event(&data->events[i]);
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
    for (size_t i = 0; i < data->n_items; i++) {
        free(data->items[i].space);
        belay_item_release(&data->items[i].item);
    }
    free(data->records);
    free(data->events);
    free(data->used);
    free(data->dead);
    free(data->wakes);
    free(data->items);
    pthread_mutex_destroy(&data->mutex);
    free(data);
}

struct belay_store *memstore_open(struct memstore_data *data)
{
    struct memstore *store = mem_must(calloc(1, sizeof *store));

    store->base.ops = &data->ops;
    store->data = data;
    return &store->base;
}

void memstore_set_capabilities(struct memstore_data *data, struct belay_store_capabilities capabilities)
{
    data->capabilities = capabilities;
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
        data->dead = mem_grow(data->dead, kept + 1, sizeof *data->dead);
        data->dead[data->n_dead++] = mem_copy(lock_id);
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
