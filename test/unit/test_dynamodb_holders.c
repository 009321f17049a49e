/* Shared locks and slots in DynamoDB's native layout: what is written, what it costs, what an older belay sees. */
#include "test_dynamodb_support.h"

enum { TTL_MS = 60000 };

static int right_clocks(void **state)
{
    (void)state;
    wall_ahead_ms = date_ahead_ms = date_steps_ms = 0;
    after_request = NULL;
    return 0;
}

/* A store whose clock is known, so that no request asks for the time. */
static struct belay_store *fresh_table(void)
{
    struct belay_store *store = fresh("belay", "");

    assert_int_equal(take_free(store, "other", "other"), BELAY_OK);
    return store;
}

/* ---- writes ---- */

static struct belay_record shared_values(const char *id, int64_t ttl_ms)
{
    return (struct belay_record){ .lock_id = (char *)id,
                                  .owner = (char *)id,
                                  .owner_name = "somebody",
                                  .mode = BELAY_SHARED,
                                  .ttl_ms = ttl_ms };
}

static struct belay_write taking(const char *key, const struct belay_record *values)
{
    return (struct belay_write){ .key = key,
                                 .condition = BELAY_IF_FREE,
                                 .set = BELAY_SET_HOLDER,
                                 .values = values,
                                 .co_holder = values->mode != BELAY_EXCLUSIVE };
}

static struct belay_write changing(const char *key, const char *id, enum belay_condition condition,
                                   unsigned set, const struct belay_record *values)
{
    return (struct belay_write){
        .key = key, .condition = condition, .lock_id = id, .set = set, .values = values, .co_holder = true
    };
}

static enum belay_code commit_one(struct belay_store *store, const struct belay_write *write,
                                  struct belay_commit *out)
{
    struct belay_batch batch = { .writes = write, .n_writes = 1 };
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_commit done = { 0 };
    enum belay_code code = store->ops->commit(store, &batch, &done, &err);

    if (code != BELAY_OK && code != BELAY_REFUSED) {
        print_message("%s\n", err.text);
    }
    belay_error_release(&err);
    if (out != NULL) {
        *out = done;
    } else {
        belay_commit_release(&done);
    }
    return code;
}

/* Free, or beside others, as the client does it. */
static uint64_t join_for(struct belay_store *store, const char *key, const char *id, int64_t ttl_ms)
{
    struct belay_record values = shared_values(id, ttl_ms);
    struct belay_write write = taking(key, &values);
    struct belay_commit done = { 0 };
    uint64_t token;

    if (commit_one(store, &write, &done) == BELAY_REFUSED) {
        write.condition = BELAY_IF_UNCHANGED;
        write.revision = done.records[0].revision;
        belay_commit_release(&done);
        assert_int_equal(commit_one(store, &write, &done), BELAY_OK);
    }
    token = done.token;
    belay_commit_release(&done);
    return token;
}

static uint64_t join(struct belay_store *store, const char *key, const char *id)
{
    return join_for(store, key, id, TTL_MS);
}

static enum belay_code leave(struct belay_store *store, const char *key, const char *id)
{
    struct belay_record values = { .outcome = BELAY_OUTCOME_COMPLETED };
    struct belay_write write = changing(key, id, BELAY_IF_HELD_BY, BELAY_SET_RELEASED, &values);

    return commit_one(store, &write, NULL);
}

static enum belay_code renew(struct belay_store *store, const char *key, const char *id, int64_t ttl_ms)
{
    struct belay_record values = { .ttl_ms = ttl_ms };
    struct belay_write write = changing(key, id, BELAY_IF_LIVE_BY, BELAY_SET_LEASE, &values);

    return commit_one(store, &write, NULL);
}

/* The number of holders, all of which are live. */
static size_t count(struct belay_store *store, const char *key)
{
    struct belay_record record = see(store, key, NULL);
    size_t n = record.n_holders;

    assert_int_equal(record.held, n > 0);
    belay_record_release(&record);
    return n;
}

/* ---- the item as it is ---- */

static json_t *raw(struct belay_store *store, const char *key)
{
    struct ddb_items items = { 0 };

    assert_int_equal(ddb_read_locks(ddb_of(store), &key, 1, &items, NULL), BELAY_OK);
    return items.item;
}

static int64_t raw_number(struct belay_store *store, const char *key, const char *attribute)
{
    json_t *item = raw(store, key);
    int64_t number = -1;

    (void)item_int(item, attribute, &number);
    json_decref(item);
    return number;
}

/* ---- costs ---- */

static void a_free_shared_lock_acquired_and_released_costs_two_requests(void **state)
{
    struct belay_store *store = fresh_table();
    uint64_t before = requests_of(store);

    (void)state;
    (void)join(store, "k", "one");
    assert_int_equal(leave(store, "k", "one"), BELAY_OK);
    assert_int_equal(requests_of(store) - before, 2);
    store->ops->close(store);
}

static void beside_others_it_costs_three_and_a_renewal_one(void **state)
{
    struct belay_store *store = fresh_table();
    uint64_t before;

    (void)state;
    (void)join(store, "k", "one");
    before = requests_of(store);
    (void)join(store, "k", "two");
    assert_int_equal(requests_of(store) - before, 2);
    assert_int_equal(renew(store, "k", "two", TTL_MS), BELAY_OK);
    assert_int_equal(requests_of(store) - before, 3);
    assert_int_equal(leave(store, "k", "two"), BELAY_OK);
    assert_int_equal(requests_of(store) - before, 4);
    assert_int_equal(count(store, "k"), 1);
    store->ops->close(store);
}

/* ---- the record ---- */

static void each_holder_has_its_own_lease_and_the_record_repeats_the_last_to_end(void **state)
{
    struct belay_store *store = fresh_table();
    struct belay_record record;

    (void)state;
    (void)join_for(store, "k", "one", TTL_MS);
    (void)join_for(store, "k", "two", 2 * TTL_MS);
    (void)join_for(store, "k", "three", 3 * TTL_MS);
    boot_now_ms += 1000;
    assert_int_equal(renew(store, "k", "two", 3 * TTL_MS), BELAY_OK);
    record = see(store, "k", NULL);
    assert_int_equal(record.mode, BELAY_SHARED);
    assert_int_equal(record.n_holders, 3);
    assert_string_equal(record.holders[0].lock_id, "one"); /* by token */
    assert_string_equal(record.holders[2].lock_id, "three");
    assert_string_equal(record.lock_id, "two");
    assert_int_equal(record.expires_ms, SERVICE_MS + 3 * TTL_MS);
    assert_int_equal(record.holders[0].expires_ms, SERVICE_MS - 1000 + TTL_MS);
    assert_int_equal(record.holders[2].last_heartbeat_ms, SERVICE_MS - 1000);
    assert_true(record.token == record.holders[1].token);
    belay_record_release(&record);
    store->ops->close(store);
}

static void the_last_to_leave_frees_the_lock_and_stays_in_its_record(void **state)
{
    struct belay_store *store = fresh_table();
    struct belay_record values = shared_values("two", TTL_MS);
    struct belay_write again = taking("k", &values);
    struct belay_record record;

    (void)state;
    (void)join(store, "k", "one");
    (void)join(store, "k", "two");
    assert_int_equal(leave(store, "k", "one"), BELAY_OK);
    assert_int_equal(leave(store, "k", "one"), BELAY_REFUSED);
    assert_true(is_held(store, "k"));
    assert_int_equal(leave(store, "k", "two"), BELAY_OK);
    record = see(store, "k", NULL);
    assert_false(record.held);
    assert_int_equal(record.n_holders, 0);
    assert_string_equal(record.lock_id, "two");
    assert_string_equal(record.released_ids[0], "two");
    assert_int_equal(record.outcome, BELAY_OUTCOME_COMPLETED);
    belay_record_release(&record);
    assert_int_equal(commit_one(store, &again, NULL), BELAY_REFUSED); /* L5 */
    again.co_holder = false;
    assert_int_equal(commit_one(store, &again, NULL), BELAY_REFUSED);
    assert_int_equal(take_free(store, "k", "three"), BELAY_OK);
    store->ops->close(store);
}

static void tokens_of_a_key_grow_whatever_its_mode(void **state)
{
    struct belay_store *store = fresh_table();
    uint64_t tokens[5];
    struct belay_record record;

    (void)state;
    assert_int_equal(take_free(store, "k", "first"), BELAY_OK);
    record = see(store, "k", NULL);
    tokens[0] = record.token;
    assert_int_equal(take(store, "k", "none", 1, BELAY_IF_FREE, 0, NULL), BELAY_REFUSED);
    {
        struct belay_record values = { .outcome = BELAY_OUTCOME_COMPLETED };
        struct belay_write release = changing("k", "first", BELAY_IF_HELD_BY, BELAY_SET_RELEASED, &values);

        release.co_holder = false;
        assert_int_equal(commit_one(store, &release, NULL), BELAY_OK);
    }
    belay_record_release(&record);
    tokens[1] = join(store, "k", "one");
    tokens[2] = join(store, "k", "two");
    assert_int_equal(leave(store, "k", "one"), BELAY_OK);
    tokens[3] = join(store, "k", "three");
    assert_int_equal(leave(store, "k", "two"), BELAY_OK);
    assert_int_equal(leave(store, "k", "three"), BELAY_OK);
    assert_int_equal(take_free(store, "k", "last"), BELAY_OK);
    record = see(store, "k", NULL);
    assert_int_equal(record.mode, BELAY_EXCLUSIVE);
    tokens[4] = record.token;
    belay_record_release(&record);
    for (size_t i = 1; i < 5; i++) {
        assert_true(tokens[i] > tokens[i - 1]);
    }
    store->ops->close(store);
}

static void slots_and_tickets_say_how_many(void **state)
{
    struct belay_store *store = fresh_table();
    struct belay_record values = shared_values("one", TTL_MS);
    struct belay_write write;
    struct belay_put_ticket ticket = { .lock_id = "two",
                                       .key = "k",
                                       .owner = "bob",
                                       .owner_name = "Bob",
                                       .ttl_ms = 1000,
                                       .mode = BELAY_SLOTS,
                                       .slots = 3,
                                       .joint = true };
    struct belay_put_intent intent = { .lock_id = "below", .key = "k:1", .ttl_ms = 1000, .shared = true };
    struct belay_record record;

    (void)state;
    values.mode = BELAY_SLOTS;
    values.slots = 3;
    write = taking("k", &values);
    assert_int_equal(commit_one(store, &write, NULL), BELAY_OK);
    write =
        (struct belay_write){ .key = "k", .put_ticket = &ticket, .put_intents = &intent, .n_put_intents = 1 };
    assert_int_equal(commit_one(store, &write, NULL), BELAY_OK);
    record = see(store, "k", NULL);
    assert_int_equal(record.mode, BELAY_SLOTS);
    assert_int_equal(record.slots, 3);
    assert_int_equal(record.tickets[0].mode, BELAY_SLOTS);
    assert_int_equal(record.tickets[0].slots, 3);
    assert_true(record.tickets[0].joint);
    assert_true(record.intents[0].shared);
    belay_record_release(&record);
    store->ops->close(store);
}

/* ---- exclusive beside shared ---- */

static void no_exclusive_write_takes_a_lock_beside_holders(void **state)
{
    static const char *const ids[] = { "new", "one", HOLDERS_SEVERAL };
    struct belay_store *store = fresh_table();
    struct belay_record values = shared_values("new", TTL_MS);
    struct belay_write write = taking("k", &values);

    (void)state;
    (void)join(store, "k", "one");
    (void)join(store, "k", "two");
    write.co_holder = false;
    write.revision = 12345;
    for (size_t i = 0; i < 3; i++) {
        values.lock_id = (char *)ids[i];
        for (int condition = BELAY_IF_ABSENT; condition <= BELAY_IF_LIVE_BY; condition++) {
            /* A text that no client can have as its id. */
            bool by_text = condition >= BELAY_IF_HELD_BY && strcmp(ids[i], HOLDERS_SEVERAL) == 0;

            write.condition = (enum belay_condition)condition;
            write.lock_id = by_text ? "one" : ids[i];
            assert_int_equal(commit_one(store, &write, NULL), BELAY_REFUSED);
        }
    }
    write.condition = BELAY_IF_HELD_BY;
    write.lock_id = "one";
    write.set = BELAY_SET_RELEASED;
    assert_int_equal(commit_one(store, &write, NULL), BELAY_REFUSED);
    write.condition = BELAY_IF_ANY;
    assert_int_equal(commit_one(store, &write, NULL), BELAY_REFUSED);
    assert_int_equal(count(store, "k"), 2);
    store->ops->close(store);
}

static void no_shared_write_takes_a_lock_beside_an_exclusive_holder(void **state)
{
    struct belay_store *store = fresh_table();
    struct belay_record values = shared_values("one", TTL_MS);
    struct belay_write write = taking("k", &values);

    (void)state;
    assert_int_equal(take_free(store, "k", "alone"), BELAY_OK);
    assert_int_equal(commit_one(store, &write, NULL), BELAY_REFUSED);
    write.condition = BELAY_IF_FREE_FOR_INTENT;
    assert_int_equal(commit_one(store, &write, NULL), BELAY_REFUSED);
    assert_int_equal(renew(store, "k", "alone", TTL_MS), BELAY_REFUSED);
    assert_int_equal(leave(store, "k", "alone"), BELAY_REFUSED);
    store->ops->close(store);
}

/* L7: by the record that came back, once all leases have ended. */
static void an_exclusive_client_takes_over_when_all_have_expired(void **state)
{
    struct belay_store *store = fresh_table();
    struct belay_record record;

    (void)state;
    (void)join(store, "k", "one");
    (void)join_for(store, "k", "two", 2 * TTL_MS);
    boot_now_ms += 3 * TTL_MS;
    assert_int_equal(take_free(store, "k", "new"), BELAY_REFUSED);
    assert_int_equal(renew(store, "k", "two", TTL_MS), BELAY_REFUSED);
    record = see(store, "k", NULL);
    assert_true(record.held);
    assert_int_equal(take(store, "k", "new", TTL_MS, BELAY_IF_UNCHANGED, record.revision + 1, NULL),
                     BELAY_REFUSED);
    assert_int_equal(take(store, "k", "new", TTL_MS, BELAY_IF_UNCHANGED, record.revision, NULL), BELAY_OK);
    belay_record_release(&record);
    record = see(store, "k", NULL);
    assert_int_equal(record.mode, BELAY_EXCLUSIVE);
    assert_int_equal(record.n_holders, 0);
    assert_string_equal(record.lock_id, "new");
    belay_record_release(&record);
    assert_int_equal(raw_number(store, "k", HOLDERS_KEEP), -1);
    assert_int_equal(leave(store, "k", "one"), BELAY_REFUSED);
    store->ops->close(store);
}

static void expired_holders_are_dropped_and_the_last_release_frees(void **state)
{
    static const char *const gone[] = { "one", "nobody" };
    struct belay_store *store = fresh_table();
    struct belay_record values = shared_values("three", TTL_MS);
    struct belay_write write = taking("k", &values);
    struct belay_record record;

    (void)state;
    (void)join(store, "k", "one");
    (void)join_for(store, "k", "two", 10 * TTL_MS);
    boot_now_ms += 2 * TTL_MS;
    record = see(store, "k", NULL);
    write.condition = BELAY_IF_UNCHANGED;
    write.revision = record.revision;
    write.drop_holders = gone;
    write.n_drop_holders = 2;
    assert_int_equal(commit_one(store, &write, NULL), BELAY_OK);
    belay_record_release(&record);
    assert_int_equal(count(store, "k"), 2);
    assert_int_equal(renew(store, "k", "one", TTL_MS), BELAY_REFUSED);
    assert_int_equal(leave(store, "k", "two"), BELAY_OK);
    assert_true(is_held(store, "k"));
    assert_int_equal(leave(store, "k", "three"), BELAY_OK);
    assert_int_equal(take_free(store, "k", "new"), BELAY_OK);
    store->ops->close(store);
}

/* ---- adopting ---- */

static enum belay_code adopt(struct belay_store *store, const char *key, const char *old_id, const char *id,
                             uint64_t *out_token)
{
    struct belay_record values = { .lock_id = (char *)id, .ttl_ms = TTL_MS, .durable = true };
    struct belay_write write = changing(key, old_id, BELAY_IF_LIVE_BY,
                                        BELAY_SET_IDENTITY | BELAY_SET_LIVENESS | BELAY_SET_LEASE, &values);
    struct belay_commit done = { 0 };
    enum belay_code code = commit_one(store, &write, &done);

    *out_token = done.token;
    belay_commit_release(&done);
    return code;
}

static void an_adopted_holder_gets_a_new_id_and_token_and_keeps_the_rest(void **state)
{
    struct belay_store *store = fresh_table();
    struct belay_record record;
    uint64_t before, token;

    (void)state;
    (void)join(store, "k", "one");
    before = join(store, "k", "two");
    assert_int_equal(adopt(store, "k", "one", "new", &token), BELAY_OK);
    assert_true(token > before);
    assert_int_equal(adopt(store, "k", "one", "newer", &token), BELAY_REFUSED);
    record = see(store, "k", NULL);
    assert_int_equal(record.n_holders, 2);
    assert_string_equal(record.holders[1].lock_id, "new");
    assert_string_equal(record.holders[1].owner, "one");
    assert_true(record.holders[1].durable);
    assert_false(record.holders[0].durable);
    belay_record_release(&record);
    assert_int_equal(leave(store, "k", "new"), BELAY_OK);
    assert_int_equal(leave(store, "k", "two"), BELAY_OK);
    assert_false(is_held(store, "k"));
    store->ops->close(store);
}

static struct belay_store *beside;
static int n_changes;

/* Another client joins between the read and the write. */
static void join_after_read(const char *operation)
{
    char id[16];

    if (strcmp(operation, "GetItem") == 0 && beside != NULL && n_changes == 0) {
        (void)snprintf(id, sizeof id, "late-%d", ++n_changes);
        (void)join(beside, "k", id);
    }
}

static void an_adoption_is_repeated_if_another_client_joined_meanwhile(void **state)
{
    struct belay_store *store = fresh_table();
    struct belay_record record;
    uint64_t token;

    (void)state;
    beside = another(store, "");
    n_changes = 0;
    (void)join(store, "k", "one");
    (void)join(store, "k", "two");
    after_request = join_after_read;
    assert_int_equal(adopt(store, "k", "one", "new", &token), BELAY_OK);
    after_request = NULL;
    assert_int_equal(n_changes, 1);
    record = see(store, "k", NULL);
    assert_int_equal(record.n_holders, 3);
    assert_string_equal(record.holders[1].lock_id, "late-1");
    assert_string_equal(record.holders[2].lock_id, "new");
    assert_true(token == record.holders[2].token && token > record.holders[1].token);
    belay_record_release(&record);
    beside->ops->close(beside);
    beside = NULL;
    store->ops->close(store);
}

/* ---- time ---- */

/* What an older belay goes by, and DynamoDB when it removes items. */
static void assert_bounds(struct belay_store *store, const char *key)
{
    struct belay_record record = see(store, key, NULL);
    int64_t expires_ms = raw_number(store, key, "expires_at");
    int64_t ttl_s = raw_number(store, key, "ttl");
    int64_t longest_ms = raw_number(store, key, "ttl_ms");

    for (size_t i = 0; i < record.n_holders; i++) {
        assert_true(record.holders[i].expires_at_unix_ms <= expires_ms);
        assert_true(record.holders[i].ttl_ms <= longest_ms);
    }
    assert_true(ttl_s * 1000 >= expires_ms + DDB_KEEP_MS);
    belay_record_release(&record);
}

static void the_item_outlives_the_longest_lease(void **state)
{
    struct belay_store *store = fresh_table();
    uint64_t before;

    (void)state;
    (void)join_for(store, "k", "long", 100 * TTL_MS);
    (void)join_for(store, "k", "short", TTL_MS);
    assert_bounds(store, "k");
    boot_now_ms += 1000;
    assert_int_equal(renew(store, "k", "short", TTL_MS), BELAY_OK);
    assert_bounds(store, "k");
    before = requests_of(store);
    assert_int_equal(renew(store, "k", "short", 200 * TTL_MS), BELAY_OK); /* longer than any */
    assert_int_equal(requests_of(store) - before, 2);
    assert_int_equal(renew(store, "k", "short", 200 * TTL_MS), BELAY_OK);
    assert_int_equal(requests_of(store) - before, 3);
    assert_bounds(store, "k");
    store->ops->close(store);
}

static void a_renewal_without_a_ttl_keeps_that_of_its_holder(void **state)
{
    struct belay_store *store = fresh_table();
    struct belay_record record;

    (void)state;
    (void)join_for(store, "k", "one", TTL_MS);
    (void)join_for(store, "k", "two", 2 * TTL_MS);
    boot_now_ms += 1000;
    assert_int_equal(renew(store, "k", "one", 0), BELAY_OK);
    record = see(store, "k", NULL);
    assert_int_equal(record.holders[0].ttl_ms, TTL_MS);
    assert_int_equal(record.holders[0].expires_ms, SERVICE_MS + TTL_MS);
    belay_record_release(&record);
    store->ops->close(store);
}

static void a_grant_whose_answer_shows_a_wrong_clock_is_undone_beside_others(void **state)
{
    struct belay_store *store = fresh_table();
    struct belay_record values = shared_values("two", TTL_MS);
    struct belay_write write = taking("k", &values);
    struct belay_record record;
    uint64_t before;

    (void)state;
    (void)join(store, "k", "one");
    record = see(store, "k", NULL);
    write.condition = BELAY_IF_UNCHANGED;
    write.revision = record.revision;
    belay_record_release(&record);
    before = requests_of(store);
    date_ahead_ms = 3600000;
    assert_int_equal(commit_one(store, &write, NULL), BELAY_CONFIG);
    assert_int_equal(requests_of(store) - before, 2); /* done, and undone */
    date_ahead_ms = 0;
    assert_int_equal(count(store, "k"), 1);
    assert_int_equal(leave(store, "k", "one"), BELAY_OK);
    assert_false(is_held(store, "k"));
    store->ops->close(store);
}

static void an_observer_judges_each_holder_by_its_own_lease(void **state)
{
    struct belay_store *store = fresh_table();
    struct belay_store *watch = another(store, "&observe=1");
    struct belay_record record;
    int64_t now_ms;

    (void)state;
    (void)join_for(store, "k", "one", TTL_MS);
    (void)join_for(store, "k", "two", TTL_MS);
    record = see(watch, "k", NULL);
    belay_record_release(&record);
    boot_now_ms += TTL_MS - 1000;
    assert_int_equal(renew(store, "k", "two", TTL_MS), BELAY_OK);
    record = see(watch, "k", NULL);
    belay_record_release(&record);
    boot_now_ms += 2000;
    record = see(watch, "k", &now_ms);
    assert_true(record.holders[0].expires_ms <= now_ms);
    assert_true(record.holders[1].expires_ms > now_ms);
    assert_string_equal(record.lock_id, "two");
    belay_record_release(&record);
    watch->ops->close(watch);
    store->ops->close(store);
}

/* ---- an older belay on the same table ---- */

/* What belay wrote before it knew of several holders. */
static enum belay_code old_update(struct belay_store *store, const char *update, const char *condition,
                                  const char *id)
{
    json_t *names = json_object(), *values = json_object();
    struct ddb_answer answer;
    enum belay_code code;

    (void)json_object_set_new(names, "#s", json_string("status"));
    (void)json_object_set_new(names, "#i", json_string("lock_id"));
    (void)json_object_set_new(names, "#w", json_string("waiting"));
    (void)json_object_set_new(names, "#n", json_string("intents"));
    (void)json_object_set_new(names, "#r", json_string("revision"));
    (void)json_object_set_new(values, ":a", av_text("active"));
    (void)json_object_set_new(values, ":f", av_text("released"));
    (void)json_object_set_new(values, ":i", av_text(id));
    (void)json_object_set_new(values, ":r", av_int(77));
    for (const char *const *name = (const char *const[]){ "#s", "#i", "#w", "#n", "#r", NULL }; *name != NULL;
         name++) {
        if (strstr(update, *name) == NULL && strstr(condition, *name) == NULL) {
            (void)json_object_del(names, *name);
        }
    }
    for (const char *const *name = (const char *const[]){ ":a", ":f", ":i", ":r", NULL }; *name != NULL;
         name++) {
        if (strstr(update, *name) == NULL && strstr(condition, *name) == NULL) {
            (void)json_object_del(values, *name);
        }
    }
    code = ddb_call(ddb_of(store), "UpdateItem",
                    json_pack("{s:s,s:o,s:s,s:s,s:o,s:o}", "TableName", ddb_of(store)->params.table, "Key",
                              ddb_item_key(ddb_of(store)->layout, "k"), "UpdateExpression", update,
                              "ConditionExpression", condition, "ExpressionAttributeNames", names,
                              "ExpressionAttributeValues", values),
                    &answer, NULL);
    ddb_answer_release(&answer);
    return code;
}

#define OLD_TAKE "SET #s = :a, #i = :i, #r = :r"
#define OLD_FREE                                                                                             \
    "(attribute_not_exists(#s) OR #s <> :a) AND (attribute_not_exists(#w)) AND "                             \
    "(attribute_not_exists(#n)) AND (attribute_not_exists(#i) OR #i <> :i)"
#define OLD_HELD_BY "(#s = :a) AND (#i = :i)"
#define OLD_RELEASE "SET #s = :f, #r = :r"

static void an_older_belay_sees_a_shared_lock_as_held_until_the_last_release(void **state)
{
    struct belay_store *store = fresh_table();
    struct belay_record record;

    (void)state;
    (void)join(store, "k", "one");
    (void)join(store, "k", "two");
    assert_int_equal(old_update(store, OLD_TAKE, OLD_FREE, "old"), BELAY_REFUSED);
    assert_int_equal(old_update(store, OLD_RELEASE, OLD_HELD_BY, "one"), BELAY_REFUSED);
    assert_int_equal(leave(store, "k", "one"), BELAY_OK);
    assert_int_equal(old_update(store, OLD_TAKE, OLD_FREE, "old"), BELAY_REFUSED);
    assert_int_equal(leave(store, "k", "two"), BELAY_OK);
    assert_int_equal(old_update(store, OLD_TAKE, OLD_FREE, "old"), BELAY_OK);
    record = see(store, "k", NULL);
    assert_true(record.held);
    assert_int_equal(record.mode, BELAY_EXCLUSIVE);
    assert_int_equal(record.n_holders, 0);
    assert_string_equal(record.lock_id, "old");
    belay_record_release(&record);
    store->ops->close(store);
}

static void a_force_by_an_older_belay_ends_all_holders(void **state)
{
    struct belay_store *store = fresh_table();

    (void)state;
    (void)join(store, "k", "one");
    (void)join(store, "k", "two");
    assert_int_equal(old_update(store, OLD_RELEASE, OLD_HELD_BY, HOLDERS_SEVERAL), BELAY_OK);
    assert_int_equal(count(store, "k"), 0);
    assert_int_equal(renew(store, "k", "one", TTL_MS), BELAY_REFUSED);
    assert_int_equal(leave(store, "k", "two"), BELAY_REFUSED);
    (void)join(store, "k", "three");
    assert_int_equal(count(store, "k"), 1);
    assert_int_equal(leave(store, "k", "three"), BELAY_OK);
    assert_false(is_held(store, "k"));
    store->ops->close(store);
}

/* ---- at once ---- */

enum { N_THREADS = 6, N_ROUNDS = 15 };

struct crowd {
    struct belay_store *store;
    _Atomic int sharers; /* as the clients know it: counted after the grant, and until before the release */
    _Atomic int owners;
    _Atomic int grants[2];
    _Atomic int overlaps;
};

struct crowd_member {
    struct crowd *crowd;
    int number;
};

static bool try_to_hold(struct crowd *crowd, const struct belay_record *values)
{
    struct belay_write write = taking("k", values);
    struct belay_commit done = { 0 };
    enum belay_code code = commit_one(crowd->store, &write, &done);

    for (int i = 0; code == BELAY_REFUSED && values->mode == BELAY_SHARED && i < 20; i++) {
        if (done.records[0].held && done.records[0].mode == BELAY_EXCLUSIVE) {
            break;
        }
        write.condition = BELAY_IF_UNCHANGED;
        write.revision = done.records[0].revision;
        belay_commit_release(&done);
        code = commit_one(crowd->store, &write, &done);
    }
    belay_commit_release(&done);
    return code == BELAY_OK;
}

static void *hold_again_and_again(void *argument)
{
    const struct crowd_member *member = argument;
    struct crowd *crowd = member->crowd;
    bool shares = member->number % 3 != 0;
    char id[32];

    for (int round = 0; round < N_ROUNDS; round++) {
        struct belay_record values = shared_values(id, TTL_MS);
        struct belay_record ended = { .outcome = BELAY_OUTCOME_COMPLETED };
        struct belay_write release = changing("k", id, BELAY_IF_HELD_BY, BELAY_SET_RELEASED, &ended);

        (void)snprintf(id, sizeof id, "id-%d-%d", member->number, round);
        values.mode = shares ? BELAY_SHARED : BELAY_EXCLUSIVE;
        release.co_holder = shares;
        if (!try_to_hold(crowd, &values)) {
            continue;
        }
        crowd->grants[shares]++;
        (*(shares ? &crowd->sharers : &crowd->owners))++;
        crowd->overlaps += crowd->owners > 1 || (crowd->owners > 0 && crowd->sharers > 0);
        if (shares) {
            crowd->overlaps += renew(crowd->store, "k", id, TTL_MS) != BELAY_OK;
        }
        (*(shares ? &crowd->sharers : &crowd->owners))--;
        crowd->overlaps += commit_one(crowd->store, &release, NULL) != BELAY_OK;
    }
    return NULL;
}

static void a_crowd_never_holds_shared_beside_exclusive_and_leaves_nothing(void **state)
{
    struct crowd crowd = { .store = fresh_table() };
    struct crowd_member members[N_THREADS];
    pthread_t threads[N_THREADS];
    json_t *item;

    (void)state;
    for (int i = 0; i < N_THREADS; i++) {
        members[i] = (struct crowd_member){ &crowd, i };
        assert_int_equal(pthread_create(&threads[i], NULL, hold_again_and_again, &members[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    print_message("%d exclusive and %d shared grants\n", crowd.grants[0], crowd.grants[1]);
    assert_true(crowd.grants[0] > 0 && crowd.grants[1] > 0);
    assert_int_equal(crowd.overlaps, 0);
    assert_false(is_held(crowd.store, "k"));
    item = raw(crowd.store, "k");
    assert_int_equal(json_array_size(json_object_get(json_object_get(item, HOLDERS_MARKS), "L")), 0);
    assert_int_equal(json_object_size(item_map(item, HOLDERS_MAP)), 0);
    json_decref(item);
    crowd.store->ops->close(crowd.store);
}

/* ---- several keys ---- */

enum { N_KEYS = 48 }; /* 16 keys, each with two ancestors */

static void many_keys_are_taken_and_released_in_one_transaction(void **state)
{
    static char keys[N_KEYS][16];
    struct belay_store *store = fresh_table();
    struct belay_record values = shared_values("all", TTL_MS);
    struct belay_record ended = { .outcome = BELAY_OUTCOME_COMPLETED };
    struct belay_write writes[N_KEYS];
    struct belay_batch batch = { .writes = writes, .n_writes = N_KEYS };
    struct belay_commit done = { 0 };

    (void)state;
    for (size_t i = 0; i < N_KEYS; i++) {
        (void)snprintf(keys[i], sizeof keys[i], "key-%zu", i);
        writes[i] = taking(keys[i], &values);
    }
    (void)join(store, "key-30", "one");
    assert_int_equal(store->ops->commit(store, &batch, &done, NULL), BELAY_REFUSED);
    assert_int_equal(done.refused, 30);
    assert_string_equal(done.records[0].holders[0].lock_id, "one");
    belay_commit_release(&done);
    assert_false(is_held(store, "key-0"));
    assert_int_equal(leave(store, "key-30", "one"), BELAY_OK);
    assert_int_equal(store->ops->commit(store, &batch, &done, NULL), BELAY_OK);
    for (size_t i = 0; i < N_KEYS; i++) {
        assert_int_equal(done.records[i].n_holders, 1);
        assert_true(done.records[i].holders[0].token > 0);
    }
    assert_true(done.token == done.records[0].holders[0].token);
    belay_commit_release(&done);
    (void)join(store, "key-47", "other");
    for (size_t i = 0; i < N_KEYS; i++) {
        writes[i] = changing(keys[i], "all", BELAY_IF_HELD_BY, BELAY_SET_RELEASED, &ended);
    }
    assert_int_equal(store->ops->commit(store, &batch, &done, NULL), BELAY_OK);
    assert_false(done.records[0].held);
    assert_string_equal(done.records[0].lock_id, "all");
    assert_true(done.records[47].held);
    assert_string_equal(done.records[47].lock_id, "other");
    belay_commit_release(&done);
    assert_false(is_held(store, "key-0"));
    assert_int_equal(count(store, "key-47"), 1);
    store->ops->close(store);
}

static void an_item_that_is_too_large_is_named_in_the_error(void **state)
{
    enum { ENTRY = 200 * 1024 };
    struct belay_store *store = fresh_table();
    char *text = malloc(ENTRY + 1);
    struct belay_meta meta = { "large", text };
    struct belay_record values = shared_values("one", TTL_MS);
    struct belay_write writes[2] = { taking("a", &values), taking("k", &values) };
    struct belay_batch batch = { .writes = &writes[1], .n_writes = 1 };
    struct belay_commit done = { 0 };
    struct belay_error err = BELAY_ERROR_INIT;

    (void)state;
    memset(text, 'x', ENTRY);
    text[ENTRY] = '\0';
    values.metadata = &meta;
    values.n_metadata = 1;
    assert_int_equal(commit_one(store, &writes[1], &done), BELAY_OK);
    values.lock_id = "two";
    writes[1].condition = BELAY_IF_UNCHANGED;
    writes[1].revision = done.records[0].revision;
    belay_commit_release(&done);
    assert_int_equal(store->ops->commit(store, &batch, &done, &err), BELAY_INVALID);
    assert_non_null(strstr(err.text, "400 KB"));
    belay_error_release(&err);
    batch = (struct belay_batch){ .writes = writes, .n_writes = 2 };
    assert_int_equal(store->ops->commit(store, &batch, &done, &err), BELAY_INVALID);
    assert_non_null(strstr(err.text, "400 KB"));
    assert_non_null(strstr(err.text, "'k'"));
    belay_error_release(&err);
    assert_int_equal(count(store, "k"), 1);
    free(text);
    store->ops->close(store);
}

static void only_the_native_layout_keeps_several_holders(void **state)
{
    struct belay_store *store = fresh_table();
    struct belay_store *foreign = fresh("runvoy", "");

    (void)state;
    assert_true(store->ops->capabilities(store).has_modes);
    assert_false(foreign->ops->capabilities(foreign).has_modes);
    foreign->ops->close(foreign);
    store->ops->close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_free_shared_lock_acquired_and_released_costs_two_requests, right_clocks),
        cmocka_unit_test_setup(beside_others_it_costs_three_and_a_renewal_one, right_clocks),
        cmocka_unit_test_setup(each_holder_has_its_own_lease_and_the_record_repeats_the_last_to_end,
                               right_clocks),
        cmocka_unit_test_setup(the_last_to_leave_frees_the_lock_and_stays_in_its_record, right_clocks),
        cmocka_unit_test_setup(tokens_of_a_key_grow_whatever_its_mode, right_clocks),
        cmocka_unit_test_setup(slots_and_tickets_say_how_many, right_clocks),
        cmocka_unit_test_setup(no_exclusive_write_takes_a_lock_beside_holders, right_clocks),
        cmocka_unit_test_setup(no_shared_write_takes_a_lock_beside_an_exclusive_holder, right_clocks),
        cmocka_unit_test_setup(an_exclusive_client_takes_over_when_all_have_expired, right_clocks),
        cmocka_unit_test_setup(expired_holders_are_dropped_and_the_last_release_frees, right_clocks),
        cmocka_unit_test_setup(an_adopted_holder_gets_a_new_id_and_token_and_keeps_the_rest, right_clocks),
        cmocka_unit_test_setup(an_adoption_is_repeated_if_another_client_joined_meanwhile, right_clocks),
        cmocka_unit_test_setup(the_item_outlives_the_longest_lease, right_clocks),
        cmocka_unit_test_setup(a_renewal_without_a_ttl_keeps_that_of_its_holder, right_clocks),
        cmocka_unit_test_setup(a_grant_whose_answer_shows_a_wrong_clock_is_undone_beside_others,
                               right_clocks),
        cmocka_unit_test_setup(an_observer_judges_each_holder_by_its_own_lease, right_clocks),
        cmocka_unit_test_setup(an_older_belay_sees_a_shared_lock_as_held_until_the_last_release,
                               right_clocks),
        cmocka_unit_test_setup(a_force_by_an_older_belay_ends_all_holders, right_clocks),
        cmocka_unit_test_setup(a_crowd_never_holds_shared_beside_exclusive_and_leaves_nothing, right_clocks),
        cmocka_unit_test_setup(many_keys_are_taken_and_released_in_one_transaction, right_clocks),
        cmocka_unit_test_setup(an_item_that_is_too_large_is_named_in_the_error, right_clocks),
        cmocka_unit_test_setup(only_the_native_layout_keeps_several_holders, right_clocks),
    };
    char home[] = "/tmp/belay-holders-XXXXXX";
    char remove[64];
    int failed;

    if (mkdtemp(home) == NULL) {
        return 1;
    }
    (void)setenv("XDG_STATE_HOME", home, 1);
    failed = cmocka_run_group_tests(tests, start_server, stop_server);
    (void)snprintf(remove, sizeof remove, "rm -rf %s", home);
    return system(remove) == 0 ? failed : 1;
}
