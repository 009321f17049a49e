#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands/commands.h"
#include "cli/commands/table_schema.h"
#include "cli/output/print.h"
#include "json/json_write.h"

struct table_print {
    const struct cli_context *cli;
    json_t *steps; /* owned; with --json */
    bool dry_run;
    size_t n_steps;
    bool waiting; /* a progress line is on the terminal */
};

/* ---- printing a table ----------------------------------------------------------- */

static json_t *table_json(const struct belay_dynamodb_table *table)
{
    json_t *object = json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "table", wire_text(table->name),
        "layout", wire_text(table->layout), "region", wire_text(table->region), "endpoint",
        wire_text(table->endpoint), "arn", wire_text(table->arn), "status", wire_text(table->status), "keys",
        wire_text(table->keys), "keys_wanted", wire_text(table->keys_expected), "billing",
        wire_text(table->billing), "ttl_attribute", wire_text(table->ttl_attribute), "ttl_status",
        wire_text(table->ttl_status), "ttl_wanted", wire_text(table->ttl_expected), "recovery",
        wire_text(table->recovery), "encryption", wire_text(table->encryption));

    if (object != NULL) {
        (void)json_object_set_new(object, "deletion_protection", json_boolean(table->deletion_protection));
        (void)json_object_set_new(object, "items",
                                  table->items < 0 ? json_null() : json_integer(table->items));
        (void)json_object_set_new(object, "bytes",
                                  table->bytes < 0 ? json_null() : json_integer(table->bytes));
        (void)json_object_set_new(object, "fits",
                                  json_boolean(table->status != NULL && table->mismatch == NULL));
        (void)json_object_set_new(object, "misfit", wire_text(table->mismatch));
    }
    return object;
}

static int print_table_json(const struct cli_context *context, const struct belay_dynamodb_table *table,
                            json_t *steps)
{
    json_t *object = table_json(table);
    json_t *policy = table->policy == NULL ? NULL : json_loads(table->policy, 0, NULL);

    if (object != NULL) {
        (void)json_object_set_new(object, "fence_table",
                                  table->fence == NULL ? json_null() : table_json(table->fence));
        (void)json_object_set_new(object, "policy", policy == NULL ? json_null() : policy);
        if (steps != NULL) {
            (void)json_object_set_new(object, "steps", json_incref(steps));
        }
    }
    return cli_print_line(context, wire_line(object));
}

static void print_card(const struct belay_dynamodb_table *table)
{
    char ttl[512];

    (void)snprintf(ttl, sizeof ttl, "%s%s%s", table->ttl_status == NULL ? "unknown" : table->ttl_status,
                   table->ttl_attribute == NULL ? "" : ", by ",
                   table->ttl_attribute == NULL ? "" : table->ttl_attribute);
    print_field("table", table->name);
    print_field("layout", table->layout == NULL ? "(counters for fencing tokens)" : table->layout);
    print_field("region", table->region);
    print_field("status", table->status == NULL ? "does not exist" : table->status);
    if (table->status != NULL) {
        print_field("arn", table->arn);
        print_field("keys", table->keys);
        print_field("fits", table->mismatch == NULL ? "yes" : table->mismatch);
        print_field("billing", table->billing);
        print_field("time to live", ttl);
        print_field("recovery", table->recovery);
        print_field("encryption", table->encryption);
    }
    if (table->items >= 0) {
        (void)printf("%-14s%lld, %lld bytes (up to six hours ago)\n", "items", (long long)table->items,
                     (long long)table->bytes);
    }
}

static int print_table(const struct cli_context *context, const struct belay_dynamodb_table *table,
                       json_t *steps)
{
    if (context->json) {
        return print_table_json(context, table, steps);
    }
    print_card(table);
    if (table->fence != NULL) {
        (void)fputc('\n', stdout);
        print_card(table->fence);
    }
    if (!context->quiet && table->policy != NULL) {
        (void)printf("\nIAM policy: BelayLocks for clients, BelayTable to create or describe the table\n%s\n",
                     table->policy);
    }
    return CLI_OK;
}

/* ---- steps and waiting ---------------------------------------------------------- */

static void end_waiting(struct table_print *print)
{
    if (print->waiting) {
        (void)fputs("\r\033[K", stderr);
        print->waiting = false;
    }
}

static void print_step(void *context, const struct belay_finding *step)
{
    struct table_print *print = context;

    end_waiting(print);
    print->n_steps++;
    if (print->cli->json) {
        (void)json_array_append_new(print->steps,
                                    json_pack("{s:s,s:o,s:o}", "level", belay_finding_level_name(step->level),
                                              "name", wire_text(step->name), "text", wire_text(step->text)));
    } else if (print->dry_run && step->level == BELAY_FINDING_OK) {
        print_line_escaped(stdout, "%s %s", step->name, step->text);
    } else if (step->level == BELAY_FINDING_OK) {
        cli_note(print->cli, "%s %s", step->name, step->text);
    } else {
        cli_warn(print->cli, "%s: %s", step->name, step->text);
        if (step->advice != NULL) {
            cli_hint(print->cli, "%s", step->advice);
        }
    }
}

static void print_table_wait(void *context, const char *table, const char *status, int64_t waited_ms)
{
    struct table_print *print = context;
    char span[CLOCK_TEXT_SIZE];

    if (print->cli->quiet || print->cli->json || !isatty(STDERR_FILENO)) {
        return;
    }
    (void)fprintf(stderr, "\r\033[Kbelay: table '%s' is %s, waited %s", table, status,
                  clock_format_span(span, waited_ms));
    (void)fflush(stderr);
    print->waiting = true;
}

/* ---- commands --------------------------------------------------------------------- */

static int exec_table_create(struct cli_context *context, const struct options *options,
                             struct belay_error *err)
{
    struct belay_dynamodb_table_options table_options = BELAY_DYNAMODB_TABLE_OPTIONS_INIT;
    struct table_print print = { .cli = context, .dry_run = options_has(options, "dry-run") };
    struct belay_dynamodb_table *table = NULL;
    enum belay_code code;
    int exit_code;

    if (schema_is_meant(context, options, true, &exit_code) || exit_code != CLI_OK) {
        return exit_code != CLI_OK ? exit_code : schema_exec(context, options, true, err);
    }
    code = cli_config(context, &table_options.config, err);
    print.steps = json_array();
    table_options.store_url = context->store_url;
    table_options.dry_run = print.dry_run;
    table_options.kms_key = options_text(options, "kms-key");
    table_options.on_step = print_step;
    table_options.on_waiting = print_table_wait;
    table_options.context = &print;
    table_options.cancel = cli_cancel(context);
    if (options_duration(options, "wait", &table_options.wait_ms) && table_options.wait_ms == 0) {
        table_options.wait_ms = 1; /* to the library 0 means the default */
    }
    if (code == BELAY_OK) {
        code = belay_dynamodb_table_create(&table_options, &table, err);
    }
    end_waiting(&print);
    if (code != BELAY_OK) {
        exit_code = cli_error(context, err);
    } else if (print.dry_run && !context->json) {
        if (print.n_steps == 0) {
            cli_note(context, "table '%s' exists and fits the layout: nothing to do", table->name);
        }
        (void)printf("%s\n", table->policy == NULL ? "" : table->policy);
        exit_code = CLI_OK;
    } else {
        exit_code = print_table(context, table, print.steps);
    }
    json_decref(print.steps);
    belay_dynamodb_table_free(table);
    return exit_code;
}

static int exec_table_describe(struct cli_context *context, const struct options *options,
                               struct belay_error *err)
{
    struct belay_dynamodb_table_options table_options = BELAY_DYNAMODB_TABLE_OPTIONS_INIT;
    struct belay_dynamodb_table *table = NULL;
    enum belay_code code;
    int exit_code;

    if (schema_is_meant(context, options, false, &exit_code)) {
        return schema_exec(context, options, false, err);
    }
    code = cli_config(context, &table_options.config, err);
    table_options.store_url = context->store_url;
    if (code == BELAY_OK) {
        code = belay_dynamodb_table_describe(&table_options, &table, err);
    }
    if (code != BELAY_OK) {
        exit_code = cli_error(context, err);
    } else {
        exit_code = print_table(context, table, NULL);
        if (exit_code == CLI_OK && table->status == NULL) {
            exit_code =
                cli_fail(context, BELAY_NOT_FOUND,
                         "table '%s' does not exist: create it with 'belay table create'", table->name);
        } else if (exit_code == CLI_OK && table->mismatch != NULL) {
            exit_code = cli_fail(context, BELAY_CONFIG, "table '%s' does not fit the layout '%s': %s",
                                 table->name, table->layout, table->mismatch);
        }
    }
    belay_dynamodb_table_free(table);
    return exit_code;
}

static const struct option_group create_group = {
    "Options",
    OPTION_TABLE(OPT_DURATION("wait", "DynamoDB: wait this long until the table is active; default: 5m"),
                 OPT_TEXT("kms-key", "KEY",
                          "DynamoDB: encrypt with this KMS key; default: DynamoDB's own key, free of charge"),
                 OPT_TEXT("grant", "ROLE", "PostgreSQL: let this role use the schema"),
                 OPT_FLAG("dry-run", "DynamoDB: print the requests and the policy; change nothing"))
};

#define EXIT_USAGE "the command line is wrong, or the store is neither DynamoDB nor PostgreSQL"
#define EXIT_UNREACHABLE "the store is unreachable"
#define EXIT_DENIED "IAM or PostgreSQL denies an action; the message names it"
#define EXIT_CONFIG "the configuration is wrong, or the table or schema does not fit"

const struct cli_command cmd_table_create = {
    .name = "table create",
    .synopsis = "[--wait D] [--kms-key KEY] [--dry-run] [--grant ROLE]",
    .summary = "create or migrate the table or schema of the store",
    .about =
        "Creates what the store that --store names needs: a table on DynamoDB, a schema on PostgreSQL. The "
        "command can be repeated.\n\n"
        "On PostgreSQL it creates the schema (belay, or schema= in the URL) with its tables and "
        "functions for locks and deployment state, or adds what the schema of an earlier belay lacks. "
        "All of it is one transaction. This needs a user who may create a schema, or the owner of the "
        "schema that exists. The users of the store "
        "only execute its functions; --grant permits that to a role.\n\n"
        "On DynamoDB it creates the table with the key of its layout, on-demand billing, encryption, "
        "time to live on the layout's attribute and point-in-time recovery, and waits until the table "
        "is active. With fence_table= in the URL, that table is created too. A table that exists and fits is "
        "kept; only time to live and "
        "recovery are enabled if they are off. If a table does not fit, belay reports the difference "
        "and changes nothing. A feature that the service lacks, as DynamoDB Local lacks recovery, is "
        "skipped with a warning.\n\n"
        "At the end it prints the table and the IAM policy: BelayLocks for clients, BelayTable to run "
        "this command.",
    .groups = { &create_group },
    .exits = { { 0, "the table or schema exists, fits and can be used" },
               { 64, EXIT_USAGE ", or there is no such ROLE" },
               { 69, EXIT_UNREACHABLE ", or the table was not active in time" },
               { 77, EXIT_DENIED },
               { 78, EXIT_CONFIG } },
    .examples = { { "belay table create --store 'dynamodb:deploy-locks?region=eu-west-1'",
                    "belay's own layout" },
                  { "belay table create --store 'dynamodb:locks?layout=deployer' --dry-run",
                    "show the requests and the policy" },
                  { "belay table create --store postgresql://admin@db/locks --grant deployers",
                    "a schema on PostgreSQL" } },
    .exec = exec_table_create,
};

const struct cli_command cmd_table_describe = {
    .name = "table describe",
    .synopsis = "",
    .summary = "show the table or schema, and whether it fits",
    .about = "Shows the table that --store names: its key, billing, time to live, recovery and encryption, "
             "whether it fits the layout, and the IAM policy that clients need. On PostgreSQL it shows "
             "the schema and its versions. Changes nothing.",
    .exits = { { 0, "the table or schema exists and fits" },
               { 64, EXIT_USAGE },
               { 66, "the table or schema does not exist" },
               { 69, EXIT_UNREACHABLE },
               { 77, EXIT_DENIED },
               { 78, EXIT_CONFIG } },
    .examples = { { "belay table describe --store dynamodb:deploy-locks", "the table and its policy" },
                  { "belay table describe --store 'dynamodb:locks?layout=resource' --json", "as JSON" } },
    .exec = exec_table_describe,
};
