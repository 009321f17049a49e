#include "config/yaml_tree.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/error.h"
#include "base/text.h"
#include "config/value.h"

struct yaml_reader {
    yaml_parser_t parser;
    const char *path;
    const char *data;
    size_t size;
    size_t n_nodes;
    size_t max_nodes;
    struct belay_error *err;
};

static enum belay_code build_node(struct yaml_reader *reader, const yaml_event_t *event, size_t depth,
                                  struct yaml_node *out);

static enum belay_code fail_line(struct yaml_reader *reader, size_t line, const char *text)
{
    return error_set(reader->err, BELAY_CONFIG, "%s:%zu: %s", reader->path, line, text);
}

static size_t event_line(const yaml_event_t *event)
{
    return event->start_mark.line + 1;
}

/* For invalid bytes libyaml reports the offset, but not the line. */
static size_t line_at(const char *data, size_t offset)
{
    size_t line = 1;

    for (size_t i = 0; i < offset; i++) {
        line += data[i] == '\n';
    }
    return line;
}

static bool is_tab_indented(const char *data, size_t size, size_t line)
{
    size_t at = 0;

    for (; line > 1 && at < size; at++) {
        line -= data[at] == '\n';
    }
    while (at < size && data[at] == ' ') {
        at++;
    }
    return at < size && data[at] == '\t';
}

static enum belay_code fail_parse(struct yaml_reader *reader)
{
    const yaml_parser_t *parser = &reader->parser;
    size_t line = parser->problem_mark.line + 1;
    size_t last_line = line_at(reader->data, reader->size);

    if (parser->error == YAML_MEMORY_ERROR) {
        return error_no_memory(reader->err);
    }
    if (parser->error == YAML_READER_ERROR) {
        return error_set(reader->err, BELAY_CONFIG, "%s:%zu: not UTF-8 text: %s", reader->path,
                         line_at(reader->data, parser->problem_offset), parser->problem);
    }
    if (is_tab_indented(reader->data, reader->size, line)) {
        return error_set(reader->err, BELAY_CONFIG, "%s:%zu: a tab: YAML is indented with spaces",
                         reader->path, line);
    }
    /* libyaml counts an early end of file as one more line. */
    return error_set(reader->err, BELAY_CONFIG, "%s:%zu: not YAML: %s%s%s", reader->path,
                     line < last_line ? line : last_line,
                     parser->problem == NULL ? "unreadable" : parser->problem,
                     parser->context == NULL ? "" : " ", parser->context == NULL ? "" : parser->context);
}

static enum belay_code next_event(struct yaml_reader *reader, yaml_event_t *event)
{
    return yaml_parser_parse(&reader->parser, event) != 0 ? BELAY_OK : fail_parse(reader);
}

/* Refuse anchors, aliases and tags. */
static enum belay_code check_event(struct yaml_reader *reader, const yaml_event_t *event)
{
    const yaml_char_t *anchor = NULL;
    const yaml_char_t *tag = NULL;

    if (event->type == YAML_SCALAR_EVENT) {
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
    } else if (event->type == YAML_SEQUENCE_START_EVENT) {
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
    } else if (event->type == YAML_MAPPING_START_EVENT) {
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
    }
    if (event->type == YAML_ALIAS_EVENT || anchor != NULL) {
        return fail_line(reader, event_line(event),
                         "anchors (&) and aliases (*) are not supported; write the value");
    }
    if (tag != NULL) {
        return fail_line(reader, event_line(event), "tags (!) are not supported; write the value alone");
    }
    return BELAY_OK;
}

static bool is_null_scalar(const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;

    return event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (*text == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0);
}

static enum belay_code copy_scalar(struct yaml_reader *reader, const yaml_event_t *event, char **out)
{
    const char *text = (const char *)event->data.scalar.value;
    char *copy;

    if (strlen(text) != event->data.scalar.length) {
        return fail_line(reader, event_line(event), "a text contains a NUL character");
    }
    copy = strdup(text);
    if (copy == NULL) {
        return error_no_memory(reader->err);
    }
    *out = copy;
    /* The analyzer assumes a second root, which a stream of one document cannot have. */
    return BELAY_OK; /* NOLINT(clang-analyzer-unix.Malloc) */
}

/* Grow the array by one; the number of nodes is limited. */
static struct yaml_node *add_item(struct yaml_node *parent)
{
    struct yaml_node *grown = parent->items;

    if ((parent->n & (parent->n - 1)) == 0) {
        grown = realloc(parent->items, (parent->n == 0 ? 1 : 2 * parent->n) * sizeof *grown);
    }
    if (grown == NULL) {
        return NULL;
    }
    parent->items = grown;
    memset(&grown[parent->n], 0, sizeof *grown);
    return &grown[parent->n++];
}

/* The name of a map entry: one line of text, and unique. */
static enum belay_code read_entry_name(struct yaml_reader *reader, const yaml_event_t *event,
                                       struct yaml_node *map, struct yaml_node *item)
{
    enum belay_code code = check_event(reader, event);

    if (code != BELAY_OK) {
        return code;
    }
    if (event->type != YAML_SCALAR_EVENT) {
        return fail_line(reader, event_line(event), "a name must be a text, not a list or a map");
    }
    code = copy_scalar(reader, event, &item->name);
    if (code != BELAY_OK) {
        return code;
    }
    if (!text_is_clean(item->name, 256)) {
        return fail_line(reader, event_line(event), "a name is empty, too long, or has control characters");
    }
    for (size_t i = 0; i + 1 < map->n; i++) {
        if (strcmp(map->items[i].name, item->name) == 0) {
            return error_set(reader->err, BELAY_CONFIG,
                             "%s:%zu: duplicate name '%s'; the first is in line %zu", reader->path,
                             event_line(event), item->name, map->items[i].line);
        }
    }
    item->line = event_line(event);
    return BELAY_OK;
}

/* One item of a list or one entry of a map; `event` is its first event. */
static enum belay_code build_item(struct yaml_reader *reader, const yaml_event_t *event, size_t depth,
                                  struct yaml_node *parent)
{
    struct yaml_node *item = add_item(parent);
    yaml_event_t value;
    enum belay_code code;

    if (item == NULL) {
        return error_no_memory(reader->err);
    }
    if (parent->kind == YAML_NODE_LIST) {
        item->line = event_line(event);
        return build_node(reader, event, depth, item);
    }
    code = read_entry_name(reader, event, parent, item);
    if (code == BELAY_OK) {
        code = next_event(reader, &value);
    }
    if (code == BELAY_OK) {
        code = build_node(reader, &value, depth, item);
        yaml_event_delete(&value);
    }
    return code;
}

static enum belay_code build_items(struct yaml_reader *reader, yaml_event_type_t end, size_t depth,
                                   struct yaml_node *parent)
{
    enum belay_code code = BELAY_OK;
    bool is_over = false;

    while (code == BELAY_OK && !is_over) {
        yaml_event_t event;

        code = next_event(reader, &event);
        if (code != BELAY_OK) {
            break;
        }
        is_over = event.type == end;
        if (!is_over) {
            code = build_item(reader, &event, depth, parent);
        }
        yaml_event_delete(&event);
    }
    return code;
}

/* Fills `out`, whose line and name are set. After an error it may be partly filled: the caller releases the root. */
static enum belay_code build_node(struct yaml_reader *reader, const yaml_event_t *event, size_t depth,
                                  struct yaml_node *out)
{
    enum belay_code code = check_event(reader, event);

    if (code != BELAY_OK) {
        return code;
    }
    if (depth > YAML_DEPTH_MAX) {
        return fail_line(reader, event_line(event), "nested too deeply");
    }
    if (++reader->n_nodes > reader->max_nodes) {
        return fail_line(reader, event_line(event), "too many values");
    }
    if (event->type == YAML_SEQUENCE_START_EVENT) {
        out->kind = YAML_NODE_LIST;
        return build_items(reader, YAML_SEQUENCE_END_EVENT, depth + 1, out);
    }
    if (event->type == YAML_MAPPING_START_EVENT) {
        out->kind = YAML_NODE_MAP;
        return build_items(reader, YAML_MAPPING_END_EVENT, depth + 1, out);
    }
    if (is_null_scalar(event)) {
        out->kind = YAML_NODE_EMPTY;
        return BELAY_OK;
    }
    out->kind = YAML_NODE_TEXT;
    return copy_scalar(reader, event, &out->text);
}

/* Stream start, document start, the root, document end, stream end; or no document at all. */
static enum belay_code build_root(struct yaml_reader *reader, struct yaml_node *root)
{
    enum belay_code code = BELAY_OK;
    size_t n_documents = 0;
    bool is_over = false;

    while (code == BELAY_OK && !is_over) {
        yaml_event_t event;

        code = next_event(reader, &event);
        if (code != BELAY_OK) {
            break;
        }
        is_over = event.type == YAML_STREAM_END_EVENT;
        if (event.type == YAML_DOCUMENT_START_EVENT && ++n_documents > 1) {
            code = fail_line(reader, event_line(&event), "a second document begins; only one is supported");
        } else if (event.type == YAML_SCALAR_EVENT || event.type == YAML_SEQUENCE_START_EVENT ||
                   event.type == YAML_MAPPING_START_EVENT || event.type == YAML_ALIAS_EVENT) {
            root->line = event_line(&event);
            code = build_node(reader, &event, 0, root);
        }
        yaml_event_delete(&event);
    }
    return code;
}

static enum belay_code parse(const char *path, const char *data, size_t size, size_t max_nodes,
                             struct yaml_node *out_node, struct belay_error *err)
{
    static const char byte_order_mark[] = "\xef\xbb\xbf";
    struct yaml_reader reader = { .path = path, .max_nodes = max_nodes, .err = err };
    struct yaml_node root = { .kind = YAML_NODE_EMPTY, .line = 1 };
    enum belay_code code;

    if (yaml_parser_initialize(&reader.parser) == 0) {
        return error_no_memory(err);
    }
    if (size >= 3 && memcmp(data, byte_order_mark, 3) == 0) {
        data += 3;
        size -= 3;
    }
    reader.data = data;
    reader.size = size;
    /* Otherwise libyaml guesses and may accept UTF-16. */
    yaml_parser_set_encoding(&reader.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)data, size);
    code = build_root(&reader, &root);
    yaml_parser_delete(&reader.parser);
    if (code != BELAY_OK) {
        yaml_node_release(&root);
        return code;
    }
    *out_node = root;
    return BELAY_OK;
}

enum belay_code yaml_parse(const char *path, const char *data, size_t size, struct yaml_node *out_node,
                           struct belay_error *err)
{
    if (size > YAML_FILE_MAX) {
        return error_set(err, BELAY_CONFIG, "'%s' is larger than %d bytes", path, YAML_FILE_MAX);
    }
    return parse(path, data, size, YAML_NODES_MAX, out_node, err);
}

enum belay_code yaml_parse_large(const char *path, const char *data, size_t size, struct yaml_node *out_node,
                                 struct belay_error *err)
{
    if (size > YAML_LARGE_FILE_MAX) {
        return error_set(err, BELAY_CONFIG, "'%s' is larger than %d bytes", path, YAML_LARGE_FILE_MAX);
    }
    return parse(path, data, size, YAML_LARGE_NODES_MAX, out_node, err);
}

void yaml_node_release(struct yaml_node *node)
{
    for (size_t i = 0; i < node->n; i++) {
        yaml_node_release(&node->items[i]);
    }
    free(node->items);
    free(node->name);
    free(node->text);
    memset(node, 0, sizeof *node);
}
