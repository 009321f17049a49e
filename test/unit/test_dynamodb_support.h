/* Shared by the tests of the DynamoDB store: a server, tables, separate clocks. */
#ifndef UNIT_TEST_DYNAMODB_SUPPORT_H
#define UNIT_TEST_DYNAMODB_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/dynamodb/dynamodb_internal.h"
#include "support/server.h"

static struct server server;
static int64_t boot_now_ms = 1000000; /* the one time there is; wall and Date differ from it by */
static int64_t wall_ahead_ms;         /* how wrong this machine's wall clock is */
static int64_t date_ahead_ms;         /* how far the service's clock is from it */
static int64_t date_steps_ms;         /* by how much that grows after the next answer */
static char warned[700];
static void (*after_request)(const char *operation); /* called after each request; NULL: not */

#define SERVICE_MS (INT64_C(1730816000000) + boot_now_ms)

static int64_t test_boot_ms(void *context)
{
    (void)context;
    return boot_now_ms;
}

static int64_t test_wall_ms(void *context)
{
    (void)context;
    return SERVICE_MS + wall_ahead_ms;
}

static int64_t test_date_ms(void *context)
{
    int64_t now_ms = SERVICE_MS + date_ahead_ms;

    (void)context;
    if (date_steps_ms != 0) { /* written by tests with one thread only */
        date_ahead_ms += date_steps_ms;
        date_steps_ms = 0;
    }
    return now_ms;
}

static void on_warning(void *context, const char *text)
{
    (void)context;
    (void)snprintf(warned, sizeof warned, "%s", text);
}

static void on_request(void *context, const char *operation)
{
    (void)context;
    if (after_request != NULL) {
        after_request(operation);
    }
}

static struct belay_store *open_with(const char *params)
{
    static const struct dynamodb_hooks hooks = { .boot_ms = test_boot_ms,
                                                 .unix_ms = test_wall_ms,
                                                 .date_ms = test_date_ms,
                                                 .on_request = on_request,
                                                 .timeout_factor = 10 }; /* the machine may be busy */
    struct dynamodb_options options = { .hooks = &hooks, .on_warning = on_warning };
    struct belay_store *store = NULL;
    struct belay_error err = BELAY_ERROR_INIT;
    char text[300];
    char *url = NULL;

    (void)snprintf(text, sizeof text, "%s&region=us-east-1&endpoint=http://127.0.0.1:%d", params,
                   server.port);
    if (dynamodb_store_open(text, &options, &store, &url, &err) != BELAY_OK) {
        fail_msg("%s", err.text);
    }
    free(url);
    return store;
}

/* How many requests the store has sent. */
static inline uint64_t requests_of(struct belay_store *store)
{
    return atomic_load(&ddb_of(store)->requests);
}

static void call(struct belay_store *store, const char *operation, json_t *request)
{
    struct ddb_answer answer;
    struct belay_error err = BELAY_ERROR_INIT;

    if (ddb_call(ddb_of(store), operation, request, &answer, &err) != BELAY_OK) {
        fail_msg("%s: %s", operation, err.text);
    }
    ddb_answer_release(&answer);
}

/* A fresh table of that layout, and a store on it. `more` begins with '&' or is empty. */
static struct belay_store *fresh(const char *layout, const char *more)
{
    static int n;
    struct belay_store *store;
    const struct layout *shape;
    json_t *schema = json_array(), *attributes = json_array();
    char params[200];

    (void)snprintf(params, sizeof params, "table-%d?layout=%s%s", ++n, layout, more);
    store = open_with(params);
    shape = ddb_of(store)->layout;
    for (size_t i = 0; i < shape->n_keys; i++) {
        json_array_append_new(schema, json_pack("{s:s,s:s}", "AttributeName", shape->keys[i].name, "KeyType",
                                                i == 0 ? "HASH" : "RANGE"));
        json_array_append_new(
            attributes, json_pack("{s:s,s:s}", "AttributeName", shape->keys[i].name, "AttributeType", "S"));
    }
    call(store, "CreateTable",
         json_pack("{s:s,s:o,s:o,s:s}", "TableName", ddb_of(store)->params.table, "KeySchema", schema,
                   "AttributeDefinitions", attributes, "BillingMode", "PAY_PER_REQUEST"));
    return store;
}

/* Another handle on the same table, as on another machine. */
__attribute__((unused)) static struct belay_store *another(struct belay_store *store, const char *more)
{
    char params[200];

    (void)snprintf(params, sizeof params, "%s?layout=%s%s", ddb_of(store)->params.table,
                   ddb_of(store)->layout->name, more);
    return open_with(params);
}

/* An item of another program, as JSON of attribute values. */
__attribute__((unused)) static void put_item(struct belay_store *store, const char *item)
{
    call(store, "PutItem",
         json_pack("{s:s,s:o}", "TableName", ddb_of(store)->params.table, "Item", json_loads(item, 0, NULL)));
}

static struct belay_record see(struct belay_store *store, const char *key, int64_t *out_now_ms)
{
    struct belay_record record = { 0 };
    int64_t now_ms = 0;

    assert_int_equal(store->ops->get(store, &key, 1, &record, &now_ms, NULL), BELAY_OK);
    if (out_now_ms != NULL) {
        *out_now_ms = now_ms;
    }
    return record;
}

static bool is_held(struct belay_store *store, const char *key)
{
    struct belay_record record = see(store, key, NULL);
    bool held = record.held;

    belay_record_release(&record);
    return held;
}

static enum belay_code take(struct belay_store *store, const char *key, const char *id, int64_t ttl_ms,
                            enum belay_condition condition, uint64_t revision, struct belay_error *err)
{
    struct belay_record values = {
        .lock_id = (char *)id, .owner = (char *)id, .owner_name = "somebody", .ttl_ms = ttl_ms
    };
    struct belay_write write = {
        .key = key, .condition = condition, .revision = revision, .set = BELAY_SET_HOLDER, .values = &values
    };
    struct belay_batch batch = { .writes = &write, .n_writes = 1 };
    struct belay_commit done = { 0 };
    enum belay_code code = store->ops->commit(store, &batch, &done, err);

    belay_commit_release(&done);
    return code;
}

static enum belay_code take_free(struct belay_store *store, const char *key, const char *id)
{
    return take(store, key, id, 60000, BELAY_IF_FREE, 0, NULL);
}

static int start_server(void **state)
{
    (void)state;
    (void)setenv("AWS_ACCESS_KEY_ID", "test", 1);
    (void)setenv("AWS_SECRET_ACCESS_KEY", "test", 1);
    (void)setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    return server_start(&server, BELAY_SOURCE_DIR "/tools/dynamodb-local", NULL) ? 0 : -1;
}

static int stop_server(void **state)
{
    (void)state;
    server_stop(&server);
    return 0;
}

#endif
