/* Shared by power_loss_vfs.c, which writes the log, and power_loss_disk.c, which plays it. */
#ifndef SUPPORT_POWER_LOSS_INTERNAL_H
#define SUPPORT_POWER_LOSS_INTERNAL_H

#include "support/power_loss_vfs.h"

enum power_loss_what {
    POWER_LOSS_WRITE,
    POWER_LOSS_TRUNCATE,
    POWER_LOSS_DELETE,
    POWER_LOSS_SYNC,
    POWER_LOSS_SYNC_DIRECTORY /* what was deleted stays deleted */
};

struct power_loss_entry {
    enum power_loss_what what;
    int file;
    size_t at; /* offset; for a truncation the size that is left */
    size_t n;
    unsigned char *data; /* owned by the log */
};

/* The number of the file of that name, whatever directory it is in. */
int power_loss_log_file(struct power_loss_log *log, const char *name);
void power_loss_log_add(struct power_loss_log *log, const struct power_loss_entry *entry, const void *data);

#endif
