#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "config/config.h"

/*
 * Find the profile whose template matches the key: the most specific one; among equals the one whose lists allow the
 * key, else the first by name. The result must not depend on --profile: all clients of a key must see the same
 * ancestors. Nor on whether the lists allow the key: a lock acquired under longer lists must be released with the same
 * ancestors.
 */
static bool match_profile(const struct belay_config *config, const char *key,
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

        if (!key_read_form(&profile->scheme, key, &names, &is_allowed)) {
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
    return match_profile(config, key, &profile, &names)
               ? key_above_template(&profile.scheme, &names, out_keys)
               : 0;
}

/* A key near the limit may have an ancestor that is longer ("a" -> "all") and cannot be locked. */
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
            code = error_set(err, BELAY_INVALID,
                             "the key is too long: its ancestor would have %zu bytes; at most %d are allowed",
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
        return error_set(err, BELAY_INVALID, "no key given");
    }
    code = config_check_key(config, key, above, &n, err);
    for (size_t i = 0; i < n; i++) {
        free(above[i]);
    }
    if (code == BELAY_OK && profile != NULL) {
        code = config_profile_find(config, profile, &found, err);
        if (code == BELAY_OK) {
            code = key_check_scheme(&found.scheme, key, err);
        }
    }
    return code;
}

enum belay_code belay_key_profile(const struct belay_config *config, const char *profile, const char *key,
                                  struct belay_profile *out_profile, struct belay_error *err)
{
    struct config_profile owner = { .values = { .name = NULL } }; /* the key's by its form */
    struct config_profile named;
    struct key_names names;
    enum belay_code code = BELAY_OK;

    if (key == NULL || out_profile == NULL) {
        return error_set(err, BELAY_INVALID, "no key given");
    }
    if (key_begins_as_stack(key)) {
        (void)config_profile_find(config, "stack", &owner, NULL);
    } else if (match_profile(config, key, &owner, &names)) {
        code = key_check_scheme(&owner.scheme, key, err);
    }
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
    /* A profile with a template has keys of its own; one without is a set of defaults for any key. */
    if (owner.values.name != NULL && named.scheme.template != NULL &&
        strcmp(owner.values.name, named.values.name) != 0) {
        return error_set(err, BELAY_INVALID,
                         "the key '%s' belongs to profile '%s', not to '%s', whose keys are '%s'", key,
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

/* Arguments for "%.*s". */
#define SHOWN(piece) (int)(piece).len, (piece).at == NULL ? "" : (piece).at

/* The key must parse into the parts it was made of, or it would exclude the wrong locks. */
static enum belay_code check_round_trip(const struct belay_config *config, const struct key_scheme *made_by,
                                        const struct belay_key_parts *parts, const char *key,
                                        struct belay_error *err)
{
    struct config_profile profile;
    struct key_names names;
    bool is_ours;

    if (!match_profile(config, key, &profile, &names)) {
        return error_set(err, BELAY_INVALID, "the key '%s' cannot be parsed into its parts", key);
    }
    is_ours = strcmp(profile.scheme.template, made_by->template) == 0;
    if (is_ours && piece_is(names.component, parts->component) &&
        piece_is(names.environment, parts->environment)) {
        return BELAY_OK;
    }
    (void)error_set(err, BELAY_INVALID,
                    "the key '%s' would be parsed as component '%.*s' and environment '%.*s' of profile '%s'",
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
                         "profile '%s' has no key template: add --stack, or give the whole key",
                         scheme->profile);
    }
    code = key_make_by_template(scheme, parts, &key, err);
    if (code == BELAY_OK) {
        code = belay_key_check(config, NULL, key, err);
    }
    if (code == BELAY_OK) {
        code = check_round_trip(config, scheme, parts, key, err);
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
        return error_set(err, BELAY_INVALID, "no parts of a key given");
    }
    if (parts->profile != NULL) {
        enum belay_code code = config_profile_find(config, parts->profile, &profile, err);

        if (code != BELAY_OK) {
            return code;
        }
    }
    /* Both name a lock; do not guess which one is meant. */
    if (parts->stack != NULL && profile.scheme.template != NULL) {
        return error_set(
            err, BELAY_INVALID,
            "--stack and profile '%s' exclude each other: the profile makes its keys from its template "
            "(%s)",
            parts->profile, profile.scheme.template);
    }
    if (parts->stack != NULL) {
        return make_by_stack(config, parts, out_key, err);
    }
    if (parts->profile != NULL) {
        return make_by_profile(config, &profile.scheme, parts, out_key, err);
    }
    if (parts->component == NULL && parts->environment == NULL && parts->service == NULL) {
        return error_set(err, BELAY_INVALID, "no lock given: give its key or its parts");
    }
    if (parts->service != NULL) {
        return error_set(err, BELAY_INVALID, "--service needs --stack");
    }
    return error_set(err, BELAY_INVALID,
                     "--%s alone does not name a lock: add --stack, or --profile with a key template",
                     parts->component != NULL ? "component" : "environment");
}

/* ---- the form of a key ---------------------------------------------------- */

/* Copy the text up to the next ':'; returns its end. */
static const char *copy_name(char out[BELAY_KEY_MAX + 1], const char *at)
{
    size_t len = strcspn(at, ":");

    (void)snprintf(out, BELAY_KEY_MAX + 1, "%.*s", (int)len, at);
    return at + len;
}

/* stack:S:env:E, optionally with :service:V or :component:C. */
static void parse_stack_key(const char *key, struct belay_parsed_key *form)
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
        parse_stack_key(key, out_form);
    } else if (match_profile(config, key, &profile, &names)) {
        out_form->level = "component";
        out_form->profile = profile.scheme.profile;
        (void)snprintf(out_form->environment, sizeof out_form->environment, "%.*s",
                       (int)names.environment.len, names.environment.at == NULL ? "" : names.environment.at);
    }
}
