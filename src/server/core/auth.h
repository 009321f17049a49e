/* Authorization: tokens, roles and the keys that a token may see and lock. */
#ifndef SERVER_CORE_AUTH_H
#define SERVER_CORE_AUTH_H

#include "belay.h"
#include "server/http/http_server.h"

enum { AUTH_NAME_MAX = 64, AUTH_HASH_BYTES = 32, AUTH_SECRET_MAX = 512 };

/* Each role includes the rights of those before it. */
enum role { ROLE_NONE, ROLE_READER, ROLE_LOCKER, ROLE_ADMIN };

struct token {
    char name[AUTH_NAME_MAX + 1];
    enum role role;
    unsigned char hash[AUTH_HASH_BYTES];
    char **keys; /* owned; patterns, in which '*' matches anything; none: every key */
    size_t n_keys;
    char webhook_secret[AUTH_SECRET_MAX + 1]; /* "": none */
};

/*
 * All tokens. A reload replaces the table while requests that it authorized are still in progress: each of them
 * keeps a reference, and the last one frees the table. References are counted on the loop only.
 */
struct tokens {
    struct token *items; /* owned */
    size_t n;
    size_t n_refs;
};

/* Read server.tokens of the configuration; returns one reference. BELAY_CONFIG names the wrong setting. */
enum belay_code tokens_load(const struct belay_config *config, struct tokens **out, struct belay_error *err);
struct tokens *tokens_keep(struct tokens *tokens); /* adds a reference; returns tokens */
void tokens_drop(struct tokens *tokens);           /* drops a reference; NULL does nothing */

void token_hash(const char *secret, size_t len, unsigned char out[AUTH_HASH_BYTES]);
bool token_may_touch(const struct token *token, const char *key);
/* Whether a token of this name may still take this lock. True without tokens, and for a request without a name. */
bool tokens_let_lock(const struct tokens *tokens, const char *name, const char *key);
const char *role_name(enum role role);

enum auth { AUTH_OK, AUTH_MISSING, AUTH_WRONG, AUTH_FORGED /* sessions.h */ };

/* Bearer, or Basic with the token as the password. Compares with every token, in constant time. */
enum auth auth_check(const struct tokens *tokens, const struct http_request *request,
                     const struct token **out_token);

/* Replies to wrong tokens are delayed, so that guessing is slow. */
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
