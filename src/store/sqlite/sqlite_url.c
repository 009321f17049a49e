#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "store/sqlite/sqlite_internal.h"

#define DAY_MS (24LL * 3600 * 1000)

static enum belay_code parse_span(const char *name, const char *value, int64_t *out_ms,
                                  struct belay_error *err)
{
    if (!belay_parse_duration(value, out_ms)) {
        return error_set(err, BELAY_INVALID, "store parameter %s='%s' is no duration such as 30d or 12h",
                         name, value);
    }
    return BELAY_OK;
}

static enum belay_code parse_one(char *text, struct sqlite_params *params, struct belay_error *err)
{
    char *value = strchr(text, '=');

    if (value != NULL) {
        *value++ = '\0';
    }
    if (value != NULL && strcmp(text, "durability") == 0) {
        params->always_full = strcmp(value, "full") == 0;
        if (!params->always_full && strcmp(value, "normal") != 0) {
            return error_set(err, BELAY_INVALID, "store parameter durability='%s' must be normal or full",
                             value);
        }
        return BELAY_OK;
    }
    if (value != NULL && strcmp(text, "retain_events") == 0) {
        return parse_span(text, value, &params->retain_events_ms, err);
    }
    if (value != NULL && strcmp(text, "retain_records") == 0) {
        return parse_span(text, value, &params->retain_records_ms, err);
    }
    return error_set(err, BELAY_INVALID,
                     "store parameter '%s' %s; valid are durability=normal|full, retain_events=DURATION "
                     "and retain_records=DURATION",
                     text, value == NULL ? "has no value or is not known" : "is not known");
}

static enum belay_code parse_all(const char *text, struct sqlite_params *params, struct belay_error *err)
{
    char *copy = strdup(text);
    char *rest = copy;
    char *one;
    enum belay_code code = copy == NULL ? error_no_memory(err) : BELAY_OK;

    while (code == BELAY_OK && (one = strsep(&rest, "&,")) != NULL) {
        if (*one != '\0') {
            code = parse_one(one, params, err);
        }
    }
    free(copy);
    return code;
}

/* A new name in a directory is on disk when the directory is. SQLite sees to its own files. */
static void sync_parent(const char *path)
{
    char *copy = strdup(path);
    int fd;

    if (copy == NULL) {
        return;
    }
    fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        (void)close(fd);
    }
    free(copy);
}

/* Each directory of `path` above its last name. */
static enum belay_code make_parents(char *path, struct belay_error *err)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        struct stat st;
        int failed;

        *slash = '\0';
        failed = mkdir(path, 0700) == 0 ? 0 : errno;
        if (failed == 0) {
            sync_parent(path);
        }
        if (failed == EEXIST) {
            failed = stat(path, &st) == 0 && !S_ISDIR(st.st_mode) ? ENOTDIR : 0;
        }
        if (failed != 0) {
            (void)error_set(err, BELAY_UNREACHABLE,
                            "cannot make the directory '%s' for the lock database: %s; name a place that can "
                            "be written with --store sqlite:PATH",
                            path, strerror(failed));
        }
        *slash = '/';
        if (failed != 0) {
            return BELAY_UNREACHABLE;
        }
    }
    return BELAY_OK;
}

/*
 * SQLite keeps its log beside the file that a symbolic link points to, so the
 * wake file must stand there too: the path is the resolved one.
 */
static enum belay_code resolve(const char *path, char **out_path, struct belay_error *err)
{
    struct buf full = BUF_INIT(PATH_MAX);
    struct stat st;
    char cwd[PATH_MAX];
    char *made = NULL;
    char *parent = NULL;
    enum belay_code code = BELAY_OK;

    if (path[0] != '/') {
        if (getcwd(cwd, sizeof cwd) == NULL) {
            return error_set(err, BELAY_UNREACHABLE, "cannot tell the working directory: %s",
                             strerror(errno));
        }
        buf_addf(&full, "%s/", cwd);
    }
    buf_adds(&full, path);
    made = buf_take(&full);
    if (made == NULL) {
        return error_set(err, BELAY_INVALID, "the path of the lock database is longer than %d bytes",
                         PATH_MAX - 1);
    }
    *out_path = realpath(made, NULL);
    if (*out_path != NULL) {
        goto done;
    }
    code = lstat(made, &st) == 0 ? BELAY_OK : make_parents(made, err);
    if (code != BELAY_OK) {
        goto done;
    }
    *strrchr(made, '/') = '\0';
    parent = realpath(made[0] == '\0' ? "/" : made, NULL);
    buf_addf(&full, "%s/%s",
             parent != NULL && parent[1] != '\0' ? parent
             : parent != NULL                    ? ""
                                                 : made,
             strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path);
    *out_path = buf_take(&full);
    if (*out_path == NULL) {
        code = error_no_memory(err);
    }

done:
    free(parent);
    free(made);
    buf_release(&full);
    return code;
}

enum belay_code sqlite_params_parse(const char *text, struct sqlite_params *out_params,
                                    struct belay_error *err)
{
    struct sqlite_params params = { NULL, NULL, false, 30 * DAY_MS, 7 * DAY_MS };
    struct buf url = BUF_INIT(PATH_MAX + 1024);
    const char *query = strchr(text, '?');
    char *path = query == NULL ? strdup(text) : strndup(text, (size_t)(query - text));
    enum belay_code code = path == NULL ? error_no_memory(err) : BELAY_OK;

    if (code == BELAY_OK && (path[0] == '\0' || path[strlen(path) - 1] == '/')) {
        code =
            error_set(err, BELAY_INVALID, "'sqlite:%s' names no file; write sqlite:/path/to/belay.db", text);
    }
    if (code == BELAY_OK && query != NULL) {
        code = parse_all(query + 1, &params, err);
    }
    if (code == BELAY_OK) {
        code = resolve(path, &params.path, err);
    }
    if (code != BELAY_OK) {
        goto done;
    }
    buf_addf(&url, "sqlite:%s%s", params.path, query == NULL ? "" : query);
    for (char *c = url.data + strlen("sqlite:") + strlen(params.path); !url.failed && *c != '\0'; c++) {
        *c = *c == ',' ? '&' : *c;
    }
    params.url = buf_take(&url);
    if (params.url == NULL) {
        code = error_no_memory(err);
        goto done;
    }
    *out_params = params;
    params.path = params.url = NULL;

done:
    free(path);
    buf_release(&url);
    sqlite_params_release(&params);
    return code;
}

void sqlite_params_release(struct sqlite_params *params)
{
    free(params->path);
    free(params->url);
    params->path = params->url = NULL;
}
