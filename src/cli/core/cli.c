/* The configuration, the client and the telemetry of a command. */
#include "cli/core/cli.h"

#include <assert.h>
#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/store_url.h"
#include "cli/output/print.h"
#include "telemetry/telemetry.h"

void cli_user_name(char *out, size_t size)
{
    const struct passwd *entry = getpwuid(getuid());

    if (entry != NULL) {
        (void)snprintf(out, size, "%s", entry->pw_name);
    } else {
        (void)snprintf(out, size, "uid %lu", (unsigned long)getuid());
    }
}

enum belay_code cli_config(struct cli_context *context, const struct belay_config **out_config,
                           struct belay_error *err)
{
    if (context->config == NULL) {
        enum belay_code code = belay_config_load(context->config_path, &context->config, err);

        if (code != BELAY_OK) {
            return code;
        }
        context->is_locking_disabled =
            strcmp(belay_config_get(context->config, "locking_enabled"), "false") == 0;
    }
    *out_config = context->config;
    return BELAY_OK;
}

static void on_client_warning(void *context, const char *text)
{
    cli_warn(context, "%s", text);
}

static void on_client_event(void *context, const struct belay_event *event)
{
    const struct cli_context *cli = context;

    if (cli->verbose) {
        print_event(stderr, event, cli->json, cli->color_err);
    }
    telemetry_event(cli->telemetry, event);
}

static bool traceparent(void *context, const char *lock_id, bool is_held, char out[BELAY_TRACEPARENT_SIZE])
{
    const struct cli_context *cli = context;

    return telemetry_traceparent(cli->telemetry, lock_id, is_held, out);
}

const char *cli_store_url(struct cli_context *context)
{
    const struct belay_config *config;

    if (context->store_url != NULL) {
        return context->store_url;
    }
    return cli_config(context, &config, NULL) == BELAY_OK ? belay_config_get(config, "store") : NULL;
}

static bool is_missing_file(const char *store_url)
{
    char *path = store_url == NULL ? NULL : store_url_place(store_url, "sqlite:");
    bool is_missing = path != NULL && access(path, F_OK) != 0 && errno == ENOENT;

    free(path);
    return is_missing;
}

enum belay_code cli_client(struct cli_context *context, struct belay_client **out_client,
                           struct belay_error *err)
{
    struct belay_client_options options = BELAY_CLIENT_OPTIONS_INIT;
    struct telemetry_options telemetry = { .metrics = context->metrics,
                                           .service = "belay",
                                           .traceparent = getenv("TRACEPARENT"),
                                           .on_warning = on_client_warning,
                                           .context = context };

    if (context->client == NULL) {
        enum belay_code code = cli_config(context, &options.config, err);

        if (code != BELAY_OK) {
            return code;
        }
        telemetry.config = options.config;
        code = telemetry_open(&telemetry, &context->telemetry, err);
        if (code != BELAY_OK) {
            return code;
        }
        options.store_url = context->store_url;
        context->is_new_store = is_missing_file(cli_store_url(context));
        options.on_warning = on_client_warning;
        options.on_event = context->verbose || context->telemetry != NULL ? on_client_event : NULL;
        options.traceparent = context->telemetry == NULL ? NULL : traceparent;
        options.context = context;
        code = belay_client_open(&options, &context->client, err);
        if (code != BELAY_OK) {
            return code;
        }
    }
    *out_client = context->client;
    return BELAY_OK;
}

static bool is_store_configured(const struct cli_context *context)
{
    for (size_t i = 0; i < belay_config_count(context->config); i++) {
        struct belay_setting setting = belay_config_setting(context->config, i);

        if (strcmp(setting.name, "store") == 0) {
            return strcmp(setting.origin, "default") != 0;
        }
    }
    return false;
}

/* A path with a typo in it must not become an empty store. The default path may be new. */
static enum belay_code check_store_path(struct cli_context *context, struct belay_error *err)
{
    const char *url = cli_store_url(context);
    char *path = url == NULL ? NULL : store_url_place(url, "sqlite:");
    char *slash = path == NULL ? NULL : strrchr(path, '/');
    enum belay_code code = BELAY_OK;

    if (slash != NULL && slash != path && !context->is_locking_disabled &&
        (context->store_url != NULL || is_store_configured(context))) {
        *slash = '\0';
        if (access(path, F_OK) != 0 && errno == ENOENT) {
            code = error_set(err, BELAY_NOT_FOUND,
                             "there is no store at '%.200s': the directory '%.200s' does not exist; "
                             "'belay acquire' and 'belay run' create a store",
                             url, path);
        }
    }
    free(path);
    return code;
}

enum belay_code cli_existing_client(struct cli_context *context, struct belay_client **out_client,
                                    struct belay_error *err)
{
    const struct belay_config *config;
    enum belay_code code = cli_config(context, &config, err);

    if (code == BELAY_OK) {
        code = check_store_path(context, err);
    }
    return code == BELAY_OK ? cli_client(context, out_client, err) : code;
}

void cli_client_entered(struct cli_context *context)
{
    atomic_fetch_add(&context->client_users, 1);
}

void cli_client_left(struct cli_context *context)
{
    int before = atomic_fetch_sub(&context->client_users, 1);

    assert(before > 0);
}

bool cli_close(struct cli_context *context)
{
    long pid = context->client == NULL ? 0 : belay_client_server_pid(context->client);
    bool is_used = atomic_load(&context->client_users) > 0;

    if (context->verbose && pid != 0) {
        cli_note(context, "used the server with process id %ld, which serves %s", pid,
                 belay_client_store_url(context->client));
    }
    if (context->client != NULL && context->is_locking_disabled) {
        cli_warn_locking_off(context);
    }
    if (!is_used) {
        belay_client_close(context->client);
        context->client = NULL;
    }
    telemetry_close(context->telemetry);
    context->telemetry = NULL;
    return !is_used;
}
