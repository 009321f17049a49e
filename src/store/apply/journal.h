/*
 * The journal of a server, a write-ahead log in two files beside the database,
 * PATH-ledger-0 and PATH-ledger-1. The server appends each commit to one of them while
 * a checkpoint writes the other to the database. After a server was killed, the
 * next process that opens the database replays both (sqlite_replay.c).
 *
 *     file   head, 512 bytes | frame | frame | ... | remains of an earlier use
 *     frame  head, 32 bytes | entries | zeros up to a multiple of 512
 *     entry  its length, 4 bytes | one commit; both by entry_pack()
 *
 * A frame is written and synced as one, before the next is written. So if the last
 * frame cannot be read, its commits were not reported to any client: it is dropped. If
 * a later frame can be read, the file is damaged. Frames do not share a sector:
 * writing one cannot damage another.
 *
 * The stamp in the head is new for every use of the file, and every frame carries it:
 * frames of an earlier use are ignored.
 */
#ifndef STORE_APPLY_JOURNAL_H
#define STORE_APPLY_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "belay.h"

enum { JOURNAL_SECTOR = 512, JOURNAL_FRAME_HEAD = 32, JOURNAL_FILES = 2 };

struct journal {
    char *path;         /* owned */
    int fd;             /* -1: not open */
    unsigned char *map; /* the whole file, to be read; NULL: not mapped */
    size_t size;        /* of the file, with all its blocks allocated */
    size_t mapped;      /* how much of it is mapped; at least `used` */
    size_t used;        /* up to the end of the last frame */
    uint64_t id;        /* of the server's run, as in the database; never 0 */
    uint64_t use;       /* counts up from 1: the later of two files has the greater */
    uint64_t stamp;
    uint64_t frames; /* written in this use of the file */
    bool is_cut;     /* shorter than when it was begun: a part is missing */
};

/* PATH-ledger-N; the caller frees it. */
char *journal_path(const char *database, int which);

/* The file that use N goes to. */
static inline int journal_slot(uint64_t use)
{
    return (int)((use - 1) % JOURNAL_FILES);
}

/* Make the file, or use it again from its beginning, with `size` bytes written and synced. journal->id is set. */
enum belay_code journal_begin(struct journal *journal, uint64_t use, size_t size, const char *database,
                              struct belay_error *err);
/*
 * The same in pieces, so that other writers of the disk need not wait for all of it. keep_going() is called
 * between them; it may sleep, and returns whether to continue (else BELAY_CANCELLED). NULL: all at once.
 */
enum belay_code journal_begin_gently(struct journal *journal, uint64_t use, size_t size, const char *database,
                                     bool (*keep_going)(void *context), void *context,
                                     struct belay_error *err);
/*
 * Open an existing file, to read it. BELAY_NOT_FOUND: there is none, or it was never begun. BELAY_BAD_CONTENT: its
 * head is damaged; the error text is meant to follow the name of the file.
 */
enum belay_code journal_open(struct journal *journal, struct belay_error *err);
void journal_close(struct journal *journal);

/* Empty the buffer for entries, with room for the head of the frame in front. */
void journal_frame_init(struct buf *frame);
/* Make room in the file for a frame of this length. BELAY_UNREACHABLE: the disk is full, and nothing is changed. */
enum belay_code journal_reserve(struct journal *journal, size_t frame_len, struct belay_error *err);
/* Complete it, with its checksum, as the next frame of this journal; false: no memory. */
bool journal_seal(const struct journal *journal, struct buf *frame);
/*
 * Write a sealed frame, and sync it. It changes neither argument, so the caller need not hold a mutex
 * meanwhile. If it fails, it is unknown what is on disk.
 */
enum belay_code journal_write(const struct journal *journal, const struct buf *frame,
                              struct belay_error *err);
/* It is on disk: count it, and empty the buffer. */
void journal_written(struct journal *journal, struct buf *frame);

/* Reading, from the beginning. */
struct journal_reader {
    const unsigned char *at;
    const unsigned char *end;
    uint64_t stamp;
    uint64_t frames;            /* number of frames read so far */
    const unsigned char *entry; /* the next one, within the frame */
    const unsigned char *frame_end;
};
void journal_read(const struct journal *journal, struct journal_reader *out_reader);
/* Over the entries of a frame that is not written yet, sealed or not. */
void journal_read_buffer(const struct buf *frame, struct journal_reader *out_reader);
/* The next entry; false at the end. */
bool journal_next(struct journal_reader *reader, const void **out_data, size_t *out_len);
/* After the end: whether frames follow that were written later than what cannot be read. */
bool journal_is_damaged(const struct journal_reader *reader);

#endif
