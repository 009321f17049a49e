#include "server/flat_json.h"

#include <string.h>

enum { DIGITS_MAX = 18 }; /* of which none is too many for a number */

struct cursor {
    const char *at;
    const char *end;
};

static void skip_space(struct cursor *cursor)
{
    while (cursor->at < cursor->end &&
           (*cursor->at == ' ' || *cursor->at == '\n' || *cursor->at == '\t' || *cursor->at == '\r')) {
        cursor->at++;
    }
}

static bool take(struct cursor *cursor, char c)
{
    skip_space(cursor);
    if (cursor->at == cursor->end || *cursor->at != c) {
        return false;
    }
    cursor->at++;
    return true;
}

/* The text behind a quotation mark, up to the next. */
static bool take_text(struct cursor *cursor, const char **out_text, size_t *out_len)
{
    const char *from = cursor->at;
    const char *at = from;

    while (at < cursor->end && *at >= 0x20 && *at < 0x7f && *at != '"' && *at != '\\') {
        at++;
    }
    if (at == cursor->end || *at != '"') {
        return false;
    }
    *out_text = from;
    *out_len = (size_t)(at - from);
    cursor->at = at + 1;
    return true;
}

static json_t *take_number(struct cursor *cursor)
{
    const char *from = cursor->at;
    json_int_t value = 0;

    while (cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9') {
        value = cursor->at - from < DIGITS_MAX ? value * 10 + (*cursor->at - '0') : 0;
        cursor->at++;
    }
    if (cursor->at == from || cursor->at - from > DIGITS_MAX || (*from == '0' && cursor->at - from > 1)) {
        return NULL;
    }
    return json_integer(value); /* what is behind it, a fraction say, is no comma and no brace */
}

static json_t *take_word(struct cursor *cursor)
{
    static const char *const words[] = { "true", "false", "null" };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t len = strlen(words[i]);

        if ((size_t)(cursor->end - cursor->at) >= len && memcmp(cursor->at, words[i], len) == 0) {
            cursor->at += len;
            return i == 2 ? json_null() : json_boolean(i == 0);
        }
    }
    return NULL;
}

static json_t *take_value(struct cursor *cursor)
{
    const char *text;
    size_t len;

    if (take(cursor, '"')) {
        return take_text(cursor, &text, &len) ? json_stringn_nocheck(text, len) : NULL;
    }
    return cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9' ? take_number(cursor)
                                                                                : take_word(cursor);
}

static bool take_member(struct cursor *cursor, json_t *object)
{
    const char *name;
    size_t len;

    /* Twice the same name is for json_loadb() to refuse. */
    return take(cursor, '"') && take_text(cursor, &name, &len) && take(cursor, ':') &&
           json_object_getn(object, name, len) == NULL &&
           json_object_setn_new_nocheck(object, name, len, take_value(cursor)) == 0;
}

json_t *flat_json_load(const char *text, size_t len)
{
    struct cursor cursor = { text, text + len };
    json_t *object = json_object();
    bool ok = object != NULL && take(&cursor, '{');

    if (ok && !take(&cursor, '}')) {
        do {
            ok = take_member(&cursor, object);
        } while (ok && take(&cursor, ','));
        ok = ok && take(&cursor, '}');
    }
    skip_space(&cursor);
    if (!ok || cursor.at != cursor.end) {
        json_decref(object);
        return NULL;
    }
    return object;
}
