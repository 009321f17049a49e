/* The permissions that IAM must grant. docs/stores/dynamodb-iam.md lists them by command. */
#include "base/buf.h"
#include "base/text.h"
#include "store/dynamodb/table/dynamodb_table_internal.h"

/* Without "dynamodb:"; NULL at the end. */
static const char *const actions_to_lock[] = {
    "GetItem", "BatchGetItem", "UpdateItem", "DeleteItem", "ConditionCheckItem", "Scan", "DescribeTable", NULL
};
static const char *const actions_to_make[] = { "CreateTable",
                                               "DescribeTable",
                                               "UpdateTimeToLive",
                                               "DescribeTimeToLive",
                                               "UpdateContinuousBackups",
                                               "DescribeContinuousBackups",
                                               NULL };

static const char *partition_of(const char *region)
{
    return text_has_prefix(region, "cn-")       ? "aws-cn"
           : text_has_prefix(region, "us-gov-") ? "aws-us-gov"
                                                : "aws";
}

static json_t *resource(const struct belay_dynamodb_table *table)
{
    const char *region = table->region == NULL ? "*" : table->region;
    struct buf arn = BUF_INIT(2048);
    json_t *text;

    if (table->arn != NULL) {
        return json_string(table->arn);
    }
    buf_addf(&arn, "arn:%s:dynamodb:%s:*:table/%s", partition_of(region), region, table->name);
    text = arn.failed ? NULL : json_string(arn.data);
    buf_release(&arn);
    return text;
}

static json_t *statement(const char *sid, const char *const *actions,
                         const struct belay_dynamodb_table *table)
{
    json_t *names = json_array();
    json_t *resources = json_array();

    for (; *actions != NULL; actions++) {
        (void)json_array_append_new(names, json_sprintf("dynamodb:%s", *actions));
    }
    (void)json_array_append_new(resources, resource(table));
    if (table->fence != NULL) {
        (void)json_array_append_new(resources, resource(table->fence));
    }
    return json_pack("{s:s,s:s,s:o,s:o}", "Sid", sid, "Effect", "Allow", "Action", names, "Resource",
                     resources);
}

char *table_policy(const struct belay_dynamodb_table *table)
{
    json_t *policy = json_pack("{s:s,s:[o,o]}", "Version", "2012-10-17", "Statement",
                               statement("BelayLocks", actions_to_lock, table),
                               statement("BelayTable", actions_to_make, table));
    char *text = policy == NULL ? NULL : json_dumps(policy, JSON_INDENT(2));

    json_decref(policy);
    return text;
}
