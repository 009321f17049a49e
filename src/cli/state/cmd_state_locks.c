/* belay state locks: the locks of a stack (S4.10). */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/core/cli_list.h"
#include "cli/core/lock_options.h"
#include "cli/core/lock_print.h"
#include "cli/output/print.h"
#include "json/json_write.h"

struct stack_view {
    struct cli_list list;
    const struct options *options;
    const char *key; /* of the stack, or of the service or component given */
};

static const struct cli_list_kind locks = { .name = "locks" };

static void print_name(const char *name, const char *text)
{
    print_line_escaped(stdout, "  %s: %s", name, text);
}

static void print_when(const char *name, int64_t unix_ms, int64_t now)
{
    char day[PRINT_TIME_SIZE];
    char span[PRINT_TIME_SIZE];

    (void)printf("  %s: %s (%s ago)\n", name, print_day(day, unix_ms),
                 print_long_span(span, now - unix_ms, 2));
}

static void print_stack_holder(const struct cli_context *context, const struct belay_info *info)
{
    int64_t now = clock_unix_ms();
    char span[PRINT_TIME_SIZE];

    print_name("Locked", "Yes");
    print_name("Locked by", info->locked_by);
    if (info->n_holders > 1) {
        (void)printf("  Shared with: %zu more; 'belay status' shows them\n", info->n_holders - 1);
    }
    print_when("Locked at", info->locked_at_unix_ms, now);
    if (info->last_heartbeat_unix_ms != 0) {
        print_when("Last heartbeat", info->last_heartbeat_unix_ms, now);
    }
    print_name("Expires in", print_long_span(span, info->expires_in_ms, 2));
    if (info->is_stale) {
        (void)printf("  Status: %s⚠ STALE%s (no heartbeat for >%s)\n",
                     print_style(context->color_out, "yellow"), print_style(context->color_out, PRINT_RESET),
                     print_long_span(span, now - info->last_heartbeat_unix_ms, 1));
    } else {
        print_name("Status", "active");
    }
}

/* The names given on the command line. */
static void print_head(const struct stack_view *view)
{
    static const char *const names[][2] = { { "stack", "Stack" },
                                            { "environment", "Environment" },
                                            { "service", "Service" },
                                            { "component", "Component" } };

    (void)puts("Lock Status:");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *text = options_text(view->options, names[i][0]);

        if (text != NULL) {
            print_name(names[i][1], text);
        }
    }
}

static bool print_stack_lock(void *context, const struct belay_info *info)
{
    struct stack_view *view = context;
    size_t n = strlen(view->key);

    /* The prefix also matches longer names of environments. */
    if (strncmp(info->key, view->key, n) != 0 || (info->key[n] != '\0' && info->key[n] != ':')) {
        return true;
    }
    if (view->list.form == CLI_LIST_JSON) {
        cli_list_add_json(&view->list, wire_line(wire_lock(info)));
    } else if (info->key[n] == '\0') {
        print_head(view);
        print_stack_holder(view->list.context, info);
    } else {
        if (view->list.n == 0) {
            print_head(view);
            print_name("Locked", "No, but a part of it is");
        }
        (void)putchar('\n');
        print_line_escaped(stdout, "%s:", info->key);
        print_stack_holder(view->list.context, info);
    }
    return cli_list_next(&view->list);
}

static int print_stack(struct cli_context *context, struct belay_client *client, struct stack_view *view,
                       struct belay_error *err)
{
    struct belay_query query = BELAY_QUERY_INIT;
    int status = cli_list_begin(&view->list, &locks, context);

    query.prefix = view->key;
    query.status = BELAY_STATUS_ACTIVE;
    if (status == CLI_OK) {
        status =
            cli_list_end(&view->list, belay_list(client, &query, print_stack_lock, view, NULL, err), err);
    }
    if (status == CLI_OK && view->list.n == 0 && !context->json) {
        print_head(view);
        print_name("Locked", "No");
    }
    if (status == CLI_OK) {
        cli_list_close(&view->list, ",\"next_cursor\":null");
    }
    return status;
}

static int exec_state_locks(struct cli_context *context, const struct options *options,
                            struct belay_error *err)
{
    struct stack_view view = { .options = options };
    struct belay_client *client;
    char *key = NULL;
    int code;

    if (read_key_argument(context, options, 0, &key, err) != BELAY_OK ||
        cli_client(context, &client, err) != BELAY_OK) {
        code = cli_error(context, err);
    } else {
        view.key = key;
        code = print_stack(context, client, &view, err);
    }
    free(key);
    return code;
}

static const struct option_group group = { "Options",
                                           OPTION_TABLE(OPT_TEXT("stack", "S", "the stack"),
                                                        OPT_TEXT("environment", "E", "the environment"),
                                                        OPT_TEXT("service", "V", "only this service"),
                                                        OPT_TEXT("component", "C", "only this component")) };

const struct cli_command cmd_state_locks = {
    .name = "state locks",
    .synopsis = "--stack S --environment E [--service V | --component C]",
    .summary = "show the locks of a stack",
    .about = "Shows whether a stack is locked, its holder, since when, and the last heartbeat; then the "
             "locks of its services and components. A lock whose holder has missed its heartbeats is stale; "
             "'belay unlock' can end it.",
    .groups = { &group },
    .exits = { { 0, "shown, locked or not" }, CLI_EXIT_USAGE, CLI_EXIT_UNREACHABLE },
    .examples = { { "belay state locks --stack shop --environment prod", "who is deploying shop?" },
                  { "belay state locks --stack shop --environment prod --json", "as JSON" } },
    .exec = exec_state_locks,
};
