#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "state/doc.h"

void doc_quote(struct buf *out, const char *text)
{
    if (text == NULL) {
        buf_adds(out, "null");
    } else {
        json_text_add(out, text, strlen(text), JSON_TEXT_SHORTEST);
    }
}

static const struct edit *find_edit(const struct doc *doc, uint32_t name, const struct edit *edits, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (doc_is(doc, name, edits[i].name)) {
            return &edits[i];
        }
    }
    return NULL;
}

static void begin_member(struct buf *out, bool *first, int indent)
{
    buf_addf(out, "%s\n%*s", *first ? "" : ",", indent, "");
    *first = false;
}

void edit_object(struct buf *out, const struct doc *doc, uint32_t object, const struct edit *edits, size_t n,
                 int indent)
{
    bool first = true;

    buf_adds(out, "{");
    if (object != 0) {
        doc_each(doc, object, name)
        {
            const struct edit *edit = find_edit(doc, name, edits, n);
            size_t name_len;
            size_t len;
            const char *raw_name = doc_raw(doc, name, &name_len);
            const char *raw = doc_raw(doc, name + 1, &len);

            if (edit != NULL && edit->value == NULL) {
                continue;
            }
            begin_member(out, &first, indent);
            buf_add(out, raw_name, name_len);
            buf_adds(out, ": ");
            buf_add(out, edit == NULL ? raw : edit->value, edit == NULL ? len : strlen(edit->value));
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (edits[i].value != NULL && (object == 0 || doc_member(doc, object, edits[i].name) == 0)) {
            begin_member(out, &first, indent);
            doc_quote(out, edits[i].name);
            buf_adds(out, ": ");
            buf_adds(out, edits[i].value);
        }
    }
    if (!first) {
        buf_addf(out, "\n%*s", indent - 2, "");
    }
    buf_adds(out, "}");
}
