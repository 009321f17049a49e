#include "support/faulty_store.h"

#include <stdlib.h>

#include "support/faulty_store_internal.h"

const char *faulty_store_name(enum faulty_store_rule rule)
{
    static const char *const names[] = {
#define FAULTY_TEXT(upper, lower) #lower,
        FAULTY_RULES(FAULTY_TEXT)
#undef FAULTY_TEXT
    };

    return names[rule];
}

static struct faulty_store *faulty_store_of(struct belay_store *store)
{
    return (struct faulty_store *)store;
}

int64_t faulty_store_bend_clock(struct faulty_store *b, int64_t now_ms)
{
    unsigned n;

    pthread_mutex_lock(&b->mutex);
    n = ++b->answers;
    b->first_ms = b->first_ms == 0 ? now_ms : b->first_ms;
    if (b->rule == FAULTY_CLOCK_STANDS_STILL) {
        now_ms = b->first_ms;
    }
    pthread_mutex_unlock(&b->mutex);
    return b->rule == FAULTY_CLOCK_GOES_BACK && n % 5 == 0 ? now_ms - 20 : now_ms;
}

void faulty_store_bend_record(const struct faulty_store *b, struct belay_record *record)
{
    if (b->rule == FAULTY_REVISION_STAYS && record->revision != 0) {
        record->revision = 1;
    }
    for (size_t i = 0; b->rule == FAULTY_TICKETS_BACKWARDS && i < record->n_tickets / 2; i++) {
        struct belay_ticket *other = &record->tickets[record->n_tickets - 1 - i];
        struct belay_ticket swap = record->tickets[i];

        record->tickets[i] = *other;
        *other = swap;
    }
    for (size_t i = 0; b->rule == FAULTY_HOLDERS_BACKWARDS && i < record->n_holders / 2; i++) {
        struct belay_holder *other = &record->holders[record->n_holders - 1 - i];
        struct belay_holder swap = record->holders[i];

        record->holders[i] = *other;
        *other = swap;
    }
    if (b->rule == FAULTY_REPEATS_THE_FIRST_HOLDER && record->n_holders > 0) {
        record->expires_ms = record->holders[0].expires_ms;
    }
    if (b->rule == FAULTY_FORGETS_THE_LAST_RELEASES) {
        belay_record_forget_released(record);
    }
    if (b->rule == FAULTY_EMPTY_TEXT_IS_NULL && record->owner_name != NULL && record->owner_name[0] == '\0') {
        free(record->owner_name);
        record->owner_name = NULL;
    }
    if (b->rule == FAULTY_WHO_HOLDS_IT_GAVE_IT_BACK && record->lock_id != NULL) {
        (void)belay_record_note_released(record, record->lock_id);
    }
    if (b->rule == FAULTY_ABSENT_HAS_NO_KEY && record->revision == 0) {
        record->key[0] = '\0';
    }
}

void faulty_store_lower(const char *text, char out[BELAY_KEY_MAX + 1])
{
    size_t n = strlen(text);

    for (size_t i = 0; i <= n && i <= BELAY_KEY_MAX; i++) {
        out[i] = text[i] >= 'A' && text[i] <= 'Z' ? (char)(text[i] - 'A' + 'a') : text[i];
    }
}

/* ---- get --------------------------------------------------------------- */

void faulty_store_forget(struct faulty_store *b)
{
    pthread_mutex_lock(&b->mutex);
    belay_record_release(&b->remembered);
    pthread_mutex_unlock(&b->mutex);
}

static void remember(struct faulty_store *b, struct belay_record *record)
{
    pthread_mutex_lock(&b->mutex);
    if (faulty_store_same(b->remembered.key, record->key)) {
        belay_record_release(record);
        (void)belay_record_copy(&b->remembered, record);
    } else {
        belay_record_release(&b->remembered);
        (void)belay_record_copy(record, &b->remembered);
    }
    pthread_mutex_unlock(&b->mutex);
}

static enum belay_code faulty_store_get(struct belay_store *store, const char *const *keys, size_t n,
                                        struct belay_record *out_records, int64_t *out_now_ms,
                                        struct belay_error *err)
{
    struct faulty_store *b = faulty_store_of(store);
    char lower[BELAY_KEY_MAX + 1];
    const char *only = lower;
    enum belay_code code;

    if (b->rule == FAULTY_KEYS_IGNORE_CASE && n == 1) {
        faulty_store_lower(keys[0], lower);
        keys = &only;
    }
    code = b->inner->ops->get(b->inner, keys, n, out_records, out_now_ms, err);
    if (code != BELAY_OK) {
        return code;
    }
    *out_now_ms = faulty_store_bend_clock(b, *out_now_ms);
    for (size_t i = 0; i < n; i++) {
        if (b->rule == FAULTY_REMEMBERS_WHAT_IT_READ) {
            remember(b, &out_records[i]);
        }
        faulty_store_bend_record(b, &out_records[i]);
    }
    return code;
}

/* ---- scan -------------------------------------------------------------- */

struct scanning {
    struct faulty_store *b;
    const char *prefix;
    belay_record_fn fn;
    void *context;
    size_t n;
    struct belay_record *kept; /* owned; for going backwards */
    int64_t now_ms;
};

/* As LIKE does. */
static bool matches(const char *text, const char *pattern)
{
    if (*pattern == '\0') {
        return true;
    }
    if (*pattern == '%') {
        return matches(text, pattern + 1) || (*text != '\0' && matches(text + 1, pattern));
    }
    return *text != '\0' && (*pattern == '_' || *pattern == *text) && matches(text + 1, pattern + 1);
}

static bool scan_one(void *context, const struct belay_record *record, int64_t now_ms)
{
    struct scanning *scanning = context;
    struct faulty_store *b = scanning->b;
    struct belay_record copy;
    bool more;

    if (b->rule == FAULTY_PREFIX_IS_A_PATTERN && scanning->prefix != NULL &&
        !matches(record->key, scanning->prefix)) {
        return true;
    }
    if (b->rule == FAULTY_SCAN_STOPS_AT_A_THOUSAND && scanning->n == 1000) {
        return false;
    }
    if (!belay_record_copy(record, &copy)) {
        abort();
    }
    scanning->n++;
    faulty_store_bend_record(b, &copy);
    scanning->now_ms = faulty_store_bend_clock(b, now_ms);
    if (b->rule == FAULTY_SCAN_BACKWARDS) {
        scanning->kept = realloc(scanning->kept, scanning->n * sizeof copy);
        scanning->kept[scanning->n - 1] = copy;
        return true;
    }
    more = scanning->fn(scanning->context, &copy, scanning->now_ms);
    belay_record_release(&copy);
    return more || b->rule == FAULTY_SCAN_GOES_ON;
}

static enum belay_code faulty_store_scan(struct belay_store *store, const struct belay_scan *scan,
                                         belay_record_fn fn, void *context, struct belay_error *err)
{
    struct faulty_store *b = faulty_store_of(store);
    struct belay_scan bent = *scan;
    struct scanning scanning = { b, scan->prefix, fn, context, 0, NULL, 0 };
    enum belay_code code;
    bool more = true;

    bent.after = b->rule == FAULTY_SCAN_IGNORES_AFTER ? NULL : bent.after;
    bent.held_only = b->rule == FAULTY_SCAN_IGNORES_HELD_ONLY ? false : bent.held_only;
    bent.prefix = b->rule == FAULTY_PREFIX_IS_A_PATTERN ? NULL : bent.prefix;
    code = b->inner->ops->scan(b->inner, &bent, scan_one, &scanning, err);
    for (size_t i = scanning.kept == NULL ? 0 : scanning.n; i > 0; i--) {
        more = more && fn(context, &scanning.kept[i - 1], scanning.now_ms);
        belay_record_release(&scanning.kept[i - 1]);
    }
    free(scanning.kept);
    return code;
}

/* ---- events ------------------------------------------------------------ */

struct telling {
    const struct faulty_store *b;
    belay_event_fn fn;
    void *context;
    size_t left; /* 0: no limit */
};

static bool tell(void *context, const struct belay_event *event)
{
    struct telling *telling = context;
    bool more = telling->fn(telling->context, event);

    if (telling->left > 0 && --telling->left == 0) {
        return false;
    }
    return more || telling->b->rule == FAULTY_EVENTS_GO_ON;
}

static enum belay_code faulty_store_events(struct belay_store *store, const struct belay_events_query *query,
                                           belay_event_fn fn, void *context, struct belay_error *err)
{
    struct faulty_store *b = faulty_store_of(store);
    struct belay_events_query bent = *query;
    struct telling telling = { b, fn, context, 0 };

    if (b->rule == FAULTY_LAST_EVENTS_ARE_THE_FIRST) {
        telling.left = query->last;
        bent.last = 0;
    }
    bent.after = b->rule == FAULTY_EVENTS_IGNORE_AFTER ? 0 : bent.after;
    bent.key = b->rule == FAULTY_EVENTS_IGNORE_THE_KEY ? NULL : bent.key;
    return b->inner->ops->events(b->inner, &bent, tell, &telling, err);
}

/* ---- items ------------------------------------------------------------- */

static enum belay_code faulty_store_item_get(struct belay_store *store, const char *space, const char *name,
                                             struct belay_item *out_item, struct belay_error *err)
{
    struct faulty_store *b = faulty_store_of(store);

    return b->inner->ops->item_get(b->inner, space, name, out_item, err);
}

static enum belay_code faulty_store_item_put(struct belay_store *store, const struct belay_item_write *write,
                                             uint64_t *out_version, struct belay_error *err)
{
    struct faulty_store *b = faulty_store_of(store);
    struct belay_item_write bent = *write;

    bent.any_version = bent.any_version || b->rule == FAULTY_ITEMS_IGNORE_THE_VERSION;
    return b->inner->ops->item_put(b->inner, &bent, out_version, err);
}

static enum belay_code faulty_store_item_list(struct belay_store *store, const char *space, belay_item_fn fn,
                                              void *context, struct belay_error *err)
{
    struct faulty_store *b = faulty_store_of(store);

    return b->inner->ops->item_list(b->inner, space, fn, context, err);
}

/* ---- the rest ---------------------------------------------------------- */

static struct belay_store_capabilities faulty_store_capabilities(struct belay_store *store)
{
    struct faulty_store *b = faulty_store_of(store);
    struct belay_store_capabilities capabilities = b->inner->ops->capabilities(b->inner);

    capabilities.poll_ms += b->rule == FAULTY_CAPABILITIES_CHANGE ? (int64_t)((uintptr_t)b % 997) : 0;
    return capabilities;
}

static const char *bend_id(const struct faulty_store *b, const char *lock_id)
{
    return b->rule == FAULTY_EVENTS_WAKE_NOBODY && lock_id == NULL ? "nobody-at-all" : lock_id;
}

static uint32_t faulty_store_listen(struct belay_store *store, const char *lock_id)
{
    struct faulty_store *b = faulty_store_of(store);

    return b->inner->ops->listen(b->inner, bend_id(b, lock_id));
}

static void faulty_store_wait(struct belay_store *store, const char *lock_id, uint32_t listened,
                              int64_t timeout_ms, struct belay_cancel *cancel)
{
    struct faulty_store *b = faulty_store_of(store);
    const char *id = bend_id(b, lock_id);

    if (b->rule == FAULTY_LOST_WAKEUP) {
        listened = b->inner->ops->listen(b->inner, id);
    }
    cancel = b->rule == FAULTY_IGNORES_CANCELLING ? NULL : cancel;
    timeout_ms += b->rule == FAULTY_WAITS_TOO_LONG ? 500 : 0;
    b->inner->ops->wait(b->inner, id, listened, timeout_ms, cancel);
}

static void faulty_store_wake(struct belay_store *store, const char *lock_id)
{
    struct faulty_store *b = faulty_store_of(store);

    if (b->rule != FAULTY_WAKES_NOBODY) {
        b->inner->ops->wake(b->inner, lock_id);
    }
}

static void faulty_store_close(struct belay_store *store)
{
    struct faulty_store *b = faulty_store_of(store);

    b->inner->ops->close(b->inner);
    belay_record_release(&b->remembered);
    pthread_mutex_destroy(&b->mutex);
    free(b);
}

static const struct belay_store_ops faulty_store_ops = {
    .name = "broken",
    .close = faulty_store_close,
    .get = faulty_store_get,
    .commit = faulty_store_commit,
    .scan = faulty_store_scan,
    .events = faulty_store_events,
    .capabilities = faulty_store_capabilities,
    .listen = faulty_store_listen,
    .wait = faulty_store_wait,
    .wake = faulty_store_wake,
    .item_get = faulty_store_item_get,
    .item_put = faulty_store_item_put,
    .item_list = faulty_store_item_list,
};

struct belay_store *faulty_store_new(struct belay_store *inner, enum faulty_store_rule rule)
{
    struct faulty_store *b = calloc(1, sizeof *b);

    if (b == NULL) {
        abort();
    }
    b->base.ops = &faulty_store_ops;
    b->inner = inner;
    b->rule = rule;
    pthread_mutex_init(&b->mutex, NULL);
    return &b->base;
}
