#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "cli/commands/commands.h"
#include "cli/commands/serve_module.h"
#include "json/json_write.h"

enum { SECRET_BYTES = 33, SECRET_SIZE = 64, NAME_MAX_BYTES = 64, KEYS_MAX = 64 };

/* 33 random bytes are 44 letters without padding; the word in front lets scanners for leaked secrets find it. */
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

static bool is_name(const char *name)
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

/* As JSON, which is YAML too: quotes and all are right. */
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

static int print_token(const struct cli_context *context, const struct new_token *token)
{
    json_t *entry = token_entry(token);
    char *line;

    if (context->json && entry != NULL) {
        (void)json_object_set_new(entry, "token", json_string(token->secret));
    }
    line = wire_line(entry);
    if (line == NULL) {
        return cli_fail(context, BELAY_NO_MEMORY, "no memory");
    }
    if (context->json) {
        (void)printf("%s\n", line);
    } else {
        (void)printf("%s\n", token->secret);
        cli_note(context, "this is the token; it is not kept anywhere, so keep it now");
        cli_hint(context,
                 "add this under 'server:', 'tokens:' in the server's configuration, and send it SIGHUP:");
        cli_hint(context, "    - %s", line);
    }
    free(line);
    return CLI_OK;
}

static int exec_auth_new(struct cli_context *context, const struct options *options)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct new_token token = { .name = options_text(options, "name"),
                               .role = options_text(options, "role"),
                               .options = options };
    struct serve_module module;
    int code;

    token.name = token.name == NULL ? "token" : token.name;
    token.role = token.role == NULL ? "locker" : token.role;
    if (!is_name(token.name)) {
        return cli_fail(context, BELAY_INVALID,
                        "--name '%s': write at most %d letters, digits, '_', '.', '@' and '-'", token.name,
                        NAME_MAX_BYTES);
    }
    for (size_t i = 0; options_nth(options, "keys", i) != NULL; i++) {
        if (!text_is_clean(options_nth(options, "keys", i), BELAY_KEY_MAX) || i == KEYS_MAX) {
            return cli_fail(context, BELAY_INVALID, "--keys: a pattern is 1 to %d bytes, and %d are the most",
                            BELAY_KEY_MAX, KEYS_MAX);
        }
    }
    if (!make_secret(token.secret)) {
        return cli_fail(context, BELAY_BUG, "the system gives no random bytes");
    }
    if (serve_module_load(&module, &err) != BELAY_OK) {
        code = cli_error(context, &err);
    } else {
        module.hash(token.secret, token.hash);
        code = print_token(context, &token);
    }
    belay_error_release(&err);
    return code;
}

static const struct option_def defs[] = {
    { .name = "name",
      .kind = OPTION_TEXT,
      .value = "NAME",
      .help = "whose it is, for logs and history; by default token" },
    { .name = "role",
      .kind = OPTION_CHOICE,
      .choices = "reader|locker|admin",
      .help = "what it may do; by default locker" },
    { .name = "keys",
      .kind = OPTION_TEXT,
      .value = "PATTERN",
      .help = "keys it may see and lock, with * for anything; by default all",
      .repeatable = true },
    { .name = NULL },
};
static const struct option_group group = { "Options", defs };

const struct cli_command cmd_auth_new = {
    .name = "auth new",
    .synopsis = "[--name NAME] [--role ROLE] [--keys PATTERN]...",
    .summary = "make a token for 'belay serve'",
    .about =
        "Makes a new token and prints it once, on standard output. What to add to the server's configuration "
        "is "
        "printed on standard error: the configuration has only the token's SHA-256 hash.\n\n"
        "A reader may look at locks, history and events. A locker may also acquire, renew and release, the "
        "keys that fit one of the patterns. An admin may also end the locks of others, and sees lock ids.",
    .groups = { &group },
    .exits = { { 0, "done" },
               { 64, "the command line is wrong" },
               { 78, "the server's part is not installed" } },
    .examples = { { "belay auth new --name ci --role locker --keys 'build-*'", "for the build jobs" },
                  { "belay auth new --name dashboard --role reader", "for who only looks" } },
    .exec = exec_auth_new,
};
