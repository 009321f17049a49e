/* Requests to the service, and consistent reads of items. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "store/dynamodb/dynamodb_internal.h"

enum { READ_AT_ONCE = 100, READ_TRIES = 8 };

/*
 * DynamoDB answers within milliseconds. A request without an answer is given up soon: a client
 * waits for a lock, or has a lease to renew. A page of a scan is a megabyte, and creating a
 * table takes longer.
 */
enum { READ_MS = 3000, WRITE_MS = 4000, OTHER_MS = 10000, ADMIN_MS = 5000, ADMIN_ATTEMPTS = 2 };

#define ASK_DATE "DescribeEndpoints" /* has no arguments, touches no table, and changes nothing */

void ddb_answer_release(struct ddb_answer *answer)
{
    json_decref(answer->body);
    free(answer->error_code);
    free(answer->error_message);
    memset(answer, 0, sizeof *answer);
}

static bool only_reads(const char *operation)
{
    return strcmp(operation, "GetItem") == 0 || strcmp(operation, "BatchGetItem") == 0 ||
           strcmp(operation, "Scan") == 0 || text_has_prefix(operation, "Describe");
}

/* AWS, DynamoDB Local and dynalite use different words. */
static bool says_other_keys(const char *message)
{
    return message != NULL &&
           (strstr(message, "key element") != NULL || strstr(message, "required keys") != NULL ||
            strstr(message, "number of conditions on the keys") != NULL);
}

bool ddb_says_too_large(const char *message)
{
    return message != NULL && strstr(message, "Item size") != NULL && strstr(message, "maximum") != NULL;
}

/* Advice that aws_call() cannot give. */
static enum belay_code add_table_advice(const struct ddb_store *store, enum belay_code code,
                                        const struct ddb_answer *answer, struct belay_error *err)
{
    const char *name = text_or_empty(answer->error_code);

    if (strcmp(name, "ResourceNotFoundException") == 0) {
        const char *region = aws_region(store->aws);

        return error_set(err, BELAY_CONFIG,
                         "there is no DynamoDB table '%s' in region %s: make it with 'belay table create', "
                         "or check the name and the region",
                         store->params.table, region == NULL ? "(none)" : region);
    }
    if (strcmp(name, "UnknownOperationException") == 0) {
        return error_set(err, BELAY_CONFIG,
                         "this server does not have all of DynamoDB: it does not know an operation that "
                         "locks of several keys or other programs' layouts need");
    }
    if (strcmp(name, "ValidationException") == 0 && says_other_keys(answer->error_message)) {
        return error_set(err, BELAY_CONFIG,
                         "the table '%s' has other keys than the layout '%s' needs: choose its layout with "
                         "?layout=, or make a table with 'belay table create'",
                         store->params.table, store->layout->name);
    }
    if (strcmp(name, "ValidationException") == 0 && ddb_says_too_large(answer->error_message)) {
        return error_set(err, BELAY_INVALID, "dynamodb refused a lock: " DDB_TOO_LARGE);
    }
    if (code == BELAY_UNREACHABLE && answer->is_missing && err != NULL) {
        size_t len = strlen(err->text);

        (void)snprintf(err->text + len, sizeof err->text - len,
                       "; check the network, the region, and the endpoint if one is set");
    }
    return code;
}

static void count_requests(struct ddb_store *store, const char *operation, int attempts)
{
    (void)atomic_fetch_add(&store->requests, (uint64_t)attempts);
    for (int i = 0; store->hooks.on_request != NULL && i < attempts; i++) {
        store->hooks.on_request(store->hooks.context, operation);
    }
}

/* For one attempt; twice that for all attempts. */
static void set_timeouts(const struct ddb_store *store, struct aws_request *request, const char *operation,
                         int64_t timeout_ms)
{
    bool is_read = strcmp(operation, "GetItem") == 0 || strcmp(operation, "BatchGetItem") == 0 ||
                   strcmp(operation, ASK_DATE) == 0;
    bool is_write = strcmp(operation, "UpdateItem") == 0 || strcmp(operation, "DeleteItem") == 0 ||
                    strcmp(operation, "PutItem") == 0 || strcmp(operation, "TransactWriteItems") == 0;
    int64_t least_ms = is_read ? READ_MS : is_write ? WRITE_MS : OTHER_MS;
    int64_t most_ms;

    least_ms *= store->hooks.timeout_factor > 0 ? store->hooks.timeout_factor : 1;
    most_ms = 2 * least_ms;

    if (timeout_ms > 0 && timeout_ms < most_ms) {
        most_ms = timeout_ms;
        least_ms = timeout_ms < least_ms ? timeout_ms : least_ms;
    }
    request->timeout_ms = least_ms;
    request->deadline_mono_ms = platform_mono_ms(platform_system()) + most_ms;
}

/*
 * The duration of the attempt that was answered. On a test clock, which stands still
 * meanwhile, it is 0. The wall clock may be set between its two readings; the boot clock
 * measured all attempts, which is at most too long.
 */
static int64_t spent_ms(const struct ddb_store *store, const struct aws_response *response, int64_t began_ms)
{
    int64_t all_ms = ddb_boot_ms(store) - began_ms;
    int64_t last_ms = response->received_unix_ms - response->sent_unix_ms;

    if (store->hooks.boot_ms != NULL) {
        return 0;
    }
    return last_ms < 0 || last_ms > all_ms ? all_ms : last_ms;
}

static enum belay_code send_operation(struct ddb_store *store, const char *operation, const char *body,
                                      int64_t timeout_ms, struct aws_response *response,
                                      struct belay_error *err)
{
    bool is_signed = strcmp(operation, ASK_DATE) != 0;
    int64_t began_ms = ddb_boot_ms(store);
    char target[64];
    const struct http_client_header headers[] = { { "content-type", "application/x-amz-json-1.0" },
                                                  { "x-amz-target", target } };
    struct aws_request request = { .service = AWS_DYNAMODB,
                                   .operation = operation,
                                   .headers = headers,
                                   .n_headers = sizeof headers / sizeof headers[0],
                                   .body = body,
                                   .body_len = strlen(body),
                                   .reads_only = only_reads(operation),
                                   .retry = AWS_RETRY_STANDARD };
    enum belay_code code;

    (void)snprintf(target, sizeof target, "DynamoDB_20120810.%s", operation);
    if (store->is_for_admin) {
        request.max_attempts = ADMIN_ATTEMPTS;
        request.timeout_ms = ADMIN_MS;
    } else {
        /* A transaction has a token, so that a retry is applied once; other writes have not. */
        if (!request.reads_only && strcmp(operation, "TransactWriteItems") != 0) {
            request.retry = AWS_RETRY_SAFE;
        }
        set_timeouts(store, &request, operation, timeout_ms);
    }
    code = is_signed ? aws_call(store->aws, &request, response, err)
                     : aws_call_as(store->aws, NULL, &request, response, err);
    count_requests(store, operation, response->attempts);
    if (response->http.status != 0) {
        ddb_clock_set_date(store, response->http.date_unix_ms,
                           ddb_boot_ms(store) - spent_ms(store, response, began_ms));
    }
    return code;
}

enum belay_code ddb_ask_date(struct ddb_store *store, int64_t timeout_ms, struct belay_error *err)
{
    struct aws_response response = { 0 };
    struct belay_error why = BELAY_ERROR_INIT;
    enum belay_code code = send_operation(store, ASK_DATE, "{}", timeout_ms, &response, &why);
    const char *endpoint = aws_endpoint(store->aws, AWS_DYNAMODB);

    if (response.http.status == 0) {
        code = add_table_advice(store, code, &(struct ddb_answer){ .is_missing = true }, &why);
        (void)error_set(err, code, "%s", why.text);
    } else if (!ddb_clock_has_date(store) && !store->params.observe) {
        code = error_set(err, BELAY_CONFIG,
                         "the answers of %s have no Date, so that no clock can be checked by them: does a "
                         "proxy remove it? (?observe=1 in the store's URL needs no clock)",
                         endpoint == NULL ? "DynamoDB" : endpoint);
    } else {
        code = BELAY_OK; /* the refusal is expected */
    }
    belay_error_release(&why);
    aws_response_release(&response);
    return code;
}

enum belay_code ddb_call(struct ddb_store *store, const char *operation, json_t *request,
                         struct ddb_answer *out, struct belay_error *err)
{
    return ddb_call_within(store, operation, request, 0, out, err);
}

enum belay_code ddb_send(struct ddb_store *store, const char *operation, json_t *request, int64_t timeout_ms,
                         struct ddb_answer *out, struct belay_error *err)
{
    struct aws_response response = { 0 };
    char *body = request == NULL ? NULL : json_dumps(request, JSON_COMPACT);
    enum belay_code code;

    memset(out, 0, sizeof *out);
    json_decref(request);
    if (body == NULL) {
        return error_no_memory(err);
    }
    code = send_operation(store, operation, body, timeout_ms, &response, err);
    free(body);
    if (response.http.body != NULL) {
        out->body = json_loadb(response.http.body, response.http.body_len, 0, NULL);
    }
    out->is_missing = response.http.status == 0;
    out->error_code = response.error_code;
    out->error_message = response.error_message;
    response.error_code = response.error_message = NULL; /* passed to the caller */
    aws_response_release(&response);
    return code;
}

enum belay_code ddb_call_within(struct ddb_store *store, const char *operation, json_t *request,
                                int64_t timeout_ms, struct ddb_answer *out, struct belay_error *err)
{
    enum belay_code code = ddb_send(store, operation, request, timeout_ms, out, err);

    if (code == BELAY_OK && out->body == NULL) {
        return error_set(err, only_reads(operation) ? BELAY_UNREACHABLE : BELAY_UNKNOWN,
                         "dynamodb answered %s with something that is no JSON", operation);
    }
    return code == BELAY_OK ? BELAY_OK : add_table_advice(store, code, out, err);
}

/* ---- keys ----------------------------------------------------------------- */

static json_t *make_item_key(const struct layout *layout, const char *key, bool queue)
{
    json_t *object = json_object();

    key = layout_short_key(layout, key);
    for (size_t i = 0; object != NULL && i < layout->n_keys; i++) {
        const struct layout_key *part = &layout->keys[i];
        struct buf text = BUF_INIT(4096);

        if (queue && i == 0) {
            buf_addf(&text, "%s%s", layout->queue_prefix, key);
        } else {
            buf_addf(&text, "%s%s%s", part->before, part->has_key ? key : "",
                     part->has_key ? part->after : "");
        }
        if (text.failed || json_object_set_new(object, part->name, av_text(text.data)) != 0) {
            json_decref(object);
            object = NULL;
        }
        buf_release(&text);
    }
    return object;
}

json_t *ddb_item_key(const struct layout *layout, const char *key)
{
    return make_item_key(layout, key, false);
}

json_t *ddb_queue_key(const struct layout *layout, const char *key)
{
    return make_item_key(layout, key, true);
}

json_t *ddb_fence_key(const struct ddb_store *store, const char *key)
{
    struct buf text = BUF_INIT(4096);
    json_t *object;

    buf_addf(&text, "%s#%s", store->params.table, layout_short_key(store->layout, key));
    object = text.failed ? NULL : json_pack("{s:o}", FENCE_KEY, av_text(text.data));
    buf_release(&text);
    return object;
}

/* ---- reading --------------------------------------------------------------- */

void ddb_places_release(struct ddb_place *places, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        json_decref(places[i].key);
        json_decref(places[i].item);
    }
}

static enum belay_code read_place(struct ddb_store *store, struct ddb_place *place, struct belay_error *err)
{
    json_t *request =
        json_pack("{s:s,s:O,s:b}", "TableName", place->table, "Key", place->key, "ConsistentRead", 1);
    struct ddb_answer answer;
    enum belay_code code = ddb_call(store, "GetItem", request, &answer, err);

    if (code == BELAY_OK) {
        place->item = json_incref(json_object_get(answer.body, "Item"));
    }
    ddb_answer_release(&answer);
    return code;
}

static bool has_key(const json_t *item, const json_t *key)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)key, name, value)
    {
        if (!json_equal(value, json_object_get(item, name))) {
            return false;
        }
    }
    return true;
}

static void take_items(const json_t *tables, struct ddb_place *places, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t at;
        json_t *item;

        json_array_foreach(json_object_get(tables, places[i].table), at, item)
        {
            if (has_key(item, places[i].key)) {
                json_decref(places[i].item);
                places[i].item = json_incref(item);
            }
        }
    }
}

/* The keys by table, without duplicates: the service refuses those. NULL: no memory. */
static json_t *keys_by_table(const struct ddb_place *places, size_t n)
{
    json_t *tables = json_object();

    for (size_t i = 0; tables != NULL && i < n; i++) {
        json_t *table = json_object_get(tables, places[i].table);
        json_t *keys = json_object_get(table, "Keys");
        bool twice = false;

        for (size_t j = 0; j < i; j++) {
            twice = twice || (strcmp(places[i].table, places[j].table) == 0 &&
                              json_equal(places[i].key, places[j].key));
        }
        if (table == NULL) {
            keys = json_array();
            table = json_pack("{s:o,s:b}", "Keys", keys, "ConsistentRead", 1);
            (void)json_object_set_new(tables, places[i].table, table);
        }
        if (!twice && json_array_append(keys, places[i].key) != 0) {
            json_decref(tables);
            tables = NULL;
        }
    }
    return tables;
}

static enum belay_code read_places(struct ddb_store *store, struct ddb_place *places, size_t n,
                                   struct belay_error *err)
{
    json_t *left = keys_by_table(places, n);
    enum belay_code code = left == NULL ? error_no_memory(err) : BELAY_OK;

    for (int tries = 0; code == BELAY_OK && json_object_size(left) > 0; tries++) {
        struct ddb_answer answer = { 0 };

        if (tries == READ_TRIES) {
            code = error_set(err, BELAY_UNREACHABLE, "dynamodb does not answer for all keys asked for");
            break;
        }
        code = ddb_call(store, "BatchGetItem", json_pack("{s:o}", "RequestItems", left), &answer, err);
        left = NULL;
        if (code == BELAY_OK) {
            take_items(json_object_get(answer.body, "Responses"), places, n);
            left = json_incref(json_object_get(answer.body, "UnprocessedKeys"));
        }
        ddb_answer_release(&answer);
    }
    json_decref(left);
    return code;
}

enum belay_code ddb_read(struct ddb_store *store, struct ddb_place *places, size_t n, struct belay_error *err)
{
    enum belay_code code = BELAY_OK;

    for (size_t i = 0; i < n; i++) {
        if (places[i].key == NULL) {
            return error_no_memory(err);
        }
    }
    if (n == 1) {
        return read_place(store, places, err);
    }
    for (size_t i = 0; code == BELAY_OK && i < n; i += READ_AT_ONCE) {
        code = read_places(store, places + i, n - i < READ_AT_ONCE ? n - i : READ_AT_ONCE, err);
    }
    return code;
}
