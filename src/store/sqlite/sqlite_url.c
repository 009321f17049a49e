#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/new_file.h"
#include "base/store_url.h"
#include "store/sqlite/sqlite_internal.h"

#define DAY_MS (24LL * 3600 * 1000)

enum { LINKS_MAX = 40 };

static enum belay_code parse_span(const char *name, const char *value, int64_t *out_ms,
                                  struct belay_error *err)
{
    if (!belay_parse_duration(value, out_ms)) {
        return error_set(err, BELAY_INVALID, "store parameter %s='%s' is no duration such as 30d or 12h",
                         name, value);
    }
    return BELAY_OK;
}

static enum belay_code set_sqlite_param(void *context, const char *name, const char *value,
                                        struct belay_error *err)
{
    struct sqlite_params *params = context;

    if (strcmp(name, "durability") == 0) {
        params->always_full = strcmp(value, "full") == 0;
        if (!params->always_full && strcmp(value, "normal") != 0) {
            return error_set(err, BELAY_INVALID, "store parameter durability='%s' must be normal or full",
                             value);
        }
        return BELAY_OK;
    }
    if (strcmp(name, "retain_events") == 0) {
        return parse_span(name, value, &params->retain_events_ms, err);
    }
    if (strcmp(name, "retain_records") == 0) {
        return parse_span(name, value, &params->retain_records_ms, err);
    }
    return BELAY_NOT_FOUND;
}

static const struct store_url_kind kind = {
    .scheme = "sqlite:",
    .known = "durability=normal|full, retain_events=DURATION and retain_records=DURATION",
    .place_is_a_path = true,
    .set = set_sqlite_param,
};

/* Creates each directory of `path`. */
static enum belay_code make_parents(char *path, struct belay_error *err)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        struct stat st;
        int failed;

        *slash = '\0';
        failed = mkdir(path, 0700) == 0 ? 0 : errno;
        if (failed == 0) {
            (void)new_file_sync_parent(path);
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

enum belay_code sqlite_absolute_path(const char *path, char **out_path, struct belay_error *err)
{
    struct buf full = BUF_INIT(PATH_MAX);
    char cwd[PATH_MAX];

    if (path[0] != '/') {
        if (getcwd(cwd, sizeof cwd) == NULL) {
            return error_set(err, BELAY_UNREACHABLE, "cannot tell the working directory: %s",
                             strerror(errno));
        }
        buf_addf(&full, "%s/", cwd);
    }
    buf_adds(&full, path);
    *out_path = buf_take(&full);
    if (*out_path == NULL) {
        return error_set(err, BELAY_INVALID, "the path of the lock database is longer than %d bytes",
                         PATH_MAX - 1);
    }
    return BELAY_OK;
}

/* The target of the symbolic link `path`, as an absolute path; NULL: it is not a link, or cannot be read. */
static char *link_target(const char *path)
{
    struct buf target = BUF_INIT(PATH_MAX);
    char text[PATH_MAX];
    ssize_t n = readlink(path, text, sizeof text - 1);

    if (n <= 0) {
        return NULL;
    }
    text[n] = '\0';
    if (text[0] != '/') {
        buf_add(&target, path, (size_t)(strrchr(path, '/') + 1 - path));
    }
    buf_adds(&target, text);
    return buf_take(&target);
}

/*
 * A file that does not exist yet, in a directory that may exist: creates the directories, and
 * resolves their links.
 */
static enum belay_code resolve_new(char *path, char **out_path, struct belay_error *err)
{
    struct buf full = BUF_INIT(PATH_MAX);
    char *parent;
    char *name;
    enum belay_code code = make_parents(path, err);

    if (code != BELAY_OK) {
        return code;
    }
    name = strrchr(path, '/');
    *name++ = '\0';
    parent = realpath(path[0] == '\0' ? "/" : path, NULL);
    buf_addf(&full, "%s/%s", parent == NULL ? path : parent[1] == '\0' ? "" : parent, name);
    free(parent);
    *out_path = buf_take(&full);
    return *out_path == NULL ? error_no_memory(err) : BELAY_OK;
}

/*
 * SQLite keeps its log beside the file that a symbolic link points to, so all other files must
 * be there, too: the path is the resolved one. This also holds for a link whose file does not
 * exist yet: the process that creates the file and those that find it must agree on the path
 * of the server's lock.
 */
static enum belay_code resolve_missing(const char *path, char **out_path, struct belay_error *err)
{
    char *made = NULL;
    char *next;
    enum belay_code code = sqlite_absolute_path(path, &made, err);

    for (int links = 0; code == BELAY_OK; links++) {
        *out_path = realpath(made, NULL);
        if (*out_path != NULL) {
            break;
        }
        next = links < LINKS_MAX ? link_target(made) : NULL;
        if (next == NULL) {
            code = resolve_new(made, out_path, err);
            break;
        }
        free(made);
        made = next;
    }
    free(made);
    return code;
}

enum belay_code sqlite_params_read(const char *text, struct sqlite_params *out_params, char **out_place,
                                   char **out_query, struct belay_error *err)
{
    struct sqlite_params params = { NULL, NULL, false, 30 * DAY_MS, 7 * DAY_MS };
    char *place = NULL;
    char *query = NULL;
    enum belay_code code = store_url_parse(&kind, text, &params, &place, &query, err);

    if (code == BELAY_OK && (place[0] == '\0' || place[strlen(place) - 1] == '/')) {
        code =
            error_set(err, BELAY_INVALID, "'sqlite:%s' names no file; write sqlite:/path/to/belay.db", text);
    }
    if (code != BELAY_OK) {
        free(place);
        free(query);
        return code;
    }
    *out_params = params;
    *out_place = place;
    *out_query = query;
    return BELAY_OK;
}

enum belay_code sqlite_params_parse(const char *text, struct sqlite_params *out_params,
                                    struct belay_error *err)
{
    struct sqlite_params params = { 0 };
    struct buf url = BUF_INIT(3 * PATH_MAX + 1024);
    char *place = NULL;
    char *query = NULL;
    enum belay_code code = sqlite_params_read(text, &params, &place, &query, err);

    if (code == BELAY_OK && (params.path = realpath(place, NULL)) == NULL) {
        code = resolve_missing(place, &params.path, err);
    }
    if (code != BELAY_OK) {
        goto done;
    }
    buf_adds(&url, "sqlite:");
    store_url_add_place(&url, params.path);
    buf_adds(&url, query);
    params.url = buf_take(&url);
    if (params.url == NULL) {
        code = error_no_memory(err);
        goto done;
    }
    *out_params = params;
    params.path = params.url = NULL;

done:
    free(place);
    free(query);
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
