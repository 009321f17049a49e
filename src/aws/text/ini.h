/*
 * Files in the format of ~/.aws/config: sections, keys, and one level of keys below a key,
 * which are found under "key.subkey".
 */
#ifndef AWS_TEXT_INI_H
#define AWS_TEXT_INI_H

#include <stddef.h>

#include "belay.h"

struct ini_entry {
    char *section; /* owned; as written, blanks squeezed to one, quotes removed */
    char *name;    /* owned; lower case; "" marks the section itself */
    char *value;   /* owned */
};

struct ini {
    struct ini_entry *entries; /* owned; in the order of the file */
    size_t n;
    size_t cap;
};

/*
 * `origin` is the file's name for errors, which name the line but never quote it: it may
 * contain a secret.
 */
enum belay_code ini_parse(const char *text, const char *origin, struct ini *out, struct belay_error *err);
void ini_release(struct ini *ini);

/*
 * A value, or NULL. Sections of the same name are one; the last of equal keys counts. The key "" has the value "" in
 * every section that the file has.
 */
const char *ini_get(const struct ini *ini, const char *section, const char *name);

#endif
