/* GET /v1/backup: a copy of the server's database, written to a file as it arrives. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "remote/remote_internal.h"

enum { PROBLEM_MAX = 64 << 10 };

struct download {
    struct belay_cancel *cancel;
    int fd;
    int failed; /* errno of a write */
    int status;
    bool has_begun;
    bool is_strange;    /* it is not a database */
    struct buf problem; /* owned; the body of an error */
};

/* Every SQLite database begins with this. */
static const char magic[] = "SQLite format 3";

static bool on_chunk(void *context, int status, const char *data, size_t len)
{
    struct download *download = context;

    download->status = status;
    if (status != 200) {
        buf_add(&download->problem, data, len);
        return !download->problem.failed;
    }
    if (!download->has_begun) {
        download->has_begun = true;
        download->is_strange = memcmp(data, magic, len < sizeof magic ? len : sizeof magic) != 0;
    }
    if (download->is_strange) {
        return false;
    }
    while (len > 0) {
        ssize_t n = write(download->fd, data, len);

        if (n < 0 && errno != EINTR) {
            download->failed = errno;
            return false;
        }
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

static bool should_stop_download(void *context)
{
    const struct download *download = context;

    return belay_cancel_requested(download->cancel);
}

static enum belay_code judge_download(struct remote *remote, const struct download *download,
                                      const char *path, enum belay_code code, struct belay_error *err)
{
    json_t *body;

    if (download->is_strange) {
        return remote_say_not_belay(remote, err);
    }
    if (download->failed != 0) {
        return error_set(err, BELAY_UNREACHABLE, "cannot write '%.300s': %s", path,
                         strerror(download->failed));
    }
    if (code == BELAY_OK && download->status != 200) {
        body = json_loadb(download->problem.data == NULL ? "" : download->problem.data, download->problem.len,
                          0, NULL);
        code = remote_judge(remote, download->status, body, NULL, err);
        json_decref(body);
    }
    if (code == BELAY_UNKNOWN) {
        (void)error_wrap(err, "the backup was not received whole");
    }
    return remote_read_fault(code, err);
}

enum belay_code remote_backup(struct backend *base, const char *path, struct belay_cancel *cancel,
                              struct belay_error *err)
{
    struct remote *remote = (struct remote *)base;
    const struct remote_front *front = remote_front(remote);
    struct buf url = BUF_INIT(REMOTE_URL_MAX);
    struct download download = { .cancel = cancel, .problem = BUF_INIT(PROBLEM_MAX) };
    struct http_client_header headers[REMOTE_HEADERS];
    struct http_response response = { 0 };
    struct http_client_request request = { .method = "GET",
                                           .headers = headers,
                                           .n_headers = remote_headers(remote, headers),
                                           .direct = front->direct,
                                           .on_data = on_chunk,
                                           .should_stop = should_stop_download,
                                           .wake_fd = remote_watch_cancel(cancel),
                                           .context = &download,
                                           .endless = true };
    enum belay_code code;

    download.fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOFOLLOW);
    buf_addf(&url, "%s/v1/backup", front->url);
    request.url = url.data;
    if (download.fd < 0) {
        code = error_set(err, BELAY_UNREACHABLE, "cannot write '%.300s': %s", path, strerror(errno));
    } else if (url.failed) {
        code = error_no_memory(err);
    } else {
        code = http_send(front->http, &request, &response, err);
        download.status = code == BELAY_OK ? response.status : download.status;
        code = judge_download(remote, &download, path, code, err);
    }
    remote_unwatch_cancel(cancel, request.wake_fd);
    if (download.fd >= 0) {
        (void)close(download.fd);
    }
    http_response_release(&response);
    buf_release(&download.problem);
    buf_release(&url);
    return remote_fault(remote, front, code, err);
}
