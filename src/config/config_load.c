#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "config/config.h"
#include "config/yaml_tree.h"

/* The open file that is to be read, and how we came by it. */
struct config_file {
    struct config_source source;
    char *path; /* owned; the same as source.path, or NULL */
    int fd;     /* -1: there is none, which is not an error */
};

static void config_file_close(struct config_file *file)
{
    if (file->fd >= 0) {
        (void)close(file->fd);
    }
    free(file->path);
}

/* ---- finding ----------------------------------------------------------- */

/* Not to block on a fifo; what is no regular file is refused later. */
static int open_path(const char *path)
{
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

static enum belay_code open_named(struct config_file *file, const char *path, const char *who_named_it,
                                  struct belay_error *err)
{
    file->source.path = path;
    file->fd = open_path(path);
    if (file->fd < 0) {
        return error_set(err, BELAY_CONFIG, "%.300s%s: cannot be opened: %s", path, who_named_it,
                         strerror(errno));
    }
    return BELAY_OK;
}

/* Leaves file->fd at -1 if there is no such file. */
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
    /* A directory that we may not search has nothing for us; a file that we may not read has. */
    if (why == ENOENT || why == ENOTDIR || (why == EACCES && stat(path, &st) != 0)) {
        return BELAY_OK;
    }
    return error_set(err, BELAY_CONFIG, "%.300s: cannot be opened: %s", path, strerror(why));
}

/* The user's file, else the machine's. */
static enum belay_code open_installed(struct config_file *file, struct belay_error *err)
{
    enum belay_code code = BELAY_OK;

    file->path = config_home_path("XDG_CONFIG_HOME", ".config", "belay/config.yaml");
    if (file->path != NULL) {
        code = open_if_there(file, file->path, err);
    }
    if (code == BELAY_OK && file->fd < 0) {
        code = open_if_there(file, "/etc/belay/config.yaml", err);
    }
    return code;
}

/* ---- trusting ---------------------------------------------------------- */

static bool is_dev_null(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(1, 3);
}

/*
 * Who may write the file decides which locks count and what is run, so it must
 * be nobody but its owner; and of what merely lies in the working directory the
 * owner must be the user, or root.
 */
static enum belay_code check_trust(const struct config_source *source, const struct stat *st,
                                   struct belay_error *err)
{
    if (!S_ISREG(st->st_mode)) {
        return error_set(err, BELAY_CONFIG, "%.300s: is not a regular file", source->path);
    }
    if ((st->st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        return error_set(err, BELAY_CONFIG, "%.300s: others may write it; run 'chmod go-w %.300s'",
                         source->path, source->path);
    }
    if (source->is_found && st->st_uid != 0 && st->st_uid != geteuid()) {
        return error_set(
            err, BELAY_CONFIG,
            "%.300s: belongs to another user (uid %lu), who may change it; name it with --config "
            "to use it all the same",
            source->path, (unsigned long)st->st_uid);
    }
    if (st->st_size > YAML_FILE_MAX) {
        return error_set(err, BELAY_CONFIG, "%.300s: has more than %d bytes", source->path, YAML_FILE_MAX);
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
        return error_set(err, BELAY_CONFIG, "%.300s: has more than %d bytes", file->source.path,
                         YAML_FILE_MAX); /* it grew while we read it */
    }
    if (n < 0) {
        return error_set(err, BELAY_CONFIG, "%.300s: cannot be read: %s", file->source.path, strerror(errno));
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
        return error_set(err, BELAY_CONFIG, "%.300s: cannot be examined: %s", file->source.path,
                         strerror(errno));
    }
    if (is_dev_null(&st)) {
        return BELAY_OK; /* the customary name for no file at all */
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

/* Read the file, if it is open, and close it. */
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

/* `path`, or the one that BELAY_CONFIG names. */
static enum belay_code read_named(struct belay_config *config, const char *path, struct belay_error *err)
{
    struct config_file file = { .fd = -1 };
    enum belay_code code =
        path != NULL ? open_named(&file, path, "", err)
                     : open_named(&file, config_env("BELAY_CONFIG"), " (named by BELAY_CONFIG)", err);

    return code == BELAY_OK ? read_and_close(config, &file, err) : code;
}

/*
 * Without a name: the user's file or the machine's, and over it the profiles of a
 * file in the working directory. A checkout must not hide the file that says
 * where the locks are, so it does not take its place.
 */
static enum belay_code search_files(struct belay_config *config, struct belay_error *err)
{
    struct config_file installed = { .fd = -1 };
    struct config_file here = { .fd = -1, .source = { .is_found = true } };
    enum belay_code code = open_installed(&installed, err);

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

static enum belay_code put_defaults(struct belay_config *config, struct belay_error *err)
{
    enum belay_code code = BELAY_OK;
    char *store = NULL;

    for (size_t i = 0; code == BELAY_OK && i < config_n_builtin; i++) {
        code = config_set(config, config_builtin[i].name, config_builtin[i].value, config_builtin[i].origin,
                          err);
    }
    /* Without a home there is no default, which is an error only for who needs it: --store may come yet. */
    if (code == BELAY_OK && config_default_store(&store, NULL) == BELAY_OK) {
        code = config_set(config, "store", store, "default", err);
    }
    free(store);
    return code;
}

enum belay_code belay_config_load(const char *path, struct belay_config **out_config, struct belay_error *err)
{
    struct belay_config *config = calloc(1, sizeof *config);
    enum belay_code code = config == NULL ? error_no_memory(err) : put_defaults(config, err);

    if (code == BELAY_OK) {
        code = path != NULL || config_env("BELAY_CONFIG") != NULL ? read_named(config, path, err)
                                                                  : search_files(config, err);
    }
    if (code == BELAY_OK) {
        code = config_read_environment(config, err);
    }
    if (code == BELAY_OK) {
        code = config_make_profiles(config, err);
    }
    if (code == BELAY_OK) {
        *out_config = config;
        config = NULL; /* the caller's now */
    }
    belay_config_free(config);
    return code;
}
