/* The fields that a write sets; all others stay. */
#include "support/suite_kit.h"

/* The fields of a record, grouped as in BELAY_SET_. */
enum group {
    GROUP_HELD = 1 << 0, /* held, outcome */
    GROUP_LOCKED_AT = 1 << 1,
    GROUP_IDENTITY = 1 << 2,
    GROUP_OWNER = 1 << 3,
    GROUP_METADATA = 1 << 4,
    GROUP_LIVENESS = 1 << 5,
    GROUP_LEASE = 1 << 6,
    GROUP_FREED = 1 << 7,
    GROUP_STALE = 1 << 8,
    GROUP_LINES = 1 << 9 /* tickets, intents */
};

static bool same_metadata(const struct belay_record *a, const struct belay_record *b)
{
    if (a->n_metadata != b->n_metadata) {
        return false;
    }
    for (size_t i = 0; i < a->n_metadata; i++) {
        if (!same_text(meta_of(b, a->metadata[i].name), a->metadata[i].value)) {
            return false;
        }
    }
    return true;
}

static bool same_lines(const struct belay_record *a, const struct belay_record *b)
{
    if (a->n_tickets != b->n_tickets || a->n_intents != b->n_intents) {
        return false;
    }
    for (size_t i = 0; i < a->n_tickets; i++) {
        const struct belay_ticket *x = &a->tickets[i], *y = &b->tickets[i];

        if (!same_text(x->lock_id, y->lock_id) || x->seq != y->seq || x->expires_ms != y->expires_ms) {
            return false;
        }
    }
    for (size_t i = 0; i < a->n_intents; i++) {
        size_t at = intent_at(b, a->intents[i].lock_id);

        if (at == b->n_intents || a->intents[i].expires_ms != b->intents[at].expires_ms) {
            return false;
        }
    }
    return true;
}

static unsigned changes(const struct belay_record *a, const struct belay_record *b)
{
    unsigned groups = 0;

    groups |= a->held != b->held || a->outcome != b->outcome ? GROUP_HELD : 0U;
    groups |= a->locked_at_unix_ms != b->locked_at_unix_ms ? GROUP_LOCKED_AT : 0U;
    groups |= !same_text(a->lock_id, b->lock_id) || a->token != b->token ||
                      !same_text(a->acquired_by, b->acquired_by)
                  ? GROUP_IDENTITY
                  : 0U;
    groups |= !same_text(a->owner, b->owner) || !same_text(a->owner_name, b->owner_name) ? GROUP_OWNER : 0U;
    groups |= !same_metadata(a, b) ? GROUP_METADATA : 0U;
    groups |= a->durable != b->durable || a->heartbeat_ms != b->heartbeat_ms ||
                      a->stale_after_ms != b->stale_after_ms
                  ? GROUP_LIVENESS
                  : 0U;
    groups |= a->ttl_ms != b->ttl_ms || a->expires_ms != b->expires_ms ||
                      a->last_heartbeat_ms != b->last_heartbeat_ms ||
                      a->expires_at_unix_ms != b->expires_at_unix_ms ||
                      a->last_heartbeat_unix_ms != b->last_heartbeat_unix_ms
                  ? GROUP_LEASE
                  : 0U;
    groups |= a->freed_ms != b->freed_ms || a->freed_at_unix_ms != b->freed_at_unix_ms ? GROUP_FREED : 0U;
    groups |= a->stale_reported != b->stale_reported ? GROUP_STALE : 0U;
    groups |= !same_lines(a, b) ? GROUP_LINES : 0U;
    return groups;
}

/* A record in which everything is set; `held` as wanted. */
static bool prepare(struct suite *s, bool held)
{
    CHECK_DONE(take(s, "k", "one"));
    CHECK_DONE(queue(s, "k", "waiter", LONG_MS));
    CHECK_DONE(intend(s, "k", "below", LONG_MS));
    CHECK_DONE(commit1(
        s, &(struct belay_write){ .key = "k", .set = BELAY_SET_FREED, .values = holder(s, "x", LONG_MS) }));
    if (!held) {
        CHECK_DONE(release(s, "k", "one"));
    }
    /* Last, by its own name: a store that clears it with any other write must find it there. */
    CHECK_DONE(commit1(s, &(struct belay_write){
                              .key = "k", .set = BELAY_SET_METADATA, .values = holder(s, "one", LONG_MS) }));
    pass_time(s, 20);
    return true;
}

static struct belay_record *other_values(struct suite *s)
{
    struct belay_record *values = holder(s, "two", 77777);

    values->heartbeat_ms = 1111;
    values->stale_after_ms = 2222;
    values->outcome = BELAY_OUTCOME_FAILED;
    /* None of these is a caller's to say: a store that takes them over is wrong. */
    values->held = true;
    values->token = 424242;
    values->expires_ms = 12345;
    values->last_heartbeat_ms = 12345;
    values->freed_ms = 12345;
    values->locked_at_unix_ms = 12345;
    return values;
}

/* Write one flag alone: of all the groups just `wanted` may change, and must. */
static bool changes_alone(struct suite *s, unsigned flag, unsigned wanted, bool held,
                          const struct answer **out_after)
{
    const struct belay_record *before;
    const struct answer *after;
    unsigned got;

    if (!prepare(s, held)) {
        return false;
    }
    before = see(s, "k");
    after = commit1(s, &(struct belay_write){ .key = "k", .set = flag, .values = other_values(s) });
    CHECK_DONE(after);
    got = changes(before, image(after, 0));
    if (got != wanted) {
        return suite_fail(s, __FILE__, __LINE__, "flag %#x changed groups %#x instead of %#x", flag, got,
                          wanted);
    }
    CHECK_INT(changes(image(after, 0), see(s, "k")), 0);
    *out_after = after;
    return true;
}

static bool taken_alone_sets_held_and_since_when(struct suite *s)
{
    const struct answer *after;

    if (!changes_alone(s, BELAY_SET_ACQUIRED, GROUP_HELD | GROUP_LOCKED_AT, false, &after)) {
        return false;
    }
    CHECK(image(after, 0)->held);
    CHECK_INT(image(after, 0)->outcome, BELAY_OUTCOME_NONE);
    CHECK(image(after, 0)->locked_at_unix_ms != 12345);
    return true;
}

static bool identity_alone_sets_the_id_its_credential_and_a_new_token(struct suite *s)
{
    const struct answer *after;

    if (!changes_alone(s, BELAY_SET_IDENTITY, GROUP_IDENTITY, true, &after)) {
        return false;
    }
    CHECK_TEXT(image(after, 0)->lock_id, "two");
    CHECK_TEXT(image(after, 0)->acquired_by, "token of two");
    CHECK_INT(image(after, 0)->token, after->done.token);
    CHECK(after->done.token != 424242);
    return true;
}

static bool owner_alone_sets_owner_and_name(struct suite *s)
{
    const struct answer *after;

    if (!changes_alone(s, BELAY_SET_OWNER, GROUP_OWNER, true, &after)) {
        return false;
    }
    CHECK_TEXT(image(after, 0)->owner, "owner of two");
    CHECK_TEXT(image(after, 0)->owner_name, "two@example");
    return true;
}

static bool metadata_alone_replaces_all_of_it(struct suite *s)
{
    const struct answer *after;
    struct belay_meta one[1] = { { "other", "thing" } };
    struct belay_record *values = other_values(s);

    if (!changes_alone(s, BELAY_SET_METADATA, GROUP_METADATA, true, &after)) {
        return false;
    }
    CHECK_TEXT(meta_of(image(after, 0), "for"), "the sake of two");
    values->metadata = one;
    values->n_metadata = 1;
    after = commit1(s, &(struct belay_write){ .key = "k", .set = BELAY_SET_METADATA, .values = values });
    CHECK_DONE(after);
    CHECK_INT(image(after, 0)->n_metadata, 1);
    CHECK_TEXT(meta_of(image(after, 0), "other"), "thing");
    values->n_metadata = 0;
    values->metadata = NULL;
    CHECK_DONE(commit1(s, &(struct belay_write){ .key = "k", .set = BELAY_SET_METADATA, .values = values }));
    CHECK_INT(see(s, "k")->n_metadata, 0);
    return true;
}

static bool liveness_alone_sets_heartbeat_and_staleness(struct suite *s)
{
    const struct answer *after;
    struct belay_record *values = other_values(s);

    if (!changes_alone(s, BELAY_SET_LIVENESS, GROUP_LIVENESS, true, &after)) {
        return false;
    }
    CHECK_INT(image(after, 0)->heartbeat_ms, 1111);
    CHECK_INT(image(after, 0)->stale_after_ms, 2222);
    CHECK(!image(after, 0)->durable);
    values->durable = true;
    CHECK_DONE(commit1(s, &(struct belay_write){ .key = "k", .set = BELAY_SET_LIVENESS, .values = values }));
    CHECK(see(s, "k")->durable);
    return true;
}

static bool lease_alone_extends_from_the_time_of_the_store(struct suite *s)
{
    const struct answer *after;

    if (!changes_alone(s, BELAY_SET_LEASE, GROUP_LEASE, true, &after)) {
        return false;
    }
    CHECK_INT(image(after, 0)->ttl_ms, 77777);
    CHECK_INT(image(after, 0)->expires_ms, after->done.now_ms + 77777);
    CHECK_INT(image(after, 0)->last_heartbeat_ms, after->done.now_ms);
    CHECK_INT(image(after, 0)->expires_at_unix_ms - image(after, 0)->last_heartbeat_unix_ms, 77777);
    return true;
}

static bool a_lease_with_ttl_zero_keeps_the_ttl(struct suite *s)
{
    const struct answer *after;

    CHECK_DONE(take_for(s, "k", "one", 45678));
    pass_time(s, 20);
    after = commit1(s, &(struct belay_write){ .key = "k",
                                              .condition = BELAY_IF_LIVE_BY,
                                              .lock_id = "one",
                                              .set = BELAY_SET_LEASE,
                                              .values = holder(s, "one", 0) });
    CHECK_DONE(after);
    CHECK_INT(image(after, 0)->ttl_ms, 45678);
    CHECK_INT(image(after, 0)->expires_ms, after->done.now_ms + 45678);
    CHECK_INT(see(s, "k")->expires_ms, image(after, 0)->expires_ms);
    return true;
}

static bool released_alone_ends_the_holding_with_its_outcome(struct suite *s)
{
    const struct answer *after;

    if (!changes_alone(s, BELAY_SET_RELEASED, GROUP_HELD | GROUP_FREED, true, &after)) {
        return false;
    }
    CHECK(!image(after, 0)->held);
    CHECK_INT(image(after, 0)->outcome, BELAY_OUTCOME_FAILED);
    CHECK_INT(image(after, 0)->freed_ms, after->done.now_ms);
    CHECK_TEXT(image(after, 0)->lock_id, "one");
    return true;
}

/* A store need not keep it; if it does, it is the id that was last released, not a forced one and not the next. */
static bool the_last_holder_stays_known_or_is_empty(struct suite *s)
{
    struct belay_record *forced;
    bool says;

    CHECK_DONE(take(s, "k", "one"));
    CHECK_INT(see(s, "k")->n_released_ids, 0);
    CHECK_DONE(release(s, "k", "one"));
    CHECK_DONE(take(s, "k", "two"));
    says = see(s, "k")->n_released_ids > 0;
    if (says) {
        CHECK_TEXT(see(s, "k")->released_ids[0], "one");
    }
    CHECK(release(s, "k", "one")->code == BELAY_REFUSED);
    forced = holder(s, "two", LONG_MS);
    forced->outcome = BELAY_OUTCOME_FORCED;
    CHECK_DONE(commit1(s, &(struct belay_write){ .key = "k",
                                                 .condition = BELAY_IF_HELD_BY,
                                                 .lock_id = "two",
                                                 .set = BELAY_SET_RELEASED,
                                                 .values = forced }));
    CHECK_DONE(take(s, "k", "three"));
    if (says) {
        CHECK_TEXT(see(s, "k")->released_ids[0], "one");
    } else {
        CHECK_INT(see(s, "k")->n_released_ids, 0);
    }
    return true;
}

static bool every_outcome_is_kept(struct suite *s)
{
    static const enum belay_outcome outcomes[] = { BELAY_OUTCOME_COMPLETED, BELAY_OUTCOME_FAILED,
                                                   BELAY_OUTCOME_FORCED };

    for (size_t i = 0; i < 3; i++) {
        struct belay_record *values = other_values(s);

        values->outcome = outcomes[i];
        CHECK_DONE(take(s, "k", suite_text(s, "id-%zu", i)));
        CHECK_INT(see(s, "k")->outcome, BELAY_OUTCOME_NONE);
        CHECK_DONE(
            commit1(s, &(struct belay_write){ .key = "k", .set = BELAY_SET_RELEASED, .values = values }));
        CHECK_INT(see(s, "k")->outcome, outcomes[i]);
    }
    return true;
}

static bool freed_alone_says_only_when(struct suite *s)
{
    const struct answer *after;

    if (!changes_alone(s, BELAY_SET_FREED, GROUP_FREED, true, &after)) {
        return false;
    }
    CHECK_INT(image(after, 0)->freed_ms, after->done.now_ms);
    CHECK(image(after, 0)->held);
    return true;
}

static bool stale_is_kept_until_the_next_heartbeat(struct suite *s)
{
    const struct answer *after;

    if (!changes_alone(s, BELAY_SET_STALE_REPORTED, GROUP_STALE, true, &after)) {
        return false;
    }
    CHECK(image(after, 0)->stale_reported);
    CHECK_DONE(
        commit1(s, &(struct belay_write){ .key = "k", .set = BELAY_SET_LEASE, .values = other_values(s) }));
    CHECK(!see(s, "k")->stale_reported);
    return true;
}

static bool tickets_and_intents_leave_the_fields_alone(struct suite *s)
{
    const struct belay_record *before;
    const char *waiter = "waiter";
    const char *below = "below";

    if (!prepare(s, true)) {
        return false;
    }
    before = see(s, "k");
    CHECK_DONE(queue(s, "k", "another", LONG_MS));
    CHECK_INT(changes(before, see(s, "k")), GROUP_LINES);
    CHECK_DONE(commit1(s, &(struct belay_write){ .key = "k",
                                                 .drop_tickets = &waiter,
                                                 .n_drop_tickets = 1,
                                                 .drop_intents = &below,
                                                 .n_drop_intents = 1 }));
    CHECK_INT(changes(before, see(s, "k")), GROUP_LINES);
    return true;
}

static bool an_acquired_record_has_every_field(struct suite *s)
{
    const struct answer *taken = take(s, "k", "one");
    const struct belay_record *r = see(s, "k");

    CHECK_DONE(taken);
    CHECK(r->held);
    CHECK_TEXT(r->key, "k");
    CHECK_TEXT(r->lock_id, "one");
    CHECK_TEXT(r->owner, "owner of one");
    CHECK_TEXT(r->owner_name, "one@example");
    CHECK_TEXT(r->acquired_by, "token of one");
    CHECK_INT(r->n_metadata, 2);
    CHECK_TEXT(meta_of(r, "branch"), "main");
    CHECK_INT(r->outcome, BELAY_OUTCOME_NONE);
    CHECK(!r->stale_reported && !r->durable);
    CHECK_INT(r->heartbeat_ms, 30000);
    CHECK_INT(r->stale_after_ms, 120000);
    CHECK_INT(r->ttl_ms, LONG_MS);
    CHECK_INT(r->expires_ms, taken->done.now_ms + LONG_MS);
    CHECK_INT(r->last_heartbeat_ms, taken->done.now_ms);
    CHECK_INT(r->freed_ms, 0);
    CHECK_INT(r->freed_at_unix_ms, 0);
    CHECK_INT(r->expires_at_unix_ms, r->locked_at_unix_ms + LONG_MS);
    CHECK_INT(r->n_tickets, 0);
    CHECK_INT(r->n_intents, 0);
    return true;
}

static bool texts_of_a_record_that_was_never_taken_are_empty(struct suite *s)
{
    const struct belay_record *r;

    CHECK_DONE(queue(s, "k", "waiter", LONG_MS));
    for (int i = 0; i < 2; i++) {
        r = see(s, i == 0 ? "k" : "not there");
        CHECK_TEXT(r->lock_id, "");
        CHECK_TEXT(r->owner, "");
        CHECK_TEXT(r->owner_name, "");
        CHECK(!r->held);
        CHECK_INT(r->token, 0);
        CHECK_INT(r->n_metadata, 0);
    }
    return true;
}

const struct suite_case suite_fields[] = {
    CASE_IF("port", an_acquired_record_has_every_field,
            SUITE_LACKS_NAMES | SUITE_LACKS_METADATA | SUITE_LACKS_LIVENESS | SUITE_LACKS_MILLIS),
    CASE("port", texts_of_a_record_that_was_never_taken_are_empty),
    CASE_IF("port", taken_alone_sets_held_and_since_when, SUITE_LACKS_WHOLE_IMAGES),
    CASE_IF("L2", identity_alone_sets_the_id_its_credential_and_a_new_token, SUITE_LACKS_WHOLE_IMAGES),
    CASE_IF("port", owner_alone_sets_owner_and_name, SUITE_LACKS_WHOLE_IMAGES),
    CASE_IF("port", metadata_alone_replaces_all_of_it, SUITE_LACKS_WHOLE_IMAGES),
    CASE_IF("port", liveness_alone_sets_heartbeat_and_staleness, SUITE_LACKS_WHOLE_IMAGES),
    CASE_IF("L7", lease_alone_extends_from_the_time_of_the_store, SUITE_LACKS_WHOLE_IMAGES),
    CASE_IF("port", a_lease_with_ttl_zero_keeps_the_ttl, SUITE_LACKS_MILLIS),
    CASE_IF("L3", released_alone_ends_the_holding_with_its_outcome, SUITE_LACKS_WHOLE_IMAGES),
    CASE("L5", the_last_holder_stays_known_or_is_empty),
    CASE_IF("port", every_outcome_is_kept, SUITE_LACKS_OUTCOMES),
    CASE_IF("port", freed_alone_says_only_when, SUITE_LACKS_WHOLE_IMAGES),
    CASE_IF("S4.7", stale_is_kept_until_the_next_heartbeat, SUITE_LACKS_WHOLE_IMAGES),
    CASE("port", tickets_and_intents_leave_the_fields_alone),
    { NULL, NULL, 0, NULL },
};
