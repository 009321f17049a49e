/*
 * An SQLite VFS whose machine can lose power.
 *
 * It works on real files, never syncs them, and keeps a log of everything that
 * was written, truncated, deleted and synced. Afterwards a disk is made from
 * the log: played up to any point, it knows what was on the plate for sure and
 * what was only on its way, and gives the files as a power cut at that point
 * would have left them.
 *
 *     run once, with the log:   w w s w w w s w s ...
 *     cut after each of them:        ^   what is not synced may be there or
 *                                        not, in pieces of 512 bytes
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

/* From now on what the VFS does goes into this log; NULL: into none. */
void power_loss_vfs_record(struct power_loss_log *log);

size_t power_loss_log_length(const struct power_loss_log *log);
size_t power_loss_log_syncs(const struct power_loss_log *log);
bool power_loss_log_is_sync(const struct power_loss_log *log, size_t i);
/* How often the file of that name was written to, from entry `from` on. */
size_t power_loss_log_writes(const struct power_loss_log *log, const char *name, size_t from);

/* What a cut leaves of that which was written and not synced. */
enum power_loss_kind {
    POWER_LOSS_ALL,     /* nothing */
    POWER_LOSS_NOTHING, /* all of it: as after the end of a process */
    POWER_LOSS_SOME     /* some pieces of 512 bytes, by the seed */
};

struct power_loss_disk;

/* An empty disk on which the log will be played. From entry `lies_from` on a sync does nothing. */
struct power_loss_disk *power_loss_disk_new(const struct power_loss_log *log, size_t lies_from);
void power_loss_disk_free(struct power_loss_disk *disk);

/* Play the next entry. */
void power_loss_disk_step(struct power_loss_disk *disk);

/* Write the files into a directory, as the cut leaves them. */
bool power_loss_disk_save(const struct power_loss_disk *disk, enum power_loss_kind kind, uint64_t seed,
                          const char *directory);

/* Begin an empty log with those files, synced: the disk of a machine that starts after the cut. */
void power_loss_log_begin_with(struct power_loss_log *log, const struct power_loss_disk *disk,
                               enum power_loss_kind kind, uint64_t seed);

#endif
