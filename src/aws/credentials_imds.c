/*
 * The role of an EC2 instance, from the instance metadata service: a token (version 2), then
 * the role's name, then its keys. Without a token version 1, which needs none, unless it is
 * disabled.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "aws/credentials_source.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/text.h"
#include "http_client/uri.h"

enum { TIMEOUT_MS = 1000, MAX_ANSWER = 64 << 10, MAX_ROLE = 256 };

#define ROLE_PATH "/latest/meta-data/iam/security-credentials/"

struct imds {
    const struct platform *platform;
    struct http *http;
    char *base;    /* owned; the endpoint without a '/' at its end */
    bool is_set;   /* the endpoint was configured */
    bool v1_is_ok; /* version 1 is permitted */
    char *token;   /* owned; NULL: version 1 */
};

/* Whether a setting is this word. */
static bool is_word(const char *text, const char *word)
{
    return text != NULL && strcasecmp(text, word) == 0;
}

static enum belay_code find_endpoint(struct imds *imds, const struct profiles *profiles, const char *profile,
                                     struct belay_error *err)
{
    const struct platform *platform = imds->platform;
    const char *url = profile_setting(platform, profiles, profile, "AWS_EC2_METADATA_SERVICE_ENDPOINT",
                                      "ec2_metadata_service_endpoint");
    const char *mode = profile_setting(platform, profiles, profile, "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE",
                                       "ec2_metadata_service_endpoint_mode");
    const char *no_v1 = profile_setting(platform, profiles, profile, "AWS_EC2_METADATA_V1_DISABLED",
                                        "ec2_metadata_v1_disabled");
    struct uri uri = { 0 };
    size_t len;

    imds->is_set = url != NULL;
    imds->v1_is_ok = !is_word(no_v1, "true");
    imds->base = strdup(url != NULL             ? url
                        : is_word(mode, "ipv6") ? "http://[fd00:ec2::254]"
                                                : "http://169.254.169.254");
    if (imds->base == NULL) {
        return error_no_memory(err);
    }
    if (!uri_parse(imds->base, &uri)) {
        return error_set(err, BELAY_CONFIG, "AWS_EC2_METADATA_SERVICE_ENDPOINT is not a URL");
    }
    uri_release(&uri);
    for (len = strlen(imds->base); len > 0 && imds->base[len - 1] == '/';) {
        imds->base[--len] = '\0';
    }
    return BELAY_OK;
}

static enum belay_code ask_imds(struct imds *imds, const char *method, const char *path,
                                const struct http_client_header *header, struct http_response *out,
                                struct belay_error *err)
{
    struct buf url = BUF_INIT(4096);
    struct http_client_request request = { .method = method,
                                           .headers = header,
                                           .n_headers = header == NULL ? 0 : 1,
                                           .timeout_ms = TIMEOUT_MS,
                                           .connect_timeout_ms = TIMEOUT_MS,
                                           .max_answer = MAX_ANSWER,
                                           .may_repeat = true,
                                           .direct = true };
    enum belay_code code;

    buf_addf(&url, "%s%s", imds->base, path);
    if (url.failed) {
        code = error_no_memory(err);
    } else {
        request.url = url.data;
        code = http_send(imds->http, &request, out, err);
    }
    buf_release(&url);
    return code;
}

static enum belay_code not_on_ec2(const struct imds *imds, struct belay_error *err)
{
    if (imds->is_set) {
        (void)error_wrap(err, "credentials from the instance metadata service");
        return BELAY_UNREACHABLE;
    }
    return error_set(err, BELAY_NOT_FOUND, "there is no instance metadata service");
}

static enum belay_code without_token(const struct imds *imds, struct belay_error *err)
{
    return imds->v1_is_ok ? BELAY_OK
                          : error_set(err, BELAY_CONFIG,
                                      "the instance metadata service gave no token, and "
                                      "AWS_EC2_METADATA_V1_DISABLED forbids to do without");
}

static enum belay_code get_token(struct imds *imds, struct belay_error *err)
{
    const struct http_client_header header = { "x-aws-ec2-metadata-token-ttl-seconds", "21600" };
    struct http_response response = { 0 };
    enum belay_code code = ask_imds(imds, "PUT", "/latest/api/token", &header, &response, err);

    if (code == BELAY_UNREACHABLE) {
        return not_on_ec2(imds, err);
    }
    if (code == BELAY_UNKNOWN) {
        /* No answer: in a container, it may exceed the hop limit. */
        belay_error_release(err);
        return without_token(imds, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    if (response.status == 200 && response.body_len > 0 && text_is_clean(response.body, MAX_ANSWER)) {
        imds->token = response.body;
        response.body = NULL;
    } else if (response.status == 403 || response.status == 404 || response.status == 405) {
        code = without_token(imds, err);
    } else {
        code = error_set(err, response.status >= 500 ? BELAY_UNREACHABLE : BELAY_NOT_PERMITTED,
                         "the instance metadata service answered a request for a token with HTTP %d",
                         response.status);
    }
    http_response_release(&response);
    return code;
}

static enum belay_code imds_get(struct imds *imds, const char *path, struct http_response *out,
                                struct belay_error *err)
{
    const struct http_client_header header = { "x-aws-ec2-metadata-token", imds->token };
    enum belay_code code = ask_imds(imds, "GET", path, imds->token == NULL ? NULL : &header, out, err);

    if (code == BELAY_UNREACHABLE || code == BELAY_UNKNOWN) {
        return not_on_ec2(imds, err);
    }
    if (code != BELAY_OK || out->status == 200) {
        return code;
    }
    if (out->status == 404) {
        return error_set(err, BELAY_NOT_FOUND, "this EC2 instance has no role");
    }
    return error_set(err, out->status >= 500 ? BELAY_UNREACHABLE : BELAY_NOT_PERMITTED,
                     "the instance metadata service answered with HTTP %d", out->status);
}

/* The first line; a name that cannot be part of a path is refused. */
static char *role_of(const struct http_response *response)
{
    size_t len = response->body == NULL ? 0 : strcspn(response->body, "\r\n");

    for (size_t i = 0; i < len; i++) {
        if (strchr("/?#% ", response->body[i]) != NULL || (unsigned char)response->body[i] < ' ') {
            return NULL;
        }
    }
    return len == 0 || len > MAX_ROLE ? NULL : strndup(response->body, len);
}

static enum belay_code get_role(struct imds *imds, char **out_role, struct belay_error *err)
{
    struct http_response response = { 0 };
    enum belay_code code = imds_get(imds, ROLE_PATH, &response, err);

    if (code == BELAY_OK) {
        char *role = role_of(&response);

        if (role == NULL) {
            code = error_set(err, BELAY_NOT_FOUND, "this EC2 instance has no role");
        } else {
            *out_role = role;
        }
    }
    http_response_release(&response);
    return code;
}

/*
 * The service may fail to renew the keys, which usually work after their expiry. So they are
 * kept, and fetched again a little later, with jitter, so that not all machines ask at once.
 */
static void extend_expiry(const struct platform *platform, struct credentials *made)
{
    int64_t now = platform_unix_ms(platform);
    int64_t window = CREDENTIALS_ADVISORY_MS + 120000 + (int64_t)(platform_random(platform) * 480000);

    made->outlive = true;
    if (made->expires_unix_ms != 0 && made->expires_unix_ms <= now) {
        made->expires_unix_ms = now + window;
    }
}

static enum belay_code get_keys(struct imds *imds, const char *role, struct credentials *out,
                                struct belay_error *err)
{
    struct http_response response = { 0 };
    struct credentials made = { 0 };
    struct buf path = BUF_INIT(1024);
    enum belay_code code;

    buf_addf(&path, "%s%s", ROLE_PATH, role);
    code = path.failed ? error_no_memory(err) : imds_get(imds, path.data, &response, err);
    if (code == BELAY_OK) {
        code = credentials_from_json(response.body, response.body_len, "Token",
                                     "the instance metadata service", &made, err);
    }
    if (code == BELAY_OK) {
        extend_expiry(imds->platform, &made);
        code = credentials_set_source(&made, err, "the EC2 instance's role '%s'", role);
    }
    buf_release(&path);
    http_response_release(&response);
    return credentials_finish(code, &made, out);
}

enum belay_code credentials_from_imds(const struct platform *platform, struct http *http,
                                      const struct profiles *profiles, const char *profile,
                                      struct credentials *out, struct belay_error *err)
{
    struct imds imds = { .platform = platform, .http = http };
    char *role = NULL;
    enum belay_code code;

    if (platform_env_is_true(platform, "AWS_EC2_METADATA_DISABLED")) {
        return error_set(err, BELAY_NOT_FOUND, "AWS_EC2_METADATA_DISABLED is set");
    }
    code = find_endpoint(&imds, profiles, profile, err);
    if (code == BELAY_OK) {
        code = get_token(&imds, err);
    }
    if (code == BELAY_OK) {
        code = get_role(&imds, &role, err);
    }
    if (code == BELAY_OK) {
        code = get_keys(&imds, role, out, err);
    }
    free(role);
    free(imds.base);
    free(imds.token);
    return code;
}
