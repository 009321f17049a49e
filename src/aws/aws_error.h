/* Error answers of a service, and what they mean for the request. */
#ifndef AWS_AWS_ERROR_H
#define AWS_AWS_ERROR_H

#include "aws/aws.h"
#include "aws/retry.h"

/* The effect of one attempt. */
enum attempt_fate {
    FATE_DONE,    /* 2xx */
    FATE_REFUSED, /* examined and refused: no effect */
    FATE_NOTHING, /* not examined: throttled, or never sent */
    FATE_DOUBT    /* perhaps carried out */
};

/* Causes that can be removed before the request is repeated, apart from retries. */
enum attempt_mend { MEND_NOTHING, MEND_CLOCK, MEND_CREDENTIALS };

struct attempt_verdict {
    enum attempt_fate fate;
    enum retry_kind retry;
    enum attempt_mend mend;
    enum belay_code code; /* if this was the last attempt, and no earlier one is in doubt */
};

/*
 * Reads the error's name and message from an answer that is not 2xx: JSON for DynamoDB, XML
 * for the others. The name is reduced to its last part. The caller frees both; without a name
 * in the body it is "HTTP 503".
 */
bool aws_error_parse(enum aws_service service, const struct http_response *response, char **out_code,
                     char **out_message);

/* `error_code` NULL: the status was 2xx. */
struct attempt_verdict aws_error_judge(enum aws_service service, int status, const char *error_code);

/* Advice for common errors; NULL if there is none. */
const char *aws_error_advice(const char *error_code);
/* Whether the service's own message may be shown: some of them quote what was signed. */
bool aws_error_message_is_safe(const char *error_code);

/* False if x-amz-crc32 is present and does not match the body. */
bool aws_crc_fits(const struct http_response *response);

#endif
