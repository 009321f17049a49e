/* Tokens grow, revisions change, ids are used once, the clock advances. */
#include "support/suite_kit.h"

/* ---- tokens ------------------------------------------------------------ */

static const struct answer *identify(struct suite *s, struct belay_store *store, const char *key,
                                     const char *lock_id)
{
    struct belay_write write = { .key = key, .set = BELAY_SET_HOLDER, .values = holder(s, lock_id, LONG_MS) };

    return commit(s, store, &(struct belay_batch){ .writes = &write, .n_writes = 1 });
}

static bool a_token_is_handed_out_with_an_identity_and_only_then(struct suite *s)
{
    const struct answer *taken = take(s, "k", "one");
    const struct answer *other;
    uint64_t token = taken->done.token;

    CHECK_DONE(taken);
    CHECK(token > 0);
    CHECK(token < BELAY_TOKEN_OF_BATCH);
    CHECK_INT(image(taken, 0)->token, token);
    CHECK_INT(see(s, "k")->token, token);
    other = check_only(s, "k", BELAY_IF_ANY);
    CHECK_DONE(other);
    CHECK_INT(other->done.token, 0);
    other = queue(s, "k", "waiter", LONG_MS);
    CHECK_INT(other->done.token, 0);
    other = release(s, "k", "one");
    CHECK_INT(other->done.token, 0);
    CHECK_INT(see(s, "k")->token, token);
    return true;
}

static bool tokens_of_a_key_grow_over_release_and_take_over(struct suite *s)
{
    uint64_t last = 0;

    for (int i = 0; i < 30; i++) {
        const char *id = suite_text(s, "id-%d", i);
        const struct answer *taken =
            i % 3 == 0 ? identify(s, s->a, "k", id) : take(s, "k", id); /* a take-over, or a release before */

        CHECK_DONE(taken);
        CHECK(taken->done.token > last);
        CHECK_INT(image(taken, 0)->token, taken->done.token);
        last = taken->done.token;
        if (i % 3 != 2) {
            CHECK_DONE(release(s, "k", id));
        }
    }
    return true;
}

static bool tokens_of_a_key_grow_over_handles(struct suite *s)
{
    uint64_t last = 0;

    for (int i = 0; i < 20; i++) {
        const struct answer *taken = identify(s, i % 2 == 0 ? s->a : s->b, "k", suite_text(s, "id-%d", i));

        CHECK_DONE(taken);
        CHECK(taken->done.token > last);
        last = taken->done.token;
        CHECK_DONE(identify(s, s->a, suite_text(s, "other-%d", i), "x"));
    }
    return true;
}

static bool tokens_of_a_key_grow_over_closing_and_opening(struct suite *s)
{
    uint64_t last = 0;

    for (int i = 0; i < 5; i++) {
        const struct answer *taken = identify(s, s->a, "k", suite_text(s, "id-%d", i));

        CHECK_DONE(taken);
        CHECK(taken->done.token > last);
        last = taken->done.token;
        CHECK(suite_reopen(s));
        CHECK_INT(see(s, "k")->token, last);
        CHECK_TEXT(see(s, "k")->lock_id, suite_text(s, "id-%d", i));
    }
    return true;
}

static bool tokens_of_a_key_grow_although_its_record_was_removed(struct suite *s)
{
    const struct answer *taken = take(s, "k", "one");
    uint64_t last = taken->done.token;
    uint64_t revision = image(taken, 0)->revision;

    CHECK_DONE(taken);
    CHECK_DONE(release(s, "k", "one"));
    s->fixture->forget(s->fixture->ctx);
    CHECK_INT(see(s, "k")->revision, 0);
    taken = identify(s, s->a, "k", "two");
    CHECK_DONE(taken);
    CHECK(taken->done.token > last);
    CHECK(image(taken, 0)->revision != revision);
    return true;
}

static bool held_and_awaited_records_are_never_removed(struct suite *s)
{
    CHECK_DONE(take(s, "held", "one"));
    CHECK_DONE(queue(s, "waited", "waiter", LONG_MS));
    CHECK_DONE(intend(s, "above", "below", LONG_MS));
    s->fixture->forget(s->fixture->ctx);
    CHECK(see(s, "held")->held);
    CHECK_INT(see(s, "waited")->n_tickets, 1);
    CHECK_INT(see(s, "above")->n_intents, 1);
    return true;
}

static bool a_refused_identity_takes_no_token_from_the_holder(struct suite *s)
{
    const struct answer *taken = take(s, "k", "one");
    const struct answer *refused = take(s, "k", "two");

    CHECK_REFUSED(refused);
    CHECK_INT(refused->done.token, 0);
    CHECK_INT(image(refused, 0)->token, taken->done.token);
    CHECK_INT(see(s, "k")->token, taken->done.token);
    return true;
}

static bool a_token_goes_to_the_write_that_sets_an_identity(struct suite *s)
{
    struct belay_write writes[] = {
        { .key = "above",
          .condition = BELAY_IF_FREE_FOR_INTENT,
          .set = BELAY_SET_FREED,
          .values = holder(s, "x", 1000) },
        { .key = "k",
          .condition = BELAY_IF_FREE,
          .set = BELAY_SET_HOLDER,
          .values = holder(s, "one", LONG_MS) },
    };
    const struct answer *done = commit(s, s->a, &(struct belay_batch){ .writes = writes, .n_writes = 2 });

    CHECK_DONE(done);
    CHECK_INT(image(done, 0)->token, 0);
    CHECK_INT(image(done, 1)->token, done->done.token);
    CHECK_TEXT(image(done, 0)->lock_id, "");
    return true;
}

/* ---- revisions --------------------------------------------------------- */

static bool a_revision_changes_with_every_write_and_never_comes_back(struct suite *s)
{
    enum { N = 40 };
    uint64_t seen[N];

    for (size_t i = 0; i < N; i++) {
        const char *id = suite_text(s, "id-%zu", i / 4);
        const struct answer *done = i % 4 == 0   ? identify(s, s->a, "k", id)
                                    : i % 4 == 1 ? queue(s, "k", "waiter", LONG_MS)
                                    : i % 4 == 2 ? intend(s, "k", "below", LONG_MS)
                                                 : release(s, "k", id);

        CHECK_DONE(done);
        seen[i] = image(done, 0)->revision;
        CHECK(seen[i] != 0);
        CHECK_INT(see(s, "k")->revision, seen[i]);
        for (size_t j = 0; j < i; j++) {
            CHECK(seen[j] != seen[i]);
        }
    }
    return true;
}

static bool a_write_that_sets_what_is_there_already_changes_the_revision(struct suite *s)
{
    struct belay_write same = { .key = "k", .set = BELAY_SET_OWNER, .values = holder(s, "one", LONG_MS) };
    uint64_t before;

    CHECK_DONE(take(s, "k", "one"));
    before = see(s, "k")->revision;
    CHECK_DONE(commit1(s, &same));
    CHECK(see(s, "k")->revision != before);
    return true;
}

static bool reading_and_refusing_leave_the_revision(struct suite *s)
{
    uint64_t before;

    CHECK_DONE(take(s, "k", "one"));
    before = see(s, "k")->revision;
    CHECK_REFUSED(take(s, "k", "two"));
    CHECK_REFUSED(release(s, "k", "two"));
    (void)scan_keys(s, s->a, &(struct belay_scan){ 0 });
    pass_time(s, 5);
    CHECK_INT(see(s, "k")->revision, before);
    CHECK_INT(look(s, s->a, "k")->revision, before);
    return true;
}

static bool a_write_of_one_key_leaves_the_others_alone(struct suite *s)
{
    uint64_t before;

    CHECK_DONE(take(s, "k", "one"));
    before = see(s, "k")->revision;
    CHECK_DONE(take(s, "k2", "two"));
    CHECK_DONE(take(s, "K", "three"));
    CHECK_DONE(take(s, "k ", "four"));
    CHECK_INT(see(s, "k")->revision, before);
    CHECK_TEXT(see(s, "k")->lock_id, "one");
    return true;
}

/* ---- ids that were used ------------------------------------------------ */

/* With its event, as every taking has (L9): a store may remember the id by that. */
static const struct answer *take_unused(struct suite *s, const char *key, enum belay_condition condition,
                                        const char *lock_id)
{
    struct belay_write write = { .key = key,
                                 .condition = condition,
                                 .set = BELAY_SET_HOLDER,
                                 .revision = look(s, s->b, key)->revision,
                                 .values = holder(s, lock_id, LONG_MS) };
    struct belay_event event = { .type = "lock.acquired", .key = key, .lock_id = lock_id };

    return commit(
        s, s->a,
        &(struct belay_batch){
            .writes = &write, .n_writes = 1, .events = &event, .n_events = 1, .require_unused_id = lock_id });
}

static bool an_id_that_took_the_key_before_is_used(struct suite *s)
{
    uint64_t before;

    CHECK_DONE(take_unused(s, "k", BELAY_IF_FREE, "one"));
    CHECK_DONE(release(s, "k", "one"));
    CHECK_DONE(take_unused(s, "k", BELAY_IF_FREE, "two"));
    CHECK_DONE(release(s, "k", "two"));
    before = see(s, "k")->revision;
    CHECK_CODE(take_unused(s, "k", BELAY_IF_FREE, "one"), BELAY_ID_USED);
    CHECK_CODE(take_unused(s, "k", BELAY_IF_UNCHANGED, "one"), BELAY_ID_USED);
    CHECK_CODE(take_unused(s, "k", BELAY_IF_UNCHANGED, "two"), BELAY_ID_USED);
    CHECK_INT(see(s, "k")->revision, before);
    CHECK_DONE(take_unused(s, "k", BELAY_IF_FREE, "three"));
    return true;
}

static bool an_id_is_used_for_its_key_only_and_only_by_taking(struct suite *s)
{
    CHECK_DONE(take_unused(s, "k", BELAY_IF_FREE, "one"));
    CHECK_DONE(take_unused(s, "l", BELAY_IF_FREE, "one"));
    CHECK_DONE(queue(s, "m", "waiter", LONG_MS));
    CHECK_DONE(unqueue(s, "m", "waiter"));
    CHECK_DONE(take_unused(s, "m", BELAY_IF_FREE, "waiter"));
    return true;
}

static bool a_condition_is_reported_before_a_used_id(struct suite *s)
{
    const struct answer *again;

    CHECK_DONE(take_unused(s, "k", BELAY_IF_FREE, "one"));
    again = take_unused(s, "k", BELAY_IF_FREE, "one");
    CHECK_REFUSED(again);
    CHECK_TEXT(image(again, 0)->lock_id, "one");
    CHECK(image(again, 0)->held);
    return true;
}

static bool an_id_stays_used_over_closing_and_opening(struct suite *s)
{
    CHECK_DONE(take_unused(s, "k", BELAY_IF_FREE, "one"));
    CHECK_DONE(release(s, "k", "one"));
    CHECK_DONE(take_unused(s, "k", BELAY_IF_FREE, "two"));
    CHECK_DONE(release(s, "k", "two"));
    CHECK(suite_reopen(s));
    CHECK_CODE(take_unused(s, "k", BELAY_IF_FREE, "one"), BELAY_ID_USED);
    return true;
}

static bool an_id_stays_used_after_many_others(struct suite *s)
{
    for (int i = 0; i < 300; i++) {
        const char *id = suite_text(s, "id-%d", i);

        CHECK_DONE(take_unused(s, i % 3 == 0 ? "other" : "k", BELAY_IF_FREE, id));
        CHECK_DONE(release(s, i % 3 == 0 ? "other" : "k", id));
    }
    for (int i = 0; i < 300; i += 50) {
        const char *key = i % 3 == 0 ? "other" : "k";

        CHECK_CODE(take_unused(s, key, BELAY_IF_FREE, suite_text(s, "id-%d", i)), BELAY_ID_USED);
    }
    CHECK_CODE(take_unused(s, "k", BELAY_IF_UNCHANGED, "id-299"), BELAY_ID_USED);
    CHECK_DONE(take_unused(s, "k", BELAY_IF_FREE, "id-0"));
    return true;
}

/* ---- the clock --------------------------------------------------------- */

static bool the_clock_never_goes_back_over_handles_and_calls(struct suite *s)
{
    int64_t last = INT64_MIN;

    for (int i = 0; i < 30; i++) {
        struct belay_store *store = i % 2 == 0 ? s->a : s->b;

        if (i % 3 == 0) {
            CHECK_DONE(identify(s, store, "k", suite_text(s, "id-%d", i)));
        } else if (i % 3 == 1) {
            (void)look(s, store, "k");
        } else {
            (void)scan_keys(s, store, &(struct belay_scan){ 0 });
        }
        CHECK(s->now_ms >= last);
        last = s->now_ms;
        pass_time(s, i % 4);
    }
    return true;
}

static bool the_clock_goes_on_by_itself(struct suite *s)
{
    int64_t before;

    (void)look(s, s->b, "k");
    (void)look(s, s->a, "k");
    before = s->now_ms;
    pass_time(s, 50);
    (void)look(s, s->b, "k");
    CHECK(s->now_ms >= before + 50);
    if (s->fixture->clock_stands) {
        CHECK_INT(s->now_ms, before + 50);
    }
    return true;
}

static bool a_lease_is_exact_to_the_millisecond(struct suite *s)
{
    static const int64_t ttls[] = { 1, 100, 101, 999, 1000, 59999, 3600001, BELAY_TTL_MAX_MS };

    for (size_t i = 0; i < sizeof ttls / sizeof ttls[0]; i++) {
        const char *key = suite_text(s, "k%zu", i);
        const struct answer *taken = take_for(s, key, "one", ttls[i]);

        CHECK_DONE(taken);
        CHECK_INT(image(taken, 0)->expires_ms, taken->done.now_ms + ttls[i]);
        CHECK_INT(see(s, key)->expires_ms, taken->done.now_ms + ttls[i]);
        CHECK_INT(see(s, key)->ttl_ms, ttls[i]);
    }
    return true;
}

const struct suite_case suite_tokens[] = {
    CASE_IF("L2", a_token_is_handed_out_with_an_identity_and_only_then,
            SUITE_LACKS_TOKENS | SUITE_LACKS_RELEASED),
    CASE_IF("L2", tokens_of_a_key_grow_over_release_and_take_over, SUITE_LACKS_TOKENS),
    CASE_IF("L2", tokens_of_a_key_grow_over_handles, SUITE_LACKS_TOKENS),
    CASE_IF("L2", tokens_of_a_key_grow_over_closing_and_opening, SUITE_LACKS_TOKENS),
    CASE_IF("L2", tokens_of_a_key_grow_although_its_record_was_removed, SUITE_NEEDS_FORGETTING),
    CASE_IF("L1", held_and_awaited_records_are_never_removed, SUITE_NEEDS_FORGETTING),
    CASE_IF("L2", a_refused_identity_takes_no_token_from_the_holder, SUITE_LACKS_WHOLE_IMAGES),
    CASE_IF("L2", a_token_goes_to_the_write_that_sets_an_identity, SUITE_LACKS_BATCHES),
    CASE_IF("port", a_revision_changes_with_every_write_and_never_comes_back, SUITE_LACKS_REVISIONS),
    CASE_IF("port", a_write_that_sets_what_is_there_already_changes_the_revision, SUITE_LACKS_REVISIONS),
    CASE("port", reading_and_refusing_leave_the_revision),
    CASE("L1", a_write_of_one_key_leaves_the_others_alone),
    CASE_IF("L5", an_id_that_took_the_key_before_is_used, SUITE_NEEDS_USED_IDS),
    CASE("L5", an_id_is_used_for_its_key_only_and_only_by_taking),
    CASE("L5", a_condition_is_reported_before_a_used_id),
    CASE_IF("L5", an_id_stays_used_over_closing_and_opening, SUITE_NEEDS_USED_IDS),
    CASE_IF("L5", an_id_stays_used_after_many_others, SUITE_NEEDS_USED_IDS),
    CASE("L7", the_clock_never_goes_back_over_handles_and_calls),
    CASE("L7", the_clock_goes_on_by_itself),
    CASE_IF("L7", a_lease_is_exact_to_the_millisecond, SUITE_LACKS_MILLIS),
    { NULL, NULL, 0, NULL },
};
