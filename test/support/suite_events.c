/* Events: kept with the writes, read back in order (L9). */
#include "base/clock.h"
#include "support/suite_kit.h"

enum { SEEN_MAX = 64 };

struct seen {
    struct suite *s;
    size_t n;
    size_t most;
    struct belay_event events[SEEN_MAX]; /* the suite's copies */
    const char *reasons;                 /* of all, each followed by a space */
};

static const char *keep(struct suite *s, const char *text)
{
    return text == NULL ? NULL : suite_text(s, "%s", text);
}

static bool note(void *context, const struct belay_event *event)
{
    struct seen *seen = context;
    struct suite *s = seen->s;

    if (seen->n < SEEN_MAX) {
        struct belay_event *copy = &seen->events[seen->n];
        struct belay_meta *metadata = suite_alloc(s, (event->n_metadata + 1) * sizeof *metadata);

        *copy = *event;
        copy->type = keep(s, event->type);
        copy->key = keep(s, event->key);
        copy->lock_id = keep(s, event->lock_id);
        copy->locked_by = keep(s, event->locked_by);
        copy->locked_by_name = keep(s, event->locked_by_name);
        copy->by = keep(s, event->by);
        copy->reason = keep(s, event->reason);
        for (size_t i = 0; i < event->n_metadata; i++) {
            metadata[i].name = keep(s, event->metadata[i].name);
            metadata[i].value = keep(s, event->metadata[i].value);
        }
        copy->metadata = metadata;
        seen->reasons = suite_text(s, "%s%s ", seen->reasons, event->reason == NULL ? "-" : event->reason);
    }
    return ++seen->n < seen->most;
}

static const struct seen *ask(struct suite *s, const struct belay_events_query *query, size_t most)
{
    struct seen *seen = suite_alloc(s, sizeof *seen);

    seen->s = s;
    seen->most = most;
    seen->reasons = "";
    if (s->b->ops->events == NULL || s->b->ops->events(s->b, query, note, seen, NULL) != BELAY_OK) {
        seen->reasons = "(no events)";
    }
    return seen;
}

static const struct seen *ask_all(struct suite *s)
{
    return ask(s, &(struct belay_events_query){ 0 }, SIZE_MAX);
}

static struct belay_event event(const char *key, const char *reason)
{
    return (struct belay_event){ .type = "lock.acquired",
                                 .key = key,
                                 .lock_id = "one",
                                 .locked_by = "me",
                                 .locked_by_name = "me@example",
                                 .reason = reason,
                                 .duration_ms = -1 };
}

static const struct answer *say(struct suite *s, const char *key, const char *reason)
{
    struct belay_event e = event(key, reason);

    return commit(s, s->a, &(struct belay_batch){ .events = &e, .n_events = 1 });
}

static bool an_event_is_read_as_it_was_written(struct suite *s)
{
    struct belay_meta metadata[2] = { { "branch", "main" }, { "quote", "it's \"so\" \\ %" } };
    struct belay_event e = { .level = BELAY_LEVEL_WARNING,
                             .type = "lock.forced",
                             .key = "k%_'",
                             .lock_id = "one",
                             .token = 17,
                             .locked_by = "o'wner",
                             .locked_by_name = "\xc3\xbc",
                             .by = "admin",
                             .reason = "because \"of\" '; --",
                             .duration_ms = 1234,
                             .metadata = metadata,
                             .n_metadata = 2 };
    const struct belay_event *got;
    const struct seen *seen;

    CHECK_DONE(commit(s, s->a, &(struct belay_batch){ .events = &e, .n_events = 1 }));
    seen = ask_all(s);
    CHECK_INT(seen->n, 1);
    got = &seen->events[0];
    CHECK(got->id > 0);
    CHECK(got->at_unix_ms != 0); /* the store's own wall clock: a caller need not say */
    CHECK_INT(got->level, BELAY_LEVEL_WARNING);
    CHECK_TEXT(got->type, e.type);
    CHECK_TEXT(got->key, e.key);
    CHECK_TEXT(got->lock_id, e.lock_id);
    CHECK_INT(got->token, 17);
    CHECK_TEXT(got->locked_by, e.locked_by);
    CHECK_TEXT(got->locked_by_name, e.locked_by_name);
    CHECK_TEXT(got->by, e.by);
    CHECK_TEXT(got->reason, e.reason);
    CHECK_INT(got->duration_ms, 1234);
    CHECK_INT(got->n_metadata, 2);
    for (size_t i = 0; i < 2; i++) {
        bool first = same_text(got->metadata[i].name, "branch");

        CHECK_TEXT(got->metadata[i].value, metadata[first ? 0 : 1].value);
    }
    return true;
}

static bool missing_fields_of_an_event_stay_empty(struct suite *s)
{
    struct belay_event e = { .type = "wait.began",
                             .key = "k",
                             .lock_id = "one",
                             .locked_by = "",
                             .locked_by_name = "",
                             .duration_ms = -1 };
    const struct seen *seen;

    CHECK_DONE(commit(s, s->a, &(struct belay_batch){ .events = &e, .n_events = 1 }));
    seen = ask_all(s);
    CHECK_INT(seen->n, 1);
    CHECK_TEXT(seen->events[0].by, NULL);
    CHECK_TEXT(seen->events[0].reason, NULL);
    CHECK_INT(seen->events[0].duration_ms, -1);
    CHECK_INT(seen->events[0].token, 0);
    CHECK_INT(seen->events[0].n_metadata, 0);
    CHECK_INT(seen->events[0].level, BELAY_LEVEL_INFO);
    return true;
}

static bool events_are_kept_with_their_writes_in_order(struct suite *s)
{
    struct belay_write write = {
        .key = "k", .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER, .values = holder(s, "one", LONG_MS)
    };
    struct belay_event events[] = { event("k", "1"), event("k", "2"), event("l", "3"), event("k", "4") };
    const struct answer *done = commit(
        s, s->a, &(struct belay_batch){ .writes = &write, .n_writes = 1, .events = events, .n_events = 4 });
    const struct seen *seen;

    CHECK_DONE(done);
    CHECK_DONE(say(s, "k", "5"));
    seen = ask_all(s);
    CHECK_TEXT(seen->reasons, "1 2 3 4 5 ");
    for (size_t i = 0; i < 4; i++) {
        CHECK(seen->events[i].id == done->done.event_id + i); /* the commit returns the first id */
    }
    for (size_t i = 1; i < 5; i++) {
        CHECK(seen->events[i].id > seen->events[i - 1].id);
        CHECK(seen->events[i].at_unix_ms >= seen->events[i - 1].at_unix_ms);
    }
    return true;
}

static bool a_refused_batch_leaves_no_event(struct suite *s)
{
    struct belay_write write = { .key = "k", .condition = BELAY_IF_HELD_BY, .lock_id = "nobody" };
    struct belay_event e = event("k", "lie");

    CHECK_REFUSED(commit(
        s, s->a, &(struct belay_batch){ .writes = &write, .n_writes = 1, .events = &e, .n_events = 1 }));
    CHECK_INT(ask_all(s)->n, 0);
    return true;
}

static bool a_batch_with_a_used_id_leaves_no_event(struct suite *s)
{
    struct belay_write write = { .key = "k", .set = BELAY_SET_HOLDER, .values = holder(s, "one", LONG_MS) };
    struct belay_event e = event("k", "lie");

    CHECK_DONE(take(s, "k", "one"));
    CHECK_CODE(
        commit(
            s, s->a,
            &(struct belay_batch){
                .writes = &write, .n_writes = 1, .events = &e, .n_events = 1, .require_unused_id = "one" }),
        BELAY_ID_USED);
    CHECK_INT(ask_all(s)->n, 0);
    return true;
}

static bool an_event_may_name_the_token_of_its_batch(struct suite *s)
{
    struct belay_write write = {
        .key = "k", .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER, .values = holder(s, "one", LONG_MS)
    };
    struct belay_event events[] = { event("k", "1"), event("k", "2") };
    const struct answer *done;
    const struct seen *seen;

    events[0].token = 5;
    events[1].token = BELAY_TOKEN_OF_BATCH;
    done = commit(s, s->a,
                  &(struct belay_batch){ .writes = &write, .n_writes = 1, .events = events, .n_events = 2 });
    CHECK_DONE(done);
    seen = ask_all(s);
    CHECK_INT(seen->n, 2);
    CHECK_INT(seen->events[0].token, 5);
    CHECK_INT(seen->events[1].token, done->done.token);
    return true;
}

static bool an_event_may_ask_how_long_it_was_held(struct suite *s)
{
    struct belay_write write = { .key = "k",
                                 .condition = BELAY_IF_HELD_BY,
                                 .lock_id = "one",
                                 .set = BELAY_SET_RELEASED,
                                 .values = holder(s, "one", LONG_MS) };
    struct belay_event e = event("k", "1");
    const struct seen *seen;

    e.duration_ms = BELAY_DURATION_HELD;
    CHECK_DONE(take(s, "k", "one"));
    pass_time(s, 40);
    CHECK_DONE(commit1(
        s, &(struct belay_write){ .key = "k", .set = BELAY_SET_LEASE, .values = holder(s, "one", LONG_MS) }));
    pass_time(s, 10);
    CHECK_DONE(commit(s, s->a,
                      &(struct belay_batch){ .writes = &write, .n_writes = 1, .events = &e, .n_events = 1 }));
    seen = ask_all(s);
    CHECK_INT(seen->n, 1);
    CHECK(seen->events[0].duration_ms >= 50);
    CHECK(!s->fixture->clock_stands || seen->events[0].duration_ms == 50);
    return true;
}

/* A release or a renewal by id does not know whose lock it is; the audit trail must. */
static bool an_event_takes_owner_and_token_from_the_record_of_its_id(struct suite *s)
{
    struct belay_write write = { .key = "k",
                                 .condition = BELAY_IF_HELD_BY,
                                 .lock_id = "one",
                                 .set = BELAY_SET_LEASE,
                                 .values = holder(s, "one", LONG_MS) };
    struct belay_event events[2] = { event("k", "1"), event("k", "2") };
    const struct answer *taken = take(s, "k", "one");
    const struct seen *seen;

    CHECK_DONE(taken);
    for (size_t i = 0; i < 2; i++) {
        events[i].locked_by = events[i].locked_by_name = NULL;
        events[i].token = 0;
        events[i].lock_id = i == 0 ? "one" : "another";
    }
    CHECK_DONE(commit(
        s, s->a, &(struct belay_batch){ .writes = &write, .n_writes = 1, .events = events, .n_events = 2 }));
    seen = ask_all(s);
    CHECK_INT(seen->n, 2);
    CHECK_TEXT(seen->events[0].locked_by, holder(s, "one", LONG_MS)->owner);
    CHECK_TEXT(seen->events[0].locked_by_name, holder(s, "one", LONG_MS)->owner_name);
    CHECK_INT(seen->events[0].token, taken->done.token);
    CHECK_INT(seen->events[1].token, 0); /* the holder's token is not the other's */
    return true;
}

/* Every event of a lock carries what its holder said of it (L9). */
static bool an_event_takes_metadata_from_the_record_of_its_id(struct suite *s)
{
    struct belay_write release = {
        .key = "k", .condition = BELAY_IF_HELD_BY, .lock_id = "two", .set = BELAY_SET_RELEASED
    };
    struct belay_write adopt = {
        .key = "k", .condition = BELAY_IF_LIVE_BY, .lock_id = "one", .set = BELAY_SET_IDENTITY
    };
    struct belay_event events[3] = { event("k", "1"), event("k", "2"), event("k", "3") };
    const struct seen *seen;

    release.values = adopt.values = holder(s, "two", LONG_MS);
    events[0].lock_id = events[1].lock_id = "two";
    events[2].lock_id = "another";
    CHECK_DONE(take(s, "k", "one"));
    CHECK_DONE(commit(
        s, s->a, &(struct belay_batch){ .writes = &adopt, .n_writes = 1, .events = events, .n_events = 1 }));
    CHECK_DONE(commit(
        s, s->a,
        &(struct belay_batch){ .writes = &release, .n_writes = 1, .events = events + 1, .n_events = 2 }));
    seen = ask_all(s);
    CHECK_INT(seen->n, 3);
    CHECK(holder(s, "one", LONG_MS)->n_metadata > 0);
    for (size_t i = 0; i < 2; i++) {
        CHECK_INT(seen->events[i].n_metadata, holder(s, "one", LONG_MS)->n_metadata);
        CHECK_TEXT(seen->events[i].metadata[0].value, holder(s, "one", LONG_MS)->metadata[0].value);
    }
    CHECK_INT(seen->events[2].n_metadata, 0); /* not the other's */
    return true;
}

/* A new holder that says nothing does not inherit what the last one said. */
static bool an_event_takes_no_metadata_from_an_earlier_holder(struct suite *s)
{
    struct belay_record values = *holder(s, "two", LONG_MS);
    struct belay_write release = { .key = "k",
                                   .condition = BELAY_IF_HELD_BY,
                                   .lock_id = "one",
                                   .set = BELAY_SET_RELEASED,
                                   .values = &values };
    struct belay_write taking = {
        .key = "k", .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER, .values = &values
    };
    struct belay_event e = event("k", "1");

    e.lock_id = "two";
    values.metadata = NULL;
    values.n_metadata = 0;
    CHECK_DONE(take(s, "k", "one"));
    CHECK_DONE(commit1(s, &release));
    CHECK_DONE(commit(
        s, s->a, &(struct belay_batch){ .writes = &taking, .n_writes = 1, .events = &e, .n_events = 1 }));
    CHECK_INT(ask_all(s)->n, 1);
    CHECK_INT(ask_all(s)->events[0].n_metadata, 0);
    return true;
}

static bool say_some(struct suite *s)
{
    static const char *const keys[] = { "a", "a:b", "a_b", "axb", "a", "b", "a" };

    for (size_t i = 0; i < 7; i++) {
        CHECK_DONE(say(s, keys[i], suite_text(s, "%zu", i + 1)));
    }
    return true;
}

static bool events_of_one_key_are_found(struct suite *s)
{
    CHECK(say_some(s));
    CHECK_TEXT(ask(s, &(struct belay_events_query){ .key = "a" }, 99)->reasons, "1 5 7 ");
    CHECK_TEXT(ask(s, &(struct belay_events_query){ .key = "A" }, 99)->reasons, "");
    CHECK_TEXT(ask(s, &(struct belay_events_query){ .key = "a_b" }, 99)->reasons, "3 ");
    CHECK_TEXT(ask(s, &(struct belay_events_query){ .key = "none" }, 99)->reasons, "");
    return true;
}

static bool events_of_keys_with_a_prefix_are_found(struct suite *s)
{
    CHECK(say_some(s));
    CHECK_TEXT(ask(s, &(struct belay_events_query){ .prefix = "a" }, 99)->reasons, "1 2 3 4 5 7 ");
    CHECK_TEXT(ask(s, &(struct belay_events_query){ .prefix = "a_" }, 99)->reasons, "3 ");
    CHECK_TEXT(ask(s, &(struct belay_events_query){ .prefix = "b" }, 99)->reasons, "6 ");
    CHECK_TEXT(ask(s, &(struct belay_events_query){ .prefix = "" }, 99)->reasons, "1 2 3 4 5 6 7 ");
    CHECK_TEXT(ask(s, &(struct belay_events_query){ .prefix = "%" }, 99)->reasons, "");
    return true;
}

static bool events_after_an_id_are_those_with_higher_ids(struct suite *s)
{
    uint64_t third;

    CHECK(say_some(s));
    third = ask_all(s)->events[2].id;
    CHECK_TEXT(ask(s, &(struct belay_events_query){ .after = third }, 99)->reasons, "4 5 6 7 ");
    CHECK_TEXT(ask(s, &(struct belay_events_query){ .after = third - 1 }, 99)->reasons, "3 4 5 6 7 ");
    CHECK_TEXT(ask(s, &(struct belay_events_query){ .after = third, .key = "a" }, 99)->reasons, "5 7 ");
    CHECK_TEXT(ask(s, &(struct belay_events_query){ .after = third, .prefix = "b" }, 99)->reasons, "6 ");
    CHECK_TEXT(ask(s, &(struct belay_events_query){ .after = UINT64_C(1) << 60 }, 99)->reasons, "");
    return true;
}

static bool the_last_n_events_come_oldest_first(struct suite *s)
{
    uint64_t fifth;

    CHECK(say_some(s));
    fifth = ask_all(s)->events[4].id;
    CHECK_TEXT(ask(s, &(struct belay_events_query){ .last = 3 }, 99)->reasons, "5 6 7 ");
    CHECK_TEXT(ask(s, &(struct belay_events_query){ .last = 2, .key = "a" }, 99)->reasons, "5 7 ");
    CHECK_TEXT(ask(s, &(struct belay_events_query){ .last = 2, .prefix = "a" }, 99)->reasons, "5 7 ");
    CHECK_TEXT(ask(s, &(struct belay_events_query){ .last = 5, .after = fifth }, 99)->reasons, "6 7 ");
    CHECK_TEXT(ask(s, &(struct belay_events_query){ .last = 100 }, 99)->reasons, "1 2 3 4 5 6 7 ");
    return true;
}

static bool events_of_one_key_are_found_among_many(struct suite *s)
{
    enum { N = 300 }; /* batches of four: a store that sorts them in later has done so for a part */
    uint64_t second;

    for (int i = 0; i < N; i++) {
        struct belay_event events[] = { event("common", "c"), event("common", "c"), event("rarely", "c"),
                                        event(i == 1 || i == N / 2 || i == N - 1 ? "rare" : "common", "r") };

        events[3].reason = suite_text(s, "%d", i);
        CHECK_DONE(
            commit(s, i % 2 == 0 ? s->a : s->b, &(struct belay_batch){ .events = events, .n_events = 4 }));
    }
    second = ask(s, &(struct belay_events_query){ .key = "rare" }, 99)->events[1].id;
    CHECK_TEXT(ask(s, &(struct belay_events_query){ .key = "rare" }, 99)->reasons, "1 150 299 ");
    CHECK_TEXT(ask(s, &(struct belay_events_query){ .key = "rare", .last = 2 }, 99)->reasons, "150 299 ");
    CHECK_TEXT(ask(s, &(struct belay_events_query){ .key = "rare", .after = second }, 99)->reasons, "299 ");
    CHECK_TEXT(ask(s, &(struct belay_events_query){ .prefix = "rare", .last = 3 }, 99)->reasons, "c c 299 ");
    CHECK_INT(ask(s, &(struct belay_events_query){ .prefix = "rare" }, SIZE_MAX)->n, N + 3);
    CHECK_INT(ask(s, &(struct belay_events_query){ .key = "common" }, SIZE_MAX)->n, 3 * N - 3);
    CHECK_INT(ask_all(s)->n, 4 * N);
    CHECK(suite_reopen(s));
    CHECK_TEXT(ask(s, &(struct belay_events_query){ .key = "rare" }, 99)->reasons, "1 150 299 ");
    return true;
}

static bool reading_events_stops_on_request(struct suite *s)
{
    CHECK(say_some(s));
    CHECK_TEXT(ask(s, &(struct belay_events_query){ 0 }, 2)->reasons, "1 2 ");
    CHECK_DONE(say(s, "k", "8"));
    return true;
}

static bool events_outlast_closing_and_opening(struct suite *s)
{
    uint64_t last;

    CHECK(say_some(s));
    last = ask_all(s)->events[6].id;
    CHECK(suite_reopen(s));
    CHECK_DONE(say(s, "k", "8"));
    CHECK_TEXT(ask_all(s)->reasons, "1 2 3 4 5 6 7 8 ");
    CHECK(ask_all(s)->events[7].id > last);
    return true;
}

static bool a_store_says_itself_whether_it_keeps_events(struct suite *s)
{
    CHECK_INT(s->a->ops->events != NULL, s->fixture->keeps_events);
    CHECK(s->a->ops->name != NULL && s->a->ops->name[0] != '\0');
    return true;
}

/* The one that refuses is told what the event says: client and history must not differ. */
static bool is_noted(struct suite *s, const struct answer *refused, const char *lock_id, const char *reason)
{
    const struct seen *seen = ask(s, &(struct belay_events_query){ .key = "k", .last = 1 }, SIZE_MAX);
    const struct belay_event *last = &seen->events[0];

    CHECK_INT(seen->n, 1);
    CHECK_INT(last->id, refused->done.event_id);
    CHECK_TEXT(last->type, "lock.refused");
    CHECK_TEXT(last->lock_id, lock_id);
    CHECK_TEXT(last->locked_by, suite_text(s, "owner of %s", lock_id));
    CHECK_TEXT(last->locked_by_name, suite_text(s, "%s@example", lock_id));
    CHECK_TEXT(last->reason, reason);
    CHECK_INT(last->n_metadata, 2);
    CHECK_TEXT(last->metadata[1].value, "main");
    CHECK_INT(last->token, 0);
    CHECK_INT(last->duration_ms, -1);
    CHECK_TEXT(image(refused, 0)->owner, "owner of a");
    return true;
}

static bool a_refusal_may_be_kept_as_an_event(struct suite *s)
{
    static const int64_t left_ms[] = { LONG_MS,  LONG_MS - 1, 59000,    59999,   1000,
                                       999,      1,           3600000,  3661000, 86400000L * 3 + 7200000,
                                       86400000, 86399999,    60000 + 5 };

    for (size_t i = 0; i < sizeof left_ms / sizeof left_ms[0]; i++) {
        struct belay_batch options = { .note_refusal = true };
        char until[CLOCK_TEXT_SIZE], left[CLOCK_TEXT_SIZE];
        const struct answer *taken = take_for(s, "k", "a", left_ms[i]);
        const struct answer *refused = acquire_with(s, "k", "b", &options);

        CHECK_DONE(taken);
        CHECK_REFUSED(refused);
        if (refused->done.event_id == 0) {
            CHECK_INT(ask_all(s)->n, 0); /* the caller keeps it */
        } else if (!is_noted(s, refused, "b",
                             suite_text(s, "lock 'k' held by owner of a until %s (%s left)",
                                        clock_format_utc(until, image(taken, 0)->expires_at_unix_ms, false),
                                        clock_format_span(left, left_ms[i])))) {
            return false;
        }
        CHECK_DONE(release(s, "k", "a"));
        CHECK_DONE(take(s, "k", "between"));
        CHECK_DONE(release(s, "k", "between"));
    }
    return true;
}

static bool only_a_refusal_by_another_holder_is_kept(struct suite *s)
{
    struct belay_batch options = { .note_refusal = true };
    size_t n;

    CHECK_DONE(acquire_with(s, "k", "a", &options));
    n = ask_all(s)->n;
    CHECK_INT(n, 1);                                                  /* that it was acquired */
    CHECK_INT(acquire_with(s, "k", "a", &options)->done.event_id, 0); /* its own: the answer was lost */
    CHECK_DONE(queue(s, "k", "b", LONG_MS));
    CHECK_INT(acquire_with(s, "k", "b", &options)->done.event_id, 0); /* it waits, and has more to say */
    CHECK_DONE(unqueue(s, "k", "b"));
    CHECK_INT(acquire_with(s, "k", "c", &(struct belay_batch){ 0 })->done.event_id, 0);
    pass_time(s, LONG_MS + 1);
    CHECK_INT(acquire_with(s, "k", "c", &options)->done.event_id, 0); /* to be taken over, perhaps */
    CHECK_DONE(release(s, "k", "a"));
    CHECK_DONE(queue(s, "k", "b", LONG_MS));
    CHECK_INT(acquire_with(s, "k", "c", &options)->done.event_id, 0);
    CHECK_INT(ask_all(s)->n, n);
    return true;
}

struct count {
    size_t n;
    uint64_t first, last;
};

static bool count_event(void *context, const struct belay_event *event)
{
    struct count *count = context;

    count->first = count->n++ == 0 ? event->id : count->first;
    count->last = event->id;
    return true;
}

/* To take a key over from as many expired holders as there may be. */
static bool a_batch_has_all_the_events_that_an_acquisition_may_need(struct suite *s)
{
    enum { N = BELAY_HOLDERS_MAX + 2 };
    struct belay_event *events = suite_alloc(s, N * sizeof *events);
    struct count count = { 0 };
    uint64_t first;

    for (size_t i = 0; i < N; i++) {
        events[i] = (struct belay_event){
            .type = "lock.taken_over", .key = "k", .lock_id = "i", .locked_by = "o", .duration_ms = -1
        };
    }
    first = commit(s, s->a, &(struct belay_batch){ .events = events, .n_events = N })->done.event_id;
    CHECK(first > 0);
    CHECK_DONE(commit(s, s->a, &(struct belay_batch){ .events = events, .n_events = 1 }));
    CHECK_INT(s->b->ops->events(s->b, &(struct belay_events_query){ 0 }, count_event, &count, NULL),
              BELAY_OK);
    CHECK_INT(count.n, N + 1);
    CHECK_INT(count.first, first);
    CHECK(count.last >= first + N);
    CHECK(count.last < UINT64_C(1) << 53); /* exact in JavaScript */
    return true;
}

const struct suite_case suite_events[] = {
    CASE("L9", a_store_says_itself_whether_it_keeps_events),
    CASE_IF("L9", an_event_is_read_as_it_was_written, SUITE_NEEDS_EVENTS),
    CASE_IF("L9", missing_fields_of_an_event_stay_empty, SUITE_NEEDS_EVENTS),
    CASE_IF("L9", events_are_kept_with_their_writes_in_order, SUITE_NEEDS_EVENTS),
    CASE_IF("L4", a_batch_has_all_the_events_that_an_acquisition_may_need, SUITE_NEEDS_EVENTS),
    CASE_IF("L9", a_refused_batch_leaves_no_event, SUITE_NEEDS_EVENTS),
    CASE_IF("L5", a_batch_with_a_used_id_leaves_no_event, SUITE_NEEDS_EVENTS | SUITE_NEEDS_USED_IDS),
    CASE_IF("L2", an_event_may_name_the_token_of_its_batch, SUITE_NEEDS_EVENTS),
    CASE_IF("L9", an_event_may_ask_how_long_it_was_held, SUITE_NEEDS_EVENTS),
    CASE_IF("L9", an_event_takes_owner_and_token_from_the_record_of_its_id, SUITE_NEEDS_EVENTS),
    CASE_IF("L9", an_event_takes_metadata_from_the_record_of_its_id, SUITE_NEEDS_EVENTS),
    CASE_IF("L9", an_event_takes_no_metadata_from_an_earlier_holder, SUITE_NEEDS_EVENTS),
    CASE_IF("L9", events_of_one_key_are_found, SUITE_NEEDS_EVENTS),
    CASE_IF("L9", events_of_keys_with_a_prefix_are_found, SUITE_NEEDS_EVENTS),
    CASE_IF("L9", events_after_an_id_are_those_with_higher_ids, SUITE_NEEDS_EVENTS),
    CASE_IF("L9", the_last_n_events_come_oldest_first, SUITE_NEEDS_EVENTS),
    CASE_IF("L9", events_of_one_key_are_found_among_many, SUITE_NEEDS_EVENTS),
    CASE_IF("L9", reading_events_stops_on_request, SUITE_NEEDS_EVENTS),
    CASE_IF("L9", events_outlast_closing_and_opening, SUITE_NEEDS_EVENTS),
    CASE_IF("L9", a_refusal_may_be_kept_as_an_event, SUITE_NEEDS_EVENTS),
    CASE_IF("L9", only_a_refusal_by_another_holder_is_kept, SUITE_NEEDS_EVENTS),
    { NULL, NULL, 0, NULL },
};
