#include "aws/text/ini.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/text.h"

struct parser {
    struct ini ini;
    char *section; /* owned; the present one; NULL: none yet */
    char *parent;  /* owned; the last key of the section, which may have keys below it */
    bool nested;   /* it has no value of its own */
    bool no_memory;
};

static bool is_ini_blank(char c)
{
    return c == ' ' || c == '\t';
}

static char *copy_trimmed(const char *start, const char *end)
{
    while (start < end && is_ini_blank(*start)) {
        start++;
    }
    while (end > start && (is_ini_blank(end[-1]) || end[-1] == '\r')) {
        end--;
    }
    return strndup(start, (size_t)(end - start));
}

/* `[profile "a b"]` is "profile a b". */
static char *section_name(const char *start, const char *end)
{
    struct buf name = BUF_INIT(4096);

    for (; start < end; start++) {
        if (*start == '"' || *start == '\'') {
            continue;
        }
        if (!is_ini_blank(*start)) {
            buf_add(&name, start, 1);
        } else if (name.len > 0 && name.data[name.len - 1] != ' ') {
            buf_adds(&name, " ");
        }
    }
    while (name.len > 0 && name.data[name.len - 1] == ' ') {
        name.data[--name.len] = '\0';
    }
    return buf_take(&name);
}

static void entry_release(struct ini_entry *entry)
{
    free(entry->section);
    free(entry->name);
    free(entry->value);
}

/* Takes over both strings. */
static void put_entry(struct parser *parser, char *name, char *value)
{
    struct ini *ini = &parser->ini;
    struct ini_entry entry = { strdup(parser->section), name, value };
    struct ini_entry *grown = array_grow(ini->entries, sizeof *grown, ini->n + 1, &ini->cap);

    if (grown != NULL) {
        ini->entries = grown;
    }
    if (grown == NULL || entry.section == NULL || name == NULL || value == NULL) {
        parser->no_memory = true;
        entry_release(&entry);
    } else {
        grown[ini->n++] = entry;
    }
}

static void open_section(struct parser *parser, char *name)
{
    free(parser->parent);
    free(parser->section);
    parser->parent = NULL;
    parser->section = name;
    parser->no_memory = parser->no_memory || name == NULL;
    if (name != NULL) {
        put_entry(parser, strdup(""), strdup(""));
    }
}

static char *join_names(const char *parent, const char *name)
{
    struct buf text = BUF_INIT(65536);

    buf_addf(&text, "%s.%s", parent, name);
    return buf_take(&text);
}

/* A comment after a value begins with a blank and '#' or ';'. */
static const char *value_end(const char *start, const char *end)
{
    for (const char *c = start; c < end; c++) {
        if ((*c == '#' || *c == ';') && c > start && is_ini_blank(c[-1])) {
            return c;
        }
    }
    return end;
}

/* "name = value"; false if it is not that. */
static bool take_entry(struct parser *parser, const char *line, const char *end, bool below)
{
    const char *equals = memchr(line, '=', (size_t)(end - line));
    char *name;
    char *value;

    if (equals == NULL) {
        return false;
    }
    name = copy_trimmed(line, equals);
    value = copy_trimmed(equals + 1, value_end(equals + 1, end));
    text_lower(name);
    if (name == NULL || value == NULL) {
        parser->no_memory = true;
    } else if (below) {
        char *whole = join_names(parser->parent, name);
        free(name);
        name = whole;
    } else {
        free(parser->parent);
        parser->parent = strdup(name);
        parser->nested = *value == '\0';
        parser->no_memory = parser->no_memory || parser->parent == NULL;
    }
    put_entry(parser, name, value);
    return true;
}

/* Parses one line; returns the fault, or NULL. */
static const char *take_line(struct parser *parser, const char *line, const char *end)
{
    const char *start = line;

    while (start < end && (is_ini_blank(*start) || *start == '\r')) {
        start++;
    }
    if (start == end || *start == '#' || *start == ';') {
        return NULL;
    }
    if (start == line && *line == '[') {
        const char *close = memchr(line, ']', (size_t)(end - line));
        if (close == NULL) {
            return "the section's name has no ']'";
        }
        open_section(parser, section_name(line + 1, close));
        return NULL;
    }
    if (parser->section == NULL) {
        return "a key before the first [section]";
    }
    if (start > line && parser->parent != NULL) {
        /*
         * Below a key without a value: its keys. Otherwise the continuation of a value, which
         * is not needed here.
         */
        return !parser->nested || take_entry(parser, start, end, true) ? NULL : "no '='";
    }
    return take_entry(parser, start, end, false) ? NULL : "no '='";
}

enum belay_code ini_parse(const char *text, const char *origin, struct ini *out, struct belay_error *err)
{
    struct parser parser = { 0 };
    enum belay_code code = BELAY_OK;
    unsigned line = 1;

    if (strncmp(text, "\xEF\xBB\xBF", 3) == 0) {
        text += 3;
    }
    while (*text != '\0' && code == BELAY_OK) {
        size_t len = strcspn(text, "\n");
        const char *wrong = take_line(&parser, text, text + len);

        if (wrong != NULL) {
            code = error_set(err, BELAY_CONFIG, "%s, line %u: %s", origin, line, wrong);
        }
        text += len + (text[len] == '\n');
        line++;
    }
    if (code == BELAY_OK && parser.no_memory) {
        code = error_no_memory(err);
    }
    free(parser.parent);
    free(parser.section);
    if (code == BELAY_OK) {
        *out = parser.ini;
    } else {
        ini_release(&parser.ini);
    }
    return code;
}

void ini_release(struct ini *ini)
{
    for (size_t i = 0; i < ini->n; i++) {
        entry_release(&ini->entries[i]);
    }
    free(ini->entries);
    memset(ini, 0, sizeof *ini);
}

const char *ini_get(const struct ini *ini, const char *section, const char *name)
{
    for (size_t i = ini->n; i > 0; i--) {
        const struct ini_entry *entry = &ini->entries[i - 1];

        if (strcmp(entry->section, section) == 0 && strcmp(entry->name, name) == 0) {
            return entry->value;
        }
    }
    return NULL;
}
