/* Locks with several holders: shared locks and locks with slots. Several keys in one batch. */
#include "support/suite_kit.h"

static bool the_capabilities_tell_whether_a_lock_can_have_several_holders(struct suite *s)
{
    CHECK_INT(s->a->ops->capabilities(s->a).has_modes, s->fixture->keeps_modes);
    return true;
}

/* ---- the writes that the cases consist of ------------------------------- */

/* A write about one of several holders. */
static struct belay_write about(struct suite *s, const char *key, const char *lock_id,
                                enum belay_condition condition, unsigned set)
{
    return (struct belay_write){ .key = key,
                                 .condition = condition,
                                 .lock_id = lock_id,
                                 .set = set,
                                 .values = holder(s, lock_id, LONG_MS),
                                 .co_holder = true };
}

/* Look first, and add one if nothing changed. */
static struct belay_write joining(struct suite *s, const char *key, const char *lock_id, int64_t ttl_ms)
{
    struct belay_record *values = holder(s, lock_id, ttl_ms);

    values->mode = BELAY_SHARED;
    return (struct belay_write){ .key = key,
                                 .condition = BELAY_IF_UNCHANGED,
                                 .revision = look(s, s->a, key)->revision,
                                 .set = BELAY_SET_HOLDER,
                                 .values = values,
                                 .co_holder = true };
}

static const struct answer *join_for(struct suite *s, const char *key, const char *lock_id, int64_t ttl_ms)
{
    struct belay_write write = joining(s, key, lock_id, ttl_ms);

    return commit1(s, &write);
}

static const struct answer *join(struct suite *s, const char *lock_id)
{
    return join_for(s, "k", lock_id, LONG_MS);
}

static const struct answer *change(struct suite *s, const char *lock_id, enum belay_condition condition,
                                   unsigned set)
{
    struct belay_write write = about(s, "k", lock_id, condition, set);

    return commit1(s, &write);
}

static const struct answer *leave(struct suite *s, const char *lock_id)
{
    return change(s, lock_id, BELAY_IF_HELD_BY, BELAY_SET_RELEASED);
}

/* Never NULL: one without a name stands for none. */
static const struct belay_holder *one_of(const struct belay_record *record, const char *lock_id)
{
    static const struct belay_holder none = { .lock_id = "" };

    for (size_t i = 0; i < record->n_holders; i++) {
        if (same_text(record->holders[i].lock_id, lock_id)) {
            return &record->holders[i];
        }
    }
    return &none;
}

/* All ids, in the order of the record, each followed by a space. */
static const char *ids_of(struct suite *s, const struct belay_record *record)
{
    const char *ids = "";

    for (size_t i = 0; i < record->n_holders; i++) {
        ids = suite_text(s, "%s%s ", ids, record->holders[i].lock_id);
    }
    return ids;
}

/* The record's own fields are those of the holder. */
static bool repeats(struct suite *s, const struct belay_record *r, const char *lock_id)
{
    const struct belay_holder *h = one_of(r, lock_id);

    CHECK(r->held);
    CHECK_INT(r->outcome, BELAY_OUTCOME_NONE);
    CHECK_TEXT(r->lock_id, lock_id);
    CHECK_TEXT(r->lock_id, h->lock_id);
    CHECK_TEXT(r->owner, h->owner);
    CHECK_TEXT(r->owner_name, h->owner_name);
    CHECK_TEXT(r->acquired_by, h->acquired_by);
    CHECK_INT(r->token, h->token);
    CHECK_INT(r->durable, h->durable);
    CHECK_INT(r->stale_reported, h->stale_reported);
    CHECK_INT(r->ttl_ms, h->ttl_ms);
    CHECK_INT(r->heartbeat_ms, h->heartbeat_ms);
    CHECK_INT(r->stale_after_ms, h->stale_after_ms);
    CHECK_INT(r->expires_ms, h->expires_ms);
    CHECK_INT(r->last_heartbeat_ms, h->last_heartbeat_ms);
    CHECK_INT(r->locked_at_unix_ms, h->locked_at_unix_ms);
    CHECK_INT(r->expires_at_unix_ms, h->expires_at_unix_ms);
    CHECK_INT(r->last_heartbeat_unix_ms, h->last_heartbeat_unix_ms);
    CHECK_INT(r->n_metadata, h->n_metadata);
    for (size_t i = 0; i < h->n_metadata; i++) {
        CHECK_TEXT(meta_of(r, h->metadata[i].name), h->metadata[i].value);
    }
    return true;
}

/* The holder is as holder() made it. */
static bool is_as_made(struct suite *s, const struct belay_record *r, const char *lock_id, int64_t ttl_ms)
{
    const struct belay_holder *h = one_of(r, lock_id);
    const struct belay_record *made = holder(s, lock_id, ttl_ms);

    CHECK_TEXT(h->lock_id, lock_id);
    CHECK_TEXT(h->owner, made->owner);
    CHECK_TEXT(h->owner_name, made->owner_name);
    CHECK_TEXT(h->acquired_by, made->acquired_by);
    CHECK_INT(h->durable, made->durable);
    CHECK(!h->stale_reported);
    CHECK_INT(h->ttl_ms, ttl_ms);
    CHECK_INT(h->heartbeat_ms, made->heartbeat_ms);
    CHECK_INT(h->stale_after_ms, made->stale_after_ms);
    CHECK_INT(h->expires_ms, h->last_heartbeat_ms + ttl_ms);
    CHECK_INT(h->expires_at_unix_ms, h->last_heartbeat_unix_ms + ttl_ms);
    CHECK_INT(h->n_metadata, made->n_metadata);
    for (size_t i = 0; i < h->n_metadata; i++) {
        bool first = same_text(h->metadata[i].name, made->metadata[0].name);

        CHECK_TEXT(h->metadata[i].value, made->metadata[first ? 0 : 1].value);
    }
    return true;
}

/* ---- one of several ------------------------------------------------------ */

static bool a_holder_is_added_beside_the_others(struct suite *s)
{
    const char *const ids[] = { "one", "two", "three" };
    const struct belay_record *r;
    uint64_t last = 0;

    for (size_t i = 0; i < 3; i++) {
        const struct answer *done = join(s, ids[i]);

        CHECK_DONE(done);
        CHECK(done->done.token > last);
        last = done->done.token;
        CHECK_INT(image(done, 0)->n_holders, i + 1);
        CHECK_INT(one_of(image(done, 0), ids[i])->token, last);
    }
    r = see(s, "k");
    CHECK(r->held);
    CHECK_INT(r->mode, BELAY_SHARED);
    CHECK_TEXT(ids_of(s, r), "one two three "); /* by token */
    for (size_t i = 0; i < 3; i++) {
        CHECK(is_as_made(s, r, ids[i], LONG_MS));
    }
    return true;
}

static bool slots_stay_with_the_lock(struct suite *s)
{
    for (int i = 0; i < 2; i++) {
        struct belay_write write = joining(s, "k", i == 0 ? "one" : "two", LONG_MS);
        struct belay_record values = *write.values;

        values.mode = BELAY_SLOTS;
        values.slots = 3;
        write.values = &values;
        CHECK_DONE(commit1(s, &write));
    }
    CHECK_DONE(leave(s, "one"));
    CHECK_DONE(queue(s, "k", "waiter", LONG_MS));
    CHECK(suite_reopen(s));
    CHECK_INT(see(s, "k")->mode, BELAY_SLOTS);
    CHECK_INT(see(s, "k")->slots, 3);
    CHECK_TEXT(ids_of(s, see(s, "k")), "two ");
    return true;
}

static bool the_record_repeats_the_holder_whose_lease_ends_last(struct suite *s)
{
    CHECK_DONE(join_for(s, "k", "short", SHORT_MS));
    CHECK(repeats(s, see(s, "k"), "short"));
    CHECK_DONE(join_for(s, "k", "long", LONG_MS));
    CHECK(repeats(s, see(s, "k"), "long"));
    CHECK_DONE(join_for(s, "k", "middle", LONG_MS / 2));
    CHECK(repeats(s, see(s, "k"), "long"));
    pass_time(s, 50);
    CHECK_DONE(change(s, "short", BELAY_IF_HELD_BY, BELAY_SET_LEASE)); /* with the long ttl */
    CHECK(repeats(s, see(s, "k"), "short"));
    CHECK_DONE(leave(s, "short"));
    CHECK(repeats(s, see(s, "k"), "long"));
    CHECK_DONE(leave(s, "long"));
    CHECK(repeats(s, see(s, "k"), "middle"));
    return true;
}

static bool of_leases_that_end_together_the_record_repeats_the_oldest(struct suite *s)
{
    CHECK_DONE(join(s, "one"));
    CHECK_DONE(join(s, "two"));
    CHECK_DONE(join(s, "three"));
    CHECK(repeats(s, see(s, "k"), "one"));
    CHECK_DONE(leave(s, "one"));
    CHECK(repeats(s, see(s, "k"), "two"));
    return true;
}

static bool a_renewal_reaches_one_holder_only(struct suite *s)
{
    struct belay_write write = about(s, "k", "two", BELAY_IF_LIVE_BY, BELAY_SET_LEASE);
    struct belay_record values = *write.values;
    const struct belay_record *before;
    const struct belay_record *after;

    CHECK_DONE(join(s, "one"));
    CHECK_DONE(join_for(s, "k", "two", 5000));
    before = see(s, "k");
    pass_time(s, 40);
    values.ttl_ms = 0; /* keeps its own */
    write.values = &values;
    CHECK_DONE(commit1(s, &write));
    after = see(s, "k");
    CHECK_INT(one_of(after, "two")->ttl_ms, 5000);
    CHECK(one_of(after, "two")->expires_ms >= one_of(before, "two")->expires_ms + 40);
    CHECK(one_of(after, "two")->last_heartbeat_ms >= one_of(before, "two")->last_heartbeat_ms + 40);
    CHECK_INT(one_of(after, "two")->token, one_of(before, "two")->token);
    CHECK_INT(one_of(after, "two")->locked_at_unix_ms, one_of(before, "two")->locked_at_unix_ms);
    CHECK_INT(one_of(after, "one")->expires_ms, one_of(before, "one")->expires_ms);
    CHECK_INT(one_of(after, "one")->last_heartbeat_ms, one_of(before, "one")->last_heartbeat_ms);
    CHECK(after->revision != before->revision);
    return true;
}

static bool a_release_removes_one_holder_only(struct suite *s)
{
    const struct belay_record *before;
    const struct belay_record *r;

    CHECK_DONE(join(s, "one"));
    CHECK_DONE(join(s, "two"));
    before = see(s, "k");
    pass_time(s, 10);
    CHECK_DONE(leave(s, "one"));
    r = see(s, "k");
    CHECK_TEXT(ids_of(s, r), "two ");
    CHECK(r->held);
    CHECK_INT(r->outcome, BELAY_OUTCOME_NONE);
    CHECK(r->freed_ms > before->freed_ms); /* a place is free */
    CHECK(is_as_made(s, r, "two", LONG_MS));
    CHECK_REFUSED(leave(s, "one"));
    CHECK_TEXT(ids_of(s, see(s, "k")), "two ");
    return true;
}

static bool after_the_last_release_the_lock_is_free_and_knows_its_last_holder(struct suite *s)
{
    const struct answer *second;
    const struct belay_record *r;

    CHECK_DONE(join_for(s, "k", "one", LONG_MS));
    second = join_for(s, "k", "two", SHORT_MS);
    CHECK_DONE(second);
    CHECK_DONE(leave(s, "one"));
    CHECK_DONE(leave(s, "two"));
    r = see(s, "k");
    CHECK(!r->held);
    CHECK_INT(r->n_holders, 0);
    CHECK_INT(r->outcome, BELAY_OUTCOME_COMPLETED);
    CHECK_TEXT(r->lock_id, "two");
    CHECK_TEXT(r->owner, holder(s, "two", LONG_MS)->owner);
    CHECK_INT(r->token, second->done.token);
    CHECK_INT(r->freed_ms, s->now_ms);
    CHECK_INT(r->n_released_ids, 2);
    CHECK_TEXT(r->released_ids[0], "two");
    CHECK_TEXT(r->released_ids[1], "one");
    CHECK_REFUSED(leave(s, "two"));
    CHECK_REFUSED(take(s, "k", "two")); /* L5 */
    CHECK_DONE(take(s, "k", "three"));
    CHECK_INT(see(s, "k")->mode, BELAY_EXCLUSIVE);
    CHECK_DONE(release(s, "k", "three"));
    return true;
}

/* All ids that were released last, the newest first, each followed by a space. */
static const char *released_of(struct suite *s, const struct belay_record *record)
{
    const char *ids = "";

    for (size_t i = 0; i < record->n_released_ids; i++) {
        ids = suite_text(s, "%s%s ", ids, record->released_ids[i]);
    }
    return ids;
}

/* A holder whose answer was lost asks again, while others hold the lock. */
static bool the_last_releases_of_several_holders_stay_known(struct suite *s)
{
    struct belay_record forced = *holder(s, "id-9", LONG_MS);
    struct belay_write force = about(s, "k", "id-9", BELAY_IF_HELD_BY, BELAY_SET_RELEASED);

    forced.outcome = BELAY_OUTCOME_FORCED;
    force.values = &forced;
    for (int i = 0; i < BELAY_RELEASED_MAX + 4; i++) {
        CHECK_DONE(join(s, suite_text(s, "id-%d", i)));
    }
    CHECK_INT(see(s, "k")->n_released_ids, 0);
    CHECK_DONE(leave(s, "id-1"));
    CHECK_TEXT(released_of(s, image(leave(s, "id-2"), 0)), "id-2 id-1 ");
    CHECK_DONE(commit1(s, &force));
    CHECK_DONE(change(s, "id-0", BELAY_IF_LIVE_BY, BELAY_SET_LEASE));
    CHECK_TEXT(released_of(s, see(s, "k")), "id-2 id-1 ");
    for (int i = 3; i <= BELAY_RELEASED_MAX; i++) {
        CHECK_DONE(leave(s, suite_text(s, "id-%d", i)));
    }
    CHECK_TEXT(released_of(s, see(s, "k")), "id-8 id-7 id-6 id-5 id-4 id-3 id-2 id-1 ");
    CHECK_DONE(leave(s, "id-10"));
    CHECK_DONE(join(s, "new"));
    CHECK(suite_reopen(s));
    CHECK_TEXT(released_of(s, see(s, "k")), "id-10 id-8 id-7 id-6 id-5 id-4 id-3 id-2 ");
    return true;
}

static bool a_change_of_a_holder_that_is_not_there_is_refused(struct suite *s)
{
    struct belay_write write = about(s, "k", "nobody", BELAY_IF_ANY, BELAY_SET_LEASE);

    CHECK_REFUSED(commit1(s, &write)); /* no record at all */
    CHECK_DONE(join(s, "one"));
    write.put_ticket = &(struct belay_put_ticket){
        .lock_id = "w", .key = "k", .owner = "o", .owner_name = "n", .since_unix_ms = 1, .ttl_ms = LONG_MS
    };
    CHECK_REFUSED(commit1(s, &write));
    write.condition = BELAY_IF_UNCHANGED;
    write.revision = see(s, "k")->revision;
    CHECK_REFUSED(commit1(s, &write));
    write.set = BELAY_SET_RELEASED;
    CHECK_REFUSED(commit1(s, &write));
    CHECK_INT(see(s, "k")->revision, write.revision);
    CHECK_INT(see(s, "k")->n_tickets, 0);
    write.lock_id = "one";
    CHECK_DONE(commit1(s, &write));
    return true;
}

static bool a_holder_that_is_added_can_say_that_the_lock_was_freed(struct suite *s)
{
    struct belay_write write;
    const struct answer *done;

    CHECK_DONE(join(s, "one"));
    CHECK_INT(see(s, "k")->freed_ms, 0);
    pass_time(s, 10);
    write = joining(s, "k", "two", LONG_MS);
    write.set |= BELAY_SET_FREED;
    done = commit1(s, &write);
    CHECK_DONE(done);
    CHECK_TEXT(ids_of(s, see(s, "k")), "one two ");
    CHECK_INT(see(s, "k")->freed_ms, done->done.now_ms);
    return true;
}

static bool an_adopted_place_keeps_all_but_its_id(struct suite *s)
{
    struct belay_write write = about(s, "k", "one", BELAY_IF_LIVE_BY, BELAY_SET_IDENTITY);
    const struct belay_record *before;
    const struct answer *done;
    const struct belay_holder *h;

    CHECK_DONE(join(s, "one"));
    CHECK_DONE(join(s, "two"));
    before = see(s, "k");
    write.values = holder(s, "heir", LONG_MS);
    done = commit1(s, &write);
    CHECK_DONE(done);
    CHECK(done->done.token > one_of(before, "two")->token);
    CHECK_TEXT(ids_of(s, see(s, "k")), "two heir "); /* its token is the newest */
    h = one_of(see(s, "k"), "heir");
    CHECK_INT(h->token, done->done.token);
    CHECK_TEXT(h->acquired_by, write.values->acquired_by);
    CHECK_TEXT(h->owner, holder(s, "one", LONG_MS)->owner);
    CHECK_INT(h->expires_ms, one_of(before, "one")->expires_ms);
    CHECK_INT(h->locked_at_unix_ms, one_of(before, "one")->locked_at_unix_ms);
    CHECK_INT(h->n_metadata, 2);
    CHECK_REFUSED(leave(s, "one"));
    CHECK_DONE(leave(s, "heir"));
    return true;
}

static bool one_holder_is_reported_as_stale(struct suite *s)
{
    CHECK_DONE(join(s, "one"));
    CHECK_DONE(join(s, "two"));
    CHECK_DONE(change(s, "two", BELAY_IF_HELD_BY, BELAY_SET_STALE_REPORTED));
    CHECK(one_of(see(s, "k"), "two")->stale_reported);
    CHECK(!one_of(see(s, "k"), "one")->stale_reported);
    CHECK_DONE(change(s, "one", BELAY_IF_HELD_BY, BELAY_SET_LEASE));
    CHECK(one_of(see(s, "k"), "two")->stale_reported);
    CHECK_DONE(change(s, "two", BELAY_IF_HELD_BY, BELAY_SET_LEASE));
    CHECK(!one_of(see(s, "k"), "two")->stale_reported);
    return true;
}

static bool one_holder_is_forced_out(struct suite *s)
{
    struct belay_record values = *holder(s, "one", LONG_MS);
    struct belay_write write = about(s, "k", "one", BELAY_IF_UNCHANGED, BELAY_SET_RELEASED);

    values.outcome = BELAY_OUTCOME_FORCED;
    write.values = &values;
    CHECK_DONE(join(s, "one"));
    CHECK_DONE(join(s, "two"));
    write.revision = see(s, "k")->revision;
    CHECK_DONE(commit1(s, &write));
    CHECK_TEXT(ids_of(s, see(s, "k")), "two ");
    CHECK_INT(see(s, "k")->outcome, BELAY_OUTCOME_NONE);
    CHECK_INT(see(s, "k")->n_released_ids, 0);
    CHECK_REFUSED(commit1(s, &write)); /* the revision changed */
    write.lock_id = "two";
    write.revision = see(s, "k")->revision;
    CHECK_DONE(commit1(s, &write));
    CHECK(!see(s, "k")->held);
    CHECK_INT(see(s, "k")->outcome, BELAY_OUTCOME_FORCED);
    return true;
}

/* ---- conditions ----------------------------------------------------------- */

static bool each_holder_has_a_lease_of_its_own(struct suite *s)
{
    CHECK_DONE(join_for(s, "k", "short", SHORT_MS));
    CHECK_DONE(join_for(s, "k", "long", LONG_MS));
    CHECK_DONE(change(s, "short", BELAY_IF_LIVE_BY, BELAY_SET_STALE_REPORTED));
    pass_time(s, SHORT_MS + 1);
    CHECK_REFUSED(change(s, "short", BELAY_IF_LIVE_BY, BELAY_SET_LEASE));
    CHECK_DONE(change(s, "long", BELAY_IF_LIVE_BY, BELAY_SET_LEASE));
    CHECK_REFUSED(change(s, "nobody", BELAY_IF_HELD_BY, BELAY_SET_LEASE));
    CHECK_REFUSED(change(s, "nobody", BELAY_IF_LIVE_BY, BELAY_SET_LEASE));
    CHECK_DONE(change(s, "short", BELAY_IF_HELD_BY, BELAY_SET_LEASE)); /* nobody has dropped it */
    CHECK_DONE(change(s, "short", BELAY_IF_LIVE_BY, BELAY_SET_LEASE));
    return true;
}

/* L1: a client that believes its lock exclusive must not renew one that is not. */
static bool a_write_about_the_only_holder_is_refused_if_there_are_several(struct suite *s)
{
    static const enum belay_condition conditions[] = { BELAY_IF_HELD_BY, BELAY_IF_LIVE_BY };

    CHECK_DONE(join(s, "one"));
    CHECK_DONE(take(s, "x", "one"));
    for (size_t i = 0; i < 2; i++) {
        struct belay_write write = about(s, "k", "one", conditions[i], BELAY_SET_LEASE);

        CHECK_DONE(commit1(s, &write));
        write.co_holder = false;
        CHECK_REFUSED(commit1(s, &write));
        write.key = "x";
        CHECK_DONE(commit1(s, &write));
        write.co_holder = true;
        CHECK_REFUSED(commit1(s, &write));
    }
    CHECK_REFUSED(release(s, "k", "one"));
    CHECK_TEXT(ids_of(s, see(s, "k")), "one ");
    return true;
}

static bool a_write_that_leaves_the_mode_to_the_store_finds_its_holder(struct suite *s)
{
    struct belay_write renewal = about(s, "k", "one", BELAY_IF_LIVE_BY, BELAY_SET_LEASE);
    struct belay_write release = about(s, "k", "one", BELAY_IF_HELD_BY, BELAY_SET_RELEASED);

    if (!s->a->ops->capabilities(s->a).finds_mode) {
        return true;
    }
    renewal.co_holder = release.co_holder = false;
    renewal.any_mode = release.any_mode = true;
    CHECK_DONE(join(s, "one"));
    CHECK_DONE(join(s, "two"));
    CHECK_DONE(commit1(s, &renewal));
    CHECK_DONE(commit1(s, &release));
    CHECK_REFUSED(commit1(s, &release));
    CHECK_TEXT(ids_of(s, see(s, "k")), "two ");
    CHECK(suite_reopen(s));
    CHECK_TEXT(ids_of(s, see(s, "k")), "two ");
    release.key = "x";
    CHECK_DONE(take(s, "x", "one"));
    CHECK_DONE(commit1(s, &release));
    CHECK(!see(s, "x")->held);
    CHECK_REFUSED(commit1(s, &release));
    return true;
}

static bool free_is_refused_while_any_holder_is_left(struct suite *s)
{
    CHECK_DONE(join_for(s, "k", "one", SHORT_MS));
    CHECK_DONE(join_for(s, "k", "two", SHORT_MS));
    CHECK_REFUSED(take(s, "k", "three"));
    CHECK_REFUSED(check_only(s, "k", BELAY_IF_FREE_FOR_INTENT));
    CHECK_DONE(leave(s, "two"));
    pass_time(s, SHORT_MS + 1);
    CHECK_REFUSED(take(s, "k", "three")); /* expired, but there */
    CHECK_DONE(leave(s, "one"));
    CHECK_DONE(check_only(s, "k", BELAY_IF_FREE_FOR_INTENT));
    CHECK_DONE(take(s, "k", "three"));
    return true;
}

static bool the_first_holder_may_be_added_if_the_lock_is_free(struct suite *s)
{
    struct belay_write write = joining(s, "k", "one", LONG_MS);

    write.condition = BELAY_IF_FREE;
    CHECK_DONE(commit1(s, &write));
    CHECK_TEXT(ids_of(s, see(s, "k")), "one ");
    write = joining(s, "k", "two", LONG_MS);
    write.condition = BELAY_IF_FREE;
    CHECK_REFUSED(commit1(s, &write));
    CHECK_TEXT(ids_of(s, see(s, "k")), "one ");
    return true;
}

/* ---- holders that are over ------------------------------------------------ */

static bool expired_holders_are_dropped_by_the_write_that_adds_one(struct suite *s)
{
    const char *drops[] = { "two", "nobody", "one" };
    struct belay_write write;

    CHECK_DONE(join_for(s, "k", "one", SHORT_MS));
    CHECK_DONE(join_for(s, "k", "two", SHORT_MS));
    CHECK_DONE(join_for(s, "k", "stays", LONG_MS));
    write = joining(s, "k", "new", LONG_MS);
    write.drop_holders = drops;
    write.n_drop_holders = 3;
    CHECK_DONE(commit1(s, &write));
    CHECK_TEXT(ids_of(s, see(s, "k")), "stays new ");
    CHECK(is_as_made(s, see(s, "k"), "stays", LONG_MS));
    CHECK(see(s, "k")->held);
    return true;
}

/* As if all of them had expired: each is an event of the batch. */
static bool one_write_drops_many_holders(struct suite *s)
{
    enum { N = 80 };
    const char *drops[N];
    struct belay_event events[N];
    struct belay_write write;

    for (int i = 0; i < N; i++) {
        drops[i] = suite_text(s, "id-%d", i);
        events[i] = (struct belay_event){
            .type = "lock.taken_over", .key = "k", .lock_id = drops[i], .locked_by = "o", .duration_ms = -1
        };
        CHECK_DONE(join(s, drops[i]));
    }
    write = joining(s, "k", "new", LONG_MS);
    write.drop_holders = drops;
    write.n_drop_holders = N;
    CHECK_DONE(commit(
        s, s->a, &(struct belay_batch){ .writes = &write, .n_writes = 1, .events = events, .n_events = N }));
    CHECK_TEXT(ids_of(s, see(s, "k")), "new ");
    return true;
}

static bool an_exclusive_holder_replaces_holders_that_are_over(struct suite *s)
{
    const char *drops[] = { "one", "two" };
    struct belay_write write = { .key = "k",
                                 .condition = BELAY_IF_UNCHANGED,
                                 .set = BELAY_SET_HOLDER,
                                 .values = holder(s, "alone", LONG_MS),
                                 .drop_holders = drops,
                                 .n_drop_holders = 2 };

    CHECK_DONE(join_for(s, "k", "one", SHORT_MS));
    CHECK_DONE(join_for(s, "k", "two", SHORT_MS));
    pass_time(s, SHORT_MS + 1);
    write.revision = see(s, "k")->revision;
    CHECK_DONE(commit1(s, &write));
    CHECK_INT(see(s, "k")->mode, BELAY_EXCLUSIVE);
    CHECK_INT(see(s, "k")->slots, 0);
    CHECK_INT(see(s, "k")->n_holders, 0);
    CHECK_TEXT(see(s, "k")->lock_id, "alone");
    CHECK_REFUSED(leave(s, "one"));
    CHECK_REFUSED(leave(s, "alone"));
    CHECK_DONE(release(s, "k", "alone"));
    return true;
}

static bool a_shared_holder_replaces_an_exclusive_one_that_is_over(struct suite *s)
{
    CHECK_DONE(take_for(s, "k", "alone", SHORT_MS));
    pass_time(s, SHORT_MS + 1);
    CHECK_DONE(join(s, "one"));
    CHECK_INT(see(s, "k")->mode, BELAY_SHARED);
    CHECK_TEXT(ids_of(s, see(s, "k")), "one ");
    CHECK(repeats(s, see(s, "k"), "one"));
    CHECK_REFUSED(release(s, "k", "alone"));
    return true;
}

/* ---- the queue, and the locks below --------------------------------------- */

static bool other_writes_leave_the_holders_alone(struct suite *s)
{
    const struct belay_record *before;
    const struct belay_record *r;

    CHECK_DONE(join(s, "one"));
    CHECK_DONE(join_for(s, "k", "two", SHORT_MS));
    before = see(s, "k");
    pass_time(s, 10);
    CHECK_DONE(queue(s, "k", "waiter", LONG_MS));
    CHECK_DONE(intend(s, "k", "below", LONG_MS));
    CHECK_DONE(unqueue(s, "k", "waiter"));
    CHECK_DONE(check_only(s, "k", BELAY_IF_ANY)); /* the release of a lock below it */
    r = see(s, "k");
    CHECK_INT(r->n_intents, 1);
    CHECK_INT(r->mode, BELAY_SHARED);
    CHECK_TEXT(ids_of(s, r), "one two ");
    CHECK(repeats(s, r, "one"));
    CHECK_INT(one_of(r, "one")->expires_ms, one_of(before, "one")->expires_ms);
    CHECK_INT(one_of(r, "two")->expires_ms, one_of(before, "two")->expires_ms);
    CHECK(r->freed_ms > before->freed_ms);
    CHECK_DONE(leave(s, "two"));
    CHECK_INT(see(s, "k")->n_intents, 1);
    return true;
}

static bool a_ticket_keeps_the_mode_in_which_it_waits(struct suite *s)
{
    struct belay_put_ticket puts[] = {
        { .lock_id = "alone" },
        { .lock_id = "shared", .mode = BELAY_SHARED },
        { .lock_id = "slots", .mode = BELAY_SLOTS, .slots = 7 },
        { .lock_id = "joint", .joint = true },
        { .lock_id = "all", .mode = BELAY_SLOTS, .slots = 1000, .joint = true },
    };
    const struct belay_record *r;

    for (size_t i = 0; i < 5; i++) {
        puts[i].key = "k";
        puts[i].owner = puts[i].owner_name = "o";
        puts[i].ttl_ms = LONG_MS;
        CHECK_DONE(commit1(s, &(struct belay_write){ .key = "k", .put_ticket = &puts[i] }));
    }
    puts[1].joint = true; /* put again */
    CHECK_DONE(commit1(s, &(struct belay_write){ .key = "k", .put_ticket = &puts[1] }));
    CHECK(suite_reopen(s));
    r = see(s, "k");
    CHECK_INT(r->n_tickets, 5);
    for (size_t i = 0; i < 5; i++) {
        CHECK_TEXT(r->tickets[i].lock_id, puts[i].lock_id);
        CHECK_INT(r->tickets[i].mode, puts[i].mode);
        CHECK_INT(r->tickets[i].slots, puts[i].slots);
        CHECK_INT(r->tickets[i].joint, puts[i].joint);
    }
    return true;
}

static bool an_intent_says_whether_its_lock_is_shared(struct suite *s)
{
    struct belay_put_intent shared = { .lock_id = "shared", .key = "k:x", .ttl_ms = LONG_MS, .shared = true };

    CHECK_DONE(intend(s, "k", "alone", LONG_MS));
    CHECK_DONE(commit1(s, &(struct belay_write){ .key = "k", .put_intents = &shared, .n_put_intents = 1 }));
    CHECK(suite_reopen(s));
    CHECK_INT(see(s, "k")->n_intents, 2);
    CHECK(see(s, "k")->intents[intent_at(see(s, "k"), "shared")].shared);
    CHECK(!see(s, "k")->intents[intent_at(see(s, "k"), "alone")].shared);
    shared.shared = false;
    CHECK_DONE(commit1(s, &(struct belay_write){ .key = "k", .put_intents = &shared, .n_put_intents = 1 }));
    CHECK(!see(s, "k")->intents[intent_at(see(s, "k"), "shared")].shared);
    return true;
}

static bool one_write_puts_several_intents(struct suite *s)
{
    struct belay_put_intent puts[BELAY_KEYS_MAX] = { 0 };
    const char *drop = "one";

    for (size_t i = 0; i < BELAY_KEYS_MAX; i++) {
        puts[i] = (struct belay_put_intent){ .lock_id = suite_text(s, "id/%zu", i),
                                             .key = suite_text(s, "k:%zu", i),
                                             .ttl_ms = 1000 + (int64_t)i,
                                             .shared = i % 3 == 0 };
    }
    CHECK_DONE(intend(s, "k", "one", LONG_MS));
    CHECK_DONE(intend(s, "k", "id/7", LONG_MS)); /* replaced */
    CHECK_DONE(commit1(s, &(struct belay_write){ .key = "k",
                                                 .drop_intents = &drop,
                                                 .n_drop_intents = 1,
                                                 .put_intents = puts,
                                                 .n_put_intents = BELAY_KEYS_MAX }));
    CHECK(suite_reopen(s));
    CHECK_INT(see(s, "k")->n_intents, BELAY_KEYS_MAX);
    for (size_t i = 0; i < BELAY_KEYS_MAX; i++) {
        size_t at = intent_at(see(s, "k"), puts[i].lock_id);

        CHECK(at < BELAY_KEYS_MAX);
        CHECK_TEXT(see(s, "k")->intents[at].key, puts[i].key);
        CHECK_INT(see(s, "k")->intents[at].shared, puts[i].shared);
    }
    return true;
}

/* ---- keeping --------------------------------------------------------------- */

static bool holders_outlast_closing_and_opening(struct suite *s)
{
    struct belay_write write = joining(s, "k", "durable", 5000);
    struct belay_record values = *write.values;
    const struct belay_record *before;
    const struct belay_record *after;

    values.durable = true;
    values.acquired_by = NULL;
    values.metadata = NULL;
    values.n_metadata = 0;
    write.values = &values;
    CHECK_DONE(commit1(s, &write));
    CHECK_DONE(join(s, "two"));
    CHECK_DONE(change(s, "two", BELAY_IF_HELD_BY, BELAY_SET_STALE_REPORTED));
    before = see(s, "k");
    CHECK(suite_reopen(s));
    after = see(s, "k");
    CHECK_TEXT(ids_of(s, after), "durable two ");
    CHECK(one_of(after, "durable")->durable && !one_of(after, "two")->durable);
    CHECK_TEXT(one_of(after, "durable")->acquired_by, "");
    CHECK_INT(one_of(after, "durable")->n_metadata, 0);
    CHECK(one_of(after, "two")->stale_reported && !one_of(after, "durable")->stale_reported);
    CHECK(repeats(s, after, "two"));
    for (size_t i = 0; i < 2; i++) {
        CHECK_INT(after->holders[i].token, before->holders[i].token);
        CHECK_INT(after->holders[i].expires_ms, before->holders[i].expires_ms);
        CHECK_INT(after->holders[i].ttl_ms, before->holders[i].ttl_ms);
    }
    CHECK_DONE(leave(s, "durable"));
    CHECK_DONE(leave(s, "two"));
    return true;
}

static bool many_holders_come_and_go(struct suite *s)
{
    enum { N = 60 };

    for (int i = 0; i < N; i++) {
        CHECK_DONE(join(s, suite_text(s, "id-%d", i)));
    }
    for (int i = 0; i < N; i += 2) {
        CHECK_DONE(leave(s, suite_text(s, "id-%d", i)));
    }
    CHECK(suite_reopen(s));
    CHECK_INT(see(s, "k")->n_holders, N / 2);
    for (int i = 1; i < N; i += 2) {
        CHECK_TEXT(see(s, "k")->holders[i / 2].lock_id, suite_text(s, "id-%d", i));
        CHECK(is_as_made(s, see(s, "k"), suite_text(s, "id-%d", i), LONG_MS));
    }
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ .held_only = true }), "k ");
    return true;
}

/* ---- events ----------------------------------------------------------------- */

enum { EVENTS_SEEN = 8 };

struct seen_events {
    struct suite *s;
    size_t n;
    struct belay_event events[EVENTS_SEEN]; /* the suite's copies, without metadata */
    const char *sakes[EVENTS_SEEN];         /* the first value of the metadata; NULL: none */
};

static bool note(void *context, const struct belay_event *event)
{
    struct seen_events *seen = context;
    struct belay_event *copy = &seen->events[seen->n];

    if (seen->n == EVENTS_SEEN) {
        return false;
    }
    *copy = *event;
    copy->key = suite_text(seen->s, "%s", event->key);
    copy->locked_by = suite_text(seen->s, "%s", event->locked_by == NULL ? "" : event->locked_by);
    seen->sakes[seen->n++] =
        event->n_metadata == 0 ? NULL : suite_text(seen->s, "%s", event->metadata[0].value);
    return true;
}

static const struct seen_events *all_events(struct suite *s)
{
    struct seen_events *seen = suite_alloc(s, sizeof *seen);

    seen->s = s;
    (void)s->b->ops->events(s->b, &(struct belay_events_query){ 0 }, note, seen, NULL);
    return seen;
}

/* All that the store can fill in. */
static struct belay_event open_event(const char *key, const char *lock_id)
{
    return (struct belay_event){
        .type = "lock.released", .key = key, .lock_id = lock_id, .duration_ms = BELAY_DURATION_HELD
    };
}

static bool an_event_takes_its_fields_from_the_holder_of_its_write(struct suite *s)
{
    struct belay_write write = about(s, "k", "two", BELAY_IF_HELD_BY, BELAY_SET_RELEASED);
    struct belay_event e = open_event("k", "two");
    const struct seen_events *seen;
    const struct answer *second;

    CHECK_DONE(join(s, "one"));
    pass_time(s, 30);
    second = join_for(s, "k", "two", SHORT_MS); /* the record repeats the other */
    CHECK_DONE(second);
    pass_time(s, 20);
    CHECK_DONE(commit(s, s->a,
                      &(struct belay_batch){ .writes = &write, .n_writes = 1, .events = &e, .n_events = 1 }));
    seen = all_events(s);
    CHECK_INT(seen->n, 1);
    CHECK_INT(seen->events[0].token, second->done.token);
    CHECK_TEXT(seen->events[0].locked_by, holder(s, "two", LONG_MS)->owner);
    CHECK_TEXT(seen->sakes[0], holder(s, "two", LONG_MS)->metadata[0].value);
    CHECK(seen->events[0].duration_ms >= 20);
    CHECK(!s->fixture->clock_stands || seen->events[0].duration_ms == 20);
    return true;
}

/* L9: each key of a batch has its own holder, token and time. */
static bool events_of_several_keys_are_filled_from_the_record_of_their_key(struct suite *s)
{
    struct belay_write writes[2] = {
        { .key = "a", .condition = BELAY_IF_HELD_BY, .lock_id = "one", .set = BELAY_SET_RELEASED },
        { .key = "b", .condition = BELAY_IF_HELD_BY, .lock_id = "two", .set = BELAY_SET_RELEASED },
    };
    struct belay_event events[2] = { open_event("b", "two"), open_event("a", "one") };
    const char *const ids[] = { "two", "one" };
    const struct seen_events *seen;
    const struct answer *taken[2];

    writes[0].values = writes[1].values = holder(s, "one", LONG_MS);
    taken[1] = take(s, "a", "one");
    pass_time(s, 30);
    taken[0] = take(s, "b", "two");
    pass_time(s, 20);
    CHECK_DONE(commit(
        s, s->a, &(struct belay_batch){ .writes = writes, .n_writes = 2, .events = events, .n_events = 2 }));
    seen = all_events(s);
    CHECK_INT(seen->n, 2);
    for (size_t i = 0; i < 2; i++) {
        CHECK_TEXT(seen->events[i].key, events[i].key);
        CHECK_INT(seen->events[i].token, taken[i]->done.token);
        CHECK_TEXT(seen->events[i].locked_by, holder(s, ids[i], LONG_MS)->owner);
        CHECK_TEXT(seen->sakes[i], holder(s, ids[i], LONG_MS)->metadata[0].value);
        CHECK(seen->events[i].duration_ms >= (i == 0 ? 20 : 50));
        CHECK(!s->fixture->clock_stands || seen->events[i].duration_ms == (i == 0 ? 20 : 50));
    }
    return true;
}

static bool events_name_the_token_that_the_batch_grants_for_their_key(struct suite *s)
{
    struct belay_write writes[2] = {
        { .key = "a", .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER },
        { .key = "b", .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER },
    };
    struct belay_event events[2] = { open_event("b", "one"), open_event("a", "one") };
    const struct seen_events *seen;
    const struct answer *done;

    writes[0].values = writes[1].values = holder(s, "one", LONG_MS);
    events[0].token = events[1].token = BELAY_TOKEN_OF_BATCH;
    CHECK_DONE(take(s, "b", "zero")); /* so that the two have had different numbers of tokens */
    CHECK_DONE(release(s, "b", "zero"));
    done = commit(s, s->a,
                  &(struct belay_batch){ .writes = writes, .n_writes = 2, .events = events, .n_events = 2 });
    CHECK_DONE(done);
    CHECK_INT(done->done.token, image(done, 0)->token);
    seen = all_events(s);
    CHECK_INT(seen->n, 2);
    CHECK_INT(seen->events[0].token, see(s, "b")->token);
    CHECK_INT(seen->events[1].token, see(s, "a")->token);
    CHECK(see(s, "a")->token != 0 && see(s, "b")->token != 0);
    return true;
}

/* ---- used ids ---------------------------------------------------------------- */

static const struct answer *acquire_logged(struct suite *s, const struct belay_write *writes, size_t n)
{
    const char *id = writes[0].values->lock_id;
    struct belay_event *events = suite_alloc(s, n * sizeof *events);

    for (size_t i = 0; i < n; i++) {
        events[i] = (struct belay_event){ .type = "lock.acquired",
                                          .key = writes[i].key,
                                          .lock_id = id,
                                          .locked_by = "o",
                                          .locked_by_name = "o",
                                          .token = BELAY_TOKEN_OF_BATCH,
                                          .duration_ms = -1 };
    }
    return commit(
        s, s->a,
        &(struct belay_batch){
            .writes = writes, .n_writes = n, .events = events, .n_events = n, .require_unused_id = id });
}

static bool an_id_that_held_any_key_of_the_batch_is_used(struct suite *s)
{
    struct belay_write writes[2] = {
        { .key = "a", .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER },
        { .key = "b", .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER },
    };

    writes[0].values = writes[1].values = holder(s, "one", LONG_MS);
    CHECK_DONE(acquire_logged(s, &writes[1], 1));
    CHECK_DONE(release(s, "b", "one"));
    CHECK_DONE(take(s, "b", "other")); /* the record no longer names it */
    CHECK_DONE(release(s, "b", "other"));
    CHECK_CODE(acquire_logged(s, writes, 2), BELAY_ID_USED);
    CHECK_INT(see(s, "a")->revision, 0);
    writes[1].set = BELAY_SET_FREED; /* does not acquire */
    CHECK_DONE(acquire_logged(s, writes, 2));
    return true;
}

static bool the_id_of_one_of_several_holders_is_used(struct suite *s)
{
    struct belay_write first = joining(s, "k", "one", LONG_MS);
    struct belay_write again;

    CHECK_DONE(acquire_logged(s, &first, 1));
    CHECK_DONE(join(s, "two"));
    again = joining(s, "k", "one", LONG_MS);
    CHECK_CODE(acquire_logged(s, &again, 1), BELAY_ID_USED);
    CHECK_DONE(leave(s, "one"));
    CHECK_DONE(leave(s, "two"));
    again = joining(s, "k", "one", LONG_MS);
    CHECK_CODE(acquire_logged(s, &again, 1), BELAY_ID_USED);
    CHECK_INT(see(s, "k")->n_holders, 0);
    return true;
}

const struct suite_case suite_modes[] = {
    CASE("port", the_capabilities_tell_whether_a_lock_can_have_several_holders),
    CASE_IF("L1", a_holder_is_added_beside_the_others, SUITE_NEEDS_MODES),
    CASE_IF("L1", slots_stay_with_the_lock, SUITE_NEEDS_MODES),
    CASE_IF("L1", the_record_repeats_the_holder_whose_lease_ends_last, SUITE_NEEDS_MODES),
    CASE_IF("port", of_leases_that_end_together_the_record_repeats_the_oldest,
            SUITE_NEEDS_MODES | SUITE_NEEDS_STANDING_CLOCK),
    CASE_IF("L3", a_renewal_reaches_one_holder_only, SUITE_NEEDS_MODES),
    CASE_IF("L1", a_release_removes_one_holder_only, SUITE_NEEDS_MODES),
    CASE_IF("L5", after_the_last_release_the_lock_is_free_and_knows_its_last_holder, SUITE_NEEDS_MODES),
    CASE_IF("L3", the_last_releases_of_several_holders_stay_known, SUITE_NEEDS_MODES),
    CASE_IF("port", a_change_of_a_holder_that_is_not_there_is_refused, SUITE_NEEDS_MODES),
    CASE_IF("L4", a_holder_that_is_added_can_say_that_the_lock_was_freed, SUITE_NEEDS_MODES),
    CASE_IF("L2", an_adopted_place_keeps_all_but_its_id, SUITE_NEEDS_MODES),
    CASE_IF("port", one_holder_is_reported_as_stale, SUITE_NEEDS_MODES),
    CASE_IF("port", one_holder_is_forced_out, SUITE_NEEDS_MODES),
    CASE_IF("L3", each_holder_has_a_lease_of_its_own, SUITE_NEEDS_MODES),
    CASE_IF("L1", a_write_about_the_only_holder_is_refused_if_there_are_several, SUITE_NEEDS_MODES),
    CASE_IF("port", a_write_that_leaves_the_mode_to_the_store_finds_its_holder, SUITE_NEEDS_MODES),
    CASE_IF("L1", free_is_refused_while_any_holder_is_left, SUITE_NEEDS_MODES),
    CASE_IF("L1", the_first_holder_may_be_added_if_the_lock_is_free, SUITE_NEEDS_MODES),
    CASE_IF("L3", expired_holders_are_dropped_by_the_write_that_adds_one, SUITE_NEEDS_MODES),
    CASE_IF("L4", one_write_drops_many_holders, SUITE_NEEDS_MODES),
    CASE_IF("L1", an_exclusive_holder_replaces_holders_that_are_over, SUITE_NEEDS_MODES),
    CASE_IF("L1", a_shared_holder_replaces_an_exclusive_one_that_is_over, SUITE_NEEDS_MODES),
    CASE_IF("L1", other_writes_leave_the_holders_alone, SUITE_NEEDS_MODES),
    CASE_IF("port", a_ticket_keeps_the_mode_in_which_it_waits, SUITE_NEEDS_MODES),
    CASE_IF("port", an_intent_says_whether_its_lock_is_shared, SUITE_NEEDS_MODES),
    CASE_IF("port", one_write_puts_several_intents, SUITE_NEEDS_MODES),
    CASE_IF("L7", holders_outlast_closing_and_opening, SUITE_NEEDS_MODES),
    CASE_IF("L1", many_holders_come_and_go, SUITE_NEEDS_MODES),
    CASE_IF("L9", an_event_takes_its_fields_from_the_holder_of_its_write,
            SUITE_NEEDS_MODES | SUITE_NEEDS_EVENTS),
    CASE_IF("L9", events_of_several_keys_are_filled_from_the_record_of_their_key,
            SUITE_NEEDS_EVENTS | SUITE_LACKS_BATCHES),
    CASE_IF("L2", events_name_the_token_that_the_batch_grants_for_their_key,
            SUITE_NEEDS_EVENTS | SUITE_LACKS_BATCHES),
    CASE_IF("L5", an_id_that_held_any_key_of_the_batch_is_used, SUITE_NEEDS_USED_IDS | SUITE_LACKS_BATCHES),
    CASE_IF("L5", the_id_of_one_of_several_holders_is_used, SUITE_NEEDS_USED_IDS | SUITE_NEEDS_MODES),
    { NULL, NULL, 0, NULL },
};
