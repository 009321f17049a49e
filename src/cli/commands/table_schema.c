/* `belay table` on PostgreSQL: the schema of a store. */
#include "cli/commands/table_schema.h"

#include "base/text.h"
#include "cli/output/print.h"
#include "json/json_write.h"

static bool has_postgresql_scheme(const char *url)
{
    return url != NULL && (text_has_prefix(url, "postgresql://") || text_has_prefix(url, "postgres://"));
}

static bool schema_fits(const struct belay_postgresql_schema *schema)
{
    return schema->version == schema->version_needed &&
           schema->functions_version >= schema->functions_version_needed &&
           schema->state_version == schema->state_version_needed;
}

static int print_schema(const struct cli_context *context, const struct belay_postgresql_schema *schema)
{
    char version[64];
    char functions[64];
    char state[64];

    if (context->json) {
        return cli_print_line(
            context, wire_line(json_pack("{s:s,s:s,s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:b}", "schema", schema->name,
                                         "database", schema->database, "server", schema->server, "version",
                                         schema->version, "version_needed", schema->version_needed,
                                         "functions_version", schema->functions_version,
                                         "functions_version_needed", schema->functions_version_needed,
                                         "state_version", schema->state_version, "state_version_needed",
                                         schema->state_version_needed, "fits", schema_fits(schema))));
    }
    (void)snprintf(functions, sizeof functions, "%d, this belay has %d", schema->functions_version,
                   schema->functions_version_needed);
    (void)snprintf(state, sizeof state, "%d, this belay needs %d", schema->state_version,
                   schema->state_version_needed);
    (void)snprintf(version, sizeof version, "%d, this belay needs %d", schema->version,
                   schema->version_needed);
    print_field("schema", schema->name);
    print_field("database", schema->database);
    print_field("server", schema->server);
    print_field("version", schema->version == 0 ? "does not exist" : version);
    if (schema->version > 0) {
        print_field("functions", functions);
        print_field("state", schema->state_version == 0 ? "no tables for deployment state" : state);
    }
    return CLI_OK;
}

int schema_exec(struct cli_context *context, const struct options *options, bool create,
                struct belay_error *err)
{
    struct belay_postgresql_schema_options schema_options = BELAY_POSTGRESQL_SCHEMA_OPTIONS_INIT;
    struct belay_postgresql_schema schema = { 0 };
    enum belay_code code = cli_config(context, &schema_options.config, err);
    int exit_code;

    schema_options.store_url = context->store_url;
    schema_options.grant_to = create ? options_text(options, "grant") : NULL;
    if (code == BELAY_OK) {
        code = create ? belay_postgresql_schema_create(&schema_options, &schema, err)
                      : belay_postgresql_schema_describe(&schema_options, &schema, err);
    }
    exit_code = code == BELAY_OK ? print_schema(context, &schema) : cli_error(context, err);
    if (exit_code == CLI_OK && schema.version == 0) {
        exit_code = cli_fail(context, BELAY_NOT_FOUND,
                             "schema '%s' does not exist: create it with 'belay table create'", schema.name);
    } else if (exit_code == CLI_OK && schema.version != schema.version_needed) {
        exit_code = cli_fail(context, BELAY_CONFIG, "schema '%s' has version %d, and this belay needs %d",
                             schema.name, schema.version, schema.version_needed);
    } else if (exit_code == CLI_OK && schema.functions_version < schema.functions_version_needed) {
        exit_code =
            cli_fail(context, BELAY_CONFIG,
                     "schema '%s' has version %d of the functions, which work, and this belay has %d: run "
                     "'belay table create'",
                     schema.name, schema.functions_version, schema.functions_version_needed);
    } else if (exit_code == CLI_OK && !schema_fits(&schema)) {
        exit_code = cli_fail(context, BELAY_CONFIG,
                             "schema '%s' has version %d for deployment state, and this belay needs %d: run "
                             "'belay table create'",
                             schema.name, schema.state_version, schema.state_version_needed);
    }
    return exit_code;
}

bool schema_is_meant(struct cli_context *context, const struct options *options, bool create, int *out_exit)
{
    static const char *const others[] = { "wait", "kms-key", "dry-run" };
    bool is_schema = has_postgresql_scheme(cli_store_url(context));

    *out_exit = CLI_OK;
    for (size_t i = 0; create && is_schema && *out_exit == CLI_OK && i < 3; i++) {
        if (options_has(options, others[i])) {
            *out_exit = cli_fail(context, BELAY_INVALID, "--%s is for DynamoDB, and the store is PostgreSQL",
                                 others[i]);
        }
    }
    if (create && !is_schema && options_has(options, "grant")) {
        *out_exit = cli_fail(context, BELAY_INVALID,
                             "--grant is for PostgreSQL: name one with --store "
                             "postgresql://HOST/DATABASE");
    }
    return is_schema;
}
