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

bool profile_exists(const struct profiles *profiles, const char *name);
/* From one file; NULL if it is not there. */
const char *profile_in_config(const struct profiles *profiles, const char *name, const char *key);
const char *profile_in_credentials(const struct profiles *profiles, const char *name, const char *key);
/* From the credentials file, else from the config file; NULL if in neither or empty. */
const char *profile_get(const struct profiles *profiles, const char *name, const char *key);
/* `key` of [services X], where X is the profile's `services`. */
const char *profile_get_service(const struct profiles *profiles, const char *name, const char *key);
/* A variable of the environment, else the profile's key. */
const char *profile_setting(const struct platform *platform, const struct profiles *profiles,
                            const char *name, const char *variable, const char *key);

/* A small file without newlines at its end; BELAY_CONFIG if it does not exist. `what` names it in errors. */
enum belay_code read_token_file(const char *path, const char *what, char **out_token,
                                struct belay_error *err);

#endif
