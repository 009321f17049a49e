#include <string.h>

#include "cli/commands/commands.h"
#include "cli/commands/serve_module.h"

static int exec_serve(struct cli_context *context, const struct options *options)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct serve_options serve = { .version = belay_version(),
                                   .config_path = context->config_path,
                                   .store_url = context->store_url,
                                   .state_store_url = context->state_store_url,
                                   .metrics = context->metrics,
                                   .unix_path = options_text(options, "unix"),
                                   .tls_certificate = options_text(options, "tls-cert"),
                                   .tls_key = options_text(options, "tls-key"),
                                   .insecure = options_has(options, "insecure"),
                                   .json = context->json,
                                   .quiet = context->quiet };
    const char *log = options_text(options, "log");
    struct serve_module module;
    int code = CLI_OK;

    for (size_t i = 0; options_nth(options, "listen", i) != NULL; i++) {
        if (i == SERVE_LISTEN_MAX) {
            return cli_fail(context, BELAY_INVALID, "--listen: %d addresses are the most", SERVE_LISTEN_MAX);
        }
        serve.listen[serve.n_listen++] = options_nth(options, "listen", i);
    }
    if ((serve.tls_certificate == NULL) != (serve.tls_key == NULL)) {
        return cli_fail(context, BELAY_INVALID, "--tls-cert and --tls-key go together: give both");
    }
    if (log != NULL) {
        serve.log = strcmp(log, "json") == 0 ? SERVE_LOG_JSON : SERVE_LOG_TEXT;
    }
    if (serve_module_load(&module, &err) != BELAY_OK || module.run(&serve, &err) != BELAY_OK) {
        code = cli_error(context, &err);
    }
    belay_error_release(&err);
    return code;
}

static const struct option_def defs[] = {
    { .name = "listen",
      .kind = OPTION_TEXT,
      .value = "ADDR:PORT",
      .help = "where to listen; by default server.listen, else 127.0.0.1:7420",
      .repeatable = true },
    { .name = "unix",
      .kind = OPTION_TEXT,
      .value = "PATH",
      .help = "listen on a unix socket that only this user may use",
      .complete = COMPLETE_FILE },
    { .name = "tls-cert",
      .kind = OPTION_TEXT,
      .value = "FILE",
      .help = "certificate chain in PEM; by default server.tls.certificate",
      .complete = COMPLETE_FILE },
    { .name = "tls-key",
      .kind = OPTION_TEXT,
      .value = "FILE",
      .help = "its key in PEM; by default server.tls.key",
      .complete = COMPLETE_FILE },
    { .name = "insecure",
      .kind = OPTION_FLAG,
      .help = "serve other machines although no tokens are configured" },
    { .name = "log",
      .kind = OPTION_CHOICE,
      .choices = "json|text",
      .help = "form of the log on standard error; by default text on a terminal" },
    { .name = NULL },
};
static const struct option_group group = { "Options", defs };

const struct cli_command cmd_serve = {
    .name = "serve",
    .synopsis = "[--listen ADDR:PORT]... [--unix PATH] [OPTIONS]",
    .summary = "serve the locks of a store over HTTP",
    .about =
        "Answers the HTTP API that docs/http.md describes, over the store that --store or the configuration "
        "names. An acquisition is on disk before it is answered. Whoever waits for a lock waits in the order "
        "of arrival.\n\n"
        "Without tokens in the configuration only this machine is served, and whoever can reach the port may "
        "do everything. 'belay auth new' makes a token.\n\n"
        "SIGTERM and SIGINT stop it: it answers who waits, and finishes what is under way. SIGHUP has it "
        "read "
        "the tokens and the TLS certificate again. Under systemd it takes sockets that were opened for it, "
        "and says when it is ready.",
    .groups = { &group },
    .exits = { { 0, "stopped by a signal" },
               { 64, "the command line is wrong" },
               { 69, "the store or the address could not be opened" },
               { 78, "the configuration is wrong, or would serve other machines without tokens" } },
    .examples = { { "belay serve", "on 127.0.0.1:7420, for this machine" },
                  { "belay serve --unix ./belay.sock --log json", "on a unix socket" } },
    .exec = exec_serve,
};
