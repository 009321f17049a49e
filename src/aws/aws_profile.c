#include "aws/aws_profile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"

enum { MAX_FILE = 1 << 20, MAX_TOKEN = 64 << 10 };

static enum belay_code read_to_end(int fd, const char *path, size_t max, char **out_text,
                                   struct belay_error *err)
{
    struct buf text = BUF_INIT(max);
    char block[4096];
    ssize_t n;
    char *all;

    while ((n = read(fd, block, sizeof block)) != 0) {
        if (n > 0) {
            buf_add(&text, block, (size_t)n);
        } else if (errno != EINTR) {
            buf_release(&text);
            return error_set(err, BELAY_CONFIG, "cannot read '%s': %s", path, strerror(errno));
        }
        if (text.failed) {
            buf_release(&text);
            return error_set(err, BELAY_CONFIG, "'%s' is larger than %zu bytes", path, max);
        }
    }
    all = buf_take(&text);
    if (all == NULL) {
        return error_no_memory(err);
    }
    *out_text = all;
    return BELAY_OK;
}

enum belay_code read_small_file(const char *path, size_t max, char **out_text, struct belay_error *err)
{
    enum belay_code code;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
        return error_set(err, BELAY_NOT_FOUND, "there is no file '%s'", path);
    }
    if (fd < 0) {
        return error_set(err, BELAY_CONFIG, "cannot read '%s': %s", path, strerror(errno));
    }
    code = read_to_end(fd, path, max, out_text, err);
    (void)close(fd);
    return code;
}

enum belay_code read_token_file(const char *path, const char *what, char **out_token, struct belay_error *err)
{
    enum belay_code code = read_small_file(path, MAX_TOKEN, out_token, err);
    size_t len;

    if (code != BELAY_OK) {
        (void)error_wrap(err, "%s", what);
        return code == BELAY_NOT_FOUND ? BELAY_CONFIG : code;
    }
    for (len = strlen(*out_token); len > 0 && strchr("\r\n", (*out_token)[len - 1]) != NULL; len--) {
        (*out_token)[len - 1] = '\0';
    }
    return BELAY_OK;
}

/* The path in `variable`, or `otherwise` below the home directory. A leading "~/" is the home directory. */
static char *find_path(const struct platform *platform, const char *variable, const char *otherwise)
{
    struct buf path = BUF_INIT(4096);
    const char *named = platform_env(platform, variable);
    const char *home;

    if (named != NULL && strncmp(named, "~/", 2) != 0) {
        return strdup(named);
    }
    buf_adds(&path, named != NULL ? named + 1 : otherwise);
    home = platform_env(platform, "HOME");
    if (home != NULL && !path.failed) {
        struct buf whole = BUF_INIT(8192);

        buf_addf(&whole, "%s%s", home, path.data);
        buf_release(&path);
        return buf_take(&whole);
    }
    return buf_take(&path);
}

static enum belay_code load_ini(const char *path, struct ini *out, struct belay_error *err)
{
    char *text = NULL;
    enum belay_code code = read_small_file(path, MAX_FILE, &text, err);

    if (code == BELAY_NOT_FOUND) {
        belay_error_release(err);
        return BELAY_OK;
    }
    if (text != NULL) {
        code = ini_parse(text, path, out, err);
        explicit_bzero(text, strlen(text));
        free(text);
    }
    return code;
}

enum belay_code profiles_load(const struct platform *platform, struct profiles *out, struct belay_error *err)
{
    char *config_path = find_path(platform, "AWS_CONFIG_FILE", "/.aws/config");
    char *credentials_path = find_path(platform, "AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials");
    struct ini config = { 0 };
    struct ini credentials = { 0 };
    enum belay_code code;

    if (config_path == NULL || credentials_path == NULL) {
        code = error_no_memory(err);
        goto failed;
    }
    code = load_ini(config_path, &config, err);
    if (code == BELAY_OK) {
        code = load_ini(credentials_path, &credentials, err);
    }
    if (code != BELAY_OK) {
        goto failed;
    }
    *out = (struct profiles){ config, credentials, config_path, credentials_path };
    return BELAY_OK;

failed:
    ini_release(&config);
    ini_release(&credentials);
    free(config_path);
    free(credentials_path);
    return code;
}

void profiles_release(struct profiles *profiles)
{
    ini_release(&profiles->config);
    ini_release(&profiles->credentials);
    free(profiles->config_path);
    free(profiles->credentials_path);
    memset(profiles, 0, sizeof *profiles);
}

const char *profile_name(const struct platform *platform, const char *wanted)
{
    const char *name = wanted;

    if (name == NULL) {
        name = platform_env(platform, "AWS_PROFILE");
    }
    if (name == NULL) {
        name = platform_env(platform, "AWS_DEFAULT_PROFILE");
    }
    return name != NULL ? name : "default";
}

/* In the config file all but "default" are called "profile NAME". */
const struct ini_section *profile_in_config(const struct profiles *profiles, const char *name)
{
    const struct ini_section *found;
    struct buf section = BUF_INIT(4096);

    buf_addf(&section, "profile %s", name);
    found = section.failed ? NULL : ini_find(&profiles->config, section.data);
    buf_release(&section);
    if (found == NULL && strcmp(name, "default") == 0) {
        found = ini_find(&profiles->config, name);
    }
    return found;
}

const struct ini_section *profile_in_credentials(const struct profiles *profiles, const char *name)
{
    return ini_find(&profiles->credentials, name);
}

bool profile_exists(const struct profiles *profiles, const char *name)
{
    return profile_in_config(profiles, name) != NULL || profile_in_credentials(profiles, name) != NULL;
}

const char *profile_get(const struct profiles *profiles, const char *name, const char *key)
{
    const char *value = ini_get(profile_in_credentials(profiles, name), key);

    if (value == NULL || *value == '\0') {
        value = ini_get(profile_in_config(profiles, name), key);
    }
    return value == NULL || *value == '\0' ? NULL : value;
}

const char *profile_get_service(const struct profiles *profiles, const char *name, const char *key)
{
    const char *services = profile_get(profiles, name, "services");
    struct buf section = BUF_INIT(4096);
    const char *value = NULL;

    if (services != NULL) {
        buf_addf(&section, "services %s", services);
        if (!section.failed) {
            value = ini_get(ini_find(&profiles->config, section.data), key);
        }
    }
    buf_release(&section);
    return value == NULL || *value == '\0' ? NULL : value;
}
