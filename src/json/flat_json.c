#include "json/flat_json.h"

#include <string.h>

#include "base/text.h"

enum { DIGITS_MAX = 18 }; /* as many always fit in an int64_t */

static void skip_space(struct flat_json *json)
{
    while (json->at < json->end &&
           (*json->at == ' ' || *json->at == '\n' || *json->at == '\t' || *json->at == '\r')) {
        json->at++;
    }
}

static bool take_char(struct flat_json *json, char c)
{
    skip_space(json);
    if (json->at == json->end || *json->at != c) {
        return false;
    }
    json->at++;
    return true;
}

/* The text after a quotation mark, up to the next one. */
static bool take_text(struct flat_json *json, const char **out_text)
{
    char *from = json->at;
    char *to = from + text_plain(from, (size_t)(json->end - from));

    if (to == json->end || *to != '"') {
        return false;
    }
    *to = '\0';
    *out_text = from;
    json->at = to + 1;
    return true;
}

static bool take_number(struct flat_json *json, int64_t *out)
{
    const char *from = json->at;
    int64_t value = 0;

    while (json->at < json->end && *json->at >= '0' && *json->at <= '9') {
        value = json->at - from < DIGITS_MAX ? value * 10 + (*json->at - '0') : 0;
        json->at++;
    }
    if (json->at == from || json->at - from > DIGITS_MAX || (*from == '0' && json->at - from > 1)) {
        return false;
    }
    *out = value; /* a fraction after it is refused later: it is no comma or brace */
    return true;
}

static bool take_constant(struct flat_json *json, enum flat_kind *out)
{
    static const struct {
        const char *text;
        enum flat_kind kind;
    } words[] = { { "true", FLAT_TRUE }, { "false", FLAT_FALSE }, { "null", FLAT_NULL } };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t len = strlen(words[i].text);

        if ((size_t)(json->end - json->at) >= len && memcmp(json->at, words[i].text, len) == 0) {
            json->at += len;
            *out = words[i].kind;
            return true;
        }
    }
    return false;
}

static bool take_value(struct flat_json *json, struct flat_member *out)
{
    if (take_char(json, '"')) {
        out->kind = FLAT_TEXT;
        return take_text(json, &out->text);
    }
    if (json->at < json->end && *json->at >= '0' && *json->at <= '9') {
        out->kind = FLAT_NUMBER;
        return take_number(json, &out->number);
    }
    return take_constant(json, &out->kind);
}

enum flat_step flat_json_next(struct flat_json *json, struct flat_member *out)
{
    bool is_first = !json->has_begun;

    json->has_begun = true;
    if (is_first && !take_char(json, '{')) {
        return FLAT_OTHER;
    }
    if (take_char(json, '}')) {
        skip_space(json);
        return json->at == json->end ? FLAT_END : FLAT_OTHER; /* nothing may follow the last brace */
    }
    if (!is_first && !take_char(json, ',')) {
        return FLAT_OTHER;
    }
    return take_char(json, '"') && take_text(json, &out->name) && take_char(json, ':') &&
                   take_value(json, out)
               ? FLAT_MEMBER
               : FLAT_OTHER;
}
