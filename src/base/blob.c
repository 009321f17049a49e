#include "belay/blob.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

void belay_blob_release(struct belay_blob *blob)
{
    free(blob->data);
    *blob = (struct belay_blob){ 0 };
}

static const char *part_fault(const char *part, size_t len)
{
    if (len == 0) {
        return "has an empty part";
    }
    if (len > BELAY_BLOB_PART_MAX) {
        return "has a part that is too long";
    }
    if ((len == 1 && part[0] == '.') || (len == 2 && memcmp(part, "..", 2) == 0)) {
        return "has a part '.' or '..', which would lead elsewhere";
    }
    if (text_has_prefix(part, ".belay-")) {
        return "has a part that begins with '.belay-', which belay keeps for itself";
    }
    return NULL;
}

enum belay_code belay_blob_name_check(const char *name, struct belay_error *err)
{
    const char *fault = NULL;

    if (name == NULL || !text_is_clean(name, BELAY_BLOB_NAME_MAX)) {
        fault = "is empty, too long, not UTF-8, or has control characters";
    }
    for (const char *part = name; fault == NULL && part != NULL;) {
        const char *slash = strchr(part, '/');

        fault = part_fault(part, slash == NULL ? strlen(part) : (size_t)(slash - part));
        part = slash == NULL ? NULL : slash + 1;
    }
    return fault == NULL
               ? BELAY_OK
               : error_set(err, BELAY_INVALID, "the name '%.200s' %s", name == NULL ? "" : name, fault);
}
