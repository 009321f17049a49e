/*
 * Chooses the credentials: the first configured source, in the order of AWS's tools. Each
 * refresh walks the whole chain again, so that a replaced file is read again.
 *     environment > the profile (role > web identity > keys in the credentials
 *     file > credential_process > keys in the config file) > container > IMDS
 */
#include <stdlib.h>
#include <string.h>

#include "aws/credentials_source.h"
#include "base/clock.h"
#include "base/error.h"

enum { MAX_CHAIN = 8 }; /* roles that are assumed with other roles */

struct walk {
    struct aws_client *client;
    const struct profiles *profiles;
    int depth; /* number of profiles on the way; a cycle ends at MAX_CHAIN */
};

/* AWS_ACCESS_KEY_ID and its companions. */
static enum belay_code from_environment(const struct platform *platform, struct credentials *out,
                                        struct belay_error *err)
{
    const char *id = platform_env(platform, "AWS_ACCESS_KEY_ID");
    const char *secret = platform_env(platform, "AWS_SECRET_ACCESS_KEY");
    const char *expiration = platform_env(platform, "AWS_CREDENTIAL_EXPIRATION");
    struct credentials made = { 0 };

    if (id == NULL && secret == NULL) {
        return error_set(err, BELAY_NOT_FOUND, "no credentials in the environment");
    }
    if (id == NULL || secret == NULL) {
        return error_set(err, BELAY_CONFIG, "%s is set but %s is not: set both or neither",
                         id == NULL ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID",
                         id == NULL ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY");
    }
    if (expiration != NULL && !clock_parse_iso(expiration, &made.expires_unix_ms)) {
        return error_set(err, BELAY_CONFIG,
                         "AWS_CREDENTIAL_EXPIRATION is not a time such as 2026-01-31T12:00:00Z");
    }
    if (!credentials_init(&made, id, secret, platform_env(platform, "AWS_SESSION_TOKEN"))) {
        return error_no_memory(err);
    }
    return credentials_finish(credentials_set_source(&made, err, "the environment (AWS_ACCESS_KEY_ID)"),
                              &made, out);
}

/* Keys in one of the files. */
static enum belay_code from_files(const struct walk *walk, const char *profile, bool config_file,
                                  struct credentials *out, struct belay_error *err)
{
    const char *(*get)(const struct profiles *profiles, const char *name, const char *key) =
        config_file ? profile_in_config : profile_in_credentials;
    const char *path = config_file ? walk->profiles->config_path : walk->profiles->credentials_path;
    const char *id = get(walk->profiles, profile, "aws_access_key_id");
    const char *secret = get(walk->profiles, profile, "aws_secret_access_key");
    const char *token = get(walk->profiles, profile, "aws_session_token");
    struct credentials made = { 0 };

    if (id == NULL && secret == NULL) {
        return error_set(err, BELAY_NOT_FOUND, "no keys in profile '%s'", profile);
    }
    if (id == NULL || secret == NULL || *id == '\0' || *secret == '\0') {
        return error_set(err, BELAY_CONFIG, "profile '%s' in %s needs both aws_access_key_id and %s", profile,
                         path, "aws_secret_access_key");
    }
    if (!credentials_init(&made, id, secret, token == NULL || *token == '\0' ? NULL : token)) {
        return error_no_memory(err);
    }
    return credentials_finish(credentials_set_source(&made, err, "profile '%s' in %s", profile, path), &made,
                              out);
}

static enum belay_code from_profile(struct walk *walk, const char *profile, struct credentials *out,
                                    struct belay_error *err);

/* The base credentials of a role, if the profile has a `credential_source`. */
static enum belay_code from_named_source(const struct walk *walk, const char *profile, const char *source,
                                         struct credentials *out, struct belay_error *err)
{
    const struct aws_client *client = walk->client;
    enum belay_code code;

    if (strcmp(source, "Environment") == 0) {
        code = from_environment(client->platform, out, err);
    } else if (strcmp(source, "Ec2InstanceMetadata") == 0) {
        code = credentials_from_imds(client->platform, client->http, walk->profiles, profile, out, err);
    } else if (strcmp(source, "EcsContainer") == 0) {
        code = credentials_from_container(client->platform, client->http, out, err);
    } else {
        return error_set(err, BELAY_CONFIG,
                         "credential_source of profile '%s' must be Environment, Ec2InstanceMetadata or "
                         "EcsContainer",
                         profile);
    }
    if (code == BELAY_NOT_FOUND) {
        (void)error_wrap(err, "credential_source %s of profile '%s'", source, profile);
        code = BELAY_CONFIG;
    }
    return code;
}

static enum belay_code from_source_profile(struct walk *walk, const char *profile, const char *source,
                                           struct credentials *out, struct belay_error *err)
{
    enum belay_code code;

    if (!profile_exists(walk->profiles, source)) {
        return error_set(err, BELAY_CONFIG, "source_profile '%s' of profile '%s' does not exist", source,
                         profile);
    }
    /* Keys beside a role serve to assume roles, also by the profile itself. */
    code = from_files(walk, source, false, out, err);
    if (code == BELAY_NOT_FOUND) {
        code = from_files(walk, source, true, out, err);
    }
    if (code != BELAY_NOT_FOUND) {
        return code;
    }
    if (walk->depth == MAX_CHAIN) {
        return error_set(err, BELAY_CONFIG, "the source_profile of '%s' leads in a circle, or too far",
                         profile);
    }
    code = from_profile(walk, source, out, err);
    return code != BELAY_NOT_FOUND
               ? code
               : error_set(err, BELAY_CONFIG, "source_profile '%s' of profile '%s' has no credentials",
                           source, profile);
}

static enum belay_code from_role(struct walk *walk, const char *profile, struct credentials *out,
                                 struct belay_error *err)
{
    const struct profiles *profiles = walk->profiles;
    const char *source = profile_get(profiles, profile, "source_profile");
    const char *named = profile_get(profiles, profile, "credential_source");
    struct sts_role role = { .role_arn = profile_get(profiles, profile, "role_arn"),
                             .session_name = profile_get(profiles, profile, "role_session_name"),
                             .external_id = profile_get(profiles, profile, "external_id"),
                             .duration = profile_get(profiles, profile, "duration_seconds") };
    struct credentials base = { 0 };
    enum belay_code code;

    if (role.role_arn == NULL || (source == NULL && named == NULL)) {
        return error_set(err, BELAY_NOT_FOUND, "profile '%s' assumes no role", profile);
    }
    if (source != NULL && named != NULL) {
        return error_set(err, BELAY_CONFIG,
                         "profile '%s' has both source_profile and credential_source: keep one", profile);
    }
    if (profile_get(profiles, profile, "mfa_serial") != NULL) {
        return error_set(err, BELAY_CONFIG,
                         "profile '%s' asks for an MFA code, which belay cannot: use credential_process",
                         profile);
    }
    code = source != NULL ? from_source_profile(walk, profile, source, &base, err)
                          : from_named_source(walk, profile, named, &base, err);
    if (code == BELAY_OK) {
        code = credentials_assume_role(walk->client, &role, &base, out, err);
    }
    credentials_release(&base);
    return code;
}

/* A variable of the environment, unless the caller chose the profile; else the profile's key. */
static const char *web_setting(const struct walk *walk, const char *profile, const char *variable,
                               const char *key)
{
    /* Of a profile that another profile names as its source, only the file counts. */
    return !walk->client->profile_is_given && walk->depth == 1
               ? profile_setting(walk->client->platform, walk->profiles, profile, variable, key)
               : profile_get(walk->profiles, profile, key);
}

static enum belay_code from_web_identity(const struct walk *walk, const char *profile,
                                         struct credentials *out, struct belay_error *err)
{
    const struct sts_role role = {
        .role_arn = web_setting(walk, profile, "AWS_ROLE_ARN", "role_arn"),
        .session_name = web_setting(walk, profile, "AWS_ROLE_SESSION_NAME", "role_session_name"),
        .token_file = web_setting(walk, profile, "AWS_WEB_IDENTITY_TOKEN_FILE", "web_identity_token_file"),
        .duration = profile_get(walk->profiles, profile, "duration_seconds"),
    };

    if (role.token_file == NULL) {
        return error_set(err, BELAY_NOT_FOUND, "no web identity");
    }
    if (role.role_arn == NULL) {
        return error_set(err, BELAY_CONFIG, "there is a web identity token but no role: set AWS_ROLE_ARN");
    }
    return credentials_assume_role(walk->client, &role, NULL, out, err);
}

static enum belay_code refuse_sso(const struct walk *walk, const char *profile, struct belay_error *err)
{
    static const char *const keys[] = { "sso_session", "sso_start_url", "sso_account_id", "login_session" };

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (profile_get(walk->profiles, profile, keys[i]) != NULL) {
            return error_set(
                err, BELAY_CONFIG,
                "profile '%s' signs in with SSO, which belay leaves to the AWS CLI: add a profile with "
                "'credential_process = aws configure export-credentials --profile %s "
                "--format process' and name it in AWS_PROFILE",
                profile, profile);
        }
    }
    return BELAY_NOT_FOUND;
}

/* A role without a way to assume it is a mistake, not a reason to continue with another identity. */
static enum belay_code refuse_half_role(const struct walk *walk, const char *profile, struct belay_error *err)
{
    if (profile_get(walk->profiles, profile, "role_arn") == NULL) {
        return BELAY_NOT_FOUND;
    }
    return error_set(err, BELAY_CONFIG,
                     "profile '%s' has role_arn but no source_profile, credential_source or "
                     "web_identity_token_file",
                     profile);
}

static enum belay_code from_profile(struct walk *walk, const char *profile, struct credentials *out,
                                    struct belay_error *err)
{
    const char *command = profile_get(walk->profiles, profile, "credential_process");
    enum belay_code code;

    walk->depth++;
    code = from_role(walk, profile, out, err);
    if (code == BELAY_NOT_FOUND) {
        code = from_web_identity(walk, profile, out, err);
    }
    if (code == BELAY_NOT_FOUND) {
        code = refuse_half_role(walk, profile, err);
    }
    if (code == BELAY_NOT_FOUND) {
        code = from_files(walk, profile, false, out, err);
    }
    if (code == BELAY_NOT_FOUND && command != NULL) {
        code = credentials_from_process(walk->client->platform, command, profile, out, err);
    }
    if (code == BELAY_NOT_FOUND) {
        code = from_files(walk, profile, true, out, err);
    }
    if (code == BELAY_NOT_FOUND) {
        code = refuse_sso(walk, profile, err);
    }
    walk->depth--;
    return code;
}

static enum belay_code none_found(const struct aws_client *client, struct belay_error *err)
{
    return error_set(
        err, BELAY_CONFIG,
        "no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run "
        "where a role is attached (not in the environment, profile '%s', a container's endpoint, "
        "or an EC2 instance's role)",
        client->profile);
}

enum belay_code aws_fetch_credentials(void *context, struct credentials *out, struct belay_error *err)
{
    struct aws_client *client = context;
    struct profiles profiles = { 0 };
    struct walk walk = { .client = client, .profiles = &profiles };
    enum belay_code code = BELAY_NOT_FOUND;

    if (!client->profile_is_given) {
        code = from_environment(client->platform, out, err);
    }
    if (code != BELAY_NOT_FOUND) {
        return code;
    }
    code = profiles_load(client->platform, &profiles, err);
    if (code == BELAY_OK) {
        code = from_profile(&walk, client->profile, out, err);
    }
    if (code == BELAY_NOT_FOUND) {
        code = credentials_from_container(client->platform, client->http, out, err);
    }
    if (code == BELAY_NOT_FOUND) {
        code = credentials_from_imds(client->platform, client->http, &profiles, client->profile, out, err);
    }
    profiles_release(&profiles);
    return code == BELAY_NOT_FOUND ? none_found(client, err) : code;
}
