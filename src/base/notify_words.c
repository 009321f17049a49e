#include "base/notify_words.h"

#include <string.h>

/* clang-format off */
static const char *const event_words[] = {
    "lock.acquired", "lock.adopted", "lock.expired", "lock.forced", "lock.lost", "lock.reentered", "lock.refused",
    "lock.released", "lock.renewed", "lock.stale", "lock.taken_over", "lock.unprotected",
    "held.long", "wait.began", "wait.ended", "wait.long",
    "freeze.begun", "freeze.ended",
    "db.stop.decided", "db.stop.stopped", "db.stop.skipped", "db.stop.skipped_lock", "db.stop.skipped_shared_active",
    "db.stop.error",
    "db.start.decided", "db.start.started", "db.start.skipped", "db.start.skipped_lock", "db.start.error",
};
static const char *const format_words[] = { "json", "slack", "teams" };
static const char *const placeholder_words[] = {
    "title", "event", "key", "holder", "name", "by", "reason", "outcome", "duration", "token", "time", "url",
    "correlation_id", "metadata",
};
/* clang-format on */
#define WORDS(array)                                                                                         \
    {                                                                                                        \
        array, sizeof(array) / sizeof(array)[0]                                                              \
    }

const struct word_list notify_events = WORDS(event_words);
const struct word_list notify_formats = WORDS(format_words);
const struct word_list notify_placeholders = WORDS(placeholder_words);

size_t word_find(const struct word_list *list, const char *word, size_t len)
{
    size_t i = 0;

    while (i < list->n && (strncmp(list->words[i], word, len) != 0 || list->words[i][len] != '\0')) {
        i++;
    }
    return i;
}

const char *notify_next_placeholder(const char *text, const char **out_at, size_t *out_index)
{
    const char *open = strchr(text, '{');
    size_t len;

    if (open == NULL) {
        return NULL;
    }
    len = strcspn(open + 1, "{}");
    *out_at = open;
    *out_index =
        open[1 + len] == '}' ? word_find(&notify_placeholders, open + 1, len) : notify_placeholders.n;
    return open + 1 + len + (open[1 + len] == '}');
}
