#include "aws/aws.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "aws/aws_client.h"
#include "base/error.h"

static enum belay_code find_endpoints(struct aws_client *client, const struct aws_options *options,
                                      const struct profiles *profiles, struct belay_error *err)
{
    enum belay_code code = region_find(client->platform, profiles, client->profile, options->region,
                                       &client->region, &client->region_origin, err);

    for (int i = 0; i < AWS_N_SERVICES && code == BELAY_OK; i++) {
        code = endpoint_find(client->platform, profiles, client->profile, (enum aws_service)i,
                             options->endpoints[i], client->region, &client->endpoints[i], err);
    }
    return code;
}

static enum belay_code find_max_attempts(struct aws_client *client, const struct aws_options *options,
                                         const struct profiles *profiles, struct belay_error *err)
{
    const char *text =
        profile_setting(client->platform, profiles, client->profile, "AWS_MAX_ATTEMPTS", "max_attempts");
    char *end;
    long n;

    if (options->max_attempts > 0 || text == NULL) {
        client->max_attempts = options->max_attempts;
        return BELAY_OK;
    }
    n = strtol(text, &end, 10);
    if (*end != '\0' || n < 1 || n > 100) {
        return error_set(err, BELAY_CONFIG, "AWS_MAX_ATTEMPTS (max_attempts) must be a number from 1 to 100");
    }
    client->max_attempts = (int)n;
    return BELAY_OK;
}

static enum belay_code open_transport(struct aws_client *client, const struct aws_options *options,
                                      const struct profiles *profiles, struct belay_error *err)
{
    struct http_client_options http = {
        .connect_timeout_ms = options->connect_timeout_ms,
        .timeout_ms = options->timeout_ms,
        .ca_bundle =
            profile_setting(client->platform, profiles, client->profile, "AWS_CA_BUNDLE", "ca_bundle"),
    };

    if (options->http != NULL) {
        client->http = options->http;
        return BELAY_OK;
    }
    client->owns_http = true;
    return http_open(&http, &client->http, err);
}

static enum belay_code choose_profile(struct aws_client *client, const struct aws_options *options,
                                      const struct profiles *profiles, struct belay_error *err)
{
    const char *name = options->profile;

    client->profile_is_given = name != NULL;
    if (name == NULL) {
        name = platform_env(client->platform, "AWS_PROFILE");
    }
    if (name == NULL) {
        name = platform_env(client->platform, "AWS_DEFAULT_PROFILE");
    }
    client->profile = strdup(name != NULL ? name : "default");
    if (client->profile == NULL) {
        return error_no_memory(err);
    }
    if (name != NULL && !profile_exists(profiles, client->profile)) {
        return error_set(err, BELAY_CONFIG, "there is no profile '%s' in %s or %s", client->profile,
                         profiles->config_path, profiles->credentials_path);
    }
    return BELAY_OK;
}

enum belay_code aws_open(const struct aws_options *options, struct aws_client **out_client,
                         struct belay_error *err)
{
    static const struct aws_options defaults;
    struct aws_client *client = calloc(1, sizeof *client);
    struct profiles profiles = { 0 };
    enum belay_code code;

    if (client == NULL) {
        return error_no_memory(err);
    }
    if (options == NULL) {
        options = &defaults;
    }
    client->platform = options->platform != NULL ? options->platform : platform_system();
    client->timeout_ms = options->timeout_ms;
    for (int i = 0; i < AWS_N_SERVICES; i++) {
        retry_quota_init(&client->quotas[i]);
    }
    client->signer = sigv4_signer_new();
    client->cache = credentials_cache_new(client->platform, aws_fetch_credentials, client);
    code = client->signer == NULL || client->cache == NULL ? error_no_memory(err)
                                                           : profiles_load(client->platform, &profiles, err);
    if (code == BELAY_OK) {
        code = choose_profile(client, options, &profiles, err);
    }
    if (code == BELAY_OK) {
        code = find_endpoints(client, options, &profiles, err);
    }
    if (code == BELAY_OK) {
        code = find_max_attempts(client, options, &profiles, err);
    }
    if (code == BELAY_OK) {
        code = open_transport(client, options, &profiles, err);
    }
    profiles_release(&profiles);
    if (code != BELAY_OK) {
        aws_close(client);
        return code;
    }
    *out_client = client;
    return BELAY_OK;
}

void aws_close(struct aws_client *client)
{
    if (client == NULL) {
        return;
    }
    credentials_cache_free(client->cache);
    sigv4_signer_free(client->signer);
    if (client->owns_http) {
        http_close(client->http);
    }
    for (int i = 0; i < AWS_N_SERVICES; i++) {
        endpoint_release(&client->endpoints[i]);
        retry_quota_release(&client->quotas[i]);
    }
    free(client->profile);
    free(client->region);
    free(client);
}

void aws_response_release(struct aws_response *response)
{
    http_response_release(&response->http);
    free(response->error_code);
    free(response->error_message);
    memset(response, 0, sizeof *response);
}

const char *aws_region(const struct aws_client *client)
{
    return client->region;
}

const char *aws_region_origin(const struct aws_client *client)
{
    return client->region_origin;
}

const char *aws_endpoint(const struct aws_client *client, enum aws_service service)
{
    return client->endpoints[service].url;
}

bool aws_endpoint_is_set(const struct aws_client *client, enum aws_service service)
{
    return client->endpoints[service].is_set;
}

enum belay_code aws_credentials_origin(struct aws_client *client, char **out_text, struct belay_error *err)
{
    struct credentials credentials = { 0 };
    enum belay_code code = credentials_cache_get(client->cache, &credentials, err);

    if (code == BELAY_OK) {
        *out_text = credentials.source;
        credentials.source = NULL; /* passed to the caller */
    }
    credentials_release(&credentials);
    return code;
}
