/* Shared by losing_vfs.c, which writes the log, and losing_disk.c, which plays it. */
#ifndef SUPPORT_LOSING_INTERNAL_H
#define SUPPORT_LOSING_INTERNAL_H

#include "support/losing_vfs.h"

enum losing_what {
    LOSING_WRITE,
    LOSING_TRUNCATE,
    LOSING_DELETE,
    LOSING_SYNC,
    LOSING_SYNC_DIRECTORY /* what was deleted stays deleted */
};

struct losing_entry {
    enum losing_what what;
    int file;
    size_t at; /* offset; for a truncation the size that is left */
    size_t n;
    unsigned char *data; /* owned by the log */
};

/* The number of the file of that name, whatever directory it is in. */
int losing_log_file(struct losing_log *log, const char *name);
void losing_log_add(struct losing_log *log, const struct losing_entry *entry, const void *data);

#endif
