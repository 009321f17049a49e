#include "support/retrying_store.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 50, WRITES_MAX = 32 };

struct retrying_store {
    struct belay_store base;
    struct belay_store *inner; /* owned */
};

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static int n_unknown;
static int n_again;

static struct belay_store *inner_of(struct belay_store *store)
{
    return ((struct retrying_store *)store)->inner;
}

static bool is_fault(enum belay_code code)
{
    return code == BELAY_UNREACHABLE || code == BELAY_UNKNOWN;
}

static void close_it(struct belay_store *store)
{
    inner_of(store)->ops->close(inner_of(store));
    free(store);
}

static enum belay_code get(struct belay_store *store, const char *const *keys, size_t n,
                           struct belay_record *out, int64_t *now_ms, struct belay_error *err)
{
    enum belay_code code = BELAY_UNREACHABLE;

    for (int i = 0; i < TRIES && is_fault(code); i++) {
        code = inner_of(store)->ops->get(inner_of(store), keys, n, out, now_ms, err);
    }
    return code;
}

/* All records of a batch. */
struct sight {
    struct belay_record records[WRITES_MAX];
    size_t n;
    int64_t now_ms;
};

static void sight_release(struct sight *sight)
{
    for (size_t i = 0; i < sight->n; i++) {
        belay_record_release(&sight->records[i]);
    }
    sight->n = 0;
}

static enum belay_code look(struct belay_store *store, const struct belay_batch *batch, struct sight *out)
{
    const char *keys[WRITES_MAX];
    enum belay_code code;

    for (size_t i = 0; i < batch->n_writes; i++) {
        keys[i] = batch->writes[i].key;
    }
    memset(out, 0, sizeof *out);
    code = get(store, keys, batch->n_writes, out->records, &out->now_ms, NULL);
    out->n = code == BELAY_OK ? batch->n_writes : 0;
    return code;
}

static bool same(const struct sight *a, const struct sight *b)
{
    for (size_t i = 0; i < a->n; i++) {
        if (a->records[i].revision != b->records[i].revision) {
            return false;
        }
    }
    return true;
}

/* It was done: what is there now is the answer. */
static void answer(const struct belay_batch *batch, struct sight *now, struct belay_commit *out)
{
    memset(out, 0, sizeof *out);
    out->now_ms = now->now_ms;
    out->records = calloc(now->n + 1, sizeof *out->records);
    out->n_records = now->n;
    memcpy(out->records, now->records, now->n * sizeof *now->records);
    for (size_t i = 0; i < now->n; i++) {
        if ((batch->writes[i].set & BELAY_SET_IDENTITY) != 0) {
            out->token = now->records[i].token;
        }
    }
    now->n = 0;
}

static enum belay_code commit_until_known(struct belay_store *store, const struct belay_batch *batch,
                                          struct belay_commit *out, struct belay_error *err)
{
    struct sight before;
    struct sight after;
    enum belay_code code = look(store, batch, &before);

    for (int i = 0; code == BELAY_OK && i < TRIES; i++) {
        code = inner_of(store)->ops->commit(inner_of(store), batch, out, err);
        if (!is_fault(code)) {
            break;
        }
        n_unknown += code == BELAY_UNKNOWN;
        code = look(store, batch, &after);
        if (code == BELAY_OK && !same(&before, &after)) {
            answer(batch, &after, out);
            break;
        }
        n_again++;
        sight_release(&after);
    }
    sight_release(&before);
    return code;
}

static enum belay_code commit(struct belay_store *store, const struct belay_batch *batch,
                              struct belay_commit *out, struct belay_error *err)
{
    enum belay_code code;

    if (batch->n_writes > WRITES_MAX) {
        return inner_of(store)->ops->commit(inner_of(store), batch, out, err);
    }
    (void)pthread_mutex_lock(&turn);
    code = commit_until_known(store, batch, out, err);
    (void)pthread_mutex_unlock(&turn);
    return code;
}

/* Repeating a scan that failed half-way would report records twice. */
struct scanning {
    struct belay_record *records;
    size_t n;
    int64_t now_ms;
};

static bool keep(void *context, const struct belay_record *record, int64_t now_ms)
{
    struct scanning *scanning = context;
    struct belay_record *grown = realloc(scanning->records, (scanning->n + 1) * sizeof *grown);

    scanning->records = grown;
    scanning->now_ms = now_ms;
    return grown != NULL && belay_record_copy(record, &grown[scanning->n]) && ++scanning->n > 0;
}

static void scanning_release(struct scanning *scanning)
{
    for (size_t i = 0; i < scanning->n; i++) {
        belay_record_release(&scanning->records[i]);
    }
    free(scanning->records);
    memset(scanning, 0, sizeof *scanning);
}

static enum belay_code scan(struct belay_store *store, const struct belay_scan *query, belay_record_fn fn,
                            void *context, struct belay_error *err)
{
    struct scanning scanning = { 0 };
    enum belay_code code = BELAY_UNREACHABLE;

    for (int i = 0; i < TRIES && is_fault(code); i++) {
        scanning_release(&scanning);
        code = inner_of(store)->ops->scan(inner_of(store), query, keep, &scanning, err);
    }
    for (size_t i = 0; code == BELAY_OK && i < scanning.n; i++) {
        if (!fn(context, &scanning.records[i], scanning.now_ms)) {
            break;
        }
    }
    scanning_release(&scanning);
    return code;
}

static struct belay_store_capabilities capabilities(struct belay_store *store)
{
    return inner_of(store)->ops->capabilities(inner_of(store));
}

static const struct belay_store_ops ops = { .name = "patient",
                                            .close = close_it,
                                            .get = get,
                                            .commit = commit,
                                            .scan = scan,
                                            .capabilities = capabilities };

struct belay_store *retrying_store_open(struct belay_store *inner)
{
    struct retrying_store *store = inner == NULL ? NULL : calloc(1, sizeof *store);

    if (store == NULL) {
        return NULL;
    }
    store->base.ops = &ops;
    store->inner = inner;
    return &store->base;
}

void retrying_store_counts(int *out_unknown, int *out_again)
{
    *out_unknown = n_unknown;
    *out_again = n_again;
}
