/*
 * Locks in one SQLite file, for any number of processes on one machine.
 * Beside the database is PATH-wake, a small mapped file with which processes wake each other
 * and detect dead waiters. It contains nothing that could be lost.
 * A server may own the file (sqlite_own.c); other processes then get BELAY_REDIRECTED.
 */
#ifndef STORE_SQLITE_SQLITE_STORE_H
#define STORE_SQLITE_SQLITE_STORE_H

#include "belay/store.h"

/* Replaced by tests. NULL: the real thing. */
struct sqlite_hooks {
    const char *vfs;     /* name of a registered VFS */
    const char *boot_id; /* as if the machine had been restarted */
    int64_t (*boot_ms)(void *context);
    int64_t (*unix_ms)(void *context);
    long (*fs_type)(void *context, const char *path); /* statfs f_type */
    int64_t busy_limit_ms;                            /* timeout for the write lock; 0: ten seconds */
    void *context;
    int64_t numbers_ahead; /* step by which the ceiling of numbers is raised; 0: the usual */
};

/*
 * Opens the database, and creates it and its directories if there is none. `path_and_params`
 * follows "sqlite:": PATH?NAME=VALUE&NAME=VALUE (base/store_url.h), with
 * durability=normal|full, retain_events=D and retain_records=D. *out_url is the same with an
 * absolute path; the caller frees it. `hooks` may be NULL.
 */
enum belay_code sqlite_store_open(const char *path_and_params, const struct sqlite_hooks *hooks,
                                  struct belay_store **out_store, char **out_url, struct belay_error *err);

/*
 * Makes this process the owner of the file: from now on other processes get BELAY_REDIRECTED,
 * until the store is closed. *out_socket is the socket beside the file on which they expect
 * the server; the caller frees it. BELAY_UNREACHABLE names the process that owns it already.
 */
enum belay_code sqlite_store_own(struct belay_store *base, char **out_socket, struct belay_error *err);

/* The owner of the file. */
struct sqlite_server {
    char *socket; /* owned; NULL: there is none */
    long pid;
};
/* A dead server is cleared away: then there is none. */
enum belay_code sqlite_store_server(struct belay_store *base, struct sqlite_server *out_server,
                                    struct belay_error *err);
void sqlite_server_release(struct sqlite_server *server);

/*
 * Continues after a server's journal was damaged or lost: the locks that were only in it are
 * forgotten, tokens continue far above all that were issued, and leases start again.
 * *out_lost: whether anything was lost. BELAY_UNREACHABLE: a server is using the file.
 */
enum belay_code sqlite_store_repair(const char *path_and_params, const struct sqlite_hooks *hooks,
                                    bool *out_lost, struct belay_error *err);

/* The content of a backup. */
struct sqlite_backup_info {
    int64_t n_records; /* locks in it */
    int64_t n_held;
    uint64_t ceiling;          /* numbers issued before it are below this */
    uint64_t next;             /* after sqlite_store_restore(): the next number */
    int64_t copied_at_unix_ms; /* 0: it was not made by a backup */
    bool is_served;            /* a copy of a file that a server owned, made without the server */
};
/* BELAY_BAD_CONTENT: it is damaged, or not a lock database of this version. Reads all of it. */
enum belay_code sqlite_backup_check(const char *path, struct sqlite_backup_info *out_info,
                                    struct belay_error *err);

/*
 * Puts a copy of `file` in the place of the database. With `replace` also of an existing one,
 * unless it is in use (BELAY_HELD); that is kept as PATH.replaced-TIME.
 */
enum belay_code sqlite_store_restore(const char *file, const char *path_and_params,
                                     const struct sqlite_hooks *hooks, bool replace,
                                     struct sqlite_backup_info *out_info, struct belay_error *err);

/* Examines the database. Creates and changes nothing. `hooks` may be NULL. */
struct diagnostics;
void sqlite_store_doctor(const char *path_and_params, const struct sqlite_hooks *hooks,
                         struct diagnostics *diagnostics);

#endif
