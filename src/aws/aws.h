/*
 * Calls to AWS: finds region, endpoint and credentials as AWS's own tools do, signs, sends and
 * retries, and tells whether a failed request may have been carried out.
 * One client serves any number of threads.
 */
#ifndef AWS_AWS_H
#define AWS_AWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "belay.h"
#include "http_client/http.h"
#include "http_client/platform.h"

enum aws_service { AWS_DYNAMODB, AWS_S3, AWS_STS, AWS_EC2, AWS_N_SERVICES };
const char *aws_service_name(enum aws_service service); /* "dynamodb" */

struct aws_options {
    /* NULL: AWS_PROFILE, AWS_DEFAULT_PROFILE, "default". If given, credentials in the environment are ignored. */
    const char *profile;
    const char *region;                    /* NULL: AWS_REGION, AWS_DEFAULT_REGION, the profile's */
    const char *endpoints[AWS_N_SERVICES]; /* NULL: AWS_ENDPOINT_URL_..., the profile's, AWS's own */
    int max_attempts;                      /* 0: AWS_MAX_ATTEMPTS, the profile's, the service's default */
    int64_t connect_timeout_ms;            /* 0: 3 s */
    int64_t timeout_ms;                    /* for one attempt; 0: 10 s */
    const struct platform *platform;       /* borrowed; NULL: the system's */
    struct http *http;                     /* borrowed; NULL: one of its own */
};

struct aws_client;
/* Reads the environment and the shared files; sends nothing. `options` may be NULL. */
enum belay_code aws_open(const struct aws_options *options, struct aws_client **out_client,
                         struct belay_error *err);
void aws_close(struct aws_client *client);

enum aws_retry {
    AWS_RETRY_STANDARD, /* for idempotent requests: after any failure that a retry may cure */
    AWS_RETRY_SAFE,     /* only when the request certainly had no effect: throttled, or never sent */
    /* The caller retries. (A request that was rejected for a wrong clock or an expired token is repeated once.) */
    AWS_RETRY_NONE
};

struct aws_request {
    enum aws_service service;
    const char *operation;   /* for messages: "UpdateItem" */
    const char *method;      /* NULL: POST */
    const char *host_prefix; /* "bucket." before the endpoint's host; NULL: none */
    const char *path;        /* percent-encoded; NULL: "/" */
    const char *query;       /* percent-encoded; NULL: none */
    const struct http_client_header
        *headers; /* besides host, date, authorization and token; all are signed */
    size_t n_headers;
    const void *body;
    size_t body_len;
    bool reads_only; /* the request has no effect, so a failure is never in doubt */
    enum aws_retry retry;
    int max_attempts;         /* 0: the client's */
    int64_t timeout_ms;       /* for one attempt; 0: the client's */
    int64_t deadline_mono_ms; /* no attempt starts or continues after it; 0: none */
    size_t max_answer;        /* 0: 16 MiB */
};

struct aws_response {
    struct http_response http; /* owned; of the last answer; status 0 if there was none */
    char *error_code;          /* owned; "ConditionalCheckFailedException"; NULL after success */
    char *error_message;       /* owned; the service's, one line; or NULL */
    bool in_doubt;             /* an earlier attempt of this call may have been carried out */
    int attempts;
    int64_t sent_unix_ms;     /* the local wall clock just before the answered attempt was sent */
    int64_t received_unix_ms; /* and when its answer arrived; compare http.date_unix_ms */
};
void aws_response_release(struct aws_response *response);

/*
 * Signs, sends and retries. *response need not be initialised; it is filled after any outcome,
 * and the caller releases it.
 *  BELAY_OK              done: the status is 2xx
 *  BELAY_REFUSED         a condition failed, or a conflict: see error_code and the body
 *  BELAY_NOT_FOUND, BELAY_NOT_PERMITTED, BELAY_INVALID
 *                        the service refused, and did nothing
 *  BELAY_CONFIG          no region, no credentials, a bad endpoint: nothing was sent
 *  BELAY_UNREACHABLE     certainly no effect: never sent, or throttled
 *  BELAY_UNKNOWN         it may have happened, or may still happen
 * After a refusal, response->in_doubt says that an earlier attempt of this call may have
 * succeeded: then the condition may have failed because of this call's own write.
 * BELAY_UNREACHABLE is never in doubt.
 */
enum belay_code aws_call(struct aws_client *client, const struct aws_request *request,
                         struct aws_response *response, struct belay_error *err);

struct credentials;
/* The same with these credentials; NULL sends it unsigned. */
enum belay_code aws_call_as(struct aws_client *client, const struct credentials *credentials,
                            const struct aws_request *request, struct aws_response *response,
                            struct belay_error *err);

/* ---- for `belay doctor` and for stores ---------------------------------- */

const char *aws_region(const struct aws_client *client);        /* NULL: none is set */
const char *aws_region_origin(const struct aws_client *client); /* "AWS_REGION" */
/*
 * The URL of a service, and whether it was configured (then S3 needs the bucket in the path).
 * NULL without a region.
 */
const char *aws_endpoint(const struct aws_client *client, enum aws_service service);
bool aws_endpoint_is_set(const struct aws_client *client, enum aws_service service);

/* The source of the credentials, for display; fetches them if necessary. The caller frees it. */
enum belay_code aws_credentials_origin(struct aws_client *client, char **out_text, struct belay_error *err);

#endif
