#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "lock/info.h"

/* Most records that are released were never filled, or were moved. */
static bool owns_nothing(const struct belay_record *record)
{
    return record->key == NULL && record->lock_id == NULL && record->released_ids == NULL &&
           record->owner == NULL && record->owner_name == NULL && record->acquired_by == NULL &&
           record->metadata == NULL && record->tickets == NULL && record->intents == NULL &&
           record->holders == NULL && record->text == NULL;
}

static void free_unless_packed(const struct belay_record *record, char *text)
{
    if (!belay_record_has_text(record, text)) {
        free(text);
    }
}

static void free_holders(struct belay_record *record)
{
    for (size_t i = 0; i < record->n_holders; i++) {
        free_unless_packed(record, record->holders[i].lock_id);
        free_unless_packed(record, record->holders[i].owner);
        free_unless_packed(record, record->holders[i].owner_name);
        free_unless_packed(record, record->holders[i].acquired_by);
        meta_free(record->holders[i].metadata, record->holders[i].n_metadata);
    }
    free(record->holders);
}

static void free_content(struct belay_record *record)
{
    free_unless_packed(record, record->key);
    free_unless_packed(record, record->lock_id);
    for (size_t i = 0; i < record->n_released_ids; i++) {
        free_unless_packed(record, record->released_ids[i]);
    }
    free(record->released_ids);
    free_unless_packed(record, record->owner);
    free_unless_packed(record, record->owner_name);
    free_unless_packed(record, record->acquired_by);
    meta_free(record->metadata, record->n_metadata);
    for (size_t i = 0; i < record->n_tickets; i++) {
        if (record->tickets[i].packed) {
            continue;
        }
        free(record->tickets[i].lock_id);
        free(record->tickets[i].key);
        free(record->tickets[i].owner);
        free(record->tickets[i].owner_name);
        free(record->tickets[i].acquired_by);
    }
    free(record->tickets);
    for (size_t i = 0; i < record->n_intents; i++) {
        free(record->intents[i].lock_id);
        free(record->intents[i].key);
    }
    free(record->intents);
    free_holders(record);
    free(record->text);
}

void belay_record_release(struct belay_record *record)
{
    if (!owns_nothing(record)) {
        free_content(record);
    }
    memset(record, 0, sizeof *record);
}

static void copy_tickets(const struct belay_record *from, struct belay_record *to, bool *ok)
{
    to->tickets = calloc(from->n_tickets, sizeof *to->tickets);
    if (to->tickets == NULL) {
        *ok = false;
        return;
    }
    to->n_tickets = from->n_tickets;
    for (size_t i = 0; i < from->n_tickets; i++) {
        to->tickets[i] = from->tickets[i];
        to->tickets[i].packed = false;
        to->tickets[i].text_size = 0;
        to->tickets[i].lock_id = text_copy(from->tickets[i].lock_id, ok);
        to->tickets[i].key = text_copy(from->tickets[i].key, ok);
        to->tickets[i].owner = text_copy(from->tickets[i].owner, ok);
        to->tickets[i].owner_name = text_copy(from->tickets[i].owner_name, ok);
        to->tickets[i].acquired_by = text_copy(from->tickets[i].acquired_by, ok);
    }
}

static void copy_intents(const struct belay_record *from, struct belay_record *to, bool *ok)
{
    to->intents = calloc(from->n_intents, sizeof *to->intents);
    if (to->intents == NULL) {
        *ok = false;
        return;
    }
    to->n_intents = from->n_intents;
    for (size_t i = 0; i < from->n_intents; i++) {
        to->intents[i] = from->intents[i];
        to->intents[i].lock_id = text_copy(from->intents[i].lock_id, ok);
        to->intents[i].key = text_copy(from->intents[i].key, ok);
    }
}

static void copy_holders(const struct belay_record *from, struct belay_record *to, bool *ok)
{
    to->holders = calloc(from->n_holders, sizeof *to->holders);
    if (to->holders == NULL) {
        *ok = false;
        return;
    }
    to->n_holders = from->n_holders;
    for (size_t i = 0; i < from->n_holders; i++) {
        const struct belay_holder *holder = &from->holders[i];

        to->holders[i] = *holder;
        to->holders[i].lock_id = text_copy(holder->lock_id, ok);
        to->holders[i].owner = text_copy(holder->owner, ok);
        to->holders[i].owner_name = text_copy(holder->owner_name, ok);
        to->holders[i].acquired_by = text_copy(holder->acquired_by, ok);
        to->holders[i].metadata = meta_copy(holder->metadata, holder->n_metadata);
        to->holders[i].n_metadata = to->holders[i].metadata == NULL ? 0 : holder->n_metadata;
        *ok = *ok && to->holders[i].n_metadata == holder->n_metadata;
    }
}

static void copy_released(const struct belay_record *from, struct belay_record *to, bool *ok)
{
    to->released_ids = calloc(from->n_released_ids, sizeof *to->released_ids);
    if (to->released_ids == NULL) {
        *ok = false;
        return;
    }
    to->n_released_ids = from->n_released_ids;
    for (size_t i = 0; i < from->n_released_ids; i++) {
        to->released_ids[i] = text_copy(from->released_ids[i], ok);
    }
}

bool belay_record_copy(const struct belay_record *from, struct belay_record *out_record)
{
    struct belay_record copy = *from;
    bool ok = true;

    copy.metadata = NULL;
    copy.tickets = NULL;
    copy.text = NULL;
    copy.text_size = 0;
    copy.intents = NULL;
    copy.holders = NULL;
    copy.released_ids = NULL;
    copy.n_metadata = copy.n_tickets = copy.n_intents = copy.n_holders = copy.n_released_ids = 0;
    copy.key = text_copy(from->key, &ok);
    copy.lock_id = text_copy(from->lock_id, &ok);
    copy.owner = text_copy(from->owner, &ok);
    copy.owner_name = text_copy(from->owner_name, &ok);
    copy.acquired_by = text_copy(from->acquired_by, &ok);
    if (from->n_metadata > 0) {
        copy.metadata = meta_copy(from->metadata, from->n_metadata);
        copy.n_metadata = copy.metadata == NULL ? 0 : from->n_metadata;
        ok = ok && copy.metadata != NULL;
    }
    if (from->n_tickets > 0) {
        copy_tickets(from, &copy, &ok);
    }
    if (from->n_intents > 0) {
        copy_intents(from, &copy, &ok);
    }
    if (from->n_holders > 0) {
        copy_holders(from, &copy, &ok);
    }
    if (from->n_released_ids > 0) {
        copy_released(from, &copy, &ok);
    }
    if (!ok) {
        belay_record_release(&copy);
        return false;
    }
    *out_record = copy;
    return true;
}

const struct belay_holder *record_find_holder(const struct belay_record *record, const char *lock_id)
{
    assert(lock_id != NULL);
    for (size_t i = 0; i < record->n_holders; i++) {
        if (strcmp(record->holders[i].lock_id, lock_id) == 0) {
            return &record->holders[i];
        }
    }
    return NULL;
}

bool record_was_released(const struct belay_record *record, const char *lock_id)
{
    for (size_t i = 0; i < record->n_released_ids; i++) {
        if (strcmp(record->released_ids[i], lock_id) == 0) {
            return true;
        }
    }
    return false;
}

bool belay_record_note_released(struct belay_record *record, const char *lock_id)
{
    size_t n = record->n_released_ids;
    char *copy = strdup(lock_id);
    char **ids;

    if (n > 0 && copy != NULL && strcmp(record->released_ids[0], lock_id) == 0) {
        free(copy);
        return true;
    }
    ids = n == BELAY_RELEASED_MAX ? record->released_ids
                                  : realloc(record->released_ids, (n + 1) * sizeof *record->released_ids);
    record->released_ids = ids != NULL ? ids : record->released_ids;
    if (copy == NULL || ids == NULL) {
        free(copy);
        return false;
    }
    if (n == BELAY_RELEASED_MAX) {
        free_unless_packed(record, ids[--n]);
    }
    assert(n < BELAY_RELEASED_MAX);
    memmove(ids + 1, ids, n * sizeof *ids);
    ids[0] = copy;
    record->n_released_ids = n + 1;
    return true;
}

void belay_record_forget_released(struct belay_record *record)
{
    while (record->n_released_ids > 0) {
        free_unless_packed(record, record->released_ids[--record->n_released_ids]);
    }
}

/* Set *to to a copy of `from`, or to `from` itself if it is part of record->text. */
static bool show_text(const struct belay_record *record, char **to, char *from)
{
    char *shown = from;

    if (*to != NULL && from != NULL && strcmp(*to, from) == 0) {
        return true;
    }
    if (from == NULL || !belay_record_has_text(record, from)) {
        shown = strdup(from == NULL ? "" : from);
    }
    if (shown == NULL) {
        return false;
    }
    free_unless_packed(record, *to);
    *to = shown;
    return true;
}

static bool show_metadata(struct belay_record *record, const struct belay_holder *holder)
{
    bool same = record->n_metadata == holder->n_metadata;
    struct belay_meta *copy;

    for (size_t i = 0; same && i < holder->n_metadata; i++) {
        same = strcmp(record->metadata[i].name, holder->metadata[i].name) == 0 &&
               strcmp(record->metadata[i].value, holder->metadata[i].value) == 0;
    }
    if (same) {
        return true;
    }
    copy = meta_copy(holder->metadata, holder->n_metadata);
    if (copy == NULL && holder->n_metadata > 0) {
        return false;
    }
    meta_free(record->metadata, record->n_metadata);
    record->metadata = copy;
    record->n_metadata = holder->n_metadata;
    return true;
}

bool belay_record_show(struct belay_record *record, const struct belay_holder *holder)
{
    struct belay_holder shown = *holder;

    if (!show_text(record, &record->lock_id, holder->lock_id) ||
        !show_text(record, &record->owner, holder->owner) ||
        !show_text(record, &record->owner_name, holder->owner_name) ||
        !show_text(record, &record->acquired_by, holder->acquired_by) || !show_metadata(record, holder)) {
        return false;
    }
    /* All other fields are the holder's. */
    shown.lock_id = record->lock_id;
    shown.owner = record->owner;
    shown.owner_name = record->owner_name;
    shown.acquired_by = record->acquired_by;
    shown.metadata = record->metadata;
    record->holder = shown;
    return true;
}

bool record_show_holder(struct belay_record *record, const char *lock_id)
{
    const struct belay_holder *holder = record_find_holder(record, lock_id);

    return holder == NULL || strcmp(record->lock_id, lock_id) == 0 || belay_record_show(record, holder);
}

void belay_commit_release(struct belay_commit *commit)
{
    for (size_t i = 0; i < commit->n_records; i++) {
        belay_record_release(&commit->records[i]);
    }
    free(commit->records);
    free(commit->frozen);
    memset(commit, 0, sizeof *commit);
}

void belay_item_release(struct belay_item *item)
{
    free(item->name);
    free(item->value);
    memset(item, 0, sizeof *item);
}
