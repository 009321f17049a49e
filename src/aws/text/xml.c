#include "aws/text/xml.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <expat.h>

#include "base/buf.h"

enum { MAX_DEPTH = 32, MAX_BYTES = 32 << 20 };

struct builder {
    XML_Parser parser; /* borrowed */
    struct xml *root;
    struct xml *at;
    size_t depth;
    bool failed;
};

static void stop_parsing(struct builder *builder)
{
    builder->failed = true;
    (void)XML_StopParser(builder->parser, XML_FALSE);
}

static struct xml *node_new(const char *name, struct xml *parent)
{
    const char *colon = strrchr(name, ':');
    struct xml *node = calloc(1, sizeof *node);

    if (node == NULL) {
        return NULL;
    }
    node->name = strdup(colon != NULL ? colon + 1 : name);
    node->text = strdup("");
    node->parent = parent;
    if (node->name == NULL || node->text == NULL) {
        xml_free(node);
        return NULL;
    }
    return node;
}

static bool add_child(struct xml *parent, struct xml *child)
{
    struct xml **grown =
        array_grow(parent->children, sizeof(struct xml *), parent->n_children + 1, &parent->cap);

    if (grown == NULL) {
        return false;
    }
    parent->children = grown;
    parent->children[parent->n_children++] = child;
    return true;
}

static void on_element_start(void *context, const XML_Char *name, const XML_Char **attributes)
{
    struct builder *builder = context;
    struct xml *node = NULL;

    (void)attributes;
    if (builder->depth < MAX_DEPTH) {
        node = node_new(name, builder->at);
    }
    if (node == NULL) {
        stop_parsing(builder);
        return;
    }
    if (builder->at == NULL) {
        builder->root = node;
    } else if (!add_child(builder->at, node)) {
        xml_free(node);
        stop_parsing(builder);
        return;
    }
    builder->at = node;
    builder->depth++;
}

static void on_element_end(void *context, const XML_Char *name)
{
    struct builder *builder = context;

    (void)name;
    builder->at = builder->at->parent;
    builder->depth--;
}

static void on_text(void *context, const XML_Char *text, int len)
{
    struct builder *builder = context;
    struct xml *node = builder->at;
    char *grown = array_grow(node->text, 1, node->text_len + (size_t)len + 1, &node->text_cap);

    if (grown == NULL) {
        stop_parsing(builder);
        return;
    }
    node->text = grown;
    memcpy(node->text + node->text_len, text, (size_t)len);
    node->text_len += (size_t)len;
    node->text[node->text_len] = '\0';
}

/* No service sends one, and it can declare entities that expand without limit. */
static void on_doctype(void *context, const XML_Char *name, const XML_Char *system_id,
                       const XML_Char *public_id, int has_internal_subset)
{
    (void)name;
    (void)system_id;
    (void)public_id;
    (void)has_internal_subset;
    stop_parsing(context);
}

struct xml *xml_parse(const char *text, size_t len)
{
    struct builder builder = { 0 };

    builder.parser = XML_ParserCreate("UTF-8");
    if (builder.parser == NULL || len > MAX_BYTES) {
        builder.failed = true;
    } else {
        XML_SetUserData(builder.parser, &builder);
        XML_SetElementHandler(builder.parser, on_element_start, on_element_end);
        XML_SetCharacterDataHandler(builder.parser, on_text);
        XML_SetStartDoctypeDeclHandler(builder.parser, on_doctype);
        if (XML_Parse(builder.parser, text, (int)len, XML_TRUE) != XML_STATUS_OK) {
            builder.failed = true;
        }
    }
    if (builder.parser != NULL) {
        XML_ParserFree(builder.parser);
    }
    if (builder.failed) {
        xml_free(builder.root);
        return NULL;
    }
    return builder.root;
}

void xml_free(struct xml *root)
{
    if (root == NULL) {
        return;
    }
    for (size_t i = 0; i < root->n_children; i++) {
        xml_free(root->children[i]);
    }
    free(root->children);
    free(root->name);
    free(root->text);
    free(root);
}

const struct xml *xml_find(const struct xml *node, const char *path)
{
    size_t len = strcspn(path, "/");

    for (size_t i = 0; node != NULL && i < node->n_children; i++) {
        const struct xml *child = node->children[i];

        if (strlen(child->name) == len && memcmp(child->name, path, len) == 0) {
            const struct xml *found = path[len] == '\0' ? child : xml_find(child, path + len + 1);
            if (found != NULL) {
                return found;
            }
        }
    }
    return NULL;
}

const char *xml_text(const struct xml *node, const char *path)
{
    const struct xml *found = xml_find(node, path);

    return found == NULL || *found->text == '\0' ? NULL : found->text;
}
