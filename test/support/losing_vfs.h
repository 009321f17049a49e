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
#ifndef SUPPORT_LOSING_VFS_H
#define SUPPORT_LOSING_VFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOSING_VFS "losing"

/* Register the VFS under that name; done once. */
bool losing_vfs_register(void);

struct losing_log;
struct losing_log *losing_log_new(void);
void losing_log_free(struct losing_log *log);

/* From now on what the VFS does goes into this log; NULL: into none. */
void losing_vfs_record(struct losing_log *log);

size_t losing_log_length(const struct losing_log *log);
size_t losing_log_syncs(const struct losing_log *log);
bool losing_log_is_sync(const struct losing_log *log, size_t i);
/* How often the file of that name was written to, from entry `from` on. */
size_t losing_log_writes(const struct losing_log *log, const char *name, size_t from);

/* What a cut leaves of that which was written and not synced. */
enum losing_kind {
    LOSING_ALL,     /* nothing */
    LOSING_NOTHING, /* all of it: as after the end of a process */
    LOSING_SOME     /* some pieces of 512 bytes, by the seed */
};

struct losing_disk;

/* An empty disk on which the log will be played. From entry `lies_from` on a sync does nothing. */
struct losing_disk *losing_disk_new(const struct losing_log *log, size_t lies_from);
void losing_disk_free(struct losing_disk *disk);

/* Play the next entry. */
void losing_disk_step(struct losing_disk *disk);

/* Write the files into a directory, as the cut leaves them. */
bool losing_disk_save(const struct losing_disk *disk, enum losing_kind kind, uint64_t seed,
                      const char *directory);

/* Begin an empty log with those files, synced: the disk of a machine that starts after the cut. */
void losing_log_begin_with(struct losing_log *log, const struct losing_disk *disk, enum losing_kind kind,
                           uint64_t seed);

#endif
