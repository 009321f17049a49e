#include <stdarg.h>
#include <stdio.h>

#include "client/client.h"

void client_warn(struct belay_client *client, const char *format, ...)
{
    char text[512];
    va_list args;

    if (client->on_warning == NULL) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    client->on_warning(client->context, text);
}

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

struct belay_store_capabilities client_capabilities(const struct belay_client *client)
{
    return client->route.first->ops->capabilities(client->route.first);
}

bool belay_client_is_local(const struct belay_client *client)
{
    return client_capabilities(client).is_local;
}

void belay_client_store_counts(struct belay_client *client, struct belay_store_counts *out)
{
    struct belay_store_counts counts = { .errors = atomic_load(&client->store_errors) };

    if (client->store != NULL && client->store->ops->batches != NULL) {
        client->store->ops->batches(client->store, &counts);
    } else {
        counts.commits = atomic_load(&client->commits);
        counts.syncs = counts.commits;
        counts.batches[0] = counts.commits;
    }
    *out = counts;
}
