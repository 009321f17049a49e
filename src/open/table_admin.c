/* Tables of DynamoDB and schemas of PostgreSQL: creating and describing them. */
#include <string.h>

#include "base/error.h"
#include "base/store_url.h"
#include "base/text.h"
#include "network/loader.h"
#include "open/open_internal.h"

/* Open the configuration if the caller gave none, and find the store's URL: as given, else as configured, or NULL. */
static enum belay_code find_store(const struct belay_config **config, struct belay_config **out_own,
                                  const char **url, struct belay_error *err)
{
    enum belay_code code = open_config(config, out_own, err);

    if (code == BELAY_OK && *url == NULL) {
        *url = belay_config_get(*config, "store");
    }
    return code;
}

static enum belay_code run_on_table(const struct belay_dynamodb_table_options *given, bool create,
                                    struct belay_dynamodb_table **out_table, struct belay_error *err)
{
    struct belay_dynamodb_table_options options = BELAY_DYNAMODB_TABLE_OPTIONS_INIT;
    struct belay_config *own = NULL;
    const struct net_module *net;
    const char *url;
    char shown[STORE_URL_SHOWN];
    enum belay_code code;

    if (given != NULL) {
        options = *given;
    }
    url = options.store_url;
    code = find_store(&options.config, &own, &url, err);
    if (code == BELAY_OK) {
        code = url != NULL && text_has_prefix(url, "dynamodb:")
                   ? loader_net(&net, err)
                   : error_set(err, BELAY_INVALID,
                               "only DynamoDB and PostgreSQL have tables to make, and the store is "
                               "'%s': name one with --store dynamodb:TABLE or "
                               "postgresql://HOST/DATABASE",
                               url == NULL ? "not set" : store_url_show(url, shown));
    }
    if (code == BELAY_OK) {
        struct dynamodb_options store = module_options(options.config);
        const char *table = url + strlen("dynamodb:");

        code = create ? net->table_create(table, &store, &options, out_table, err)
                      : net->table_describe(table, &store, out_table, err);
    }
    belay_config_free(own);
    return code;
}

enum belay_code belay_dynamodb_table_create(const struct belay_dynamodb_table_options *options,
                                            struct belay_dynamodb_table **out_table, struct belay_error *err)
{
    struct belay_dynamodb_table *table = NULL;
    enum belay_code code = run_on_table(options, true, &table, err);

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
    return run_on_table(options, false, out_table, err);
}

/* ---- PostgreSQL ---- */

static enum belay_code run_on_schema(const struct belay_postgresql_schema_options *given, bool create,
                                     struct belay_postgresql_schema *out_schema, struct belay_error *err)
{
    struct belay_postgresql_schema_options options = BELAY_POSTGRESQL_SCHEMA_OPTIONS_INIT;
    struct belay_config *own = NULL;
    const struct pg_module *pg;
    const char *url;
    char shown[STORE_URL_SHOWN];
    enum belay_code code;

    if (given != NULL) {
        options = *given;
    }
    url = options.store_url;
    code = find_store(&options.config, &own, &url, err);
    if (code == BELAY_OK) {
        code = url != NULL && url_is_postgresql(url)
                   ? loader_pg(&pg, err)
                   : error_set(err, BELAY_INVALID,
                               "the store '%s' is not PostgreSQL: name one with --store "
                               "postgresql://HOST/DATABASE",
                               url == NULL ? "not set" : store_url_show(url, shown));
    }
    if (code == BELAY_OK) {
        code = create ? pg->schema_create(url, options.grant_to, out_schema, err)
                      : pg->schema_describe(url, out_schema, err);
    }
    belay_config_free(own);
    return code;
}

enum belay_code belay_postgresql_schema_create(const struct belay_postgresql_schema_options *options,
                                               struct belay_postgresql_schema *out_schema,
                                               struct belay_error *err)
{
    return run_on_schema(options, true, out_schema, err);
}

enum belay_code belay_postgresql_schema_describe(const struct belay_postgresql_schema_options *options,
                                                 struct belay_postgresql_schema *out_schema,
                                                 struct belay_error *err)
{
    return run_on_schema(options, false, out_schema, err);
}
