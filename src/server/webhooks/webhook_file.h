/* A file of the webhooks that are queued: one JSON object a line; a later line ends an earlier one. */
#ifndef SERVER_WEBHOOKS_WEBHOOK_FILE_H
#define SERVER_WEBHOOKS_WEBHOOK_FILE_H

#include <jansson.h>

#include "base/buf.h"
#include "belay.h"

struct webhook_file {
    int fd;     /* -1: no file */
    char *path; /* owned */
    struct buf out;
    bool has_news; /* an addition that must be on disk before its reply */
};

typedef void webhook_file_fn(void *context, json_t *record); /* takes the reference */

/*
 * Open it and call fn for each queued record, oldest first. `path` NULL: no file.
 * BELAY_HELD: another server uses it.
 */
enum belay_code webhook_file_open(struct webhook_file *file, const char *path, webhook_file_fn *fn,
                                  void *context, struct belay_error *err);
void webhook_file_close(struct webhook_file *file);
bool webhook_file_is_open(const struct webhook_file *file);

/* Both take effect with the next flush. */
void webhook_file_add(struct webhook_file *file, const json_t *record);
void webhook_file_end(struct webhook_file *file, const char *lock_id);

/* False with errno set: additions since the last flush are lost. */
bool webhook_file_flush(struct webhook_file *file);

#endif
