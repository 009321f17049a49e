/* Where `belay serve` listens, for whom, and for how many: from its options and the configuration. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/text.h"
#include "server/serve_internal.h"

#define DEFAULT_LISTEN "127.0.0.1:7420"

enum { OTHER_FILES = 256 }; /* besides connections: of the store, webhooks and states */

static uint64_t committed_lsn(void *context)
{
    return belay_client_committed_lsn(((const struct server *)context)->client);
}

static void on_http_notice(void *context, const struct http_notice *notice)
{
    struct server *server = context;

    log_note(&server->log, LOG_WARN, "http", "%s%s%s (%d)", notice->peer, *notice->peer == '\0' ? "" : ": ",
             notice->text, notice->status);
}

static bool is_local(const char *address)
{
    return text_has_prefix(address, "unix:") || text_has_prefix(address, "127.") ||
           text_has_prefix(address, "[::1]:");
}

enum belay_code serve_check_exposure(const struct run *run, const struct tokens *tokens,
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

/* Debian gives a machine's own name the address 127.0.1.1: then other machines are refused, and nothing says why. */
static void warn_of_loopback(struct run *run)
{
    const char *address;

    for (size_t i = 0; (address = http_server_address(run->server.http, i)) != NULL; i++) {
        const char *given = http_server_given(run->server.http, i);

        if (given != NULL && is_local(address) && !is_local(given) && strstr(given, "localhost") == NULL) {
            log_note(
                &run->server.log, LOG_WARN, "listen",
                "only this machine can use '%s', because it is the address %s here: for others, listen on "
                "0.0.0.0 or on another address of this machine",
                given, address);
        }
    }
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

enum belay_code serve_open_http(struct run *run, struct belay_error *err)
{
    struct server *server = &run->server;
    const struct belay_config *config = server->config;
    struct http_options options = { .handle = exchange_handle,
                                    .admit = exchange_admit,
                                    .notice = on_http_notice,
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
    if (code == BELAY_INVALID && run->listen[0].address == belay_config_get(config, "server.listen")) {
        code = error_in_setting(err, code, "server.listen");
    }
    if (code == BELAY_OK) {
        give_socket_to_owner(run);
        warn_of_loopback(run);
        code = tokens_load(config, &server->tokens, err);
    }
    return code == BELAY_OK ? serve_check_exposure(run, server->tokens, err) : code;
}
