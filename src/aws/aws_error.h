/* What a service says when it refuses, and what that means for the request. */
#ifndef AWS_AWS_ERROR_H
#define AWS_AWS_ERROR_H

#include "aws/aws.h"
#include "aws/retry.h"

/* What became of one attempt. */
enum attempt_fate {
    FATE_DONE,    /* 2xx */
    FATE_REFUSED, /* looked at and refused: nothing was done */
    FATE_NOTHING, /* not looked at: throttled, or never sent */
    FATE_DOUBT    /* perhaps done */
};

/* Things that are mended and sent again, apart from retries. */
enum attempt_mend { MEND_NOTHING, MEND_CLOCK, MEND_CREDENTIALS };

struct attempt_verdict {
    enum attempt_fate fate;
    enum retry_kind retry;
    enum attempt_mend mend;
    enum belay_code code; /* if this was the last attempt, and no earlier one is in doubt */
};

/*
 * The error's name and message out of an answer that is not 2xx: JSON for
 * DynamoDB, XML for the others. The name is cut down to its last part. Both are
 * the caller's to free; without a name in the body it is "HTTP 503".
 */
bool aws_error_parse(enum aws_service service, const struct http_response *response, char **out_code,
                     char **out_message);

/* `error_code` NULL: the status was 2xx. */
struct attempt_verdict aws_error_judge(enum aws_service service, int status, const char *error_code);

/* What to do about it, for errors that people meet; NULL if there is nothing to add. */
const char *aws_error_advice(const char *error_code);
/* Whether the service's own message may be shown: some of them quote what was signed. */
bool aws_error_message_is_safe(const char *error_code);

/* False if x-amz-crc32 is there and does not fit the body. */
bool aws_crc_fits(const struct http_response *response);

#endif
