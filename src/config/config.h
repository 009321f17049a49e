/*
 * The configuration is one flat list of settings.
 *
 * Defaults, the file and the environment add their settings in this order; a later setting replaces an earlier one of
 * the same name. Profiles and lists are built from that list once.
 */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include "belay.h"
#include "config/key_forms.h"

/* A profile, built from the settings. Borrows their texts; owns the lists and the name. */
struct config_profile {
    struct belay_profile values;
    struct key_scheme scheme;
};

struct belay_config {
    char *path;                     /* owned; see belay_config_path() */
    struct belay_setting *settings; /* owned, with their strings; sorted by name */
    size_t n_settings;
    size_t cap_settings;
    struct config_profile *profiles; /* owned; sorted by name; NULL: the built-in ones */
    size_t n_profiles;
};

/* ---- settings.c --------------------------------------------------------- */

/* The defaults, in effect without a file and without environment variables. */
extern const struct belay_setting config_builtin[];
extern const size_t config_n_builtin;

/* Add a setting, or replace the one of that name. */
enum belay_code config_set(struct belay_config *config, const char *name, const char *value,
                           const char *origin, struct belay_error *err);

/* Reset the settings whose names begin with `prefix`, all for "", to the defaults. */
enum belay_code config_reset(struct belay_config *config, const char *prefix, struct belay_error *err);

/* NULL if there is no such setting. */
const struct belay_setting *config_find(const struct belay_config *config, const char *name);

/* ---- key_profile.c ------------------------------------------------------ */

/* Build the profiles from the settings, and check values that depend on each other. */
enum belay_code config_make_profiles(struct belay_config *config, struct belay_error *err);

void config_profile_release(struct config_profile *profile);

/* The profiles of the file, or the built-in ones if there is no file (or no `config`). */
const struct config_profile *config_profiles(const struct belay_config *config, size_t *out_n);
/* NULL, with BELAY_INVALID: there is no such profile. */
const struct config_profile *config_profile_find(const struct belay_config *config, const char *name,
                                                 struct belay_error *err);

/* ---- environment.c ----------------------------------------------------- */

enum belay_code config_read_environment(struct belay_config *config, struct belay_error *err);

/* ---- schema.c ---------------------------------------------------------- */

struct config_source {
    const char *path;
    bool is_found; /* in the working directory, not named by the user: less trusted */
};

/* Check the file against the schema and add its settings. */
struct yaml_node;
enum belay_code config_read_yaml(struct belay_config *config, const struct config_source *source,
                                 const struct yaml_node *root, struct belay_error *err);

/* ---- key.c --------------------------------------------------------------- */

/* The facts that the form of a key gives. */
struct config_key {
    char *above[BELAY_ANCESTORS_MAX]; /* owned: the keys of its ancestors, nearest first */
    size_t n_above;
    const struct config_profile *profile; /* borrowed; the profile that it belongs to; NULL: none */
};

/* Check `key` and read its form. A key that its profile's lists do not allow is read as well. */
enum belay_code config_read_key(const struct belay_config *config, const char *key,
                                struct config_key *out_key, struct belay_error *err);
void config_key_release(struct config_key *key);
/* Whether the lists of its profile allow the key. `profile` may be NULL. */
enum belay_code config_check_lists(const struct config_profile *profile, const char *key,
                                   struct belay_error *err);

#endif
