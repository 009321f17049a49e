#include "aws/aws_error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <zlib.h>

#include "aws/text/xml.h"
#include "base/buf.h"

enum { MAX_MESSAGE = 400 };

/* One line without control characters, of limited length. */
static char *message_line(const char *text)
{
    size_t len = strcspn(text, "\r\n");
    char *line;

    if (len > MAX_MESSAGE) {
        len = MAX_MESSAGE;
        while (len > 0 && ((unsigned char)text[len] & 0xC0) == 0x80) {
            len--; /* not in the middle of a character */
        }
    }
    line = strndup(text, len);
    for (char *c = line; c != NULL && *c != '\0'; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f) {
            *c = ' ';
        }
    }
    return line;
}

/* "com.amazonaws.dynamodb.v20120810#X:http://..." is X. */
static char *short_name(const char *name)
{
    size_t len = strcspn(name, ":");
    const char *hash = memchr(name, '#', len);

    if (hash != NULL) {
        len -= (size_t)(hash + 1 - name);
        name = hash + 1;
    }
    return len == 0 || len > 200 ? NULL : strndup(name, len);
}

static const char *json_text(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static void parse_json(const struct http_response *response, char **code, char **message)
{
    json_t *root = json_loadb(response->body, response->body_len, JSON_DECODE_ANY, NULL);
    const char *type = json_text(root, "__type");
    const char *text = json_text(root, "message");

    if (type == NULL) {
        type = json_text(root, "code");
    }
    if (type == NULL) {
        type = http_response_header(response, "x-amzn-errortype");
    }
    if (text == NULL) {
        text = json_text(root, "Message");
    }
    *code = type == NULL ? NULL : short_name(type);
    *message = text == NULL ? NULL : message_line(text);
    json_decref(root);
}

/* S3: Error/Code. STS: ErrorResponse/Error/Code. EC2: Response/Errors/Error/Code. */
static void parse_xml(const struct http_response *response, char **code, char **message)
{
    static const char *const places[] = { "", "Error/", "Errors/Error/" };
    struct xml *root = xml_parse(response->body, response->body_len);

    for (size_t i = 0; root != NULL && i < sizeof places / sizeof places[0]; i++) {
        char path[64];
        const char *text;

        (void)snprintf(path, sizeof path, "%sCode", places[i]);
        text = xml_text(root, path);
        if (text != NULL) {
            *code = short_name(text);
            (void)snprintf(path, sizeof path, "%sMessage", places[i]);
            text = xml_text(root, path);
            *message = text == NULL ? NULL : message_line(text);
            break;
        }
    }
    xml_free(root);
}

bool aws_error_parse(enum aws_service service, const struct http_response *response, char **out_code,
                     char **out_message)
{
    char *code = NULL;
    char *message = NULL;

    if (service == AWS_DYNAMODB) {
        parse_json(response, &code, &message);
    } else {
        parse_xml(response, &code, &message);
    }
    if (code == NULL) {
        char status[32];

        (void)snprintf(status, sizeof status, "HTTP %d", response->status);
        code = strdup(status);
    }
    if (code == NULL) {
        free(message);
        return false;
    }
    *out_code = code;
    *out_message = message;
    return true;
}

#define KEYS_ADVICE "the access key is not known: check AWS_ACCESS_KEY_ID or the profile"
#define EXPIRED_ADVICE "the session token has expired: get new credentials, or use a source that renews them"
#define DENIED_ADVICE "allow it in the IAM policy; 'belay doctor' names all that is missing"
#define CLOCK_ADVICE "this machine's clock is wrong: set it (NTP)"

static const struct known {
    const char *name;
    enum attempt_fate fate;
    enum retry_kind retry;
    enum attempt_mend mend;
    enum belay_code code;
    const char *advice;
} known[] = {
    /* throttling */
    { "Throttling", FATE_NOTHING, RETRY_THROTTLE, MEND_NOTHING, BELAY_UNREACHABLE, NULL },
    { "ThrottlingException", FATE_NOTHING, RETRY_THROTTLE, MEND_NOTHING, BELAY_UNREACHABLE, NULL },
    { "ThrottledException", FATE_NOTHING, RETRY_THROTTLE, MEND_NOTHING, BELAY_UNREACHABLE, NULL },
    { "RequestThrottledException", FATE_NOTHING, RETRY_THROTTLE, MEND_NOTHING, BELAY_UNREACHABLE, NULL },
    { "RequestThrottled", FATE_NOTHING, RETRY_THROTTLE, MEND_NOTHING, BELAY_UNREACHABLE, NULL },
    { "TooManyRequestsException", FATE_NOTHING, RETRY_THROTTLE, MEND_NOTHING, BELAY_UNREACHABLE, NULL },
    { "ProvisionedThroughputExceededException", FATE_NOTHING, RETRY_THROTTLE, MEND_NOTHING, BELAY_UNREACHABLE,
      "the table's capacity is used up: raise it, or use on-demand billing" },
    { "RequestLimitExceeded", FATE_NOTHING, RETRY_THROTTLE, MEND_NOTHING, BELAY_UNREACHABLE, NULL },
    { "BandwidthLimitExceeded", FATE_NOTHING, RETRY_THROTTLE, MEND_NOTHING, BELAY_UNREACHABLE, NULL },
    { "LimitExceededException", FATE_NOTHING, RETRY_THROTTLE, MEND_NOTHING, BELAY_UNREACHABLE, NULL },
    { "SlowDown", FATE_NOTHING, RETRY_THROTTLE, MEND_NOTHING, BELAY_UNREACHABLE, NULL },
    { "EC2ThrottledException", FATE_NOTHING, RETRY_THROTTLE, MEND_NOTHING, BELAY_UNREACHABLE, NULL },
    { "PriorRequestNotComplete", FATE_NOTHING, RETRY_THROTTLE, MEND_NOTHING, BELAY_UNREACHABLE, NULL },
    /* Its pauses are those of throttling; but it means that this call's own write is in progress. */
    { "TransactionInProgressException", FATE_DOUBT, RETRY_THROTTLE, MEND_NOTHING, BELAY_UNKNOWN, NULL },
    /* The server did not get the whole request. */
    { "RequestTimeout", FATE_NOTHING, RETRY_TRANSIENT, MEND_NOTHING, BELAY_UNREACHABLE, NULL },
    { "RequestTimeoutException", FATE_NOTHING, RETRY_TRANSIENT, MEND_NOTHING, BELAY_UNREACHABLE, NULL },
    { "IDPCommunicationError", FATE_NOTHING, RETRY_TRANSIENT, MEND_NOTHING, BELAY_UNREACHABLE, NULL },
    /* failed conditions and conflicts */
    { "ConditionalCheckFailedException", FATE_REFUSED, RETRY_NEVER, MEND_NOTHING, BELAY_REFUSED, NULL },
    { "TransactionCanceledException", FATE_REFUSED, RETRY_NEVER, MEND_NOTHING, BELAY_REFUSED, NULL },
    { "TransactionConflictException", FATE_REFUSED, RETRY_NEVER, MEND_NOTHING, BELAY_REFUSED, NULL },
    { "ReplicatedWriteConflictException", FATE_REFUSED, RETRY_TRANSIENT, MEND_NOTHING, BELAY_REFUSED, NULL },
    { "PreconditionFailed", FATE_REFUSED, RETRY_NEVER, MEND_NOTHING, BELAY_REFUSED, NULL },
    { "ConditionalRequestConflict", FATE_REFUSED, RETRY_NEVER, MEND_NOTHING, BELAY_REFUSED, NULL },
    { "OperationAborted", FATE_REFUSED, RETRY_NEVER, MEND_NOTHING, BELAY_REFUSED, NULL },
    /* not found */
    { "ResourceNotFoundException", FATE_REFUSED, RETRY_NEVER, MEND_NOTHING, BELAY_NOT_FOUND, NULL },
    { "NoSuchKey", FATE_REFUSED, RETRY_NEVER, MEND_NOTHING, BELAY_NOT_FOUND, NULL },
    { "NoSuchBucket", FATE_REFUSED, RETRY_NEVER, MEND_NOTHING, BELAY_NOT_FOUND, NULL },
    /* identity and permission */
    { "AccessDenied", FATE_REFUSED, RETRY_NEVER, MEND_CLOCK, BELAY_NOT_PERMITTED, DENIED_ADVICE },
    { "AccessDeniedException", FATE_REFUSED, RETRY_NEVER, MEND_CLOCK, BELAY_NOT_PERMITTED, DENIED_ADVICE },
    { "UnauthorizedOperation", FATE_REFUSED, RETRY_NEVER, MEND_NOTHING, BELAY_NOT_PERMITTED, DENIED_ADVICE },
    { "InvalidSignatureException", FATE_REFUSED, RETRY_NEVER, MEND_CLOCK, BELAY_NOT_PERMITTED,
      "the signature is wrong: check AWS_SECRET_ACCESS_KEY or the profile, and this machine's clock" },
    { "SignatureDoesNotMatch", FATE_REFUSED, RETRY_NEVER, MEND_CLOCK, BELAY_NOT_PERMITTED,
      "the signature is wrong: check AWS_SECRET_ACCESS_KEY or the profile, and this machine's clock" },
    { "AuthFailure", FATE_REFUSED, RETRY_NEVER, MEND_CLOCK, BELAY_NOT_PERMITTED,
      "the credentials are wrong: check them, and this machine's clock" },
    { "RequestTimeTooSkewed", FATE_REFUSED, RETRY_NEVER, MEND_CLOCK, BELAY_NOT_PERMITTED, CLOCK_ADVICE },
    { "RequestExpired", FATE_REFUSED, RETRY_NEVER, MEND_CLOCK, BELAY_NOT_PERMITTED, CLOCK_ADVICE },
    { "UnrecognizedClientException", FATE_REFUSED, RETRY_NEVER, MEND_CREDENTIALS, BELAY_NOT_PERMITTED,
      KEYS_ADVICE },
    { "InvalidClientTokenId", FATE_REFUSED, RETRY_NEVER, MEND_CREDENTIALS, BELAY_NOT_PERMITTED, KEYS_ADVICE },
    { "InvalidAccessKeyId", FATE_REFUSED, RETRY_NEVER, MEND_CREDENTIALS, BELAY_NOT_PERMITTED, KEYS_ADVICE },
    { "InvalidToken", FATE_REFUSED, RETRY_NEVER, MEND_CREDENTIALS, BELAY_NOT_PERMITTED,
      "the session token is wrong: check AWS_SESSION_TOKEN or the profile" },
    { "ExpiredToken", FATE_REFUSED, RETRY_NEVER, MEND_CREDENTIALS, BELAY_NOT_PERMITTED, EXPIRED_ADVICE },
    { "ExpiredTokenException", FATE_REFUSED, RETRY_NEVER, MEND_CREDENTIALS, BELAY_NOT_PERMITTED,
      EXPIRED_ADVICE },
    { "MissingAuthenticationToken", FATE_REFUSED, RETRY_NEVER, MEND_NOTHING, BELAY_NOT_PERMITTED, NULL },
    { "MissingAuthenticationTokenException", FATE_REFUSED, RETRY_NEVER, MEND_NOTHING, BELAY_NOT_PERMITTED,
      NULL },
    { "IncompleteSignature", FATE_REFUSED, RETRY_NEVER, MEND_NOTHING, BELAY_NOT_PERMITTED, NULL },
    { "OptInRequired", FATE_REFUSED, RETRY_NEVER, MEND_NOTHING, BELAY_NOT_PERMITTED,
      "the account may not use this region: enable it" },
};

static const struct known *find_known(const char *error_code)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].name, error_code) == 0) {
            return &known[i];
        }
    }
    return NULL;
}

static struct attempt_verdict judge_status(int status)
{
    struct attempt_verdict verdict = { FATE_REFUSED, RETRY_NEVER, MEND_NOTHING, BELAY_INVALID };

    if (status >= 500) {
        verdict.fate = FATE_DOUBT;
        verdict.code = BELAY_UNKNOWN;
        verdict.retry = status == 500 || (status >= 502 && status <= 504) ? RETRY_TRANSIENT : RETRY_NEVER;
    } else if (status == 429) {
        return (struct attempt_verdict){ FATE_NOTHING, RETRY_THROTTLE, MEND_NOTHING, BELAY_UNREACHABLE };
    } else if (status == 408) {
        return (struct attempt_verdict){ FATE_NOTHING, RETRY_TRANSIENT, MEND_NOTHING, BELAY_UNREACHABLE };
    } else if (status == 401 || status == 403) {
        verdict.code = BELAY_NOT_PERMITTED;
    } else if (status == 404) {
        verdict.code = BELAY_NOT_FOUND;
    } else if (status == 412 || status == 409 || status == 304) {
        verdict.code = BELAY_REFUSED;
    }
    return verdict;
}

struct attempt_verdict aws_error_judge(enum aws_service service, int status, const char *error_code)
{
    const struct known *found;

    if (error_code == NULL) {
        return (struct attempt_verdict){ FATE_DONE, RETRY_NEVER, MEND_NOTHING, BELAY_OK };
    }
    found = find_known(error_code);
    if (found == NULL) {
        return judge_status(status);
    }
    /* Only STS means a failure of its own by this name. */
    if (strcmp(error_code, "IDPCommunicationError") == 0 && service != AWS_STS) {
        return judge_status(status);
    }
    return (struct attempt_verdict){ found->fate, found->retry, found->mend, found->code };
}

const char *aws_error_advice(const char *error_code)
{
    const struct known *found = find_known(error_code);

    return found == NULL ? NULL : found->advice;
}

bool aws_error_message_is_safe(const char *error_code)
{
    return strcmp(error_code, "SignatureDoesNotMatch") != 0 &&
           strcmp(error_code, "InvalidSignatureException") != 0 &&
           strcmp(error_code, "IncompleteSignature") != 0;
}

bool aws_crc_fits(const struct http_response *response)
{
    const char *header = http_response_header(response, "x-amz-crc32");
    unsigned long wanted;
    char *end;

    if (header == NULL) {
        return true;
    }
    wanted = strtoul(header, &end, 10);
    return end != header && *end == '\0' &&
           wanted == crc32_z(0, (const unsigned char *)response->body, response->body_len);
}
