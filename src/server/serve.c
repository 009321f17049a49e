/* `belay serve`: start, run, reload, stop. */
#include "server/core/serve.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "server/api/holders.h"
#include "server/api/pending_acquire.h"
#include "server/core/job.h"
#include "server/core/server.h"
#include "server/dashboard/dashboard_stream.h"
#include "server/events/event_stream.h"
#include "server/metrics/metrics.h"
#include "server/metrics/shared_db_counts.h"
#include "server/notify/notify.h"
#include "server/state/state_pool.h"
#include "server/systemd.h"
#include "server/webhooks/webhooks.h"
#include "telemetry/telemetry.h"
#include "version.h"
#include "json/json_write.h"

#define DEFAULT_LISTEN "127.0.0.1:7420"

enum {
    DRAIN_MS = 10000,
    CLIENT_THREADS = 64,
    LISTEN_ALL_MAX = SERVE_LISTEN_MAX + SYSTEMD_FDS_MAX + 2,
    UNLIMITED_MAX = 64,
    OTHER_FILES = 256, /* besides connections: of the store, webhooks and states */
};

/* One run of the server. */
struct run {
    struct server server;
    struct pending_acquires pending_acquires; /* `server` points to these */
    struct holders holders;
    struct webhooks webhooks;
    struct shared_db_counts shared_db_counts;
    const struct serve_options *options; /* borrowed */
    struct loop_watch signals;
    struct http_listen listen[LISTEN_ALL_MAX];
    size_t n_listen;
    size_t n_said; /* the first so many are printed at the start */
    struct address_range unlimited[UNLIMITED_MAX];
    char *unix_address;   /* owned */
    char *beside_address; /* owned; the socket beside the store's file; NULL: none */
    const char *tls_certificate;
    const char *tls_key;
    sigset_t old_mask;
};

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

static void on_warning(void *context, const char *text)
{
    server_log(context, LOG_WARN, "store", text);
}

static void on_wake(void *context, const char *lock_id)
{
    struct server *server = context;

    holders_wake(server->holders, lock_id);
}

static uint64_t committed_lsn(void *context)
{
    return belay_client_committed_lsn(((const struct server *)context)->client);
}

static void on_notice(void *context, const struct http_notice *notice)
{
    struct server *server = context;

    log_note(&server->log, LOG_WARN, "http", "%s%s%s (%d)", notice->peer, *notice->peer == '\0' ? "" : ": ",
             notice->text, notice->status);
}

/* ---- serving without tokens ---- */

static bool is_local(const char *address)
{
    return text_has_prefix(address, "unix:") || text_has_prefix(address, "127.") ||
           text_has_prefix(address, "[::1]:");
}

/* Without tokens only this machine is served, unless --insecure is given. */
static enum belay_code check_exposure(const struct run *run, const struct tokens *tokens,
                                      struct belay_error *err)
{
    const char *address;

    for (size_t i = 0; (address = http_server_address(run->server.http, i)) != NULL; i++) {
        if (tokens->n == 0 && !run->options->insecure && !is_local(address)) {
            return error_set(err, BELAY_CONFIG,
                             "%s can be reached from other machines and no tokens are configured: make one "
                             "with 'belay auth new', listen on 127.0.0.1, or add --insecure",
                             address);
        }
    }
    return BELAY_OK;
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
        code = check_exposure(run, tokens, &err);
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
    struct run *run = (struct run *)(void *)((char *)watch - offsetof(struct run, signals));
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

/* Asynchronous calls to a store on the network run in threads of the client, which wake the loop. */
static enum belay_code open_workers(struct server *server, struct belay_error *err)
{
    server->is_store_local = belay_client_is_local(server->client);
    server->workers = workers_new(server->loop, server->is_store_local);
    if (server->workers == NULL) {
        return error_no_memory(err);
    }
    return server->is_store_local
               ? BELAY_OK
               : belay_client_use_threads(server->client, CLIENT_THREADS, wake_loop, server->loop, err);
}

static void add_listen(struct run *run, const char *address, int fd, bool is_tls)
{
    run->listen[run->n_listen++] = (struct http_listen){ .address = address, .fd = fd, .is_tls = is_tls };
    site_add_name(&run->server.names, address);
}

static bool fd_is_unix(int fd)
{
    struct sockaddr_storage address = { 0 };
    socklen_t len = sizeof address;

    return getsockname(fd, (struct sockaddr *)&address, &len) == 0 && address.ss_family == AF_UNIX;
}

/* Sockets from systemd and --listen; without either, as configured. */
static enum belay_code choose_listen(struct run *run, struct belay_error *err)
{
    const struct serve_options *options = run->options;
    const char *configured = belay_config_get(run->server.config, "server.listen");
    bool is_tls = run->tls_certificate != NULL;
    size_t n_fds = systemd_listen_fds();

    for (size_t i = 0; i < n_fds; i++) {
        int fd = SYSTEMD_FD_FIRST + (int)i;

        add_listen(run, NULL, fd, is_tls && !fd_is_unix(fd));
    }
    for (size_t i = 0; i < options->n_listen; i++) {
        add_listen(run, options->listen[i], -1, is_tls && !text_has_prefix(options->listen[i], "unix:"));
    }
    if (options->unix_path != NULL) {
        size_t size = strlen(options->unix_path) + sizeof "unix:";

        run->unix_address = malloc(size);
        if (run->unix_address == NULL) {
            return error_no_memory(err);
        }
        (void)snprintf(run->unix_address, size, "unix:%s", options->unix_path);
        add_listen(run, run->unix_address, -1, false);
    }
    if (run->n_listen == 0) {
        configured = configured == NULL ? DEFAULT_LISTEN : configured;
        add_listen(run, configured, -1, is_tls && !text_has_prefix(configured, "unix:"));
    }
    return BELAY_OK;
}

/* The socket by which local commands with the same file find the server. */
static enum belay_code listen_beside(struct run *run, struct belay_error *err)
{
    const char *file = NULL;
    const char *path = belay_client_socket(run->server.client, &file);
    struct buf address = BUF_INIT(PATH_MAX + 16);
    struct stat st;

    if (path == NULL) {
        return BELAY_OK;
    }
    if (stat(file, &st) != 0) {
        return error_set(err, BELAY_UNREACHABLE, "'%s': %s", file, strerror(errno));
    }
    buf_addf(&address, "unix:%s", path);
    run->beside_address = buf_take(&address);
    if (run->beside_address == NULL) {
        return error_no_memory(err);
    }
    add_listen(run, run->beside_address, -1, false);
    /* The right to write to the file is the right to connect. */
    run->listen[run->n_listen - 1].unix_mode = (st.st_mode & 0666) | S_IRUSR | S_IWUSR;
    run->listen[run->n_listen - 1].is_trusted = true;
    return BELAY_OK;
}

static void give_socket_to_owner(const struct run *run)
{
    const char *file = NULL;
    const char *path = belay_client_socket(run->server.client, &file);
    struct stat st;

    if (path != NULL && geteuid() == 0 && stat(file, &st) == 0) {
        (void)!lchown(path, st.st_uid, st.st_gid);
    }
}

static enum belay_code open_telemetry(struct run *run, struct belay_error *err)
{
    struct server *server = &run->server;
    struct telemetry_options options = { .config = server->config,
                                         .metrics = run->options->metrics,
                                         .service = "belay-serve",
                                         .on_warning = on_warning,
                                         .context = server };

    server->metrics = metrics_new(server->config);
    if (server->metrics == NULL) {
        return error_no_memory(err);
    }
    return telemetry_open(&options, &server->telemetry, err);
}

static enum belay_code open_store(struct run *run, struct belay_error *err)
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
    options.on_warning = on_warning;
    options.on_wake = on_wake;
    options.context = server;
    options.owns_file = true;
    code = belay_client_open(&options, &server->client, err);
    if (code == BELAY_OK && text_has_prefix(belay_client_store_url(server->client), "http")) {
        return error_set(
            err, BELAY_INVALID,
            "a server needs a store of its own, sqlite:PATH or dynamodb:TABLE, and '%.200s' is another "
            "server",
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

/* A descriptor for every connection: the default limit of 1,024 is for programs that use select(). */
static size_t limit_connections(struct server *server, size_t wanted)
{
    struct rlimit limit;

    wanted = wanted == 0 ? HTTP_DEFAULT_MAX_CONNECTIONS : wanted;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return wanted;
    }
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max >= wanted + OTHER_FILES) {
        return wanted;
    }
    log_note(&server->log, LOG_WARN, "limits", "only %llu files may be open: too few for %zu connections",
             (unsigned long long)limit.rlim_max, wanted);
    return limit.rlim_max > 2 * OTHER_FILES ? (size_t)limit.rlim_max - OTHER_FILES
                                            : (size_t)limit.rlim_max / 2;
}

static size_t config_number(const struct belay_config *config, const char *name)
{
    const char *text = belay_config_get(config, name);

    return text == NULL ? 0 : strtoul(text, NULL, 10); /* the configuration has validated it */
}

static enum belay_code load_limits(struct run *run, struct http_options *options, struct belay_error *err)
{
    const struct belay_config *config = run->server.config;

    options->limits.max_connections =
        limit_connections(&run->server, config_number(config, "server.connections.max"));
    options->limits.max_per_peer = config_number(config, "server.connections.per_address");
    options->unlimited = run->unlimited;
    if (belay_config_get(config, "server.connections.unlimited.0") == NULL) {
        options->n_unlimited = address_range_parse("127.0.0.0/8", &run->unlimited[0]) &&
                                       address_range_parse("::1", &run->unlimited[1])
                                   ? 2
                                   : 0;
        return BELAY_OK;
    }
    for (;; options->n_unlimited++) {
        char name[64];
        const char *text;

        (void)snprintf(name, sizeof name, "server.connections.unlimited.%zu", options->n_unlimited);
        text = belay_config_get(config, name);
        if (text == NULL) {
            return BELAY_OK;
        }
        if (options->n_unlimited == UNLIMITED_MAX) {
            return error_set(err, BELAY_CONFIG, "server.connections.unlimited: more than %d ranges",
                             UNLIMITED_MAX);
        }
        if (!address_range_parse(text, &run->unlimited[options->n_unlimited])) {
            return error_set(err, BELAY_CONFIG,
                             "%s: '%.60s' is not a range of addresses, such as 10.1.0.0/16 or ::1", name,
                             text);
        }
    }
}

static enum belay_code open_http(struct run *run, struct belay_error *err)
{
    struct server *server = &run->server;
    const struct belay_config *config = server->config;
    struct http_options options = { .handle = exchange_handle,
                                    .admit = exchange_admit,
                                    .notice = on_notice,
                                    .committed_lsn = committed_lsn,
                                    .context = server };
    enum belay_code code;

    run->tls_certificate = run->options->tls_certificate;
    run->tls_key = run->options->tls_key;
    if (run->tls_certificate == NULL && run->tls_key == NULL) {
        run->tls_certificate = belay_config_get(config, "server.tls.certificate");
        run->tls_key = belay_config_get(config, "server.tls.key");
    }
    if ((run->tls_certificate == NULL) != (run->tls_key == NULL)) {
        return error_set(err, BELAY_CONFIG, "TLS needs both a certificate and a key");
    }
    code = choose_listen(run, err);
    run->n_said = run->n_listen;
    if (code == BELAY_OK) {
        code = listen_beside(run, err);
    }
    if (code == BELAY_OK) {
        code = load_limits(run, &options, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    options.listen = run->listen;
    options.n_listen = run->n_listen;
    options.tls_certificate = run->tls_certificate;
    options.tls_key = run->tls_key;
    code = http_server_open(server->loop, &options, &server->http, err);
    if (code == BELAY_OK) {
        give_socket_to_owner(run);
        code = tokens_load(config, &server->tokens, err);
    }
    return code == BELAY_OK ? check_exposure(run, server->tokens, err) : code;
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
    code = open_store(run, err);
    if (code == BELAY_OK) {
        code = open_workers(server, err);
    }
    if (code == BELAY_OK) {
        dashboard_stream_begin(server->dashboard);
        event_stream_begin(server->events);
        store_identity_begin(server);
        code = open_http(run, err);
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

static void say_hello(const struct run *run)
{
    const char *header = run->server.tokens->n > 0 ? " -H \"Authorization: Bearer $TOKEN\"" : "";
    char url[512];

    if (run->options->json) {
        say_json(run);
    } else if (!run->options->quiet) {
        for (size_t i = 0; i < run->n_said; i++) {
            url_of(run, i, url, sizeof url);
            (void)printf("Serving %s on %s\n", belay_client_store_url(run->server.client), url);
        }
        if (!belay_client_locking_enabled(run->server.client)) {
            (void)printf("LOCKING IS SWITCHED OFF: every lock is granted and protects nothing.\n");
        }
        url_of(run, 0, url, sizeof url);
        if (text_has_prefix(url, "unix:")) {
            memmove(url, url + 5, strlen(url + 5) + 1);
            (void)printf("Try:  curl --unix-socket %s%s http://localhost/v1/locks\n", url, header);
        } else {
            (void)printf("Try:  curl%s -d '{\"locked_by\":\"me\"}' %s/v1/locks/my-deploy/acquire\n"
                         "      curl%s %s/v1/locks\n"
                         "      BELAY_STORE=%s belay run nightly -- echo locked\n"
                         "Look: %s/ and %s/openapi.json\n",
                         header, url, header, url, url, url, url);
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
    pending_acquires_release(server->pending_acquires);
    holders_release(server->holders);
    belay_client_close(server->client);
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
        say_hello(run);
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
