/* Who may do what: tokens, roles and the keys that a token may see and lock. */
#ifndef SERVER_CORE_AUTH_H
#define SERVER_CORE_AUTH_H

#include "belay.h"
#include "server/http/http_server.h"

enum { AUTH_NAME_MAX = 64, AUTH_HASH_BYTES = 32, AUTH_SECRET_MAX = 512 };

/* Each may do what those before it may. */
enum role { ROLE_NONE, ROLE_READER, ROLE_LOCKER, ROLE_ADMIN };

struct token {
    char name[AUTH_NAME_MAX + 1];
    enum role role;
    unsigned char hash[AUTH_HASH_BYTES];
    char **keys; /* owned; patterns, in which '*' is anything. None: every key */
    size_t n_keys;
    char webhook_secret[AUTH_SECRET_MAX + 1]; /* "": none */
};

/*
 * All of them. A reload puts another table in its place while requests that were
 * authorized by this one are still under way: each keeps a reference to it, and the
 * last one frees it. References are counted in the loop's thread only.
 */
struct tokens {
    struct token *items; /* owned */
    size_t n;
    size_t n_refs;
};

/* server.tokens of the configuration, with one reference. BELAY_CONFIG names what is wrong. */
enum belay_code tokens_load(const struct belay_config *config, struct tokens **out, struct belay_error *err);
struct tokens *tokens_keep(struct tokens *tokens); /* one more reference; returns tokens */
void tokens_drop(struct tokens *tokens);           /* one less; NULL is none */

void token_hash(const char *secret, size_t len, unsigned char out[AUTH_HASH_BYTES]);
bool token_may_touch(const struct token *token, const char *key);
/* Whether a token of this name may still take this lock; without tokens, and for a request without a name, it is so. */
bool tokens_let_lock(const struct tokens *tokens, const char *name, const char *key);
const char *role_name(enum role role);

enum auth { AUTH_OK, AUTH_MISSING, AUTH_WRONG };

/* Bearer, or Basic with the token as the password. Every token is compared, in a time that tells nothing. */
enum auth auth_check(const struct tokens *tokens, const struct http_request *request,
                     const struct token **out_token);

/* Answers to wrong tokens that are held back, so that guessing is slow. */
enum { AUTH_DELAY_MS = 500, AUTH_DELAYED_MAX = 1024 };
struct exchange;
struct delayed;
struct delays {
    struct delayed *first; /* owned */
    size_t n;
};
/* Takes over the exchange. */
void auth_refuse_later(struct exchange *x);
void delays_release(struct delays *delays);

#endif
