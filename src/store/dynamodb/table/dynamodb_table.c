#include "store/dynamodb/dynamodb_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/text.h"
#include "store/dynamodb/table/dynamodb_table_internal.h"

/* ---- what it should be ------------------------------------------------------ */

/* In most layouts of other programs, one attribute is the expiry and the time to live. */
static const char *ttl_attribute_of(const struct layout *layout)
{
    if (layout_name_of(layout, FIELD_TTL) != NULL) {
        return layout_name_of(layout, FIELD_TTL);
    }
    return layout->fields[FIELD_EXPIRES].format == FORMAT_SECONDS ? layout_name_of(layout, FIELD_EXPIRES)
                                                                  : NULL;
}

void table_spec_of_layout(const struct ddb_store *store, struct table_spec *out_spec)
{
    const struct layout *layout = store->layout;

    *out_spec = (struct table_spec){ .table = store->params.table,
                                     .layout = layout->name,
                                     .n_keys = layout->n_keys,
                                     .ttl = ttl_attribute_of(layout) };
    for (size_t i = 0; i < layout->n_keys; i++) {
        out_spec->keys[i] = layout->keys[i].name;
    }
}

bool table_spec_of_fence(const struct ddb_store *store, struct table_spec *out_spec)
{
    /* Counters are never removed, so the table has no time to live. */
    *out_spec = (struct table_spec){ .table = store->params.fence_table, .keys = { FENCE_KEY }, .n_keys = 1 };
    return out_spec->table != NULL;
}

static bool add_key_text(struct buf *text, size_t i, const char *name, const char *type)
{
    buf_addf(text, "%s%s (%s, %s)", i == 0 ? "" : ", ", name, type, i == 0 ? "HASH" : "RANGE");
    return !text->failed;
}

static char *keys_expected(const struct table_spec *spec)
{
    struct buf text = BUF_INIT(2048);

    for (size_t i = 0; i < spec->n_keys; i++) {
        (void)add_key_text(&text, i, spec->keys[i], "S");
    }
    return buf_take(&text);
}

/* ---- asking ------------------------------------------------------------------ */

enum belay_code table_store_open(const char *table_and_params, const struct dynamodb_options *options,
                                 struct ddb_store **out_store, struct belay_error *err)
{
    struct belay_store *store = NULL;
    char *url = NULL;
    enum belay_code code = dynamodb_store_open(table_and_params, options, &store, &url, err);

    if (code == BELAY_OK) {
        *out_store = ddb_of(store);
        (*out_store)->is_for_admin = true;
        free(url);
    }
    return code;
}

void table_store_close(struct ddb_store *store)
{
    if (store != NULL) {
        store->base.ops->close(&store->base);
    }
}

enum belay_code table_call(struct ddb_store *store, const char *operation, json_t *request,
                           struct ddb_answer *out, struct belay_error *err)
{
    enum belay_code code = ddb_send(store, operation, request, 0, out, err);

    if (code == BELAY_NOT_FOUND && strcmp(out->error_code, "ResourceNotFoundException") != 0) {
        code = error_set(err, BELAY_CONFIG, "what answered %s is no DynamoDB (%s): check the endpoint",
                         operation, out->error_code);
    } else if (code == BELAY_OK && out->body == NULL) {
        code =
            error_set(err, BELAY_UNREACHABLE, "what answered %s is no DynamoDB: it sent no JSON", operation);
    }
    return code;
}

bool table_is_denied(const struct ddb_answer *answer)
{
    return answer->error_code != NULL && text_has_prefix(answer->error_code, "AccessDenied");
}

bool table_is_lacking(const struct ddb_answer *answer)
{
    return answer->error_code != NULL && strcmp(answer->error_code, "UnknownOperationException") == 0;
}

/* ---- what it is --------------------------------------------------------------- */

static char *copy_or_null(const char *text)
{
    return text == NULL ? NULL : strdup(text);
}

static char *copy_member(const json_t *object, const char *name)
{
    return copy_or_null(json_string_value(json_object_get(object, name)));
}

static json_t *ask_for(const struct belay_dynamodb_table *table)
{
    return json_pack("{s:s}", "TableName", table->name);
}

struct belay_dynamodb_table *table_new(const struct ddb_store *store, const struct table_spec *spec)
{
    struct belay_dynamodb_table *table = calloc(1, sizeof *table);

    if (table == NULL) {
        return NULL;
    }
    table->name = copy_or_null(spec->table);
    table->layout = copy_or_null(spec->layout);
    table->region = copy_or_null(aws_region(store->aws));
    table->endpoint = copy_or_null(aws_endpoint(store->aws, AWS_DYNAMODB));
    table->keys_expected = keys_expected(spec);
    table->ttl_expected = copy_or_null(spec->ttl);
    table->items = table->bytes = -1;
    if (table->name == NULL || table->keys_expected == NULL) {
        belay_dynamodb_table_free(table);
        return NULL;
    }
    return table;
}

static const char *type_of(const json_t *description, const char *attribute)
{
    size_t i;
    json_t *definition;

    json_array_foreach(json_object_get(description, "AttributeDefinitions"), i, definition)
    {
        const char *name = json_string_value(json_object_get(definition, "AttributeName"));

        if (name != NULL && strcmp(name, attribute) == 0) {
            const char *type = json_string_value(json_object_get(definition, "AttributeType"));
            return type == NULL ? "?" : type;
        }
    }
    return "?";
}

static char *keys_text(const json_t *description)
{
    struct buf text = BUF_INIT(2048);
    size_t i;
    json_t *key;

    buf_adds(&text, "");
    json_array_foreach(json_object_get(description, "KeySchema"), i, key)
    {
        const char *name = json_string_value(json_object_get(key, "AttributeName"));

        (void)add_key_text(&text, i, name == NULL ? "?" : name,
                           name == NULL ? "?" : type_of(description, name));
    }
    return buf_take(&text);
}

static char *encryption_of(const json_t *description)
{
    const json_t *sse = json_object_get(description, "SSEDescription");
    const char *key = json_string_value(json_object_get(sse, "KMSMasterKeyArn"));
    struct buf text = BUF_INIT(4096);

    if (key == NULL) {
        return strdup("DynamoDB's own key");
    }
    buf_addf(&text, "KMS key %s", key);
    return buf_take(&text);
}

static int64_t description_number(const json_t *description, const char *name)
{
    const json_t *value = json_object_get(description, name);

    return json_is_integer(value) ? (int64_t)json_integer_value(value) : -1;
}

static bool read_description(struct belay_dynamodb_table *table, const json_t *description)
{
    const json_t *billing = json_object_get(description, "BillingModeSummary");

    table->arn = copy_member(description, "TableArn");
    table->status = copy_member(description, "TableStatus");
    table->keys = keys_text(description);
    table->billing = billing == NULL ? strdup("PROVISIONED") : copy_member(billing, "BillingMode");
    table->encryption = encryption_of(description);
    table->deletion_protection = json_is_true(json_object_get(description, "DeletionProtectionEnabled"));
    table->items = description_number(description, "ItemCount");
    table->bytes = description_number(description, "TableSizeBytes");
    return table->status != NULL && table->keys != NULL;
}

static void set_misfit(struct belay_dynamodb_table *table)
{
    struct buf text = BUF_INIT(4096);

    if (table->keys != NULL && strcmp(table->keys, table->keys_expected) != 0) {
        buf_addf(&text, "its key is %s, and must be %s", table->keys, table->keys_expected);
    } else if (table->ttl_attribute != NULL && table->ttl_expected != NULL &&
               strcmp(table->ttl_attribute, table->ttl_expected) != 0) {
        buf_addf(&text, "its time to live is on '%s', and must be on '%s'", table->ttl_attribute,
                 table->ttl_expected);
    } else if (table->ttl_attribute != NULL && table->layout == NULL) {
        buf_addf(&text, "its time to live removes counters by '%s', and must be off", table->ttl_attribute);
    }
    free(table->mismatch);
    table->mismatch = text.len > 0 ? buf_take(&text) : NULL;
    buf_release(&text);
}

enum belay_code table_look_keys(struct ddb_store *store, struct belay_dynamodb_table *table,
                                struct ddb_answer *out_answer, struct belay_error *err)
{
    enum belay_code code = table_call(store, "DescribeTable", ask_for(table), out_answer, err);

    if (code == BELAY_OK && !read_description(table, json_object_get(out_answer->body, "Table"))) {
        code = error_set(err, BELAY_UNREACHABLE, "the answer to DescribeTable is not DynamoDB's");
    }
    if (code == BELAY_OK) {
        set_misfit(table);
    }
    return code;
}

enum belay_code table_look_ttl(struct ddb_store *store, struct belay_dynamodb_table *table,
                               struct ddb_answer *out_answer, struct belay_error *err)
{
    enum belay_code code = table_call(store, "DescribeTimeToLive", ask_for(table), out_answer, err);
    const json_t *ttl = json_object_get(out_answer->body, "TimeToLiveDescription");

    if (code == BELAY_OK) {
        free(table->ttl_status);
        free(table->ttl_attribute);
        table->ttl_status = copy_member(ttl, "TimeToLiveStatus");
        table->ttl_attribute = copy_member(ttl, "AttributeName");
        set_misfit(table);
    }
    return code;
}

static enum belay_code look_recovery(struct ddb_store *store, struct belay_dynamodb_table *table,
                                     struct ddb_answer *out_answer, struct belay_error *err)
{
    enum belay_code code = table_call(store, "DescribeContinuousBackups", ask_for(table), out_answer, err);
    const json_t *backups = json_object_get(out_answer->body, "ContinuousBackupsDescription");
    const json_t *recovery = json_object_get(backups, "PointInTimeRecoveryDescription");

    if (code == BELAY_OK) {
        free(table->recovery);
        table->recovery = copy_member(recovery, "PointInTimeRecoveryStatus");
    }
    return code;
}

enum belay_code table_look(struct ddb_store *store, const struct table_spec *spec,
                           struct belay_dynamodb_table **out_table, struct belay_error *err)
{
    struct belay_dynamodb_table *table = table_new(store, spec);
    struct ddb_answer answer = { 0 };
    enum belay_code code = table == NULL ? error_no_memory(err) : table_look_keys(store, table, &answer, err);

    if (code == BELAY_NOT_FOUND) {
        code = BELAY_OK;
    } else if (code == BELAY_OK) {
        ddb_answer_release(&answer);
        code = table_look_ttl(store, table, &answer, err);
        if (code == BELAY_OK || table_is_denied(&answer) || table_is_lacking(&answer)) {
            ddb_answer_release(&answer);
            code = look_recovery(store, table, &answer, err);
        }
        code = table_is_denied(&answer) || table_is_lacking(&answer) ? BELAY_OK : code;
    }
    ddb_answer_release(&answer);
    if (code == BELAY_OK) {
        belay_error_release(err);
        *out_table = table;
        table = NULL; /* passed to the caller */
    }
    belay_dynamodb_table_free(table);
    return code;
}

enum belay_code dynamodb_table_describe(const char *table_and_params, const struct dynamodb_options *options,
                                        struct belay_dynamodb_table **out_table, struct belay_error *err)
{
    struct ddb_store *store = NULL;
    struct table_spec spec, fence;
    struct belay_dynamodb_table *table = NULL;
    enum belay_code code = table_store_open(table_and_params, options, &store, err);

    if (code == BELAY_OK) {
        table_spec_of_layout(store, &spec);
        code = table_look(store, &spec, &table, err);
    }
    if (code == BELAY_OK && table_spec_of_fence(store, &fence)) {
        code = table_look(store, &fence, &table->fence, err);
    }
    if (code == BELAY_OK) {
        table->policy = table_policy(table);
        *out_table = table;
        table = NULL; /* passed to the caller */
    }
    belay_dynamodb_table_free(table);
    table_store_close(store);
    return code;
}
