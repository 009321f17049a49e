/*
 * The sources of credentials. Each function returns BELAY_NOT_FOUND if its source is not
 * configured, so that the next one is tried. Any other failure ends the search: the next
 * source may belong to another identity. No error text contains what was read.
 */
#ifndef AWS_CREDENTIALS_SOURCE_H
#define AWS_CREDENTIALS_SOURCE_H

#include "aws/aws_client.h"

/* A command that prints JSON; `profile` names its profile. */
enum belay_code credentials_from_process(const struct platform *platform, const char *command,
                                         const char *profile, struct credentials *out,
                                         struct belay_error *err);

/* ECS, EKS Pod Identity, and others that offer an HTTP endpoint. */
enum belay_code credentials_from_container(const struct platform *platform, struct http *http,
                                           struct credentials *out, struct belay_error *err);

/* The role of an EC2 instance. */
enum belay_code credentials_from_imds(const struct platform *platform, struct http *http,
                                      const struct profiles *profiles, const char *profile,
                                      struct credentials *out, struct belay_error *err);

struct sts_role {
    const char *role_arn;
    const char *session_name; /* NULL: generated */
    const char *external_id;  /* or NULL */
    const char *duration;     /* seconds; or NULL */
    const char *token_file;   /* for web identity */
};
/*
 * sts:AssumeRole, signed with `base`. If `base` is NULL: sts:AssumeRoleWithWebIdentity, with the token in
 * role->token_file instead of a signature.
 */
enum belay_code credentials_assume_role(struct aws_client *client, const struct sts_role *role,
                                        const struct credentials *base, struct credentials *out,
                                        struct belay_error *err);

/*
 * {"AccessKeyId", "SecretAccessKey", `token_key`, "Expiration"} as containers, IMDS and
 * commands print it. `what` names the source in errors.
 */
enum belay_code credentials_from_json(const char *text, size_t len, const char *token_key, const char *what,
                                      struct credentials *out, struct belay_error *err);

#endif
