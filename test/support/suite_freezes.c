/* Freezes: a frozen key is not acquired, in whatever way, and nothing else is hindered. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"
#include "support/suite_kit.h"

enum { MINUTE_MS = 60000, CLOCKS_DIFFER_MS = 2000, THREADS = 8, ROUNDS = 6 };

#define CHECK_FROZEN(answer) CHECK_CODE(answer, BELAY_FROZEN)

/* ---- the list ---- */

/* By handle b, which acquires nothing. NULL: there is no list. */
static bool put_list(struct suite *s, const char *json)
{
    struct belay_item_write write = {
        .space = BELAY_SPACE_FREEZES, .name = "list", .value = json, .any_version = true
    };
    uint64_t version = 0;

    return s->b->ops->item_put(s->b, &write, &version, NULL) == BELAY_OK;
}

/* `times`: more members of the object, each with a comma before it. */
static const char *entry(struct suite *s, const char *id, const char *pattern, const char *times)
{
    return suite_text(
        s, "{\"id\":\"%s\",\"pattern\":\"%s\",\"reason\":\"Black Friday\",\"by\":\"alice\",\"made\":1%s}", id,
        pattern, times);
}

static const char *until(struct suite *s, int64_t unix_ms)
{
    return suite_text(s, ",\"until\":%" PRId64, unix_ms);
}

static bool freeze(struct suite *s, const char *pattern, const char *times)
{
    return put_list(s, suite_text(s, "[%s]", entry(s, "f", pattern, times)));
}

/* The wall clock of the store, by a lock that is taken for this. */
static int64_t store_unix_ms(struct suite *s)
{
    return image(take(s, "the clock", "clock"), 0)->locked_at_unix_ms;
}

/* ---- what a client sends ---- */

static const struct answer *checked(struct suite *s, const struct belay_write *write, int64_t grace_ms)
{
    return commit(s, s->a,
                  &(struct belay_batch){
                      .writes = write, .n_writes = 1, .check_freezes = true, .freeze_grace_ms = grace_ms });
}

static const struct answer *try_after(struct suite *s, const char *key, const char *lock_id, int64_t grace_ms)
{
    return acquire_with(s, key, lock_id,
                        &(struct belay_batch){ .check_freezes = true, .freeze_grace_ms = grace_ms });
}

static const struct answer *try(struct suite *s, const char *key, const char *lock_id)
{
    return try_after(s, key, lock_id, 0);
}

static const struct answer *claim(struct suite *s, const char *lock_id, int64_t grace_ms)
{
    return claim_with(s, lock_id,
                      &(struct belay_batch){ .check_freezes = true, .freeze_grace_ms = grace_ms });
}

/* ---- the cases ---- */

static bool a_key_that_matches_a_freeze_is_not_acquired(struct suite *s)
{
    int64_t now_ms = store_unix_ms(s);
    char end[CLOCK_TEXT_SIZE];
    const struct answer *refused;
    uint64_t revision;

    CHECK(s->a->ops->capabilities(s->a).has_freezes);
    CHECK_DONE(try(s, "deploy-a", "one")); /* it has looked for freezes before there were any */
    CHECK_DONE(release(s, "deploy-a", "one"));
    revision = see(s, "deploy-a")->revision;
    CHECK(freeze(s, "deploy-*", until(s, now_ms + MINUTE_MS)));
    refused = try(s, "deploy-a", "two");
    CHECK_FROZEN(refused);
    CHECK_TEXT(refused->done.frozen,
               suite_text(s, "frozen until %s by alice: Black Friday",
                          clock_format_utc(end, now_ms + MINUTE_MS, (now_ms + MINUTE_MS) % 1000 != 0)));
    CHECK(refused->done.frozen_for_ms >= MINUTE_MS);
    CHECK(refused->done.frozen_for_ms <= MINUTE_MS + CLOCKS_DIFFER_MS);
    CHECK_INT(see(s, "deploy-a")->revision, revision);
    CHECK_FROZEN(try(s, "deploy-new", "two"));
    CHECK_INT(see(s, "deploy-new")->revision, 0);
    CHECK_DONE(try(s, "a-deploy-a", "two"));
    CHECK_DONE(take(s, "deploy-a", "two"));    /* a client that need not obey */
    CHECK_FROZEN(try(s, "deploy-a", "three")); /* frozen comes before held */
    return true;
}

static bool a_frozen_key_is_acquired_in_no_way(struct suite *s)
{
    struct belay_write write = { .key = "k", .set = BELAY_SET_HOLDER, .values = holder(s, "one", LONG_MS) };
    struct belay_write two[] = { write, write };

    CHECK_DONE(take(s, "k", "a"));
    CHECK_DONE(release(s, "k", "a"));
    CHECK(freeze(s, "k", ""));
    CHECK_FROZEN(checked(s, &write, 0)); /* whatever is there */
    write.condition = BELAY_IF_UNCHANGED;
    write.revision = see(s, "k")->revision;
    CHECK_FROZEN(checked(s, &write, 0));
    if (s->fixture->keeps_modes) {
        write.co_holder = true;
        write.values = holder(s, "one", LONG_MS);
        ((struct belay_record *)write.values)->mode = BELAY_SHARED;
        CHECK_FROZEN(checked(s, &write, 0));
    }
    two[0].key = "j";
    two[0].condition = two[1].condition = BELAY_IF_FREE;
    if ((s->fixture->lacks & SUITE_LACKS_BATCHES) == 0) {
        CHECK_FROZEN(
            commit(s, s->a, &(struct belay_batch){ .writes = two, .n_writes = 2, .check_freezes = true }));
        CHECK_INT(see(s, "j")->revision, 0);
    }
    CHECK(!see(s, "k")->held);
    return true;
}

static bool holders_go_on_in_a_freeze(struct suite *s)
{
    struct belay_record *values = holder(s, "one", LONG_MS);
    struct belay_put_ticket ticket = { .lock_id = "two", .key = "k", .owner = "o", .owner_name = "n" };
    const char *two = "two";

    ticket.ttl_ms = LONG_MS;
    CHECK_DONE(try(s, "k", "one"));
    CHECK(freeze(s, "*", ""));
    CHECK_DONE(checked(s,
                       &(struct belay_write){ .key = "k",
                                              .condition = BELAY_IF_LIVE_BY,
                                              .lock_id = "one",
                                              .set = BELAY_SET_LEASE,
                                              .values = values },
                       0));
    CHECK_DONE(checked(s,
                       &(struct belay_write){ .key = "k",
                                              .condition = BELAY_IF_UNCHANGED,
                                              .revision = see(s, "k")->revision,
                                              .put_ticket = &ticket },
                       0));
    CHECK_DONE(checked(s, &(struct belay_write){ .key = "k", .drop_tickets = &two, .n_drop_tickets = 1 }, 0));
    CHECK_DONE(checked(s,
                       &(struct belay_write){ .key = "k",
                                              .condition = BELAY_IF_HELD_BY,
                                              .lock_id = "one",
                                              .set = BELAY_SET_RELEASED,
                                              .values = values },
                       0));
    CHECK(!see(s, "k")->held);
    CHECK_FROZEN(try(s, "k", "three"));
    return true;
}

static bool a_waiter_keeps_its_place_in_a_freeze(struct suite *s)
{
    int64_t now_ms = store_unix_ms(s);

    if (!s->a->ops->capabilities(s->a).takes_turns) {
        return true;
    }
    CHECK_DONE(take(s, "k", "a"));
    CHECK_DONE(queue(s, "k", "one", LONG_MS));
    CHECK_DONE(queue(s, "k", "two", LONG_MS));
    CHECK_DONE(release(s, "k", "a"));
    CHECK(freeze(s, "k", ""));
    CHECK_FROZEN(claim(s, "one", 0));
    CHECK_INT(see(s, "k")->n_tickets, 2);
    CHECK(freeze(s, "k", suite_text(s, ",\"ended\":%" PRId64, now_ms)));
    CHECK_FROZEN(claim(s, "one", MINUTE_MS)); /* as if others were ahead */
    CHECK_DONE(claim(s, "one", 0));
    CHECK_TEXT(see(s, "k")->lock_id, "one");
    CHECK_INT(see(s, "k")->n_tickets, 1);
    return true;
}

static bool a_freeze_begins_and_ends_at_its_time(struct suite *s)
{
    int64_t now_ms = store_unix_ms(s);

    CHECK(freeze(s, "k*",
                 suite_text(s, ",\"from\":%" PRId64 ",\"until\":%" PRId64, now_ms + MINUTE_MS,
                            now_ms + 2L * MINUTE_MS)));
    CHECK_DONE(try(s, "k1", "one"));
    pass_time(s, MINUTE_MS + CLOCKS_DIFFER_MS);
    CHECK_FROZEN(try(s, "k2", "one"));
    pass_time(s, MINUTE_MS - 3L * CLOCKS_DIFFER_MS);
    CHECK_FROZEN(try(s, "k2", "one"));
    pass_time(s, 4L * CLOCKS_DIFFER_MS);
    CHECK_FROZEN(try_after(s, "k2", "one", MINUTE_MS));
    CHECK_DONE(try(s, "k2", "one"));
    pass_time(s, MINUTE_MS);
    CHECK_DONE(try_after(s, "k3", "one", MINUTE_MS));
    return true;
}

static bool a_freeze_that_a_client_ended_is_over_at_once(struct suite *s)
{
    const char *ended = suite_text(s, ",\"ended\":%" PRId64, store_unix_ms(s));

    CHECK(freeze(s, "k*", ""));
    CHECK_FROZEN(try(s, "k1", "one"));
    CHECK(freeze(s, "k*", ended));
    CHECK_DONE(try(s, "k1", "one"));
    CHECK_FROZEN(try_after(s, "k2", "one", MINUTE_MS));
    pass_time(s, MINUTE_MS + CLOCKS_DIFFER_MS);
    CHECK_DONE(try_after(s, "k2", "one", MINUTE_MS));
    CHECK(freeze(s, "k*", ""));
    CHECK_FROZEN(try(s, "k3", "one"));
    CHECK(put_list(s, "[]"));
    CHECK_DONE(try(s, "k3", "one"));
    CHECK(freeze(s, "k*", ""));
    CHECK_FROZEN(try(s, "k4", "one"));
    CHECK(put_list(s, NULL));
    CHECK_DONE(try(s, "k4", "one"));
    return true;
}

static bool of_several_freezes_the_one_that_ends_last_is_named(struct suite *s)
{
    int64_t now_ms = store_unix_ms(s);
    const char *early = entry(s, "early", "k*", until(s, now_ms + MINUTE_MS));
    const char *late = entry(s, "late", "*k", until(s, now_ms + 9L * MINUTE_MS));
    const struct answer *refused;

    CHECK(put_list(s, suite_text(s, "[%s,%s,%s]", early, late, entry(s, "never", "other", ""))));
    refused = try(s, "k", "one");
    CHECK_FROZEN(refused);
    CHECK(refused->done.frozen_for_ms >= 9L * MINUTE_MS);
    CHECK(refused->done.frozen_for_ms <= 9L * MINUTE_MS + CLOCKS_DIFFER_MS);
    refused = try(s, "kay", "one");
    CHECK_FROZEN(refused);
    CHECK(refused->done.frozen_for_ms <= MINUTE_MS + CLOCKS_DIFFER_MS);
    refused = try(s, "other", "one");
    CHECK_FROZEN(refused);
    CHECK(refused->done.frozen_for_ms == INT64_MAX);
    CHECK_TEXT(refused->done.frozen, "frozen by alice: Black Friday");
    return true;
}

static bool only_a_star_in_a_pattern_stands_for_other_text(struct suite *s)
{
    static const struct {
        const char *pattern; /* in JSON */
        const char *frozen;
        const char *free;
    } some[] = { { "a%b", "a%b", "axb" },          { "a_b", "a_b", "ayb" },
                 { "a\\\\b", "a\\b", "azb" },      { "a.b", "a.b", "avb" },
                 { "x*y*z", "x1y2z", "x1y2" },     { "x?", "x?", "xx" },
                 { "[ab]", "[ab]", "b" },          { "Key", "Key", "key" },
                 { "*:end", "a:b:end", "a:ends" }, { "\xc3\xa9*", "\xc3\xa9l", "e" } };

    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        CHECK(freeze(s, some[i].pattern, ""));
        CHECK_FROZEN(try(s, some[i].frozen, "one"));
        CHECK_DONE(try(s, some[i].free, "one"));
    }
    return true;
}

static bool while_the_freezes_cannot_be_read_no_key_is_acquired(struct suite *s)
{
    static const char *const unreadable[] = { "{}", "\"k\"", "[1]", "[{\"id\":\"f\"}]",
                                              "[{\"pattern\":\"other\",\"reason\":\"r\",\"by\":\"b\"}]" };

    for (size_t i = 0; i < sizeof unreadable / sizeof unreadable[0]; i++) {
        CHECK(put_list(s, unreadable[i]));
        CHECK_CODE(try(s, "k", "one"), BELAY_BAD_CONTENT);
        CHECK_INT(see(s, "k")->revision, 0);
    }
    CHECK(put_list(s, "[]"));
    CHECK_DONE(try(s, "k", "one"));
    return true;
}

/* ---- many at once ---- */

struct worker {
    struct belay_store *store;
    int number;
    bool failed;
};

static enum belay_code send(const struct worker *worker, const char *name, int round, bool releases)
{
    char key[32], id[32];
    struct belay_record values = { .lock_id = id, .owner = "o", .owner_name = "n", .ttl_ms = LONG_MS };
    struct belay_write write = {
        .key = key, .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER, .values = &values, .lock_id = id
    };
    struct belay_event event = { .level = BELAY_LEVEL_INFO,
                                 .type = releases ? "lock.released" : "lock.acquired",
                                 .key = key,
                                 .lock_id = id,
                                 .locked_by = "o",
                                 .locked_by_name = "n",
                                 .token = releases ? 0 : BELAY_TOKEN_OF_BATCH,
                                 .duration_ms = -1 };
    struct belay_batch batch = {
        .writes = &write, .n_writes = 1, .events = &event, .n_events = 1, .check_freezes = true
    };
    struct belay_commit done = { 0 };
    enum belay_code code;

    (void)snprintf(key, sizeof key, "%s-%d", name, worker->number);
    (void)snprintf(id, sizeof id, "id-%d", round);
    if (releases) {
        write.condition = BELAY_IF_HELD_BY;
        write.set = BELAY_SET_RELEASED;
        values.outcome = BELAY_OUTCOME_COMPLETED;
    }
    code = worker->store->ops->commit(worker->store, &batch, &done, NULL);
    belay_commit_release(&done);
    return code;
}

/* A frozen key and a free one by turns, so that they are sent together where a store does that. */
static void *try_both(void *context)
{
    struct worker *worker = context;

    for (int i = 1; i <= ROUNDS && !worker->failed; i++) {
        worker->failed = send(worker, "frozen", i, false) != BELAY_FROZEN ||
                         send(worker, "free", i, false) != BELAY_OK ||
                         send(worker, "free", i, true) != BELAY_OK;
    }
    return NULL;
}

static bool none_of_eight_threads_acquires_a_frozen_key(struct suite *s)
{
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    bool started = true;

    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){ .store = s->a, .number = i };
        CHECK_INT(send(&workers[i], "frozen", 0, false), BELAY_OK);
        CHECK_INT(send(&workers[i], "frozen", 0, true), BELAY_OK);
    }
    CHECK(freeze(s, "frozen-*", ""));
    for (int i = 0; i < THREADS && started; i++) {
        started = pthread_create(&threads[i], NULL, try_both, &workers[i]) == 0;
    }
    CHECK(started);
    for (int i = 0; i < THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(!workers[i].failed);
    }
    return true;
}

const struct suite_case suite_freezes[] = {
    CASE_IF("port", a_key_that_matches_a_freeze_is_not_acquired, SUITE_NEEDS_FREEZES),
    CASE_IF("port", a_frozen_key_is_acquired_in_no_way, SUITE_NEEDS_FREEZES),
    CASE_IF("port", holders_go_on_in_a_freeze, SUITE_NEEDS_FREEZES),
    CASE_IF("L4", a_waiter_keeps_its_place_in_a_freeze, SUITE_NEEDS_FREEZES),
    CASE_IF("port", a_freeze_begins_and_ends_at_its_time, SUITE_NEEDS_FREEZES),
    CASE_IF("port", a_freeze_that_a_client_ended_is_over_at_once, SUITE_NEEDS_FREEZES),
    CASE_IF("port", of_several_freezes_the_one_that_ends_last_is_named, SUITE_NEEDS_FREEZES),
    CASE_IF("port", only_a_star_in_a_pattern_stands_for_other_text, SUITE_NEEDS_FREEZES),
    CASE_IF("port", while_the_freezes_cannot_be_read_no_key_is_acquired, SUITE_NEEDS_FREEZES),
    CASE_IF("port", none_of_eight_threads_acquires_a_frozen_key, SUITE_NEEDS_FREEZES),
    { NULL, NULL, 0, NULL },
};
