/* Tickets, in their order, and intents. */
#include "support/suite_kit.h"

static bool a_ticket_has_every_field(struct suite *s)
{
    struct belay_put_ticket put = { .lock_id = "waiter",
                                    .key = "k:below",
                                    .owner = "o",
                                    .owner_name = "somebody",
                                    .since_unix_ms = 1730816000123,
                                    .ttl_ms = 4321,
                                    .acquired_by = "ci" };
    const struct answer *done =
        commit1(s, &(struct belay_write){ .key = "k", .condition = BELAY_IF_ABSENT, .put_ticket = &put });
    const struct belay_ticket *ticket;

    CHECK_DONE(done);
    CHECK_INT(see(s, "k")->n_tickets, 1);
    ticket = &see(s, "k")->tickets[0];
    CHECK_TEXT(ticket->lock_id, "waiter");
    CHECK_TEXT(ticket->key, "k:below");
    CHECK_TEXT(ticket->owner, "o");
    CHECK_TEXT(ticket->owner_name, "somebody");
    CHECK_TEXT(ticket->acquired_by, "ci");
    CHECK_INT(ticket->since_unix_ms, 1730816000123);
    CHECK_INT(ticket->expires_ms, done->done.now_ms + 4321);
    CHECK(!ticket->dead); /* its waiter is alive */
    return true;
}

static bool tickets_are_in_the_order_of_arrival(struct suite *s)
{
    static const char *const ids[] = { "m", "a", "z", "b" };
    const struct belay_record *r;

    for (size_t i = 0; i < 4; i++) {
        CHECK_DONE(queue(s, "k", ids[i], LONG_MS - (int64_t)i));
    }
    r = see(s, "k");
    CHECK_INT(r->n_tickets, 4);
    for (size_t i = 0; i < 4; i++) {
        CHECK_TEXT(r->tickets[i].lock_id, ids[i]);
        CHECK(i == 0 || r->tickets[i].seq > r->tickets[i - 1].seq);
    }
    return true;
}

static bool a_replaced_ticket_keeps_its_place_and_takes_the_new_texts(struct suite *s)
{
    struct belay_put_ticket put = { .lock_id = "first",
                                    .key = "k:x",
                                    .owner = "new owner",
                                    .owner_name = "new name",
                                    .since_unix_ms = 99,
                                    .ttl_ms = 1234 };
    const struct belay_record *r;
    const struct answer *done;
    uint64_t seq;

    CHECK_DONE(queue(s, "k", "first", LONG_MS));
    CHECK_DONE(queue(s, "k", "second", LONG_MS));
    seq = see(s, "k")->tickets[0].seq;
    pass_time(s, 10);
    done = commit1(s, &(struct belay_write){ .key = "k", .put_ticket = &put });
    CHECK_DONE(done);
    r = see(s, "k");
    CHECK_INT(r->n_tickets, 2);
    CHECK_TEXT(r->tickets[0].lock_id, "first");
    CHECK_INT(r->tickets[0].seq, seq);
    CHECK_TEXT(r->tickets[0].key, "k:x");
    CHECK_TEXT(r->tickets[0].owner, "new owner");
    CHECK_TEXT(r->tickets[0].owner_name, "new name");
    CHECK_INT(r->tickets[0].expires_ms, done->done.now_ms + 1234);
    CHECK_TEXT(image(done, 0)->tickets[0].lock_id, "first");
    return true;
}

static bool a_dropped_ticket_that_comes_back_is_the_last(struct suite *s)
{
    const char *first = "first";
    struct belay_put_ticket put = {
        .lock_id = first, .key = "k", .owner = "o", .owner_name = "n", .since_unix_ms = 1, .ttl_ms = LONG_MS
    };
    const struct belay_record *r;

    CHECK_DONE(queue(s, "k", "first", LONG_MS));
    CHECK_DONE(queue(s, "k", "second", LONG_MS));
    CHECK_DONE(commit1(s, &(struct belay_write){
                              .key = "k", .drop_tickets = &first, .n_drop_tickets = 1, .put_ticket = &put }));
    r = see(s, "k");
    CHECK_INT(r->n_tickets, 2);
    CHECK_TEXT(r->tickets[0].lock_id, "second");
    CHECK_TEXT(r->tickets[1].lock_id, "first");
    CHECK(r->tickets[1].seq > r->tickets[0].seq);
    return true;
}

static bool several_tickets_are_dropped_at_once(struct suite *s)
{
    static const char *const gone[] = { "c", "nobody", "a" };
    const struct answer *done;

    CHECK_DONE(queue(s, "k", "a", LONG_MS));
    CHECK_DONE(queue(s, "k", "b", LONG_MS));
    CHECK_DONE(queue(s, "k", "c", LONG_MS));
    done = commit1(s, &(struct belay_write){ .key = "k", .drop_tickets = gone, .n_drop_tickets = 3 });
    CHECK_DONE(done);
    CHECK_INT(image(done, 0)->n_tickets, 1);
    CHECK_TEXT(image(done, 0)->tickets[0].lock_id, "b");
    CHECK_INT(see(s, "k")->n_tickets, 1);
    return true;
}

static bool dropping_what_is_not_there_is_no_error(struct suite *s)
{
    static const char *const gone[] = { "x", "one" };

    CHECK_DONE(take(s, "k", "one"));
    CHECK_DONE(queue(s, "k", "waiter", LONG_MS));
    CHECK_DONE(commit1(s, &(struct belay_write){ .key = "k",
                                                 .drop_tickets = gone,
                                                 .n_drop_tickets = 2,
                                                 .drop_intents = gone,
                                                 .n_drop_intents = 2 }));
    CHECK_INT(see(s, "k")->n_tickets, 1);
    CHECK(see(s, "k")->held);
    return true;
}

static bool an_expired_ticket_stays_until_it_is_dropped(struct suite *s)
{
    CHECK_DONE(queue(s, "k", "short", SHORT_MS));
    CHECK_DONE(queue(s, "k", "long", LONG_MS));
    pass_time(s, SHORT_MS * 2);
    CHECK_DONE(check_only(s, "k", BELAY_IF_ANY));
    CHECK_INT(see(s, "k")->n_tickets, 2);
    CHECK_TEXT(see(s, "k")->tickets[0].lock_id, "short");
    CHECK(see(s, "k")->tickets[0].expires_ms <= s->now_ms);
    return true;
}

static bool a_taker_drops_its_ticket_in_the_same_write(struct suite *s)
{
    const char *mine = "mine";
    struct belay_write write = { .key = "k",
                                 .condition = BELAY_IF_UNCHANGED,
                                 .set = BELAY_SET_HOLDER,
                                 .values = holder(s, mine, LONG_MS),
                                 .drop_tickets = &mine,
                                 .n_drop_tickets = 1 };

    CHECK_DONE(queue(s, "k", mine, LONG_MS));
    CHECK_DONE(queue(s, "k", "next", LONG_MS));
    write.revision = see(s, "k")->revision;
    CHECK_DONE(commit1(s, &write));
    CHECK_TEXT(see(s, "k")->lock_id, mine);
    CHECK_INT(see(s, "k")->n_tickets, 1);
    CHECK_TEXT(see(s, "k")->tickets[0].lock_id, "next");
    return true;
}

static bool tickets_of_two_keys_do_not_mix(struct suite *s)
{
    CHECK_DONE(queue(s, "k", "waiter", LONG_MS));
    CHECK_DONE(queue(s, "l", "waiter", LONG_MS));
    CHECK_DONE(unqueue(s, "k", "waiter"));
    CHECK_INT(see(s, "k")->n_tickets, 0);
    CHECK_INT(see(s, "l")->n_tickets, 1);
    return true;
}

static bool intents_are_put_replaced_and_dropped(struct suite *s)
{
    const char *one = "one";
    const struct answer *done = intend(s, "k", one, 1000);
    const struct belay_record *r;

    CHECK_DONE(done);
    CHECK_DONE(intend(s, "k", "two", 2000));
    pass_time(s, 5);
    done = intend(s, "k", one, 5000);
    CHECK_DONE(done);
    r = see(s, "k");
    CHECK_INT(r->n_intents, 2);
    CHECK(intent_at(r, one) < 2 && intent_at(r, "two") < 2);
    CHECK_INT(r->intents[intent_at(r, one)].expires_ms, done->done.now_ms + 5000);
    CHECK_TEXT(r->intents[intent_at(r, one)].key, "k:below");
    CHECK_DONE(commit1(s, &(struct belay_write){ .key = "k", .drop_intents = &one, .n_drop_intents = 1 }));
    r = see(s, "k");
    CHECK_INT(r->n_intents, 1);
    CHECK_TEXT(r->intents[0].lock_id, "two");
    return true;
}

static bool an_intent_dropped_and_put_in_one_write_is_there(struct suite *s)
{
    const char *one = "one";
    struct belay_put_intent put = { .lock_id = "one", .key = "k:y", .ttl_ms = 777 };

    CHECK_DONE(intend(s, "k", one, 1000));
    CHECK_DONE(commit1(s, &(struct belay_write){ .key = "k",
                                                 .drop_intents = &one,
                                                 .n_drop_intents = 1,
                                                 .put_intents = &put,
                                                 .n_put_intents = 1 }));
    CHECK_INT(see(s, "k")->n_intents, 1);
    CHECK_TEXT(see(s, "k")->intents[0].key, "k:y");
    return true;
}

/* Whether the write knows what it changes or not; and nothing is left of the old one when the new one goes, too. */
static bool an_intent_comes_in_the_write_that_drops_another(struct suite *s)
{
    static const char *const keys[] = { "blind", "seen" };

    for (int i = 0; i < 2; i++) {
        const char *old = "old";
        const char *new = "new";
        struct belay_put_intent put = { .lock_id = new, .key = "k:y", .ttl_ms = LONG_MS };
        struct belay_write write = {
            .key = keys[i], .drop_intents = &old, .n_drop_intents = 1, .put_intents = &put, .n_put_intents = 1
        };

        CHECK_DONE(intend(s, keys[i], old, 1000));
        if (i == 1) {
            write.condition = BELAY_IF_UNCHANGED;
            write.revision = see(s, keys[i])->revision;
        }
        CHECK_DONE(commit1(s, &write));
        CHECK_INT(see(s, keys[i])->n_intents, 1);
        CHECK_TEXT(see(s, keys[i])->intents[0].lock_id, new);
        write = (struct belay_write){ .key = keys[i], .drop_intents = &new, .n_drop_intents = 1 };
        if (i == 1) {
            write.condition = BELAY_IF_UNCHANGED;
            write.revision = see(s, keys[i])->revision;
        }
        CHECK_DONE(commit1(s, &write));
        CHECK_INT(see(s, keys[i])->n_intents, 0);
    }
    return true;
}

static bool tickets_and_intents_outlast_a_change_of_holder(struct suite *s)
{
    struct belay_write write = { .key = "k", .set = BELAY_SET_HOLDER, .values = holder(s, "two", LONG_MS) };

    CHECK_DONE(take(s, "k", "one"));
    CHECK_DONE(queue(s, "k", "waiter", LONG_MS));
    CHECK_DONE(intend(s, "k", "below", LONG_MS));
    CHECK_DONE(release(s, "k", "one"));
    CHECK_DONE(commit1(s, &write));
    CHECK(suite_reopen(s));
    CHECK_INT(see(s, "k")->n_tickets, 1);
    CHECK_INT(see(s, "k")->n_intents, 1);
    return true;
}

static bool five_hundred_wait_in_order(struct suite *s)
{
    enum { N = 500 };
    const struct belay_record *r = NULL;

    for (int i = 0; i < N; i++) {
        CHECK_DONE(queue(s, "k", suite_text(s, "%d", (i * 7919) % N), LONG_MS));
    }
    r = see(s, "k");
    CHECK_INT(r->n_tickets, N);
    for (size_t i = 0; i < N; i++) {
        CHECK_TEXT(r->tickets[i].lock_id, suite_text(s, "%zu", (i * 7919) % N));
        CHECK(i == 0 || r->tickets[i].seq > r->tickets[i - 1].seq);
    }
    CHECK_DONE(unqueue(s, "k", "0"));
    CHECK_INT(see(s, "k")->n_tickets, N - 1);
    return true;
}

const struct suite_case suite_lines[] = {
    CASE("L4", a_ticket_has_every_field),
    CASE("L4", tickets_are_in_the_order_of_arrival),
    CASE("L6", a_replaced_ticket_keeps_its_place_and_takes_the_new_texts),
    CASE("L4", a_dropped_ticket_that_comes_back_is_the_last),
    CASE("L4", several_tickets_are_dropped_at_once),
    CASE("port", dropping_what_is_not_there_is_no_error),
    CASE("L4", an_expired_ticket_stays_until_it_is_dropped),
    CASE("L4", a_taker_drops_its_ticket_in_the_same_write),
    CASE("L4", tickets_of_two_keys_do_not_mix),
    CASE("S4.5", intents_are_put_replaced_and_dropped),
    CASE("S4.5", an_intent_dropped_and_put_in_one_write_is_there),
    CASE("S4.5", an_intent_comes_in_the_write_that_drops_another),
    CASE("S4.5", tickets_and_intents_outlast_a_change_of_holder),
    CASE("L4", five_hundred_wait_in_order),
    { NULL, NULL, 0, NULL },
};
