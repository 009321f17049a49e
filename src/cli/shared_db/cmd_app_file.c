/* belay app import and export. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "belay/shared_db.h"
#include "cli/commands/commands.h"

enum { IMPORT_MAX = 64 << 20 };

struct import {
    struct belay_client *client;
    struct belay_error *err;
    enum belay_code code;
    size_t n_new;
    size_t n_replaced;
};

static bool import_app(void *context, const struct belay_app *app)
{
    struct import *import = context;
    bool is_new = true;

    import->code = belay_app_register(import->client, app, true, &is_new, import->err);
    *(is_new ? &import->n_new : &import->n_replaced) += import->code == BELAY_OK;
    return import->code == BELAY_OK;
}

static int exec_app_import(struct cli_context *context, const struct options *options,
                           struct belay_error *err)
{
    struct import import = { .err = err };
    const struct belay_config *config = NULL;
    struct buf text = BUF_INIT(IMPORT_MAX);
    enum belay_code code = cli_read_file(options->args[0], &text, err);
    int status = CLI_OK;

    if (code == BELAY_OK) {
        code = cli_config(context, &config, err);
    }
    if (code == BELAY_OK) {
        code = cli_client(context, &import.client, err);
    }
    if (code == BELAY_OK) {
        code = belay_apps_from_yaml(config, options->args[0], text.data == NULL ? "" : text.data, text.len,
                                    import_app, &import, err);
    }
    if (code != BELAY_OK || import.code != BELAY_OK) {
        status = cli_error(context, err);
    } else if (context->json) {
        (void)printf("{\"registered\":%zu,\"replaced\":%zu}\n", import.n_new, import.n_replaced);
    } else if (!context->quiet) {
        (void)printf("Registered %zu, replaced %zu\n", import.n_new, import.n_replaced);
    }
    buf_release(&text);
    return status;
}

static bool print_yaml(void *context, const struct belay_app *app)
{
    size_t *n = context;
    char *text = belay_app_to_yaml(app);

    if (text == NULL) {
        return false;
    }
    (void)printf("%s%s", *n == 0 ? "apps:\n" : "", text);
    (*n)++;
    free(text);
    return !ferror(stdout);
}

static int exec_app_export(struct cli_context *context, const struct options *options,
                           struct belay_error *err)
{
    struct belay_client *client;
    size_t n = 0;

    (void)options;
    if (cli_existing_client(context, &client, err) != BELAY_OK ||
        belay_app_list(client, print_yaml, &n, err) != BELAY_OK) {
        return cli_error(context, err);
    }
    if (n == 0) {
        (void)printf("apps: []\n");
    }
    return CLI_OK;
}

const struct cli_command cmd_app_import = {
    .name = "app import",
    .synopsis = "FILE",
    .summary = "import applications from a YAML file",
    .about = "Reads a list under 'apps', each with name, urls, databases (KIND=ID) and optional labels and "
             "state, as 'belay app export' prints it; '-' is standard input. The whole file is checked "
             "before the first application is written. Applications of the same name are replaced; others "
             "are kept.",
    .min_args = 1,
    .max_args = 1,
    .exits = { { 0, "imported" },
               CLI_EXIT_USAGE,
               { 65, "the file is invalid; the message names the line, and nothing was changed" },
               { 66, "FILE cannot be opened" },
               { 69, "the store is unreachable; repeat the import" },
               CLI_EXIT_CONFIG },
    .examples = { { "belay app import apps.yaml", "after every change of the file" } },
    .exec = exec_app_import,
};

const struct cli_command cmd_app_export = {
    .name = "app export",
    .synopsis = "",
    .summary = "print the registry as YAML",
    .about = "Prints all applications as YAML, for 'belay app import'.",
    .exits = { { 0, "printed" }, CLI_EXIT_USAGE, CLI_EXIT_UNREACHABLE, CLI_EXIT_CONFIG },
    .examples = { { "belay app export > apps.yaml", "the whole registry" } },
    .exec = exec_app_export,
};
