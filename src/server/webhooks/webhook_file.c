/*
 * Lines {"add":{…}} and {"end":"LOCK_ID"}. An addition is synced before its request is answered. The loss of an end
 * causes one call too many, which receivers must handle anyway. A last line that a crash has cut off was never
 * answered, and is ignored.
 */
#include "server/webhooks/webhook_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/error.h"
#include "base/new_file.h"

enum { FILE_MAX = 256 << 20, LINE_MAX_BYTES = 4 << 20 };

static enum belay_code fail_file(const char *path, const char *what, struct belay_error *err)
{
    return error_set(err, BELAY_CONFIG, "the queued webhooks cannot be %s %.200s: %s", what, path,
                     strerror(errno));
}

/* ---- reading ---- */

static void read_record_line(json_t *records, const char *line, size_t len)
{
    json_t *object = json_loadb(line, len, 0, NULL);
    json_t *add = json_object_get(object, "add");
    const char *added = json_string_value(json_object_get(add, "lock_id"));
    const char *ended = json_string_value(json_object_get(object, "end"));

    if (added != NULL) {
        (void)json_object_set(records, added, add);
    } else if (ended != NULL) {
        (void)json_object_del(records, ended);
    }
    json_decref(object);
}

static enum belay_code read_queued(const char *path, int fd, json_t *records, struct belay_error *err)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    FILE *from = copy < 0 ? NULL : fdopen(copy, "r");
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    bool failed;

    if (from == NULL) {
        enum belay_code code = fail_file(path, "read from", err);

        if (copy >= 0) {
            (void)close(copy);
        }
        return code;
    }
    while ((len = getline(&line, &cap, from)) > 0) {
        if (line[len - 1] == '\n' && len <= LINE_MAX_BYTES) {
            read_record_line(records, line, (size_t)len);
        }
    }
    failed = ferror(from) != 0;
    free(line);
    (void)fclose(from);
    return failed ? fail_file(path, "read from", err) : BELAY_OK;
}

/* ---- writing ---- */

bool webhook_file_is_open(const struct webhook_file *file)
{
    return file->fd >= 0;
}

static void webhook_file_line(struct webhook_file *file, json_t *line)
{
    char *text = line == NULL ? NULL : json_dumps(line, JSON_COMPACT);

    json_decref(line);
    if (text == NULL) {
        file->out.failed = true;
    } else {
        buf_addf(&file->out, "%s\n", text);
    }
    free(text);
}

void webhook_file_add(struct webhook_file *file, const json_t *record)
{
    if (webhook_file_is_open(file)) {
        webhook_file_line(file, json_pack("{s:O}", "add", record));
        file->has_news = true;
    }
}

void webhook_file_end(struct webhook_file *file, const char *lock_id)
{
    if (webhook_file_is_open(file)) {
        webhook_file_line(file, json_pack("{s:s}", "end", lock_id));
    }
}

bool webhook_file_flush(struct webhook_file *file)
{
    off_t before;
    bool ok;
    int why;

    if (!webhook_file_is_open(file) || (file->out.len == 0 && !file->out.failed)) {
        return true;
    }
    before = lseek(file->fd, 0, SEEK_END);
    errno = ENOMEM;
    ok = !file->out.failed && before >= 0 && file_write_all(file->fd, file->out.data, file->out.len) &&
         (!file->has_news || fdatasync(file->fd) == 0);
    why = errno;
    file->has_news = false;
    file->out.failed = false;
    file->out.len = 0;
    if (!ok && before >= 0 && ftruncate(file->fd, before) != 0) {
        buf_adds(&file->out, "\n"); /* half a line must not spoil the next one */
    }
    errno = why;
    return ok;
}

/* ---- opening ---- */

static enum belay_code open_locked(const char *path, int *out_fd, struct belay_error *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_APPEND | O_NOFOLLOW, 0600);

    if (fd < 0) {
        return fail_file(path, "kept in", err);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        (void)close(fd);
        return error_set(err, BELAY_HELD, "another server keeps its webhooks in %.200s", path);
    }
    *out_fd = fd;
    return BELAY_OK;
}

/*
 * Rewrite the file with what is still queued. The new file has a random name, at which no link can wait; the old one
 * stays locked until the new one has replaced it.
 */
static enum belay_code rewrite_queued(struct webhook_file *file, json_t *records, struct belay_error *err)
{
    int old_fd = file->fd;
    char *temp = NULL;
    int fd = new_file_open(file->path, "new", &temp);
    enum belay_code code = BELAY_OK;
    const char *id;
    json_t *record;

    if (fd < 0) {
        return fail_file(file->path, "written beside", err);
    }
    file->fd = fd;
    json_object_foreach(records, id, record)
    {
        webhook_file_add(file, record);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 || fcntl(fd, F_SETFL, O_APPEND) != 0 || !webhook_file_flush(file) ||
        fsync(fd) != 0 || !new_file_replace(temp, file->path)) {
        code = fail_file(file->path, "written to", err);
        (void)unlink(temp);
    }
    (void)close(old_fd);
    free(temp);
    return code;
}

enum belay_code webhook_file_open(struct webhook_file *file, const char *path, webhook_file_fn *fn,
                                  void *context, struct belay_error *err)
{
    json_t *records = json_object();
    enum belay_code code;
    const char *id;
    json_t *record;

    *file = (struct webhook_file){ .fd = -1, .out = BUF_INIT(FILE_MAX) };
    if (path == NULL) {
        json_decref(records);
        return BELAY_OK;
    }
    file->path = strdup(path);
    code = file->path == NULL || records == NULL ? error_no_memory(err) : open_locked(path, &file->fd, err);
    if (code == BELAY_OK) {
        new_file_clean(path, "new"); /* of a server that was killed; this one has the lock */
        code = read_queued(path, file->fd, records, err);
    }
    if (code == BELAY_OK) {
        code = rewrite_queued(file, records, err);
    }
    if (code != BELAY_OK) {
        webhook_file_close(file);
        json_decref(records);
        return code;
    }
    json_object_foreach(records, id, record)
    {
        fn(context, json_incref(record));
    }
    json_decref(records);
    return BELAY_OK;
}

void webhook_file_close(struct webhook_file *file)
{
    (void)webhook_file_flush(file);
    if (file->fd >= 0) {
        (void)close(file->fd);
    }
    file->fd = -1;
    free(file->path);
    file->path = NULL;
    buf_release(&file->out);
}
