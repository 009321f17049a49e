/* Not in src/open/table_admin.c, because the network module frees such tables, too. */
#include <stdlib.h>

#include "belay.h"

void belay_dynamodb_table_free(struct belay_dynamodb_table *table)
{
    if (table == NULL) {
        return;
    }
    belay_dynamodb_table_free(table->fence);
    free(table->name);
    free(table->layout);
    free(table->region);
    free(table->endpoint);
    free(table->arn);
    free(table->status);
    free(table->keys);
    free(table->keys_expected);
    free(table->billing);
    free(table->ttl_attribute);
    free(table->ttl_status);
    free(table->ttl_expected);
    free(table->recovery);
    free(table->encryption);
    free(table->mismatch);
    free(table->policy);
    free(table);
}
