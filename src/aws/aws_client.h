/* Internals of the AWS client; for src/aws only. */
#ifndef AWS_AWS_CLIENT_H
#define AWS_AWS_CLIENT_H

#include <stdatomic.h>

#include "aws/aws.h"
#include "aws/aws_error.h"
#include "aws/aws_profile.h"
#include "aws/credentials.h"
#include "aws/endpoint.h"
#include "aws/retry.h"
#include "aws/sigv4.h"

struct aws_client {
    const struct platform *platform; /* borrowed */
    struct http *http;
    bool owns_http;
    char *profile;         /* owned */
    bool profile_is_given; /* by the caller: then the environment's keys are ignored */
    char *region;          /* owned; or NULL */
    const char *region_origin;
    struct endpoint endpoints[AWS_N_SERVICES]; /* owned */
    int max_attempts;                          /* 0: each service's own */
    int64_t timeout_ms;
    struct sigv4_signer *signer;     /* owned */
    struct credentials_cache *cache; /* owned */
    struct retry_quota quotas[AWS_N_SERVICES];
    /* For signatures: the services' clock minus the local one; 0 as long as it was not minutes. */
    _Atomic int64_t skew_ms;
};

/* One attempt. */
struct attempt {
    enum belay_code sent; /* the result of http_send(); not BELAY_OK: there is no answer */
    struct attempt_verdict verdict;
};

/* Signs with `credentials` (NULL: not at all) and sends once. Fills *response. */
void aws_attempt(struct aws_client *client, const struct credentials *credentials,
                 const struct aws_request *request, int64_t timeout_ms, struct aws_response *response,
                 struct attempt *out, struct belay_error *err);

/* The chain of sources: a credentials_fetch_fn whose context is the client. In credentials_chain.c. */
enum belay_code aws_fetch_credentials(void *context, struct credentials *out, struct belay_error *err);

#endif
