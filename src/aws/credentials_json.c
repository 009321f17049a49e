#include <string.h>

#include <jansson.h>

#include "aws/aws_date.h"
#include "aws/credentials_source.h"
#include "base/error.h"

static const char *text_of(const json_t *root, const char *key)
{
    const char *text = json_string_value(json_object_get(root, key));

    return text == NULL || *text == '\0' ? NULL : text;
}

/* An answer that says in so many words that it is an error, status 200 or not. */
static enum belay_code said_no(const json_t *root, const char *what, struct belay_error *err)
{
    const char *code = text_of(root, "Code");
    const char *message = text_of(root, "Message");

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
    const char *id = text_of(root, "AccessKeyId");
    const char *secret = text_of(root, "SecretAccessKey");
    const char *expiration = text_of(root, "Expiration");
    struct credentials made = { 0 };
    enum belay_code code;

    if (!json_is_object(root)) {
        code = error_set(err, BELAY_BAD_CONTENT, "%s did not print a JSON object with credentials", what);
        goto done;
    }
    code = said_no(root, what, err);
    if (code != BELAY_OK) {
        goto done;
    }
    if (id == NULL || secret == NULL) {
        code = error_set(err, BELAY_BAD_CONTENT, "%s left out %s", what,
                         id == NULL ? "AccessKeyId" : "SecretAccessKey");
        goto done;
    }
    if (!credentials_init(&made, id, secret, text_of(root, token_key))) {
        code = error_no_memory(err);
        goto done;
    }
    if (expiration != NULL && !date_parse_iso(expiration, &made.expires_unix_ms)) {
        code = error_set(err, BELAY_BAD_CONTENT,
                         "%s gave an Expiration that is not a time such as 2026-01-31T12:00:00Z", what);
        goto done;
    }
    *out = made;
    memset(&made, 0, sizeof made);

done:
    credentials_release(&made);
    json_decref(root);
    return code;
}
