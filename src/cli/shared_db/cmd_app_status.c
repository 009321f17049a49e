#include <stdlib.h>

#include "belay/shared_db.h"
#include "cli/commands/commands.h"
#include "cli/output/print.h"

static void print_app_status(const struct cli_context *context, const struct belay_app_status *status)
{
    const char *style = status->status == BELAY_HEALTH_UP     ? "green"
                        : status->status == BELAY_HEALTH_DOWN ? "red"
                                                              : "yellow";

    (void)printf("%s%s%s ", print_style(context->color_out, style), belay_health_name(status->status),
                 print_style(context->color_out, PRINT_RESET));
    print_line_escaped(stdout, "%s%s%s", status->app, status->reason == NULL ? "" : ": ",
                       status->reason == NULL ? "" : status->reason);
    for (size_t i = 0; !context->quiet && i < status->n_urls; i++) {
        const struct belay_url_status *one = &status->urls[i];
        char took[CLOCK_TEXT_SIZE];

        (void)printf("  %-8s", belay_health_name(one->status));
        if (one->http_code != 0) {
            (void)printf("%d  ", one->http_code);
        }
        print_line_escaped(stdout, "%s%s%s (%s)", one->url, one->reason == NULL ? "" : ": ",
                           one->reason == NULL ? "" : one->reason, clock_format_span(took, one->took_ms));
    }
}

static int exec_app_status(struct cli_context *context, const struct options *options,
                           struct belay_error *err)
{
    struct belay_client *client;
    struct belay_app_status *status = NULL;
    int code = CLI_OK;

    if (cli_existing_client(context, &client, err) != BELAY_OK ||
        belay_app_check_health(client, options->args[0], &status, err) != BELAY_OK) {
        code = cli_error(context, err);
    } else if (context->json) {
        code = cli_print_line(context, belay_app_status_to_json(status, true));
    } else {
        print_app_status(context, status);
    }
    belay_app_status_free(status);
    return code;
}

const struct cli_command cmd_app_status = {
    .name = "app status",
    .synopsis = "NAME",
    .summary = "check whether an application is up",
    .about =
        "Sends HEAD to all URLs of the application at once, or GET where HEAD is refused (405, 501), "
        "with a timeout of controller.quick_status_timeout (3 s). Redirects are followed and TLS "
        "certificates verified.\n\n"
        "UP: any URL answers 200. UNKNOWN: a URL does not answer; this keeps its databases from being "
        "stopped. DOWN: any other answer, or no connection to any URL while the application is recorded "
        "as stopped. An answer of 200 clears that record. With controller.quick_status_rule: cautious, the "
        "answers 401, 403, 429 and 5xx except 502 to 504 are UNKNOWN too.\n\n"
        "With --json it prints {\"app\", \"status\", \"http_code\", \"timestamp\", \"reason\", "
        "\"connected\", \"urls\"}.",
    .min_args = 1,
    .max_args = 1,
    .exits = { { 0, "checked, whatever the result" }, CLI_EXIT_USAGE, CLI_EXIT_UNREACHABLE, CLI_EXIT_CONFIG },
    .examples = { { "belay app status shop", "each URL and its answer" },
                  { "belay app status shop --json", "as JSON" } },
    .exec = exec_app_status,
};
