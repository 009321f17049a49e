#include "state/canon.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"

enum { PIECE_SIZE = 1 << 16, FEW_MEMBERS = 48 };

bool canon_begin(struct canon *canon)
{
    *canon = (struct canon){ .piece = malloc(PIECE_SIZE) };
    sha256_begin(&canon->hash);
    canon->no_memory = canon->piece == NULL;
    return !canon->no_memory;
}

static void hash_piece(struct canon *canon)
{
    sha256_add(&canon->hash, canon->piece, canon->n);
    canon->n = 0;
}

/* Inline: half of the calls are for one character, which needs no memcpy() then. */
static inline void put_bytes(struct canon *canon, const char *data, size_t len)
{
    assert(canon->n <= PIECE_SIZE);
    if (len > PIECE_SIZE - canon->n) {
        hash_piece(canon);
        if (len > PIECE_SIZE / 2) {
            sha256_add(&canon->hash, data, len);
            return;
        }
    }
    memcpy(canon->piece + canon->n, data, len);
    canon->n += len;
}

/* A string without a backslash is in its shortest form already. */
static void put_string(struct canon *canon, const char *raw, size_t len)
{
    struct buf plain = BUF_INIT(len + 1);
    struct buf quoted = BUF_INIT(6 * len + 16);

    if (memchr(raw, '\\', len) == NULL) {
        put_bytes(canon, raw, len);
        return;
    }
    buf_adds(&plain, "");
    doc_unescape(&plain, raw, len);
    if (!plain.failed) {
        json_text_add(&quoted, plain.data, plain.len, JSON_TEXT_SHORTEST);
    }
    if (plain.failed || quoted.failed) {
        canon->no_memory = true;
    } else {
        put_bytes(canon, quoted.data, quoted.len);
    }
    buf_release(&plain);
    buf_release(&quoted);
}

/* ---- the order of names ------------------------------------------------------ */

static int compare_bytes(const char *a, size_t n_a, const char *b, size_t n_b)
{
    int order = memcmp(a, b, n_a < n_b ? n_a : n_b);

    return order != 0 ? order : n_a < n_b ? -1 : n_a > n_b;
}

static int compare_escaped(const char *raw_a, size_t n_a, const char *raw_b, size_t n_b)
{
    struct buf plain_a = BUF_INIT(n_a + 1);
    struct buf plain_b = BUF_INIT(n_b + 1);
    int order;

    buf_adds(&plain_a, "");
    buf_adds(&plain_b, "");
    doc_unescape(&plain_a, raw_a, n_a);
    doc_unescape(&plain_b, raw_b, n_b);
    order = plain_a.data == NULL || plain_b.data == NULL
                ? 0
                : compare_bytes(plain_a.data, plain_a.len, plain_b.data, plain_b.len);
    buf_release(&plain_a);
    buf_release(&plain_b);
    return order;
}

int canon_compare(const struct canon_member *a, const struct canon_member *b)
{
    size_t n_a;
    size_t n_b;
    const char *raw_a = doc_raw(a->doc, a->name, &n_a);
    const char *raw_b = doc_raw(b->doc, b->name, &n_b);

    if (memchr(raw_a, '\\', n_a) == NULL && memchr(raw_b, '\\', n_b) == NULL) {
        return compare_bytes(raw_a + 1, n_a - 2, raw_b + 1, n_b - 2);
    }
    return compare_escaped(raw_a, n_a, raw_b, n_b);
}

static int compare(const void *a, const void *b)
{
    return canon_compare(a, b);
}

static bool is_sorted(const struct canon_member *members, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        if (canon_compare(&members[i - 1], &members[i]) >= 0) {
            return false;
        }
    }
    return true;
}

void canon_sort(struct canon_member *members, size_t n)
{
    if (!is_sorted(members, n)) {
        qsort(members, n, sizeof *members, compare);
    }
}

static void canon_value(struct canon *canon, const struct doc *doc, uint32_t node);

void canon_object(struct canon *canon, struct canon_member *members, size_t n)
{
    canon_sort(members, n);
    put_bytes(canon, "{", 1);
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *raw = doc_raw(members[i].doc, members[i].name, &len);

        if (i > 0 && canon_compare(&members[i - 1], &members[i]) == 0) {
            canon->duplicate_doc = members[i].doc;
            canon->duplicate = members[i].name;
        }
        if (i > 0) {
            put_bytes(canon, ",", 1);
        }
        put_string(canon, raw, len);
        put_bytes(canon, ":", 1);
        canon_value(canon, members[i].doc, members[i].name + 1);
    }
    put_bytes(canon, "}", 1);
}

/* ---- values ------------------------------------------------------------------ */

static size_t list_members(const struct doc *doc, uint32_t object, struct canon_member *out, size_t max)
{
    size_t n = 0;

    doc_each(doc, object, name)
    {
        if (out != NULL && n < max) {
            out[n] = (struct canon_member){ doc, name };
        }
        n++;
    }
    return n;
}

struct canon_member *canon_members(const struct doc *doc, uint32_t object, size_t *out_n)
{
    size_t n = list_members(doc, object, NULL, 0);
    struct canon_member *members = malloc((n + 1) * sizeof *members);

    if (members != NULL) {
        *out_n = list_members(doc, object, members, n);
    }
    return members;
}

static void put_object(struct canon *canon, const struct doc *doc, uint32_t node)
{
    struct canon_member few[FEW_MEMBERS];
    struct canon_member *members = few;
    size_t n = list_members(doc, node, few, FEW_MEMBERS);

    if (n > FEW_MEMBERS && (members = canon_members(doc, node, &n)) == NULL) {
        canon->no_memory = true;
        return;
    }
    canon_object(canon, members, n);
    if (members != few) {
        free(members);
    }
}

static void put_array(struct canon *canon, const struct doc *doc, uint32_t node)
{
    put_bytes(canon, "[", 1);
    for (uint32_t at = node + 1; at < doc->nodes[node].next; at = doc->nodes[at].next) {
        if (at > node + 1) {
            put_bytes(canon, ",", 1);
        }
        canon_value(canon, doc, at);
    }
    put_bytes(canon, "]", 1);
}

/* Recursion is bounded: doc_scan() accepts DOC_DEPTH_MAX levels. */
static void canon_value(struct canon *canon, const struct doc *doc, uint32_t node)
{
    size_t len;
    const char *raw = doc_raw(doc, node, &len);

    if (canon->no_memory) {
        return;
    }
    if (raw[0] == '{') {
        put_object(canon, doc, node);
    } else if (raw[0] == '[') {
        put_array(canon, doc, node);
    } else if (raw[0] == '"') {
        put_string(canon, raw, len);
    } else {
        put_bytes(canon, raw, len);
    }
}

enum belay_code canon_end(struct canon *canon, char out_sum[CANON_SUM_SIZE], struct belay_error *err)
{
    enum belay_code code = BELAY_OK;
    char place[DOC_PLACE_SIZE];

    if (canon->no_memory) {
        code = error_no_memory(err);
    } else if (canon->duplicate_doc != NULL) {
        size_t len;
        const char *raw = doc_raw(canon->duplicate_doc, canon->duplicate, &len);

        code = error_set(err, BELAY_BAD_CONTENT, "the name %.*s appears twice in one object (%s)",
                         len > 100 ? 100 : (int)len, raw,
                         doc_place(canon->duplicate_doc->text,
                                   canon->duplicate_doc->nodes[canon->duplicate].start, place));
    } else {
        hash_piece(canon);
        memcpy(out_sum, "sha256:", 7);
        (void)sha256_end(&canon->hash, out_sum + 7);
    }
    free(canon->piece);
    canon->piece = NULL;
    return code;
}

enum belay_code canon_sum(const struct doc *doc, uint32_t node, char out_sum[CANON_SUM_SIZE],
                          struct belay_error *err)
{
    struct canon canon;

    if (canon_begin(&canon)) {
        canon_value(&canon, doc, node);
    }
    return canon_end(&canon, out_sum, err);
}
