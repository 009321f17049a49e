/*
 * Locks in one SQLite file, for any number of processes on one machine.
 *
 * Beside the database stands PATH-wake, a small mapped file through which
 * processes wake each other and see whether a waiter still lives. It holds
 * nothing that could be lost.
 *
 * A server may own the file (sqlite_own.c); others then get BELAY_REDIRECTED.
 */
#ifndef STORE_SQLITE_SQLITE_STORE_H
#define STORE_SQLITE_SQLITE_STORE_H

#include "belay/store.h"

/* What tests put in the place of the machine. Anything NULL is the real thing. */
struct sqlite_hooks {
    const char *vfs;     /* name of a registered VFS */
    const char *boot_id; /* as if the machine had been started once more */
    int64_t (*boot_ms)(void *context);
    int64_t (*unix_ms)(void *context);
    long (*fs_type)(void *context, const char *path); /* statfs f_type */
    int64_t busy_limit_ms; /* how long to wait for another writer; 0: ten seconds */
    void *context;
    int64_t numbers_ahead; /* by how much the ceiling of numbers is raised at a time; 0: the usual */
};

/*
 * Open the database, making it and the directories above it if there is none.
 * `path_and_params` is what follows "sqlite:": PATH?NAME=VALUE&NAME=VALUE
 * (base/store_url.h), with durability=normal|full, retain_events=D and retain_records=D. *out_url is the
 * same with an absolute path; the caller frees it. `hooks` may be NULL.
 */
enum belay_code sqlite_store_open(const char *path_and_params, const struct sqlite_hooks *hooks,
                                  struct belay_store **out_store, char **out_url, struct belay_error *err);

/*
 * Own the file: from now on everybody else gets BELAY_REDIRECTED, until the
 * store is closed. *out_socket is where they look for the server, beside the
 * file; the caller frees it. BELAY_UNREACHABLE names the process that owns it
 * already.
 */
enum belay_code sqlite_store_own(struct belay_store *base, char **out_socket, struct belay_error *err);

/* Who owns it. */
struct sqlite_server {
    char *socket; /* owned; NULL: nobody */
    long pid;
};
/* A server that died is cleared away: then there is none. */
enum belay_code sqlite_store_server(struct belay_store *base, struct sqlite_server *out_server,
                                    struct belay_error *err);
void sqlite_server_release(struct sqlite_server *server);

/*
 * Go on with what there is, after a server's journal was damaged or lost: the locks that were only in it are
 * forgotten, tokens go on far above all that were handed out, and leases start again. *out_lost: whether
 * anything was. BELAY_UNREACHABLE: a server is using it.
 */
enum belay_code sqlite_store_repair(const char *path_and_params, const struct sqlite_hooks *hooks,
                                    bool *out_lost, struct belay_error *err);

/* What a backup has. */
struct sqlite_backup_info {
    int64_t n_records; /* locks that it knows */
    int64_t n_held;
    uint64_t ceiling;          /* numbers handed out before it are below this */
    uint64_t next;             /* after sqlite_store_restore(): the next number */
    int64_t copied_at_unix_ms; /* 0: it was not made by a backup */
    bool is_served;            /* it is a copy of a file that a server owned, made without it */
};
/* BELAY_BAD_CONTENT: it is damaged, or no lock database that we know. All of it is read. */
enum belay_code sqlite_backup_check(const char *path, struct sqlite_backup_info *out_info,
                                    struct belay_error *err);

/*
 * Put a copy of `file` in the place of the database. With `replace` also of one that is there, unless somebody uses it
 * (BELAY_HELD); that is kept as PATH.replaced-TIME.
 */
enum belay_code sqlite_store_restore(const char *file, const char *path_and_params,
                                     const struct sqlite_hooks *hooks, bool replace,
                                     struct sqlite_backup_info *out_info, struct belay_error *err);

/* Look at all that could be wrong with it. Makes and changes nothing that stays. `hooks` may be NULL. */
struct diagnostics;
void sqlite_store_doctor(const char *path_and_params, const struct sqlite_hooks *hooks,
                         struct diagnostics *diagnostics);

#endif
