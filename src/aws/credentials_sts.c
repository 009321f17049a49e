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

static enum belay_code read_sts_credentials(const struct aws_response *response, const char *operation,
                                            struct credentials *out, struct belay_error *err)
{
    struct xml *root = xml_parse(response->http.body, response->http.body_len);
    const struct xml *node;
    const char *id, *secret, *token;
    char path[64];
    struct credentials made = { 0 };
    enum belay_code code = BELAY_OK;

    (void)snprintf(path, sizeof path, "%sResult/Credentials", operation);
    node = xml_find(root, path);
    id = xml_text(node, "AccessKeyId");
    secret = xml_text(node, "SecretAccessKey");
    token = xml_text(node, "SessionToken");
    if (id == NULL || secret == NULL || token == NULL) {
        code = error_set(err, BELAY_BAD_CONTENT, "the answer of sts has no credentials in it");
    } else if (!clock_parse_iso(xml_text(node, "Expiration"), &made.expires_unix_ms)) {
        code =
            error_set(err, BELAY_BAD_CONTENT, "the answer of sts does not say when the credentials expire");
    } else if (!credentials_init(&made, id, secret, token)) {
        code = error_no_memory(err);
    }
    xml_free(root);
    return credentials_finish(code, &made, out);
}

static enum belay_code ask_sts(struct aws_client *client, const char *operation, const struct buf *body,
                               const struct credentials *base, struct credentials *out,
                               struct belay_error *err)
{
    const struct http_client_header headers[] = {
        { "Content-Type", "application/x-www-form-urlencoded; charset=utf-8" },
        { "Accept", "text/xml" },
    };
    /* Short timeouts: the caller waits for more than the credentials. */
    struct aws_request request = { .service = AWS_STS,
                                   .operation = operation,
                                   .headers = headers,
                                   .n_headers = sizeof headers / sizeof headers[0],
                                   .body = body->data,
                                   .body_len = body->len,
                                   .reads_only = true,
                                   .retry = AWS_RETRY_STANDARD,
                                   .timeout_ms = STS_ATTEMPT_MS,
                                   .deadline_mono_ms = platform_mono_ms(client->platform) + STS_ALL_MS };
    struct aws_response response;
    enum belay_code code;

    if (body->failed) {
        return error_no_memory(err);
    }
    code = aws_call_as(client, base, &request, &response, err);
    if (code == BELAY_OK) {
        code = read_sts_credentials(&response, operation, out, err);
    }
    aws_response_release(&response);
    /* BELAY_NOT_FOUND would mean that this source is not configured. */
    return code == BELAY_NOT_FOUND ? BELAY_CONFIG : code;
}

static enum belay_code add_web_token(struct buf *body, const char *path, struct belay_error *err)
{
    char *token = NULL;
    enum belay_code code = read_token_file(path, "the web identity token", &token, err);

    if (code == BELAY_OK && *token == '\0') {
        code = error_set(err, BELAY_CONFIG, "the web identity token in '%s' is empty", path);
    } else if (code == BELAY_OK) {
        uri_add_query(body, "WebIdentityToken", token);
    }
    wipe_text(token);
    return code;
}

enum belay_code credentials_assume_role(struct aws_client *client, const struct sts_role *role,
                                        const struct credentials *base, struct credentials *out,
                                        struct belay_error *err)
{
    const char *operation = base != NULL ? "AssumeRole" : "AssumeRoleWithWebIdentity";
    struct credentials made = { 0 };
    struct buf body = BUF_INIT(MAX_BODY);
    enum belay_code code = base != NULL ? BELAY_OK : add_web_token(&body, role->token_file, err);

    if (code == BELAY_OK) {
        uri_add_query(&body, "Action", operation);
        add_role(&body, client->platform, role);
        code = ask_sts(client, operation, &body, base, &made, err);
    }
    if (code == BELAY_OK) {
        code = credentials_set_source(&made, err, "role %.200s, %s %.200s", role->role_arn,
                                      base != NULL ? "assumed with those from" : "by the web identity in",
                                      base != NULL ? base->source : role->token_file);
    } else {
        (void)error_wrap(err, "assume role '%.100s'", role->role_arn);
    }
    wipe_buf(&body);
    return credentials_finish(code, &made, out);
}
