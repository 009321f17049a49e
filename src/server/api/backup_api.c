/*
 * GET /v1/backup: a worker makes a copy beside the database, and the loop sends it. The copy is unlinked before the
 * first byte is sent, so that none is left behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/text.h"
#include "server/core/job.h"

struct mapped {
    void *data;
    size_t len;
};

static void unmap_copy(void *owner)
{
    struct mapped *mapped = owner;

    (void)munmap(mapped->data, mapped->len);
    free(mapped);
}

/* Unlinks the file. */
static bool map_copy(const char *path, struct mapped *mapped)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    bool ok = fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0;

    if (ok) {
        mapped->len = (size_t)st.st_size;
        mapped->data = mmap(NULL, mapped->len, PROT_READ, MAP_PRIVATE, fd, 0);
        ok = mapped->data != MAP_FAILED;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    (void)unlink(path);
    return ok;
}

static void make_backup_copy(struct job *job)
{
    struct buf path = BUF_INIT(8192);
    struct mapped *mapped = calloc(1, sizeof *mapped);
    const char *file = NULL;
    char id[UUID_TEXT_SIZE];

    if (belay_client_socket(job->server->client, &file) == NULL) {
        (void)error_set(&job->err, BELAY_INVALID,
                        "this server has no file to copy; use PostgreSQL's own backups, or DynamoDB's "
                        "point-in-time recovery");
    } else if (mapped == NULL || !uuid_make(id)) {
        (void)error_no_memory(&job->err);
    } else {
        buf_addf(&path, "%s.backup-%s", file, id);
        if (path.failed) {
            (void)error_no_memory(&job->err);
        } else if (belay_backup(job->server->client, path.data, job->cancel, NULL, &job->err) == BELAY_OK) {
            if (map_copy(path.data, mapped)) {
                job->type = "application/vnd.sqlite3";
                job->shared = (struct http_shared){ mapped->data, mapped->len, unmap_copy, mapped, false };
                mapped = NULL;
            } else {
                (void)error_set(&job->err, BELAY_UNREACHABLE, "the copy cannot be read: %s", strerror(errno));
            }
        }
    }
    free(mapped);
    buf_release(&path);
}

void handle_backup(struct exchange *x)
{
    if (exchange_sees_all(x)) {
        job_start(x, WORK_LONG_JOB, make_backup_copy);
    }
}
