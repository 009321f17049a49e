/*
 * A new document: the content's members are copied byte for byte; metadata, lock,
 * history and checksums are written around them.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "state/states.h"

static char *quoted(const char *text)
{
    struct buf out = BUF_INIT(1 << 20);

    doc_quote(&out, text);
    return buf_take(&out);
}

static char *quoted_time(int64_t unix_ms)
{
    char utc[CLOCK_TEXT_SIZE];

    return quoted(unix_ms == 0 ? NULL : clock_format_utc(utc, unix_ms, false));
}

/* Edits whose values are owned. */
enum { EDITS_MAX = 12 };
struct edits {
    struct edit items[EDITS_MAX];
    size_t n;
    bool failed;
};

static void add_edit(struct edits *edits, const char *name, char *value)
{
    edits->failed = edits->failed || value == NULL || edits->n == EDITS_MAX;
    if (edits->n < EDITS_MAX) {
        edits->items[edits->n++] = (struct edit){ name, value };
    } else {
        free(value);
    }
}

static void add_number_edit(struct edits *edits, const char *name, uint64_t number)
{
    char text[24];

    (void)snprintf(text, sizeof text, "%" PRIu64, number);
    add_edit(edits, name, strdup(text));
}

static char *apply_edits(struct edits *edits, const struct doc *doc, uint32_t object)
{
    struct buf out = BUF_INIT(DOC_SIZE_MAX);

    out.failed = edits->failed;
    edit_object(&out, doc, object, edits->items, edits->n, 4);
    for (size_t i = 0; i < edits->n; i++) {
        free((char *)edits->items[i].value);
    }
    return buf_take(&out);
}

/* ---- the members --------------------------------------------------------------- */

static const struct doc *doc_of(const struct format *format)
{
    return format == NULL ? NULL : &format->doc;
}

/* The deployment as it is recorded: options first, then the document, then what was detected. */
struct deployment_record {
    struct belay_deployment deployment;
    char *own[4]; /* owned */
};

static void deployment_record_release(struct deployment_record *record)
{
    for (size_t i = 0; i < sizeof record->own / sizeof record->own[0]; i++) {
        free(record->own[i]);
    }
}

/* The value in the new document, unless it was only copied from the current one. NULL: none. */
static char *own_text(const struct build *build, const char *name, bool is_own_deployment)
{
    const struct format *content = build->content;
    const struct format *current = build->current;
    char *text = content == NULL ? NULL : format_string(content, content->metadata, name);

    if (text != NULL && !is_own_deployment && current != NULL &&
        doc_is(&current->doc, format_member(current, current->metadata, name), text)) {
        free(text);
        return NULL;
    }
    return text;
}

static const char *given_or_detected(const char *said, const char *own, const char *detected)
{
    return said != NULL ? said : own != NULL ? own : detected;
}

static void deployment_record_make(const struct build *build, struct deployment_record *out)
{
    static const struct belay_deployment nothing = { .duration_ms = -1 };
    const struct belay_deployment *said = build->deployment;
    const struct belay_deployment *detected = build->detected == NULL ? &nothing : build->detected;
    bool is_brought = build->detected != NULL && build->content != build->current;

    *out = (struct deployment_record){ .deployment = *said };
    if (is_brought) {
        out->own[0] = own_text(build, "deployment_id", false);
        out->own[1] = own_text(build, "last_updated_by", out->own[0] != NULL);
        out->own[2] = own_text(build, "git_commit", out->own[0] != NULL);
        out->own[3] = own_text(build, "git_branch", out->own[0] != NULL);
    }
    out->deployment.deployment_id =
        given_or_detected(said->deployment_id, out->own[0], detected->deployment_id);
    out->deployment.triggered_by = given_or_detected(said->triggered_by, out->own[1], detected->triggered_by);
    out->deployment.git_commit = given_or_detected(said->git_commit, out->own[2], detected->git_commit);
    out->deployment.git_branch = given_or_detected(said->git_branch, out->own[3], detected->git_branch);
    out->deployment.user = given_or_detected(said->user, NULL, detected->user);
    out->deployment.version = given_or_detected(said->version, NULL, detected->version);
}

static char *make_metadata(const struct build *build)
{
    const struct belay_deployment *deployment = build->deployment;
    struct edits edits = { .n = 0 };

    add_edit(&edits, "stack", quoted(build->name->stack));
    add_edit(&edits, "environment", quoted(build->name->environment));
    if (!build->only_lock) {
        add_edit(&edits, "last_updated", quoted_time(build->now_unix_ms));
        add_edit(&edits, "last_updated_by",
                 quoted(deployment != NULL && deployment->triggered_by != NULL ? deployment->triggered_by
                        : build->lock != NULL                                  ? build->lock->locked_by
                                                                               : NULL));
        add_number_edit(&edits, "serial", build->last_serial + 1);
        add_edit(&edits, "snapshot", quoted(build->snapshot));
    }
    if (!build->only_lock && deployment != NULL && !build->adopt) {
        add_edit(&edits, "deployment_id", quoted(deployment->deployment_id));
        add_edit(&edits, "git_commit", quoted(deployment->git_commit));
        add_edit(&edits, "git_branch", quoted(deployment->git_branch));
    }
    return apply_edits(&edits, doc_of(build->content), build->content == NULL ? 0 : build->content->metadata);
}

/* The token never decreases: a write without a lock keeps the current one. */
static char *make_lock(const struct build *build)
{
    const struct belay_state_lock *lock = build->lock;
    const struct belay_state *was = build->was;
    const char *by = lock != NULL ? lock->locked_by : was == NULL ? NULL : was->locked_by;
    bool locked = build->locked && lock != NULL;
    uint64_t token = lock != NULL ? lock->token : was == NULL ? 0 : was->token;
    struct edits edits = { .n = 0 };

    add_edit(&edits, "locked", strdup(locked ? "true" : "false"));
    add_edit(&edits, "lock_id", quoted(locked ? lock->lock_id : NULL));
    add_edit(&edits, "locked_by", quoted(locked ? by : NULL));
    add_edit(&edits, "locked_at", quoted_time(locked ? lock->locked_at_unix_ms : 0));
    add_edit(&edits, "expires_at", quoted_time(locked ? lock->expires_at_unix_ms : 0));
    if (token == 0) {
        add_edit(&edits, "token", strdup("null"));
    } else {
        add_number_edit(&edits, "token", token);
    }
    add_edit(&edits, "store", quoted(lock != NULL ? lock->store : was == NULL ? NULL : was->lock_store));
    add_edit(&edits, "last_locked_by", quoted(by));
    return apply_edits(&edits, doc_of(build->current), build->current == NULL ? 0 : build->current->lock);
}

/* The entry of that deployment; 0: there is none. */
static uint32_t find_deployment(const struct format *format, const char *id)
{
    const struct doc *doc = doc_of(format);

    if (format_newest(format) == 0 || id == NULL) {
        return 0;
    }
    doc_each_element(doc, format->history, at)
    {
        if (doc_is(doc, doc_member(doc, at, "deployment_id"), id)) {
            return at;
        }
    }
    return 0;
}

/* The content's history counts if it continues the current one, else the current one does. */
static const struct format *history_source(const struct build *build)
{
    char *newest = NULL;
    bool goes_on;

    if (format_newest(build->current) == 0) {
        return format_newest(build->content) == 0 ? NULL : build->content;
    }
    if (build->content == build->current || format_newest(build->content) == 0) {
        return build->current;
    }
    newest = format_string(build->current, format_newest(build->current), "deployment_id");
    goes_on = find_deployment(build->content, newest) != 0;
    free(newest);
    return goes_on ? build->content : build->current;
}

static void add_entry(struct buf *out, const struct build *build)
{
    const struct belay_deployment *deployment = build->deployment;
    char utc[CLOCK_TEXT_SIZE];
    const struct {
        const char *name;
        const char *text;
    } texts[] = {
        { "deployment_id", deployment->deployment_id },
        { "timestamp", clock_format_utc(utc, build->now_unix_ms, false) },
        { "triggered_by", deployment->triggered_by },
        { "user", deployment->user },
        { "git_commit", deployment->git_commit },
        { "git_branch", deployment->git_branch },
        { "version", deployment->version },
        { "status", deployment->status },
    };

    buf_adds(out, "{");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        buf_addf(out, "%s\n      \"%s\": ", i == 0 ? "" : ",", texts[i].name);
        doc_quote(out, texts[i].text);
    }
    if (deployment->duration_ms < 0) {
        buf_adds(out, ",\n      \"duration_seconds\": null");
    } else {
        buf_addf(out, ",\n      \"duration_seconds\": %" PRId64, deployment->duration_ms / 1000);
    }
    buf_addf(
        out,
        ",\n      \"resources_changed\": {\n        \"created\": %zu,\n        \"updated\": %zu,\n        "
        "\"deleted\": %zu\n      }\n    }",
        build->changes[BELAY_CREATED], build->changes[BELAY_UPDATED], build->changes[BELAY_DELETED]);
}

/* The content's entry for this deployment if it has one, else a new one. */
static void add_newest(struct buf *out, const struct build *build)
{
    uint32_t entry = find_deployment(build->content, build->deployment->deployment_id);

    buf_adds(out, "\n    ");
    if (entry != 0) {
        size_t len;
        const char *raw = doc_raw(&build->content->doc, entry, &len);

        buf_add(out, raw, len);
    } else {
        add_entry(out, build);
    }
}

static char *make_history(const struct build *build)
{
    const struct format *source = history_source(build);
    struct buf out = BUF_INIT(DOC_SIZE_MAX);
    size_t n = 0;

    buf_adds(&out, "[");
    if (build->deployment != NULL && find_deployment(source, build->deployment->deployment_id) == 0) {
        add_newest(&out, build);
        n++;
    }
    if (source != NULL) {
        doc_each_element(&source->doc, source->history, at)
        {
            size_t len;
            const char *raw = doc_raw(&source->doc, at, &len);

            if (n == BELAY_STATE_HISTORY_MAX) {
                break;
            }
            buf_adds(&out, n++ == 0 ? "\n    " : ",\n    ");
            buf_add(&out, raw, len);
        }
    }
    buf_adds(&out, n == 0 ? "]" : "\n  ]");
    return buf_take(&out);
}

/* ---- the whole ---------------------------------------------------------------- */

/* Members that a save writes, in the order in which missing ones are added. */
enum {
    MADE_VERSION,
    MADE_FORMAT,
    MADE_METADATA,
    MADE_LOCK,
    MADE_RESOURCES,
    MADE_OUTPUTS,
    MADE_HISTORY,
    N_MADE
};
static const char *const made_names[N_MADE] = { "version",   "format_version", "metadata",          "lock",
                                                "resources", "outputs",        "deployment_history" };
/* For content that lacks the member. */
static const char *const made_defaults[N_MADE] = { [MADE_VERSION] = "\"1.0.0\"",
                                                   [MADE_FORMAT] = "\"" BELAY_STATE_FORMAT "\"",
                                                   [MADE_RESOURCES] = "{}",
                                                   [MADE_OUTPUTS] = "{}" };

struct assembly {
    const struct build *build;
    char *made[N_MADE];           /* owned; NULL: the content's member is copied */
    struct buf text;              /* of the made members, as one object */
    struct doc doc;               /* of `text` */
    struct canon_member *members; /* owned; in the order of the new document */
    size_t n;
};

static bool make_parts(struct assembly *a)
{
    const struct doc *doc = doc_of(a->build->content);
    bool ok;

    a->made[MADE_METADATA] = make_metadata(a->build);
    a->made[MADE_LOCK] = make_lock(a->build);
    a->made[MADE_HISTORY] = make_history(a->build);
    ok = a->made[MADE_METADATA] != NULL && a->made[MADE_LOCK] != NULL && a->made[MADE_HISTORY] != NULL;
    for (size_t i = 0; i < N_MADE; i++) {
        if (made_defaults[i] != NULL && (doc == NULL || doc_member(doc, 0, made_names[i]) == 0)) {
            a->made[i] = strdup(made_defaults[i]);
            ok = ok && a->made[i] != NULL;
        }
    }
    return ok;
}

static enum belay_code index_made(struct assembly *a, struct belay_error *err)
{
    struct edit edits[N_MADE];

    for (size_t i = 0; i < N_MADE; i++) {
        edits[i] = (struct edit){ made_names[i], a->made[i] };
    }
    edit_object(&a->text, NULL, 0, edits, N_MADE, 2);
    return a->text.failed ? error_no_memory(err) : doc_scan(a->text.data, a->text.len, &a->doc, err);
}

static void add_made(struct assembly *a, const char *name)
{
    uint32_t value = doc_member(&a->doc, 0, name);

    assert(value != 0);
    a->members[a->n++] = (struct canon_member){ &a->doc, value - 1 };
}

/* A member of the content, or the made one that replaces it. */
static void add_member(struct assembly *a, const struct doc *doc, uint32_t name)
{
    for (size_t i = 0; i < N_MADE; i++) {
        if (a->made[i] != NULL && doc_is(doc, name, made_names[i])) {
            add_made(a, made_names[i]);
            return;
        }
    }
    if (!doc_is(doc, name, "checksums")) {
        a->members[a->n++] = (struct canon_member){ doc, name };
    }
}

/* The members of the new document: the content's in their order, then the rest. */
static enum belay_code collect_members(struct assembly *a, struct belay_error *err)
{
    const struct doc *doc = doc_of(a->build->content);
    size_t n = 0;
    struct canon_member *content = doc == NULL ? NULL : canon_members(doc, 0, &n);

    a->members = calloc(n + N_MADE, sizeof *a->members);
    if (a->members == NULL || (doc != NULL && content == NULL)) {
        free(content);
        return error_no_memory(err);
    }
    for (size_t i = 0; i < n; i++) {
        add_member(a, doc, content[i].name);
    }
    for (size_t i = 0; i < N_MADE; i++) {
        if (a->made[i] != NULL && (doc == NULL || doc_member(doc, 0, made_names[i]) == 0)) {
            add_made(a, made_names[i]);
        }
    }
    free(content);
    return BELAY_OK;
}

static char *write_out(const struct assembly *a, const char *checksums, size_t *out_len)
{
    size_t size = strlen(checksums) + 64;
    struct buf out = BUF_INIT(DOC_SIZE_MAX);

    for (size_t i = 0; i < a->n; i++) {
        const struct doc_node *nodes = a->members[i].doc->nodes + a->members[i].name;

        size += nodes[0].end - nodes[0].start + nodes[1].end - nodes[1].start + 16;
    }
    /* One allocation: growing a large one would copy it. */
    out.data = malloc(size);
    out.cap = out.data == NULL ? 0 : size;
    buf_adds(&out, "{");
    for (size_t i = 0; i < a->n; i++) {
        size_t name_len;
        size_t len;
        const char *name = doc_raw(a->members[i].doc, a->members[i].name, &name_len);
        const char *raw = doc_raw(a->members[i].doc, a->members[i].name + 1, &len);

        buf_adds(&out, i == 0 ? "\n  " : ",\n  ");
        buf_add(&out, name, name_len);
        buf_adds(&out, ": ");
        buf_add(&out, raw, len);
    }
    buf_addf(&out, ",\n  \"checksums\": ");
    buf_adds(&out, checksums);
    buf_adds(&out, "\n}\n");
    *out_len = out.len;
    return buf_take(&out);
}

enum belay_code build_text(const struct build *build, char **out_text, size_t *out_len,
                           struct belay_error *err)
{
    struct build with = *build;
    struct deployment_record record = { 0 };
    struct assembly a = { .build = &with, .text = BUF_INIT(DOC_SIZE_MAX) };
    const struct format *content = build->content;
    char *checksums = NULL;
    enum belay_code code;

    assert(build->only_lock == (build->snapshot == NULL));
    if (build->deployment != NULL) {
        deployment_record_make(build, &record);
        with.deployment = &record.deployment;
    }
    code = make_parts(&a) ? index_made(&a, err) : error_no_memory(err);
    if (code == BELAY_OK) {
        code = collect_members(&a, err);
    }
    if (code == BELAY_OK) {
        code = format_checksums(a.members, a.n, doc_of(content), content == NULL ? 0 : content->checksums,
                                &checksums, err);
    }
    if (code == BELAY_OK) {
        *out_text = write_out(&a, checksums, out_len);
        code = *out_text == NULL ? error_no_memory(err) : BELAY_OK;
    }
    free(checksums);
    free(a.members);
    doc_release(&a.doc);
    buf_release(&a.text);
    for (size_t i = 0; i < N_MADE; i++) {
        free(a.made[i]);
    }
    deployment_record_release(&record);
    return code;
}
