/* The shared files of AWS, ~/.aws/config and ~/.aws/credentials, and the profiles in them. */
#ifndef AWS_AWS_PROFILE_H
#define AWS_AWS_PROFILE_H

#include "aws/text/ini.h"
#include "http_client/platform.h"

struct profiles {
    struct ini config;
    struct ini credentials;
    char *config_path;      /* owned */
    char *credentials_path; /* owned */
};

/* AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE name the files. A missing file counts as empty. */
enum belay_code profiles_load(const struct platform *platform, struct profiles *out, struct belay_error *err);
void profiles_release(struct profiles *profiles);

/*
 * `wanted` if not NULL, else AWS_PROFILE, AWS_DEFAULT_PROFILE, "default". Valid as long as the
 * result of platform_env().
 */
const char *profile_name(const struct platform *platform, const char *wanted);

bool profile_exists(const struct profiles *profiles, const char *name);
/* The section of one file, or NULL. */
const struct ini_section *profile_in_config(const struct profiles *profiles, const char *name);
const struct ini_section *profile_in_credentials(const struct profiles *profiles, const char *name);
/* From the credentials file, else from the config file; NULL if in neither or empty. */
const char *profile_get(const struct profiles *profiles, const char *name, const char *key);
/* `key` of [services X], where X is the profile's `services`. */
const char *profile_get_service(const struct profiles *profiles, const char *name, const char *key);

/* A whole small file as a string. BELAY_NOT_FOUND if it does not exist. */
enum belay_code read_small_file(const char *path, size_t max, char **out_text, struct belay_error *err);
/* The same without newlines at its end; BELAY_CONFIG if it does not exist. `what` names it in errors. */
enum belay_code read_token_file(const char *path, const char *what, char **out_token,
                                struct belay_error *err);

#endif
