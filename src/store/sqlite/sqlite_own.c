/*
 * One server may own the file. Then meta.served_by says which process it is and where it
 * listens, and all other processes go through it.
 *
 *     FILE-serve.lock   flock()ed by the server while it runs
 *     FILE-serve.sock   where it listens; the server creates and removes it
 *     meta.served_by    "PID BOOT_ID NAME"; NAME is that of the socket beside FILE
 *
 * Every read and write checks served_by in its own transaction, so no other process works
 * on the file beside the server, not even one that had the file open before. A server that
 * died leaves served_by behind, but not the lock: a process that can take the lock recovers
 * the server's journal and clears served_by.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "store/sqlite/sqlite_internal.h"

enum {
    NAME_MAX_BYTES = 80,    /* of a socket's, so that it fits behind /proc/self/fd/N/ */
    LOCK_TIMEOUT_MS = 3000, /* a process that cleans up after a dead server has the lock for a moment */
    LOCK_STEP_MS = 20
};

static char *path_beside(const struct sqlite_store *store, const char *suffix)
{
    size_t size = strlen(store->path) + strlen(suffix) + 1;
    char *path = malloc(size);

    if (path != NULL) {
        (void)snprintf(path, size, "%s%s", store->path, suffix);
    }
    return path;
}

/* ---- what is in served_by ---- */

static void make_socket_name(const struct sqlite_store *store, char *out, size_t size)
{
    const char *base = strrchr(store->path, '/') + 1;

    if (strlen(base) + strlen("-serve.sock") < NAME_MAX_BYTES) {
        (void)snprintf(out, size, "%s-serve.sock", base);
    } else {
        (void)snprintf(out, size, "belay-%016llx-serve.sock", (unsigned long long)hash_text(base));
    }
}

/* A name without a folder: it is beside the database, whatever the path of that is. */
static char *socket_path(const struct sqlite_store *store, const char *name)
{
    size_t folder = (size_t)(strrchr(store->path, '/') + 1 - store->path);
    char *path = malloc(folder + strlen(name) + 1);

    if (path != NULL) {
        memcpy(path, store->path, folder);
        memcpy(path + folder, name, strlen(name) + 1);
    }
    return path;
}

bool sqlite_served_parse(const struct sqlite_store *store, struct sqlite_server *out_server)
{
    struct sqlite_server server = { 0 };
    int at = 0;
    const char *name;

    if (sscanf(store->served_by, "%ld %*s %n", &server.pid, &at) != 1 || at == 0) {
        return false;
    }
    name = store->served_by + at;
    if (*name == '\0' || strchr(name, '/') != NULL || (server.socket = socket_path(store, name)) == NULL) {
        return false;
    }
    *out_server = server;
    return true;
}

void sqlite_server_release(struct sqlite_server *server)
{
    free(server->socket);
    *server = (struct sqlite_server){ 0 };
}

enum belay_code sqlite_redirected(const struct sqlite_store *store, struct belay_error *err)
{
    return error_set(err, BELAY_REDIRECTED, "the lock database '%s' is served by process %ld", store->path,
                     strtol(store->served_by, NULL, 10));
}

/* ---- the lock ---- */

/* -1 with errno set; EWOULDBLOCK: another process has it. The file has the mode of the database. */
static int serve_lock_take(const struct sqlite_store *store)
{
    char *path = path_beside(store, "-serve.lock");
    int fd = path == NULL ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct stat st;
    struct stat db;
    int saved;

    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() && stat(store->path, &db) == 0) {
        if ((st.st_mode & 0666) != (db.st_mode & 0666)) {
            (void)fchmod(fd, db.st_mode & 0666);
        }
        if (geteuid() == 0 && (st.st_uid != db.st_uid || st.st_gid != db.st_gid)) {
            (void)!fchown(fd, db.st_uid, db.st_gid);
        }
    }
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        saved = errno;
        (void)close(fd);
        errno = saved;
        fd = -1;
    }
    saved = errno;
    free(path);
    errno = saved;
    return fd;
}

static void serve_lock_release(int fd)
{
    if (fd >= 0) {
        (void)flock(fd, LOCK_UN); /* also for a child that has inherited it */
        (void)close(fd);
    }
}

bool sqlite_server_lives(const struct sqlite_store *store)
{
    char *path = path_beside(store, "-serve.lock");
    int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool lives = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;

    serve_lock_release(fd);
    free(path);
    return lives;
}

static long read_pid(const struct sqlite_store *store)
{
    char *path = path_beside(store, "-serve.lock");
    FILE *file = path == NULL ? NULL : fopen(path, "re");
    long pid = 0;

    if (file != NULL) {
        if (fscanf(file, "%ld", &pid) != 1) {
            pid = 0;
        }
        (void)fclose(file);
    }
    free(path);
    return pid;
}

static void write_pid(int fd)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());

    if (ftruncate(fd, 0) == 0) {
        (void)!pwrite(fd, text, (size_t)n, 0);
    }
}

/* ---- taking over, giving back ---- */

/*
 * Clients that waited through the server find their places when they come back, to the file or to the next
 * server: the first must not take the others for dead. Inside a transaction.
 */
static enum belay_code keep_places(struct sqlite_store *store, struct row *row, void *context,
                                   struct belay_error *err)
{
    const int64_t *until_ms = context;

    return alive_keep_places(store, row, *until_ms) ? row_save(store, row, err) : BELAY_OK;
}

/* With the lock and the mutex. `text` NULL: no server any more. */
static enum belay_code change_served(struct sqlite_store *store, const char *text, struct belay_error *err)
{
    int64_t until_ms = sqlite_now_ms(store) + SQLITE_PLACE_KEPT_MS;
    int rc = db_begin(store, true);
    enum belay_code code = BELAY_OK;

    if (rc == SQLITE_OK && text == NULL) {
        code = row_each(store, ROW_TICKETS, keep_places, &until_ms, err);
    }
    if (rc == SQLITE_OK && code == BELAY_OK) {
        rc = db_change(store->db, "UPDATE meta SET served_by = ?1 WHERE id = 1", NULL, 0, text);
    }
    if (rc == SQLITE_OK && code == BELAY_OK) {
        rc = db_run(store, ST_COMMIT);
    }
    db_rollback(store);
    return code != BELAY_OK || rc == SQLITE_OK ? code : sqlite_failed(store, rc, err);
}

enum belay_code sqlite_unserve(struct sqlite_store *store, bool *out_is_alive, struct belay_error *err)
{
    int fd = serve_lock_take(store);
    enum belay_code code;

    *out_is_alive = false;
    if (fd < 0 && errno == EWOULDBLOCK) {
        *out_is_alive = true;
        return BELAY_OK;
    }
    if (fd < 0) {
        return error_set(
            err, BELAY_UNREACHABLE,
            "a server (process %ld) had the lock database '%s', and whether it still runs cannot "
            "be seen: %s-serve.lock: %s",
            strtol(store->served_by, NULL, 10), store->path, store->path, strerror(errno));
    }
    code = sqlite_recover(store, err);
    if (code == BELAY_OK) {
        code = change_served(store, NULL, err);
    }
    serve_lock_release(fd);
    return code;
}

static int serve_lock_await(const struct sqlite_store *store)
{
    const struct timespec step = { 0, LOCK_STEP_MS * 1000000L };
    int64_t until_ms = clock_boot_ms() + LOCK_TIMEOUT_MS;
    int fd;

    for (;;) {
        long pid;

        fd = serve_lock_take(store);
        if (fd >= 0 || errno != EWOULDBLOCK || clock_boot_ms() >= until_ms) {
            return fd;
        }
        pid = read_pid(store);
        if (pid > 0 && kill((pid_t)pid, 0) == 0) {
            errno = EWOULDBLOCK; /* another server */
            return -1;
        }
        (void)nanosleep(&step, NULL);
    }
}

/* BELAY_UNREACHABLE, with the reason, if another process keeps the lock or the file cannot be used. */
static enum belay_code serve_lock_obtain(const struct sqlite_store *store, int *out_fd,
                                         struct belay_error *err)
{
    *out_fd = serve_lock_await(store);
    if (*out_fd >= 0) {
        return BELAY_OK;
    }
    if (errno == EWOULDBLOCK) {
        return error_set(
            err, BELAY_UNREACHABLE,
            "process %ld serves the lock database '%s' already: use that server, or stop it first",
            read_pid(store), store->path);
    }
    return error_set(err, BELAY_UNREACHABLE, "cannot lock '%s-serve.lock': %s", store->path, strerror(errno));
}

enum belay_code sqlite_unserve_rest(struct sqlite_store *store, bool *out_lost, struct belay_error *err)
{
    int fd;
    enum belay_code code = serve_lock_obtain(store, &fd, err);

    if (code != BELAY_OK) {
        return code;
    }
    code = sqlite_recover_rest(store, out_lost, err);
    if (code == BELAY_OK) {
        code = change_served(store, NULL, err);
    }
    serve_lock_release(fd);
    return code;
}

enum belay_code sqlite_store_own(struct belay_store *base, char **out_socket, struct belay_error *err)
{
    struct sqlite_store *store = (struct sqlite_store *)base;
    char name[NAME_MAX_BYTES + 1];
    char text[sizeof store->served_by];
    char *socket;
    int fd;
    enum belay_code code = serve_lock_obtain(store, &fd, err);

    if (code != BELAY_OK) {
        return code;
    }
    assert(store->own_fd < 0);
    write_pid(fd);
    make_socket_name(store, name, sizeof name);
    (void)snprintf(text, sizeof text, "%ld %s %s", (long)getpid(), store->boot_id, name);
    socket = socket_path(store, name);
    (void)pthread_mutex_lock(&store->mutex);
    code = socket == NULL ? error_no_memory(err) : sqlite_recover(store, err);
    if (code == BELAY_OK) {
        code = change_served(store, text, err);
    }
    if (code == BELAY_OK) {
        store->own_fd = fd;
    }
    (void)pthread_mutex_unlock(&store->mutex);
    if (code != BELAY_OK) {
        serve_lock_release(fd);
        free(socket);
        return code;
    }
    wake_all(store); /* waiters continue through the server, before it grants anything */
    *out_socket = socket;
    return BELAY_OK;
}

void sqlite_abandon(struct sqlite_store *store)
{
    serve_lock_release(store->own_fd);
    store->own_fd = -1;
}

bool sqlite_keep_servers_away(struct sqlite_store *store)
{
    store->own_fd = serve_lock_await(store);
    return store->own_fd >= 0;
}

void sqlite_restore_drop(struct sqlite_store *store)
{
    db_rollback(store);
    sqlite_abandon(store);
    store->base.ops->close(&store->base);
}

void sqlite_disown(struct sqlite_store *store)
{
    if (store->own_fd < 0) {
        return;
    }
    /* If it fails, or the journal is not empty, other processes find the lock free and do it themselves. */
    if (!sqlite_has_journal(store)) {
        (void)change_served(store, NULL, NULL);
    }
    sqlite_abandon(store);
    store->last_commit.version = 0;
}

/* ---- for other processes than the server ---- */

enum belay_code sqlite_store_server(struct belay_store *base, struct sqlite_server *out_server,
                                    struct belay_error *err)
{
    struct sqlite_store *store = (struct sqlite_store *)base;
    struct txn txn = { 0 };
    bool other_boot = false;
    bool is_alive = false;
    enum belay_code code = BELAY_OK;
    int rc;

    *out_server = (struct sqlite_server){ 0 };
    (void)pthread_mutex_lock(&store->mutex);
    rc = db_read_txn(store, &txn, &other_boot);
    if (rc != SQLITE_OK) {
        code = sqlite_failed(store, rc, err);
    } else if (txn.served) {
        code = sqlite_unserve(store, &is_alive, err);
    }
    if (code == BELAY_OK && is_alive && !sqlite_served_parse(store, out_server)) {
        code =
            error_set(err, BELAY_BAD_CONTENT, "the server of the lock database '%s' cannot be read: '%.100s'",
                      store->path, store->served_by);
    }
    (void)pthread_mutex_unlock(&store->mutex);
    return code;
}
