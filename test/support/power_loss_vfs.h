/*
 * An SQLite VFS on a machine that can lose power.
 *
 * It works on real files, never syncs them, and logs every write, truncation,
 * deletion and sync. Afterwards the log is replayed on a simulated disk: at any
 * point the disk knows the durable and the pending writes, and saves the files as a
 * power cut at that point would have left them.
 *
 *     run once, with the log:   w w s w w w s w s ...
 *     cut after each of them:        ^   writes that are not synced may be
 *                                        there or not, in pieces of 512 bytes
 */
#ifndef SUPPORT_POWER_LOSS_VFS_H
#define SUPPORT_POWER_LOSS_VFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POWER_LOSS_VFS "power_loss"

/* Register the VFS under that name; done once. */
bool power_loss_vfs_register(void);

struct power_loss_log;
struct power_loss_log *power_loss_log_new(void);
void power_loss_log_free(struct power_loss_log *log);

/* Log the operations of the VFS from now on; NULL: stop. */
void power_loss_vfs_record(struct power_loss_log *log);

size_t power_loss_log_length(const struct power_loss_log *log);
size_t power_loss_log_syncs(const struct power_loss_log *log);
bool power_loss_log_is_sync(const struct power_loss_log *log, size_t i);
/* How often the file of that name was written to, from entry `from` on. */
size_t power_loss_log_writes(const struct power_loss_log *log, const char *name, size_t from);

/* What a cut loses of the writes that were not synced. */
enum power_loss_kind {
    POWER_LOSS_ALL,     /* all of them */
    POWER_LOSS_NOTHING, /* none: as after the end of a process */
    POWER_LOSS_SOME     /* some pieces of 512 bytes, by the seed */
};

struct power_loss_disk;

/* An empty disk for the replay. From entry `lies_from` on a sync does nothing. */
struct power_loss_disk *power_loss_disk_new(const struct power_loss_log *log, size_t lies_from);
void power_loss_disk_free(struct power_loss_disk *disk);

/* Replay the next entry. */
void power_loss_disk_step(struct power_loss_disk *disk);

/* Write the files into a directory, as the cut leaves them. */
bool power_loss_disk_save(const struct power_loss_disk *disk, enum power_loss_kind kind, uint64_t seed,
                          const char *directory);

/* Start an empty log with those files, synced: the disk of a machine that boots after the cut. */
void power_loss_log_begin_with(struct power_loss_log *log, const struct power_loss_disk *disk,
                               enum power_loss_kind kind, uint64_t seed);

#endif
