/* GET /v1/backup: a copy of the server's database, written to a file as it arrives. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/new_file.h"
#include "remote/remote_internal.h"

struct download {
    int fd;
    int failed; /* errno of a write */
    bool has_begun;
    bool is_strange; /* it is not a database */
};

/* Every SQLite database begins with this. */
static const char magic[] = "SQLite format 3";

static bool on_chunk(void *context, const char *data, size_t len)
{
    struct download *download = context;

    if (!download->has_begun) {
        download->has_begun = true;
        download->is_strange = memcmp(data, magic, len < sizeof magic ? len : sizeof magic) != 0;
    }
    if (!download->is_strange && !file_write_all(download->fd, data, len)) {
        download->failed = errno;
    }
    return !download->is_strange && download->failed == 0;
}

static enum belay_code judge_download(struct remote *remote, const struct download *download,
                                      const struct http_response *response, const char *path,
                                      enum belay_code code, struct belay_error *err)
{
    json_t *body;

    if (download->is_strange) {
        return remote_say_not_belay(remote, err);
    }
    if (download->failed != 0) {
        return error_set(err, BELAY_UNREACHABLE, "cannot write '%.300s': %s", path,
                         strerror(download->failed));
    }
    if (code == BELAY_OK && response->status != 200) {
        body = json_loadb(response->body, response->body_len, 0, NULL);
        code = remote_judge(remote, response->status, body, NULL, err);
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
    struct download download = { .fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOFOLLOW) };
    struct http_response response = { 0 };
    const struct http_client_request request = { .method = "GET",
                                                 .url = "/v1/backup",
                                                 .on_data = on_chunk,
                                                 .cancel = cancel,
                                                 .context = &download,
                                                 .endless = true };
    enum belay_code code;

    if (download.fd < 0) {
        return error_set(err, BELAY_UNREACHABLE, "cannot write '%.300s': %s", path, strerror(errno));
    }
    code = remote_exchange(remote, front, &request, &response, err);
    code = judge_download(remote, &download, &response, path, code, err);
    (void)close(download.fd);
    http_response_release(&response);
    return remote_fault(remote, front, code, err);
}
