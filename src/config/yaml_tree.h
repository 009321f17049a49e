/*
 * A YAML file as a tree: texts, lists and maps, each with its line.
 *
 * Only what a configuration needs is taken: one document in UTF-8, no anchors
 * and aliases (a few lines of which can stand for gigabytes), no tags, no name
 * twice in a map, and not more of anything than the limits here.
 */
#ifndef CONFIG_YAML_TREE_H
#define CONFIG_YAML_TREE_H

#include <stddef.h>

#include "belay.h"

enum { TREE_FILE_MAX = 1 << 20, TREE_DEPTH_MAX = 16, TREE_NODES_MAX = 10000 };
/* For files that are no configuration: applications by the thousand. */
enum { TREE_LARGE_FILE_MAX = 64 << 20, TREE_LARGE_NODES_MAX = 2000000 };

enum tree_kind {
    TREE_EMPTY, /* nothing, "~" or "null" */
    TREE_TEXT,
    TREE_LIST,
    TREE_MAP
};

struct tree {
    enum tree_kind kind;
    size_t line;        /* of its name in a map, else its own; from 1 */
    char *name;         /* owned; in a map only, else NULL */
    char *text;         /* owned; TREE_TEXT only */
    struct tree *items; /* owned */
    size_t n;
};

/* An error names `path` and the line. An empty file is TREE_EMPTY. */
enum belay_code tree_parse(const char *path, const char *data, size_t size, struct tree *out_tree,
                           struct belay_error *err);
enum belay_code tree_parse_large(const char *path, const char *data, size_t size, struct tree *out_tree,
                                 struct belay_error *err);
void tree_release(struct tree *tree);

#endif
