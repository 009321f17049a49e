/*
 * The identity of the store is the id that the service gave the table. It needs no item of
 * belay's, so it works for every layout, and it does not depend on the spelling of the URL; a
 * table of the same name in another region or account has another id. With a fence_table, that
 * table's id is part of it: tokens come from there.
 */
#include <stdio.h>

#include "base/buf.h"
#include "base/error.h"
#include "store/dynamodb/dynamodb_internal.h"

enum { ID_MAX = 310 };

/*
 * TableId. DynamoDB Local omits it, and its ARNs are the same in every region: there the
 * region and the table's creation time take its place.
 */
static bool add_table_id(const struct ddb_store *store, const json_t *table, struct buf *out)
{
    const char *id = json_string_value(json_object_get(table, "TableId"));
    const char *arn = json_string_value(json_object_get(table, "TableArn"));
    const char *region = aws_region(store->aws);

    if (id != NULL) {
        buf_addf(out, "%.*s", ID_MAX, id);
    } else if (arn != NULL) {
        buf_addf(out, "%.*s@%.32s@%.3f", ID_MAX, arn, region == NULL ? "" : region,
                 json_number_value(json_object_get(table, "CreationDateTime")));
    }
    return (id != NULL || arn != NULL) && !out->failed;
}

static enum belay_code add_table(struct ddb_store *store, const char *table, struct buf *out,
                                 struct belay_error *err)
{
    struct ddb_answer answer;
    enum belay_code code =
        ddb_call(store, "DescribeTable", json_pack("{s:s}", "TableName", table), &answer, err);

    if (code == BELAY_NOT_PERMITTED) {
        (void)error_wrap(err,
                         "deployment state is bound to the id of the table '%.100s', which takes "
                         "dynamodb:DescribeTable",
                         table);
    } else if (code == BELAY_OK) {
        buf_adds(out, out->len == 0 ? "dynamodb-" : "+");
        code = add_table_id(store, json_object_get(answer.body, "Table"), out)
                   ? BELAY_OK
                   : error_set(err, BELAY_UNREACHABLE, "the answer to DescribeTable is not DynamoDB's");
    }
    ddb_answer_release(&answer);
    return code;
}

enum belay_code ddb_identity(struct belay_store *base, char out_id[BELAY_STORE_ID_SIZE],
                             struct belay_error *err)
{
    struct ddb_store *store = ddb_of(base);
    struct buf id = BUF_INIT(BELAY_STORE_ID_SIZE);
    enum belay_code code = add_table(store, store->params.table, &id, err);

    if (code == BELAY_OK && store->params.fence_table != NULL) {
        code = add_table(store, store->params.fence_table, &id, err);
    }
    if (code == BELAY_OK) {
        (void)snprintf(out_id, BELAY_STORE_ID_SIZE, "%s", id.data);
    }
    buf_release(&id);
    return code;
}
