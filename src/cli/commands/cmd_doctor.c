#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/pool.h"
#include "cli/commands/commands.h"
#include "cli/output/print.h"
#include "json/json_write.h"

/* Every request has a timeout of its own; this one is for a disk that hangs, which nothing else bounds. */
enum { TIMEOUT_S = 90, LEVEL_WIDTH = 7, NAME_WIDTH = 14, GAP = 2 };

struct doctor_print {
    const struct cli_context *cli;
    size_t n;
    size_t n_warnings;
    size_t n_failed;
    bool failed; /* out of memory for a line */
};

static void print_finding_json(struct doctor_print *print, const struct belay_finding *finding)
{
    char *line = wire_line(json_pack(
        "{s:s,s:o,s:o,s:o,s:o}", "level", belay_finding_level_name(finding->level), "code",
        finding->level == BELAY_FINDING_FAILED ? wire_text(belay_code_name(finding->code)) : json_null(),
        "name", wire_text(finding->name), "text", wire_text(finding->text), "advice",
        wire_text(finding->advice)));

    print->failed = print->failed || line == NULL;
    (void)printf("%s%s", print->n == 0 ? "" : ",\n", line == NULL ? "{}" : line);
    free(line);
}

static void print_finding(const struct doctor_print *print, const struct belay_finding *finding)
{
    static const char *const words[] = { "ok", "warning", "FAILED" };
    static const char *const styles[] = { "green", "yellow", "red" };
    bool colour = print->cli->color_out;
    size_t indent = LEVEL_WIDTH + GAP + NAME_WIDTH + GAP;
    size_t name_width = strlen(finding->name);
    struct buf text = BUF_INIT((size_t)1 << 20);

    if (print->cli->quiet && finding->level == BELAY_FINDING_OK) {
        return;
    }
    (void)printf("%s%-*s%s%*s%-*s%*s", print_style(colour, styles[finding->level]), LEVEL_WIDTH,
                 words[finding->level], print_style(colour, PRINT_RESET), GAP, "", NAME_WIDTH, finding->name,
                 GAP, "");
    buf_addf(&text, "%s%s%s", finding->text, finding->advice == NULL ? "" : " -> ",
             finding->advice == NULL ? "" : finding->advice);
    print_wrapped(stdout, STDOUT_FILENO, indent + (name_width > NAME_WIDTH ? name_width - NAME_WIDTH : 0),
                  indent, text.failed ? "?" : text.data);
    buf_release(&text);
    (void)fflush(stdout); /* the next check may take a while */
}

static void report_finding(void *context, const struct belay_finding *finding)
{
    struct doctor_print *print = context;

    if (print->cli->json) {
        print_finding_json(print, finding);
    } else {
        print_finding(print, finding);
    }
    print->n++;
    print->n_warnings += finding->level == BELAY_FINDING_WARNING;
    print->n_failed += finding->level == BELAY_FINDING_FAILED;
}

static void *exit_on_timeout(void *context)
{
    struct timespec left = { TIMEOUT_S, 0 };
    struct cli_context *cli = context;

    while (nanosleep(&left, &left) != 0) {
    }
    (void)cli_fail(cli, BELAY_UNREACHABLE,
                   "timeout after %d s: the disk or the service of the last check does not answer",
                   TIMEOUT_S);
    _exit(CLI_UNREACHABLE);
}

static int exec_doctor(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    struct belay_doctor_options doctor = BELAY_DOCTOR_OPTIONS_INIT;
    struct doctor_print print = { .cli = context };
    enum belay_code code;

    (void)options;
    doctor.config_path = context->config_path;
    doctor.store_url = context->store_url;
    doctor.store_origin = "option --store";
    doctor.state_store_url = context->state_store_url;
    (void)thread_start_detached(exit_on_timeout, context);
    if (context->json) {
        (void)fputs("{\"findings\":[", stdout);
    }
    code = belay_doctor(&doctor, report_finding, &print, err);
    if (context->json) {
        (void)printf("],\"checks\":%zu,\"warnings\":%zu,\"failed\":%zu}\n", print.n, print.n_warnings,
                     print.n_failed);
    } else if (code != BELAY_OK) {
        (void)fflush(stdout);
        (void)cli_error(context, err);
    } else if (print.n_warnings > 0) {
        (void)fflush(stdout);
        cli_note(context, "%zu checks, %zu warning%s", print.n, print.n_warnings,
                 print.n_warnings == 1 ? "" : "s");
    }
    return print.failed ? CLI_BUG : cli_exit_code(code);
}

const struct cli_command cmd_doctor = {
    .name = "doctor",
    .synopsis = "",
    .summary = "check configuration, store, clock and permissions",
    .about = "Checks what belay depends on. Each check prints one line: ok, warning or FAILED, what was "
             "found, and what to do about it. A terminal shows a long line as several. With --quiet only "
             "warnings and failures are printed.\n\n"
             "Every store: the configuration file, the targets of notifications, the origin of the store's "
             "URL, and whether locking is switched off. SQLite: the directory, "
             "the file system, free space, permissions, the schema, the wake file and the clocks. DynamoDB: "
             "the region, the endpoint, the source of the credentials, the table's keys and time to live, "
             "the clock compared with the service's, and each action that IAM must allow. PostgreSQL: the "
             "connection, the schema, permissions, the tables for state, fsync, synchronous_commit, "
             "replication, the clock, wake-ups and their queue, and old transactions. Servers: each answers, "
             "accepts the token, can read its store and has the same one. The checks of SQLite and DynamoDB "
             "write to the store and remove what "
             "they wrote.\n\n"
             "A state store that is named by --state-store, BELAY_STATE_STORE or state_store is listed and "
             "read, and nothing is written to it.\n\n"
             "A store that does not exist is not created. Secrets are not printed.",
    .exits = { { 0, "nothing failed; there may be warnings" },
               CLI_EXIT_USAGE,
               CLI_EXIT_UNREACHABLE,
               { 77, "an action is not permitted" },
               { 78, "the configuration or the store is wrong" } },
    .examples = { { "belay doctor", "before the first lock on a machine" },
                  { "belay doctor --store dynamodb:deploy-locks --json", "as JSON" } },
    .exec = exec_doctor,
};
