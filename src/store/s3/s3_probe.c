/*
 * Some servers ignore If-Match and If-None-Match. So before the first write a test object is
 * written twice; the second write must be refused. The result is remembered on this machine
 * for a day, by endpoint and bucket: a mark in the bucket itself could be copied to another
 * server with the rest.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "store/s3/s3_internal.h"

enum { REMEMBERED_S = 24 * 3600, PATH_SIZE = 2048 };

static bool memory_path(const struct s3_store *store, char out[PATH_SIZE])
{
    const char *cache = platform_env(platform_system(), "XDG_CACHE_HOME");
    const char *endpoint = aws_endpoint(store->aws, AWS_S3);
    char base[PATH_SIZE / 2];
    char what[1024];
    char sum[S3_SUM_SIZE];

    if (cache != NULL && *cache == '/') {
        (void)snprintf(base, sizeof base, "%s", cache);
    } else {
        const char *home = platform_env(platform_system(), "HOME");

        if (home == NULL || *home != '/') {
            return false;
        }
        (void)snprintf(base, sizeof base, "%s/.cache", home);
    }
    (void)snprintf(what, sizeof what, "%s %s", endpoint == NULL ? "" : endpoint, store->params.bucket);
    if (!s3_checksum(what, strlen(what), sum)) {
        return false;
    }
    for (char *c = sum; *c != '\0'; c++) {
        *c = *c == '/' || *c == '+' || *c == '=' ? '_' : *c;
    }
    (void)mkdir(base, 0700);
    (void)snprintf(out, PATH_SIZE, "%s/belay", base);
    (void)mkdir(out, 0700);
    (void)snprintf(out, PATH_SIZE, "%s/belay/s3-conditions-%s", base, sum);
    return true;
}

static bool is_remembered(const struct s3_store *store)
{
    char path[PATH_SIZE];
    struct stat st;

    return memory_path(store, path) && lstat(path, &st) == 0 && S_ISREG(st.st_mode) &&
           st.st_uid == geteuid() && st.st_mtime <= time(NULL) && time(NULL) - st.st_mtime < REMEMBERED_S;
}

static void remember_probe(const struct s3_store *store)
{
    char path[PATH_SIZE];
    int fd = -1;

    if (memory_path(store, path)) {
        (void)unlink(path);
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}

/* A condition that does not hold: the server is unusable unless it refuses. */
static enum belay_code must_be_refused(struct s3_store *store, const char *name,
                                       const struct belay_blob_tag *expected, struct belay_error *err)
{
    struct aws_response response;
    enum belay_code code = s3_put_once(store, name, "2", 1, expected, &response, err);

    aws_response_release(&response);
    if (code == BELAY_REFUSED) {
        return BELAY_OK;
    }
    return code != BELAY_OK
               ? code
               : error_set(
                     err, BELAY_CONFIG,
                     "the S3 server %.200s ignores %s on PUT, so two writers would both win: it cannot keep "
                     "deployment state; use one that honours it, such as AWS S3 or MinIO, or file:DIR",
                     aws_endpoint(store->aws, AWS_S3), expected == NULL ? "If-None-Match" : "If-Match");
}

static enum belay_code write_twice(struct s3_store *store, const char *name, struct belay_error *err)
{
    static const struct belay_blob_tag wrong = { .text = "\"00000000000000000000000000000000\"" };
    struct s3_call clean_up = { .method = "DELETE", .operation = "DeleteObject", .name = name };
    struct aws_response response;
    enum belay_code code = s3_put_once(store, name, "1", 1, NULL, &response, err);

    /* This call's own first attempt, whose answer was lost. */
    if (code == BELAY_REFUSED && response.in_doubt) {
        code = BELAY_OK;
    }
    aws_response_release(&response);
    if (code == BELAY_OK) {
        code = must_be_refused(store, name, NULL, err);
    }
    if (code == BELAY_OK) {
        code = must_be_refused(store, name, &wrong, err);
    }
    (void)s3_call(store, &clean_up, &response, NULL);
    aws_response_release(&response);
    return code;
}

enum belay_code s3_probe(struct s3_store *store, struct belay_error *err)
{
    char id[UUID_TEXT_SIZE];
    char name[64];
    enum belay_code code;

    if (store->is_probed || is_remembered(store)) {
        store->is_probed = true;
        return BELAY_OK;
    }
    if (!uuid_make(id)) {
        return error_set(err, BELAY_BUG, "the system gives no random bytes");
    }
    (void)snprintf(name, sizeof name, ".belay-probe-%s", id);
    code = write_twice(store, name, err);
    if (code == BELAY_NOT_FOUND) {
        return s3_say_no_bucket(store, err);
    }
    if (code == BELAY_OK) {
        store->is_probed = true;
        remember_probe(store);
    }
    return code;
}
