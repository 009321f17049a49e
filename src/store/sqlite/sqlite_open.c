#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/new_file.h"
#include "base/store_url.h"
#include "store/sqlite/sqlite_internal.h"

#define DAY_MS (24LL * 3600 * 1000)

enum { LINKS_MAX = 40 };

/* ---- the URL and the path ---- */

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
            bool is_hidden = failed == EACCES && stat(path, &st) != 0 && errno == EACCES;

            (void)error_set(err, BELAY_UNREACHABLE,
                            "cannot %s the directory '%s' %s the lock database: %s; name a place that can "
                            "be written with --store sqlite:PATH",
                            is_hidden ? "reach" : "make", path, is_hidden ? "of" : "for", strerror(failed));
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

/* ---- the place ---- */

/* File systems on which SQLite's locks and shared memory do not work across machines. */
static const struct {
    unsigned long magic;
    const char *name;
} network_file_systems[] = {
    { 0x6969, "NFS" },        { 0x517b, "SMB" },      { 0xff534d42, "CIFS" },  { 0xfe534d42, "SMB" },
    { 0x01021997, "9P" },     { 0x00c36400, "CEPH" }, { 0x5346414f, "AFS" },   { 0x6b414653, "AFS" },
    { 0x73757245, "CODA" },   { 0x564c, "NCP" },      { 0x7461636f, "OCFS2" }, { 0x01161970, "GFS2" },
    { 0x0bd00bd0, "LUSTRE" }, { 0x47504653, "GPFS" },
};

long sqlite_file_system_type(const struct sqlite_store *store, const char *directory)
{
    struct statfs fs;

    if (store->hooks.fs_type != NULL) {
        return store->hooks.fs_type(store->hooks.context, directory);
    }
    return statfs(directory, &fs) == 0 ? (long)fs.f_type : 0;
}

const char *sqlite_network_name(long fs_type)
{
    for (size_t i = 0; i < sizeof network_file_systems / sizeof network_file_systems[0]; i++) {
        if (network_file_systems[i].magic == ((unsigned long)fs_type & 0xffffffffUL)) {
            return network_file_systems[i].name;
        }
    }
    return NULL;
}

/* SQLite finds the log by the file's name: two names have two logs, and allow two holders of one lock. */
static enum belay_code check_one_name(const char *path, struct belay_error *err)
{
    struct statx st;

    if (statx(AT_FDCWD, path, 0, STATX_TYPE | STATX_NLINK, &st) != 0 || !S_ISREG(st.stx_mode)) {
        return BELAY_OK;
    }
    if ((st.stx_mask & STATX_NLINK) != 0 && st.stx_nlink > 1) {
        return error_set(
            err, BELAY_INVALID,
            "the lock database '%s' has %u names (hard links), and locks taken under one are not "
            "seen under another; remove the others, and use symbolic links instead",
            path, (unsigned)st.stx_nlink);
    }
    if ((st.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0) {
        return error_set(err, BELAY_INVALID,
                         "the lock database '%s' is mounted as a single file, without the log beside it; "
                         "mount the directory that it is in",
                         path);
    }
    return BELAY_OK;
}

static enum belay_code check_place(const struct sqlite_store *store, struct belay_error *err)
{
    char *directory = strdup(store->path);
    struct stat st;
    enum belay_code code = BELAY_OK;
    const char *network;

    if (directory == NULL) {
        return error_no_memory(err);
    }
    strrchr(directory, '/')[strrchr(directory, '/') == directory ? 1 : 0] = '\0';
    network = sqlite_network_name(sqlite_file_system_type(store, directory));
    if (network != NULL) {
        code = error_set(err, BELAY_INVALID,
                         "'%s' is on a network file system (%s), where SQLite's locks do not hold; name a "
                         "file on a local disk, or one belay server for all machines",
                         store->path, network);
    }
    if (code == BELAY_OK && stat(store->path, &st) == 0 && !S_ISREG(st.st_mode)) {
        code = error_set(err, BELAY_INVALID, "'%s' is %s; name the file of the lock database, such as %s%s",
                         store->path, S_ISDIR(st.st_mode) ? "a directory" : "not a regular file",
                         S_ISDIR(st.st_mode) ? store->path : directory, "/belay.db");
    }
    free(directory);
    return code == BELAY_OK ? check_one_name(store->path, err) : code;
}

/*
 * The log remains when the last process closes the database. If it is missing, it was deleted,
 * or this is a copy.
 */
static bool has_log(const struct sqlite_store *store)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(store->hooks.vfs);
    struct buf path = BUF_INIT(PATH_MAX + 8);
    int is_there = 1;

    buf_addf(&path, "%s-wal", store->path);
    if (vfs != NULL && !path.failed) {
        (void)vfs->xAccess(vfs, path.data, SQLITE_ACCESS_EXISTS, &is_there);
    }
    buf_release(&path);
    return is_there != 0;
}

/*
 * The file contains lock ids, and a client that knows a lock id can end that lock. SQLite
 * would create the file readable by every user; the log and the index get the file's mode.
 */
static void make_private_file(const struct sqlite_store *store)
{
    mode_t mode = new_file_mode(store->path);
    int fd = open(store->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);

    if (fd >= 0) {
        (void)fchmod(fd, mode); /* whatever the umask is */
        (void)close(fd);
    }
}

/*
 * A file that was copied with a wide umask. A user who can only read it cannot use belay on
 * it, so that was not intended; read and write permission was given on purpose.
 */
static void make_private_again(const struct sqlite_store *store, mode_t mode)
{
    static const char *const names[] = { "", "-wal", "-shm", "-ledger-0", "-ledger-1" };
    mode_t drop = (mode & 0006) == 0004 ? 0007 : 0;

    drop |= (mode & 0060) == 0040 ? 0070 : 0;
    for (size_t i = 0; drop != 0 && i < sizeof names / sizeof names[0]; i++) {
        struct buf path = BUF_INIT(PATH_MAX + 16);
        struct stat st;

        buf_addf(&path, "%s%s", store->path, names[i]);
        if (!path.failed && lstat(path.data, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid()) {
            (void)chmod(path.data, st.st_mode & 0777 & ~drop);
        }
        buf_release(&path);
    }
}

/* A new file, or one that others may read. Not with a test's VFS, whose files may be in memory. */
static void restrict_mode(const struct sqlite_store *store)
{
    struct stat st;

    if (store->hooks.vfs != NULL) {
        return;
    }
    if (stat(store->path, &st) != 0) {
        make_private_file(store);
    } else if (st.st_uid == geteuid() && (st.st_mode & 0044) != 0) {
        make_private_again(store, st.st_mode);
    }
}

/* ---- opening and closing ---- */

static enum belay_code connect_db(struct sqlite_store *store, struct belay_error *err)
{
    int rc =
        db_connect(store->path, store->hooks.vfs, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &store->db);

    if (store->db == NULL) {
        return error_no_memory(err);
    }
    store->synchronous = 2;
    store->wal_pages = -1;
    if (rc == SQLITE_OK && sqlite3_db_readonly(store->db, "main") == 1) {
        rc = SQLITE_READONLY;
    }
    if (rc == SQLITE_OK) {
        rc = sqlite3_busy_handler(store->db, db_busy, store);
    }
    if (rc == SQLITE_OK) {
        (void)sqlite3_wal_hook(store->db, db_on_wal, store);
    }
    return rc == SQLITE_OK ? BELAY_OK : sqlite_failed(store, rc, err);
}

/*
 * The next process to open it would read a long log from its beginning. After a complete
 * checkpoint the next commit starts the log from the beginning, so make one. The file keeps
 * its length: growing it again would make synced commits slow. This does not wait for other
 * processes; the last one to close the database does it.
 */
static void begin_log_anew(struct sqlite_store *store)
{
    (void)sqlite3_busy_handler(store->db, NULL, NULL);
    if (sqlite3_wal_checkpoint_v2(store->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL) == SQLITE_OK) {
        sqlite_sweep(store, false); /* its commit is the one that starts the log again */
    }
}

static void sqlite_close(struct belay_store *base)
{
    struct sqlite_store *store = (struct sqlite_store *)base;

    if (store == NULL) {
        return;
    }
    sqlite_disown(store);
    if (store->commits >= MANY_COMMITS && store->wal_pages >= CHECKPOINT_SMALL) {
        begin_log_anew(store);
    }
    for (size_t i = 0; i < N_STATEMENTS; i++) {
        (void)sqlite3_finalize(store->statements[i]);
    }
    (void)sqlite3_close(store->db);
    wake_close(store);
    (void)pthread_mutex_destroy(&store->mutex);
    (void)pthread_mutex_destroy(&store->wake_mutex);
    freeze_list_release(&store->freezes.list);
    free(store->kept);
    free(store->path);
    free(store->wake_path);
    free(store);
}

static struct belay_store_capabilities sqlite_capabilities(struct belay_store *base)
{
    /* Without a liveness lock only the ticket's expiry tells that its waiter is gone, so it must be short. */
    struct sqlite_store *store = (struct sqlite_store *)base;
    bool has_liveness = store->wake.words != NULL;
    bool owns = store->own_fd >= 0; /* its grants are for processes that outlive it */

    return (struct belay_store_capabilities){ .is_local = true,
                                              .margin_ms = 0,
                                              .claim_ms = 1000,
                                              .has_freezes = true,
                                              .poll_ms = 250,
                                              .ticket_ttl_ms = has_liveness || owns ? 60000 : 3000,
                                              .finds_mode = true,
                                              .has_modes = true };
}

static const struct belay_store_ops sqlite_ops = {
    .name = "sqlite",
    .close = sqlite_close,
    .get = sqlite_get,
    .commit = sqlite_commit,
    .scan = sqlite_scan,
    .events = sqlite_events,
    .capabilities = sqlite_capabilities,
    .listen = sqlite_listen,
    .wait = sqlite_wait,
    .wake = sqlite_wake,
    .item_get = sqlite_item_get,
    .item_put = sqlite_item_put,
    .item_list = sqlite_item_list,
    .backup = sqlite_backup,
    .identity = sqlite_identity,
};

static struct sqlite_store *store_new(struct sqlite_params *params, const struct sqlite_hooks *hooks)
{
    struct sqlite_store *store = calloc(1, sizeof *store);
    size_t size = strlen(params->path) + sizeof "-wake";

    if (store == NULL) {
        return NULL;
    }
    store->base.ops = &sqlite_ops;
    (void)pthread_mutex_init(&store->mutex, NULL);
    (void)pthread_mutex_init(&store->wake_mutex, NULL);
    store->wake.fd = store->wake.probe_fd = -1;
    store->wake.listeners = 1;
    store->own_fd = -1;
    if (hooks != NULL) {
        store->hooks = *hooks;
    }
    store->busy_limit_ms = store->hooks.busy_limit_ms > 0 ? store->hooks.busy_limit_ms : BUSY_LIMIT_MS;
    store->always_full = params->always_full;
    store->retain_events_ms = params->retain_events_ms;
    store->retain_records_ms = params->retain_records_ms;
    store->jitter = ((uint64_t)getpid() << 32 | (uint64_t)clock_unix_ms()) * 2 + 1;
    store->path = params->path;
    params->path = NULL;
    store->wake_path = malloc(size);
    if (store->wake_path == NULL) {
        sqlite_close(&store->base);
        return NULL;
    }
    (void)snprintf(store->wake_path, size, "%s-wake", store->path);
    return store;
}

/* With `out_lost` the store is repaired first: what can be saved of a dead server's journal is in it then. */
static enum belay_code open_or_repair(const char *path_and_params, const struct sqlite_hooks *hooks,
                                      bool *out_lost, struct belay_store **out_store, char **out_url,
                                      struct belay_error *err)
{
    struct sqlite_params params = { 0 };
    struct sqlite_store *store = NULL;
    bool is_whole = true;
    enum belay_code code = sqlite_params_parse(path_and_params, &params, err);

    if (code == BELAY_OK) {
        store = store_new(&params, hooks);
        code = store == NULL ? error_no_memory(err) : sqlite_clock_init(store, err);
    }
    if (code == BELAY_OK) {
        code = check_place(store, err);
    }
    if (code == BELAY_OK) {
        restrict_mode(store);
        is_whole = has_log(store);
        code = connect_db(store, err);
    }
    if (code == BELAY_OK) {
        code = sqlite_schema_ready(store, err);
    }
    if (code == BELAY_OK) {
        wake_open(store);
        code = is_whole ? BELAY_OK : sqlite_go_on_without_log(store, err);
    }
    if (code == BELAY_OK && out_lost != NULL) {
        code = sqlite_unserve_rest(store, out_lost, err);
    }
    if (code == BELAY_OK) {
        code = sqlite_restart(store, err);
    }
    if (code == BELAY_OK && out_url != NULL) {
        *out_url = params.url;
        params.url = NULL;
    }
    if (code == BELAY_OK) {
        *out_store = &store->base;
    } else {
        sqlite_close(store == NULL ? NULL : &store->base);
    }
    sqlite_params_release(&params);
    return code;
}

enum belay_code sqlite_store_open(const char *path_and_params, const struct sqlite_hooks *hooks,
                                  struct belay_store **out_store, char **out_url, struct belay_error *err)
{
    return open_or_repair(path_and_params, hooks, NULL, out_store, out_url, err);
}

enum belay_code sqlite_store_repair(const char *path_and_params, const struct sqlite_hooks *hooks,
                                    bool *out_lost, struct belay_error *err)
{
    struct belay_store *store = NULL;
    enum belay_code code = open_or_repair(path_and_params, hooks, out_lost, &store, NULL, err);

    sqlite_close(store);
    return code;
}
