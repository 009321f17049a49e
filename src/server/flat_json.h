/* Plain JSON objects, read quickly: what nearly every request has for a body. */
#ifndef SERVER_FLAT_JSON_H
#define SERVER_FLAT_JSON_H

#include <jansson.h>
#include <stdbool.h>

/*
 * An object of texts, whole numbers, true, false and null, without escapes and with
 * ASCII only, as json_loadb() would make it. NULL: it is something else, or wrong;
 * json_loadb() says which.
 */
json_t *flat_json_load(const char *text, size_t len);

#endif
