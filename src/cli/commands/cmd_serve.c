/* belay serve and belay auth new: both load the server module, belay-serve.so. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/paths.h"
#include "base/text.h"
#include "cli/commands/commands.h"
#include "server/core/serve.h"
#include "json/json_write.h"

/* ---- the module ------------------------------------------------------------- */

struct serve_module {
    serve_run_fn *run;
    serve_hash_fn *hash;
};

#define MODULE "belay-serve.so"

/* ISO C does not convert a data pointer to a function pointer; memcpy does. */
static bool find_function(void *module, const char *name, void *out, size_t size)
{
    void *found = dlsym(module, name);

    memcpy(out, &found, size);
    return found != NULL;
}

/* The module stays loaded. */
static enum belay_code serve_module_load(struct serve_module *out, struct belay_error *err)
{
    char path[MODULE_PATH_MAX];
    void *module;

    if (!module_path(MODULE, path)) {
        return error_set(err, BELAY_CONFIG,
                         "the server module " MODULE " is not installed beside the program");
    }
    module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (module == NULL) {
        return error_set(err, BELAY_CONFIG, "cannot load '%.200s': %.300s", path, dlerror());
    }
    if (!find_function(module, "belay_serve_run", &out->run, sizeof out->run) ||
        !find_function(module, "belay_serve_hash", &out->hash, sizeof out->hash)) {
        return error_set(err, BELAY_CONFIG, "'%.200s' is not the server module of belay %s", path,
                         belay_version());
    }
    return BELAY_OK;
}

/* ---- belay serve ------------------------------------------------------------- */

static int exec_serve(struct cli_context *context, const struct options *options, struct belay_error *err)
{
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

    for (size_t i = 0; options_nth(options, "listen", i) != NULL; i++) {
        if (i == SERVE_LISTEN_MAX) {
            return cli_fail(context, BELAY_INVALID, "--listen: at most %d addresses", SERVE_LISTEN_MAX);
        }
        serve.listen[serve.n_listen++] = options_nth(options, "listen", i);
    }
    if ((serve.tls_certificate == NULL) != (serve.tls_key == NULL)) {
        return cli_fail(context, BELAY_INVALID, "--tls-cert and --tls-key must be given together");
    }
    if (log != NULL) {
        serve.log = strcmp(log, "json") == 0 ? SERVE_LOG_JSON : SERVE_LOG_TEXT;
    }
    if (serve_module_load(&module, err) != BELAY_OK || module.run(&serve, err) != BELAY_OK) {
        return cli_error(context, err);
    }
    return CLI_OK;
}

static const struct option_group serve_group = {
    "Options",
    OPTION_TABLE(
        OPT_LIST("listen", "ADDR:PORT",
                 "listen on this address; default: server.listen, else 127.0.0.1:7420"),
        OPT_FROM(COMPLETE_FILE, "unix", "PATH", "listen on a unix socket that only this user can open"),
        OPT_FROM(COMPLETE_FILE, "tls-cert", "FILE",
                 "certificate chain in PEM; default: server.tls.certificate"),
        OPT_FROM(COMPLETE_FILE, "tls-key", "FILE", "private key in PEM; default: server.tls.key"),
        OPT_FLAG("insecure", "accept other machines although no tokens are configured"),
        OPT_CHOICE("log", "json|text",
                   "format of the log on standard error; default: text on a terminal, else json"))
};

const struct cli_command cmd_serve = {
    .name = "serve",
    .synopsis = "[--listen ADDR:PORT]... [--unix PATH] [OPTIONS]",
    .summary = "serve a store over HTTP",
    .about = "Serves the HTTP API of docs/http.md for the store that --store or the configuration names. The "
             "server answers an acquire after the lock is on disk, and grants locks to waiters in the order "
             "of arrival.\n\n"
             "Without tokens in the configuration, the server accepts connections from this machine only, "
             "and every client is an admin. 'belay auth new' creates a token.\n\n"
             "SIGTERM and SIGINT stop the server: it answers the waiting clients and completes the requests "
             "in progress. SIGHUP reloads the tokens, the notifications and the TLS certificate. Under "
             "systemd the server "
             "supports socket activation and readiness notification.",
    .groups = { &serve_group },
    .exits = { { 0, "stopped by a signal" },
               CLI_EXIT_USAGE,
               { 69, "the SQLite file or the address cannot be opened" },
               { 78, "the configuration is wrong, or would accept other machines without tokens" } },
    .examples = { { "belay serve", "on 127.0.0.1:7420, for this machine" },
                  { "belay serve --unix ./belay.sock --log json", "on a unix socket" } },
    .exec = exec_serve,
};

/* ---- belay auth new ----------------------------------------------------------- */

enum { SECRET_BYTES = 33, SECRET_SIZE = 64, NAME_MAX_BYTES = 64, KEYS_MAX = 64 };

/* 33 random bytes are 44 letters without padding. The prefix lets secret scanners find leaked tokens. */
static bool make_secret(char out[SECRET_SIZE])
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    unsigned char bytes[SECRET_BYTES];
    char *at = out;

    if (!random_bytes(bytes, sizeof bytes)) {
        return false;
    }
    memcpy(at, "belay_", 6);
    at += 6;
    for (size_t i = 0; i < sizeof bytes; i += 3) {
        unsigned three = (unsigned)bytes[i] << 16 | (unsigned)bytes[i + 1] << 8 | bytes[i + 2];

        for (int shift = 18; shift >= 0; shift -= 6) {
            *at++ = letters[three >> shift & 63];
        }
    }
    *at = '\0';
    return true;
}

static bool is_credential_name(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.@-");

    return n > 0 && n <= NAME_MAX_BYTES && name[n] == '\0';
}

struct new_token {
    const char *name;
    const char *role;
    const struct options *options; /* for the keys */
    char secret[SECRET_SIZE];
    char hash[SERVE_HASH_SIZE];
};

/* JSON is valid YAML, with correct quoting. */
static json_t *token_entry(const struct new_token *token)
{
    json_t *entry = json_pack("{s:s, s:s}", "name", token->name, "role", token->role);
    json_t *keys = json_array();
    const char *key;

    for (size_t i = 0; (key = options_nth(token->options, "keys", i)) != NULL; i++) {
        (void)json_array_append_new(keys, wire_text(key));
    }
    if (json_array_size(keys) > 0) {
        (void)json_object_set(entry, "keys", keys);
    }
    json_decref(keys);
    (void)json_object_set_new(entry, "sha256", json_string(token->hash));
    return entry;
}

static int print_new_token(const struct cli_context *context, const struct new_token *token)
{
    json_t *entry = token_entry(token);
    char *line;

    if (context->json && entry != NULL) {
        (void)json_object_set_new(entry, "token", json_string(token->secret));
    }
    line = wire_line(entry);
    if (line == NULL) {
        return cli_fail(context, BELAY_NO_MEMORY, "out of memory");
    }
    if (context->json) {
        (void)printf("%s\n", line);
    } else {
        (void)printf("%s\n", token->secret);
        cli_note(context, "this is the token; belay does not store it, so save it now");
        cli_hint(
            context,
            "add this entry under server.tokens in the server's configuration, then send the server SIGHUP:");
        cli_hint(context, "    - %s", line);
    }
    free(line);
    return CLI_OK;
}

static int exec_auth_new(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    struct new_token token = { .name = options_text(options, "name"),
                               .role = options_text(options, "role"),
                               .options = options };
    struct serve_module module;

    token.name = token.name == NULL ? "token" : token.name;
    token.role = token.role == NULL ? "locker" : token.role;
    if (!is_credential_name(token.name)) {
        return cli_fail(context, BELAY_INVALID,
                        "invalid --name '%s': use at most %d letters, digits, '_', '.', '@' and '-'",
                        token.name, NAME_MAX_BYTES);
    }
    for (size_t i = 0; options_nth(options, "keys", i) != NULL; i++) {
        if (!text_is_clean(options_nth(options, "keys", i), BELAY_KEY_MAX) || i == KEYS_MAX) {
            return cli_fail(context, BELAY_INVALID,
                            "--keys: a pattern has 1 to %d bytes; at most %d patterns", BELAY_KEY_MAX,
                            KEYS_MAX);
        }
    }
    if (!make_secret(token.secret)) {
        return cli_fail(context, BELAY_BUG, "cannot get random bytes from the system");
    }
    if (serve_module_load(&module, err) != BELAY_OK) {
        return cli_error(context, err);
    }
    module.hash(token.secret, token.hash);
    return print_new_token(context, &token);
}

static const struct option_group auth_group = {
    "Options", OPTION_TABLE(OPT_TEXT("name", "NAME", "the token's name in logs and history; default: token"),
                            OPT_CHOICE("role", "reader|locker|admin", "permissions; default: locker"),
                            OPT_LIST("keys", "PATTERN",
                                     "keys it may see and lock; * matches any text; default: all keys"))
};

const struct cli_command cmd_auth_new = {
    .name = "auth new",
    .synopsis = "[--name NAME] [--role ROLE] [--keys PATTERN]...",
    .summary = "create a token for 'belay serve'",
    .about = "Creates a token and prints it to standard output. The entry for the server's configuration "
             "goes to standard error; it contains only the SHA-256 hash of the token. belay does not store "
             "the token.\n\n"
             "A reader can see locks, history and events. A locker can also acquire, renew and release locks "
             "whose keys match one of the patterns. An admin can also unlock the locks of other clients, and "
             "sees lock ids.",
    .groups = { &auth_group },
    .exits = { { 0, "created" }, CLI_EXIT_USAGE, { 78, "the server module is not installed" } },
    .examples = { { "belay auth new --name ci --role locker --keys 'build-*'", "for build jobs" },
                  { "belay auth new --name dashboard --role reader", "read-only access" } },
    .exec = exec_auth_new,
};
