/*
 * The canonical form of a JSON value: the same for two texts that mean the same,
 * different for any two that do not. No blanks; the members of an object by their
 * names, in the order of the bytes of their UTF-8; strings with the shortest
 * escapes; numbers as they are written. docs/state.md says it for others to do.
 */
#ifndef STATE_CANON_H
#define STATE_CANON_H

#include "hash/sha256.h"
#include "state/doc.h"

/* One member of an object that is put together from several documents. */
struct canon_member {
    const struct doc *doc;
    uint32_t name; /* the value is behind it */
};

struct canon {
    struct sha256 hash;
    char *piece; /* owned */
    size_t n;
    bool no_memory;
    const struct doc *duplicate_doc; /* where a name stands twice in one object */
    uint32_t duplicate;
};

bool canon_begin(struct canon *canon);
void canon_value(struct canon *canon, const struct doc *doc, uint32_t node);
/* An object of these members, which it sorts. */
void canon_object(struct canon *canon, struct canon_member *members, size_t n);
/* "sha256:..."; BELAY_BAD_CONTENT if a name stood twice in one object. Releases it. */
enum { CANON_SUM_SIZE = SHA256_TEXT_SIZE + 7 };
enum belay_code canon_end(struct canon *canon, char out_sum[CANON_SUM_SIZE], struct belay_error *err);

/* All three for one value. */
enum belay_code canon_sum(const struct doc *doc, uint32_t node, char out_sum[CANON_SUM_SIZE],
                          struct belay_error *err);

/* The order of two names, by the bytes they stand for. */
int canon_compare(const struct canon_member *a, const struct canon_member *b);

#endif
