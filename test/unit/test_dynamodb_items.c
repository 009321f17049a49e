/* The content and the cost of items, and items of other programs, on DynamoDB Local. */
#include "test_dynamodb_support.h"

#include "base/text.h"

/* ---- what it costs ------------------------------------------------------------------ */

static uint64_t since(struct belay_store *store)
{
    static uint64_t last;
    uint64_t now = requests_of(store);
    uint64_t n = now - last;

    last = now;
    return n;
}

static void count_stale(void *context, const struct belay_event *event)
{
    *(int *)context += strcmp(event->type, "lock.stale") == 0;
}

/* S4.7: the layout has no place for a note that it was reported. */
static void a_stale_lock_is_reported_once_by_a_process(void **state)
{
    struct belay_store *store = fresh("deployer", "");
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_client_options client_options = BELAY_CLIENT_OPTIONS_INIT;
    struct belay_client *client;
    struct belay_info *info;
    struct belay_lock *lock;
    int n_told = 0;

    (void)state;
    client_options.on_event = count_stale;
    client_options.context = &n_told;
    assert_int_equal(belay_client_open_store(store, &client_options, &client, NULL), BELAY_OK);
    options.ttl_ms = 3600000;
    options.heartbeat_ms = 30000;
    options.defer_heartbeat = true;
    assert_int_equal(belay_lock_acquire(client, "k", &options, &lock, NULL), BELAY_OK);
    for (int i = 1; i <= 2; i++) {
        boot_now_ms += 130000;
        for (int look = 0; look < 3; look++) {
            assert_int_equal(belay_get(client, "k", &info, NULL), BELAY_OK);
            assert_true(info->is_stale);
            belay_info_free(info);
        }
        assert_int_equal(n_told, i);
        assert_int_equal(belay_lock_renew(lock, NULL), BELAY_OK); /* alive again, and stale once more */
    }
    belay_lock_free(lock);
    belay_client_close(client);
}

static void an_uncontended_lock_costs_two_requests_on_every_layout(void **state)
{
    static const char *const writable[] = { "belay",  "chatops",     "resource",
                                            "runvoy", "appregistry", "deployer" };

    (void)state;
    for (size_t i = 0; i < sizeof writable / sizeof writable[0]; i++) {
        struct belay_store *store = fresh(writable[i], "");
        struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
        struct belay_client *client;
        struct belay_lock *lock, *rival;
        struct belay_info *info;

        assert_int_equal(belay_client_open_store(store, NULL, &client, NULL), BELAY_OK);
        options.owner_name = "alice@example.com"; /* runvoy needs one */
        (void)since(store);
        assert_int_equal(belay_lock_acquire(client, "k", &options, &lock, NULL), BELAY_OK);
        assert_int_equal(since(store), 1);
        assert_int_equal(belay_lock_acquire(client, "k", &options, &rival, NULL), BELAY_HELD);
        assert_int_equal(since(store), 1);
        assert_int_equal(belay_get(client, "k", &info, NULL), BELAY_OK);
        belay_info_free(info);
        assert_int_equal(since(store), 1);
        assert_int_equal(belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, NULL), BELAY_OK);
        belay_lock_free(lock);
        assert_int_equal(since(store), 1);
        options.ttl_ms = 20000;
        options.defer_heartbeat = true;
        assert_int_equal(belay_lock_acquire(client, "k", &options, &lock, NULL), BELAY_OK);
        belay_lock_free(lock);
        boot_now_ms += 30000;
        (void)since(store);
        assert_int_equal(belay_lock_acquire(client, "k", &options, &lock, NULL), BELAY_OK); /* expired */
        assert_int_equal(since(store), 2);
        belay_lock_free(lock);
        belay_client_close(client);
    }
}

/* ---- tokens --------------------------------------------------------------------------- */

static uint64_t token_of(struct belay_store *store, const char *key)
{
    struct belay_record record = see(store, key, NULL);
    uint64_t token = record.token;

    belay_record_release(&record);
    return token;
}

/* L2: DynamoDB removes an item long after its lease; the next token starts from the time. */
static void tokens_grow_although_the_item_was_removed(void **state)
{
    struct belay_store *store = fresh("belay", "");
    uint64_t before;

    (void)state;
    assert_int_equal(take_free(store, "k", "one"), BELAY_OK);
    before = token_of(store, "k");
    call(store, "DeleteItem",
         json_pack("{s:s,s:o}", "TableName", ddb_of(store)->params.table, "Key",
                   ddb_item_key(ddb_of(store)->layout, "k")));
    boot_now_ms += 60000 + 24 * 3600000;
    assert_int_equal(take_free(store, "k", "two"), BELAY_OK);
    assert_true(token_of(store, "k") > before);
    store->ops->close(store);
}

static void an_item_may_be_removed_a_day_after_its_lease_and_not_before(void **state)
{
    struct belay_store *store = fresh("belay", "");
    struct ddb_items items;
    const char *key = "k";
    int64_t ttl_s = 0;

    (void)state;
    assert_int_equal(take_free(store, key, "one"), BELAY_OK);
    assert_int_equal(ddb_read_locks(ddb_of(store), &key, 1, &items, NULL), BELAY_OK);
    assert_true(item_int(items.item, "ttl", &ttl_s));
    assert_true(ttl_s * 1000 >= SERVICE_MS + 60000 + INT64_C(24) * 3600000);
    ddb_items_release(&items);
    store->ops->close(store);
}

/* ---- what others write ------------------------------------------------------------------ */

static void check_expiry(struct belay_store *store, const char *item, int64_t expires_ms)
{
    struct belay_record record;

    put_item(store, item);
    record = see(store, "k", NULL);
    assert_true(record.held);
    assert_int_equal(record.expires_ms, expires_ms);
    belay_record_release(&record);
}

/* S1.8, 002: times come as text or as numbers, in any zone. */
static void times_are_read_in_all_forms_that_programs_write(void **state)
{
    struct belay_store *store = fresh("deployer", "");

    (void)state;
#define ITEM(expires)                                                                                        \
    "{\"lockKey\":{\"S\":\"k\"},\"lockId\":{\"S\":\"x\"},\"lockedBy\":{\"S\":\"me\"},\"expiresAt\":" expires \
    "}"
    check_expiry(store, ITEM("{\"N\":\"1705333200\"}"), 1705333200000);
    check_expiry(store, ITEM("{\"S\":\"1705333200\"}"), 1705333200000);
    check_expiry(store, ITEM("{\"N\":\"1705333200123\"}"), 1705333200123);
    check_expiry(store, ITEM("{\"S\":\"2024-01-15T15:40:00Z\"}"), 1705333200000);
    check_expiry(store, ITEM("{\"S\":\"2024-01-15T16:40:00+01:00\"}"), 1705333200000);
    check_expiry(store, ITEM("{\"S\":\"2024-01-15T10:40:00.250-0500\"}"), 1705333200250);
    store->ops->close(store);
}

static void a_lock_without_owner_or_end_is_free_with_a_warning(void **state)
{
    static const char *const items[] = {
        "{\"lockKey\":{\"S\":\"k\"},\"lockId\":{\"S\":\"x\"},\"expiresAt\":{\"N\":\"99999999999\"}}",
        "{\"lockKey\":{\"S\":\"k\"},\"lockId\":{\"S\":\"x\"},\"lockedBy\":{\"S\":\"me\"}}",
    };
    struct belay_store *store = fresh("deployer", "");

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        put_item(store, items[i]);
        warned[0] = '\0';
        assert_false(is_held(store, "k"));
        assert_non_null(strstr(warned, i == 0 ? "has no owner" : "has no end"));
        assert_int_equal(take_free(store, "k", i == 0 ? "one" : "two"), BELAY_OK);
    }
    store->ops->close(store);
}

/* S0.1: what a chat bot holds is not ours to take, and is ended by force only as it was seen. */
static void a_holder_without_an_id_is_known_by_name_and_time(void **state)
{
    struct belay_store *store = fresh("chatops", "");
    struct belay_client *client;
    struct belay_record record;
    char id[BELAY_ID_MAX + 1];

    (void)state;
    put_item(store,
             "{\"lockKey\":{\"S\":\"k\"},\"lockedBy\":{\"S\":\"U1\"},\"status\":{\"S\":\"IN_PROGRESS\"},"
             "\"lockedAt\":{\"S\":\"2024-11-05T14:00:00.000Z\"},\"ttl\":{\"N\":\"99999999999\"}}");
    assert_int_equal(take_free(store, "k", "one"), BELAY_REFUSED);
    record = see(store, "k", NULL);
    (void)snprintf(id, sizeof id, "%s", record.lock_id);
    belay_record_release(&record);
    put_item(store,
             "{\"lockKey\":{\"S\":\"k\"},\"lockedBy\":{\"S\":\"U2\"},\"status\":{\"S\":\"IN_PROGRESS\"},"
             "\"lockedAt\":{\"S\":\"2024-11-05T15:00:00.000Z\"},\"ttl\":{\"N\":\"99999999999\"}}");
    assert_int_equal(belay_client_open_store(store, NULL, &client, NULL), BELAY_OK);
    assert_int_equal(belay_force_release(client, "k", id, "admin", "stuck", NULL, NULL), BELAY_NOT_HOLDER);
    assert_true(is_held(store, "k"));
    record = see(store, "k", NULL);
    assert_int_equal(belay_force_release(client, "k", record.lock_id, "admin", "stuck", NULL, NULL),
                     BELAY_OK);
    belay_record_release(&record);
    assert_false(is_held(store, "k"));
    belay_client_close(client);
}

static void attributes_that_belay_does_not_know_are_left_alone(void **state)
{
    struct belay_store *store = fresh("chatops", "");
    struct ddb_items items;
    const char *key = "k";

    (void)state;
    put_item(store, "{\"lockKey\":{\"S\":\"k\"},\"status\":{\"S\":\"COMPLETED\"},\"lockedBy\":{\"S\":\"U1\"},"
                    "\"ttl\":{\"N\":\"5\"},\"slackThread\":{\"S\":\"t-1\"},\"completedAt\":{\"S\":\"x\"}}");
    assert_int_equal(take_free(store, key, "one"), BELAY_OK);
    assert_int_equal(ddb_read_locks(ddb_of(store), &key, 1, &items, NULL), BELAY_OK);
    assert_string_equal(item_text(items.item, "slackThread"), "t-1");
    assert_null(item_text(items.item, "completedAt"));
    ddb_items_release(&items);
    store->ops->close(store);
}

/* ---- what belay writes ------------------------------------------------------------------- */

static void check_item(const char *layout, const char *key, const char *expected)
{
    struct belay_store *store = fresh(layout, "");
    struct belay_meta metadata[] = { { "user", "alice" } };
    struct belay_record values = { .lock_id = "id-1",
                                   .owner = "owner",
                                   .owner_name = "name",
                                   .ttl_ms = 60000,
                                   .metadata = metadata,
                                   .n_metadata = 1 };
    struct belay_write write = {
        .key = key, .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER, .values = &values
    };
    struct belay_commit done = { 0 };
    struct ddb_items items;
    json_t *wanted = json_loads(expected, 0, NULL);
    char *text;

    assert_non_null(wanted);
    boot_now_ms = 3000000000;
    assert_int_equal(
        store->ops->commit(store, &(struct belay_batch){ .writes = &write, .n_writes = 1 }, &done, NULL),
        BELAY_OK);
    belay_commit_release(&done);
    assert_int_equal(ddb_read_locks(ddb_of(store), &key, 1, &items, NULL), BELAY_OK);
    text = json_dumps(items.item, JSON_SORT_KEYS);
    if (!json_equal(items.item, wanted)) {
        fail_msg("%s: %s", layout, text);
    }
    free(text);
    json_decref(wanted);
    ddb_items_release(&items);
    store->ops->close(store);
}

/* S0.3, S1.1, S2.2, S3.1, S4.4: names and types to the letter. 1733816000 is 2024-12-10T07:33:20Z. */
static void the_items_of_the_five_documents_are_written_to_the_letter(void **state)
{
    (void)state;
    check_item(
        "chatops", "build-my-app-prod",
        "{\"lockKey\":{\"S\":\"build-my-app-prod\"},\"lockedBy\":{\"S\":\"owner\"},"
        "\"lockedByName\":{\"S\":\"name\"},\"lockedAt\":{\"S\":\"2024-12-10T07:33:20.000Z\"},"
        "\"status\":{\"S\":\"IN_PROGRESS\"},\"ttl\":{\"N\":\"1733816060\"},"
        "\"component\":{\"S\":\"my-app\"},\"environment\":{\"S\":\"prod\"},\"lockId\":{\"S\":\"id-1\"}}");
    check_item("resource", "graph",
               "{\"PK\":{\"S\":\"LOCK#graph\"},\"SK\":{\"S\":\"LOCK\"},\"LockID\":{\"S\":\"id-1\"},"
               "\"Owner\":{\"S\":\"owner\"},\"AcquiredAt\":{\"S\":\"2024-12-10T07:33:20Z\"},"
               "\"ExpiresAt\":{\"S\":\"2024-12-10T07:34:20Z\"},\"TTL\":{\"N\":\"1733816060\"}}");
    check_item("runvoy", "terraform-prod",
               "{\"lock_name\":{\"S\":\"terraform-prod\"},\"lock_id\":{\"S\":\"id-1\"},"
               "\"execution_id\":{\"S\":\"owner\"},\"user_email\":{\"S\":\"name\"},"
               "\"acquired_at\":{\"S\":\"2024-12-10T07:33:20Z\"},\"expires_at\":{\"N\":\"1733816060\"},"
               "\"status\":{\"S\":\"active\"},\"metadata\":{\"M\":{\"user\":{\"S\":\"alice\"}}}}");
    check_item("appregistry", "i-0abc",
               "{\"app_name\":{\"S\":\"LOCK#DB#i-0abc\"},\"owner_id\":{\"S\":\"owner\"},"
               "\"ttl\":{\"N\":\"1733816060\"},\"created_at\":{\"N\":\"1733816000\"},"
               "\"lock_type\":{\"S\":\"database\"},\"db_identifier\":{\"S\":\"i-0abc\"},"
               "\"lock_id\":{\"S\":\"id-1\"}}");
    check_item("deployer", "stack:a:env:b",
               "{\"lockKey\":{\"S\":\"stack:a:env:b\"},\"lockId\":{\"S\":\"id-1\"},"
               "\"lockedBy\":{\"S\":\"owner\"},\"lockedAt\":{\"N\":\"1733816000\"},"
               "\"expiresAt\":{\"N\":\"1733816060\"},\"lastHeartbeat\":{\"N\":\"1733816000\"},"
               "\"metadata\":{\"M\":{\"user\":{\"S\":\"alice\"}}}}");
}

/* S2.4: the document's program takes items that are absent or have expires_at < now, and checks nothing else. */
static void an_execution_can_take_a_lock_that_belay_released_at_once(void **state)
{
    struct belay_store *store = fresh("runvoy", "");
    struct belay_record values = { .outcome = BELAY_OUTCOME_COMPLETED };
    struct belay_write release = { .key = "k",
                                   .condition = BELAY_IF_HELD_BY,
                                   .lock_id = "one",
                                   .set = BELAY_SET_RELEASED,
                                   .values = &values };
    struct belay_commit done = { 0 };
    struct ddb_items items;
    const char *key = "k";
    int64_t expires_s = 0;

    (void)state;
    assert_int_equal(take_free(store, "k", "one"), BELAY_OK);
    assert_int_equal(
        store->ops->commit(store, &(struct belay_batch){ .writes = &release, .n_writes = 1 }, &done, NULL),
        BELAY_OK);
    belay_commit_release(&done);
    assert_int_equal(ddb_read_locks(ddb_of(store), &key, 1, &items, NULL), BELAY_OK);
    assert_true(item_int(items.item, "expires_at", &expires_s));
    assert_true(expires_s < SERVICE_MS / 1000);
    assert_string_equal(item_text(items.item, "status"), "released");
    ddb_items_release(&items);
    store->ops->close(store);
}

/* S4.5: an intent under a foreign key would be a ghost that the document's program waits for for ever. */
static void intents_and_tickets_never_stand_under_a_foreign_key(void **state)
{
    struct belay_store *store = fresh("deployer", "");
    struct belay_put_intent intent = { .lock_id = "below",
                                       .key = "stack:a:env:b:service:c",
                                       .ttl_ms = 60000 };
    struct belay_put_ticket ticket = {
        .lock_id = "waiter", .key = "k", .owner = "o", .owner_name = "n", .since_unix_ms = 1, .ttl_ms = 60000
    };
    struct belay_write writes[] = { { .key = "stack:a:env:b",
                                      .condition = BELAY_IF_FREE_FOR_INTENT,
                                      .put_intents = &intent,
                                      .n_put_intents = 1 },
                                    { .key = "k", .condition = BELAY_IF_ABSENT, .put_ticket = &ticket } };
    struct belay_commit done = { 0 };

    (void)state;
    assert_int_equal(
        store->ops->commit(store, &(struct belay_batch){ .writes = writes, .n_writes = 2 }, &done, NULL),
        BELAY_OK);
    belay_commit_release(&done);
    for (size_t i = 0; i < 2; i++) {
        struct ddb_items items;

        assert_int_equal(ddb_read_locks(ddb_of(store), &writes[i].key, 1, &items, NULL), BELAY_OK);
        assert_null(items.item);
        assert_non_null(items.queue);
        assert_true(text_has_prefix(item_text(items.queue, "lockKey"), "belay-line#"));
        ddb_items_release(&items);
    }
    assert_int_equal(take_free(store, "k", "one"), BELAY_REFUSED);
    store->ops->close(store);
}

/* L6: such an item lacks the length of the lease; its holder knows it. */
static void a_renewed_lease_is_as_long_as_it_was_asked_for(void **state)
{
    struct belay_store *store = fresh("chatops", "");
    struct belay_record values = { .ttl_ms = 60000 };
    struct belay_write renew = {
        .key = "k", .condition = BELAY_IF_LIVE_BY, .lock_id = "one", .set = BELAY_SET_LEASE, .values = &values
    };
    struct belay_commit done = { 0 };

    (void)state;
    assert_int_equal(take_free(store, "k", "one"), BELAY_OK);
    boot_now_ms += 50000;
    assert_int_equal(
        store->ops->commit(store, &(struct belay_batch){ .writes = &renew, .n_writes = 1 }, &done, NULL),
        BELAY_OK);
    assert_int_equal(done.records[0].ttl_ms, 60000);
    assert_in_range(done.records[0].expires_ms, SERVICE_MS + 60000, SERVICE_MS + 60999);
    belay_commit_release(&done);
    store->ops->close(store);
}

/* ---- looking and forcing only --------------------------------------------------------------- */

static void the_locks_of_other_tools_are_shown_and_ended_and_not_taken(void **state)
{
    static const struct {
        const char *layout, *item, *owner;
    } tools[] = {
        { "terraform",
          "{\"LockID\":{\"S\":\"k\"},\"Info\":{\"S\":\"{\\\"ID\\\":\\\"u-1\\\",\\\"Who\\\":\\\"ann@host\\\","
          "\\\"Created\\\":\\\"2024-11-05T14:00:00.5Z\\\",\\\"Operation\\\":\\\"OperationTypeApply\\\"}\"}}",
          "ann@host" },
        { "awslabs",
          "{\"key\":{\"S\":\"k\"},\"ownerName\":{\"S\":\"host-1\"},\"leaseDuration\":{\"S\":\"20000\"},"
          "\"recordVersionNumber\":{\"S\":\"r\"}}",
          "host-1" },
        { "dynamolock",
          "{\"key\":{\"S\":\"k\"},\"ownerName\":{\"S\":\"host-2\"},\"leaseDuration\":{\"S\":\"20s\"},"
          "\"recordVersionNumber\":{\"S\":\"r\"}}",
          "host-2" },
    };

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct belay_store *store = fresh(tools[i].layout, "");
        struct belay_client *client;
        struct belay_record record;

        put_item(store, tools[i].item);
        record = see(store, "k", NULL);
        assert_true(record.held);
        assert_string_equal(record.owner, tools[i].owner);
        assert_true(i == 0 || record.ttl_ms == 20000);
        assert_int_equal(take_free(store, "k", "one"), BELAY_NOT_PERMITTED);
        assert_int_equal(take_free(store, "other", "one"), BELAY_NOT_PERMITTED);
        assert_int_equal(belay_client_open_store(store, NULL, &client, NULL), BELAY_OK);
        assert_int_equal(belay_force_release(client, "k", record.lock_id, "me", "stuck", NULL, NULL),
                         BELAY_OK);
        belay_record_release(&record);
        assert_false(is_held(store, "k"));
        belay_client_close(client);
    }
}

static bool add_key(void *context, const struct belay_record *record, int64_t now_ms)
{
    (void)now_ms;
    (void)strncat(strncat(context, record->key, 20), " ", 2);
    return true;
}

static void items_that_are_not_locks_are_not_listed(void **state)
{
    struct belay_store *store = fresh("appregistry", "");
    char keys[64] = "";

    (void)state;
    put_item(store, "{\"app_name\":{\"S\":\"shop\"},\"hostname\":{\"S\":\"shop.example\"}}");
    assert_int_equal(take_free(store, "i-1", "one"), BELAY_OK);
    assert_int_equal(store->ops->scan(store, &(struct belay_scan){ 0 }, add_key, keys, NULL), BELAY_OK);
    assert_string_equal(keys, "i-1 ");
    store->ops->close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_uncontended_lock_costs_two_requests_on_every_layout),
        cmocka_unit_test(a_stale_lock_is_reported_once_by_a_process),
        cmocka_unit_test(tokens_grow_although_the_item_was_removed),
        cmocka_unit_test(an_item_may_be_removed_a_day_after_its_lease_and_not_before),
        cmocka_unit_test(times_are_read_in_all_forms_that_programs_write),
        cmocka_unit_test(a_lock_without_owner_or_end_is_free_with_a_warning),
        cmocka_unit_test(a_holder_without_an_id_is_known_by_name_and_time),
        cmocka_unit_test(attributes_that_belay_does_not_know_are_left_alone),
        cmocka_unit_test(the_items_of_the_five_documents_are_written_to_the_letter),
        cmocka_unit_test(an_execution_can_take_a_lock_that_belay_released_at_once),
        cmocka_unit_test(intents_and_tickets_never_stand_under_a_foreign_key),
        cmocka_unit_test(the_locks_of_other_tools_are_shown_and_ended_and_not_taken),
        cmocka_unit_test(a_renewed_lease_is_as_long_as_it_was_asked_for),
        cmocka_unit_test(items_that_are_not_locks_are_not_listed),
    };

    return cmocka_run_group_tests(tests, start_server, stop_server);
}
