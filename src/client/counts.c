#include "client/client.h"

/* What the store could not help; that a condition did not hold is an answer. */
static bool is_failure(enum belay_code code)
{
    return code == BELAY_UNREACHABLE || code == BELAY_UNKNOWN || code == BELAY_BAD_CONTENT;
}

enum belay_code client_count_read(struct belay_client *client, enum belay_code code)
{
    if (is_failure(code)) {
        (void)atomic_fetch_add_explicit(&client->store_errors, 1, memory_order_relaxed);
    }
    return code;
}

enum belay_code client_count_commit(struct belay_client *client, enum belay_code code)
{
    if (code == BELAY_OK) {
        (void)atomic_fetch_add_explicit(&client->commits, 1, memory_order_relaxed);
    }
    return client_count_read(client, code);
}

void belay_client_store_counts(struct belay_client *client, struct belay_store_counts *out)
{
    const struct belay_store_ops *ops = client->store->ops;
    struct belay_store_counts counts = { .errors = atomic_load(&client->store_errors) };

    if (ops->batches != NULL) {
        ops->batches(client->store, &counts);
    } else {
        counts.commits = atomic_load(&client->commits);
        counts.syncs = counts.commits;
        counts.batches[0] = counts.commits;
    }
    *out = counts;
}
