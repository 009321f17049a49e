#include "freeze/freeze_list.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"

/* ---- the list ---- */

static void frozen_keys_release(struct frozen_keys *freeze)
{
    free(freeze->pattern);
    free(freeze->reason);
    free(freeze->by);
    memset(freeze, 0, sizeof *freeze);
}

void freeze_list_release(struct freeze_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        frozen_keys_release(&list->items[i]);
    }
    free(list->items);
    memset(list, 0, sizeof *list);
}

bool freeze_list_add(struct freeze_list *list, const struct frozen_keys *freeze)
{
    struct frozen_keys *grown = realloc(list->items, (list->n + 1) * sizeof *grown);
    struct frozen_keys copy = *freeze;

    if (grown == NULL) {
        return false;
    }
    list->items = grown;
    copy.pattern = strdup(freeze->pattern);
    copy.reason = strdup(freeze->reason);
    copy.by = strdup(freeze->by);
    if (copy.pattern == NULL || copy.reason == NULL || copy.by == NULL) {
        frozen_keys_release(&copy);
        return false;
    }
    list->items[list->n++] = copy;
    return true;
}

void freeze_list_remove(struct freeze_list *list, size_t i)
{
    assert(i < list->n);
    frozen_keys_release(&list->items[i]);
    list->n--;
    memmove(&list->items[i], &list->items[i + 1], (list->n - i) * sizeof *list->items);
}

/* ---- as JSON ---- */

static bool read_frozen_keys(const json_t *entry, struct freeze_list *list)
{
    const char *id = json_string_value(json_object_get(entry, "id"));
    struct frozen_keys freeze = {
        .pattern = (char *)json_string_value(json_object_get(entry, "pattern")),
        .reason = (char *)json_string_value(json_object_get(entry, "reason")),
        .by = (char *)json_string_value(json_object_get(entry, "by")),
        .made_unix_ms = json_integer_value(json_object_get(entry, "made")),
        .from_unix_ms = json_integer_value(json_object_get(entry, "from")),
        .until_unix_ms = json_integer_value(json_object_get(entry, "until")),
        .ended_unix_ms = json_integer_value(json_object_get(entry, "ended")),
        .reported = json_is_true(json_object_get(entry, "reported")),
    };

    if (id == NULL || strlen(id) > BELAY_ID_MAX || freeze.pattern == NULL || freeze.reason == NULL ||
        freeze.by == NULL) {
        return false;
    }
    (void)snprintf(freeze.id, sizeof freeze.id, "%s", id);
    return freeze_list_add(list, &freeze);
}

enum belay_code freeze_list_read(const struct belay_item *item, struct freeze_list *out_list,
                                 struct belay_error *err)
{
    struct freeze_list list = { .version = item->version };
    json_t *root = item->version == 0 ? json_array() : json_loads(item->value, 0, NULL);
    bool is_right = json_is_array(root);

    for (size_t i = 0; is_right && i < json_array_size(root); i++) {
        is_right = read_frozen_keys(json_array_get(root, i), &list);
    }
    json_decref(root);
    if (!is_right) {
        freeze_list_release(&list);
        return error_set(err, BELAY_BAD_CONTENT,
                         "the store's list of freezes cannot be read, so no key is known not to be frozen");
    }
    *out_list = list;
    return BELAY_OK;
}

static void set_unix_ms(json_t *entry, const char *name, int64_t unix_ms)
{
    if (unix_ms != 0) {
        (void)json_object_set_new(entry, name, json_integer(unix_ms));
    }
}

char *freeze_list_write(const struct freeze_list *list)
{
    json_t *root = json_array();
    char *text = NULL;
    bool ok = root != NULL;

    for (size_t i = 0; ok && i < list->n; i++) {
        const struct frozen_keys *freeze = &list->items[i];
        json_t *entry = json_pack("{s:s, s:s, s:s, s:s}", "id", freeze->id, "pattern", freeze->pattern,
                                  "reason", freeze->reason, "by", freeze->by);

        set_unix_ms(entry, "made", freeze->made_unix_ms);
        set_unix_ms(entry, "from", freeze->from_unix_ms);
        set_unix_ms(entry, "until", freeze->until_unix_ms);
        set_unix_ms(entry, "ended", freeze->ended_unix_ms);
        if (freeze->reported) {
            (void)json_object_set_new(entry, "reported", json_true());
        }
        ok = entry != NULL && json_array_append_new(root, entry) == 0;
    }
    text = ok ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    return text;
}

/* ---- is it in force? ---- */

bool freeze_is_over(const struct frozen_keys *freeze, int64_t unix_ms)
{
    return freeze->ended_unix_ms != 0 || (freeze->until_unix_ms != 0 && unix_ms >= freeze->until_unix_ms);
}

bool freeze_in_force(const struct frozen_keys *freeze, struct freeze_now now, int64_t grace_ms)
{
    if (now.high_unix_ms < freeze->from_unix_ms) {
        return false;
    }
    /* A client has ended it: without a grace, for the first waiter, it is over whatever the clock says. */
    if (freeze->ended_unix_ms != 0) {
        return grace_ms > 0 && now.low_unix_ms < freeze->ended_unix_ms + grace_ms;
    }
    return freeze->until_unix_ms == 0 || now.low_unix_ms < freeze->until_unix_ms + grace_ms;
}

/* "frozen until 2026-11-28T00:00:00Z by alice: Black Friday". The caller frees it; NULL: no memory. */
static char *freeze_text(const struct frozen_keys *freeze)
{
    struct buf text = BUF_INIT(8192);
    char until[CLOCK_TEXT_SIZE];

    buf_adds(&text, "frozen");
    if (freeze->until_unix_ms != 0) {
        buf_addf(&text, " until %s",
                 clock_format_utc(until, freeze->until_unix_ms, freeze->until_unix_ms % 1000 != 0));
    }
    buf_addf(&text, " by %s: %s", freeze->by, freeze->reason);
    return buf_take(&text);
}

/* How long it lasts from now on, at most; INT64_MAX: no end. */
static int64_t left_ms(const struct frozen_keys *freeze, struct freeze_now now, int64_t grace_ms)
{
    int64_t end_ms = freeze->ended_unix_ms != 0 ? freeze->ended_unix_ms : freeze->until_unix_ms;

    return end_ms == 0 ? INT64_MAX : end_ms + grace_ms - now.low_unix_ms;
}

enum belay_code freeze_check(const struct freeze_list *list, const struct belay_batch *batch,
                             struct freeze_now now, struct belay_commit *out, struct belay_error *err)
{
    const struct frozen_keys *found = NULL;
    int64_t most_ms = -1;

    for (size_t i = 0; i < list->n; i++) {
        const struct frozen_keys *freeze = &list->items[i];

        if (!freeze_in_force(freeze, now, batch->freeze_grace_ms) ||
            left_ms(freeze, now, batch->freeze_grace_ms) <= most_ms) {
            continue;
        }
        for (size_t k = 0; k < batch->n_writes; k++) {
            if ((batch->writes[k].set & BELAY_SET_ACQUIRED) != 0 &&
                text_matches(batch->writes[k].key, freeze->pattern)) {
                found = freeze;
                most_ms = left_ms(freeze, now, batch->freeze_grace_ms);
            }
        }
    }
    if (found == NULL) {
        return BELAY_OK;
    }
    assert(most_ms >= 0 && out->frozen == NULL);
    out->frozen = freeze_text(found);
    out->frozen_for_ms = most_ms;
    return out->frozen == NULL ? error_no_memory(err) : error_set(err, BELAY_FROZEN, "%s", out->frozen);
}
