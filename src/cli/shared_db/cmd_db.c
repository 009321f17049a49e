#include "belay/shared_db.h"
#include "cli/commands/commands.h"
#include "cli/core/cli_list.h"
#include "cli/output/print.h"

/* ---- stop and start ----------------------------------------------------------- */

static void print_db_step(void *context, enum belay_level level, const char *text)
{
    if (level == BELAY_LEVEL_WARNING) {
        cli_warn(context, "%s", text);
    } else {
        cli_note(context, "%s", text);
    }
}

/* With --json the steps are not printed: the results contain them. */
static void on_step_json(void *context, enum belay_level level, const char *text)
{
    (void)context;
    (void)level;
    (void)text;
}

static void print_result(const struct cli_context *context, const struct belay_db_result *result)
{
    bool is_done = result->action == BELAY_DB_STOPPED || result->action == BELAY_DB_STARTED;
    const char *style = is_done ? "green" : result->action == BELAY_DB_ERROR ? "red" : "yellow";

    (void)printf("%s%s%s %s ", print_style(context->color_out, style), belay_db_action_name(result->action),
                 print_style(context->color_out, PRINT_RESET), result->kind);
    print_line_escaped(stdout, "%s: %s", result->database, result->reason == NULL ? "?" : result->reason);
}

/* Any failure to decide is 69, except for those with an exit code of their own. */
static int results_exit_code(const struct belay_db_results *results)
{
    enum belay_code code = belay_db_results_code(results);

    switch (code) {
    case BELAY_OK:
    case BELAY_HELD:
    case BELAY_CONFIG:
    case BELAY_CANCELLED:
        return cli_exit_code(code);
    case BELAY_LOST:
        return CLI_LOST;
    default:
        return CLI_UNREACHABLE;
    }
}

static int print_results(const struct cli_context *context, const struct belay_db_results *results)
{
    int status = CLI_OK;

    if (context->json) {
        status = cli_print_line(context, belay_db_results_to_json(results));
    } else if (results->n == 0) {
        cli_note(context, "the application has no databases: nothing to do");
    }
    for (size_t i = 0; !context->json && i < results->n; i++) {
        print_result(context, &results->results[i]);
    }
    return status == CLI_OK ? results_exit_code(results) : status;
}

static int stop_or_start(struct cli_context *context, const struct options *options, bool is_start,
                         struct belay_error *err)
{
    struct belay_db_options db = BELAY_DB_OPTIONS_INIT;
    struct belay_db_results *results = NULL;
    struct belay_client *client;
    enum belay_code code;
    int status;

    db.app = options_text(options, "app");
    db.database = options_text(options, "database");
    db.dry_run = options_has(options, "dry-run");
    db.by = options_text(options, "by");
    (void)options_duration(options, "wait", &db.wait_ms);
    db.on_step = context->json ? on_step_json : print_db_step;
    db.context = context;
    if ((db.app == NULL) == (db.database == NULL)) {
        return cli_fail(context, BELAY_INVALID, "give either --app NAME or --database ID");
    }
    code = cli_existing_client(context, &client, err);
    if (code == BELAY_OK) {
        db.cancel = cli_cancel(context);
        code =
            is_start ? belay_db_start(client, &db, &results, err) : belay_db_stop(client, &db, &results, err);
    }
    status = code == BELAY_OK ? print_results(context, results) : cli_error(context, err);
    belay_db_results_free(results);
    return status;
}

static int exec_db_stop(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    return stop_or_start(context, options, false, err);
}

static int exec_db_start(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    return stop_or_start(context, options, true, err);
}

/* ---- list ----------------------------------------------------------------------- */

static const struct text_column columns[] = {
    { "DATABASE", 10 }, { "KIND", 0 }, { "USED BY", 12 }, { "LAST", 8 }, { "WHY", 10 },
};
static const struct cli_list_kind databases = { "databases", columns, sizeof columns / sizeof columns[0],
                                                true };

static void add_database_row(struct text_table *table, const struct belay_database *database)
{
    struct buf users = BUF_INIT(1 << 16);
    struct buf last = BUF_INIT(1 << 12);
    char ago[CLOCK_TEXT_SIZE];

    for (size_t i = 0; i < database->n_users; i++) {
        buf_addf(&users, "%s%s%s", i == 0 ? "" : " ", database->users[i].app,
                 database->users[i].state == BELAY_APP_STOPPED          ? "(stopped)"
                 : database->users[i].state == BELAY_APP_STOP_REQUESTED ? "(stop requested)"
                                                                        : "");
    }
    if (database->last != NULL) {
        int64_t age_ms = clock_unix_ms() - database->last->at_unix_ms;

        buf_addf(&last, "%s %s ago", belay_db_action_name(database->last->action),
                 clock_format_span(ago, age_ms < 0 ? 0 : age_ms / 1000 * 1000));
    }
    text_table_add(table, database->id);
    text_table_add(table, database->kind);
    text_table_add(table, users.data == NULL ? "-" : users.data);
    text_table_add(table, last.data == NULL ? "-" : last.data);
    text_table_add(table,
                   database->last == NULL || database->last->reason == NULL ? "-" : database->last->reason);
    buf_release(&users);
    buf_release(&last);
}

static bool on_database(void *context, const struct belay_database *database)
{
    struct cli_list *list = context;

    switch (list->form) {
    case CLI_LIST_JSON:
        cli_list_add_json(list, belay_database_to_json(database));
        break;
    case CLI_LIST_NAMES:
        cli_list_add_name(list, database->id);
        break;
    case CLI_LIST_TABLE:
        add_database_row(list->table, database);
        break;
    }
    return cli_list_next(list);
}

static enum belay_code read_db_list(struct belay_client *client, struct cli_list *list,
                                    struct belay_error *err)
{
    return belay_db_list(client, on_database, list, err);
}

static int exec_db_list(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    (void)options;
    return cli_list_all(context, &databases, read_db_list, "databases",
                        "to add one: belay app register NAME --url URL --database KIND=ID", err);
}

/* ---- the entries ------------------------------------------------------------------ */

#define BY_OPTION OPT_TEXT("by", "WHO", "name to record for this action; default: user@host")

static const struct option_group stop_group = {
    "Options",
    OPTION_TABLE(OPT_TEXT("app", "NAME", "the databases of this application; its own status is not checked"),
                 OPT_TEXT("database", "ID", "this database; all applications that use it are checked"),
                 OPT_FLAG("dry-run", "print what would happen and why; change nothing"),
                 OPT_DURATION("wait", "retry for this long until all are down and the lock is free"),
                 BY_OPTION)
};

static const struct option_group start_group = {
    "Options", OPTION_TABLE(OPT_TEXT("app", "NAME", "the databases of this application"),
                            OPT_TEXT("database", "ID", "this database"),
                            OPT_FLAG("dry-run", "print what would happen; change nothing"),
                            OPT_DURATION("wait", "wait this long for the lock"), BY_OPTION)
};

#define DB_EXITS(done, held)                                                                                 \
    {                                                                                                        \
        { 0, (done) }, CLI_EXIT_USAGE, { 66, "the registry has no such application or database" },           \
            { 69, "a check or the action failed" }, { 75, (held) },                                          \
            { 76, "the lease was lost during the action; the action was ended" },                            \
            { 78, "the configuration is wrong, or does not define the action" },                             \
    }

const struct cli_command cmd_db_stop = {
    .name = "db stop",
    .synopsis = "--app NAME | --database ID [--dry-run] [--wait D]",
    .summary = "stop a database that no application uses",
    .about = "Acquires the database's lock (LOCK#DB#ID), reads the registry, checks all other applications "
             "that use the database, and stops the database only if every one of them is DOWN. Any doubt "
             "prevents the stop: an application that does not answer, a registry that cannot be read, a lost "
             "lock. The configuration defines how to stop each kind of database ('databases'). The lock is "
             "held until the stop has taken effect.\n\n"
             "With --app, belay first records that the stop of the application was requested, and after its "
             "databases are stopped, that it is stopped. A skipped stop does not record it as stopped. With "
             "either record, other applications that share the database treat it as DOWN while it accepts no "
             "connection. With --wait the checks are repeated until all are down.\n\n"
             "With --json it prints {\"results\": [{\"database\", \"kind\", \"host\", \"action\", "
             "\"reason\", \"shared\", \"sharing_apps\", \"active_apps\"}]}; action is stopped, "
             "skipped_shared_active, skipped_lock, skipped or error.",
    .groups = { &stop_group },
    .exits = DB_EXITS("stopped, or there was nothing to do",
                      "skipped: in use, or another operation is in progress"),
    .examples = { { "belay db stop --app shop", "after shop was shut down" },
                  { "belay db stop --app shop --wait 5m", "while other applications shut down too" },
                  { "belay db stop --database 10.0.1.5:5432 --dry-run", "show what would happen, and why" } },
    .exec = exec_db_stop,
};

const struct cli_command cmd_db_start = {
    .name = "db start",
    .synopsis = "--app NAME | --database ID [--dry-run] [--wait D]",
    .summary = "start a database",
    .about = "Starts databases under the same lock as 'belay db stop', so that a start cannot race with a "
             "stop. With --app, the application is recorded as running: until it answers it is UNKNOWN, and "
             "its databases are not stopped.",
    .groups = { &start_group },
    .exits = DB_EXITS("started, or already running", "another operation is in progress"),
    .examples = { { "belay db start --app shop --wait 2m", "before shop is started" } },
    .exec = exec_db_start,
};

const struct cli_command cmd_db_list = {
    .name = "db list",
    .synopsis = "",
    .summary = "list databases, their users and last decisions",
    .about = "Lists the databases of the registry, the applications that use each, their recorded states, "
             "and the last decision about the database with its reason. No health check is made.",
    .exits = { { 0, "listed, even if there are none" },
               CLI_EXIT_USAGE,
               CLI_EXIT_UNREACHABLE,
               CLI_EXIT_CONFIG },
    .examples = { { "belay db list", "all databases" }, { "belay db list --json", "as JSON" } },
    .exec = exec_db_list,
};
