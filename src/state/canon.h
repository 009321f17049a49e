/*
 * The canonical form of a JSON value: two texts with the same meaning have the same
 * form, any two others differ. No blanks; members sorted by the UTF-8 bytes of their
 * names; strings with the shortest escapes; numbers as written. docs/state.md
 * specifies it for other implementations.
 */
#ifndef STATE_CANON_H
#define STATE_CANON_H

#include "hash/sha256.h"
#include "state/doc.h"

/* A member of an object whose members may come from several documents. */
struct canon_member {
    const struct doc *doc;
    uint32_t name; /* the value is at name + 1 */
};
/* All members of an object, in the order of the text. The caller frees them; NULL: no memory. */
struct canon_member *canon_members(const struct doc *doc, uint32_t object, size_t *out_n);
void canon_sort(struct canon_member *members, size_t n);

struct canon {
    struct sha256 hash;
    char *piece; /* owned */
    size_t n;
    bool no_memory;
    const struct doc *duplicate_doc; /* NULL: no object has a name twice */
    uint32_t duplicate;
};

bool canon_begin(struct canon *canon);
/* An object of these members; sorts them. */
void canon_object(struct canon *canon, struct canon_member *members, size_t n);
/* "sha256:..."; BELAY_BAD_CONTENT if an object has a name twice. Releases `canon`. */
enum { CANON_SUM_SIZE = SHA256_TEXT_SIZE + 7 };
enum belay_code canon_end(struct canon *canon, char out_sum[CANON_SUM_SIZE], struct belay_error *err);

/* The checksum of one value. */
enum belay_code canon_sum(const struct doc *doc, uint32_t node, char out_sum[CANON_SUM_SIZE],
                          struct belay_error *err);

/* Compares names, unescaped, byte by byte. */
int canon_compare(const struct canon_member *a, const struct canon_member *b);

#endif
