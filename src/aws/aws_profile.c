#include "aws/aws_profile.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/text.h"

enum { MAX_FILE = 1 << 20, MAX_TOKEN = 64 << 10 };

/* The whole file as a string. BELAY_NOT_FOUND if it does not exist. */
static enum belay_code read_small_file(const char *path, size_t max, char **out_text, struct belay_error *err)
{
    struct buf text = BUF_INIT(max);
    FILE *file = fopen(path, "re");
    char *room = file == NULL ? NULL : buf_room(&text, max);
    enum belay_code code = BELAY_OK;

    if (file == NULL && (errno == ENOENT || errno == ENOTDIR)) {
        return error_set(err, BELAY_NOT_FOUND, "there is no file '%s'", path);
    }
    if (room != NULL) {
        buf_took(&text, fread(room, 1, max, file));
    }
    if (file == NULL || ferror(file)) {
        code = error_set(err, BELAY_CONFIG, "cannot read '%s': %s", path, strerror(errno));
    } else if (room == NULL) {
        code = error_no_memory(err);
    } else if (fgetc(file) != EOF) {
        code = error_set(err, BELAY_CONFIG, "'%s' is larger than %zu bytes", path, max);
    } else {
        *out_text = buf_take(&text);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    buf_release(&text);
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
    struct buf path = BUF_INIT(8192);
    const char *named = platform_env(platform, variable);
    bool is_at_home = named == NULL || text_has_prefix(named, "~/");

    if (is_at_home) {
        buf_adds(&path, text_or_empty(platform_env(platform, "HOME")));
    }
    buf_adds(&path, named == NULL ? otherwise : is_at_home ? named + 1 : named);
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
    struct profiles made = {
        .config_path = find_path(platform, "AWS_CONFIG_FILE", "/.aws/config"),
        .credentials_path = find_path(platform, "AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials"),
    };
    enum belay_code code = made.config_path == NULL || made.credentials_path == NULL
                               ? error_no_memory(err)
                               : load_ini(made.config_path, &made.config, err);

    if (code == BELAY_OK) {
        code = load_ini(made.credentials_path, &made.credentials, err);
    }
    if (code != BELAY_OK) {
        profiles_release(&made);
        return code;
    }
    *out = made;
    return BELAY_OK;
}

void profiles_release(struct profiles *profiles)
{
    ini_release(&profiles->config);
    ini_release(&profiles->credentials);
    free(profiles->config_path);
    free(profiles->credentials_path);
    memset(profiles, 0, sizeof *profiles);
}

/* `key` in the section "KIND NAME" of the config file. */
static const char *get_of_kind(const struct profiles *profiles, const char *kind, const char *name,
                               const char *key)
{
    struct buf section = BUF_INIT(4096);
    const char *value;

    buf_addf(&section, "%s %s", kind, name);
    value = section.failed ? NULL : ini_get(&profiles->config, section.data, key);
    buf_release(&section);
    return value;
}

/* In the config file all but "default" are called "profile NAME". */
const char *profile_in_config(const struct profiles *profiles, const char *name, const char *key)
{
    bool is_plain = strcmp(name, "default") == 0 && get_of_kind(profiles, "profile", name, "") == NULL;

    return is_plain ? ini_get(&profiles->config, name, key) : get_of_kind(profiles, "profile", name, key);
}

const char *profile_in_credentials(const struct profiles *profiles, const char *name, const char *key)
{
    return ini_get(&profiles->credentials, name, key);
}

bool profile_exists(const struct profiles *profiles, const char *name)
{
    return profile_in_config(profiles, name, "") != NULL ||
           profile_in_credentials(profiles, name, "") != NULL;
}

static const char *unless_empty(const char *value)
{
    return value == NULL || *value == '\0' ? NULL : value;
}

const char *profile_get(const struct profiles *profiles, const char *name, const char *key)
{
    const char *value = unless_empty(profile_in_credentials(profiles, name, key));

    return value != NULL ? value : unless_empty(profile_in_config(profiles, name, key));
}

const char *profile_get_service(const struct profiles *profiles, const char *name, const char *key)
{
    const char *services = profile_get(profiles, name, "services");

    return services == NULL ? NULL : unless_empty(get_of_kind(profiles, "services", services, key));
}

const char *profile_setting(const struct platform *platform, const struct profiles *profiles,
                            const char *name, const char *variable, const char *key)
{
    const char *value = platform_env(platform, variable);

    return value != NULL ? value : profile_get(profiles, name, key);
}
