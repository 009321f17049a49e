/* Credentials of a role, from the Security Token Service. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aws/credentials_source.h"
#include "aws/text/xml.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "http_client/uri.h"

enum { STS_ATTEMPT_MS = 5000, STS_ALL_MS = 10000, MAX_BODY = 256 << 10 };

static void add_role(struct buf *body, const struct platform *platform, const struct sts_role *role)
{
    char made_up[64];

    (void)snprintf(made_up, sizeof made_up, "belay-%" PRId64, platform_unix_ms(platform));
    uri_add_query(body, "Version", "2011-06-15");
    uri_add_query(body, "RoleArn", role->role_arn);
    uri_add_query(body, "RoleSessionName", role->session_name != NULL ? role->session_name : made_up);
    if (role->external_id != NULL) {
        uri_add_query(body, "ExternalId", role->external_id);
    }
    if (role->duration != NULL) {
        uri_add_query(body, "DurationSeconds", role->duration);
    }
}

static enum belay_code read_sts_credentials(const struct aws_response *response, const char *result,
                                            struct credentials *out, struct belay_error *err)
{
    struct xml *root = xml_parse(response->http.body, response->http.body_len);
    const struct xml *result_node = xml_find(root, result);
    const struct xml *node = xml_find(result_node, "Credentials");
    const char *id = xml_text(node, "AccessKeyId");
    const char *secret = xml_text(node, "SecretAccessKey");
    const char *token = xml_text(node, "SessionToken");
    const char *expiration = xml_text(node, "Expiration");
    struct credentials made = { 0 };
    enum belay_code code = BELAY_OK;

    if (id == NULL || secret == NULL || token == NULL) {
        code = error_set(err, BELAY_BAD_CONTENT, "the answer of sts has no credentials in it");
    } else if (!credentials_init(&made, id, secret, token)) {
        code = error_no_memory(err);
    } else if (expiration == NULL || !clock_parse_iso(expiration, &made.expires_unix_ms)) {
        code =
            error_set(err, BELAY_BAD_CONTENT, "the answer of sts does not say when the credentials expire");
    }
    xml_free(root);
    return credentials_finish(code, &made, out);
}

static enum belay_code ask_sts(struct aws_client *client, const char *operation, const char *result,
                               const struct buf *body, const struct credentials *base,
                               struct credentials *out, struct belay_error *err)
{
    const struct http_client_header headers[] = {
        { "Content-Type", "application/x-www-form-urlencoded; charset=utf-8" },
        { "Accept", "text/xml" },
    };
    struct aws_request request = { .service = AWS_STS,
                                   .operation = operation,
                                   .headers = headers,
                                   .n_headers = sizeof headers / sizeof headers[0],
                                   .body = body->data,
                                   .body_len = body->len,
                                   .reads_only = true,
                                   .retry = AWS_RETRY_STANDARD };
    struct aws_response response;
    enum belay_code code;

    if (body->failed) {
        return error_no_memory(err);
    }
    /* The caller waits for more than the credentials. */
    request.timeout_ms = STS_ATTEMPT_MS;
    request.deadline_mono_ms = platform_mono_ms(client->platform) + STS_ALL_MS;
    code = aws_call_as(client, base, &request, &response, err);
    if (code == BELAY_OK) {
        code = read_sts_credentials(&response, result, out, err);
    }
    aws_response_release(&response);
    /* BELAY_NOT_FOUND would mean that this source is not configured. */
    return code == BELAY_NOT_FOUND ? BELAY_CONFIG : code;
}

enum belay_code credentials_assume_role(struct aws_client *client, const struct sts_role *role,
                                        const struct credentials *base, struct credentials *out,
                                        struct belay_error *err)
{
    struct credentials made = { 0 };
    struct buf body = BUF_INIT(MAX_BODY);
    enum belay_code code;

    uri_add_query(&body, "Action", "AssumeRole");
    add_role(&body, client->platform, role);
    code = ask_sts(client, "AssumeRole", "AssumeRoleResult", &body, base, &made, err);
    if (code == BELAY_OK) {
        code = credentials_set_source(&made, err, "role %.200s, assumed with those from %.200s",
                                      role->role_arn, base->source);
    } else {
        (void)error_wrap(err, "assume role '%.100s'", role->role_arn);
    }
    wipe_buf(&body);
    return credentials_finish(code, &made, out);
}

/* The caller frees *out_token, also after an error. */
static enum belay_code read_web_token(const char *path, char **out_token, struct belay_error *err)
{
    enum belay_code code = read_token_file(path, "the web identity token", out_token, err);

    if (code == BELAY_OK && **out_token == '\0') {
        code = error_set(err, BELAY_CONFIG, "the web identity token in '%s' is empty", path);
    }
    return code;
}

enum belay_code credentials_assume_role_with_token(struct aws_client *client, const struct sts_role *role,
                                                   struct credentials *out, struct belay_error *err)
{
    struct credentials made = { 0 };
    struct buf body = BUF_INIT(MAX_BODY);
    char *token = NULL;
    enum belay_code code = read_web_token(role->token_file, &token, err);

    if (code == BELAY_OK) {
        uri_add_query(&body, "Action", "AssumeRoleWithWebIdentity");
        add_role(&body, client->platform, role);
        uri_add_query(&body, "WebIdentityToken", token);
        code = ask_sts(client, "AssumeRoleWithWebIdentity", "AssumeRoleWithWebIdentityResult", &body, NULL,
                       &made, err);
    }
    if (code == BELAY_OK) {
        code = credentials_set_source(&made, err, "role %.200s, by the web identity in %.200s",
                                      role->role_arn, role->token_file);
    } else {
        (void)error_wrap(err, "assume role '%.100s'", role->role_arn);
    }
    wipe_text(token);
    wipe_buf(&body);
    return credentials_finish(code, &made, out);
}
