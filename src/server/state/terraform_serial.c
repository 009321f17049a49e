/* The serial and lineage of a Terraform state, which are all that the server reads of it. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "belay/state.h"
#include "server/state/terraform.h"

/* The end of the string that begins at `text`; the '\0' if it has none. */
static const char *skip_string(const char *text)
{
    for (text++; *text != '"' && *text != '\0'; text++) {
        text += *text == '\\' && text[1] != '\0' ? 1 : 0;
    }
    return *text == '"' ? text + 1 : text;
}

/* The value of a member of the outermost object; NULL: none. `name` has its quotes. */
static const char *find_member(const char *text, const char *name)
{
    size_t n = strlen(name);
    int depth = 0;

    while (*text != '\0') {
        if (depth == 1 && strncmp(text, name, n) == 0) {
            const char *at = text + n;

            at += strspn(at, " \t\r\n");
            if (*at == ':') {
                at++;
                return at + strspn(at, " \t\r\n");
            }
        }
        if (*text == '"') {
            text = skip_string(text);
            continue;
        }
        depth += *text == '{' || *text == '[' ? 1 : *text == '}' || *text == ']' ? -1 : 0;
        text++;
    }
    return NULL;
}

/* The serial; NULL if there is no valid one. */
static const char *find_serial(const char *text)
{
    const char *at = find_member(text, "\"serial\"");

    return at != NULL && isdigit((unsigned char)*at) ? at : NULL;
}

static bool is_same_lineage(const char *a, const char *b)
{
    const char *x = find_member(a, "\"lineage\"");
    const char *y = find_member(b, "\"lineage\"");
    size_t n;

    if (x == NULL || y == NULL || *x != '"' || *y != '"') {
        return true;
    }
    n = (size_t)(skip_string(x) - x);
    return strncmp(x, y, n) == 0;
}

bool tf_is_later(const char *before, const char *text, unsigned long long *out_serial)
{
    const char *last = find_serial(before);
    const char *serial = find_serial(text);

    if (last == NULL || !is_same_lineage(before, text)) {
        return true;
    }
    *out_serial = strtoull(last, NULL, 10);
    return serial != NULL && strtoull(serial, NULL, 10) > *out_serial;
}

/* A greater serial marks plans made meanwhile as stale. Every other byte stays as it was. */
char *tf_with_serial(const char *old, const char *now)
{
    struct buf out = BUF_INIT(BELAY_BLOB_SIZE_MAX);
    const char *at = find_serial(old);
    const char *last = now == NULL ? NULL : find_serial(now);
    unsigned long long serial = last == NULL ? 0 : strtoull(last, NULL, 10);

    if (at == NULL || last == NULL || strtoull(at, NULL, 10) > serial) {
        return strdup(old);
    }
    buf_add(&out, old, (size_t)(at - old));
    buf_addf(&out, "%llu", serial + 1);
    buf_adds(&out, at + strspn(at, "0123456789"));
    return buf_take(&out);
}
