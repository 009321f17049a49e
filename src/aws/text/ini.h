/*
 * Files in the format of ~/.aws/config: sections, keys, and one level of keys below a key,
 * which are found under "key.subkey".
 */
#ifndef AWS_TEXT_INI_H
#define AWS_TEXT_INI_H

#include <stddef.h>

#include "belay.h"

struct ini_entry {
    char *name;  /* owned; lower case */
    char *value; /* owned */
};

struct ini_section {
    char *name;                /* owned; as written, blanks squeezed to one, quotes removed */
    struct ini_entry *entries; /* owned */
    size_t n_entries;
};

struct ini {
    struct ini_section *sections; /* owned */
    size_t n_sections;
};

/*
 * `origin` is the file's name for errors, which name the line but never quote it: it may
 * contain a secret. Sections of the same name are merged; the last of equal keys counts.
 */
enum belay_code ini_parse(const char *text, const char *origin, struct ini *out, struct belay_error *err);
void ini_release(struct ini *ini);

const struct ini_section *ini_find(const struct ini *ini, const char *section); /* or NULL */
const char *ini_get(const struct ini_section *section, const char *name);       /* or NULL; section may be */

#endif
