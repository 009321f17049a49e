/*
 * A YAML file as a tree of texts, lists and maps, each with its line number.
 *
 * Only a subset of YAML is accepted: one UTF-8 document, no anchors and aliases (a few lines can expand to gigabytes),
 * no tags, no duplicate names in a map, and sizes within the limits below.
 */
#ifndef CONFIG_YAML_TREE_H
#define CONFIG_YAML_TREE_H

#include <stddef.h>

#include "belay.h"

enum { YAML_FILE_MAX = 1 << 20, YAML_DEPTH_MAX = 16, YAML_NODES_MAX = 10000 };
/* For imports of thousands of applications. */
enum { YAML_LARGE_FILE_MAX = 64 << 20, YAML_LARGE_NODES_MAX = 2000000 };

enum yaml_node_kind {
    YAML_NODE_EMPTY, /* nothing, "~" or "null" */
    YAML_NODE_TEXT,
    YAML_NODE_LIST,
    YAML_NODE_MAP
};

struct yaml_node {
    enum yaml_node_kind kind;
    size_t line;             /* of the name in a map, else of the value; from 1 */
    char *name;              /* owned; NULL outside of a map */
    char *text;              /* owned; YAML_NODE_TEXT only */
    struct yaml_node *items; /* owned */
    size_t n;
};

/* Errors name `path` and the line. An empty file is YAML_NODE_EMPTY. */
enum belay_code yaml_parse(const char *path, const char *data, size_t size, struct yaml_node *out_node,
                           struct belay_error *err);
enum belay_code yaml_parse_large(const char *path, const char *data, size_t size, struct yaml_node *out_node,
                                 struct belay_error *err);
void yaml_node_release(struct yaml_node *node);

#endif
