/* Backup, restore and repair of an embedded store. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/new_file.h"
#include "base/store_url.h"
#include "base/text.h"
#include "client/client.h"
#include "open/open_internal.h"
#include "store/sqlite/sqlite_store.h"

/* The path in the URL of the store. The caller frees *out_own, also after an error. */
static enum belay_code find_file(const struct belay_maintenance_options *options, const char *what,
                                 struct belay_config **out_own, const char **out_path,
                                 struct belay_error *err)
{
    const struct belay_config *config = options == NULL ? NULL : options->config;
    const char *url = options == NULL ? NULL : options->store_url;
    char shown[STORE_URL_SHOWN];
    enum belay_code code = BELAY_OK;

    if (url == NULL) {
        code = open_config(&config, out_own, err);
        url = code == BELAY_OK ? belay_config_get(config, "store") : NULL;
    }
    if (code != BELAY_OK) {
        return code;
    }
    if (url == NULL || !text_has_prefix(url, "sqlite:")) {
        return error_set(err, BELAY_INVALID,
                         "only an embedded store can be %s, and the store is '%s': name one with --store "
                         "sqlite:PATH",
                         what, url == NULL ? "not set" : store_url_show(url, shown));
    }
    *out_path = url + strlen("sqlite:");
    return BELAY_OK;
}

enum belay_code belay_repair(const struct belay_maintenance_options *options, bool *out_lost,
                             struct belay_error *err)
{
    struct belay_config *own = NULL;
    const char *path = NULL;
    bool lost = false;
    enum belay_code code = find_file(options, "repaired", &own, &path, err);

    if (code == BELAY_OK) {
        code = sqlite_store_repair(path, NULL, &lost, err);
    }
    if (code == BELAY_OK && out_lost != NULL) {
        *out_lost = lost;
    }
    belay_config_free(own);
    return code;
}

/* ---- backup and restore ---- */

static enum belay_code say_cannot(const char *what, const char *file, struct belay_error *err)
{
    if (errno == EEXIST) {
        return error_set(err, BELAY_INVALID, "'%.300s' is there already: name a file that is not", file);
    }
    return error_set(err, new_file_code(errno), "cannot %s '%.300s': %s", what, file, strerror(errno));
}

static void fill_backup(const struct sqlite_backup_info *info, const char *file, struct belay_backup *out)
{
    struct stat st;

    if (out != NULL) {
        out->locks = info->n_records;
        out->held = info->n_held;
        out->bytes = stat(file, &st) == 0 ? (int64_t)st.st_size : 0;
        out->made_at_unix_ms = info->copied_at_unix_ms;
        out->next_token = info->next;
    }
}

enum belay_code belay_backup(struct belay_client *client, const char *file, struct belay_cancel *cancel,
                             struct belay_backup *out_backup, struct belay_error *err)
{
    struct sqlite_backup_info info = { 0 };
    struct stat st;
    char *temp = NULL;
    enum belay_code code;
    int fd = -1;

    if (lstat(file, &st) == 0) {
        errno = EEXIST;
        return say_cannot("write", file, err);
    }
    fd = new_file_open(file, "part", &temp);
    if (fd < 0) {
        return say_cannot("write", file, err);
    }
    (void)close(fd);
    ROUTE(&client->route, code, err, backup, temp, cancel);
    if (code == BELAY_OK) {
        code = sqlite_backup_check(temp, &info, err);
    }
    if (code == BELAY_OK && (!new_file_sync(temp) || !new_file_place(temp, file))) {
        code = say_cannot("write", file, err);
    }
    if (code == BELAY_OK) {
        fill_backup(&info, file, out_backup);
    } else {
        (void)unlink(temp);
    }
    free(temp);
    return code;
}

enum belay_code belay_restore(const char *file, const struct belay_maintenance_options *options,
                              struct belay_backup *out_backup, struct belay_error *err)
{
    struct sqlite_backup_info info = { 0 };
    struct belay_config *own = NULL;
    const char *path = NULL;
    enum belay_code code = find_file(options, "restored", &own, &path, err);

    if (code == BELAY_OK) {
        code = sqlite_store_restore(file, path, NULL, options != NULL && options->replace, &info, err);
    }
    if (code == BELAY_OK) {
        fill_backup(&info, file, out_backup);
    }
    belay_config_free(own);
    return code;
}
