#include "aws/text/ini.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"

struct parser {
    struct ini ini;
    size_t section; /* index of the present one, plus 1 */
    char *parent;   /* owned; the last key of the section, which may have keys below it */
    bool nested;    /* it has no value of its own */
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

static void open_section(struct parser *parser, char *name)
{
    struct ini *ini = &parser->ini;
    struct ini_section *grown;

    free(parser->parent);
    parser->parent = NULL;
    for (size_t i = 0; name != NULL && i < ini->n_sections; i++) {
        if (strcmp(ini->sections[i].name, name) == 0) {
            parser->section = i + 1;
            free(name);
            return;
        }
    }
    grown = realloc(ini->sections, (ini->n_sections + 1) * sizeof *grown);
    if (grown != NULL) {
        ini->sections = grown;
    }
    if (grown == NULL || name == NULL) {
        parser->no_memory = true;
        free(name);
        return;
    }
    grown[ini->n_sections] = (struct ini_section){ name, NULL, 0 };
    parser->section = ++ini->n_sections;
}

/* Takes over both strings. */
static void put_entry(struct parser *parser, char *name, char *value)
{
    struct ini_section *section = &parser->ini.sections[parser->section - 1];
    struct ini_entry *grown;

    if (name == NULL || value == NULL) {
        goto no_memory;
    }
    for (size_t i = 0; i < section->n_entries; i++) {
        if (strcmp(section->entries[i].name, name) == 0) {
            free(section->entries[i].value);
            section->entries[i].value = value;
            free(name);
            return;
        }
    }
    grown = realloc(section->entries, (section->n_entries + 1) * sizeof *grown);
    if (grown == NULL) {
        goto no_memory;
    }
    section->entries = grown;
    grown[section->n_entries++] = (struct ini_entry){ name, value };
    return;

no_memory:
    parser->no_memory = true;
    free(name);
    free(value);
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

static void lower_case(char *text)
{
    for (; text != NULL && *text != '\0'; text++) {
        *text = (char)tolower((unsigned char)*text);
    }
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
    lower_case(name);
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
    if (parser->section == 0) {
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
    if (code == BELAY_OK) {
        *out = parser.ini;
    } else {
        ini_release(&parser.ini);
    }
    return code;
}

void ini_release(struct ini *ini)
{
    for (size_t i = 0; i < ini->n_sections; i++) {
        struct ini_section *section = &ini->sections[i];

        for (size_t k = 0; k < section->n_entries; k++) {
            free(section->entries[k].name);
            free(section->entries[k].value);
        }
        free(section->entries);
        free(section->name);
    }
    free(ini->sections);
    memset(ini, 0, sizeof *ini);
}

const struct ini_section *ini_find(const struct ini *ini, const char *section)
{
    for (size_t i = 0; i < ini->n_sections; i++) {
        if (strcmp(ini->sections[i].name, section) == 0) {
            return &ini->sections[i];
        }
    }
    return NULL;
}

const char *ini_get(const struct ini_section *section, const char *name)
{
    for (size_t i = 0; section != NULL && i < section->n_entries; i++) {
        if (strcmp(section->entries[i].name, name) == 0) {
            return section->entries[i].value;
        }
    }
    return NULL;
}
