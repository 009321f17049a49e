/*
 * AWS credentials and their refresh.
 *                 15 min           10 min           expiry
 *     ----------------|----------------|----------------|------------->
 *      used as is      one thread       all threads      an error, unless
 *                      fetches, the     wait for the     they came from IMDS
 *                      others use the   fetch; if it
 *                      old ones         fails: the old
 */
#ifndef AWS_CREDENTIALS_H
#define AWS_CREDENTIALS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "belay.h"
#include "http_client/platform.h"

struct credentials {
    char *access_key_id;     /* owned, as are all */
    char *secret_access_key; /* wiped when released */
    char *session_token;     /* or NULL; wiped when released */
    char *source;            /* in words: "profile 'ci' in /root/.aws/credentials" */
    int64_t expires_unix_ms; /* 0: never, as far as known */
    bool outlive;            /* if no new ones can be fetched, use them after their expiry (IMDS) */
};

void credentials_release(struct credentials *credentials); /* leaves it empty */
/* Sets copies of the strings; false without memory. session_token may be NULL. */
bool credentials_init(struct credentials *credentials, const char *access_key_id,
                      const char *secret_access_key, const char *session_token);
/* Moves *made to *out if the code is BELAY_OK, otherwise releases it. Returns the code. */
enum belay_code credentials_finish(enum belay_code code, struct credentials *made, struct credentials *out);
/* Records the source. Returns BELAY_OK or BELAY_NO_MEMORY. */
enum belay_code credentials_set_source(struct credentials *credentials, struct belay_error *err,
                                       const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Overwrite a secret, then free it. NULL does nothing. */
void wipe_text(char *secret);
void wipe_buf(struct buf *secret);

enum { CREDENTIALS_ADVISORY_MS = 15 * 60 * 1000, CREDENTIALS_MANDATORY_MS = 10 * 60 * 1000 };

/* Fetches new credentials. */
typedef enum belay_code (*credentials_fetch_fn)(void *context, struct credentials *out,
                                                struct belay_error *err);

struct credentials_cache;
struct credentials_cache *credentials_cache_new(const struct platform *platform, credentials_fetch_fn fetch,
                                                void *context); /* NULL without memory */
void credentials_cache_free(struct credentials_cache *cache);

/*
 * A copy of the present credentials, which the caller releases. However many threads ask, one
 * fetches. Never BELAY_UNKNOWN: the request to be signed was not sent.
 */
enum belay_code credentials_cache_get(struct credentials_cache *cache, struct credentials *out,
                                      struct belay_error *err);
/* A service rejected these: fetch new ones at the next get, unless they were replaced already. */
void credentials_cache_reject(struct credentials_cache *cache, const struct credentials *refused);

#endif
