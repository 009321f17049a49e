#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "belay/shared_db.h"
#include "cli/commands/commands.h"
#include "cli/core/cli_list.h"
#include "cli/output/print.h"

/* ---- register --------------------------------------------------------------- */

static enum belay_code add_labels(struct belay_app *app, const struct options *options,
                                  struct belay_error *err)
{
    enum belay_code code = BELAY_OK;
    const char *text;

    for (size_t i = 0; code == BELAY_OK && (text = options_nth(options, "label", i)) != NULL; i++) {
        const char *equals = strchr(text, '=');
        char *name = equals == NULL ? NULL : strndup(text, (size_t)(equals - text));

        if (equals == NULL || equals == text) {
            code = error_set(err, BELAY_INVALID, "--label '%.100s' is not NAME=VALUE, such as team=payments",
                             text);
        } else {
            code = name == NULL ? error_no_memory(err) : belay_app_add_label(app, name, equals + 1, err);
        }
        free(name);
    }
    return code;
}

static enum belay_code app_from_options(const struct options *options, struct belay_app **out_app,
                                        struct belay_error *err)
{
    struct belay_app *app = calloc(1, sizeof *app);
    enum belay_code code = BELAY_OK;
    const char *text;

    if (app == NULL || (app->name = strdup(options->args[0])) == NULL) {
        free(app);
        return error_no_memory(err);
    }
    for (size_t i = 0; code == BELAY_OK && (text = options_nth(options, "url", i)) != NULL; i++) {
        code = belay_app_add_url(app, text, err);
    }
    for (size_t i = 0; code == BELAY_OK && (text = options_nth(options, "database", i)) != NULL; i++) {
        code = belay_app_add_database(app, text, err);
    }
    if (code == BELAY_OK) {
        code = add_labels(app, options, err);
    }
    if (code != BELAY_OK) {
        belay_app_free(app);
        return code;
    }
    *out_app = app;
    return BELAY_OK;
}

static int exec_app_register(struct cli_context *context, const struct options *options,
                             struct belay_error *err)
{
    struct belay_client *client;
    struct belay_app *app = NULL;
    struct belay_app *kept = NULL;
    bool is_new = true;
    int status = CLI_OK;

    if (app_from_options(options, &app, err) != BELAY_OK || cli_client(context, &client, err) != BELAY_OK ||
        belay_app_register(client, app, options_has(options, "replace"), &is_new, err) != BELAY_OK ||
        (context->json && belay_app_get(client, app->name, &kept, err) != BELAY_OK)) {
        status = cli_error(context, err);
    } else if (context->json) {
        status = cli_print_line(context, belay_app_to_json(kept));
    } else if (!context->quiet) {
        (void)printf("%s '%s'\n", is_new ? "Registered" : "Replaced", app->name);
    }
    belay_app_free(kept);
    belay_app_free(app);
    return status;
}

/* ---- show ------------------------------------------------------------------- */

static void print_app(const struct belay_app *app)
{
    char since[PRINT_TIME_SIZE];

    print_field("name", app->name);
    for (size_t i = 0; i < app->n_urls; i++) {
        print_field(i == 0 ? "urls" : "", app->urls[i]);
    }
    for (size_t i = 0; i < app->n_databases; i++) {
        char text[600];

        (void)snprintf(text, sizeof text, "%.64s %.255s%s%.255s", app->databases[i].kind,
                       app->databases[i].id, app->databases[i].host == NULL ? "" : " at ",
                       app->databases[i].host == NULL ? "" : app->databases[i].host);
        print_field(i == 0 ? "databases" : "", text);
    }
    for (size_t i = 0; i < app->n_labels; i++) {
        char text[400];

        (void)snprintf(text, sizeof text, "%.128s=%.250s", app->labels[i].name, app->labels[i].value);
        print_field(i == 0 ? "labels" : "", text);
    }
    print_field("recorded as", belay_app_state_name(app->state));
    if (app->since_unix_ms != 0) {
        print_field("since", print_ago(since, app->since_unix_ms, clock_unix_ms()));
        print_field("by", app->by == NULL ? "?" : app->by);
    }
}

static int exec_app_show(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    struct belay_client *client;
    struct belay_app *app = NULL;
    int status = CLI_OK;

    if (cli_existing_client(context, &client, err) != BELAY_OK ||
        belay_app_get(client, options->args[0], &app, err) != BELAY_OK) {
        status = cli_error(context, err);
    } else if (context->json) {
        status = cli_print_line(context, belay_app_to_json(app));
    } else {
        print_app(app);
    }
    belay_app_free(app);
    return status;
}

/* ---- list ------------------------------------------------------------------- */

static const struct text_column columns[] = {
    { "NAME", 8 },
    { "RECORDED", 0 },
    { "DATABASES", 12 },
    { "URLS", 12 },
};
static const struct cli_list_kind apps = { "apps", columns, sizeof columns / sizeof columns[0], true };

static void add_app_row(struct text_table *table, const struct belay_app *app)
{
    struct buf databases = BUF_INIT(1 << 16);
    struct buf urls = BUF_INIT(1 << 16);

    for (size_t i = 0; i < app->n_databases; i++) {
        buf_addf(&databases, "%s%s=%s", i == 0 ? "" : " ", app->databases[i].kind, app->databases[i].id);
    }
    for (size_t i = 0; i < app->n_urls; i++) {
        buf_addf(&urls, "%s%s", i == 0 ? "" : " ", app->urls[i]);
    }
    text_table_add(table, app->name);
    text_table_add(table, belay_app_state_name(app->state));
    text_table_add(table, databases.data == NULL ? "-" : databases.data);
    text_table_add(table, urls.data == NULL ? "-" : urls.data);
    buf_release(&databases);
    buf_release(&urls);
}

static bool on_app(void *context, const struct belay_app *app)
{
    struct cli_list *list = context;

    switch (list->form) {
    case CLI_LIST_JSON:
        cli_list_add_json(list, belay_app_to_json(app));
        break;
    case CLI_LIST_NAMES:
        cli_list_add_name(list, app->name);
        break;
    case CLI_LIST_TABLE:
        add_app_row(list->table, app);
        break;
    }
    return cli_list_next(list);
}

static enum belay_code read_apps(struct belay_client *client, struct cli_list *list, struct belay_error *err)
{
    return belay_app_list(client, on_app, list, err);
}

static int exec_app_list(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    (void)options;
    return cli_list_all(context, &apps, read_apps, "applications",
                        "to add one: belay app register NAME --url URL --database KIND=ID", err);
}

/* ---- remove and mark ---------------------------------------------------------- */

static int exec_app_remove(struct cli_context *context, const struct options *options,
                           struct belay_error *err)
{
    struct belay_client *client;

    if (cli_existing_client(context, &client, err) != BELAY_OK ||
        belay_app_remove(client, options->args[0], 0, err) != BELAY_OK) {
        return cli_error(context, err);
    }
    if (context->json) {
        (void)printf("{}\n");
    } else if (!context->quiet) {
        (void)printf("Removed '%s'\n", options->args[0]);
    }
    return CLI_OK;
}

static int record_app_state(struct cli_context *context, const struct options *options,
                            enum belay_app_state state, struct belay_error *err)
{
    struct belay_client *client;
    struct belay_app *app = NULL;
    int status = CLI_OK;

    if (cli_existing_client(context, &client, err) != BELAY_OK ||
        belay_app_set_state(client, options->args[0], state, options_text(options, "by"), &app, err) !=
            BELAY_OK) {
        status = cli_error(context, err);
    } else if (context->json) {
        status = cli_print_line(context, belay_app_to_json(app));
    } else if (!context->quiet) {
        (void)printf("Recorded '%s' as %s\n", app->name, belay_app_state_name(state));
    }
    belay_app_free(app);
    return status;
}

static int exec_app_mark_stopped(struct cli_context *context, const struct options *options,
                                 struct belay_error *err)
{
    return record_app_state(context, options, BELAY_APP_STOPPED, err);
}

static int exec_app_mark_running(struct cli_context *context, const struct options *options,
                                 struct belay_error *err)
{
    return record_app_state(context, options, BELAY_APP_RUNNING, err);
}

/* ---- the entries ---------------------------------------------------------------- */

static const struct option_group register_group = {
    "Options",
    OPTION_TABLE(
        OPT_LIST("url", "URL", "URL of a health check; the application is up if any URL answers 200"),
        OPT_LIST("database", "KIND=ID",
                 "a database that it uses; ID is an EC2 instance id, HOST:PORT, or i-...@HOST:PORT"),
        OPT_LIST("label", "NAME=VALUE", "a label for people"),
        OPT_FLAG("replace",
                 "replace an application of this name; its recorded state stays if its URLs stay"))
};

static const struct option_group mark_group = {
    "Options", OPTION_TABLE(OPT_TEXT("by", "WHO", "name to record with the state; default: user@host"))
};

#define EXITS                                                                                                \
    {                                                                                                        \
        { 0, "done" }, CLI_EXIT_USAGE, { 66, "there is no such application" }, CLI_EXIT_UNREACHABLE,         \
            CLI_EXIT_CONFIG,                                                                                 \
    }

const struct cli_command cmd_app_register = {
    .name = "app register",
    .synopsis = "NAME --url URL... --database KIND=ID...",
    .summary = "add an application to the registry",
    .about = "Registers an application: the databases that it uses, and the URLs that show whether it is up. "
             "'belay db stop' stops a database only if all other applications that use it are down.\n\n"
             "KIND is postgres, neo4j, or a kind that the configuration defines under 'databases'. ID is an "
             "EC2 instance id, else HOST:PORT. Applications that share a database must give the same ID.",
    .groups = { &register_group },
    .min_args = 1,
    .max_args = 1,
    .exits = { { 0, "registered" },
               { 64, "the command line is wrong, or the name is taken" },
               CLI_EXIT_UNREACHABLE,
               CLI_EXIT_CONFIG },
    .examples = { { "belay app register shop --url http://shop.example --database postgres=db:5432",
                    "one URL, one database" },
                  { "belay app register crm --url http://10.0.2.7 --database neo4j=i-01234567",
                    "a database by its EC2 instance" } },
    .exec = exec_app_register,
};

const struct cli_command cmd_app_show = {
    .name = "app show",
    .synopsis = "NAME",
    .summary = "show one application",
    .about = "Shows the registry's entry of an application, without any health check; see 'belay app "
             "status'.",
    .min_args = 1,
    .max_args = 1,
    .exits = EXITS,
    .examples = { { "belay app show shop", "as text" }, { "belay app show shop --json", "as JSON" } },
    .exec = exec_app_show,
};

const struct cli_command cmd_app_list = {
    .name = "app list",
    .synopsis = "",
    .summary = "list the applications",
    .about = "Lists the applications in the registry. With --quiet only the names are printed; with --json "
             "{\"apps\": [...]}.",
    .exits = { { 0, "listed, even if there are none" },
               CLI_EXIT_USAGE,
               CLI_EXIT_UNREACHABLE,
               CLI_EXIT_CONFIG },
    .examples = { { "belay app list", "all applications" } },
    .exec = exec_app_list,
};

const struct cli_command cmd_app_remove = {
    .name = "app remove",
    .synopsis = "NAME",
    .summary = "remove an application from the registry",
    .about = "Removes the application. It no longer prevents a database from being stopped. A database that "
             "only it used can still be stopped with 'belay db stop --database'.",
    .min_args = 1,
    .max_args = 1,
    .exits = EXITS,
    .examples = { { "belay app remove shop", "shop was retired" } },
    .exec = exec_app_remove,
};

const struct cli_command cmd_app_mark_stopped = {
    .name = "app mark-stopped",
    .synopsis = "NAME [--by WHO]",
    .summary = "record that an application is stopped",
    .about = "Records that the application is stopped. From then on it counts as DOWN while it accepts no "
             "connection. Without this record, an application that does not answer its health checks is "
             "UNKNOWN, which keeps its databases from being stopped.\n\n"
             "belay removes the record when it sees the application UP, and ignores records older than "
             "controller.stopped_record_max_age (24h). 'belay db stop --app' records it after it has stopped "
             "the databases.",
    .groups = { &mark_group },
    .min_args = 1,
    .max_args = 1,
    .exits = EXITS,
    .examples = { { "belay app mark-stopped shop", "shop was shut down by hand" } },
    .exec = exec_app_mark_stopped,
};

const struct cli_command cmd_app_mark_running = {
    .name = "app mark-running",
    .synopsis = "NAME [--by WHO]",
    .summary = "record that an application is running",
    .about = "Undoes 'belay app mark-stopped': an application that does not answer is UNKNOWN again. 'belay "
             "db start --app' records it too.",
    .groups = { &mark_group },
    .min_args = 1,
    .max_args = 1,
    .exits = EXITS,
    .examples = { { "belay app mark-running shop", "before shop is started by hand" } },
    .exec = exec_app_mark_running,
};
