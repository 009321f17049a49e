#include <stdio.h>
#include <string.h>

#include "base/diagnostics.h"
#include "base/error.h"
#include "base/text.h"
#include "network/loader.h"
#include "store/sqlite/sqlite_store.h"

static const char *origin_of(const struct belay_config *config, const char *name)
{
    for (size_t i = 0; i < belay_config_count(config); i++) {
        struct belay_setting setting = belay_config_setting(config, i);

        if (strcmp(setting.name, name) == 0) {
            return setting.origin;
        }
    }
    return "default";
}

/* What is sent where: src/server/notify has more to say about it at the start of a server. */
static void check_notify(const struct belay_config *config, struct diagnostics *diagnostics)
{
    for (size_t i = 0;; i++) {
        char format_name[32], url_name[32];
        const char *format, *url, *host;

        (void)snprintf(format_name, sizeof format_name, "notify.%zu.format", i);
        (void)snprintf(url_name, sizeof url_name, "notify.%zu.url", i);
        format = belay_config_get(config, format_name);
        if (format == NULL) {
            return;
        }
        url = belay_config_get(config, url_name);
        host = url == NULL ? NULL : strstr(url, "://");
        if (host != NULL && memchr(host, '@', strcspn(host + 3, "/?#") + 3) == NULL) {
            diagnostics_ok(diagnostics, "notify", "%s to %.*s", format, (int)strcspn(host + 3, "/?#"),
                           host + 3);
        } else {
            diagnostics_ok(diagnostics, "notify", "%s to the URL of url_file or url_env", format);
        }
    }
}

static void check_config(const struct belay_doctor_options *options, struct diagnostics *diagnostics,
                         struct belay_config **out_config)
{
    struct belay_error err = BELAY_ERROR_INIT;
    const char *enabled;

    if (belay_config_load(options->config_path, out_config, &err) != BELAY_OK) {
        diagnostics_error(diagnostics, "configuration", "mend the file, or name another with --config FILE",
                          &err);
        belay_error_release(&err);
        return;
    }
    if (belay_config_path(*out_config) != NULL) {
        diagnostics_ok(diagnostics, "configuration", "%s", belay_config_path(*out_config));
    } else {
        diagnostics_ok(diagnostics, "configuration",
                       "there is no file; the defaults and the environment count");
    }
    check_notify(*out_config, diagnostics);
    enabled = belay_config_get(*out_config, "locking_enabled");
    if (enabled != NULL && strcmp(enabled, "true") != 0) {
        diagnostics_warn(diagnostics, "locking", "take that away to have locks again",
                         "is switched off (%s): every lock is granted and protects nothing",
                         origin_of(*out_config, "locking_enabled"));
    }
}

static void check_dynamodb(const char *table, const struct belay_config *config,
                           struct diagnostics *diagnostics)
{
    struct dynamodb_options options = module_options(config);
    struct belay_error err = BELAY_ERROR_INIT;
    const struct net_module *net;

    if (loader_net(&net, &err) != BELAY_OK) {
        diagnostics_error(diagnostics, "network module", "install belay's package whole", &err);
    } else {
        net->doctor_dynamodb(table, &options, diagnostics);
    }
    belay_error_release(&err);
}

static void check_store(const struct belay_doctor_options *options, const struct belay_config *config,
                        struct diagnostics *diagnostics)
{
    const char *url = options->store_url;
    const char *origin = options->store_origin == NULL ? "the caller" : options->store_origin;

    if (url == NULL && config != NULL) {
        url = belay_config_get(config, "store");
        origin = origin_of(config, "store");
    }
    if (url == NULL) {
        if (config != NULL) {
            diagnostics_fail(diagnostics, BELAY_CONFIG, "store", "set --store or BELAY_STORE to sqlite:PATH",
                             "there is no home directory to keep locks in");
        }
        return;
    }
    diagnostics_ok(diagnostics, "store", "%s (%s)", url, origin);
    if (text_has_prefix(url, "sqlite:")) {
        sqlite_store_doctor(url + strlen("sqlite:"), NULL, diagnostics);
    } else if (text_has_prefix(url, "dynamodb:")) {
        check_dynamodb(url + strlen("dynamodb:"), config, diagnostics);
    } else {
        diagnostics_fail(diagnostics, BELAY_CONFIG, "store", "use sqlite:PATH or dynamodb:TABLE",
                         "'%.200s' is not a store that this belay knows", url);
    }
}

enum belay_code belay_doctor(const struct belay_doctor_options *options, belay_finding_fn fn, void *context,
                             struct belay_error *err)
{
    static const struct belay_doctor_options defaults = BELAY_DOCTOR_OPTIONS_INIT;
    struct diagnostics diagnostics = { .fn = fn, .context = context };
    struct belay_config *config = NULL;

    options = options == NULL ? &defaults : options;
    check_config(options, &diagnostics, &config);
    check_store(options, config, &diagnostics);
    belay_config_free(config);
    if (diagnostics.n_failed == 0) {
        return BELAY_OK;
    }
    return error_set(err, diagnostics.worst, "%zu of %zu checks failed", diagnostics.n_failed, diagnostics.n);
}
