/* The webhooks that are in line, in a file: one JSON object a line, those that ended crossed out by a later line. */
#ifndef SERVER_WEBHOOKS_WEBHOOK_FILE_H
#define SERVER_WEBHOOKS_WEBHOOK_FILE_H

#include <jansson.h>

#include "base/buf.h"
#include "belay.h"

struct hook_file {
    int fd;     /* -1: nothing is kept */
    char *path; /* owned */
    struct buf out;
    bool has_news; /* something that must be on disk before it is answered */
};

typedef void hook_file_fn(void *context, json_t *record); /* takes the reference */

/*
 * Open it and hand out what is in line, oldest first. `path` NULL: keep nothing.
 * BELAY_HELD: another server uses it.
 */
enum belay_code hook_file_open(struct hook_file *file, const char *path, hook_file_fn *fn, void *context,
                               struct belay_error *err);
void hook_file_close(struct hook_file *file);
bool hook_file_is_open(const struct hook_file *file);

/* Both take effect with the next flush. */
void hook_file_add(struct hook_file *file, const json_t *record);
void hook_file_end(struct hook_file *file, const char *lock_id);

/* False with errno set: what was added since the last flush is not kept. */
bool hook_file_flush(struct hook_file *file);

#endif
