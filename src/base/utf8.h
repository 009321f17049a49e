/* UTF-8, characters that are not safe to display, and JSON strings. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum { UTF8_MAX = 4 }; /* bytes of one character */
#define UTF8_REPLACEMENT "\xef\xbf\xbd"

/*
 * Returns the length of the character at `text`, and its code point; 0 if the bytes are not
 * UTF-8. Reads at most `left` bytes, and nothing behind a '\0': UTF8_MAX is safe for a string
 * that ends in one.
 */
size_t utf8_read(const char *text, size_t left, uint32_t *out_point);
/* Returns the length. */
size_t utf8_write(uint32_t point, char out[UTF8_MAX]);

bool utf8_is_control(uint32_t point);
/* Controls, and characters that reorder or hide the text around them (bidirectional marks, zero width). */
bool utf8_is_unsafe(uint32_t point);

/*
 * Adds a JSON string in quotation marks. Bytes that are not UTF-8 become U+FFFD.
 * JSON_TEXT_SAFE also escapes unsafe characters, for logs; JSON_TEXT_SHORTEST escapes only
 * what JSON requires, for documents that are hashed.
 */
enum json_text { JSON_TEXT_SHORTEST, JSON_TEXT_SAFE };
void json_text_add(struct buf *out, const char *text, size_t len, enum json_text how);

#endif
