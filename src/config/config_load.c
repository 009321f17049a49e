#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/paths.h"
#include "base/store_url.h"
#include "base/text.h"
#include "config/config.h"
#include "config/yaml_tree.h"

/* A configuration file to read. */
struct config_file {
    struct config_source source;
    char *path; /* owned; source.path if that was allocated, else NULL */
    int fd;     /* -1: there is no file, which is not an error */
};

static void config_file_close(struct config_file *file)
{
    if (file->fd >= 0) {
        (void)close(file->fd);
    }
    free(file->path);
}

/* The URL of the default store, which the caller frees. NULL: there is no home directory, or no memory. */
static char *default_store(void)
{
    char *path = home_path("XDG_STATE_HOME", ".local/state", "belay/belay.db");
    struct buf url = BUF_INIT(3 * PATH_MAX + 16);
    char *text = NULL;

    if (path != NULL) {
        buf_adds(&url, "sqlite:");
        store_url_add_place(&url, path);
        text = buf_take(&url);
    }
    free(path);
    buf_release(&url);
    return text;
}

/* ---- opening ----------------------------------------------------------- */

/* O_NONBLOCK: do not block on a FIFO; check_trust() refuses it. */
static int open_path(const char *path)
{
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

static enum belay_code open_named(struct config_file *file, const char *path, const char *named_by,
                                  struct belay_error *err)
{
    file->source.path = path;
    file->fd = open_path(path);
    if (file->fd < 0) {
        return error_set(err, BELAY_CONFIG, "cannot open '%.300s'%s: %s", path, named_by, strerror(errno));
    }
    return BELAY_OK;
}

/* file->fd stays -1 if there is no such file. */
static enum belay_code open_if_there(struct config_file *file, const char *path, struct belay_error *err)
{
    struct stat st;
    int why;

    file->fd = open_path(path);
    why = errno;
    if (file->fd >= 0) {
        file->source.path = path;
        return BELAY_OK;
    }
    /* Skip a directory that this user may not search, but report a file that it may not read. */
    if (why == ENOENT || why == ENOTDIR || (why == EACCES && stat(path, &st) != 0)) {
        return BELAY_OK;
    }
    return error_set(err, BELAY_CONFIG, "cannot open '%.300s': %s", path, strerror(why));
}

/* ---- trusting ---------------------------------------------------------- */

static bool is_dev_null(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(1, 3);
}

/*
 * The file decides which store is used and which programs are run, so only its owner may write it. The owner of a file
 * found in the working directory must be the user or root.
 */
static enum belay_code check_trust(const struct config_source *source, const struct stat *st,
                                   struct belay_error *err)
{
    if (!S_ISREG(st->st_mode)) {
        return error_set(err, BELAY_CONFIG, "'%.300s' is not a regular file", source->path);
    }
    if ((st->st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        return error_set(err, BELAY_CONFIG, "'%.300s' is writable by other users; run 'chmod go-w %.300s'",
                         source->path, source->path);
    }
    if (source->is_found && st->st_uid != 0 && st->st_uid != geteuid()) {
        return error_set(
            err, BELAY_CONFIG,
            "'%.300s' belongs to another user (uid %lu), who may change it; name it with --config "
            "to use it anyway",
            source->path, (unsigned long)st->st_uid);
    }
    if (st->st_size > YAML_FILE_MAX) {
        return error_set(err, BELAY_CONFIG, "'%.300s' is larger than %d bytes", source->path, YAML_FILE_MAX);
    }
    return BELAY_OK;
}

/* ---- reading ----------------------------------------------------------- */

static enum belay_code read_bytes(const struct config_file *file, struct buf *data, struct belay_error *err)
{
    char chunk[8192];
    ssize_t n;

    do {
        n = read(file->fd, chunk, sizeof chunk);
        if (n > 0) {
            buf_add(data, chunk, (size_t)n);
        }
    } while (!data->failed && (n > 0 || (n < 0 && errno == EINTR)));
    if (data->failed && data->len + (size_t)n <= data->max) {
        return error_no_memory(err);
    }
    if (data->failed) {
        return error_set(err, BELAY_CONFIG, "'%.300s' is larger than %d bytes", file->source.path,
                         YAML_FILE_MAX); /* the file grew while it was read */
    }
    if (n < 0) {
        return error_set(err, BELAY_CONFIG, "cannot read '%.300s': %s", file->source.path, strerror(errno));
    }
    return BELAY_OK;
}

static enum belay_code read_file(struct belay_config *config, const struct config_file *file,
                                 struct belay_error *err)
{
    struct buf data = BUF_INIT(YAML_FILE_MAX);
    struct yaml_node root = { .kind = YAML_NODE_EMPTY };
    struct stat st;
    enum belay_code code;

    if (fstat(file->fd, &st) != 0) {
        return error_set(err, BELAY_CONFIG, "cannot stat '%.300s': %s", file->source.path, strerror(errno));
    }
    if (is_dev_null(&st)) {
        return BELAY_OK; /* means: no file */
    }
    code = check_trust(&file->source, &st, err);
    if (code == BELAY_OK) {
        code = read_bytes(file, &data, err);
    }
    if (code == BELAY_OK) {
        code = yaml_parse(file->source.path, data.data == NULL ? "" : data.data, data.len, &root, err);
    }
    if (code == BELAY_OK) {
        code = config_read_yaml(config, &file->source, &root, err);
    }
    yaml_node_release(&root);
    buf_release(&data);
    return code;
}

static enum belay_code read_and_close(struct belay_config *config, struct config_file *file,
                                      struct belay_error *err)
{
    enum belay_code code = BELAY_OK;

    if (file->fd >= 0) {
        code = read_file(config, file, err);
    }
    if (code == BELAY_OK && file->fd >= 0 && config->path == NULL) {
        config->path = strdup(file->source.path);
        code = config->path == NULL ? error_no_memory(err) : BELAY_OK;
    }
    config_file_close(file);
    return code;
}

/* Read `path`, or the file that BELAY_CONFIG names. */
static enum belay_code read_named(struct belay_config *config, const char *path, struct belay_error *err)
{
    struct config_file file = { .fd = -1 };
    enum belay_code code = path != NULL
                               ? open_named(&file, path, "", err)
                               : open_named(&file, env_text("BELAY_CONFIG"), " (named by BELAY_CONFIG)", err);

    return code == BELAY_OK ? read_and_close(config, &file, err) : code;
}

/*
 * No file is named: read the user's file or the machine's, then the profiles of a file in the working directory. The
 * latter only adds profiles: a checkout must not replace the file that names the store.
 */
static enum belay_code search_files(struct belay_config *config, struct belay_error *err)
{
    struct config_file installed = { .fd = -1,
                                     .path = home_path("XDG_CONFIG_HOME", ".config", "belay/config.yaml") };
    struct config_file here = { .fd = -1, .source = { .is_found = true } };
    enum belay_code code = BELAY_OK;

    if (installed.path != NULL) {
        code = open_if_there(&installed, installed.path, err);
    }
    if (code == BELAY_OK && installed.fd < 0) {
        code = open_if_there(&installed, "/etc/belay/config.yaml", err);
    }
    if (code == BELAY_OK) {
        code = read_and_close(config, &installed, err);
    } else {
        config_file_close(&installed);
    }
    if (code == BELAY_OK) {
        code = open_if_there(&here, "./belay.yaml", err);
    }
    return code == BELAY_OK ? read_and_close(config, &here, err) : code;
}

enum belay_code belay_config_load(const char *path, struct belay_config **out_config, struct belay_error *err)
{
    struct belay_config *config = calloc(1, sizeof *config);
    enum belay_code code = config == NULL ? error_no_memory(err) : BELAY_OK;
    char *store = NULL;

    if (code == BELAY_OK) {
        code = config_reset(config, "", err);
    }
    /* Without a home directory there is no default store, which is an error only if --store is missing too. */
    if (code == BELAY_OK && (store = default_store()) != NULL) {
        code = config_set(config, "store", store, "default", err);
        free(store);
    }
    if (code == BELAY_OK) {
        code = path != NULL || env_text("BELAY_CONFIG") != NULL ? read_named(config, path, err)
                                                                : search_files(config, err);
    }
    if (code == BELAY_OK) {
        code = config_read_environment(config, err);
    }
    if (code == BELAY_OK && config->path != NULL) { /* only a file has profiles */
        code = config_make_profiles(config, err);
    }
    if (code == BELAY_OK) {
        *out_config = config;
        config = NULL; /* owned by the caller now */
    }
    belay_config_free(config);
    return code;
}
