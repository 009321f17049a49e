/* The log, and the disk that it is played on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/power_loss_internal.h"

enum { FILES_MAX = 8, NAME_SIZE = 64, SECTOR = 512 };

struct power_loss_log {
    struct power_loss_entry *entries; /* owned, as is their data */
    size_t n;
    size_t cap;
    size_t syncs;
    char names[FILES_MAX][NAME_SIZE];
    int n_names;
};

static void *must(void *memory)
{
    if (memory == NULL) {
        abort();
    }
    return memory;
}

struct power_loss_log *power_loss_log_new(void)
{
    return must(calloc(1, sizeof(struct power_loss_log)));
}

void power_loss_log_free(struct power_loss_log *log)
{
    for (size_t i = 0; log != NULL && i < log->n; i++) {
        free(log->entries[i].data);
    }
    if (log != NULL) {
        free(log->entries);
    }
    free(log);
}

size_t power_loss_log_length(const struct power_loss_log *log)
{
    return log->n;
}

size_t power_loss_log_syncs(const struct power_loss_log *log)
{
    return log->syncs;
}

bool power_loss_log_is_sync(const struct power_loss_log *log, size_t i)
{
    return log->entries[i].what == POWER_LOSS_SYNC;
}

size_t power_loss_log_writes(const struct power_loss_log *log, const char *name, size_t from)
{
    size_t n = 0;

    for (size_t i = from; i < log->n; i++) {
        n += log->entries[i].what == POWER_LOSS_WRITE && strcmp(log->names[log->entries[i].file], name) == 0;
    }
    return n;
}

int power_loss_log_file(struct power_loss_log *log, const char *name)
{
    const char *slash = strrchr(name, '/');
    const char *base = slash == NULL ? name : slash + 1;

    for (int i = 0; i < log->n_names; i++) {
        if (strcmp(log->names[i], base) == 0) {
            return i;
        }
    }
    if (log->n_names == FILES_MAX) {
        abort();
    }
    (void)snprintf(log->names[log->n_names], NAME_SIZE, "%s", base);
    return log->n_names++;
}

void power_loss_log_add(struct power_loss_log *log, const struct power_loss_entry *entry, const void *data)
{
    if (log->n == log->cap) {
        log->cap = log->cap == 0 ? 256 : 2 * log->cap;
        log->entries = must(realloc(log->entries, log->cap * sizeof *log->entries));
    }
    log->entries[log->n] = *entry;
    if (entry->n > 0) {
        log->entries[log->n].data = must(malloc(entry->n));
        memcpy(log->entries[log->n].data, data, entry->n);
    }
    log->n++;
    log->syncs += entry->what == POWER_LOSS_SYNC;
}

/* ---- the disk ---------------------------------------------------------- */

struct plate {
    unsigned char *data; /* owned */
    size_t size;
    size_t cap;
    bool exists;
};

struct power_loss_disk {
    const struct power_loss_log *log; /* borrowed */
    size_t at;
    size_t lies_from;
    struct plate plates[FILES_MAX]; /* what is on them for sure */
    size_t *pending[FILES_MAX];     /* owned: entries since the last sync */
    size_t n_pending[FILES_MAX];
};

struct power_loss_disk *power_loss_disk_new(const struct power_loss_log *log, size_t lies_from)
{
    struct power_loss_disk *disk = must(calloc(1, sizeof *disk));

    disk->log = log;
    disk->lies_from = lies_from;
    return disk;
}

void power_loss_disk_free(struct power_loss_disk *disk)
{
    for (int i = 0; disk != NULL && i < FILES_MAX; i++) {
        free(disk->plates[i].data);
        free(disk->pending[i]);
    }
    free(disk);
}

static void plate_put(struct plate *plate, size_t at, const unsigned char *data, size_t n)
{
    if (at + n > plate->cap) {
        plate->cap = 2 * (at + n);
        plate->data = must(realloc(plate->data, plate->cap));
    }
    if (at > plate->size) {
        memset(plate->data + plate->size, 0, at - plate->size);
    }
    memcpy(plate->data + at, data, n);
    plate->size = at + n > plate->size ? at + n : plate->size;
    plate->exists = true;
}

static void plate_cut(struct plate *plate, size_t size)
{
    static const unsigned char zero = 0;

    if (size > plate->size) {
        plate_put(plate, size - 1, &zero, 1);
    }
    plate->size = size;
}

static uint64_t next_random(uint64_t *seed)
{
    *seed += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = *seed;

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* The entry, or with a seed those sectors of it that the seed says. */
static void play(struct plate *plate, const struct power_loss_entry *entry, uint64_t *seed)
{
    if (seed != NULL && entry->what != POWER_LOSS_WRITE && next_random(seed) % 2 == 0) {
        return;
    }
    if (entry->what == POWER_LOSS_TRUNCATE) {
        plate_cut(plate, entry->at);
    } else if (entry->what == POWER_LOSS_DELETE) {
        plate_cut(plate, 0);
        plate->exists = false;
    }
    for (size_t done = 0; entry->what == POWER_LOSS_WRITE && done < entry->n;) {
        size_t at = entry->at + done;
        size_t n = SECTOR - at % SECTOR;

        n = n > entry->n - done ? entry->n - done : n;
        if (seed == NULL || next_random(seed) % 2 == 0) {
            plate_put(plate, at, entry->data + done, n);
        }
        done += n;
    }
}

/* Bring the first `n` pending entries of a file onto its plate. */
static void settle(struct power_loss_disk *disk, int f, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        play(&disk->plates[f], &disk->log->entries[disk->pending[f][i]], NULL);
    }
    disk->n_pending[f] -= n;
    if (disk->n_pending[f] > 0) {
        memmove(disk->pending[f], disk->pending[f] + n, disk->n_pending[f] * sizeof(size_t));
    }
}

/* All deletions last now, of whatever file; what was written since does not. */
static void settle_deletions(struct power_loss_disk *disk)
{
    for (int f = 0; f < disk->log->n_names; f++) {
        size_t n = disk->n_pending[f];

        while (n > 0 && disk->log->entries[disk->pending[f][n - 1]].what != POWER_LOSS_DELETE) {
            n--;
        }
        settle(disk, f, n);
    }
}

void power_loss_disk_step(struct power_loss_disk *disk)
{
    const struct power_loss_entry *entry = &disk->log->entries[disk->at];
    bool lies = disk->at >= disk->lies_from;
    int f = entry->file;

    if (entry->what == POWER_LOSS_SYNC && !lies) {
        settle(disk, f, disk->n_pending[f]);
    } else if (entry->what == POWER_LOSS_SYNC_DIRECTORY && !lies) {
        settle_deletions(disk);
    } else if (entry->what < POWER_LOSS_SYNC) {
        disk->pending[f] = must(realloc(disk->pending[f], (disk->n_pending[f] + 1) * sizeof(size_t)));
        disk->pending[f][disk->n_pending[f]++] = disk->at;
    }
    disk->at++;
}

static bool plate_save(const struct plate *plate, const char *directory, const char *name)
{
    char path[512];
    FILE *file;
    bool ok;

    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    if (!plate->exists) {
        (void)remove(path);
        return true;
    }
    file = fopen(path, "wb");
    if (file == NULL) {
        return false;
    }
    ok = plate->size == 0 || fwrite(plate->data, 1, plate->size, file) == plate->size;
    return fclose(file) == 0 && ok;
}

/* The file as the cut leaves it; its data is the caller's. */
static struct plate after_cut(const struct power_loss_disk *disk, int f, enum power_loss_kind kind,
                              uint64_t *seed)
{
    struct plate plate = { .size = 0 };

    if (disk->plates[f].size > 0) {
        plate_put(&plate, 0, disk->plates[f].data, disk->plates[f].size);
    }
    plate.exists = disk->plates[f].exists;
    for (size_t i = 0; kind != POWER_LOSS_ALL && i < disk->n_pending[f]; i++) {
        play(&plate, &disk->log->entries[disk->pending[f][i]], kind == POWER_LOSS_SOME ? seed : NULL);
    }
    return plate;
}

bool power_loss_disk_save(const struct power_loss_disk *disk, enum power_loss_kind kind, uint64_t seed,
                          const char *directory)
{
    bool ok = true;

    for (int f = 0; f < disk->log->n_names; f++) {
        struct plate plate = after_cut(disk, f, kind, &seed);

        ok = plate_save(&plate, directory, disk->log->names[f]) && ok;
        free(plate.data);
    }
    return ok;
}

void power_loss_log_begin_with(struct power_loss_log *log, const struct power_loss_disk *disk,
                               enum power_loss_kind kind, uint64_t seed)
{
    for (int f = 0; f < disk->log->n_names; f++) {
        struct plate plate = after_cut(disk, f, kind, &seed);
        struct power_loss_entry entry = { .what = POWER_LOSS_WRITE, .n = plate.size };

        entry.file = power_loss_log_file(log, disk->log->names[f]);
        if (plate.exists) {
            power_loss_log_add(log, &entry, plate.data);
            power_loss_log_add(log, &(struct power_loss_entry){ .what = POWER_LOSS_SYNC, .file = entry.file },
                               NULL);
        }
        free(plate.data);
    }
}
