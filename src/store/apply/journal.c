#include "store/apply/journal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/error.h"
#include "base/new_file.h"
#include "base/text.h"

#define MAGIC "BelayLedger 3"
#define FRAME_MAX ((size_t)1 << 30)

enum { WRITE_AT_ONCE = 1 << 20, GROW_BY = 4 << 20, GENTLY_AT_ONCE = 256 << 10 };

struct file_head {
    char magic[16];
    uint64_t use;
    uint64_t stamp;
    uint64_t id;
    uint64_t room; /* the file's size when it was begun; it only grows, so a smaller one was cut */
    uint64_t sum;
};

struct frame_head {
    uint64_t sum; /* of all that follows, zeros included */
    uint64_t stamp;
    uint64_t number; /* of the frame in this use of the file, from 1 */
    uint64_t len;    /* of the entries */
};
_Static_assert(sizeof(struct frame_head) == JOURNAL_FRAME_HEAD, "the head of a frame");

/* A change of any byte changes about half of the bits. `len` is a multiple of eight. */
static uint64_t checksum(const void *data, size_t len)
{
    const unsigned char *at = data;
    uint64_t sum = 0x9e3779b97f4a7c15ULL;

    assert(len % sizeof(uint64_t) == 0);
    for (; len >= sizeof(uint64_t); at += sizeof(uint64_t), len -= sizeof(uint64_t)) {
        uint64_t word;

        memcpy(&word, at, sizeof word);
        sum = (sum ^ word) * 0xd6e8feb86659fd93ULL;
        sum ^= sum >> 32;
    }
    return sum;
}

static size_t whole_sectors(size_t len)
{
    return (len + JOURNAL_SECTOR - 1) / JOURNAL_SECTOR * JOURNAL_SECTOR;
}

static enum belay_code journal_failed(const struct journal *journal, const char *what, int why,
                                      struct belay_error *err)
{
    if (why == ENOSPC || why == EDQUOT || why == EFBIG) {
        return error_set(err, BELAY_UNREACHABLE,
                         "no space left for the server's journal '%s'; nothing was changed", journal->path);
    }
    return error_set(err, BELAY_UNREACHABLE, "the server's journal '%s' cannot be %s: %s", journal->path,
                     what, strerror(why));
}

char *journal_path(const char *database, int which)
{
    size_t size = strlen(database) + sizeof "-ledger-0";
    char *path = malloc(size);

    assert(which >= 0 && which < JOURNAL_FILES);
    if (path != NULL) {
        (void)snprintf(path, size, "%s-ledger-%d", database, which);
    }
    return path;
}

static bool pwrite_all(int fd, const void *data, size_t len, size_t at)
{
    const char *from = data;

    while (len > 0) {
        ssize_t n = pwrite(fd, from, len, (off_t)at);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            errno = n == 0 ? EIO : errno;
            return false;
        }
        from += n;
        at += (size_t)n;
        len -= (size_t)n;
    }
    return true;
}

/* Without memory the map stays as it was: readers need what it shows. */
static bool map_file(struct journal *journal, size_t size)
{
    void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, journal->fd, 0);

    if (map == MAP_FAILED) {
        return false;
    }
    if (journal->map != NULL) {
        (void)munmap(journal->map, journal->mapped);
    }
    journal->map = map;
    journal->mapped = size;
    return true;
}

/*
 * The blocks are written, not only reserved: a sync of what was never written
 * has to change the file's extents as well, and takes longer.
 */
static bool write_zeros(int fd, size_t from, size_t to)
{
    static const char zeros[WRITE_AT_ONCE];
    int failed_with = from < to ? posix_fallocate(fd, (off_t)from, (off_t)(to - from)) : 0;

    assert(fd >= 0);
    if (failed_with != 0) {
        errno = failed_with;
        return false;
    }
    while (from < to) {
        size_t n = to - from < sizeof zeros ? to - from : sizeof zeros;

        if (!pwrite_all(fd, zeros, n, from)) {
            return false;
        }
        from += n;
    }
    return true;
}

/* In pieces, so that other writers of the disk get their turn. False with ECANCELED if keep_going() says so. */
static bool fill_gently(int fd, size_t from, size_t to, bool (*keep_going)(void *context), void *context)
{
    while (from < to) {
        size_t next = to - from < GENTLY_AT_ONCE ? to : from + GENTLY_AT_ONCE;

        if (!write_zeros(fd, from, next) || fdatasync(fd) != 0) {
            return false;
        }
        from = next;
        if (from < to && !keep_going(context)) {
            errno = ECANCELED;
            return false;
        }
    }
    return true;
}

/* The journal has the owner and mode of the database, whose users may have to replay it. */
static bool share_with_database(int fd, const char *database)
{
    struct stat st;

    if (stat(database, &st) != 0) {
        return true;
    }
    (void)fchmod(fd, st.st_mode & 0666);
    return geteuid() != 0 || fchown(fd, st.st_uid, st.st_gid) == 0;
}

static bool write_head(struct journal *journal)
{
    char sector[JOURNAL_SECTOR] = { 0 };
    struct file_head head = {
        .magic = MAGIC,
        .use = journal->use,
        .stamp = journal->stamp,
        .id = journal->id,
        .room = journal->size,
    };

    head.sum = checksum(&head, offsetof(struct file_head, sum));
    memcpy(sector, &head, sizeof head);
    return pwrite_all(journal->fd, sector, sizeof sector, 0) && fdatasync(journal->fd) == 0;
}

enum belay_code journal_begin_gently(struct journal *journal, uint64_t use, size_t size, const char *database,
                                     bool (*keep_going)(void *context), void *context,
                                     struct belay_error *err)
{
    bool is_new = journal->fd < 0;
    struct stat st;

    assert(use > 0 && use >= journal->use && journal->id != 0 && size >= JOURNAL_SECTOR);
    if (is_new) {
        journal->fd = open(journal->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    }
    if (journal->fd < 0 || fstat(journal->fd, &st) != 0) {
        return journal_failed(journal, "made", errno, err);
    }
    if (!random_bytes(&journal->stamp, sizeof journal->stamp)) {
        return error_set(err, BELAY_UNREACHABLE, "the system gives no random bytes");
    }
    journal->use = use;
    journal->used = JOURNAL_SECTOR;
    journal->frames = 0;
    journal->size = (size_t)st.st_size > size ? (size_t)st.st_size : size;
    if (!(keep_going == NULL ? write_zeros(journal->fd, (size_t)st.st_size, size)
                             : fill_gently(journal->fd, (size_t)st.st_size, size, keep_going, context))) {
        return errno == ECANCELED ? error_set(err, BELAY_CANCELLED, "'%s' was not made", journal->path)
                                  : journal_failed(journal, "made", errno, err);
    }
    /* The head last, and synced with what is before it: a file that has one has all its room. */
    if ((is_new && !share_with_database(journal->fd, database)) || fdatasync(journal->fd) != 0 ||
        !write_head(journal) || (is_new && !new_file_sync_parent(journal->path)) ||
        !map_file(journal, journal->size)) {
        return journal_failed(journal, "made", errno, err);
    }
    return BELAY_OK;
}

enum belay_code journal_begin(struct journal *journal, uint64_t use, size_t size, const char *database,
                              struct belay_error *err)
{
    return journal_begin_gently(journal, use, size, database, NULL, NULL, err);
}

/* No head, or the first bytes of one: a limit on the size of files cuts a write short anywhere. */
static bool is_unfinished(const struct file_head *head)
{
    static const char none[sizeof head->magic];
    size_t n = 0;

    while (n < sizeof MAGIC - 1 && head->magic[n] == MAGIC[n]) {
        n++;
    }
    return n < sizeof MAGIC - 1 && memcmp(head->magic + n, none, sizeof none - n) == 0;
}

static enum belay_code read_head(struct journal *journal, struct belay_error *err)
{
    struct file_head head;

    if (journal->size >= sizeof head) {
        memcpy(&head, journal->map, sizeof head);
        if (is_unfinished(&head)) {
            return BELAY_NOT_FOUND; /* its server died before it was ready */
        }
        if (memcmp(head.magic, MAGIC, sizeof MAGIC) == 0 &&
            head.sum == checksum(&head, offsetof(struct file_head, sum))) {
            journal->is_cut = journal->size < head.room;
            journal->use = head.use;
            journal->stamp = head.stamp;
            journal->id = head.id;
            return BELAY_OK;
        }
    }
    return error_set(err, BELAY_BAD_CONTENT, "is damaged: its head cannot be read");
}

enum belay_code journal_open(struct journal *journal, struct belay_error *err)
{
    enum belay_code code;
    struct stat st;

    journal->fd = open(journal->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (journal->fd < 0 && errno == ENOENT) {
        return BELAY_NOT_FOUND;
    }
    if (journal->fd < 0 || fstat(journal->fd, &st) != 0) {
        return journal_failed(journal, "opened", errno, err);
    }
    journal->size = (size_t)st.st_size;
    if (journal->size == 0) {
        journal_close(journal);
        return BELAY_NOT_FOUND;
    }
    code = map_file(journal, journal->size) ? read_head(journal, err)
                                            : journal_failed(journal, "read", errno, err);
    if (code != BELAY_OK) {
        journal_close(journal);
    }
    return code;
}

void journal_close(struct journal *journal)
{
    if (journal->map != NULL) {
        (void)munmap(journal->map, journal->mapped);
        journal->map = NULL;
    }
    if (journal->fd >= 0) {
        (void)close(journal->fd);
        journal->fd = -1;
    }
}

/* ---- writing ---- */

void journal_frame_init(struct buf *frame)
{
    static const char head[JOURNAL_FRAME_HEAD];

    frame->len = 0;
    buf_add(frame, head, sizeof head);
}

enum belay_code journal_reserve(struct journal *journal, size_t frame_len, struct belay_error *err)
{
    size_t needed = journal->used + whole_sectors(frame_len);
    size_t size;

    assert(journal->fd >= 0);
    if (needed <= journal->size) {
        return BELAY_OK;
    }
    size = needed + GROW_BY;
    if (!write_zeros(journal->fd, journal->size, size)) {
        return journal_failed(journal, "enlarged", errno, err);
    }
    if (!map_file(journal, size)) {
        return error_no_memory(err);
    }
    journal->size = size;
    return BELAY_OK;
}

bool journal_seal(const struct journal *journal, struct buf *frame)
{
    static const char zeros[JOURNAL_SECTOR];
    struct frame_head head = { .stamp = journal->stamp, .number = journal->frames + 1 };

    assert(journal->fd >= 0 && journal->used >= JOURNAL_SECTOR);
    assert(frame->len > JOURNAL_FRAME_HEAD);
    head.len = frame->len - JOURNAL_FRAME_HEAD;
    buf_add(frame, zeros, whole_sectors(frame->len) - frame->len);
    if (frame->failed) {
        return false;
    }
    assert(frame->len % JOURNAL_SECTOR == 0 && head.len <= FRAME_MAX);
    memcpy(frame->data, &head, sizeof head);
    head.sum = checksum(frame->data + sizeof head.sum, frame->len - sizeof head.sum);
    memcpy(frame->data, &head.sum, sizeof head.sum);
    return true;
}

/*
 * Written and synced in one call, which takes a sixth less than fdatasync()
 * after it: only these blocks are looked at. Where the system cannot, in two.
 *
 * Another thread may enlarge the file meanwhile: journal->size is not read here.
 */
enum belay_code journal_write(const struct journal *journal, const struct buf *frame, struct belay_error *err)
{
    struct iovec piece = { frame->data, frame->len };
    bool may_retry;
    ssize_t n;

    assert(frame->len % JOURNAL_SECTOR == 0 && journal->used % JOURNAL_SECTOR == 0);
    n = pwritev2(journal->fd, &piece, 1, (off_t)journal->used, RWF_DSYNC);
    may_retry = n >= 0 || errno == EINTR || errno == EOPNOTSUPP || errno == ENOSYS;
    if (n == (ssize_t)frame->len ||
        (may_retry && pwrite_all(journal->fd, frame->data, frame->len, journal->used) &&
         fdatasync(journal->fd) == 0)) {
        return BELAY_OK;
    }
    return error_set(err, BELAY_UNKNOWN, "the server's journal '%s' cannot be written: %s", journal->path,
                     strerror(errno));
}

void journal_written(struct journal *journal, struct buf *frame)
{
    assert(frame->len > 0 && journal->used + frame->len <= journal->size);
    journal->used += frame->len;
    journal->frames++;
    journal_frame_init(frame);
}

/* ---- reading ---- */

void journal_read(const struct journal *journal, struct journal_reader *out_reader)
{
    const unsigned char *start = journal->map + JOURNAL_SECTOR;

    *out_reader = (struct journal_reader){ .at = start, .stamp = journal->stamp };
    out_reader->end = journal->size < JOURNAL_SECTOR ? start : journal->map + journal->size;
}

void journal_read_buffer(const struct buf *frame, struct journal_reader *out_reader)
{
    const unsigned char *data = (const unsigned char *)frame->data;
    struct frame_head head;

    *out_reader = (struct journal_reader){ .at = NULL };
    if (data == NULL) {
        return;
    }
    memcpy(&head, data, sizeof head); /* all zeros before it is sealed */
    out_reader->entry = data + JOURNAL_FRAME_HEAD;
    out_reader->frame_end = head.len == 0 ? data + frame->len : out_reader->entry + head.len;
}

/* Whether a complete frame of this use begins at `at`. */
static bool is_frame(const struct journal_reader *reader, const unsigned char *at,
                     struct frame_head *out_head)
{
    size_t left = (size_t)(reader->end - at);
    size_t len;

    if (left < JOURNAL_SECTOR) {
        return false;
    }
    memcpy(out_head, at, sizeof *out_head);
    if (out_head->stamp != reader->stamp || out_head->len > FRAME_MAX) {
        return false;
    }
    len = whole_sectors(sizeof *out_head + (size_t)out_head->len);
    return len <= left && out_head->sum == checksum(at + sizeof out_head->sum, len - sizeof out_head->sum);
}

static bool next_frame(struct journal_reader *reader)
{
    struct frame_head head;

    if (reader->at == NULL || !is_frame(reader, reader->at, &head) || head.number != reader->frames + 1) {
        return false;
    }
    reader->entry = reader->at + sizeof head;
    reader->frame_end = reader->entry + head.len;
    reader->at += whole_sectors(sizeof head + (size_t)head.len);
    reader->frames++;
    return true;
}

bool journal_next(struct journal_reader *reader, const void **out_data, size_t *out_len)
{
    uint32_t len;

    while (reader->entry == NULL || (size_t)(reader->frame_end - reader->entry) < sizeof len) {
        if (!next_frame(reader)) {
            return false;
        }
    }
    memcpy(&len, reader->entry, sizeof len);
    reader->entry += sizeof len;
    if (len > (size_t)(reader->frame_end - reader->entry)) {
        reader->entry = NULL; /* which tells journal_is_damaged() */
        return false;
    }
    *out_data = reader->entry;
    *out_len = len;
    reader->entry += len;
    return true;
}

bool journal_is_damaged(const struct journal_reader *reader)
{
    struct frame_head head;

    /* A length that does not fit its frame, or bytes left over: it was never written so. */
    if (reader->entry != reader->frame_end) {
        return true;
    }
    if (reader->at == NULL) {
        return false;
    }
    for (const unsigned char *at = reader->at; reader->end - at >= JOURNAL_SECTOR; at += JOURNAL_SECTOR) {
        if (is_frame(reader, at, &head) && head.number > reader->frames + 1) {
            return true;
        }
    }
    return false;
}
