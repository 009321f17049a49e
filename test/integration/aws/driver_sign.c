#include <stdlib.h>
#include <string.h>

#include "aws/sigv4.h"
#include "driver.h"

static struct sigv4_request request_of(const json_t *command, struct http_client_header *headers, size_t n)
{
    const char *body = text_of(command, "body");

    return (struct sigv4_request){ .method = text_of(command, "method"),
                                   .path = text_of(command, "path"),
                                   .query = text_of(command, "query"),
                                   .headers = headers,
                                   .n_headers = n,
                                   .body = body,
                                   .body_len = body == NULL ? 0 : strlen(body),
                                   .is_s3 = json_is_true(json_object_get(command, "s3")) };
}

json_t *do_sign(const json_t *command)
{
    static struct sigv4_signer *signer; /* one for all lines: its cache of keys is under test too */
    size_t n = 0;
    struct http_client_header *headers = headers_of(command, &n);
    struct sigv4_request request = request_of(command, headers, n);
    struct sigv4_identity identity = { .access_key_id = text_of(command, "id"),
                                       .secret_access_key = text_of(command, "secret"),
                                       .session_token = text_of(command, "token"),
                                       .region = text_of(command, "region"),
                                       .service = text_of(command, "service"),
                                       .unix_ms = json_integer_value(json_object_get(command, "unix_ms")) };
    struct sigv4_signature signature = { 0 };
    struct belay_error err = BELAY_ERROR_INIT;
    json_t *answer = NULL;

    if (command == NULL) {
        sigv4_signer_free(signer);
        signer = NULL;
    } else if (signer == NULL) {
        signer = sigv4_signer_new();
    }
    if (command == NULL || signer == NULL) {
        free(headers);
        return NULL;
    }
    if (sigv4_sign(signer, &request, &identity, &signature, &err) == BELAY_OK) {
        answer = json_pack("{s:s, s:s, s:s}", "authorization", signature.authorization, "date",
                           signature.amz_date, "hash", signature.payload_hash);
    }
    if (answer == NULL) {
        answer = json_pack("{s:s}", "error", err.text);
    }
    sigv4_signature_release(&signature);
    free(headers);
    belay_error_release(&err);
    return answer;
}
