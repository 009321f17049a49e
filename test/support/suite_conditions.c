/* Each condition of a write: where it holds, and where it does not. */
#include "support/suite_kit.h"

/* ---- absent, any ------------------------------------------------------- */

static const struct answer *take_if(struct suite *s, const char *key, enum belay_condition condition)
{
    return commit1(s, &(struct belay_write){ .key = key,
                                             .condition = condition,
                                             .set = BELAY_SET_HOLDER,
                                             .values = holder(s, "taker", LONG_MS) });
}

static bool absent_holds_where_there_is_no_record(struct suite *s)
{
    const struct answer *first = take_if(s, "k", BELAY_IF_ABSENT);

    CHECK_DONE(first);
    CHECK_INT(first->done.n_records, 1);
    CHECK_TEXT(image(first, 0)->key, "k");
    CHECK(image(first, 0)->revision != 0);
    CHECK(see(s, "k")->revision == image(first, 0)->revision);
    return true;
}

static bool absent_is_refused_by_any_record_even_a_free_one(struct suite *s)
{
    const struct answer *again;

    CHECK_DONE(take(s, "k", "one"));
    CHECK_DONE(release(s, "k", "one"));
    again = take_if(s, "k", BELAY_IF_ABSENT);
    CHECK_REFUSED(again);
    CHECK_INT(again->done.n_records, 1);
    CHECK_TEXT(image(again, 0)->key, "k");
    CHECK_TEXT(image(again, 0)->lock_id, "one");
    return true;
}

static bool any_holds_always(struct suite *s)
{
    CHECK_DONE(take_if(s, "k", BELAY_IF_ANY));
    CHECK(see(s, "k")->held);
    CHECK_DONE(take_if(s, "k", BELAY_IF_ANY));
    CHECK_DONE(check_only(s, "k", BELAY_IF_ANY));
    CHECK_TEXT(see(s, "k")->lock_id, "taker");
    return true;
}

/* ---- free -------------------------------------------------------------- */

static bool free_holds_where_there_is_no_record(struct suite *s)
{
    const struct answer *taken = take(s, "k", "one");

    CHECK_DONE(taken);
    CHECK(image(taken, 0)->held);
    CHECK_TEXT(image(taken, 0)->lock_id, "one");
    return true;
}

static bool free_is_refused_while_the_lock_is_held(struct suite *s)
{
    const struct answer *rival;

    CHECK_DONE(take(s, "k", "one"));
    rival = take(s, "k", "two");
    CHECK_REFUSED(rival);
    CHECK_TEXT(image(rival, 0)->lock_id, "one");
    CHECK_TEXT(image(rival, 0)->owner, "owner of one");
    CHECK_INT(rival->done.token, 0);
    CHECK_TEXT(see(s, "k")->lock_id, "one");
    return true;
}

static bool free_is_refused_by_an_expired_lease_that_was_not_released(struct suite *s)
{
    CHECK_DONE(take_for(s, "k", "one", SHORT_MS));
    pass_time(s, SHORT_MS * 2);
    CHECK_REFUSED(take(s, "k", "two"));
    CHECK(see(s, "k")->held);
    return true;
}

static bool free_holds_after_a_release(struct suite *s)
{
    CHECK_DONE(take(s, "k", "one"));
    CHECK_DONE(release(s, "k", "one"));
    CHECK_DONE(take(s, "k", "two"));
    CHECK_TEXT(see(s, "k")->lock_id, "two");
    return true;
}

static bool free_is_refused_by_a_ticket_even_an_expired_one(struct suite *s)
{
    CHECK_DONE(queue(s, "k", "waiter", SHORT_MS));
    CHECK_REFUSED(take(s, "k", "one"));
    pass_time(s, SHORT_MS * 2);
    CHECK_REFUSED(take(s, "k", "one"));
    CHECK_INT(see(s, "k")->n_tickets, 1);
    CHECK_DONE(unqueue(s, "k", "waiter"));
    CHECK_DONE(take(s, "k", "one"));
    return true;
}

static bool free_is_refused_by_an_intent_even_an_expired_one(struct suite *s)
{
    const char *id = "below";

    CHECK_DONE(intend(s, "k", id, SHORT_MS));
    CHECK_REFUSED(take(s, "k", "one"));
    pass_time(s, SHORT_MS * 2);
    CHECK_REFUSED(take(s, "k", "one"));
    CHECK_DONE(commit1(s, &(struct belay_write){ .key = "k", .drop_intents = &id, .n_drop_intents = 1 }));
    CHECK_DONE(take(s, "k", "one"));
    return true;
}

static bool free_is_refused_to_the_id_that_held_it_last(struct suite *s)
{
    const struct answer *again;

    CHECK_DONE(take(s, "k", "one"));
    CHECK_DONE(release(s, "k", "one"));
    again = take(s, "k", "one");
    CHECK_REFUSED(again);
    CHECK_TEXT(image(again, 0)->lock_id, "one");
    CHECK(!image(again, 0)->held);
    return true;
}

static bool free_without_an_identity_asks_for_no_id(struct suite *s)
{
    CHECK_DONE(take(s, "k", "check-only"));
    CHECK_DONE(release(s, "k", "check-only"));
    CHECK_DONE(check_only(s, "k", BELAY_IF_FREE));
    return true;
}

/* ---- open -------------------------------------------------------------- */

static bool open_holds_without_record_or_with_intents(struct suite *s)
{
    CHECK_DONE(check_only(s, "none", BELAY_IF_FREE_FOR_INTENT));
    CHECK_DONE(intend(s, "k", "below", LONG_MS));
    CHECK_DONE(check_only(s, "k", BELAY_IF_FREE_FOR_INTENT));
    CHECK_DONE(take(s, "l", "one"));
    CHECK_DONE(release(s, "l", "one"));
    CHECK_DONE(check_only(s, "l", BELAY_IF_FREE_FOR_INTENT));
    return true;
}

static bool open_is_refused_by_a_holder_and_by_a_ticket(struct suite *s)
{
    CHECK_DONE(take_for(s, "k", "one", SHORT_MS));
    CHECK_REFUSED(check_only(s, "k", BELAY_IF_FREE_FOR_INTENT));
    pass_time(s, SHORT_MS * 2);
    CHECK_REFUSED(check_only(s, "k", BELAY_IF_FREE_FOR_INTENT));
    CHECK_DONE(queue(s, "l", "waiter", SHORT_MS));
    CHECK_REFUSED(check_only(s, "l", BELAY_IF_FREE_FOR_INTENT));
    pass_time(s, SHORT_MS * 2);
    CHECK_REFUSED(check_only(s, "l", BELAY_IF_FREE_FOR_INTENT));
    return true;
}

/* ---- unchanged --------------------------------------------------------- */

static const struct answer *if_unchanged(struct suite *s, const char *key, uint64_t revision)
{
    return commit1(s, &(struct belay_write){ .key = key,
                                             .condition = BELAY_IF_UNCHANGED,
                                             .revision = revision,
                                             .set = BELAY_SET_ACQUIRED,
                                             .values = holder(s, "x", LONG_MS) });
}

static bool unchanged_holds_for_exactly_the_revision_that_was_read(struct suite *s)
{
    uint64_t revision;

    CHECK_DONE(take(s, "k", "one"));
    revision = see(s, "k")->revision;
    CHECK_REFUSED(if_unchanged(s, "k", revision + 1));
    CHECK_REFUSED(if_unchanged(s, "k", 0));
    CHECK_DONE(if_unchanged(s, "k", revision));
    CHECK_REFUSED(if_unchanged(s, "k", revision));
    return true;
}

static bool unchanged_with_revision_zero_means_absent(struct suite *s)
{
    const struct answer *late;

    CHECK_REFUSED(if_unchanged(s, "k", 1));
    CHECK_INT(see(s, "k")->revision, 0);
    CHECK_DONE(if_unchanged(s, "k", 0));
    late = if_unchanged(s, "k", 0);
    CHECK_REFUSED(late);
    CHECK(image(late, 0)->revision != 0);
    return true;
}

/* ---- held by, live by -------------------------------------------------- */

static const struct answer *renew(struct suite *s, const char *key, enum belay_condition condition,
                                  const char *lock_id)
{
    return commit1(s, &(struct belay_write){ .key = key,
                                             .condition = condition,
                                             .lock_id = lock_id,
                                             .set = BELAY_SET_LEASE,
                                             .values = holder(s, lock_id, LONG_MS) });
}

static bool both_held_conditions_want(struct suite *s, enum belay_condition condition)
{
    const struct answer *stranger;

    CHECK_REFUSED(renew(s, "k", condition, "one"));
    CHECK_INT(see(s, "k")->revision, 0);
    CHECK_DONE(take(s, "k", "one"));
    stranger = renew(s, "k", condition, "two");
    CHECK_REFUSED(stranger);
    CHECK_TEXT(image(stranger, 0)->lock_id, "one");
    CHECK_REFUSED(renew(s, "k", condition, "ONE"));
    CHECK_REFUSED(renew(s, "k", condition, "one "));
    CHECK_REFUSED(renew(s, "k", condition, ""));
    CHECK_DONE(renew(s, "k", condition, "one"));
    CHECK_DONE(release(s, "k", "one"));
    CHECK_REFUSED(renew(s, "k", condition, "one"));
    CHECK(!see(s, "k")->held);
    return true;
}

static bool held_by_wants_that_very_id_and_a_holder(struct suite *s)
{
    return both_held_conditions_want(s, BELAY_IF_HELD_BY);
}

static bool live_by_wants_that_very_id_and_a_holder(struct suite *s)
{
    return both_held_conditions_want(s, BELAY_IF_LIVE_BY);
}

static bool a_record_that_was_never_acquired_has_no_holder(struct suite *s)
{
    CHECK_DONE(queue(s, "k", "waiter", LONG_MS));
    CHECK_REFUSED(renew(s, "k", BELAY_IF_HELD_BY, ""));
    CHECK_REFUSED(renew(s, "k", BELAY_IF_LIVE_BY, "waiter"));
    return true;
}

static bool held_by_ignores_expiry(struct suite *s)
{
    CHECK_DONE(take_for(s, "k", "one", SHORT_MS));
    pass_time(s, SHORT_MS * 2);
    CHECK_DONE(release(s, "k", "one"));
    CHECK(!see(s, "k")->held);
    return true;
}

static bool live_by_is_refused_once_the_lease_expired(struct suite *s)
{
    const struct answer *late;

    CHECK_DONE(take_for(s, "k", "one", SHORT_MS));
    pass_time(s, SHORT_MS * 2);
    late = renew(s, "k", BELAY_IF_LIVE_BY, "one");
    CHECK_REFUSED(late);
    CHECK_TEXT(image(late, 0)->lock_id, "one");
    CHECK(image(late, 0)->held);
    CHECK(late->done.now_ms >= image(late, 0)->expires_ms);
    return true;
}

static bool live_by_holds_in_the_last_millisecond_and_not_at_the_end(struct suite *s)
{
    CHECK_DONE(take_for(s, "k", "one", 1000));
    CHECK_DONE(take_for(s, "l", "one", 1000));
    pass_time(s, 999);
    CHECK_DONE(renew(s, "k", BELAY_IF_LIVE_BY, "one"));
    pass_time(s, 1);
    CHECK_REFUSED(renew(s, "l", BELAY_IF_LIVE_BY, "one"));
    CHECK_DONE(renew(s, "k", BELAY_IF_LIVE_BY, "one"));
    return true;
}

static bool release_never_creates_a_record(struct suite *s)
{
    const struct answer *refused = release(s, "k", "one");

    CHECK_REFUSED(refused);
    CHECK_INT(refused->done.n_records, 1);
    CHECK_TEXT(image(refused, 0)->key, "k");
    CHECK_INT(image(refused, 0)->revision, 0);
    CHECK_INT(see(s, "k")->revision, 0);
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ 0 }), "");
    return true;
}

static bool release_by_another_changes_nothing_at_all(struct suite *s)
{
    uint64_t revision;

    CHECK_DONE(take(s, "k", "one"));
    revision = see(s, "k")->revision;
    CHECK_REFUSED(release(s, "k", "two"));
    CHECK_INT(see(s, "k")->revision, revision);
    CHECK_INT(see(s, "k")->freed_ms, 0);
    return true;
}

const struct suite_case suite_conditions[] = {
    CASE("port", absent_holds_where_there_is_no_record),
    CASE_IF("port", absent_is_refused_by_any_record_even_a_free_one, SUITE_LACKS_RELEASED),
    CASE("port", any_holds_always),
    CASE("L1", free_holds_where_there_is_no_record),
    CASE("L1", free_is_refused_while_the_lock_is_held),
    CASE("L1", free_is_refused_by_an_expired_lease_that_was_not_released),
    CASE("L4", free_holds_after_a_release),
    CASE("L4", free_is_refused_by_a_ticket_even_an_expired_one),
    CASE("L1", free_is_refused_by_an_intent_even_an_expired_one),
    CASE_IF("L5", free_is_refused_to_the_id_that_held_it_last, SUITE_LACKS_RELEASED),
    CASE("L5", free_without_an_identity_asks_for_no_id),
    CASE("L1", open_holds_without_record_or_with_intents),
    CASE("L1", open_is_refused_by_a_holder_and_by_a_ticket),
    CASE_IF("L7", unchanged_holds_for_exactly_the_revision_that_was_read, SUITE_LACKS_REVISIONS),
    CASE("port", unchanged_with_revision_zero_means_absent),
    CASE("L3", held_by_wants_that_very_id_and_a_holder),
    CASE("L3", live_by_wants_that_very_id_and_a_holder),
    CASE("L3", a_record_that_was_never_acquired_has_no_holder),
    CASE("L3", held_by_ignores_expiry),
    CASE_IF("L3", live_by_is_refused_once_the_lease_expired, SUITE_LACKS_MILLIS),
    CASE_IF("L3", live_by_holds_in_the_last_millisecond_and_not_at_the_end, SUITE_NEEDS_STANDING_CLOCK),
    CASE("L3", release_never_creates_a_record),
    CASE("L3", release_by_another_changes_nothing_at_all),
    { NULL, NULL, 0, NULL },
};
