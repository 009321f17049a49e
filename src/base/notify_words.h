/*
 * The words that the setting `notify` understands. The configuration checks them, and the server uses them:
 * src/server/notify.
 */
#ifndef BASE_NOTIFY_WORDS_H
#define BASE_NOTIFY_WORDS_H

#include <stdbool.h>
#include <stddef.h>

struct word_list {
    const char *const *words;
    size_t n;
};

extern const struct word_list notify_events;
extern const struct word_list notify_formats;      /* in the order of enum notify_format */
extern const struct word_list notify_placeholders; /* of a template, without their braces */

/* The index of a word of `len` bytes; list->n if it is not in the list. */
size_t word_find(const struct word_list *list, const char *word, size_t len);

/*
 * The next placeholder at or after `text`: *out_at is its '{', *out_index its index in notify_placeholders, or that
 * list's n if there is no such placeholder. Returns what follows it; NULL: there is none.
 */
const char *notify_next_placeholder(const char *text, const char **out_at, size_t *out_index);

#endif
