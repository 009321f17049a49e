/*
 * The names of locks: what keys are made of, and which keys stand above which.
 *
 * There are three kinds of keys. A stack's key (S4.5),
 *
 *     stack:S:env:E                      the stack
 *     stack:S:env:E:service:V            a service of it
 *     stack:S:env:E:component:V/C        a component of that service
 *     stack:S:env:E:component:C          a component of no service
 *
 * a key that fits a template such as "build-{component}-{environment}" (S0.4),
 * where component `all` stands above every other, and any other text, which has
 * nothing above it. No I/O and no clock: everything follows from the arguments.
 */
#ifndef CONFIG_KEY_FORMS_H
#define CONFIG_KEY_FORMS_H

#include <stdbool.h>
#include <stddef.h>

#include "belay.h"

/* How one profile names its locks. Everything is borrowed. */
struct key_scheme {
    const char *profile;
    const char *template; /* NULL: its keys are typed in full */
    const char *const *components;
    size_t n_components; /* 0: any */
    const char *const *environments;
    size_t n_environments; /* 0: any */
};

/* A piece of a longer text. `at` is NULL for a piece that is not there. */
struct key_piece {
    const char *at;
    size_t len;
};

/* Whether it is this text; NULL: whether it is not there. */
bool key_piece_is(struct key_piece piece, const char *text);

/* The parts of a key that fits a template. */
struct key_names {
    struct key_piece component;
    struct key_piece environment;
};

/* The fault of a template, as the end of a sentence; NULL if it has none. */
const char *key_template_fault(const char *template);

/* How many of its bytes are not placeholders. Of two templates that match a key, the one with more is more specific. */
size_t key_template_weight(const char *template);

/*
 * Read a key by a scheme. False if it does not have the form of the template. *out_is_allowed: whether the lists allow its
 * names; if not, it is read as it was probably meant, with a listed environment if possible.
 *
 * "build-a-b-c" could be component a in environment b-c or a-b in c. If the scheme lists its environments, the longest
 * of them that fits is meant; if not, the shortest, which is what follows the last '-'.
 */
bool key_read_form(const struct key_scheme *scheme, const char *key, struct key_names *out_names,
                   bool *out_is_allowed);

/* A key that has the template's form and is not allowed is an error (S0.5). */
enum belay_code key_check_scheme(const struct key_scheme *scheme, const char *key, struct belay_error *err);

/* The rules for every part of a key, given with --FLAG: not empty, clean, no ':'. */
enum belay_code key_name_check(const char *flag, const char *name, struct belay_error *err);

/* It is a stack's key, or meant to be one. */
bool key_begins_as_stack(const char *key);

/* The rules for every key: its length and its bytes, and the form of one that begins with "stack:". */
enum belay_code key_check(const char *key, struct belay_error *err);

/* The key that parts->component and parts->environment make by the scheme's template. */
enum belay_code key_make_by_template(const struct key_scheme *scheme, const struct belay_key_parts *parts,
                                     char **out_key, struct belay_error *err);

/* The key that parts->stack and the others make. */
enum belay_code key_make_by_stack(const struct belay_key_parts *parts, char **out_key,
                                  struct belay_error *err);

/*
 * The keys above one that was read as `names`, or above a stack's key: how many,
 * nearest first. The caller frees them; NULL where there was no memory.
 */
size_t key_above_template(const struct key_scheme *scheme, const struct key_names *names,
                          char *out_keys[BELAY_ANCESTORS_MAX]);
size_t key_above_stack(const char *key, char *out_keys[BELAY_ANCESTORS_MAX]);

#endif
