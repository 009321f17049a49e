/*
 * Liveness of waiters. The store that puts a ticket locks one byte of the wake file, far
 * beyond its end, at an offset made from the lock id. The kernel drops the lock when the
 * process ends for any reason, so the waiter of a ticket without a lock is gone, and the
 * queue need not wait for it (L4).
 *
 * The locks belong to the open file description. A second description tests them, because
 * a description never conflicts with its own locks.
 */
#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "store/sqlite/sqlite_internal.h"

static struct flock byte_of(uint64_t id_hash, short type)
{
    struct flock lock;
    const uint64_t first = 1ULL << 32; /* beyond what is mapped */

    memset(&lock, 0, sizeof lock); /* OFD locks want l_pid to be 0 */
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = (off_t)(first + (id_hash >> 2));
    lock.l_len = 1;
    return lock;
}

static bool kept_find(const struct sqlite_store *store, uint64_t id_hash, uint64_t key_hash, size_t *out_at,
                      bool *out_same_id)
{
    bool found = false;

    *out_same_id = false;
    for (size_t i = 0; i < store->n_kept; i++) {
        if (store->kept[i].id_hash != id_hash) {
            continue;
        }
        if (store->kept[i].key_hash == key_hash) {
            found = true;
            *out_at = i;
        } else {
            *out_same_id = true;
        }
    }
    return found;
}

static bool kept_add(struct sqlite_store *store, uint64_t id_hash, uint64_t key_hash)
{
    struct kept_ticket *kept = array_grow(store->kept, sizeof *kept, store->n_kept + 1, &store->cap_kept);

    if (kept == NULL) {
        return false;
    }
    store->kept = kept;
    store->kept[store->n_kept].id_hash = id_hash;
    store->kept[store->n_kept++].key_hash = key_hash;
    return true;
}

bool alive_keep(struct sqlite_store *store, const char *lock_id, const char *key, bool *out_is_new)
{
    uint64_t id_hash = hash_text(lock_id);
    uint64_t key_hash = hash_text(key);
    struct flock lock = byte_of(id_hash, F_WRLCK);
    bool same_id;
    size_t at;

    assert(store->own_fd < 0 && store->n_kept <= store->cap_kept);
    *out_is_new = false;
    if (store->wake.words == NULL) {
        return false;
    }
    if (kept_find(store, id_hash, key_hash, &at, &same_id)) {
        return true;
    }
    /* Another process may hold the liveness lock of this id, and may die before ours. */
    if ((!same_id && fcntl(store->wake.fd, F_OFD_SETLK, &lock) != 0) || !kept_add(store, id_hash, key_hash)) {
        return false;
    }
    *out_is_new = true;
    return true;
}

void alive_drop(struct sqlite_store *store, const char *lock_id, const char *key)
{
    uint64_t id_hash = hash_text(lock_id);
    struct flock lock = byte_of(id_hash, F_UNLCK);
    bool same_id;
    size_t at;

    if (!kept_find(store, id_hash, hash_text(key), &at, &same_id)) {
        return;
    }
    assert(at < store->n_kept);
    store->kept[at] = store->kept[--store->n_kept];
    if (!same_id) {
        (void)fcntl(store->wake.fd, F_OFD_SETLK, &lock);
    }
}

static bool has_waiter(struct sqlite_store *store, const char *lock_id)
{
    struct flock lock = byte_of(hash_text(lock_id), F_WRLCK);

    return fcntl(store->wake.probe_fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

static bool can_probe(struct sqlite_store *store)
{
    if (store->wake.words != NULL && store->wake.probe_fd < 0) {
        store->wake.probe_fd = open(store->wake_path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    }
    return store->wake.probe_fd >= 0;
}

bool alive_keep_places(struct sqlite_store *store, struct row *row, int64_t until_ms)
{
    bool has_changed = false;

    assert(row->record.n_tickets == 0 || row->has_liveness != NULL);
    for (size_t i = 0; can_probe(store) && i < row->record.n_tickets; i++) {
        struct belay_ticket *ticket = &row->record.tickets[i];

        if (row->has_liveness[i] && !has_waiter(store, ticket->lock_id)) {
            row->has_liveness[i] = false;
            ticket->expires_ms = ticket->expires_ms < until_ms ? ticket->expires_ms : until_ms;
            has_changed = true;
        }
    }
    return has_changed;
}

void alive_probe(struct sqlite_store *store, struct row *row)
{
    int64_t now_ms = sqlite_now_ms(store);

    assert(row->record.n_tickets == 0 || row->has_liveness != NULL);
    for (size_t i = 0; can_probe(store) && i < row->record.n_tickets; i++) {
        struct belay_ticket *ticket = &row->record.tickets[i];

        ticket->dead = row->has_liveness[i] && !has_waiter(store, ticket->lock_id);
        if (!ticket->dead && now_ms < ticket->expires_ms) {
            break; /* the tickets behind it wait for it anyway */
        }
    }
}
