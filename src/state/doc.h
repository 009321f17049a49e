/*
 * A JSON text, checked and indexed but not converted: numbers stay as written, and
 * parts that do not change are copied byte for byte. jansson changes 1.0 and 1e400,
 * rejects 2^70, and needs ten times the size of the text in memory.
 *
 * Nodes are in the order of the text. A member of an object is two nodes, its name
 * and its value; `next` is the first node after a value and everything in it.
 */
#ifndef STATE_DOC_H
#define STATE_DOC_H

#include <assert.h>
#include <stdint.h>

#include "base/buf.h"
#include "belay.h"

struct doc_node {
    uint32_t start; /* the first byte of the value */
    uint32_t end;   /* after its last */
    uint32_t next;
};

struct doc {
    const char *text; /* borrowed */
    size_t len;
    struct doc_node *nodes; /* owned; nodes[0] is the whole text */
    uint32_t n;
    uint32_t cap;
};

enum { DOC_DEPTH_MAX = 200 };
#define DOC_SIZE_MAX ((size_t)1 << 30)

/* BELAY_BAD_CONTENT gives the fault with its line and column. The text must outlive the document. */
enum belay_code doc_scan(const char *text, size_t len, struct doc *out_doc, struct belay_error *err);
void doc_release(struct doc *doc);

/* The first byte of a value tells its type: '{', '[', '"', 't', 'f', 'n', '-' or a digit. */
static inline char doc_kind(const struct doc *doc, uint32_t node)
{
    assert(node < doc->n);
    return doc->text[doc->nodes[node].start];
}

static inline const char *doc_raw(const struct doc *doc, uint32_t node, size_t *out_len)
{
    assert(node < doc->n);
    *out_len = doc->nodes[node].end - doc->nodes[node].start;
    return doc->text + doc->nodes[node].start;
}

/* The names of an object's members; the value is at name + 1. */
#define doc_each(doc, object, name)                                                                          \
    for (uint32_t name = (object) + 1; (name) < (doc)->nodes[object].next;                                   \
         (name) = (doc)->nodes[(name) + 1].next)

/* The elements of an array. */
#define doc_each_element(doc, array, at)                                                                     \
    for (uint32_t at = (array) + 1; (at) < (doc)->nodes[array].next; (at) = (doc)->nodes[at].next)

/* The value of a member; 0 if `object` has none, or is not an object. */
uint32_t doc_member(const struct doc *doc, uint32_t object, const char *name);

/* ---- a value, which is absent if its node is 0 ---- */

/* True if the string at `node` is `text`. */
bool doc_is(const struct doc *doc, uint32_t node, const char *text);
/* The unescaped string, which the caller frees; NULL: not a string, one with a NUL, or no memory. */
char *doc_string(const struct doc *doc, uint32_t node);
/* True for a whole number from 0 to 2^63 - 1. */
bool doc_number(const struct doc *doc, uint32_t node, uint64_t *out_number);

/* Add the unescaped bytes of a string (given with its quotes). */
void doc_unescape(struct buf *out, const char *raw, size_t len);

/* Add `text` as a JSON string; NULL as null. */
void doc_quote(struct buf *out, const char *text);

/* "line 3, column 7". Returns `out`. */
enum { DOC_PLACE_SIZE = 64 };
char *doc_place(const char *text, size_t offset, char out[DOC_PLACE_SIZE]);

/* ---- changing an object (edit.c) ---- */

struct edit {
    const char *name;
    const char *value; /* JSON; NULL: drop the member */
};

/*
 * Write an object: the members of `object` (0: none) in their order with the edits
 * applied, then the members that the edits add. `indent` is that of the members.
 */
void edit_object(struct buf *out, const struct doc *doc, uint32_t object, const struct edit *edits, size_t n,
                 int indent);

#endif
