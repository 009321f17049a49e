/* A batch happens completely or not at all, and returns its outcome. */
#include "support/suite_kit.h"

static struct belay_write taking(struct suite *s, const char *key, enum belay_condition condition)
{
    return (struct belay_write){ .key = key,
                                 .condition = condition,
                                 .set = BELAY_SET_ACQUIRED | BELAY_SET_OWNER | BELAY_SET_LEASE,
                                 .values = holder(s, "batch", LONG_MS) };
}

static bool a_batch_of_three_happens_whole(struct suite *s)
{
    struct belay_write writes[] = { taking(s, "c", BELAY_IF_ABSENT), taking(s, "a", BELAY_IF_FREE),
                                    taking(s, "b", BELAY_IF_FREE_FOR_INTENT) };
    const struct answer *done = commit(s, s->a, &(struct belay_batch){ .writes = writes, .n_writes = 3 });

    CHECK_DONE(done);
    CHECK(see(s, "a")->held && see(s, "b")->held && see(s, "c")->held);
    CHECK_INT(see(s, "a")->expires_ms, done->done.now_ms + LONG_MS);
    CHECK_INT(see(s, "b")->expires_ms, done->done.now_ms + LONG_MS);
    CHECK_INT(see(s, "c")->expires_ms, done->done.now_ms + LONG_MS);
    return true;
}

static bool after_images_come_in_the_order_of_the_writes(struct suite *s)
{
    struct belay_write writes[] = { taking(s, "c", BELAY_IF_ANY), taking(s, "a", BELAY_IF_ANY),
                                    taking(s, "b", BELAY_IF_ANY) };
    const struct answer *done = commit(s, s->a, &(struct belay_batch){ .writes = writes, .n_writes = 3 });

    CHECK_DONE(done);
    CHECK_INT(done->done.n_records, 3);
    for (size_t i = 0; i < 3; i++) {
        CHECK_TEXT(image(done, i)->key, writes[i].key);
        CHECK(image(done, i)->held);
        CHECK_TEXT(image(done, i)->owner, "owner of batch");
        CHECK_INT(image(done, i)->revision, see(s, writes[i].key)->revision);
    }
    return true;
}

static bool after_images_are_of_after_the_write(struct suite *s)
{
    const struct answer *done;

    CHECK_DONE(take(s, "k", "one"));
    done = release(s, "k", "one");
    CHECK_DONE(done);
    CHECK(!image(done, 0)->held);
    if ((s->fixture->lacks & SUITE_LACKS_OUTCOMES) == 0) {
        CHECK_INT(image(done, 0)->outcome, BELAY_OUTCOME_COMPLETED);
    }
    done = queue(s, "k", "waiter", LONG_MS);
    CHECK_DONE(done);
    CHECK_INT(image(done, 0)->n_tickets, 1);
    CHECK_INT(image(done, 0)->revision, see(s, "k")->revision);
    return true;
}

/* Three writes of which those in `bad` (a bit each) cannot be done. */
static const struct answer *with_bad(struct suite *s, unsigned bad)
{
    static const char *const keys[] = { "m", "k", "l" };
    struct belay_write writes[3];

    for (size_t i = 0; i < 3; i++) {
        writes[i] = taking(s, keys[i], BELAY_IF_ANY);
        if ((bad & 1U << i) != 0) {
            writes[i].condition = BELAY_IF_UNCHANGED;
            writes[i].revision = UINT64_C(1) << 50;
        }
    }
    return commit(s, s->a, &(struct belay_batch){ .writes = writes, .n_writes = 3 });
}

static bool a_refusal_of_any_write_undoes_all(struct suite *s)
{
    uint64_t revision;

    CHECK_DONE(take(s, "l", "one"));
    revision = see(s, "l")->revision;
    for (unsigned bad = 1; bad <= 4; bad <<= 1) {
        CHECK_REFUSED(with_bad(s, bad));
        CHECK_INT(see(s, "m")->revision, 0);
        CHECK_INT(see(s, "k")->revision, 0);
        CHECK_INT(see(s, "l")->revision, revision);
        CHECK_TEXT(see(s, "l")->owner, "owner of one");
    }
    return true;
}

static bool a_refusal_undoes_tickets_and_intents_too(struct suite *s)
{
    const char *waiter = "waiter";
    struct belay_put_intent intent = { .lock_id = "below", .key = "k:x", .ttl_ms = LONG_MS };
    struct belay_write writes[] = {
        { .key = "k",
          .drop_tickets = &waiter,
          .n_drop_tickets = 1,
          .put_intents = &intent,
          .n_put_intents = 1 },
        { .key = "l", .condition = BELAY_IF_HELD_BY, .lock_id = "nobody" },
    };

    CHECK_DONE(queue(s, "k", waiter, LONG_MS));
    CHECK_REFUSED(commit(s, s->a, &(struct belay_batch){ .writes = writes, .n_writes = 2 }));
    CHECK_INT(see(s, "k")->n_tickets, 1);
    CHECK_INT(see(s, "k")->n_intents, 0);
    CHECK_INT(see(s, "l")->revision, 0);
    return true;
}

static bool the_first_refused_write_is_named_and_its_record_given(struct suite *s)
{
    static const struct {
        unsigned bad;
        size_t first;
        const char *key;
    } tries[] = { { 1, 0, "m" }, { 2, 1, "k" }, { 4, 2, "l" }, { 6, 1, "k" }, { 5, 0, "m" }, { 7, 0, "m" } };

    CHECK_DONE(take(s, "k", "one"));
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        const struct answer *refused = with_bad(s, tries[i].bad);

        CHECK_REFUSED(refused);
        CHECK_INT(refused->done.refused, tries[i].first);
        CHECK_INT(refused->done.n_records, 1);
        CHECK_TEXT(image(refused, 0)->key, tries[i].key);
        CHECK_INT(image(refused, 0)->revision, see(s, tries[i].key)->revision);
    }
    return true;
}

static bool a_refusal_has_the_time_of_the_store(struct suite *s)
{
    const struct answer *taken = take(s, "k", "one");
    const struct answer *refused;

    CHECK_DONE(taken);
    pass_time(s, 30);
    refused = take(s, "k", "two");
    CHECK_REFUSED(refused);
    CHECK(refused->done.now_ms >= taken->done.now_ms + 30);
    CHECK_INT(image(refused, 0)->expires_ms, taken->done.now_ms + LONG_MS);
    return true;
}

static bool a_refused_record_is_complete_with_its_queue(struct suite *s)
{
    const struct answer *refused;

    CHECK_DONE(take(s, "k", "one"));
    CHECK_DONE(queue(s, "k", "first", LONG_MS));
    CHECK_DONE(queue(s, "k", "second", LONG_MS));
    CHECK_DONE(intend(s, "k", "below", LONG_MS));
    refused = take(s, "k", "two");
    CHECK_REFUSED(refused);
    CHECK_INT(image(refused, 0)->n_tickets, 2);
    CHECK_INT(image(refused, 0)->n_intents, 1);
    CHECK_INT(image(refused, 0)->n_metadata, 2);
    CHECK_TEXT(image(refused, 0)->tickets[0].lock_id, "first");
    return true;
}

static bool a_batch_without_writes_is_done(struct suite *s)
{
    struct belay_event event = { .type = "wait.began", .key = "k", .lock_id = "one", .duration_ms = -1 };
    const struct answer *done = commit(s, s->a, &(struct belay_batch){ .events = &event, .n_events = 1 });

    CHECK_DONE(done);
    CHECK_INT(done->done.n_records, 0);
    CHECK_INT(done->done.token, 0);
    CHECK_INT(see(s, "k")->revision, 0);
    CHECK(done->done.now_ms <= s->now_ms);
    return true;
}

/* A write that does not acquire is ignored on an absent record, without an error. */
static bool stays_absent(struct suite *s, const struct belay_write *write)
{
    const struct answer *done = commit1(s, write);

    CHECK_DONE(done);
    CHECK_INT(done->done.n_records, 1);
    CHECK_TEXT(image(done, 0)->key, "k");
    CHECK_INT(image(done, 0)->revision, 0);
    CHECK(!image(done, 0)->held);
    CHECK_INT(see(s, "k")->revision, 0);
    CHECK_TEXT(scan_keys(s, s->b, &(struct belay_scan){ 0 }), "");
    return true;
}

static bool only_taking_and_putting_create_a_record(struct suite *s)
{
    static const enum belay_condition conditions[] = { BELAY_IF_ANY, BELAY_IF_ABSENT, BELAY_IF_FREE,
                                                       BELAY_IF_FREE_FOR_INTENT, BELAY_IF_UNCHANGED };
    static const unsigned sets[] = { 0,
                                     BELAY_SET_OWNER,
                                     BELAY_SET_METADATA,
                                     BELAY_SET_LIVENESS,
                                     BELAY_SET_LEASE,
                                     BELAY_SET_RELEASED,
                                     BELAY_SET_FREED,
                                     BELAY_SET_STALE_REPORTED };
    const char *gone = "gone";

    for (size_t c = 0; c < sizeof conditions / sizeof conditions[0]; c++) {
        for (size_t f = 0; f < sizeof sets / sizeof sets[0]; f++) {
            struct belay_write write = { .key = "k",
                                         .condition = conditions[c],
                                         .set = sets[f],
                                         .values = holder(s, "x", LONG_MS),
                                         .drop_tickets = &gone,
                                         .n_drop_tickets = 1,
                                         .drop_intents = &gone,
                                         .n_drop_intents = 1 };

            if (!stays_absent(s, &write)) {
                return false;
            }
        }
    }
    return true;
}

static bool an_absent_record_of_a_batch_does_not_hinder_the_others(struct suite *s)
{
    const char *gone = "gone";
    struct belay_write writes[] = {
        { .key = "k",
          .condition = BELAY_IF_HELD_BY,
          .lock_id = "one",
          .set = BELAY_SET_RELEASED,
          .values = holder(s, "one", LONG_MS) },
        { .key = "above",
          .set = BELAY_SET_FREED,
          .values = holder(s, "one", LONG_MS),
          .drop_intents = &gone,
          .n_drop_intents = 1 },
    };
    const struct answer *done;

    CHECK_DONE(take(s, "k", "one"));
    done = commit(s, s->a, &(struct belay_batch){ .writes = writes, .n_writes = 2 });
    CHECK_DONE(done);
    CHECK_INT(done->done.n_records, 2);
    CHECK(!image(done, 0)->held);
    CHECK_TEXT(image(done, 0)->lock_id, "one"); /* what was ended, also where nothing is left of it */
    CHECK_INT(image(done, 0)->outcome, holder(s, "one", LONG_MS)->outcome);
    CHECK_TEXT(image(done, 1)->key, "above");
    CHECK_INT(image(done, 1)->revision, 0);
    CHECK_INT(see(s, "above")->revision, 0);
    return true;
}

static bool a_ticket_or_intent_alone_creates_a_record(struct suite *s)
{
    static const enum belay_condition conditions[] = { BELAY_IF_ANY, BELAY_IF_ABSENT, BELAY_IF_FREE,
                                                       BELAY_IF_FREE_FOR_INTENT, BELAY_IF_UNCHANGED };

    for (size_t i = 0; i < sizeof conditions / sizeof conditions[0]; i++) {
        const char *key = suite_text(s, "k%zu", i);
        const char *above = suite_text(s, "above %zu", i);
        struct belay_put_ticket ticket = {
            .lock_id = "t", .key = key, .owner = "o", .owner_name = "n", .since_unix_ms = 1, .ttl_ms = LONG_MS
        };
        struct belay_put_intent intent = { .lock_id = "i", .key = key, .ttl_ms = LONG_MS };

        CHECK_DONE(commit1(
            s, &(struct belay_write){ .key = key, .condition = conditions[i], .put_ticket = &ticket }));
        CHECK_INT(see(s, key)->n_tickets, 1);
        CHECK_DONE(commit1(
            s, &(struct belay_write){
                   .key = above, .condition = conditions[i], .put_intents = &intent, .n_put_intents = 1 }));
        CHECK_INT(see(s, above)->n_intents, 1);
        CHECK(see(s, above)->revision != 0 && !see(s, above)->held);
    }
    return true;
}

static bool a_durable_batch_is_done_like_any_other(struct suite *s)
{
    struct belay_record *values = holder(s, "one", LONG_MS);
    struct belay_write write = {
        .key = "k", .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER, .values = values
    };
    struct belay_batch batch = { .writes = &write, .n_writes = 1, .durable = true };

    values->durable = true;
    CHECK_DONE(commit(s, s->a, &batch));
    CHECK(see(s, "k")->held && see(s, "k")->durable);
    CHECK_REFUSED(commit(s, s->b, &batch));
    return true;
}

static bool an_error_to_write_to_is_not_needed(struct suite *s)
{
    const char *keys[] = { "k", "l" };
    struct belay_record records[2];
    struct belay_commit done = { 0 };
    struct belay_write write = { .key = "k", .condition = BELAY_IF_HELD_BY, .lock_id = "x" };
    struct belay_batch batch = { .writes = &write, .n_writes = 1 };
    enum belay_code code = s->a->ops->commit(s->a, &batch, &done, NULL);
    int64_t now;

    belay_commit_release(&done);
    CHECK_INT(code, BELAY_REFUSED);
    CHECK_INT(s->a->ops->get(s->a, keys, 2, records, &now, NULL), BELAY_OK);
    belay_record_release(&records[0]);
    belay_record_release(&records[1]);
    CHECK_TEXT(scan_keys(s, s->a, &(struct belay_scan){ 0 }), "");
    return true;
}

const struct suite_case suite_batches[] = {
    CASE_IF("L1", a_batch_of_three_happens_whole, SUITE_LACKS_BATCHES),
    CASE_IF("port", after_images_come_in_the_order_of_the_writes, SUITE_LACKS_BATCHES),
    CASE("port", after_images_are_of_after_the_write),
    CASE_IF("L1", a_refusal_of_any_write_undoes_all, SUITE_LACKS_BATCHES),
    CASE_IF("L1", a_refusal_undoes_tickets_and_intents_too, SUITE_LACKS_BATCHES),
    CASE_IF("port", the_first_refused_write_is_named_and_its_record_given, SUITE_LACKS_BATCHES),
    CASE("L4", a_refusal_has_the_time_of_the_store),
    CASE_IF("L3", a_refused_record_is_complete_with_its_queue, SUITE_LACKS_METADATA),
    CASE("L9", a_batch_without_writes_is_done),
    CASE("L3", only_taking_and_putting_create_a_record),
    CASE_IF("L3", an_absent_record_of_a_batch_does_not_hinder_the_others, SUITE_LACKS_BATCHES),
    CASE("port", a_ticket_or_intent_alone_creates_a_record),
    CASE_IF("port", a_durable_batch_is_done_like_any_other, SUITE_LACKS_LIVENESS),
    CASE("port", an_error_to_write_to_is_not_needed),
    { NULL, NULL, 0, NULL },
};
