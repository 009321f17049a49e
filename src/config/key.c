#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "config/config.h"

/*
 * Find the profile that the key belongs to. Of the templates that match, it is the most specific one; among equals the
 * one whose lists allow the key, else the first by name. The result must not depend on --profile: all clients of a key
 * must see the same ancestors. Nor on whether the lists allow the key: a lock acquired under longer lists must be
 * released with the same ancestors. `out_names` is for a key that matches a template.
 */
static const struct config_profile *match_profile(const struct belay_config *config, const char *key,
                                                  struct key_names *out_names)
{
    const struct config_profile *found = NULL;
    size_t n;
    const struct config_profile *profiles = config_profiles(config, &n);
    size_t best = 0;
    bool best_is_allowed = false;

    *out_names = (struct key_names){ { NULL, 0 }, { NULL, 0 } };
    if (key_begins_as_stack(key)) {
        return config_profile_find(config, "stack", NULL);
    }
    for (size_t i = 0; i < n; i++) {
        struct key_names names;
        size_t weight;
        bool is_allowed;

        if (!key_read_form(&profiles[i].scheme, key, &names, &is_allowed)) {
            continue;
        }
        weight = key_template_weight(profiles[i].scheme.template);
        if (found == NULL || weight > best || (weight == best && is_allowed && !best_is_allowed)) {
            found = &profiles[i];
            *out_names = names;
            best = weight;
            best_is_allowed = is_allowed;
        }
    }
    return found;
}

/* The ancestors of a key of that profile, or of none. */
static size_t find_above(const struct config_profile *profile, const struct key_names *names, const char *key,
                         char *out_keys[BELAY_ANCESTORS_MAX])
{
    if (key_begins_as_stack(key)) {
        return key_above_stack(key, out_keys);
    }
    return profile == NULL ? 0 : key_above_template(&profile->scheme, names, out_keys);
}

size_t belay_key_ancestors(const struct belay_config *config, const char *key,
                           char *out_keys[BELAY_ANCESTORS_MAX])
{
    struct key_names names;

    return key == NULL ? 0 : find_above(match_profile(config, key, &names), &names, key, out_keys);
}

void config_key_release(struct config_key *key)
{
    for (size_t i = 0; i < key->n_above; i++) {
        free(key->above[i]);
    }
    key->n_above = 0;
}

/* A key near the limit may have an ancestor that is longer ("a" -> "all") and cannot be locked. */
enum belay_code config_read_key(const struct belay_config *config, const char *key,
                                struct config_key *out_key, struct belay_error *err)
{
    struct config_key found = { .n_above = 0 };
    struct key_names names;
    enum belay_code code = key_check(key, err);

    if (code != BELAY_OK) {
        return code;
    }
    found.profile = match_profile(config, key, &names);
    found.n_above = find_above(found.profile, &names, key, found.above);
    for (size_t i = 0; i < found.n_above; i++) {
        if (found.above[i] == NULL) {
            code = error_no_memory(err);
        } else if (strlen(found.above[i]) > BELAY_KEY_MAX) {
            code = error_set(err, BELAY_INVALID,
                             "the key is too long: its ancestor would have %zu bytes; at most %d are allowed",
                             strlen(found.above[i]), BELAY_KEY_MAX);
        }
    }
    if (code == BELAY_OK) {
        *out_key = found;
    } else {
        config_key_release(&found);
    }
    return code;
}

enum belay_code config_check_lists(const struct config_profile *profile, const char *key,
                                   struct belay_error *err)
{
    return profile == NULL ? BELAY_OK : key_check_scheme(&profile->scheme, key, err);
}

enum belay_code belay_key_check(const struct belay_config *config, const char *profile, const char *key,
                                struct belay_error *err)
{
    const struct config_profile *found;
    struct config_key read = { .n_above = 0 };
    enum belay_code code;

    if (key == NULL) {
        return error_set(err, BELAY_INVALID, "no key given");
    }
    code = config_read_key(config, key, &read, err);
    config_key_release(&read);
    if (code != BELAY_OK || profile == NULL) {
        return code;
    }
    found = config_profile_find(config, profile, err);
    return found == NULL ? BELAY_INVALID : config_check_lists(found, key, err);
}

enum belay_code belay_key_profile(const struct belay_config *config, const char *profile, const char *key,
                                  struct belay_profile *out_profile, struct belay_error *err)
{
    static const struct belay_profile none = { .name = NULL };
    struct config_key read = { .n_above = 0 };
    const struct config_profile *named;
    enum belay_code code;

    if (key == NULL || out_profile == NULL) {
        return error_set(err, BELAY_INVALID, "no key given");
    }
    code = config_read_key(config, key, &read, err);
    config_key_release(&read);
    if (code == BELAY_OK) {
        code = config_check_lists(read.profile, key, err);
    }
    if (code == BELAY_OK && profile == NULL) {
        *out_profile = read.profile == NULL ? none : read.profile->values;
    }
    if (code != BELAY_OK || profile == NULL) {
        return code;
    }
    named = config_profile_find(config, profile, err);
    if (named == NULL) {
        return BELAY_INVALID;
    }
    /* A profile with a template has keys of its own; one without is a set of defaults for any key. */
    if (read.profile != NULL && named->scheme.template != NULL && read.profile != named) {
        return error_set(err, BELAY_INVALID,
                         "the key '%s' belongs to profile '%s', not to '%s', whose keys are '%s'", key,
                         read.profile->values.name, named->values.name, named->scheme.template);
    }
    *out_profile = named->values;
    return BELAY_OK;
}

/* Arguments for "%.*s". */
#define SHOWN(piece) (int)(piece).len, (piece).at == NULL ? "" : (piece).at

/* The key must parse into the parts it was made of, or it would exclude the wrong locks. */
static enum belay_code check_round_trip(const struct belay_config *config, const struct key_scheme *made_by,
                                        const struct belay_key_parts *parts, const char *key,
                                        struct belay_error *err)
{
    struct key_names names;
    const struct config_profile *profile = match_profile(config, key, &names);
    bool is_ours;

    if (profile == NULL) {
        return error_set(err, BELAY_INVALID, "the key '%s' cannot be parsed into its parts", key);
    }
    is_ours = profile->scheme.template != NULL && strcmp(profile->scheme.template, made_by->template) == 0;
    if (is_ours && key_piece_is(names.component, parts->component) &&
        key_piece_is(names.environment, parts->environment)) {
        return BELAY_OK;
    }
    if (names.component.at == NULL && names.environment.at == NULL) { /* a stack's */
        return error_set(
            err, BELAY_INVALID,
            "the key '%s' would be one of profile '%s': choose another --component, or change the "
            "key template of profile '%s'",
            key, profile->scheme.profile, made_by->profile);
    }
    (void)error_set(err, BELAY_INVALID,
                    "the key '%s' would be parsed as component '%.*s' and environment '%.*s' of profile '%s'",
                    key, SHOWN(names.component), SHOWN(names.environment), profile->scheme.profile);
    if (err != NULL && is_ours && made_by->n_environments == 0) {
        size_t n = strlen(err->text);

        (void)snprintf(err->text + n, sizeof err->text - n, "; list '%s' under profiles.%s.environments",
                       parts->environment, made_by->profile);
    }
    return BELAY_INVALID;
}

static enum belay_code make_by_profile(const struct key_scheme *scheme, const struct belay_key_parts *parts,
                                       char **out_key, struct belay_error *err)
{
    if (parts->service != NULL) {
        return error_set(err, BELAY_INVALID, "--service needs --stack");
    }
    if (scheme->template == NULL) {
        return error_set(err, BELAY_INVALID,
                         "profile '%s' has no key template: add --stack, or give the whole key",
                         scheme->profile);
    }
    return key_make_by_template(scheme, parts, out_key, err);
}

/* Neither --stack nor --profile is given. */
static enum belay_code fail_incomplete(const struct belay_key_parts *parts, struct belay_error *err)
{
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

enum belay_code belay_key_make(const struct belay_config *config, const struct belay_key_parts *parts,
                               char **out_key, struct belay_error *err)
{
    const struct config_profile *profile = NULL;
    enum belay_code code;
    char *key = NULL;

    if (parts == NULL || out_key == NULL) {
        return error_set(err, BELAY_INVALID, "no parts of a key given");
    }
    if (parts->profile != NULL && (profile = config_profile_find(config, parts->profile, err)) == NULL) {
        return BELAY_INVALID;
    }
    /* Both name a lock; do not guess which one is meant. */
    if (parts->stack != NULL && profile != NULL && profile->scheme.template != NULL) {
        return error_set(
            err, BELAY_INVALID,
            "--stack and profile '%s' exclude each other: the profile makes its keys from its template "
            "(%s)",
            parts->profile, profile->scheme.template);
    }
    if (parts->stack == NULL && profile == NULL) {
        return fail_incomplete(parts, err);
    }
    code = parts->stack != NULL ? key_make_by_stack(parts, &key, err)
                                : make_by_profile(&profile->scheme, parts, &key, err);
    if (code == BELAY_OK) {
        code = belay_key_check(config, NULL, key, err);
    }
    if (code == BELAY_OK && parts->stack == NULL) {
        code = check_round_trip(config, &profile->scheme, parts, key, err);
    }
    if (code == BELAY_OK) {
        *out_key = key;
        key = NULL;
    }
    free(key);
    return code;
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

void belay_key_parse(const struct belay_config *config, const char *key, struct belay_parsed_key *out_parsed)
{
    const struct config_profile *profile;
    struct key_names names;

    *out_parsed = (struct belay_parsed_key){ .level = "key", .profile = "" };
    if (key_begins_as_stack(key)) {
        parse_stack_key(key, out_parsed);
    } else if ((profile = match_profile(config, key, &names)) != NULL) {
        out_parsed->level = "component";
        out_parsed->profile = profile->scheme.profile;
        (void)snprintf(out_parsed->environment, sizeof out_parsed->environment, "%.*s",
                       SHOWN(names.environment));
    }
}
