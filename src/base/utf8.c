#include "base/utf8.h"

#include <assert.h>

#include "base/text.h"

size_t utf8_read(const char *text, size_t left, uint32_t *out_point)
{
    static const uint32_t least[] = { 0, 0x80, 0x800, 0x10000 };
    const unsigned char *s = (const unsigned char *)text;
    size_t extra;
    uint32_t point;

    if (left == 0 || (s[0] >= 0x80 && s[0] < 0xc2) || s[0] > 0xf4) {
        return 0;
    }
    extra = s[0] < 0x80 ? 0 : s[0] < 0xe0 ? 1 : s[0] < 0xf0 ? 2 : 3;
    point = extra == 0 ? s[0] : s[0] & (0x3fU >> extra);
    for (size_t i = 1; i <= extra; i++) {
        if (i == left || (s[i] & 0xc0) != 0x80) {
            return 0;
        }
        point = point << 6 | (s[i] & 0x3fU);
    }
    if (point < least[extra] || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) {
        return 0;
    }
    *out_point = point;
    return extra + 1;
}

size_t utf8_write(uint32_t point, char out[UTF8_MAX])
{
    static const unsigned char lead[] = { 0, 0, 0xc0, 0xe0, 0xf0 };
    size_t n = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;

    assert(point <= 0x10ffff);
    for (size_t i = n - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (point & 0x3f));
        point >>= 6;
    }
    out[0] = (char)(lead[n] | point);
    return n;
}

bool utf8_is_control(uint32_t point)
{
    return point < 0x20 || (point >= 0x7f && point < 0xa0);
}

bool utf8_is_unsafe(uint32_t point)
{
    return utf8_is_control(point) || (point >= 0x200b && point <= 0x200f) ||
           (point >= 0x2028 && point <= 0x202e) || (point >= 0x2060 && point <= 0x206f) || point == 0xfeff;
}

/* Adds the character at `text`, which is not plain; returns its length. */
static size_t add_character(struct buf *out, const char *text, size_t left, enum json_text how)
{
    static const char meanings[] = "\b\t\n\f\r\"\\";
    static const char letters[] = "btnfr\"\\";
    uint32_t point;
    size_t len = utf8_read(text, left, &point);
    const char *meaning = len == 1 ? memchr(meanings, (int)point, sizeof meanings - 1) : NULL;

    if (len == 0) {
        buf_adds(out, UTF8_REPLACEMENT);
        return 1;
    }
    if (meaning != NULL) {
        buf_add(out, "\\", 1);
        buf_add(out, &letters[meaning - meanings], 1);
    } else if (point < 0x20 || (how == JSON_TEXT_SAFE && utf8_is_unsafe(point))) {
        buf_addf(out, "\\u%04x", (unsigned)point);
    } else {
        buf_add(out, text, len);
    }
    return len;
}

void json_text_add(struct buf *out, const char *text, size_t len, enum json_text how)
{
    size_t n = text_plain(text, len);

    if (n == len) {
        buf_add_quoted(out, text, len);
        return;
    }
    buf_add(out, "\"", 1);
    for (size_t at = 0; at < len; n = text_plain(text + at, len - at)) {
        buf_add(out, text + at, n);
        at += n;
        if (at < len) {
            at += add_character(out, text + at, len - at, how);
        }
    }
    buf_add(out, "\"", 1);
}
