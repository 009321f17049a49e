/*
 * The journal of a server: two files beside the database, PATH-ledger-0 and
 * PATH-ledger-1. The server appends each commit to one of them and brings the
 * other, meanwhile, into the database. What a server that was killed has left
 * there is brought in by whoever opens the database next (sqlite_replay.c).
 *
 *     file   head, 512 bytes | frame | frame | ... | what an earlier use left
 *     frame  head, 32 bytes | entries | zeros up to a multiple of 512
 *     entry  its length, 4 bytes | what entry_pack() made of one commit
 *
 * A frame is written and synced as one, and before the next is written. So a
 * frame that cannot be read was not reported to anybody if it is the last one:
 * it is dropped. If a later frame can be read, the file is damaged. Frames do
 * not share a sector: writing one cannot spoil another.
 *
 * The stamp in the head is new for every use of the file, and in every frame:
 * what an earlier use has left does not count.
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
    size_t size;        /* of the file, all of it there to be written */
    size_t mapped;      /* how much of it is mapped */
    size_t used;        /* up to the end of the last frame */
    uint64_t id;        /* of the server's run, as in the database; 0: of a version that had none */
    uint64_t use;       /* counts up from 1: the later of two files has the greater */
    uint64_t stamp;
    uint64_t frames; /* in it */
    bool is_cut;     /* shorter than it was when it was begun: a part of it is missing */
};

/* PATH-ledger-N; the caller frees it. */
char *journal_path(const char *database, int which);

/* The file that use N goes to. */
static inline int journal_slot(uint64_t use)
{
    return (int)((use - 1) % JOURNAL_FILES);
}

/* Make it, or use it again from its beginning, with `size` bytes written out and synced. journal->id is set. */
enum belay_code journal_begin(struct journal *journal, uint64_t use, size_t size, const char *database,
                              struct belay_error *err);
/*
 * The same for who has time: in pieces, so that others who write need not wait for all of it. keep_going() is
 * called between them, to rest, and says whether to go on (else BELAY_CANCELLED). NULL: all at once.
 */
enum belay_code journal_begin_gently(struct journal *journal, uint64_t use, size_t size, const char *database,
                                     bool (*keep_going)(void *context), void *context,
                                     struct belay_error *err);
/*
 * Open one that is there, to read it. BELAY_NOT_FOUND: there is none, or it was never begun. BELAY_BAD_CONTENT: its
 * head is damaged, and the text of the error follows the name of the file.
 */
enum belay_code journal_open(struct journal *journal, struct belay_error *err);
void journal_close(struct journal *journal);

/* A buffer into which entries go: with room for the head of a frame in front. */
void journal_frame_init(struct buf *frame);
/* Have room for this frame: BELAY_UNREACHABLE, and nothing happened, if the disk is full. */
enum belay_code journal_reserve(struct journal *journal, size_t frame_len, struct belay_error *err);
/* Close it, as the next of this journal; false: no memory. */
bool journal_seal(const struct journal *journal, struct buf *frame);
/*
 * Write what is sealed, and sync it: without anybody's mutex, as this takes its time and touches neither.
 * If it fails, what is on disk is unknown.
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
    uint64_t frames;            /* so many were read */
    const unsigned char *entry; /* within the frame */
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
