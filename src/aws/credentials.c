#include "aws/credentials.h"

#include <assert.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "aws/credentials_source.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"

/* Pauses after a failed fetch, while the old credentials are valid. */
enum { PAUSE_ADVISORY_MS = 60000, PAUSE_MANDATORY_MS = 5000 };

void wipe_text(char *secret)
{
    if (secret != NULL) {
        explicit_bzero(secret, strlen(secret));
        free(secret);
    }
}

void wipe_buf(struct buf *secret)
{
    if (secret->data != NULL) {
        explicit_bzero(secret->data, secret->cap);
    }
    buf_release(secret);
}

void credentials_release(struct credentials *credentials)
{
    free(credentials->access_key_id);
    wipe_text(credentials->secret_access_key);
    wipe_text(credentials->session_token);
    free(credentials->source);
    memset(credentials, 0, sizeof *credentials);
}

enum belay_code credentials_finish(enum belay_code code, struct credentials *made, struct credentials *out)
{
    assert(code != BELAY_OK || (made->access_key_id != NULL && made->secret_access_key != NULL));
    if (code == BELAY_OK) {
        *out = *made;
        memset(made, 0, sizeof *made);
    }
    credentials_release(made);
    return code;
}

bool credentials_init(struct credentials *credentials, const char *access_key_id,
                      const char *secret_access_key, const char *session_token)
{
    bool ok = true;

    credentials->access_key_id = text_copy(access_key_id, &ok);
    credentials->secret_access_key = text_copy(secret_access_key, &ok);
    credentials->session_token = text_copy(session_token, &ok);
    credentials->source = text_copy("", &ok);
    if (!ok) {
        credentials_release(credentials);
    }
    return ok;
}

static bool copy_credentials(const struct credentials *from, struct credentials *out)
{
    bool ok = true;
    struct credentials made = { .access_key_id = text_copy(from->access_key_id, &ok),
                                .secret_access_key = text_copy(from->secret_access_key, &ok),
                                .session_token = text_copy(from->session_token, &ok),
                                .source = text_copy(from->source, &ok),
                                .expires_unix_ms = from->expires_unix_ms,
                                .outlive = from->outlive };

    return credentials_finish(ok ? BELAY_OK : BELAY_NO_MEMORY, &made, out) == BELAY_OK;
}

enum belay_code credentials_set_source(struct credentials *credentials, struct belay_error *err,
                                       const char *format, ...)
{
    char text[512];
    char *copy;
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    copy = strdup(text);
    if (copy == NULL) {
        return error_no_memory(err);
    }
    free(credentials->source);
    credentials->source = copy;
    return BELAY_OK;
}

struct credentials_cache {
    const struct platform *platform; /* borrowed */
    credentials_fetch_fn fetch;
    void *context;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct credentials present; /* owned; empty before the first fetch */
    bool fetching;              /* a thread fetches */
    bool rejected;              /* a service rejected the present ones */
    int64_t pause_until_ms;     /* monotonic clock: no new attempt before, while the present ones are valid */
};

struct credentials_cache *credentials_cache_new(const struct platform *platform, credentials_fetch_fn fetch,
                                                void *context)
{
    struct credentials_cache *cache = calloc(1, sizeof *cache);

    if (cache != NULL) {
        cache->platform = platform;
        cache->fetch = fetch;
        cache->context = context;
        (void)pthread_mutex_init(&cache->mutex, NULL);
        (void)pthread_cond_init(&cache->changed, NULL);
    }
    return cache;
}

void credentials_cache_free(struct credentials_cache *cache)
{
    if (cache == NULL) {
        return;
    }
    assert(!cache->fetching);
    credentials_release(&cache->present);
    (void)pthread_mutex_destroy(&cache->mutex);
    (void)pthread_cond_destroy(&cache->changed);
    free(cache);
}

enum freshness { FRESH, AGEING, OLD, UNUSABLE };

static enum freshness freshness_of(const struct credentials_cache *cache)
{
    const struct credentials *present = &cache->present;
    int64_t left;

    if (present->access_key_id == NULL) {
        return UNUSABLE;
    }
    if (cache->rejected) {
        return OLD;
    }
    if (present->expires_unix_ms == 0) {
        return FRESH;
    }
    left = present->expires_unix_ms - platform_unix_ms(cache->platform);
    if (left <= 0) {
        return present->outlive ? OLD : UNUSABLE;
    }
    return left <= CREDENTIALS_MANDATORY_MS ? OLD : left <= CREDENTIALS_ADVISORY_MS ? AGEING : FRESH;
}

/* Called with the mutex held; unlocks it during the fetch. */
static enum belay_code fetch_now(struct credentials_cache *cache, enum freshness before,
                                 struct belay_error *err)
{
    struct credentials fetched = { 0 };
    enum belay_code code;

    assert(!cache->fetching);
    cache->fetching = true;
    (void)pthread_mutex_unlock(&cache->mutex);
    code = cache->fetch(cache->context, &fetched, err);
    (void)pthread_mutex_lock(&cache->mutex);
    assert(cache->fetching); /* one thread fetches at a time */
    cache->fetching = false;
    if (code == BELAY_OK) {
        assert(fetched.access_key_id != NULL && fetched.secret_access_key != NULL);
        credentials_release(&cache->present);
        cache->present = fetched;
        cache->rejected = false;
        cache->pause_until_ms = 0;
    } else {
        cache->pause_until_ms =
            platform_mono_ms(cache->platform) + (before == AGEING ? PAUSE_ADVISORY_MS : PAUSE_MANDATORY_MS);
    }
    (void)pthread_cond_broadcast(&cache->changed);
    return code;
}

/* With the mutex held: makes sure that the present ones may be used. */
static enum belay_code freshen(struct credentials_cache *cache, struct belay_error *err)
{
    enum freshness state = freshness_of(cache);
    enum belay_code code;

    while (cache->fetching && (state == OLD || state == UNUSABLE)) {
        (void)pthread_cond_wait(&cache->changed, &cache->mutex);
        state = freshness_of(cache);
    }
    if (state == FRESH || cache->fetching) {
        return BELAY_OK;
    }
    if (state != UNUSABLE && platform_mono_ms(cache->platform) < cache->pause_until_ms) {
        return BELAY_OK;
    }
    code = fetch_now(cache, state, err);
    if (code != BELAY_OK && freshness_of(cache) != UNUSABLE) {
        belay_error_release(err); /* the old ones are still valid */
        return BELAY_OK;
    }
    return code;
}

enum belay_code credentials_cache_get(struct credentials_cache *cache, struct credentials *out,
                                      struct belay_error *err)
{
    enum belay_code code;

    (void)pthread_mutex_lock(&cache->mutex);
    code = freshen(cache, err);
    assert(code != BELAY_OK || cache->present.access_key_id != NULL);
    if (code == BELAY_OK && !copy_credentials(&cache->present, out)) {
        code = error_no_memory(err);
    }
    (void)pthread_mutex_unlock(&cache->mutex);
    if (code == BELAY_UNKNOWN) {
        code = BELAY_UNREACHABLE;
        if (err != NULL) {
            err->code = code;
        }
    }
    return code;
}

void credentials_cache_reject(struct credentials_cache *cache, const struct credentials *refused)
{
    (void)pthread_mutex_lock(&cache->mutex);
    if (text_is_same(cache->present.access_key_id, refused->access_key_id) &&
        text_is_same(cache->present.session_token, refused->session_token)) {
        cache->rejected = true;
        cache->pause_until_ms = 0;
    }
    (void)pthread_mutex_unlock(&cache->mutex);
}

/* ---- from JSON ---- */

static const char *nonempty_text(const json_t *root, const char *key)
{
    const char *text = json_string_value(json_object_get(root, key));

    return text == NULL || *text == '\0' ? NULL : text;
}

/* An answer that declares itself an error, whatever its status. */
static enum belay_code declares_error(const json_t *root, const char *what, struct belay_error *err)
{
    const char *code = nonempty_text(root, "Code");
    const char *message = nonempty_text(root, "Message");

    if (code == NULL || strcmp(code, "Success") == 0) {
        return BELAY_OK;
    }
    return error_set(err, BELAY_NOT_PERMITTED, "%s gave no credentials: %.100s%s%.200s", what, code,
                     message == NULL ? "" : ": ", message == NULL ? "" : message);
}

enum belay_code credentials_from_json(const char *text, size_t len, const char *token_key, const char *what,
                                      struct credentials *out, struct belay_error *err)
{
    json_t *root = json_loadb(text, len, 0, NULL);
    const char *id = nonempty_text(root, "AccessKeyId");
    const char *secret = nonempty_text(root, "SecretAccessKey");
    const char *expiration = nonempty_text(root, "Expiration");
    struct credentials made = { 0 };
    enum belay_code code;

    if (!json_is_object(root)) {
        code = error_set(err, BELAY_BAD_CONTENT, "%s did not print a JSON object with credentials", what);
        goto done;
    }
    code = declares_error(root, what, err);
    if (code != BELAY_OK) {
        goto done;
    }
    if (id == NULL || secret == NULL) {
        code = error_set(err, BELAY_BAD_CONTENT, "%s left out %s", what,
                         id == NULL ? "AccessKeyId" : "SecretAccessKey");
        goto done;
    }
    if (!credentials_init(&made, id, secret, nonempty_text(root, token_key))) {
        code = error_no_memory(err);
        goto done;
    }
    if (expiration != NULL && !clock_parse_iso(expiration, &made.expires_unix_ms)) {
        code = error_set(err, BELAY_BAD_CONTENT,
                         "%s gave an Expiration that is not a time such as 2026-01-31T12:00:00Z", what);
    }

done:
    json_decref(root);
    return credentials_finish(code, &made, out);
}
