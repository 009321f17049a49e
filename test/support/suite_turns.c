/* Conditions about the queue, and long queues, of which an answer has a part. */
#include <stdio.h>

#include "support/suite_kit.h"

static bool has_turns(struct suite *s)
{
    return s->a->ops->capabilities(s->a).takes_turns;
}

static struct belay_put_ticket *ticket(struct suite *s, const char *lock_id, const char *acquired_by,
                                       int64_t ttl_ms)
{
    struct belay_put_ticket *put = suite_alloc(s, sizeof *put);

    *put = (struct belay_put_ticket){ .lock_id = lock_id,
                                      .key = "k",
                                      .owner = lock_id,
                                      .owner_name = "n",
                                      .since_unix_ms = 1,
                                      .ttl_ms = ttl_ms,
                                      .acquired_by = acquired_by };
    return put;
}

/* As a waiter does it, with the event that begins or goes without. */
static const struct answer *wait_unless_used(struct suite *s, struct belay_put_ticket *put, bool begins,
                                             const char *require_unused_id)
{
    struct belay_write write = { .key = "k", .condition = BELAY_IF_OCCUPIED, .put_ticket = put };
    struct belay_event event = { .level = BELAY_LEVEL_INFO,
                                 .type = "wait.began",
                                 .key = "k",
                                 .lock_id = put->lock_id,
                                 .locked_by = put->owner,
                                 .locked_by_name = put->owner_name,
                                 .duration_ms = -1 };

    return commit(s, s->a,
                  &(struct belay_batch){ .writes = &write,
                                         .n_writes = 1,
                                         .events = &event,
                                         .n_events = begins,
                                         .require_unused_id = require_unused_id });
}

static const struct answer *wait_with(struct suite *s, struct belay_put_ticket *put, bool begins)
{
    return wait_unless_used(s, put, begins, NULL);
}

static const struct answer *wait_for(struct suite *s, const char *lock_id, int64_t ttl_ms)
{
    return wait_with(s, ticket(s, lock_id, "ci", ttl_ms), true);
}

static const struct answer *claim(struct suite *s, const char *lock_id)
{
    return claim_with(s, lock_id, &(struct belay_batch){ 0 });
}

static const struct answer *give_up(struct suite *s, const char *lock_id)
{
    return commit1(s, &(struct belay_write){ .key = "k", .drop_tickets = &lock_id, .n_drop_tickets = 1 });
}

static size_t length(const struct belay_record *record)
{
    return record->n_tickets + record->n_between + record->n_behind;
}

/* How many are ahead of the id in the queue. */
static size_t ahead_of(const struct belay_record *record, const char *lock_id)
{
    size_t at = 0;

    while (at < record->n_tickets && strcmp(record->tickets[at].lock_id, lock_id) != 0) {
        at++;
    }
    return at + 1 == record->n_tickets ? at + record->n_between : at;
}

static char *ids_of(struct suite *s, const struct belay_record *record)
{
    char *ids = suite_text(s, "%s", "");

    for (size_t i = 0; i < record->n_tickets; i++) {
        ids = suite_text(s, "%s%s ", ids, record->tickets[i].lock_id);
    }
    return ids;
}

static bool a_ticket_is_put_only_where_it_has_to_wait(struct suite *s)
{
    if (!has_turns(s)) {
        return true;
    }
    CHECK_REFUSED(wait_for(s, "one", LONG_MS));
    CHECK_DONE(take(s, "k", "a"));
    CHECK_DONE(wait_for(s, "one", LONG_MS));
    CHECK_DONE(give_up(s, "one"));
    CHECK_DONE(release(s, "k", "a"));
    CHECK_REFUSED(wait_for(s, "one", LONG_MS));
    CHECK_INT(see(s, "k")->n_tickets, 0);
    CHECK_DONE(intend(s, "k", "below", LONG_MS));
    CHECK_DONE(wait_for(s, "one", LONG_MS));
    CHECK_DONE(commit1(s, &(struct belay_write){ .key = "k",
                                                 .drop_intents = (const char *[]){ "below" },
                                                 .n_drop_intents = 1 }));
    CHECK_DONE(wait_for(s, "two", LONG_MS)); /* behind another */
    CHECK_TEXT(ids_of(s, see(s, "k")), "one two ");
    return true;
}

static bool a_ticket_is_renewed_by_its_own_credential_only(struct suite *s)
{
    const struct answer *refused;
    uint64_t seq;

    if (!has_turns(s)) {
        return true;
    }
    CHECK_DONE(take(s, "k", "a"));
    CHECK_DONE(wait_for(s, "one", LONG_MS));
    CHECK_DONE(wait_for(s, "two", LONG_MS));
    seq = see(s, "k")->tickets[0].seq;
    refused = wait_with(s, ticket(s, "one", "another", LONG_MS), false);
    CHECK_REFUSED(refused);
    CHECK_TEXT(image(refused, 0)->tickets[0].acquired_by, "ci");
    CHECK_DONE(wait_with(s, ticket(s, "one", "ci", 2L * LONG_MS), false));
    CHECK_INT(see(s, "k")->tickets[0].seq, seq);
    CHECK(see(s, "k")->tickets[0].expires_ms > see(s, "k")->tickets[1].expires_ms);
    return true;
}

static bool only_the_first_that_waits_takes_its_turn(struct suite *s)
{
    const struct answer *done;
    uint64_t token;

    if (!has_turns(s)) {
        return true;
    }
    CHECK_REFUSED(claim(s, "one"));
    done = take(s, "k", "a");
    token = done->done.token;
    CHECK_DONE(wait_for(s, "one", LONG_MS));
    CHECK_DONE(wait_for(s, "two", LONG_MS));
    done = claim(s, "one");
    CHECK_REFUSED(done); /* held */
    CHECK_TEXT(image(done, 0)->lock_id, "a");
    CHECK_DONE(release(s, "k", "a"));
    CHECK_REFUSED(claim(s, "two"));
    CHECK_REFUSED(claim(s, "three"));
    CHECK(!see(s, "k")->held);
    done = claim(s, "one");
    CHECK_DONE(done);
    CHECK(done->done.token > token);
    CHECK_INT(image(done, 0)->token, done->done.token);
    CHECK_TEXT(see(s, "k")->lock_id, "one");
    CHECK(see(s, "k")->held);
    CHECK_TEXT(ids_of(s, see(s, "k")), "two ");
    CHECK_REFUSED(claim(s, "two"));
    CHECK_DONE(release(s, "k", "one"));
    CHECK_DONE(claim(s, "two"));
    CHECK_INT(see(s, "k")->n_tickets, 0);
    return true;
}

static bool nobody_takes_a_turn_above_a_holder_or_with_an_id_that_had_it(struct suite *s)
{
    if (!has_turns(s)) {
        return true;
    }
    CHECK_DONE(take(s, "k", "a"));
    CHECK_DONE(wait_for(s, "one", LONG_MS));
    CHECK_DONE(intend(s, "k", "below", LONG_MS));
    CHECK_DONE(release(s, "k", "a"));
    CHECK_REFUSED(claim(s, "one"));
    CHECK_DONE(commit1(s, &(struct belay_write){ .key = "k",
                                                 .drop_intents = (const char *[]){ "below" },
                                                 .n_drop_intents = 1 }));
    CHECK_DONE(claim(s, "one"));
    CHECK_DONE(queue(s, "k", "one", LONG_MS));
    CHECK_DONE(release(s, "k", "one"));
    CHECK_REFUSED(claim(s, "one"));
    return true;
}

static bool an_id_that_had_the_lock_takes_no_place_and_no_turn(struct suite *s)
{
    struct belay_batch unless_used = { .require_unused_id = "one" };

    if (!has_turns(s)) {
        return true;
    }
    CHECK_DONE(acquire_with(s, "k", "one", &unless_used));
    CHECK_DONE(release(s, "k", "one"));
    CHECK_DONE(take(s, "k", "a"));
    CHECK_CODE(wait_unless_used(s, ticket(s, "one", "ci", LONG_MS), true, "one"), BELAY_ID_USED);
    CHECK_CODE(wait_unless_used(s, ticket(s, "one", "ci", LONG_MS), false, "one"), BELAY_ID_USED);
    CHECK_INT(see(s, "k")->n_tickets, 0);
    CHECK_DONE(wait_unless_used(s, ticket(s, "two", "ci", LONG_MS), true, "two"));
    CHECK_DONE(wait_with(s, ticket(s, "one", "ci", LONG_MS), true)); /* it did not ask */
    CHECK_DONE(release(s, "k", "a"));
    CHECK_DONE(claim_with(s, "two", &(struct belay_batch){ .require_unused_id = "two" }));
    CHECK_DONE(release(s, "k", "two"));
    CHECK_CODE(claim_with(s, "one", &unless_used), BELAY_ID_USED);
    CHECK(!see(s, "k")->held);
    return true;
}

static bool those_that_expired_are_passed_over(struct suite *s)
{
    if (!has_turns(s)) {
        return true;
    }
    CHECK_DONE(take(s, "k", "a"));
    CHECK_DONE(wait_for(s, "one", SHORT_MS));
    CHECK_DONE(wait_for(s, "two", LONG_MS));
    CHECK_DONE(wait_for(s, "three", SHORT_MS));
    CHECK_DONE(release(s, "k", "a"));
    CHECK_REFUSED(claim(s, "two"));
    pass_time(s, SHORT_MS + 1);
    CHECK_DONE(claim(s, "two"));
    CHECK_TEXT(ids_of(s, see(s, "k")), "three "); /* only those ahead are dropped */
    return true;
}

/* ---- a long queue ---- */

enum { MANY = 23 };

static bool fill(struct suite *s)
{
    CHECK_DONE(take(s, "k", "a"));
    for (int i = 0; i < MANY; i++) {
        const struct answer *done = wait_for(s, suite_text(s, "w%02d", i), LONG_MS);
        const struct belay_record *record = image(done, 0);

        CHECK_DONE(done);
        CHECK_INT(length(record), i + 1);
        CHECK_INT(record->n_behind, 0); /* it is the last */
        CHECK_TEXT(record->tickets[0].lock_id, "w00");
        CHECK_TEXT(record->tickets[record->n_tickets - 1].lock_id, suite_text(s, "w%02d", i));
    }
    return true;
}

static bool a_long_queue_is_read_whole_and_in_order(struct suite *s)
{
    const struct belay_record *r;

    if (!has_turns(s) || !fill(s)) {
        return !has_turns(s);
    }
    CHECK(suite_reopen(s));
    r = see(s, "k");
    CHECK_INT(r->n_tickets, MANY);
    CHECK_INT(r->n_between + r->n_behind, 0);
    for (size_t i = 0; i < MANY; i++) {
        CHECK_TEXT(r->tickets[i].lock_id, suite_text(s, "w%02zu", i));
        CHECK_TEXT(r->tickets[i].acquired_by, "ci");
        CHECK(i == 0 || r->tickets[i].seq > r->tickets[i - 1].seq);
        CHECK(r->tickets[i].expires_ms > LONG_MS);
    }
    return true;
}

static bool a_long_queue_is_served_in_order(struct suite *s)
{
    const char *last = "a";

    if (!has_turns(s) || !fill(s)) {
        return !has_turns(s);
    }
    for (int i = 0; i < MANY; i++) {
        const char *next = suite_text(s, "w%02d", i);
        const struct answer *released = release(s, "k", last);
        const struct answer *refused = claim(s, "w22");

        CHECK_DONE(released);
        CHECK_INT(length(image(released, 0)), MANY - i);
        CHECK_TEXT(image(released, 0)->tickets[0].lock_id, next);
        if (i < MANY - 1) {
            const struct belay_record *record = image(refused, 0);

            CHECK_REFUSED(refused);
            CHECK_INT(length(record), MANY - i);
            CHECK_TEXT(record->tickets[record->n_tickets - 1].lock_id, "w22");
            CHECK_DONE(claim(s, next));
        } else {
            CHECK_DONE(refused);
        }
        last = next;
    }
    CHECK_INT(see(s, "k")->n_tickets, 0);
    CHECK_DONE(release(s, "k", last));
    CHECK_DONE(take(s, "k", "b"));
    return true;
}

static bool a_place_far_back_is_renewed_and_given_up(struct suite *s)
{
    const struct answer *done;
    const struct belay_record *r;

    if (!has_turns(s) || !fill(s)) {
        return !has_turns(s);
    }
    CHECK_REFUSED(wait_with(s, ticket(s, "w15", "another", LONG_MS), false));
    done = wait_with(s, ticket(s, "w15", "ci", 2L * LONG_MS), false);
    CHECK_DONE(done);
    CHECK_INT(length(image(done, 0)), MANY);
    CHECK_INT(ahead_of(image(done, 0), "w15"), 15);
    r = see(s, "k");
    CHECK_TEXT(r->tickets[15].lock_id, "w15");
    CHECK(r->tickets[15].expires_ms > r->tickets[22].expires_ms + LONG_MS / 2);
    CHECK_DONE(give_up(s, "w15"));
    CHECK_DONE(give_up(s, "w00"));
    CHECK_DONE(give_up(s, "nobody"));
    r = see(s, "k");
    CHECK_INT(r->n_tickets, MANY - 2);
    CHECK_TEXT(r->tickets[0].lock_id, "w01");
    CHECK_TEXT(r->tickets[14].lock_id, "w16");
    CHECK_INT(length(image(give_up(s, "nobody"), 0)), MANY - 2);
    return true;
}

static bool one_that_waits_otherwise_joins_a_long_queue(struct suite *s)
{
    struct belay_put_ticket *shared = ticket(s, "shared", "ci", LONG_MS);
    struct belay_put_ticket *below = ticket(s, "below", "ci", LONG_MS);
    const struct answer *released;

    if (!has_turns(s)) {
        return true;
    }
    shared->mode = BELAY_SHARED;
    below->key = "k:below";
    if (!fill(s)) {
        return false;
    }
    CHECK_DONE(wait_with(s, s->fixture->keeps_modes ? shared : below, false));
    CHECK_DONE(wait_with(s, below, false));
    CHECK_DONE(wait_for(s, "last", LONG_MS));
    released = release(s, "k", "a"); /* whoever is to be woken for another key is in the answer */
    CHECK_DONE(released);
    CHECK_INT(image(released, 0)->n_between + image(released, 0)->n_behind, 0);
    CHECK_INT(image(released, 0)->n_tickets, see(s, "k")->n_tickets);
    CHECK_TEXT(see(s, "k")->tickets[MANY - 1].lock_id, "w22");
    CHECK_TEXT(see(s, "k")->tickets[see(s, "k")->n_tickets - 1].lock_id, "last");
    CHECK_DONE(claim(s, "w00"));
    return true;
}

static bool a_long_queue_whose_first_expired_goes_on(struct suite *s)
{
    const struct answer *released;
    const struct belay_record *record;

    if (!has_turns(s) || !fill(s)) {
        return !has_turns(s);
    }
    for (int i = 0; i < 12; i++) {
        CHECK_DONE(wait_with(s, ticket(s, suite_text(s, "w%02d", i), "ci", SHORT_MS), false));
    }
    pass_time(s, SHORT_MS + 1);
    released = release(s, "k", "a");
    CHECK_DONE(released);
    record = image(released, 0);
    for (size_t i = 0; i < record->n_tickets && record->tickets[i].expires_ms <= released->done.now_ms; i++) {
        CHECK(i + 1 < record->n_tickets); /* somebody is there to be woken */
    }
    CHECK_REFUSED(claim(s, "w13"));
    CHECK_DONE(claim(s, "w12"));
    CHECK_INT(see(s, "k")->n_tickets, MANY - 13);
    CHECK_TEXT(see(s, "k")->tickets[0].lock_id, "w13");
    return true;
}

/* What the events of a key say, from the oldest on. */
struct said {
    struct suite *s;
    char *text;
};

static bool note_event(void *context, const struct belay_event *event)
{
    struct said *said = context;

    said->text = suite_text(said->s, "%s%s %s %s %s %lld %d; ", said->text, event->type, event->lock_id,
                            event->locked_by, event->reason == NULL ? "-" : event->reason,
                            (long long)event->duration_ms, event->token != 0);
    return true;
}

static bool a_turn_leaves_its_events(struct suite *s)
{
    struct belay_events_query query = { .key = "k", .last = 3 };
    struct said said = { s, suite_text(s, "%s", "") };
    const struct answer *done;

    if (!has_turns(s)) {
        return true;
    }
    CHECK_DONE(take(s, "k", "a"));
    CHECK_DONE(release(s, "k", "a"));
    CHECK_DONE(intend(s, "k", "below", LONG_MS));
    CHECK_DONE(wait_for(s, "one", LONG_MS));
    CHECK_DONE(commit1(s, &(struct belay_write){ .key = "k",
                                                 .drop_intents = (const char *[]){ "below" },
                                                 .n_drop_intents = 1 }));
    done = claim(s, "one");
    CHECK_DONE(done);
    CHECK(done->done.event_id > 0);
    CHECK(s->b->ops->events(s->b, &query, note_event, &said, NULL) == BELAY_OK);
    CHECK_TEXT(said.text, suite_text(s,
                                     "wait.began one one - -1 0; wait.ended one %s acquired 7 0; "
                                     "lock.acquired one %s - -1 1; ",
                                     image(done, 0)->owner, image(done, 0)->owner));
    return true;
}

const struct suite_case suite_turns[] = {
    CASE("L4", a_ticket_is_put_only_where_it_has_to_wait),
    CASE("L4", a_ticket_is_renewed_by_its_own_credential_only),
    CASE("L4", only_the_first_that_waits_takes_its_turn),
    CASE("L5", nobody_takes_a_turn_above_a_holder_or_with_an_id_that_had_it),
    CASE_IF("L5", an_id_that_had_the_lock_takes_no_place_and_no_turn, SUITE_NEEDS_USED_IDS),
    CASE("L4", those_that_expired_are_passed_over),
    CASE("L4", a_long_queue_is_read_whole_and_in_order),
    CASE("L4", a_long_queue_is_served_in_order),
    CASE("L6", a_place_far_back_is_renewed_and_given_up),
    CASE("L4", one_that_waits_otherwise_joins_a_long_queue),
    CASE("L4", a_long_queue_whose_first_expired_goes_on),
    CASE_IF("port", a_turn_leaves_its_events, SUITE_NEEDS_EVENTS),
    { NULL, NULL, 0, NULL },
};
