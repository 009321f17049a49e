#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands/commands.h"
#include "cli/output/print.h"
#include "json/json_write.h"

struct table_print {
    const struct cli_context *cli;
    json_t *steps; /* owned; with --json */
    bool dry_run;
    size_t n_steps;
    bool waiting; /* there is a line about it on the terminal */
};

/* ---- what a table looks like -------------------------------------------------- */

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

static int print_json(const struct cli_context *context, const struct belay_dynamodb_table *table,
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

    (void)snprintf(ttl, sizeof ttl, "%s%s%s", table->ttl_status == NULL ? "not known" : table->ttl_status,
                   table->ttl_attribute == NULL ? "" : ", by ",
                   table->ttl_attribute == NULL ? "" : table->ttl_attribute);
    print_field("table", table->name);
    print_field("layout", table->layout == NULL ? "(counters for fencing tokens)" : table->layout);
    print_field("region", table->region);
    print_field("status", table->status == NULL ? "there is no such table" : table->status);
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
        return print_json(context, table, steps);
    }
    print_card(table);
    if (table->fence != NULL) {
        (void)fputc('\n', stdout);
        print_card(table->fence);
    }
    if (!context->quiet && table->policy != NULL) {
        (void)printf("\nIAM: who locks needs BelayLocks, who makes or describes the table BelayTable\n%s\n",
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

static void on_step(void *context, const struct belay_finding *step)
{
    struct table_print *print = context;

    end_waiting(print);
    print->n_steps++;
    if (print->cli->json) {
        (void)json_array_append_new(print->steps,
                                    json_pack("{s:s,s:o,s:o}", "level", belay_finding_level_name(step->level),
                                              "name", wire_text(step->name), "text", wire_text(step->text)));
    } else if (print->dry_run && step->level == BELAY_FINDING_OK) {
        (void)printf("%s ", step->name);
        print_escaped(stdout, step->text);
        (void)fputc('\n', stdout);
    } else if (step->level == BELAY_FINDING_OK) {
        cli_note(print->cli, "%s %s", step->name, step->text);
    } else {
        cli_warn(print->cli, "%s: %s", step->name, step->text);
        if (step->advice != NULL) {
            cli_hint(print->cli, "%s", step->advice);
        }
    }
}

static void on_waiting(void *context, const char *table, const char *status, int64_t waited_ms)
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

static int exec_create(struct cli_context *context, const struct options *options)
{
    struct belay_dynamodb_table_options table_options = BELAY_DYNAMODB_TABLE_OPTIONS_INIT;
    struct table_print print = { .cli = context, .dry_run = options_has(options, "dry-run") };
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_dynamodb_table *table = NULL;
    enum belay_code code = cli_config(context, &table_options.config, &err);
    int exit_code;

    print.steps = json_array();
    table_options.store_url = context->store_url;
    table_options.dry_run = print.dry_run;
    table_options.kms_key = options_text(options, "kms-key");
    table_options.on_step = on_step;
    table_options.on_waiting = on_waiting;
    table_options.context = &print;
    table_options.cancel = cli_cancel(context);
    if (options_duration(options, "wait", &table_options.wait_ms) && table_options.wait_ms == 0) {
        table_options.wait_ms = 1; /* 0 means the default to the library */
    }
    if (code == BELAY_OK) {
        code = belay_dynamodb_table_create(&table_options, &table, &err);
    }
    end_waiting(&print);
    if (code != BELAY_OK) {
        exit_code = cli_error(context, &err);
    } else if (print.dry_run && !context->json) {
        if (print.n_steps == 0) {
            cli_note(context, "table '%s' is there and fits: there is nothing to do", table->name);
        }
        (void)printf("%s\n", table->policy == NULL ? "" : table->policy);
        exit_code = CLI_OK;
    } else {
        exit_code = print_table(context, table, print.steps);
    }
    json_decref(print.steps);
    belay_dynamodb_table_free(table);
    belay_error_release(&err);
    return exit_code;
}

static int exec_describe(struct cli_context *context, const struct options *options)
{
    struct belay_dynamodb_table_options table_options = BELAY_DYNAMODB_TABLE_OPTIONS_INIT;
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_dynamodb_table *table = NULL;
    enum belay_code code = cli_config(context, &table_options.config, &err);
    int exit_code;

    (void)options;
    table_options.store_url = context->store_url;
    if (code == BELAY_OK) {
        code = belay_dynamodb_table_describe(&table_options, &table, &err);
    }
    if (code != BELAY_OK) {
        exit_code = cli_error(context, &err);
    } else {
        exit_code = print_table(context, table, NULL);
        if (exit_code == CLI_OK && table->status == NULL) {
            exit_code = cli_fail(context, BELAY_NOT_FOUND,
                                 "there is no table '%s': make it with 'belay table create'", table->name);
        } else if (exit_code == CLI_OK && table->mismatch != NULL) {
            exit_code = cli_fail(context, BELAY_CONFIG, "table '%s' does not fit the layout '%s': %s",
                                 table->name, table->layout, table->mismatch);
        }
    }
    belay_dynamodb_table_free(table);
    belay_error_release(&err);
    return exit_code;
}

static const struct option_def create_defs[] = {
    { .name = "wait",
      .kind = OPTION_DURATION,
      .value = "D",
      .help = "how long to wait until the table is active; default 5m" },
    { .name = "kms-key",
      .kind = OPTION_TEXT,
      .value = "KEY",
      .help = "encrypt with this KMS key; default: DynamoDB's own key, at no cost" },
    { .name = "dry-run",
      .kind = OPTION_FLAG,
      .help = "print the requests and the policy, and change nothing" },
    { .name = NULL },
};
static const struct option_group create_group = { "Options", create_defs };

#define SAY_USAGE "the command line is wrong, or the store is not DynamoDB"
#define SAY_UNREACHABLE "the service could not be reached"
#define SAY_DENIED "something is not allowed; the message names the action"
#define SAY_CONFIG "the configuration is wrong, or the table does not fit the layout"

const struct cli_command cmd_table_create = {
    .name = "table create",
    .synopsis = "[--wait D] [--kms-key KEY] [--dry-run]",
    .summary = "make the DynamoDB table that a layout needs",
    .about =
        "Makes the table that --store names, with the key that its layout needs, billed by request, "
        "encrypted, with time to live on the layout's attribute and with point-in-time recovery, and waits "
        "until it can be used. With fence_table= in the URL that table is made too.\n\n"
        "It can be run again at any time. A table that is there and fits is left as it is, but for time to "
        "live and recovery that are off. One that does not fit is an error that says in what, and nothing is "
        "changed. What a server does not have, as DynamoDB Local has no recovery, is left out with a "
        "warning.\n\n"
        "At the end it prints the table and, as a policy, what IAM has to allow: BelayLocks for who locks, "
        "BelayTable for who runs this command.",
    .groups = { &create_group },
    .exits = { { 0, "the table is there, fits and is active" },
               { 64, SAY_USAGE },
               { 69, SAY_UNREACHABLE ", or the table was not active in time" },
               { 77, SAY_DENIED },
               { 78, SAY_CONFIG } },
    .examples = { { "belay table create --store 'dynamodb:deploy-locks?region=eu-west-1'",
                    "belay's own layout" },
                  { "belay table create --store 'dynamodb:locks?layout=deployer' --dry-run",
                    "what would be sent, and the policy" } },
    .exec = exec_create,
};

const struct cli_command cmd_table_describe = {
    .name = "table describe",
    .synopsis = "",
    .summary = "show the DynamoDB table and whether it fits",
    .about = "Shows the table that --store names: its key, billing, time to live, recovery and encryption, "
             "whether locks of the layout can be kept in it, and the policy that IAM has to allow. Changes "
             "nothing.",
    .exits = { { 0, "the table is there and fits" },
               { 64, SAY_USAGE },
               { 66, "there is no such table" },
               { 69, SAY_UNREACHABLE },
               { 77, SAY_DENIED },
               { 78, SAY_CONFIG } },
    .examples = { { "belay table describe --store dynamodb:deploy-locks", "the table and its policy" },
                  { "belay table describe --store 'dynamodb:locks?layout=resource' --json",
                    "for a program" } },
    .exec = exec_describe,
};
