/* Plain JSON objects, read quickly and in place: what nearly every request has for a body. */
#ifndef SERVER_CORE_FLAT_JSON_H
#define SERVER_CORE_FLAT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum flat_kind { FLAT_TEXT, FLAT_NUMBER, FLAT_TRUE, FLAT_FALSE, FLAT_NULL };

struct flat_member {
    const char *name; /* like `text`, into what is read */
    enum flat_kind kind;
    const char *text;
    int64_t number;
};

struct flat_json {
    char *at;
    char *end;
    bool has_begun;
};

/* FLAT_OTHER: it is something else, or wrong; json_loadb() says which. */
enum flat_step { FLAT_MEMBER, FLAT_END, FLAT_OTHER };

/*
 * An object of texts, whole numbers, true, false and null, without escapes and with
 * ASCII only. Start with { text, text + len, false }, and get one member after
 * the other. A '\0' takes the place of the quotation mark behind every text, so
 * that json_loadb() needs another copy. A name may come twice.
 */
enum flat_step flat_json_next(struct flat_json *json, struct flat_member *out);

#endif
