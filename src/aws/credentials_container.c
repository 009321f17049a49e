#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "aws/credentials_source.h"
#include "base/buf.h"
#include "base/error.h"
#include "http_client/uri.h"

enum { TIMEOUT_MS = 2000, TRIES = 3, PAUSE_MS = 1000, MAX_ANSWER = 64 << 10 };

/* Plain http would expose the token: only to hosts that are this machine or its hypervisor. */
static bool is_local_host(const char *host)
{
    static const char *const allowed[] = { "169.254.170.2", "169.254.170.23", "fd00:ec2::23", "::1",
                                           "localhost" };
    struct in_addr address;

    for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++) {
        if (strcmp(host, allowed[i]) == 0) {
            return true;
        }
    }
    return inet_pton(AF_INET, host, &address) == 1 && (ntohl(address.s_addr) >> 24) == 127;
}

static enum belay_code find_url(const struct platform *platform, char **out_url, struct belay_error *err)
{
    const char *relative = platform_env(platform, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = relative != NULL ? NULL : platform_env(platform, "AWS_CONTAINER_CREDENTIALS_FULL_URI");
    struct buf url = BUF_INIT(4096);
    struct uri uri = { 0 };
    bool allowed;

    if (relative == NULL && full == NULL) {
        return error_set(err, BELAY_NOT_FOUND, "there is no container endpoint");
    }
    if (relative != NULL) {
        buf_addf(&url, "http://169.254.170.2%s%s", *relative == '/' ? "" : "/", relative);
    } else {
        buf_adds(&url, full);
    }
    *out_url = buf_take(&url);
    if (*out_url == NULL) {
        return error_no_memory(err);
    }
    allowed = uri_parse(*out_url, &uri) && (uri.tls || is_local_host(uri.host));
    uri_release(&uri);
    if (!allowed) {
        free(*out_url);
        *out_url = NULL;
        return error_set(err, BELAY_CONFIG,
                         "AWS_CONTAINER_CREDENTIALS_FULL_URI must be https, or http to this machine");
    }
    return BELAY_OK;
}

/* The Authorization header; *out_token stays NULL without one. Read each time, because it is rotated. */
static enum belay_code read_container_token(const struct platform *platform, char **out_token,
                                            struct belay_error *err)
{
    const char *path = platform_env(platform, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *plain = path == NULL ? platform_env(platform, "AWS_CONTAINER_AUTHORIZATION_TOKEN") : NULL;
    enum belay_code code;
    char *token = NULL;

    if (path == NULL && plain == NULL) {
        return BELAY_OK;
    }
    if (path != NULL) {
        code = read_token_file(path, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &token, err);
        if (code != BELAY_OK) {
            return code;
        }
    } else if ((token = strdup(plain)) == NULL) {
        return error_no_memory(err);
    }
    if (strpbrk(token, "\r\n") != NULL) {
        free(token);
        return error_set(err, BELAY_CONFIG, "the container's authorization token has more than one line");
    }
    *out_token = token;
    return BELAY_OK;
}

/* Up to three attempts; none after a refusal. */
static enum belay_code ask_container(const struct platform *platform, struct http *http,
                                     const struct http_client_request *request, struct http_response *out,
                                     struct belay_error *err)
{
    enum belay_code code = BELAY_UNREACHABLE;

    for (int i = 0; i < TRIES; i++) {
        if (i > 0) {
            platform_sleep_ms(platform, PAUSE_MS);
            http_response_release(out);
        }
        code = http_send(http, request, out, err);
        if (code == BELAY_OK && out->status == 200) {
            return BELAY_OK;
        }
        if (code == BELAY_OK && out->status < 500) {
            return error_set(err, BELAY_NOT_PERMITTED, "it answered with HTTP %d", out->status);
        }
        if (code == BELAY_CONFIG) {
            return code;
        }
    }
    return code == BELAY_OK ? error_set(err, BELAY_UNREACHABLE, "it answered with HTTP %d", out->status)
                            : BELAY_UNREACHABLE;
}

enum belay_code credentials_from_container(const struct platform *platform, struct http *http,
                                           struct credentials *out, struct belay_error *err)
{
    struct http_client_header headers[2] = { { "Accept", "application/json" }, { "Authorization", NULL } };
    struct http_client_request request = { .method = "GET",
                                           .headers = headers,
                                           .n_headers = 1,
                                           .timeout_ms = TIMEOUT_MS,
                                           .connect_timeout_ms = TIMEOUT_MS,
                                           .max_answer = MAX_ANSWER,
                                           .may_repeat = true,
                                           .direct = true };
    struct http_response response = { 0 };
    struct credentials made = { 0 };
    char *token = NULL;
    char *url = NULL;
    enum belay_code code = find_url(platform, &url, err);

    if (code != BELAY_OK) {
        return code;
    }
    code = read_container_token(platform, &token, err);
    if (code == BELAY_OK) {
        request.url = url;
        headers[1].value = token;
        request.n_headers = token == NULL ? 1 : 2;
        code = ask_container(platform, http, &request, &response, err);
    }
    if (code == BELAY_OK) {
        code = credentials_from_json(response.body, response.body_len, "Token", "it", &made, err);
    }
    if (code == BELAY_OK) {
        code = credentials_set_source(&made, err, "the container endpoint");
    } else {
        (void)error_wrap(err, "credentials from the container endpoint");
        /* BELAY_NOT_FOUND would mean that the endpoint is not configured. */
        code = code == BELAY_NOT_FOUND ? BELAY_CONFIG : code;
    }
    http_response_release(&response);
    wipe_text(token);
    free(url);
    return credentials_finish(code, &made, out);
}
