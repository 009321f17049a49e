#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "config/config.h"

/*
 * The profile whose template a key has the form of, if any: the one that says
 * most about it; of two that say as much the one whose lists allow the key, or
 * else the first by name. It must not depend on the profile of the moment: two
 * who lock the same key must see the same keys above it. Nor on whether the
 * lists allow the key: a lock that was taken under longer lists is still released
 * with the keys above it.
 */
static bool find_by_form(const struct belay_config *config, const char *key,
                         struct config_profile *out_profile, struct key_names *out_names)
{
    size_t best = 0;
    bool found = false;
    bool best_is_allowed = false;

    for (size_t i = 0, n = config_n_profiles(config); i < n; i++) {
        struct config_profile room;
        const struct config_profile *profile = config_profile_at(config, i, &room);
        struct key_names names;
        size_t weight;
        bool is_allowed;

        if (profile->scheme.template == NULL || !key_read_form(&profile->scheme, key, &names, &is_allowed)) {
            continue;
        }
        weight = key_template_weight(profile->scheme.template);
        if (!found || weight > best || (weight == best && is_allowed && !best_is_allowed)) {
            *out_profile = *profile;
            *out_names = names;
            best = weight;
            best_is_allowed = is_allowed;
            found = true;
        }
    }
    return found;
}

size_t belay_key_ancestors(const struct belay_config *config, const char *key,
                           char *out_keys[BELAY_ANCESTORS_MAX])
{
    struct config_profile profile;
    struct key_names names;

    if (key == NULL) {
        return 0;
    }
    if (text_has_prefix(key, "stack:")) {
        return key_above_stack(key, out_keys);
    }
    return find_by_form(config, key, &profile, &names) ? key_above_template(&profile.scheme, &names, out_keys)
                                                       : 0;
}

/* A key near the limit may have a longer one above it ("a" -> "all"), which could not be locked. */
enum belay_code config_check_key(const struct belay_config *config, const char *key,
                                 char *out_above[BELAY_ANCESTORS_MAX], size_t *out_n, struct belay_error *err)
{
    char *above[BELAY_ANCESTORS_MAX] = { NULL, NULL };
    enum belay_code code = key_check(key, err);
    size_t n = code == BELAY_OK ? belay_key_ancestors(config, key, above) : 0;

    for (size_t i = 0; i < n; i++) {
        if (above[i] == NULL) {
            code = error_no_memory(err);
        } else if (strlen(above[i]) > BELAY_KEY_MAX) {
            code = error_set(
                err, BELAY_INVALID,
                "the key is too long: the one above it would have %zu bytes; at most %d are allowed",
                strlen(above[i]), BELAY_KEY_MAX);
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (code == BELAY_OK) {
            out_above[i] = above[i];
        } else {
            free(above[i]);
        }
    }
    if (code == BELAY_OK) {
        *out_n = n;
    }
    return code;
}

enum belay_code belay_key_check(const struct belay_config *config, const char *profile, const char *key,
                                struct belay_error *err)
{
    char *above[BELAY_ANCESTORS_MAX] = { NULL, NULL };
    struct config_profile found;
    enum belay_code code;
    size_t n = 0;

    if (key == NULL) {
        return error_set(err, BELAY_INVALID, "no key is given");
    }
    code = key_check(key, err);
    if (code == BELAY_OK && profile != NULL) {
        code = config_profile_find(config, profile, &found, err);
        if (code == BELAY_OK) {
            code = key_check_scheme(&found.scheme, key, err);
        }
    }
    if (code == BELAY_OK) {
        code = config_check_key(config, key, above, &n, err);
    }
    for (size_t i = 0; i < n; i++) {
        free(above[i]);
    }
    return code;
}

/* The profile whose lock a key is by its form, which must be allowed by the lists. Its name is NULL: no profile's. */
static enum belay_code find_owner(const struct belay_config *config, const char *key,
                                  struct config_profile *out_profile, struct belay_error *err)
{
    struct config_profile profile = { .values = { .name = NULL } };
    struct key_names names;
    enum belay_code code = BELAY_OK;

    if (key_begins_as_stack(key)) {
        (void)config_profile_find(config, "stack", &profile, NULL);
    } else if (find_by_form(config, key, &profile, &names)) {
        code = key_check_scheme(&profile.scheme, key, err);
    }
    if (code == BELAY_OK) {
        *out_profile = profile;
    }
    return code;
}

enum belay_code belay_key_profile(const struct belay_config *config, const char *profile, const char *key,
                                  struct belay_profile *out_profile, struct belay_error *err)
{
    struct config_profile owner;
    struct config_profile named;
    enum belay_code code;

    if (key == NULL || out_profile == NULL) {
        return error_set(err, BELAY_INVALID, "no key is given");
    }
    code = find_owner(config, key, &owner, err);
    if (code != BELAY_OK || profile == NULL) {
        if (code == BELAY_OK) {
            *out_profile = owner.values;
        }
        return code;
    }
    code = config_profile_find(config, profile, &named, err);
    if (code != BELAY_OK) {
        return code;
    }
    /* One with a template of its own has keys of its own; another is a set of terms, for any key. */
    if (owner.values.name != NULL && named.scheme.template != NULL &&
        strcmp(owner.values.name, named.values.name) != 0) {
        return error_set(err, BELAY_INVALID,
                         "the key '%s' is a lock of profile '%s', not of '%s', whose keys are '%s'", key,
                         owner.values.name, named.values.name, named.scheme.template);
    }
    *out_profile = named.values;
    return BELAY_OK;
}

static bool piece_is(struct key_piece piece, const char *name)
{
    return name == NULL
               ? piece.at == NULL
               : piece.at != NULL && strlen(name) == piece.len && memcmp(name, piece.at, piece.len) == 0;
}

/* For "%.*s", which wants an int and no NULL. */
#define SHOWN(piece) (int)(piece).len, (piece).at == NULL ? "" : (piece).at

/* A made key must be read back as what it was made of, or it would exclude the wrong others. */
static enum belay_code check_reads_back(const struct belay_config *config, const struct key_scheme *made_by,
                                        const struct belay_key_parts *parts, const char *key,
                                        struct belay_error *err)
{
    struct config_profile profile;
    struct key_names names;
    bool is_ours;

    if (!find_by_form(config, key, &profile, &names)) {
        return error_set(err, BELAY_INVALID, "the key '%s' cannot be told apart into its parts again", key);
    }
    is_ours = strcmp(profile.scheme.template, made_by->template) == 0;
    if (is_ours && piece_is(names.component, parts->component) &&
        piece_is(names.environment, parts->environment)) {
        return BELAY_OK;
    }
    (void)error_set(err, BELAY_INVALID,
                    "the key '%s' would be read as component '%.*s' and environment '%.*s' of profile '%s'",
                    key, SHOWN(names.component), SHOWN(names.environment), profile.scheme.profile);
    if (err != NULL && is_ours && made_by->n_environments == 0) {
        size_t n = strlen(err->text);

        (void)snprintf(err->text + n, sizeof err->text - n, "; list '%s' under profiles.%s.environments",
                       parts->environment, made_by->profile);
    }
    return BELAY_INVALID;
}

static enum belay_code make_by_profile(const struct belay_config *config, const struct key_scheme *scheme,
                                       const struct belay_key_parts *parts, char **out_key,
                                       struct belay_error *err)
{
    char *key = NULL;
    enum belay_code code;

    if (parts->service != NULL) {
        return error_set(err, BELAY_INVALID, "--service needs --stack");
    }
    if (scheme->template == NULL) {
        return error_set(err, BELAY_INVALID,
                         "profile '%s' has no key template: add --stack, or type the key in full",
                         scheme->profile);
    }
    code = key_make_by_template(scheme, parts, &key, err);
    if (code == BELAY_OK) {
        code = belay_key_check(config, NULL, key, err);
    }
    if (code == BELAY_OK) {
        code = check_reads_back(config, scheme, parts, key, err);
    }
    if (code == BELAY_OK) {
        *out_key = key;
        key = NULL;
    }
    free(key);
    return code;
}

static enum belay_code make_by_stack(const struct belay_config *config, const struct belay_key_parts *parts,
                                     char **out_key, struct belay_error *err)
{
    char *key = NULL;
    enum belay_code code = key_make_by_stack(parts, &key, err);

    if (code == BELAY_OK) {
        code = belay_key_check(config, NULL, key, err);
    }
    if (code == BELAY_OK) {
        *out_key = key;
        key = NULL;
    }
    free(key);
    return code;
}

enum belay_code belay_key_make(const struct belay_config *config, const struct belay_key_parts *parts,
                               char **out_key, struct belay_error *err)
{
    struct config_profile profile = { .scheme = { .profile = NULL } };

    if (parts == NULL || out_key == NULL) {
        return error_set(err, BELAY_INVALID, "no parts of a key are given");
    }
    if (parts->profile != NULL) {
        enum belay_code code = config_profile_find(config, parts->profile, &profile, err);

        if (code != BELAY_OK) {
            return code;
        }
    }
    /* Both could name the lock, and a wrong guess would be the wrong lock. */
    if (parts->stack != NULL && profile.scheme.template != NULL) {
        return error_set(
            err, BELAY_INVALID,
            "--stack does not go with profile '%s', whose keys are made by its template (%s): leave "
            "one of them out",
            parts->profile, profile.scheme.template);
    }
    if (parts->stack != NULL) {
        return make_by_stack(config, parts, out_key, err);
    }
    if (parts->profile != NULL) {
        return make_by_profile(config, &profile.scheme, parts, out_key, err);
    }
    if (parts->component == NULL && parts->environment == NULL && parts->service == NULL) {
        return error_set(err, BELAY_INVALID, "nothing names the lock: type its key, or give its parts");
    }
    if (parts->service != NULL) {
        return error_set(err, BELAY_INVALID, "--service needs --stack");
    }
    return error_set(
        err, BELAY_INVALID,
        "--%s does not name a lock by itself: add --profile (one with a key template) or --stack",
        parts->component != NULL ? "component" : "environment");
}

/* ---- the form of a key ---------------------------------------------------- */

/* What stands between `at` and the next ':'; returns where that is. */
static const char *copy_name(char out[BELAY_KEY_MAX + 1], const char *at)
{
    size_t len = strcspn(at, ":");

    (void)snprintf(out, BELAY_KEY_MAX + 1, "%.*s", (int)len, at);
    return at + len;
}

/* stack:S:env:E, perhaps with :service:V or :component:C behind it. */
static void read_stack(const char *key, struct belay_parsed_key *form)
{
    const char *at = copy_name(form->stack, key + strlen("stack:"));

    form->profile = "stack";
    if (text_has_prefix(at, ":env:")) {
        at = copy_name(form->environment, at + strlen(":env:"));
    }
    form->level = text_has_prefix(at, ":service:")     ? "service"
                  : text_has_prefix(at, ":component:") ? "component"
                                                       : "stack";
}

void belay_key_parse(const struct belay_config *config, const char *key, struct belay_parsed_key *out_form)
{
    struct config_profile profile;
    struct key_names names;

    *out_form = (struct belay_parsed_key){ .level = "key", .profile = "" };
    if (key_begins_as_stack(key)) {
        read_stack(key, out_form);
    } else if (find_by_form(config, key, &profile, &names)) {
        out_form->level = "component";
        out_form->profile = profile.scheme.profile;
        (void)snprintf(out_form->environment, sizeof out_form->environment, "%.*s",
                       (int)names.environment.len, names.environment.at == NULL ? "" : names.environment.at);
    }
}
