/*
 * How the configuration is kept: as one flat list of settings.
 *
 * Defaults, the file and the environment each add their settings, in this
 * order, and of two with one name the later counts. What the rest of the
 * library asks for (profiles, lists) is read out of that list once.
 */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include "belay.h"
#include "lock/keys.h"

/* A profile as the settings make it. The texts are borrowed from them, the lists and the name owned. */
struct config_profile {
    struct belay_profile values;
    struct key_scheme scheme;
};

struct belay_config {
    char *path;                     /* owned; see belay_config_path() */
    struct belay_setting *settings; /* owned, with what they point to; in the order of their names */
    size_t n_settings;
    size_t cap_settings;
    struct config_profile *profiles; /* owned; in the order of their names */
    size_t n_profiles;
};

/* ---- settings.c: the list ---------------------------------------------- */

/* What is in force without a file and without an environment. */
extern const struct belay_setting config_builtin[];
extern const size_t config_n_builtin;

/* Add one; one of that name that is there is replaced. */
enum belay_code config_set(struct belay_config *config, const char *name, const char *value,
                           const char *origin, struct belay_error *err);

/* Undo what was put under names that begin with `prefix`, but for the defaults. */
enum belay_code config_reset(struct belay_config *config, const char *prefix, struct belay_error *err);

/* NULL if there is none. */
const struct belay_setting *config_find(const struct belay_config *config, const char *name);

/* ---- profile.c --------------------------------------------------------- */

/* Read the profiles out of the settings, and check what one value alone cannot show. */
enum belay_code config_make_profiles(struct belay_config *config, struct belay_error *err);

void config_profile_release(struct config_profile *profile);

/* Those of `config`, or the built-in ones for NULL. */
size_t config_n_profiles(const struct belay_config *config);
struct config_profile config_builtin_profile(size_t i);
/* `room` is for a built-in one, which is read anew. */
static inline const struct config_profile *config_profile_at(const struct belay_config *config, size_t i,
                                                             struct config_profile *room)
{
    if (config != NULL) {
        return &config->profiles[i];
    }
    *room = config_builtin_profile(i);
    return room;
}
enum belay_code config_profile_find(const struct belay_config *config, const char *name,
                                    struct config_profile *out_profile, struct belay_error *err);

/* ---- environment.c ----------------------------------------------------- */

/* The value of a variable; NULL if it is unset or empty. */
const char *config_env(const char *name);

/* Where a person's files are: $XDG_NAME if that is an absolute path, else HOME/FALLBACK. NULL: nowhere. */
char *config_home_path(const char *xdg_name, const char *fallback, const char *rest);

enum belay_code config_read_environment(struct belay_config *config, struct belay_error *err);

/*
 * The store that is used when nothing names one. BELAY_CONFIG if there is no
 * home to put it into. The caller frees *out_url.
 */
enum belay_code config_default_store(char **out_url, struct belay_error *err);

/* ---- schema.c ---------------------------------------------------------- */

struct config_source {
    const char *path;
    bool is_found; /* in the working directory, by looking there: nobody named it */
};

/* Check what the file says and put it into the settings. */
struct yaml_node;
enum belay_code config_read_yaml(struct belay_config *config, const struct config_source *source,
                                 const struct yaml_node *root, struct belay_error *err);

/* Whether `key` may be locked, and the keys above it, which the caller frees. */
enum belay_code config_check_key(const struct belay_config *config, const char *key,
                                 char *out_above[BELAY_ANCESTORS_MAX], size_t *out_n,
                                 struct belay_error *err);

#endif
