/*
 * Snapshots: history/YYYY-MM-DD-HH-MM-SS.json; further ones of the same second end
 * in -2.json, -3.json. Other files in the folder are ignored.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "state/states.h"

enum { FOLDER_LEN = STATE_PATH_SIZE - SNAPSHOT_NAME_SIZE - 16 };

static bool parse_name(const char *name, int64_t *out_second, unsigned *out_number)
{
    struct tm tm = { 0 };
    char again[SNAPSHOT_NAME_SIZE];
    unsigned number = 1;
    int n = 0;
    int n_number = 0;

    if (strlen(name) >= SNAPSHOT_NAME_SIZE ||
        sscanf(name, "%4d-%2d-%2d-%2d-%2d-%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
               &tm.tm_min, &tm.tm_sec, &n) != 6) {
        return false;
    }
    if (name[n] == '-' && sscanf(name + n, "-%6u%n", &number, &n_number) != 1) {
        return false;
    }
    (void)snprintf(again, sizeof again, "%04d-%02d-%02d-%02d-%02d-%02d", tm.tm_year, tm.tm_mon, tm.tm_mday,
                   tm.tm_hour, tm.tm_min, tm.tm_sec);
    if (strncmp(again, name, (size_t)n) != 0 || strcmp(name + n + n_number, ".json") != 0) {
        return false;
    }
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    *out_second = (int64_t)timegm(&tm);
    *out_number = number;
    return true;
}

struct snapshot_listing {
    struct snapshots *snapshots;
    size_t skip; /* bytes of the folder's name */
    bool no_memory;
};

static bool on_entry(void *context, const struct belay_blob_entry *entry)
{
    struct snapshot_listing *listing = context;
    struct snapshots *list = listing->snapshots;
    struct snapshot item = { .size = entry->size };
    struct snapshot *grown;

    if (!parse_name(entry->name + listing->skip, &item.second, &item.number)) {
        return true;
    }
    grown = array_grow(list->items, sizeof *grown, list->n + 1, &list->cap);
    item.name = grown == NULL ? NULL : strdup(entry->name + listing->skip);
    listing->no_memory = item.name == NULL;
    if (grown != NULL) {
        list->items = grown;
        list->items[list->n] = item;
        list->n += item.name == NULL ? 0 : 1;
    }
    return !listing->no_memory;
}

static int newest_first(const void *a, const void *b)
{
    const struct snapshot *x = a;
    const struct snapshot *y = b;

    return x->second != y->second   ? (x->second < y->second ? 1 : -1)
           : x->number != y->number ? (x->number < y->number ? 1 : -1)
                                    : 0;
}

char *snapshot_path(char out[STATE_PATH_SIZE], const char *folder, const char *snapshot)
{
    (void)snprintf(out, STATE_PATH_SIZE, "%.*shistory/%s", FOLDER_LEN, folder, snapshot);
    return out;
}

enum belay_code snapshots_read(struct belay_states *states, const char *folder,
                               struct snapshots *out_snapshots, struct belay_error *err)
{
    struct snapshots snapshots = { 0 };
    char path[STATE_PATH_SIZE];
    struct snapshot_listing listing = { .snapshots = &snapshots,
                                        .skip = strlen(snapshot_path(path, folder, "")) };
    enum belay_code code = states->store->ops->list(states->store, path, true, on_entry, &listing, err);

    if (code == BELAY_OK && listing.no_memory) {
        code = error_no_memory(err);
    }
    if (code != BELAY_OK) {
        snapshots_release(&snapshots);
        return code;
    }
    if (snapshots.n > 0) {
        qsort(snapshots.items, snapshots.n, sizeof *snapshots.items, newest_first);
    }
    snapshots_release(out_snapshots);
    *out_snapshots = snapshots;
    return BELAY_OK;
}

void snapshots_release(struct snapshots *snapshots)
{
    for (size_t i = 0; i < snapshots->n; i++) {
        free(snapshots->items[i].name);
    }
    free(snapshots->items);
    *snapshots = (struct snapshots){ 0 };
}

/* A new snapshot sorts last even if the clock was set back. */
void snapshots_next(const struct snapshots *snapshots, int64_t now_unix_ms, char out[SNAPSHOT_NAME_SIZE])
{
    int64_t second = now_unix_ms / 1000;
    unsigned number = 1;
    char utc[CLOCK_TEXT_SIZE];
    char *to = out;

    if (snapshots->n > 0 && snapshots->items[0].second >= second) {
        second = snapshots->items[0].second;
        number = snapshots->items[0].number + 1;
    }
    for (const char *c = clock_format_utc(utc, second * 1000, false); *c != 'Z'; c++) {
        *to++ = *c == 'T' || *c == ':' ? '-' : *c;
    }
    if (number == 1) {
        strcpy(to, ".json");
    } else {
        (void)snprintf(to, SNAPSHOT_NAME_SIZE - 20, "-%u.json", number);
    }
}

bool snapshots_has(const struct snapshots *snapshots, const char *name)
{
    for (size_t i = 0; i < snapshots->n; i++) {
        if (strcmp(snapshots->items[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool has_content(struct belay_states *states, const char *path, const char *text, size_t len)
{
    struct belay_blob blob = { 0 };
    bool same = states->store->ops->get(states->store, path, &blob, NULL) == BELAY_OK && blob.len == len &&
                memcmp(blob.data, text, len) == 0;

    belay_blob_release(&blob);
    return same;
}

enum belay_code snapshot_put(struct belay_states *states, const char *folder, const char *snapshot,
                             const char *text, size_t len, struct belay_error *err)
{
    char path[STATE_PATH_SIZE];
    struct belay_blob_tag tag;
    enum belay_code code;

    (void)snapshot_path(path, folder, snapshot);
    code = states->store->ops->put_if(states->store, path, text, len, NULL, &tag, err);
    return code == BELAY_REFUSED && has_content(states, path, text, len) ? BELAY_OK : code;
}

/* Removes those that are over the count and too old. */
static void prune_snapshots(struct belay_states *states, const char *folder,
                            const struct snapshots *snapshots)
{
    int64_t oldest = (states_now(states) - states->keep_for_ms) / 1000;

    for (size_t i = 1; i < snapshots->n; i++) {
        struct belay_error err = BELAY_ERROR_INIT;
        char path[STATE_PATH_SIZE];

        if (i < (size_t)states->keep_snapshots ||
            (i < BELAY_STATE_SNAPSHOTS_MAX && snapshots->items[i].second >= oldest)) {
            continue;
        }
        if (states->store->ops->remove(states->store, snapshot_path(path, folder, snapshots->items[i].name),
                                       &err) != BELAY_OK) {
            states_warn(states, "cannot remove an old snapshot: %s", err.text);
            belay_error_release(&err);
            return;
        }
    }
}

void snapshot_add(struct belay_states *states, const char *folder, const char *snapshot, const char *what,
                  const char *text, size_t len)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct snapshots snapshots = { 0 };

    if (snapshot_put(states, folder, snapshot, text, len, &err) != BELAY_OK ||
        snapshots_read(states, folder, &snapshots, &err) != BELAY_OK) {
        states_warn(states, "the %s is saved, but its snapshot is not: %s", what, err.text);
    } else {
        prune_snapshots(states, folder, &snapshots);
    }
    snapshots_release(&snapshots);
    belay_error_release(&err);
}

/* ---- the public API ------------------------------------------------------------------ */

static const char *timestamp(char out[CLOCK_TEXT_SIZE], const struct snapshot *snapshot)
{
    return clock_format_utc(out, snapshot->second * 1000, false);
}

enum belay_code snapshots_list(struct belay_states *states, const char *folder, belay_snapshot_fn fn,
                               void *context, struct belay_error *err)
{
    struct snapshots snapshots = { 0 };
    enum belay_code code = snapshots_read(states, folder, &snapshots, err);

    for (size_t i = 0; code == BELAY_OK && i < snapshots.n; i++) {
        char utc[CLOCK_TEXT_SIZE];
        struct belay_snapshot shown = { i + 1, snapshots.items[i].name, timestamp(utc, &snapshots.items[i]),
                                        snapshots.items[i].size };

        if (!fn(context, &shown)) {
            break;
        }
    }
    snapshots_release(&snapshots);
    return code;
}

enum belay_code belay_state_snapshots(struct belay_states *states, const struct belay_state_name *name,
                                      belay_snapshot_fn fn, void *context, struct belay_error *err)
{
    char folder[STATE_PATH_SIZE];
    enum belay_code code = state_name_check(name, err);

    return code == BELAY_OK ? snapshots_list(states, state_path(folder, name, ""), fn, context, err) : code;
}

/* A name with or without ".json", or a time as the list prints it (of one second the newest). */
static bool snapshot_matches(const struct snapshot *snapshot, const char *which)
{
    char utc[CLOCK_TEXT_SIZE];
    size_t n = strlen(which);

    return strcmp(which, timestamp(utc, snapshot)) == 0 || strcmp(which, snapshot->name) == 0 ||
           (strncmp(which, snapshot->name, n) == 0 && strcmp(snapshot->name + n, ".json") == 0);
}

static bool parse_index(const char *which, size_t *out_index)
{
    char *end;
    unsigned long long index = strtoull(which, &end, 10);

    if (which[0] < '0' || which[0] > '9' || *end != '\0' || strlen(which) > 9) {
        return false;
    }
    *out_index = (size_t)index;
    return true;
}

enum belay_code snapshots_find(struct belay_states *states, const char *folder, const char *which,
                               char **out_name, struct belay_error *err)
{
    struct snapshots snapshots = { 0 };
    enum belay_code code = snapshots_read(states, folder, &snapshots, err);
    size_t index = strcmp(which, "latest") == 0 ? 1 : 0;

    if (code != BELAY_OK) {
        return code;
    }
    if (index == 0 && !parse_index(which, &index)) {
        for (size_t i = 0; index == 0 && i < snapshots.n; i++) {
            index = snapshot_matches(&snapshots.items[i], which) ? i + 1 : 0;
        }
    }
    if (snapshots.n == 0) {
        code = error_set(err, BELAY_NOT_FOUND,
                         "there is no snapshot '%.100s' in %.300s: there is none at all", which, folder);
    } else if (index == 0 || index > snapshots.n) {
        code = error_set(err, BELAY_NOT_FOUND,
                         "there is no snapshot '%.100s' in %.300s: give 'latest', a number from 1 to "
                         "%zu, or a time such as 2024-01-15T14:20:00Z; 'belay state history' lists them",
                         which, folder, snapshots.n);
    } else {
        *out_name = strdup(snapshots.items[index - 1].name);
        code = *out_name == NULL ? error_no_memory(err) : BELAY_OK;
    }
    snapshots_release(&snapshots);
    return code;
}

enum belay_code belay_state_find_snapshot(struct belay_states *states, const struct belay_state_name *name,
                                          const char *which, char **out_name, struct belay_error *err)
{
    char folder[STATE_PATH_SIZE];
    enum belay_code code = state_name_check(name, err);

    return code == BELAY_OK ? snapshots_find(states, state_path(folder, name, ""), which, out_name, err)
                            : code;
}
