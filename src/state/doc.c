#include "state/doc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"

struct scan {
    const char *text;
    size_t len;
    size_t at;
    struct doc *doc;
    const char *fault; /* the fault at `at` */
    bool no_memory;
    uint32_t open[DOC_DEPTH_MAX]; /* the containers around `at` */
    size_t depth;
};

/* ---- faults and their places ---------------------------------------------- */

char *doc_place(const char *text, size_t offset, char out[DOC_PLACE_SIZE])
{
    size_t line = 1;
    size_t begin = 0;

    for (size_t i = 0; i < offset; i++) {
        if (text[i] == '\n') {
            line++;
            begin = i + 1;
        }
    }
    (void)snprintf(out, DOC_PLACE_SIZE, "line %zu, column %zu", line, offset - begin + 1);
    return out;
}

static bool fault(struct scan *scan, const char *what)
{
    if (scan->fault == NULL) {
        scan->fault = scan->at >= scan->len ? "the text ends early" : what;
    }
    return false;
}

/* ---- strings ------------------------------------------------------------- */

static int hex4(const char *at, size_t left)
{
    int value = 0;

    for (size_t i = 0; i < 4; i++) {
        int digit = i < left ? text_hex_digit(at[i]) : -1;

        if (digit < 0) {
            return -1;
        }
        value = value * 16 + digit;
    }
    return value;
}

static bool scan_escape(struct scan *scan)
{
    const char *at = scan->text + scan->at;
    size_t left = scan->len - scan->at;
    int unit;

    if (left >= 2 && at[1] != '\0' && strchr("\"\\/bfnrt", at[1]) != NULL) {
        scan->at += 2;
        return true;
    }
    if (left < 2 || at[1] != 'u' || (unit = hex4(at + 2, left - 2)) < 0) {
        return fault(scan, "a string has an invalid escape");
    }
    if (unit >= 0xdc00 && unit <= 0xdfff) {
        return fault(scan, "a string has half a surrogate pair");
    }
    if (unit >= 0xd800 && unit <= 0xdbff) {
        int low = left >= 12 && at[6] == '\\' && at[7] == 'u' ? hex4(at + 8, left - 8) : -1;

        if (low < 0xdc00 || low > 0xdfff) {
            return fault(scan, "a string has half a surrogate pair");
        }
        scan->at += 6;
    }
    scan->at += 6;
    return true;
}

static bool scan_string(struct scan *scan)
{
    const unsigned char *text = (const unsigned char *)scan->text;

    if (scan->at >= scan->len || text[scan->at] != '"') {
        return fault(scan, "a name in quotes is missing");
    }
    scan->at++;
    while (scan->at < scan->len) {
        unsigned char c = text[scan->at];

        if (c == '"') {
            scan->at++;
            return true;
        }
        if (c == '\\') {
            if (!scan_escape(scan)) {
                return false;
            }
        } else if (c < 0x20) {
            return fault(scan, "a string has a control character or is not closed");
        } else if (c < 0x80) {
            scan->at++;
        } else {
            uint32_t point;
            size_t n = utf8_read(scan->text + scan->at, scan->len - scan->at, &point);

            if (n == 0) {
                return fault(scan, "a string has bytes that are not UTF-8");
            }
            scan->at += n;
        }
    }
    return fault(scan, "a string is not closed");
}

/* ---- values ---------------------------------------------------------------- */

static void scan_blanks(struct scan *scan)
{
    while (scan->at < scan->len) {
        char c = scan->text[scan->at];

        if (c != ' ' && c != '\n' && c != '\r' && c != '\t') {
            break;
        }
        scan->at++;
    }
}

static size_t count_digits(const struct scan *scan, size_t at)
{
    size_t n = 0;

    while (at + n < scan->len && scan->text[at + n] >= '0' && scan->text[at + n] <= '9') {
        n++;
    }
    return n;
}

static bool scan_json_number(struct scan *scan)
{
    size_t at = scan->at;
    size_t n;

    at += scan->text[at] == '-' ? 1 : 0;
    n = count_digits(scan, at);
    if (n == 0 || (n > 1 && scan->text[at] == '0')) {
        return fault(scan, "not a JSON value");
    }
    at += n;
    if (at < scan->len && scan->text[at] == '.') {
        n = count_digits(scan, at + 1);
        if (n == 0) {
            return fault(scan, "a number has no digits after its point");
        }
        at += 1 + n;
    }
    if (at < scan->len && (scan->text[at] == 'e' || scan->text[at] == 'E')) {
        at++;
        at += at < scan->len && (scan->text[at] == '+' || scan->text[at] == '-') ? 1 : 0;
        n = count_digits(scan, at);
        if (n == 0) {
            return fault(scan, "a number has no digits in its exponent");
        }
        at += n;
    }
    scan->at = at;
    return true;
}

static bool scan_word(struct scan *scan, const char *word)
{
    size_t n = strlen(word);

    if (scan->len - scan->at < n || memcmp(scan->text + scan->at, word, n) != 0) {
        return fault(scan, "not a JSON value");
    }
    scan->at += n;
    return true;
}

static bool add_node(struct scan *scan, uint32_t *out_index)
{
    struct doc *doc = scan->doc;

    if (doc->n == doc->cap) {
        uint32_t cap = doc->cap == 0 ? 256 : doc->cap + doc->cap / 2;
        struct doc_node *grown = realloc(doc->nodes, (size_t)cap * sizeof *grown);

        if (grown == NULL) {
            scan->no_memory = true;
            return false;
        }
        doc->nodes = grown;
        doc->cap = cap;
    }
    *out_index = doc->n;
    doc->nodes[doc->n++] = (struct doc_node){ (uint32_t)scan->at, 0, 0 };
    return true;
}

static void close_node(struct scan *scan, uint32_t index)
{
    scan->doc->nodes[index].end = (uint32_t)scan->at;
    scan->doc->nodes[index].next = scan->doc->n;
}

static bool scan_name(struct scan *scan)
{
    uint32_t index;

    scan_blanks(scan);
    if (!add_node(scan, &index) || !scan_string(scan)) {
        return false;
    }
    close_node(scan, index);
    scan_blanks(scan);
    if (scan->at >= scan->len || scan->text[scan->at] != ':') {
        return fault(scan, "a ':' is missing after a name");
    }
    scan->at++;
    return true;
}

static bool scan_scalar(struct scan *scan, uint32_t index)
{
    bool ok;

    switch (scan->text[scan->at]) {
    case '"':
        ok = scan_string(scan);
        break;
    case 't':
        ok = scan_word(scan, "true");
        break;
    case 'f':
        ok = scan_word(scan, "false");
        break;
    case 'n':
        ok = scan_word(scan, "null");
        break;
    default:
        ok = scan_json_number(scan);
        break;
    }
    if (ok) {
        close_node(scan, index);
    }
    return ok;
}

/* One value. A container that is not empty is left open, at its first value. */
static bool scan_value(struct scan *scan, bool *out_opened)
{
    uint32_t index;
    char c;

    scan_blanks(scan);
    *out_opened = false;
    if (scan->at >= scan->len) {
        return fault(scan, "");
    }
    if (!add_node(scan, &index)) {
        return false;
    }
    c = scan->text[scan->at];
    if (c != '{' && c != '[') {
        return scan_scalar(scan, index);
    }
    scan->at++;
    scan_blanks(scan);
    if (scan->at < scan->len && scan->text[scan->at] == (c == '{' ? '}' : ']')) {
        scan->at++;
        close_node(scan, index);
        return true;
    }
    if (scan->depth == DOC_DEPTH_MAX) {
        return fault(scan, "nested too deeply");
    }
    scan->open[scan->depth++] = index;
    *out_opened = true;
    return c == '[' || scan_name(scan);
}

/* After a value: the end of its container, or the next value. */
static bool scan_behind(struct scan *scan)
{
    while (scan->depth > 0) {
        uint32_t inside = scan->open[scan->depth - 1];
        bool is_object = scan->text[scan->doc->nodes[inside].start] == '{';
        char c;

        scan_blanks(scan);
        c = scan->at < scan->len ? scan->text[scan->at] : '\0';
        if (c == ',') {
            scan->at++;
            return !is_object || scan_name(scan);
        }
        if (c != (is_object ? '}' : ']')) {
            return fault(scan, is_object ? "a ',' or '}' is missing" : "a ',' or ']' is missing");
        }
        scan->at++;
        scan->depth--;
        close_node(scan, inside);
    }
    return true;
}

static bool scan_document(struct scan *scan)
{
    do {
        bool opened;

        if (!scan_value(scan, &opened) || (!opened && !scan_behind(scan))) {
            return false;
        }
    } while (scan->depth > 0);
    scan_blanks(scan);
    if (scan->at < scan->len) {
        scan->fault = "text follows the end of the value";
        return false;
    }
    return true;
}

enum belay_code doc_scan(const char *text, size_t len, struct doc *out_doc, struct belay_error *err)
{
    struct doc doc = { .text = text, .len = len };
    struct scan scan = { .text = text, .len = len, .doc = &doc };
    char place[DOC_PLACE_SIZE];

    if (len > DOC_SIZE_MAX) {
        return error_set(err, BELAY_BAD_CONTENT, "larger than %zu MB", DOC_SIZE_MAX >> 20);
    }
    if (!scan_document(&scan)) {
        doc_release(&doc);
        return scan.no_memory ? error_no_memory(err)
                              : error_set(err, BELAY_BAD_CONTENT, "not valid JSON: %s (%s)", scan.fault,
                                          doc_place(text, scan.at < len ? scan.at : len, place));
    }
    *out_doc = doc;
    return BELAY_OK;
}

void doc_release(struct doc *doc)
{
    free(doc->nodes);
    *doc = (struct doc){ 0 };
}

/* ---- reading -------------------------------------------------------------- */

void doc_unescape(struct buf *out, const char *raw, size_t len)
{
    static const char letters[] = "\"\\/bfnrt";
    static const char meanings[] = "\"\\/\b\f\n\r\t";
    const char *end = raw + len - 1;
    char bytes[UTF8_MAX];

    for (const char *at = raw + 1; at < end;) {
        const char *slash = memchr(at, '\\', (size_t)(end - at));

        buf_add(out, at, (size_t)((slash == NULL ? end : slash) - at));
        if (slash == NULL) {
            return;
        }
        if (slash[1] != 'u') {
            buf_add(out, &meanings[strchr(letters, slash[1]) - letters], 1);
            at = slash + 2;
        } else {
            unsigned code = (unsigned)hex4(slash + 2, 4);

            at = slash + 6;
            if (code >= 0xd800 && code <= 0xdbff) {
                code = 0x10000 + ((code - 0xd800) << 10) + ((unsigned)hex4(at + 2, 4) - 0xdc00);
                at += 6;
            }
            buf_add(out, bytes, utf8_write(code, bytes));
        }
    }
}

bool doc_is(const struct doc *doc, uint32_t node, const char *text)
{
    size_t len;
    const char *raw = doc_raw(doc, node, &len);
    struct buf plain = BUF_INIT(len + 1);
    bool same;

    if (node == 0 || raw[0] != '"') {
        return false;
    }
    if (memchr(raw, '\\', len) == NULL) {
        return len - 2 == strlen(text) && memcmp(raw + 1, text, len - 2) == 0;
    }
    doc_unescape(&plain, raw, len);
    same = plain.data != NULL && plain.len == strlen(text) && memcmp(plain.data, text, plain.len) == 0;
    buf_release(&plain);
    return same;
}

uint32_t doc_member(const struct doc *doc, uint32_t object, const char *name)
{
    if (doc_kind(doc, object) == '{') {
        doc_each(doc, object, key)
        {
            if (doc_is(doc, key, name)) {
                return key + 1;
            }
        }
    }
    return 0;
}

char *doc_string(const struct doc *doc, uint32_t node)
{
    size_t len;
    const char *raw = doc_raw(doc, node, &len);
    struct buf plain = BUF_INIT(len + 1);

    if (node == 0 || raw[0] != '"') {
        return NULL;
    }
    buf_adds(&plain, "");
    doc_unescape(&plain, raw, len);
    plain.failed = plain.failed || strlen(plain.data) != plain.len;
    return buf_take(&plain);
}

bool doc_number(const struct doc *doc, uint32_t node, uint64_t *out_number)
{
    size_t len;
    const char *raw = doc_raw(doc, node, &len);
    uint64_t number = 0;

    if (node == 0 || len > 19) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        if (raw[i] < '0' || raw[i] > '9') {
            return false;
        }
        number = number * 10 + (uint64_t)(raw[i] - '0');
    }
    if (number > INT64_MAX) {
        return false;
    }
    *out_number = number;
    return true;
}
