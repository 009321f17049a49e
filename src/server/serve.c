/* `belay serve`: start, run, reload, stop. */
#include "server/core/serve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "server/api/holders.h"
#include "server/api/pending_acquire.h"
#include "server/core/job.h"
#include "server/core/routes.h"
#include "server/core/server.h"
#include "server/dashboard/dashboard_stream.h"
#include "server/events/event_stream.h"
#include "server/metrics/metrics.h"
#include "server/metrics/shared_db_counts.h"
#include "server/notify/notify.h"
#include "server/serve_internal.h"
#include "server/state/state_pool.h"
#include "server/systemd.h"
#include "server/webhooks/webhooks.h"
#include "telemetry/telemetry.h"
#include "version.h"
#include "json/json_write.h"

enum { DRAIN_MS = 10000, CLIENT_THREADS = 64 };

/* ---- callbacks of the client and of the HTTP server ---- */

void server_on_event(void *context, const struct belay_event *event)
{
    struct server *server = context;

    if (!pthread_equal(pthread_self(), server->thread)) {
        server_post_event(server, event); /* the rest runs on the loop */
        return;
    }
    shared_db_counts_event(server->shared_db_counts, event);
    metrics_event(server->metrics, event);
    telemetry_event(server->telemetry, event);
    event_stream_mark(server->events);
    dashboard_stream_event(server->dashboard, event);
    holders_event(server->holders, event);
    notify_event(server->notify, event);
}

static void on_store_warning(void *context, const char *text)
{
    server_log(context, LOG_WARN, "store", text);
}

static void on_store_wake(void *context, const char *lock_id)
{
    struct server *server = context;

    holders_wake(server->holders, lock_id);
}

/* ---- signals ---- */

static void reload(struct run *run)
{
    struct server *server = &run->server;
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_config *config = NULL;
    struct tokens *tokens = NULL;
    struct notify_targets *targets = NULL;
    enum belay_code code;

    if (server->is_draining) {
        return;
    }
    systemd_notify_reloading();
    telemetry_reopen(server->telemetry); /* in any case: a log may have been rotated */
    code = belay_config_load(run->options->config_path, &config, &err);
    if (code == BELAY_OK) {
        code = tokens_load(config, &tokens, &err);
    }
    if (code == BELAY_OK) {
        code = serve_check_exposure(run, tokens, &err);
    }
    if (code == BELAY_OK) {
        code = notify_targets_load(server, config, &targets, &err);
    }
    if (code == BELAY_OK) {
        code = http_server_reload_tls(server->http, &err);
    }
    if (code == BELAY_OK) {
        tokens_drop(server->tokens); /* requests in progress keep the table that authorized them */
        server->tokens = tokens;
        tokens = NULL;
        event_stream_stop(server->events); /* clients that are still authorized reconnect */
        dashboard_stream_stop(server->dashboard);
        pending_acquires_revoke(server);
        webhooks_revoke(server);
        jobs_revoke(server);
        notify_reload(server->notify, targets);
        targets = NULL;
        log_note(&server->log, LOG_INFO, "reloaded", "%zu tokens", server->tokens->n);
    } else {
        log_note(&server->log, LOG_ERROR, "reload", "nothing was changed: %s", err.text);
    }
    systemd_notify("READY=1");
    tokens_drop(tokens);
    notify_targets_free(targets);
    belay_config_free(config);
    belay_error_release(&err);
}

static void on_drained(void *context)
{
    struct server *server = context;

    loop_stop(server->loop);
}

static void stop(struct run *run, int signal)
{
    struct server *server = &run->server;

    if (server->is_draining) {
        loop_stop(server->loop); /* the second signal: stop at once */
        return;
    }
    server->is_draining = true;
    systemd_notify("STOPPING=1");
    log_note(&server->log, LOG_INFO, "stopping", "on signal %d; %zu connections", signal,
             http_server_connections(server->http));
    pending_acquires_stop(server);
    holders_stop(server->holders);
    webhooks_stop(server);
    work_cancel_all(server->workers, WORK_JOB);
    work_cancel_all(server->workers, WORK_LONG_JOB);
    event_stream_stop(server->events);
    dashboard_stream_stop(server->dashboard);
    http_server_drain(server->http, DRAIN_MS, on_drained, server);
}

static void on_signal(struct loop_watch *watch, uint32_t events)
{
    struct run *run = CONTAINER_OF(watch, struct run, signals);
    struct signalfd_siginfo info;

    (void)events;
    while (read(watch->fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGHUP) {
            reload(run);
        } else {
            stop(run, (int)info.ssi_signo);
        }
    }
}

static enum belay_code watch_signals(struct run *run, struct belay_error *err)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &set, &run->old_mask);
    run->signals.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    run->signals.ready = on_signal;
    if (run->signals.fd < 0 || !loop_watch(run->server.loop, &run->signals, EPOLLIN)) {
        return error_set(err, BELAY_BUG, "cannot watch signals: %s", strerror(errno));
    }
    return BELAY_OK;
}

/* ---- starting ---- */

static void wake_loop(void *context)
{
    loop_wake(context);
}

static void on_store_ready(struct loop_watch *watch, uint32_t events)
{
    (void)watch; /* the end of the turn polls the client */
    (void)events;
}

/*
 * Asynchronous calls to a store on the network run in threads of the client, which wake the loop, or without threads:
 * then there is a file descriptor that does.
 */
static enum belay_code watch_store(struct server *server, struct belay_error *err)
{
    enum belay_code code =
        belay_client_use_threads(server->client, CLIENT_THREADS, wake_loop, server->loop, err);

    if (code != BELAY_OK) {
        return code;
    }
    server->store_ready = (struct loop_watch){ belay_client_poll_fd(server->client), on_store_ready };
    return server->store_ready.fd < 0 || loop_watch(server->loop, &server->store_ready, EPOLLIN)
               ? BELAY_OK
               : error_set(err, BELAY_BUG, "cannot watch the store: %s", strerror(errno));
}

static enum belay_code open_workers(struct server *server, struct belay_error *err)
{
    server->is_store_local = belay_client_is_local(server->client);
    server->workers = workers_new(server->loop, server->is_store_local);
    if (server->workers == NULL) {
        return error_no_memory(err);
    }
    return server->is_store_local ? BELAY_OK : watch_store(server, err);
}

static enum belay_code open_telemetry(struct run *run, struct belay_error *err)
{
    struct server *server = &run->server;
    struct telemetry_options options = { .config = server->config,
                                         .metrics = run->options->metrics,
                                         .service = "belay-serve",
                                         .on_warning = on_store_warning,
                                         .context = server };

    server->metrics = metrics_new(server->config);
    server->route_counts = route_counts_new();
    if (server->metrics == NULL || server->route_counts == NULL) {
        return error_no_memory(err);
    }
    return telemetry_open(&options, &server->telemetry, err);
}

static enum belay_code open_lock_store(struct run *run, struct belay_error *err)
{
    struct server *server = &run->server;
    struct belay_client_options options = BELAY_CLIENT_OPTIONS_INIT;
    enum belay_code code = belay_config_load(run->options->config_path, &server->config, err);

    if (code != BELAY_OK) {
        return code;
    }
    code = open_telemetry(run, err);
    if (code != BELAY_OK) {
        return code;
    }
    options.store_url = run->options->store_url;
    options.config = server->config;
    options.on_event = server_on_event;
    options.on_warning = on_store_warning;
    options.on_wake = on_store_wake;
    options.context = server;
    options.owns_file = true;
    code = belay_client_open(&options, &server->client, err);
    if (code == BELAY_OK && text_has_prefix(belay_client_store_url(server->client), "http")) {
        return error_set(
            err, BELAY_INVALID,
            "a server needs a store of its own, sqlite:PATH, postgresql://HOST/DATABASE or dynamodb:TABLE, "
            "and '%.200s' is another server",
            belay_client_store_url(server->client));
    }
    if (code == BELAY_OK) {
        code = state_pool_open(server, run->options->state_store_url, run->options->store_url, err);
    }
    if (code == BELAY_OK && !belay_client_locking_enabled(server->client)) {
        log_note(&server->log, LOG_WARN, "locking",
                 "locking is switched off (BELAY_DISABLED or locking_enabled: false): every lock is granted "
                 "and protects nothing");
    }
    return code;
}

static enum belay_code start_server(struct run *run, struct belay_error *err)
{
    struct server *server = &run->server;
    uint64_t random = 0;
    enum belay_code code;

    (void)random_bytes(&random, sizeof random);
    (void)snprintf(server->run, sizeof server->run, "%08llx", (unsigned long long)(random & 0xffffffff));
    server->is_insecure = run->options->insecure;
    server->webhooks->file.fd = -1;
    server->thread = pthread_self();
    server->events = event_stream_new(server);
    server->dashboard = dashboard_stream_new(server);
    server->loop = loop_new();
    if (server->loop == NULL || server->events == NULL || server->dashboard == NULL ||
        !group_commit_open(server)) {
        return error_set(err, BELAY_NO_MEMORY, "cannot create the event loop: %s", strerror(errno));
    }
    (void)signal(SIGXFSZ, SIG_IGN); /* a limit on the size of files is an error like a full disk */
    loop_before_sleep(server->loop, group_commit_end_turn, server);
    code = open_lock_store(run, err);
    if (code == BELAY_OK) {
        code = open_workers(server, err);
    }
    if (code == BELAY_OK) {
        store_identity_begin(server); /* first: the others need not ask a store that does not answer */
        dashboard_stream_begin(server->dashboard);
        event_stream_begin(server->events);
        code = serve_open_http(run, err);
    }
    if (code == BELAY_OK) {
        code = webhooks_open(server, err);
    }
    if (code == BELAY_OK) {
        code = notify_open(server, err);
    }
    return code == BELAY_OK ? watch_signals(run, err) : code;
}

/* ---- output at the start ---- */

static void url_of(const struct run *run, size_t i, char *out, size_t size)
{
    const char *address = http_server_address(run->server.http, i);

    (void)snprintf(out, size, "%s%s",
                   text_has_prefix(address, "unix:") ? ""
                   : run->listen[i].is_tls           ? "https://"
                                                     : "http://",
                   address);
}

/* For people, with the name of the machine as it was given: it is the one that a certificate has. */
static void shown_url_of(const struct run *run, size_t i, char *out, size_t size)
{
    const char *given = run->listen[i].address == NULL ? "" : run->listen[i].address;
    const char *address = http_server_address(run->server.http, i);
    const char *port = strrchr(address, ':');
    char host[256];
    struct in_addr ip;

    (void)snprintf(host, sizeof host, "%.*s", (int)strcspn(given, ":"), given);
    if (text_has_prefix(given, "unix:") || port == NULL || host[0] == '\0' || host[0] == '[' ||
        inet_pton(AF_INET, host, &ip) == 1) {
        url_of(run, i, out, size);
    } else {
        (void)snprintf(out, size, "%s%s%.16s", run->listen[i].is_tls ? "https://" : "http://", host, port);
    }
}

static void say_json(const struct run *run)
{
    json_t *urls = json_array();
    char url[512];
    char *line;

    for (size_t i = 0; i < run->n_said; i++) {
        url_of(run, i, url, sizeof url);
        (void)json_array_append_new(urls, wire_text(url));
    }
    line = wire_line(json_pack("{s:o, s:s, s:I, s:b}", "listening", urls, "store",
                               belay_client_store_url(run->server.client), "tokens",
                               (json_int_t)run->server.tokens->n, "locking_enabled",
                               belay_client_locking_enabled(run->server.client)));
    (void)printf("%s\n", line == NULL ? "{}" : line);
    free(line);
}

/* The program as it was called, which may not be on the PATH. */
static const char *program_name(void)
{
    bool plain = program_invocation_name[strspn(program_invocation_name, "abcdefghijklmnopqrstuvwxyz"
                                                                         "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                                         "0123456789/._-")] == '\0';

    return plain ? program_invocation_name : "belay";
}

static void print_hello(const struct run *run)
{
    const char *header = run->server.tokens->n > 0 ? " -H \"Authorization: Bearer $TOKEN\"" : "";
    const char *variable = run->server.tokens->n > 0 ? " BELAY_AUTH_TOKEN=$TOKEN" : "";
    char url[512];

    if (run->options->json) {
        say_json(run);
    } else if (!run->options->quiet) {
        for (size_t i = 0; i < run->n_said; i++) {
            shown_url_of(run, i, url, sizeof url);
            (void)printf("Serving %s on %s\n", belay_client_store_url(run->server.client), url);
        }
        if (!belay_client_locking_enabled(run->server.client)) {
            (void)printf("LOCKING IS SWITCHED OFF: every lock is granted and protects nothing.\n");
        }
        shown_url_of(run, 0, url, sizeof url);
        if (text_has_prefix(url, "unix:")) {
            memmove(url, url + 5, strlen(url + 5) + 1);
            (void)printf("Try:  curl --unix-socket %s%s http://localhost/v1/locks\n", url, header);
        } else {
            (void)printf("Try:  curl%s -d '{\"locked_by\":\"me\"}' %s/v1/locks/my-deploy/acquire\n"
                         "      curl%s %s/v1/locks\n"
                         "      BELAY_STORE=%s%s %s run nightly -- echo locked\n"
                         "Look: %s/ and %s/openapi.json\n",
                         header, url, header, url, url, variable, program_name(), url, url);
        }
        (void)printf("Ctrl-C stops it.\n");
    }
    (void)fflush(stdout);
}

/* ---- from start to end ---- */

static void close_server(struct run *run)
{
    struct server *server = &run->server;

    if (server->workers != NULL) {
        work_close(server->workers, WORK_JOB);
        work_close(server->workers, WORK_LONG_JOB);
        webhooks_end(server);
        notify_end(server->notify);
    }
    group_commit_close(server);
    if (server->client != NULL && server->loop != NULL) {
        (void)belay_client_poll(server->client); /* waiters that left the queue at the very end */
    }
    http_server_close(server->http);
    server->http = NULL;
    if (server->workers != NULL) {
        work_close(server->workers, WORK_READ);
        store_identity_end(server);
        work_close(server->workers, WORK_SCAN);
        work_close(server->workers, WORK_STATS);
    }
    if (server->client != NULL && server->loop != NULL) {
        (void)belay_client_poll(server->client);
    }
    state_pool_close(server->states);
    delays_release(&server->delays);
    holders_release(server->holders);
    belay_client_close(server->client);
    pending_acquires_release(server->pending_acquires);
    workers_free(server->workers);
    webhooks_close(server);
    notify_free(server->notify);
    telemetry_close(server->telemetry);
    metrics_free(server->metrics);
    belay_config_free(server->config);
    tokens_drop(server->tokens);
    sessions_release(&server->sessions);
    event_stream_free(server->events);
    dashboard_stream_free(server->dashboard);
    if (run->signals.fd >= 0) {
        loop_unwatch(server->loop, &run->signals);
        (void)close(run->signals.fd);
        (void)pthread_sigmask(SIG_SETMASK, &run->old_mask, NULL);
    }
    loop_free(server->loop);
    log_end(&server->log);
    free(server->openapi);
    exchanges_release(server);
    free(server->route_counts);
    free(run->unix_address);
    free(run->beside_address);
    free(run);
}

enum belay_code belay_serve_run(const struct serve_options *options, struct belay_error *err)
{
    struct run *run;
    enum belay_code code;

    if (strcmp(options->version, BELAY_VERSION) != 0) {
        return error_set(err, BELAY_CONFIG, "belay %s cannot use the server module of version %s",
                         options->version, BELAY_VERSION);
    }
    run = calloc(1, sizeof *run);
    if (run == NULL) {
        return error_no_memory(err);
    }
    run->options = options;
    run->server.pending_acquires = &run->pending_acquires;
    run->server.holders = &run->holders;
    run->server.webhooks = &run->webhooks;
    run->server.shared_db_counts = &run->shared_db_counts;
    run->signals.fd = -1;
    log_begin(&run->server.log,
              options->log == SERVE_LOG_JSON || (options->log == SERVE_LOG_AUTO && !isatty(STDERR_FILENO)));
    code = start_server(run, err);
    if (code == BELAY_OK) {
        print_hello(run);
        systemd_notify("READY=1");
        if (!loop_run(run->server.loop)) {
            code = error_set(err, BELAY_BUG, "the event loop failed: %s", strerror(errno));
        } else if (run->server.has_failed) {
            code = error_set(err, BELAY_UNREACHABLE, "the store failed; see the log");
        }
    }
    close_server(run);
    return code;
}
