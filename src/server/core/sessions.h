/*
 * Sessions of the dashboard: a browser that has shown a token gets a cookie with a random id, which scripts cannot
 * read, and needs the token no more. Kept in memory only, by the hash of the id. A session ends when it is signed out,
 * after SESSION_MS, when the configuration no longer has its token, or with the server.
 *
 * A browser adds the cookie to every request, also to one that a page of another site makes. So a request that changes
 * something must prove that it comes from a page of this server: by its Origin, or by a header that other sites cannot
 * send. Everything here runs on the loop's thread.
 */
#ifndef SERVER_CORE_SESSIONS_H
#define SERVER_CORE_SESSIONS_H

#include "server/core/auth.h"

enum {
    SESSIONS_MAX = 1024,          /* of all tokens; then the oldest ends */
    SESSIONS_PER_TOKEN = 64,      /* the same for one token, so that it cannot end all others */
    SESSION_MS = 12 * 60 * 60000, /* from the log-in */
    SESSION_ID_BYTES = 32
};
#define SESSION_COOKIE "belay_session"
#define SESSION_HEADER "Belay-Session" /* any value */

struct session {
    uint64_t number; /* counts up from 1; 0: none */
    int64_t ends_boot_ms;
    unsigned char id_hash[AUTH_HASH_BYTES];
    unsigned char token_hash[AUTH_HASH_BYTES];
};

struct sessions {
    struct session *all; /* owned; SESSIONS_MAX of them, or NULL before the first log-in */
    size_t n;
    uint64_t last; /* number */
};

/* The cookie of a new session for this token, with its attributes. False: no memory, or no randomness. */
enum { SESSION_COOKIE_SIZE = 256 };
bool session_begin(struct sessions *sessions, const struct token *token, const struct http_request *request,
                   int64_t now_ms, char out_cookie[SESSION_COOKIE_SIZE]);
/* End it. Writes the cookie that removes it from the browser. */
void session_end(struct sessions *sessions, uint64_t number, const struct http_request *request,
                 char out_cookie[SESSION_COOKIE_SIZE]);
void sessions_release(struct sessions *sessions);

/*
 * AUTH_MISSING: the request has no cookie of a session that is still good. AUTH_FORGED: it has, but it changes something
 * and may come from a page of another site.
 */
enum auth session_check(const struct sessions *sessions, const struct tokens *tokens,
                        const struct http_request *request, int64_t now_ms, const struct token **out_token,
                        uint64_t *out_number);

#endif
