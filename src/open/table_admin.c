#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "network/loader.h"

static enum belay_code with_module(const struct belay_dynamodb_table_options *options, bool create,
                                   struct belay_dynamodb_table **out_table, struct belay_error *err)
{
    const char *url =
        options->store_url != NULL ? options->store_url : belay_config_get(options->config, "store");
    const struct net_module *net;
    enum belay_code code;

    if (url == NULL || !text_has_prefix(url, "dynamodb:")) {
        return error_set(
            err, BELAY_INVALID,
            "only DynamoDB and PostgreSQL have tables to make, and the store is '%.200s': name one "
            "with --store dynamodb:TABLE or postgresql://HOST/DATABASE",
            url == NULL ? "not set" : url);
    }
    code = loader_net(&net, err);
    if (code == BELAY_OK) {
        struct dynamodb_options store = module_options(options->config);
        const char *table = url + strlen("dynamodb:");

        code = create ? net->table_create(table, &store, options, out_table, err)
                      : net->table_describe(table, &store, out_table, err);
    }
    return code;
}

static enum belay_code with_config(const struct belay_dynamodb_table_options *options, bool create,
                                   struct belay_dynamodb_table **out_table, struct belay_error *err)
{
    struct belay_dynamodb_table_options filled = BELAY_DYNAMODB_TABLE_OPTIONS_INIT;
    struct belay_config *config = NULL;
    enum belay_code code = BELAY_OK;

    if (options != NULL) {
        filled = *options;
    }
    if (filled.config == NULL) {
        code = belay_config_load(NULL, &config, err);
        filled.config = config;
    }
    if (code == BELAY_OK) {
        code = with_module(&filled, create, out_table, err);
    }
    belay_config_free(config);
    return code;
}

enum belay_code belay_dynamodb_table_create(const struct belay_dynamodb_table_options *options,
                                            struct belay_dynamodb_table **out_table, struct belay_error *err)
{
    struct belay_dynamodb_table *table = NULL;
    enum belay_code code = with_config(options, true, &table, err);

    if (code == BELAY_OK && out_table != NULL) {
        *out_table = table;
        table = NULL; /* the caller's now */
    }
    belay_dynamodb_table_free(table);
    return code;
}

enum belay_code belay_dynamodb_table_describe(const struct belay_dynamodb_table_options *options,
                                              struct belay_dynamodb_table **out_table,
                                              struct belay_error *err)
{
    return with_config(options, false, out_table, err);
}

/* ---- PostgreSQL ---- */

static enum belay_code with_schema(const struct belay_postgresql_schema_options *options, bool create,
                                   struct belay_postgresql_schema *out_schema, struct belay_error *err)
{
    struct belay_postgresql_schema_options filled = BELAY_POSTGRESQL_SCHEMA_OPTIONS_INIT;
    struct belay_config *config = NULL;
    const struct pg_module *pg;
    enum belay_code code = BELAY_OK;
    const char *url;

    if (options != NULL) {
        filled = *options;
    }
    if (filled.config == NULL) {
        code = belay_config_load(NULL, &config, err);
        filled.config = config;
    }
    if (code != BELAY_OK) {
        return code;
    }
    url = filled.store_url != NULL ? filled.store_url : belay_config_get(filled.config, "store");
    if (url == NULL || !(text_has_prefix(url, "postgresql://") || text_has_prefix(url, "postgres://"))) {
        code = error_set(err, BELAY_INVALID,
                         "the store '%.200s' is not PostgreSQL: name one with --store "
                         "postgresql://HOST/DATABASE",
                         url == NULL ? "not set" : url);
    }
    if (code == BELAY_OK) {
        code = loader_pg(&pg, err);
    }
    if (code == BELAY_OK) {
        code = create ? pg->schema_create(url, filled.grant_to, out_schema, err)
                      : pg->schema_describe(url, out_schema, err);
    }
    belay_config_free(config);
    return code;
}

enum belay_code belay_postgresql_schema_create(const struct belay_postgresql_schema_options *options,
                                               struct belay_postgresql_schema *out_schema,
                                               struct belay_error *err)
{
    return with_schema(options, true, out_schema, err);
}

enum belay_code belay_postgresql_schema_describe(const struct belay_postgresql_schema_options *options,
                                                 struct belay_postgresql_schema *out_schema,
                                                 struct belay_error *err)
{
    return with_schema(options, false, out_schema, err);
}
