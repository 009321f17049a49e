#include "cli/run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/new_file.h"
#include "json/json_write.h"

static enum belay_code fail_to_write(const char *path, int reason, struct belay_error *err)
{
    return error_set(err, BELAY_INVALID, "cannot write --result '%s': %s", path, strerror(reason));
}

enum belay_code run_result_check(const char *path, struct belay_error *err)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX] = ".";
    struct stat info;

    if (strlen(path) >= sizeof folder - 32) {
        return fail_to_write(path, ENAMETOOLONG, err);
    }
    if (slash != NULL) {
        memcpy(folder, path, (size_t)(slash - path) + 1);
        folder[slash - path + 1] = '\0';
    }
    if (access(folder, W_OK | X_OK) != 0) {
        return fail_to_write(path, errno, err);
    }
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        return fail_to_write(path, EISDIR, err);
    }
    return BELAY_OK;
}

/* One for each key. */
static json_t *locks_to_json(const struct belay_info *lock)
{
    json_t *grants = lock == NULL ? NULL : wire_grants(lock);
    json_t *locks = lock == NULL ? json_array() : json_incref(json_object_get(grants, "locks"));

    json_decref(grants);
    return locks;
}

static json_t *result_to_json(const struct run_result *result)
{
    const struct belay_info *lock = result->lock;
    bool has_token = lock != NULL && lock->token != 0;

    return json_pack("{s:o, s:b, s:o, s:o, s:s, s:i, s:o, s:o, s:o, s:o}", "key", wire_text(result->key),
                     "locked", lock != NULL, "lock_id", wire_text(lock == NULL ? NULL : lock->lock_id),
                     "token", has_token ? json_integer((json_int_t)lock->token) : json_null(), "result",
                     result->result, "exit_code", result->exit_code, "signal",
                     result->signal == 0 ? json_null() : json_integer(result->signal), "reason",
                     wire_text(result->reason[0] == '\0' ? NULL : result->reason), "lock",
                     lock == NULL ? json_null() : wire_grant(lock), "locks", locks_to_json(lock));
}

static bool replace_result_file(const char *path, const char *text)
{
    char *beside = NULL;
    int failure;
    int fd = new_file_open(path, "tmp", &beside); /* readable by its owner only: it contains a lock id */
    bool done;

    if (fd < 0) {
        return false;
    }
    done = file_write_all(fd, text, strlen(text)) && file_write_all(fd, "\n", 1);
    done = close(fd) == 0 && done && rename(beside, path) == 0;
    if (!done) {
        failure = errno;
        (void)unlink(beside);
        errno = failure;
    }
    free(beside);
    return done;
}

enum belay_code run_result_write(const char *path, const struct run_result *result, struct belay_error *err)
{
    char *text = wire_line(result_to_json(result));
    enum belay_code code = BELAY_OK;

    if (text == NULL) {
        return error_no_memory(err);
    }
    if (!replace_result_file(path, text)) {
        code = fail_to_write(path, errno, err);
    }
    free(text);
    return code;
}
