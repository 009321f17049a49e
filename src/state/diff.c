/* Which members of two states differ. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "state/states.h"

struct side {
    struct canon_member *members; /* owned; sorted by name */
    size_t n;
};

static bool read_side(struct side *side, const struct format *format, uint32_t node)
{
    *side = (struct side){ 0 };
    if (format == NULL || (node == 0 && doc_kind(&format->doc, 0) != '{')) {
        return true;
    }
    side->members = canon_members(&format->doc, node, &side->n);
    if (side->members == NULL) {
        return false;
    }
    canon_sort(side->members, side->n);
    return true;
}

static enum belay_code compare_values(const struct canon_member *a, const struct canon_member *b,
                                      bool *out_same, struct belay_error *err)
{
    size_t n_a;
    size_t n_b;
    const char *raw_a = doc_raw(a->doc, a->name + 1, &n_a);
    const char *raw_b = doc_raw(b->doc, b->name + 1, &n_b);
    char sum_a[CANON_SUM_SIZE] = "";
    char sum_b[CANON_SUM_SIZE] = "";
    enum belay_code code;

    *out_same = n_a == n_b && memcmp(raw_a, raw_b, n_a) == 0;
    if (*out_same) {
        return BELAY_OK;
    }
    code = canon_sum(a->doc, a->name + 1, sum_a, err);
    if (code == BELAY_OK) {
        code = canon_sum(b->doc, b->name + 1, sum_b, err);
    }
    *out_same = code == BELAY_OK && strcmp(sum_a, sum_b) == 0;
    return code;
}

static enum belay_code report_change(const struct canon_member *member, enum belay_change change,
                                     const char *part, belay_change_fn fn, void *context, bool *go_on,
                                     struct belay_error *err)
{
    char *name = doc_string(member->doc, member->name);

    if (name == NULL) {
        return error_no_memory(err);
    }
    *go_on = fn(context, change, part == NULL ? name : part, part == NULL ? NULL : name);
    free(name);
    return BELAY_OK;
}

static enum belay_code compare_sides(const struct side *from, const struct side *to, const char *part,
                                     belay_change_fn fn, void *context, struct belay_error *err)
{
    enum belay_code code = BELAY_OK;
    bool go_on = true;

    for (size_t i = 0, k = 0; code == BELAY_OK && go_on && (i < from->n || k < to->n);) {
        int order = i == from->n ? 1 : k == to->n ? -1 : canon_compare(&from->members[i], &to->members[k]);
        bool same = false;

        if (order < 0) {
            code = report_change(&from->members[i++], BELAY_DELETED, part, fn, context, &go_on, err);
        } else if (order > 0) {
            code = report_change(&to->members[k++], BELAY_CREATED, part, fn, context, &go_on, err);
        } else {
            code = compare_values(&from->members[i], &to->members[k], &same, err);
            if (code == BELAY_OK && !same) {
                code = report_change(&to->members[k], BELAY_UPDATED, part, fn, context, &go_on, err);
            }
            i++;
            k++;
        }
    }
    return code;
}

enum belay_code diff_members(const struct format *from, uint32_t from_node, const struct format *to,
                             uint32_t to_node, const char *part, belay_change_fn fn, void *context,
                             struct belay_error *err)
{
    struct side old_side = { 0 };
    struct side new_side = { 0 };
    enum belay_code code = BELAY_OK;
    bool whole = part == NULL;

    if (!read_side(&old_side, from_node == 0 && !whole ? NULL : from, from_node) ||
        !read_side(&new_side, to_node == 0 && !whole ? NULL : to, to_node)) {
        code = error_no_memory(err);
    }
    if (code == BELAY_OK) {
        code = compare_sides(&old_side, &new_side, part, fn, context, err);
    }
    free(old_side.members);
    free(new_side.members);
    return code;
}

/* ---- the public API --------------------------------------------------------------- */

struct other_changes {
    belay_change_fn fn;
    void *context;
};

/* Members that every save rewrites are no changes. */
static bool report_other_change(void *context, enum belay_change change, const char *part, const char *name)
{
    static const char *const ours[] = { "resources",          "outputs",   "metadata", "lock",
                                        "deployment_history", "checksums", "version",  "format_version" };
    const struct other_changes *other = context;

    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
        if (strcmp(ours[i], part) == 0) {
            return true;
        }
    }
    return other->fn(other->context, change, part, name);
}

enum belay_code belay_state_diff(const struct belay_state *from, const struct belay_state *to,
                                 belay_change_fn fn, void *context, struct belay_error *err)
{
    struct format old_format = { 0 };
    struct format new_format = { 0 };
    struct other_changes other = { fn, context };
    enum belay_code code = format_read(to->text, to->len, NULL, true, &new_format, err);

    if (code == BELAY_OK && from != NULL) {
        code = format_read(from->text, from->len, NULL, true, &old_format, err);
    }
    if (code == BELAY_OK) {
        code = diff_members(&old_format, old_format.resources, &new_format, new_format.resources, "resources",
                            fn, context, err);
    }
    if (code == BELAY_OK) {
        code = diff_members(&old_format, old_format.outputs, &new_format, new_format.outputs, "outputs", fn,
                            context, err);
    }
    if (code == BELAY_OK) {
        code = diff_members(from == NULL ? NULL : &old_format, 0, &new_format, 0, NULL, report_other_change,
                            &other, err);
    }
    format_release(&old_format);
    format_release(&new_format);
    return code;
}
