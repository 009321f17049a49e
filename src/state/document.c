/* Opaque documents, such as Terraform's: versions are told apart by content alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "state/states.h"

enum { FOLDER_MAX = 2 * BELAY_BLOB_PART_MAX };

/* "FOLDER/", checked. */
static enum belay_code check_folder(const char *folder, char out[STATE_PATH_SIZE], struct belay_error *err)
{
    enum belay_code code = belay_blob_name_check(folder, err);

    if (code == BELAY_OK && strlen(folder) > FOLDER_MAX) {
        code =
            error_set(err, BELAY_INVALID, "the name '%.100s...' is longer than %d bytes", folder, FOLDER_MAX);
    }
    if (code == BELAY_OK) {
        (void)snprintf(out, STATE_PATH_SIZE, "%s/", folder);
    }
    return code;
}

static char *document_path(char out[STATE_PATH_SIZE], const char *folder)
{
    (void)snprintf(out, STATE_PATH_SIZE, "%.*sstate.json", STATE_PATH_SIZE - 16, folder);
    return out;
}

enum belay_code belay_document_reload(struct belay_states *states, const char *folder,
                                      const struct belay_blob_tag *known, struct belay_blob *out_document,
                                      struct belay_error *err)
{
    char checked[STATE_PATH_SIZE];
    char path[STATE_PATH_SIZE];
    enum belay_code code = check_folder(folder, checked, err);

    return code == BELAY_OK ? states_get(states, document_path(path, checked), known, out_document, err)
                            : code;
}

enum belay_code belay_document_load(struct belay_states *states, const char *folder,
                                    struct belay_blob *out_document, struct belay_error *err)
{
    return belay_document_reload(states, folder, NULL, out_document, err);
}

enum belay_code belay_document_check(const char *text, size_t len, struct belay_error *err)
{
    struct doc doc = { 0 };
    enum belay_code code = doc_scan(text, len, &doc, err);

    if (code == BELAY_OK && doc_kind(&doc, 0) != '{') {
        code = error_set(err, BELAY_BAD_CONTENT, "not a JSON object");
    }
    doc_release(&doc);
    return code;
}

static enum belay_code is_unchanged(struct belay_states *states, const char *folder,
                                    const struct belay_blob *before, bool *out_is_unchanged,
                                    struct belay_error *err)
{
    struct belay_blob now = { 0 };
    char path[STATE_PATH_SIZE];
    enum belay_code code = states_get(states, document_path(path, folder), &before->tag, &now, err);

    *out_is_unchanged = code == BELAY_OK && (now.data == NULL || strcmp(now.tag.text, before->tag.text) == 0);
    belay_blob_release(&now);
    return code == BELAY_NOT_FOUND ? BELAY_OK : code;
}

/* The current version gets a snapshot if the newest one differs: its writer died before the snapshot. */
static enum belay_code ensure_document_snapshot(struct belay_states *states, const char *folder,
                                                const struct belay_blob *before, struct snapshots *snapshots,
                                                struct belay_error *err)
{
    struct belay_blob newest = { 0 };
    char path[STATE_PATH_SIZE];
    char name[SNAPSHOT_NAME_SIZE];
    bool is_there;
    enum belay_code code = is_unchanged(states, folder, before, &is_there, err);

    if (code != BELAY_OK || !is_there) {
        return code; /* the write will be refused */
    }
    if (snapshots->n > 0 && snapshots->items[0].size == before->len) {
        code = states->store->ops->get(states->store, snapshot_path(path, folder, snapshots->items[0].name),
                                       &newest, err);
        code = code == BELAY_NOT_FOUND ? BELAY_OK : code;
    }
    if (code == BELAY_OK && (newest.data == NULL || newest.len != before->len ||
                             memcmp(newest.data, before->data, newest.len) != 0)) {
        snapshots_next(snapshots, states_now(states), name);
        code = snapshot_put(states, folder, name, before->data, before->len, err);
        code =
            code == BELAY_OK || code == BELAY_REFUSED ? snapshots_read(states, folder, snapshots, err) : code;
    }
    belay_blob_release(&newest);
    return code;
}

enum belay_code belay_document_save(struct belay_states *states, const char *folder, const void *data,
                                    size_t len, const struct belay_document_write *write,
                                    struct belay_blob_tag *out_tag, struct belay_error *err)
{
    const struct belay_blob *before = write == NULL ? NULL : write->before;
    struct belay_blob_put put = { .data = data,
                                  .len = len,
                                  .expected = before == NULL ? NULL : &before->tag };
    struct snapshots snapshots = { 0 };
    char checked[STATE_PATH_SIZE];
    char path[STATE_PATH_SIZE];
    char name[SNAPSHOT_NAME_SIZE];
    enum belay_code code = check_folder(folder, checked, err);

    if (code == BELAY_OK) {
        code = snapshots_read(states, checked, &snapshots, err);
    }
    if (code == BELAY_OK && before != NULL) {
        code = ensure_document_snapshot(states, checked, before, &snapshots, err);
    }
    if (code == BELAY_OK) {
        put.name = document_path(path, checked);
        code = states_put(states, &put, write == NULL ? NULL : write->lock, out_tag, err);
    }
    if (code == BELAY_OK) {
        snapshots_next(&snapshots, states_now(states), name);
        snapshot_add(states, checked, name, "document", data, len);
    }
    if (code == BELAY_REFUSED) {
        code = error_set(err, BELAY_NOT_HOLDER, "'%.300s' has changed since it was loaded; nothing was saved",
                         folder);
    }
    snapshots_release(&snapshots);
    return code;
}

enum belay_code belay_document_snapshots(struct belay_states *states, const char *folder,
                                         belay_snapshot_fn fn, void *context, struct belay_error *err)
{
    char checked[STATE_PATH_SIZE];
    enum belay_code code = check_folder(folder, checked, err);

    return code == BELAY_OK ? snapshots_list(states, checked, fn, context, err) : code;
}

enum belay_code belay_document_load_snapshot(struct belay_states *states, const char *folder,
                                             const char *which, struct belay_blob *out_document,
                                             struct belay_error *err)
{
    char checked[STATE_PATH_SIZE];
    char path[STATE_PATH_SIZE];
    char *name = NULL;
    enum belay_code code = check_folder(folder, checked, err);

    if (code == BELAY_OK) {
        code = snapshots_find(states, checked, which, &name, err);
    }
    if (code == BELAY_OK) {
        code = states->store->ops->get(states->store, snapshot_path(path, checked, name), out_document, err);
    }
    free(name);
    return code;
}

enum belay_code belay_document_remove(struct belay_states *states, const char *folder,
                                      const struct belay_state_lock *lock, struct belay_error *err)
{
    char checked[STATE_PATH_SIZE];
    char path[STATE_PATH_SIZE];
    enum belay_code code = check_folder(folder, checked, err);

    return code == BELAY_OK ? states_remove(states, document_path(path, checked), lock, err) : code;
}

/* ---- listing ---------------------------------------------------------- */

struct document_listing {
    struct belay_states *states;
    const char *folder; /* with its '/' */
    belay_document_fn fn;
    void *context;
    struct belay_error *err;
    enum belay_code code;
    bool stopped;
    char name[BELAY_BLOB_PART_MAX + 1];
};

bool folder_name(const char *text, char out[BELAY_BLOB_PART_MAX + 1])
{
    size_t n = strlen(text);

    if (n < 2 || text[n - 1] != '/' || n > BELAY_BLOB_PART_MAX) {
        return false;
    }
    (void)snprintf(out, BELAY_BLOB_PART_MAX + 1, "%.*s", (int)(n - 1), text);
    return true;
}

static bool on_document(void *context, const struct belay_blob_entry *entry)
{
    struct document_listing *listing = context;
    const char *rest = entry->name + strlen(listing->folder) + strlen(listing->name);

    if (strcmp(rest, "/state.json") == 0) {
        listing->stopped =
            !listing->fn(listing->context, listing->name, entry->size, entry->modified_unix_ms);
    }
    return false; /* only the first name with this prefix can match */
}

/* A folder may have snapshots only: its document was removed. */
static bool on_folder(void *context, const struct belay_blob_entry *entry)
{
    struct document_listing *listing = context;
    struct belay_blob_store *store = listing->states->store;
    char path[STATE_PATH_SIZE];

    if (!folder_name(entry->name + strlen(listing->folder), listing->name)) {
        return true;
    }
    listing->code =
        store->ops->list(store, document_path(path, entry->name), true, on_document, listing, listing->err);
    return listing->code == BELAY_OK && !listing->stopped;
}

enum belay_code documents_list(struct belay_states *states, const char *folder, belay_document_fn fn,
                               void *context, struct belay_error *err)
{
    struct document_listing listing = {
        .states = states, .folder = folder, .fn = fn, .context = context, .err = err
    };
    enum belay_code code = states->store->ops->list(states->store, folder, true, on_folder, &listing, err);

    return code == BELAY_OK ? listing.code : code;
}

enum belay_code belay_document_list(struct belay_states *states, const char *folder, belay_document_fn fn,
                                    void *context, struct belay_error *err)
{
    char checked[STATE_PATH_SIZE];
    enum belay_code code = check_folder(folder, checked, err);

    return code == BELAY_OK ? documents_list(states, checked, fn, context, err) : code;
}
