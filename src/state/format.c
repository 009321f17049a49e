/* The shape of a state document, and its checksums, as docs/state.md specifies them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "state/states.h"

void format_release(struct format *format)
{
    doc_release(&format->doc);
    *format = (struct format){ 0 };
}

static enum belay_code check_part_kind(const struct format *format, uint32_t node, const char *part,
                                       char kind, struct belay_error *err)
{
    if (node != 0 && doc_kind(&format->doc, node) != kind) {
        return error_set(err, BELAY_BAD_CONTENT, "'%s' is not %s", part,
                         kind == '{' ? "an object" : "an array");
    }
    return BELAY_OK;
}

static enum belay_code check_format_version(const struct format *format, bool is_new, struct belay_error *err)
{
    uint32_t node = doc_member(&format->doc, 0, "format_version");
    size_t len = strlen("missing");
    const char *raw = node == 0 ? "missing" : doc_raw(&format->doc, node, &len);

    if ((node == 0 && is_new) || doc_is(&format->doc, node, BELAY_STATE_FORMAT)) {
        return BELAY_OK;
    }
    return error_set(err, BELAY_BAD_CONTENT, "format_version is %.*s; this belay knows \"%s\"",
                     len > 80 ? 80 : (int)len, raw, BELAY_STATE_FORMAT);
}

/* metadata.stack or metadata.environment: a state must not be saved under the name of another. */
static enum belay_code check_names_state(const struct format *format, const char *member, const char *wanted,
                                         struct belay_error *err)
{
    uint32_t node = format_member(format, format->metadata, member);
    size_t len;
    const char *raw;

    if (node == 0 || doc_kind(&format->doc, node) == 'n' || doc_is(&format->doc, node, wanted)) {
        return BELAY_OK;
    }
    raw = doc_raw(&format->doc, node, &len);
    return error_set(err, BELAY_BAD_CONTENT, "metadata.%s is %.*s, not \"%s\": this is another state", member,
                     len > 130 ? 130 : (int)len, raw, wanted);
}

static enum belay_code check_shape(struct format *format, const struct belay_state_name *name, bool is_new,
                                   struct belay_error *err)
{
    const struct {
        const char *name;
        uint32_t *node;
        char kind;
    } parts[] = {
        { "metadata", &format->metadata, '{' },          { "lock", &format->lock, '{' },
        { "resources", &format->resources, '{' },        { "outputs", &format->outputs, '{' },
        { "deployment_history", &format->history, '[' }, { "checksums", &format->checksums, '{' },
    };
    enum belay_code code;

    if (doc_kind(&format->doc, 0) != '{') {
        return error_set(err, BELAY_BAD_CONTENT, "it is not an object: a state begins with '{'");
    }
    code = check_format_version(format, is_new, err);
    for (size_t i = 0; code == BELAY_OK && i < sizeof parts / sizeof parts[0]; i++) {
        *parts[i].node = doc_member(&format->doc, 0, parts[i].name);
        code = check_part_kind(format, *parts[i].node, parts[i].name, parts[i].kind, err);
    }
    if (code == BELAY_OK && name != NULL) {
        code = check_names_state(format, "stack", name->stack, err);
    }
    if (code == BELAY_OK && name != NULL) {
        code = check_names_state(format, "environment", name->environment, err);
    }
    return code;
}

enum belay_code format_read(const char *text, size_t len, const struct belay_state_name *name, bool is_new,
                            struct format *out_format, struct belay_error *err)
{
    struct format format = { 0 };
    enum belay_code code = doc_scan(text, len, &format.doc, err);

    if (code == BELAY_OK) {
        code = check_shape(&format, name, is_new, err);
    }
    if (code != BELAY_OK) {
        format_release(&format);
        return code;
    }
    *out_format = format;
    return BELAY_OK;
}

char *format_string(const struct format *format, uint32_t part, const char *name)
{
    return doc_string(&format->doc, format_member(format, part, name));
}

uint32_t format_newest(const struct format *format)
{
    uint32_t first = format == NULL || format->history == 0 ? 0 : format->history + 1;

    return first == 0 || first == format->doc.nodes[format->history].next ? 0 : first;
}

enum belay_code format_describe(const struct format *format, struct belay_state *state,
                                struct belay_error *err)
{
    const struct doc *doc = &format->doc;
    uint32_t token = format_member(format, format->lock, "token");

    /* An unreadable token must not count as no token. */
    if (token != 0 && doc_kind(doc, token) != 'n' && !doc_number(doc, token, &state->token)) {
        return error_set(err, BELAY_BAD_CONTENT, "lock.token is not a whole number");
    }
    (void)doc_number(doc, format_member(format, format->metadata, "serial"), &state->serial);
    state->locked = doc_kind(doc, format_member(format, format->lock, "locked")) == 't';
    state->lock_store = format_string(format, format->lock, "store");
    state->lock_id = format_string(format, format->lock, "lock_id");
    state->locked_by = format_string(format, format->lock, "last_locked_by");
    state->last_updated = format_string(format, format->metadata, "last_updated");
    state->last_updated_by = format_string(format, format->metadata, "last_updated_by");
    state->deployment_id = format_string(format, format->metadata, "deployment_id");
    state->snapshot = format_string(format, format->metadata, "snapshot");
    state->has_checksums = format_member(format, format->checksums, "document") != 0;
    if (format->resources != 0) {
        doc_each(doc, format->resources, name)
        {
            state->n_resources++;
        }
    }
    return BELAY_OK;
}

/* ---- checksums ------------------------------------------------------------- */

static bool member_is(const struct canon_member *member, const char *name)
{
    return doc_is(member->doc, member->name, name);
}

static bool is_main(const struct canon_member *member)
{
    return member_is(member, "resources") || member_is(member, "outputs");
}

/*
 * The checksum of the document. It covers resources and outputs by their checksums, and leaves
 * out checksums.document itself.
 */
static enum belay_code document_sum(struct canon_member *members, size_t n, const char *checksums,
                                    char out_sum[CANON_SUM_SIZE], struct belay_error *err)
{
    struct canon_member *rest = calloc(n + 1, sizeof *rest);
    struct buf text = BUF_INIT(DOC_SIZE_MAX);
    struct doc doc = { 0 };
    struct canon canon;
    size_t n_rest = 0;
    enum belay_code code;

    buf_addf(&text, "{\"checksums\":%s}", checksums);
    if (rest == NULL || text.failed) {
        code = error_no_memory(err);
        goto done;
    }
    code = doc_scan(text.data, text.len, &doc, err);
    if (code != BELAY_OK) {
        goto done;
    }
    rest[n_rest++] = (struct canon_member){ &doc, 1 };
    for (size_t i = 0; i < n; i++) {
        if (!is_main(&members[i]) && !member_is(&members[i], "checksums")) {
            rest[n_rest++] = members[i];
        }
    }
    if (canon_begin(&canon)) {
        canon_object(&canon, rest, n_rest);
    }
    code = canon_end(&canon, out_sum, err);

done:
    free(rest);
    doc_release(&doc);
    buf_release(&text);
    return code;
}

static enum belay_code add_sum(struct buf *out, const struct canon_member *member, struct belay_error *err)
{
    char sum[CANON_SUM_SIZE];
    size_t len;
    const char *name = doc_raw(member->doc, member->name, &len);
    enum belay_code code = canon_sum(member->doc, member->name + 1, sum, err);

    if (code == BELAY_OK) {
        buf_adds(out, out->len > 0 && out->data[out->len - 1] != '{' ? ",\n      " : "\n      ");
        buf_add(out, name, len);
        buf_addf(out, ": \"%s\"", sum);
    }
    return code;
}

enum belay_code format_checksums(struct canon_member *members, size_t n, const struct doc *known,
                                 uint32_t known_node, char **out_json, struct belay_error *err)
{
    char main_sums[2][CANON_SUM_SIZE + 2] = { "null", "null" };
    struct edit edits[] = {
        { "resources", main_sums[0] }, { "outputs", main_sums[1] }, { "parts", NULL }, { "document", NULL }
    };
    struct buf parts = BUF_INIT(DOC_SIZE_MAX);
    struct buf json = BUF_INIT(DOC_SIZE_MAX);
    char sum[CANON_SUM_SIZE];
    char quoted[CANON_SUM_SIZE + 2];
    enum belay_code code = BELAY_OK;

    buf_adds(&parts, "{");
    for (size_t i = 0; code == BELAY_OK && i < n; i++) {
        if (is_main(&members[i])) {
            code = canon_sum(members[i].doc, members[i].name + 1, sum, err);
            (void)snprintf(main_sums[member_is(&members[i], "resources") ? 0 : 1], sizeof main_sums[0],
                           "\"%s\"", sum);
        } else if (!member_is(&members[i], "checksums")) {
            code = add_sum(&parts, &members[i], err);
        }
    }
    buf_adds(&parts, parts.len > 1 ? "\n    }" : "}");
    if (code == BELAY_OK && parts.failed) {
        code = error_no_memory(err);
    }
    if (code == BELAY_OK) {
        edits[2].value = parts.data;
        edit_object(&json, known, known_node, edits, 4, 4);
        code = json.failed ? error_no_memory(err) : document_sum(members, n, json.data, sum, err);
    }
    if (code == BELAY_OK) {
        (void)snprintf(quoted, sizeof quoted, "\"%s\"", sum);
        edits[3].value = quoted;
        json.len = 0;
        edit_object(&json, known, known_node, edits, 4, 4);
        *out_json = buf_take(&json);
        code = *out_json == NULL ? error_no_memory(err) : BELAY_OK;
    }
    buf_release(&parts);
    buf_release(&json);
    return code;
}

/* ---- verifying --------------------------------------------------------------- */

struct verify {
    const struct format *format;
    belay_finding_fn fn;
    void *context;
    struct belay_error *err;
    size_t n_failed;
};

static void report_part(struct verify *verify, bool ok, const char *part, const char *text)
{
    struct belay_finding finding = { .level = ok ? BELAY_FINDING_OK : BELAY_FINDING_FAILED,
                                     .code = ok ? BELAY_OK : BELAY_BAD_CONTENT,
                                     .name = part,
                                     .text = text };

    if (!ok && verify->n_failed++ == 0) {
        (void)error_set(verify->err, BELAY_BAD_CONTENT, "%.200s: %s", part, text);
    }
    if (verify->fn != NULL) {
        verify->fn(verify->context, &finding);
    }
}

/* `sums` is the object that should have the part's checksum under its name. */
static enum belay_code verify_part(struct verify *verify, uint32_t sums, const char *part, uint32_t value)
{
    const struct doc *doc = &verify->format->doc;
    uint32_t wanted = format_member(verify->format, sums, part);
    char sum[CANON_SUM_SIZE];
    enum belay_code code;

    if (value == 0) {
        bool is_right = wanted == 0 || doc_kind(doc, wanted) == 'n';

        report_part(verify, is_right, part, is_right ? "absent, as it was when saved" : "is missing");
        return BELAY_OK;
    }
    code = canon_sum(doc, value, sum, verify->err);
    if (code != BELAY_OK) {
        return code;
    }
    if (wanted == 0) {
        report_part(verify, false, part, "has no checksum: it was added since the state was saved");
    } else {
        bool is_right = doc_is(doc, wanted, sum);

        report_part(verify, is_right, part,
                    is_right ? "as it was saved"
                             : "the checksum is wrong: it has changed since it was saved");
    }
    return BELAY_OK;
}

static enum belay_code verify_document(struct verify *verify, uint32_t wanted)
{
    const struct doc *doc = &verify->format->doc;
    struct edit without = { "document", NULL };
    struct buf checksums = BUF_INIT(DOC_SIZE_MAX);
    char sum[CANON_SUM_SIZE];
    size_t n = 0;
    struct canon_member *members = canon_members(doc, 0, &n);
    enum belay_code code;

    edit_object(&checksums, doc, verify->format->checksums, &without, 1, 4);
    code = members == NULL || checksums.failed ? error_no_memory(verify->err)
                                               : document_sum(members, n, checksums.data, sum, verify->err);
    if (code == BELAY_OK && doc_is(doc, wanted, sum)) {
        report_part(verify, true, "document", "as it was saved");
    } else if (code == BELAY_OK && verify->n_failed == 0) {
        report_part(verify, false, "checksums",
                    "the checksum of the document is wrong: one of the checksums was changed");
    }
    free(members);
    buf_release(&checksums);
    return code;
}

static enum belay_code verify_all(struct verify *verify)
{
    const struct format *format = verify->format;
    const struct doc *doc = &format->doc;
    uint32_t document = format_member(format, format->checksums, "document");
    uint32_t parts = format_member(format, format->checksums, "parts");
    enum belay_code code = verify_part(verify, format->checksums, "resources", format->resources);

    if (code == BELAY_OK) {
        code = verify_part(verify, format->checksums, "outputs", format->outputs);
    }
    /* A document of another program has the first two checksums at most. */
    if (document == 0 || parts == 0 || doc_kind(doc, parts) != '{') {
        if (code == BELAY_OK && (parts != 0 || document != 0)) {
            report_part(verify, false, "checksums", "some of them are missing");
        }
        return code;
    }
    doc_each(doc, 0, name)
    {
        char *part = doc_string(doc, name);

        if (code == BELAY_OK && part != NULL && strcmp(part, "resources") != 0 &&
            strcmp(part, "outputs") != 0 && strcmp(part, "checksums") != 0) {
            code = verify_part(verify, parts, part, name + 1);
        }
        free(part);
    }
    doc_each(doc, parts, name)
    {
        char *part = doc_string(doc, name);

        if (code == BELAY_OK && part != NULL && doc_member(doc, 0, part) == 0) {
            report_part(verify, false, part, "is missing");
        }
        free(part);
    }
    return code == BELAY_OK ? verify_document(verify, document) : code;
}

enum belay_code format_verify(const struct format *format, belay_finding_fn fn, void *context,
                              struct belay_error *err)
{
    struct verify verify = { .format = format, .fn = fn, .context = context, .err = err };
    enum belay_code code = BELAY_OK;

    /* Without checksums the document is still searched for duplicate names. */
    if (format->checksums == 0) {
        char sum[CANON_SUM_SIZE];

        code = canon_sum(&format->doc, 0, sum, err);
        if (code == BELAY_OK && fn != NULL) {
            struct belay_finding finding = { .level = BELAY_FINDING_WARNING,
                                             .name = "checksums",
                                             .text = "it has none: another program wrote it",
                                             .advice = "save it once with belay" };

            fn(context, &finding);
        }
        return code;
    }
    code = verify_all(&verify);
    return code == BELAY_OK && verify.n_failed > 0 ? BELAY_BAD_CONTENT : code;
}
