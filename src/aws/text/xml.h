/* A small XML document as a tree. Namespaces are removed; attributes are not kept. */
#ifndef AWS_TEXT_XML_H
#define AWS_TEXT_XML_H

#include <stddef.h>

struct xml {
    char *name;            /* owned */
    char *text;            /* owned; all the text directly inside, "" if none */
    struct xml **children; /* owned */
    size_t n_children;
    size_t cap;
    struct xml *parent; /* borrowed; NULL at the root */
    size_t text_len;
    size_t text_cap;
};

/* NULL if it is not well-formed, has a DOCTYPE, nests too deeply, or without memory. */
struct xml *xml_parse(const char *text, size_t len);
void xml_free(struct xml *root);

/* The first descendant by a path of names below `node`, such as "Error/Code"; NULL if there is none. */
const struct xml *xml_find(const struct xml *node, const char *path);
/* Its text; NULL if there is none or it is empty. */
const char *xml_text(const struct xml *node, const char *path);

#endif
