#include "server/core/auth.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/secret.h"
#include "base/text.h"
#include "server/core/serve.h"
#include "server/core/server.h"

/* ---- the configuration ---- */

static const char *const role_names[] = { "none", "reader", "locker", "admin" };

const char *role_name(enum role role)
{
    return role_names[role];
}

static bool parse_role(const char *text, enum role *out)
{
    for (int role = ROLE_READER; role <= ROLE_ADMIN; role++) {
        if (strcmp(text, role_names[role]) == 0) {
            *out = (enum role)role;
            return true;
        }
    }
    return false;
}

static bool parse_hash(const char *text, unsigned char out[AUTH_HASH_BYTES])
{
    static const char digits[] = "0123456789abcdef";

    if (strlen(text) != 2U * AUTH_HASH_BYTES || strspn(text, digits) != 2U * AUTH_HASH_BYTES) {
        return false;
    }
    for (size_t i = 0; i < AUTH_HASH_BYTES; i++) {
        out[i] = (unsigned char)((strchr(digits, text[2 * i]) - digits) << 4 |
                                 (strchr(digits, text[2 * i + 1]) - digits));
    }
    return true;
}

/* A name appears in logs and, in brackets, in the names of holders. */
static bool is_token_name(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.@-");

    return n > 0 && n <= AUTH_NAME_MAX && name[n] == '\0';
}

static const char *token_setting(const struct belay_config *config, size_t i, const char *name)
{
    char dotted[64];
    const char *value;

    (void)snprintf(dotted, sizeof dotted, "server.tokens.%zu.%s", i, name);
    value = belay_config_get(config, dotted);
    return value == NULL ? "" : value;
}

static enum belay_code load_keys(const struct belay_config *config, size_t i, struct token *token,
                                 struct belay_error *err)
{
    for (;; token->n_keys++) {
        char name[32];
        const char *pattern;
        char **keys;

        (void)snprintf(name, sizeof name, "keys.%zu", token->n_keys);
        pattern = token_setting(config, i, name);
        if (*pattern == '\0') {
            return BELAY_OK;
        }
        keys = realloc(token->keys, (token->n_keys + 1) * sizeof *keys);
        if (keys == NULL) {
            return error_no_memory(err);
        }
        token->keys = keys;
        keys[token->n_keys] = strdup(pattern);
        if (keys[token->n_keys] == NULL) {
            return error_no_memory(err);
        }
    }
}

static enum belay_code load_token(const struct belay_config *config, size_t i, struct token *token,
                                  struct belay_error *err)
{
    const char *name = token_setting(config, i, "name");

    if (!is_token_name(name)) {
        return error_set(err, BELAY_CONFIG,
                         "server.tokens.%zu.name: '%.70s' is not a name; write at most %d letters, digits, "
                         "'_', '.', '@' and '-'",
                         i, name, AUTH_NAME_MAX);
    }
    (void)snprintf(token->name, sizeof token->name, "%s", name);
    if (!parse_role(token_setting(config, i, "role"), &token->role)) {
        return error_set(err, BELAY_CONFIG, "server.tokens.%zu.role: '%.40s' is not reader, locker or admin",
                         i, token_setting(config, i, "role"));
    }
    if (!parse_hash(token_setting(config, i, "sha256"), token->hash)) {
        return error_set(err, BELAY_CONFIG,
                         "server.tokens.%zu.sha256 is not 64 digits 0-9a-f; 'belay auth new' prints the "
                         "whole line",
                         i);
    }
    if (*token_setting(config, i, "webhook_secret_file") != '\0' &&
        secret_read(token_setting(config, i, "webhook_secret_file"), token->webhook_secret,
                    sizeof token->webhook_secret, err) != BELAY_OK) {
        return error_wrap(err, "server.tokens.%zu.webhook_secret_file", i);
    }
    return load_keys(config, i, token, err);
}

/* Two tokens of one name may exist while one replaces the other. An item always has a setting: src/config sees to it. */
static bool is_there(const struct belay_config *config, size_t i)
{
    static const char *const names[] = { "name", "role", "sha256", "keys.0", "webhook_secret_file" };
    bool found = false;

    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        found = found || *token_setting(config, i, names[n]) != '\0';
    }
    return found;
}

enum belay_code tokens_load(const struct belay_config *config, struct tokens **out, struct belay_error *err)
{
    struct tokens *tokens = calloc(1, sizeof *tokens);
    enum belay_code code = tokens == NULL ? error_no_memory(err) : BELAY_OK;

    for (size_t i = 0; code == BELAY_OK && is_there(config, i); i++) {
        struct token *items = realloc(tokens->items, (i + 1) * sizeof *items);

        if (items == NULL) {
            code = error_no_memory(err);
            break;
        }
        tokens->items = items;
        memset(&items[i], 0, sizeof items[i]);
        tokens->n = i + 1;
        code = load_token(config, i, &items[i], err);
    }
    tokens = tokens_keep(tokens);
    if (code == BELAY_OK) {
        *out = tokens;
        tokens = NULL;
    }
    tokens_drop(tokens);
    return code;
}

struct tokens *tokens_keep(struct tokens *tokens)
{
    if (tokens != NULL) {
        tokens->n_refs++;
    }
    return tokens;
}

void tokens_drop(struct tokens *tokens)
{
    assert(tokens == NULL || tokens->n_refs > 0);
    if (tokens == NULL || --tokens->n_refs > 0) {
        return;
    }
    for (size_t i = 0; i < tokens->n; i++) {
        for (size_t k = 0; k < tokens->items[i].n_keys; k++) {
            free(tokens->items[i].keys[k]);
        }
        free(tokens->items[i].keys);
    }
    free(tokens->items);
    free(tokens);
}

/* ---- what a token may do ---- */

bool token_may_touch(const struct token *token, const char *key)
{
    for (size_t i = 0; i < token->n_keys; i++) {
        if (text_matches(key, token->keys[i])) {
            return true;
        }
    }
    return token->n_keys == 0;
}

bool tokens_let_lock(const struct tokens *tokens, const char *name, const char *key)
{
    for (size_t i = 0; i < tokens->n; i++) {
        const struct token *token = &tokens->items[i];

        if (token->role >= ROLE_LOCKER && strcmp(token->name, name) == 0 && token_may_touch(token, key)) {
            return true;
        }
    }
    return tokens->n == 0 || *name == '\0';
}

/* ---- authentication ---- */

void token_hash(const char *secret, size_t len, unsigned char out[AUTH_HASH_BYTES])
{
    (void)SHA256((const unsigned char *)secret, len, out);
}

void belay_serve_hash(const char *token, char out[SERVE_HASH_SIZE])
{
    unsigned char hash[AUTH_HASH_BYTES];

    token_hash(token, strlen(token), hash);
    text_hex(out, hash, AUTH_HASH_BYTES);
}

static bool has_scheme(const char *value, const char *scheme, const char **out_rest)
{
    size_t n = strlen(scheme);

    if (strncasecmp(value, scheme, n) != 0 || value[n] != ' ') {
        return false;
    }
    value += n;
    *out_rest = value + strspn(value, " ");
    return true;
}

/* The password of "user:password" in base64. */
static bool read_basic(const char *text, char out[AUTH_SECRET_MAX + 1])
{
    unsigned char plain[AUTH_SECRET_MAX * 2];
    size_t len = strlen(text);
    const char *colon;
    int n;

    if (len == 0 || len % 4 != 0 || len / 4 * 3 > sizeof plain - 1) {
        return false;
    }
    n = EVP_DecodeBlock(plain, (const unsigned char *)text, (int)len);
    if (n < 0) {
        return false;
    }
    plain[n] = '\0';
    colon = strchr((const char *)plain, ':');
    if (colon == NULL || strlen(colon + 1) > AUTH_SECRET_MAX) {
        OPENSSL_cleanse(plain, sizeof plain);
        return false;
    }
    memcpy(out, colon + 1, strlen(colon + 1) + 1);
    OPENSSL_cleanse(plain, sizeof plain);
    return true;
}

static bool secret_of_header(const char *value, char out[AUTH_SECRET_MAX + 1])
{
    const char *rest;

    if (has_scheme(value, "Bearer", &rest) && strlen(rest) <= AUTH_SECRET_MAX) {
        memcpy(out, rest, strlen(rest) + 1);
        return true;
    }
    return has_scheme(value, "Basic", &rest) && read_basic(rest, out);
}

enum auth auth_check(const struct tokens *tokens, const struct http_request *request,
                     const struct token **out_token)
{
    const char *value = http_header(request, "Authorization");
    const struct token *found = NULL;
    unsigned char hash[AUTH_HASH_BYTES];
    char secret[AUTH_SECRET_MAX + 1];

    if (value == NULL) {
        return AUTH_MISSING;
    }
    if (!secret_of_header(value, secret)) {
        return AUTH_WRONG;
    }
    token_hash(secret, strlen(secret), hash);
    OPENSSL_cleanse(secret, sizeof secret);
    for (size_t i = 0; i < tokens->n; i++) {
        if (CRYPTO_memcmp(hash, tokens->items[i].hash, sizeof hash) == 0) {
            found = &tokens->items[i];
        }
    }
    if (found == NULL) {
        return AUTH_WRONG;
    }
    *out_token = found;
    return AUTH_OK;
}

/* ---- wrong tokens ---- */

struct delayed {
    struct timer timer; /* first */
    struct delayed *next;
    struct exchange *x; /* owned */
};

static struct exchange *delays_take_out(struct delays *delays, struct delayed *delayed)
{
    struct delayed **at = &delays->first;
    struct exchange *x = delayed->x;

    while (*at != delayed) {
        at = &(*at)->next;
    }
    *at = delayed->next;
    delays->n--;
    free(delayed);
    return x;
}

static void on_delay_over(struct timer *timer)
{
    struct delayed *delayed = (struct delayed *)(void *)timer;
    struct exchange *x = delays_take_out(&delayed->x->server->delays, delayed);

    reply_problem(x, 401, "unauthorized", "unknown token");
}

void auth_refuse_later(struct exchange *x)
{
    struct server *server = x->server;
    struct delayed *delayed = NULL;

    if (server->delays.n < AUTH_DELAYED_MAX) {
        delayed = calloc(1, sizeof *delayed);
    }
    if (delayed == NULL) {
        reply_problem(x, 503, "too_many_failures", "too many wrong tokens at once; retry later");
        return;
    }
    delayed->timer.fire = on_delay_over;
    delayed->x = x;
    delayed->next = server->delays.first;
    server->delays.first = delayed;
    server->delays.n++;
    if (!loop_timer_set(server->loop, &delayed->timer, loop_now_ms(server->loop) + AUTH_DELAY_MS)) {
        on_delay_over(&delayed->timer);
    }
}

void delays_release(struct delays *delays)
{
    while (delays->first != NULL) {
        struct delayed *delayed = delays->first;

        loop_timer_cancel(delayed->x->server->loop, &delayed->timer);
        exchange_end(delays_take_out(delays, delayed), 499);
    }
}
