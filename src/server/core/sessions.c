#include "server/core/sessions.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

enum { ID_SIZE = 2 * SESSION_ID_BYTES + 1, NAME_SIZE = 32 };

/* ---- the cookie ---- */

/* Browsers do not tell the ports of a host apart, so two servers on one machine need two names. */
static void cookie_name(const struct http_request *request, char out[NAME_SIZE])
{
    const char *host = http_header(request, "Host");
    const char *port = host == NULL ? NULL : strrchr(host, ':');

    if (port == NULL || strspn(port + 1, "0123456789") != strlen(port + 1) || strlen(port + 1) > 5) {
        port = ":";
    }
    (void)snprintf(out, NAME_SIZE, SESSION_COOKIE "%s%s", port[1] == '\0' ? "" : "_", port + 1);
}

/* The value of this cookie; false: there is none, or it is no session's id. */
static bool read_cookie(const struct http_request *request, char out[ID_SIZE])
{
    char name[NAME_SIZE];
    size_t len;

    cookie_name(request, name);
    len = strlen(name);
    for (size_t i = 0; i < request->n_headers; i++) {
        const char *at = request->headers[i].value;

        for (; strcasecmp(request->headers[i].name, "Cookie") == 0 && *at != '\0'; at += *at == ';') {
            at += strspn(at, " ");
            if (strncmp(at, name, len) == 0 && at[len] == '=' && strcspn(at + len + 1, "; ") == ID_SIZE - 1) {
                memcpy(out, at + len + 1, ID_SIZE - 1);
                out[ID_SIZE - 1] = '\0';
                return true;
            }
            at += strcspn(at, ";");
        }
    }
    return false;
}

/* A proxy may have ended TLS: the Origin says how the page was loaded. */
static bool is_secure(const struct http_request *request)
{
    const char *origin = http_header(request, "Origin");

    return request->is_tls || (origin != NULL && strncasecmp(origin, "https://", 8) == 0);
}

static void write_cookie(const struct http_request *request, const char *id, long seconds,
                         char out[SESSION_COOKIE_SIZE])
{
    char name[NAME_SIZE];

    cookie_name(request, name);
    (void)snprintf(out, SESSION_COOKIE_SIZE, "%s=%s; Path=/; HttpOnly; SameSite=Strict; Max-Age=%ld%s", name,
                   id, seconds, is_secure(request) ? "; Secure" : "");
}

/* ---- the table ---- */

static void session_drop(struct sessions *sessions, size_t i)
{
    assert(i < sessions->n);
    sessions->all[i] = sessions->all[--sessions->n];
    OPENSSL_cleanse(&sessions->all[sessions->n], sizeof sessions->all[0]);
}

static void drop_ended(struct sessions *sessions, int64_t now_ms)
{
    for (size_t i = sessions->n; i-- > 0;) {
        if (sessions->all[i].ends_boot_ms <= now_ms) {
            session_drop(sessions, i);
        }
    }
}

/* The oldest ends if there are `most`: of this token, or of all if it is NULL. */
static void end_oldest(struct sessions *sessions, const struct token *token, size_t most)
{
    size_t oldest = 0;
    size_t n = 0;

    for (size_t i = 0; i < sessions->n; i++) {
        if (token != NULL && memcmp(sessions->all[i].token_hash, token->hash, AUTH_HASH_BYTES) != 0) {
            continue;
        }
        if (n++ == 0 || sessions->all[i].number < sessions->all[oldest].number) {
            oldest = i;
        }
    }
    if (n >= most) {
        session_drop(sessions, oldest);
    }
}

bool session_begin(struct sessions *sessions, const struct token *token, const struct http_request *request,
                   int64_t now_ms, char out_cookie[SESSION_COOKIE_SIZE])
{
    unsigned char random[SESSION_ID_BYTES];
    char id[ID_SIZE];
    struct session *session;

    assert(token != NULL);
    if (sessions->all == NULL) {
        sessions->all = calloc(SESSIONS_MAX, sizeof *sessions->all);
    }
    if (sessions->all == NULL || !random_bytes(random, sizeof random)) {
        return false;
    }
    drop_ended(sessions, now_ms);
    end_oldest(sessions, token, SESSIONS_PER_TOKEN);
    end_oldest(sessions, NULL, SESSIONS_MAX);
    text_hex(id, random, sizeof random);
    assert(sessions->n < SESSIONS_MAX);
    session = &sessions->all[sessions->n++];
    session->number = ++sessions->last;
    session->ends_boot_ms = now_ms + SESSION_MS;
    token_hash(id, ID_SIZE - 1, session->id_hash);
    memcpy(session->token_hash, token->hash, sizeof session->token_hash);
    write_cookie(request, id, SESSION_MS / 1000, out_cookie);
    OPENSSL_cleanse(id, sizeof id);
    OPENSSL_cleanse(random, sizeof random);
    return true;
}

void session_end(struct sessions *sessions, uint64_t number, const struct http_request *request,
                 char out_cookie[SESSION_COOKIE_SIZE])
{
    for (size_t i = sessions->n; i-- > 0;) {
        if (sessions->all[i].number == number) {
            session_drop(sessions, i);
        }
    }
    write_cookie(request, "", 0, out_cookie);
}

void sessions_release(struct sessions *sessions)
{
    while (sessions->n > 0) {
        session_drop(sessions, sessions->n - 1);
    }
    free(sessions->all);
    sessions->all = NULL;
}

/* ---- checking ---- */

/* site_check() has compared an Origin with the Host. Other sites cannot send a header of our own without asking first. */
static bool may_be_forged(const struct http_request *request)
{
    bool changes = strcmp(request->method, "GET") != 0 && strcmp(request->method, "HEAD") != 0;

    return changes && http_header(request, "Origin") == NULL && http_header(request, SESSION_HEADER) == NULL;
}

enum auth session_check(const struct sessions *sessions, const struct tokens *tokens,
                        const struct http_request *request, int64_t now_ms, const struct token **out_token,
                        uint64_t *out_number)
{
    const struct session *session = NULL;
    unsigned char hash[AUTH_HASH_BYTES];
    char id[ID_SIZE];

    assert(sessions->n <= SESSIONS_MAX);
    if (sessions->n == 0 || !read_cookie(request, id)) {
        return AUTH_MISSING;
    }
    token_hash(id, ID_SIZE - 1, hash);
    for (size_t i = 0; i < sessions->n; i++) {
        if (CRYPTO_memcmp(hash, sessions->all[i].id_hash, sizeof hash) == 0 &&
            sessions->all[i].ends_boot_ms > now_ms) {
            session = &sessions->all[i];
        }
    }
    for (size_t i = 0; session != NULL && i < tokens->n; i++) {
        if (memcmp(session->token_hash, tokens->items[i].hash, AUTH_HASH_BYTES) != 0) {
            continue;
        }
        if (may_be_forged(request)) {
            return AUTH_FORGED;
        }
        *out_token = &tokens->items[i];
        *out_number = session->number;
        return AUTH_OK;
    }
    return AUTH_MISSING;
}
