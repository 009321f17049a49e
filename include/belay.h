/*
 * belay: distributed locks for deployments, builds, migrations and database stops.
 *
 * This header is the public API of libbelay and its manual. The other public headers:
 *
 *     belay/state.h      deployment state: versioned JSON documents with fenced writes
 *     belay/shared_db.h  stop a shared database only when no application uses it
 *     belay/store.h      implement your own store of locks
 *     belay/blob.h       implement your own store of deployment state
 *
 * A client is a connection to a store of locks. A lock has a key and at most one
 * holder at a time. The holder has a lease, which expires unless it is renewed, and
 * a fencing token, which is greater than the token of every earlier holder of that
 * key. The holder sends the token with each write that the lock protects, and the
 * receiver rejects a token that is lower than the highest it has seen. So a holder that
 * lost its lock without noticing does no damage.
 *
 *     struct belay_client *client;
 *     struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
 *     struct belay_lock *lock;
 *     struct belay_error err = BELAY_ERROR_INIT;
 *
 *     if (belay_client_open(NULL, &client, &err) != BELAY_OK) ...
 *     options.ttl_ms = 60000;
 *     options.heartbeat_ms = 15000;
 *     if (belay_lock_acquire(client, "deploy-api-prod", &options, &lock, &err)
 *         == BELAY_OK) {
 *         write_something(belay_lock_token(lock));
 *         belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, &err);
 *         belay_lock_free(lock);
 *     }
 *     belay_client_close(client);
 *     belay_error_release(&err);
 *
 * Conventions:
 *
 * - The library has no global state. It never prints, never exits and installs no
 *   signal handlers.
 * - out_ parameters are written on BELAY_OK only.
 * - _free() and _close() accept NULL.
 * - Initialize a struct that has a struct_size with its ..._INIT macro. The size tells a
 *   newer library which fields an older program has set.
 * - Strings are UTF-8 and end in '\0'.
 *
 * Threads: any number of threads may share a client or a configuration. A lock is for
 * one thread at a time, except for belay_lock_is_mine(), belay_lock_deadline_boot_ms(),
 * belay_lock_key(), belay_lock_id() and belay_lock_token(), which any thread may call.
 *
 * Clocks: times that end in _unix_ms are wall-clock milliseconds since 1970, for
 * display; no decision depends on them. Times that end in _boot_ms are milliseconds of
 * this machine's CLOCK_BOOTTIME, which includes suspension and is never set back.
 */
#ifndef BELAY_H
#define BELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define BELAY_API __attribute__((visibility("default")))
#else
#define BELAY_API
#endif

/* Limits on arguments; a value beyond its limit is BELAY_INVALID. */
enum {
    BELAY_KEY_MAX = 512,         /* bytes of a key, UTF-8, no control characters */
    BELAY_ID_MAX = 64,           /* bytes of a lock id: letters, digits, '-', '_', '.' */
    BELAY_OWNER_MAX = 256,       /* bytes of an owner or an owner's name */
    BELAY_META_MAX = 64,         /* entries of metadata */
    BELAY_META_NAME_MAX = 128,   /* bytes of an entry's name */
    BELAY_META_VALUE_MAX = 4096, /* bytes of an entry's value */
    BELAY_REASON_MAX = 1024,     /* bytes of a reason */
    BELAY_QUEUE_MAX = 10000,     /* waiters for one key */
    BELAY_HOLDERS_MAX = 1000,    /* holders of one key at a time, shared or with slots */
    BELAY_META_SUM_MAX = 524288, /* bytes of metadata of several holders of one key, together */
    BELAY_KEYS_MAX = 16,         /* keys that one acquisition may name */
    BELAY_TTL_MIN_MS = 100
};
#define BELAY_TTL_MAX_MS (366LL * 24 * 3600 * 1000)
#define BELAY_WAIT_FOREVER (-1)

/* ---- errors ------------------------------------------------------------ */

/* One code for each thing that a caller can do next. */
enum belay_code {
    BELAY_OK = 0,
    BELAY_HELD,          /* another client holds the lock: wait or give up */
    BELAY_LOST,          /* the lease has expired or the lock was ended: stop at once */
    BELAY_NOT_HOLDER,    /* the lock id is not the current holder's; nothing was changed */
    BELAY_ID_USED,       /* the lock id has held this lock before and no longer does: use a new id */
    BELAY_NOT_FOUND,     /* the lock, state, application or file does not exist */
    BELAY_NOT_PERMITTED, /* the credential, or the permissions of a file, do not allow it */
    BELAY_INVALID,       /* an argument is wrong; the text says which, and what is valid */
    BELAY_BAD_CONTENT,   /* a file or document is damaged, or has another format */
    BELAY_CONFIG,        /* the configuration is wrong */
    BELAY_UNREACHABLE,   /* the store did not answer, and nothing was changed */
    BELAY_UNKNOWN,       /* it may have happened: repeat with the same lock id to find out */
    BELAY_CANCELLED,     /* belay_cancel_request() ended the wait */
    BELAY_BUSY,          /* another operation with this lock id is in progress: try again later */
    BELAY_NO_MEMORY,
    BELAY_BUG,        /* an internal error of libbelay; please report it */
    BELAY_REFUSED,    /* from stores and the registry: a condition of the write did not hold */
    BELAY_REDIRECTED, /* from stores only: a server has started or stopped owning the file */
    BELAY_FROZEN      /* a freeze forbids new holders of the lock: wait, or give up */
};

/* The code as the HTTP API writes it, such as "lock_held". */
BELAY_API const char *belay_code_name(enum belay_code code);

struct belay_info;

/*
 * Why a function failed, in the caller's storage. Every `err` parameter may be NULL.
 * One struct can be passed to many calls; release it once, after the last.
 */
struct belay_error {
    enum belay_code code;
    char text[700];            /* one line, lower case, no full stop */
    struct belay_info *holder; /* owned; the holder that blocks the caller, or NULL */
};
#define BELAY_ERROR_INIT                                                                                     \
    {                                                                                                        \
        BELAY_OK, "", NULL                                                                                   \
    }

BELAY_API void belay_error_release(struct belay_error *err);

/* The holder of the lock that could not be acquired, borrowed from `err`; NULL: not known. */
BELAY_API const struct belay_info *belay_error_holder(const struct belay_error *err);

/* ---- locks as the store has them --------------------------------------- */

enum belay_status {
    BELAY_STATUS_NONE, /* locking is disabled: there is no holder */
    BELAY_STATUS_ACTIVE,
    BELAY_STATUS_EXPIRED, /* the lease ended, and no client has acquired the lock since */
    BELAY_STATUS_RELEASED
};

enum belay_outcome {
    BELAY_OUTCOME_NONE,
    BELAY_OUTCOME_COMPLETED,
    BELAY_OUTCOME_FAILED,
    BELAY_OUTCOME_FORCED
};

BELAY_API const char *belay_status_name(enum belay_status status);
BELAY_API const char *belay_outcome_name(enum belay_outcome outcome); /* NULL for NONE */

/* How many clients may hold a lock at a time. */
enum belay_mode {
    BELAY_EXCLUSIVE, /* one */
    BELAY_SHARED,    /* any number of shared holders, or one exclusive holder */
    BELAY_SLOTS      /* as many as the lock has slots */
};
BELAY_API const char *belay_mode_name(enum belay_mode mode); /* "exclusive", "shared", "slots" */

struct belay_meta {
    const char *name;
    const char *value;
};

/* A client in the queue. Waiters are in the order in which they get the lock. */
struct belay_waiter {
    char *key; /* the key it waits for: the lock's own, or one below it in the hierarchy */
    char *locked_by;
    char *locked_by_name;
    int64_t since_unix_ms;
    enum belay_mode mode; /* in which it waits */
};

/* A lock as it is in the store. Strings are not NULL unless a field says so. */
struct belay_info {
    char *key;
    char *lock_id;  /* NULL: not disclosed to this client */
    uint64_t token; /* 0: none; some stores have no fencing tokens */
    char *locked_by;
    char *locked_by_name;
    enum belay_status status;
    enum belay_outcome outcome;
    int64_t locked_at_unix_ms;
    int64_t expires_at_unix_ms;
    int64_t released_at_unix_ms;    /* 0: not released */
    int64_t last_heartbeat_unix_ms; /* 0: the holder declared no heartbeat */
    int64_t ttl_ms;
    int64_t expires_in_ms; /* by the store's clock; 0: expired */
    int64_t valid_for_ms;  /* how long the holder may rely on the lock: expires_in_ms, less a margin for
                              the difference of clocks. Count it from the start of the call or request
                              that returned it. -1: not known. It is known after belay_check(), and to
                              the holder after it acquires, adopts or renews. */
    bool is_stale;         /* the holder declared a heartbeat and has missed it for stale_after_ms */
    struct belay_meta *metadata;
    size_t n_metadata;
    struct belay_waiter *waiters;
    size_t n_waiters;
    bool has_queue;    /* `waiters` is the whole queue. False: the queue was not read */
    char *acquired_by; /* the credential that acquired the lock: the name of a server's token. The client
                          cannot choose it, unlike locked_by and locked_by_name. NULL: a local command
                          acquired it, or the store does not record it. */
    enum belay_mode mode;
    int slots; /* 0: the lock has no slots */
    /*
     * For a shared lock or one with slots: every holder whose lease has not been taken over,
     * oldest first. Each has the key, and has no waiters or holders. The fields above are
     * those of the caller's own grant or, if it has none, of the holder whose lease ends
     * last. For an exclusive lock this is empty: its holder is in the fields above.
     */
    struct belay_info *holders;
    size_t n_holders;
    /* Of a lock on several keys: the locks on the second key, the third, and so on. */
    struct belay_info *joint;
    size_t n_joint;
    bool has_packed_lists; /* for belay_info_free(): the strings of `waiters` and `holders` are in the same
                              memory block as the list */
};

BELAY_API void belay_info_free(struct belay_info *info);

/* ---- configuration ----------------------------------------------------- */

/*
 * The settings from the configuration file, the environment and the defaults. The
 * environment overrides the file, and the file overrides the defaults.
 */
struct belay_config;

/*
 * Read the configuration; free it with belay_config_free().
 *
 * The file is `path` or, if that is NULL, the value of the variable BELAY_CONFIG. With
 * neither, it is $XDG_CONFIG_HOME/belay/config.yaml (~/.config if that variable is not
 * set) or, if that file does not exist, /etc/belay/config.yaml; then ./belay.yaml is read
 * as well. ./belay.yaml may only define profiles, so that a checked-out repository can
 * neither redirect locks nor run code.
 *
 * BELAY_CONFIG: a file has an error. The text names the line and, for an unknown name,
 * the most similar known one.
 */
BELAY_API enum belay_code belay_config_load(const char *path, struct belay_config **out_config,
                                            struct belay_error *err);
BELAY_API void belay_config_free(struct belay_config *config);

/* The file that was read, not counting ./belay.yaml; NULL: none. */
BELAY_API const char *belay_config_path(const struct belay_config *config);

/* An effective setting and its origin, as `belay config show` prints them. */
struct belay_setting {
    const char *name; /* dotted, such as "profiles.build.ttl" */
    const char *value;
    const char *origin; /* "default", "environment BELAY_STORE", "/etc/belay/config.yaml:3" */
};
BELAY_API size_t belay_config_count(const struct belay_config *config);
BELAY_API struct belay_setting belay_config_setting(const struct belay_config *config, size_t i);
/* The value of a setting by its dotted name, such as "profiles.build.components.0"; NULL: not set. */
BELAY_API const char *belay_config_get(const struct belay_config *config, const char *name);

/* A named set of defaults for lock options. 0: not set. */
struct belay_profile {
    const char *name;
    int64_t ttl_ms;
    int64_t heartbeat_ms;
    int64_t stale_after_ms;
    int64_t wait_ms;
    int attempts;
    bool reentrant;
    const char *key_template; /* NULL: none */
    int slots;                /* 0: none */
};
/* Find a profile by name. BELAY_INVALID lists the known profiles. Its strings are borrowed from `config`. */
BELAY_API enum belay_code belay_config_profile(const struct belay_config *config, const char *name,
                                               struct belay_profile *out_profile, struct belay_error *err);

/* The parts of a key, to build one instead of typing it in full. */
struct belay_key_parts {
    const char *profile; /* NULL: none */
    const char *stack;
    const char *environment;
    const char *service;
    const char *component;
};

/*
 * Build a key from its parts. Either `stack` and `environment`, with an optional
 * `service` or `component`; or `component`, `environment` and a profile that has a key
 * template. BELAY_INVALID says which part is wrong or missing and which values are
 * valid. The caller frees *out_key with free().
 */
BELAY_API enum belay_code belay_key_make(const struct belay_config *config,
                                         const struct belay_key_parts *parts, char **out_key,
                                         struct belay_error *err);

/* Check a key that was typed in full. `profile` may be NULL. BELAY_INVALID says what is wrong with the key. */
BELAY_API enum belay_code belay_key_check(const struct belay_config *config, const char *profile,
                                          const char *key, struct belay_error *err);

/*
 * Check a key that is to be acquired, as belay_key_check() does, and find the profile that
 * applies to it.
 *
 * A key that matches the key template of a profile belongs to that profile. It is
 * BELAY_INVALID if a part is not in the profile's lists.
 *
 * `profile` names the profile to use, or is NULL. If it names a profile that has a key
 * template, a key that belongs to another profile is BELAY_INVALID. With NULL the result
 * is the profile that the key belongs to ("stack" for a key of a stack); if there is
 * none, its name is NULL. The strings are borrowed from `config`.
 */
BELAY_API enum belay_code belay_key_profile(const struct belay_config *config, const char *profile,
                                            const char *key, struct belay_profile *out_profile,
                                            struct belay_error *err);

/*
 * The ancestors of `key` in the hierarchy, nearest first. A lock on an ancestor and a
 * lock on `key` exclude each other. Returns the number of ancestors. The caller frees
 * each with free(); an entry is NULL if memory ran out.
 */
enum { BELAY_ANCESTORS_MAX = 2 };
BELAY_API size_t belay_key_ancestors(const struct belay_config *config, const char *key,
                                     char *out_keys[BELAY_ANCESTORS_MAX]);

/* The parts that a key contains, to group locks by. A part that the key does not have is "". */
struct belay_parsed_key {
    const char *level;   /* "stack", "service", "component", or "key": none of these */
    const char *profile; /* borrowed from `config`: the profile whose template matches */
    char stack[BELAY_KEY_MAX + 1];
    char environment[BELAY_KEY_MAX + 1];
};
BELAY_API void belay_key_parse(const struct belay_config *config, const char *key,
                               struct belay_parsed_key *out_parsed);

/* Parse a duration, such as "1h30m" or "250ms". False: not a duration. */
BELAY_API bool belay_parse_duration(const char *text, int64_t *out_ms);

/* ---- events ------------------------------------------------------------ */

enum belay_level { BELAY_LEVEL_INFO, BELAY_LEVEL_WARNING };

/*
 * A change of a lock. Every change is one event; a store that keeps events writes the
 * event in the same transaction as the change.
 */
struct belay_event {
    uint64_t id; /* increases; 0: the store keeps no events */
    int64_t at_unix_ms;
    enum belay_level level;
    const char *type; /* "lock.acquired", "lock.released", "wait.began", ... */
    const char *key;
    const char *lock_id;
    uint64_t token;
    const char *locked_by;
    const char *locked_by_name;
    const char *by;      /* the user or client that made the change; NULL: the holder */
    const char *reason;  /* NULL: none */
    int64_t duration_ms; /* how long the lock was held or waited for; -1: does not apply. In on_event,
                            "lock.acquired" has the time that acquiring took, and "lock.renewed" the
                            time that the lock has been held. */
    const struct belay_meta *metadata;
    size_t n_metadata;
    int64_t commit_us; /* in on_event only: how long the store took; 0: not known */
};

/* Return false to stop. `event` is borrowed. */
typedef bool (*belay_event_fn)(void *context, const struct belay_event *event);

/* ---- clients ----------------------------------------------------------- */

struct belay_client;

enum { BELAY_TRACEPARENT_SIZE = 56 };

struct belay_client_options {
    size_t struct_size;
    const char *store_url;             /* NULL: as configured */
    const struct belay_config *config; /* borrowed until the client is closed; NULL: the client calls
                                          belay_config_load(NULL) itself */
    /* Called for each event that this client causes, in the thread that caused it. */
    void (*on_event)(void *context, const struct belay_event *event);
    /* Called with one line of text that a person should see; no action is needed. */
    void (*on_warning)(void *context, const char *text);
    void *context;
    /*
     * For servers: own the file of an embedded store while this client is open. Other
     * clients of the file, opened before or after, use the socket that
     * belay_client_socket() names. The store is kept in memory as well. Commits reach
     * the disk with belay_client_sync() only, which batches many of them into one
     * fsync. Use such a client from one thread, with belay_async_*.
     */
    bool owns_file;
    /*
     * For tracing: called before each request to a server that names a lock id, in the
     * thread that sends it. Writes the W3C traceparent to send: of the span lock.acquire or,
     * if `is_held`, of the span lock.hold. Returns false to send none.
     */
    bool (*traceparent)(void *context, const char *lock_id, bool is_held, char out[BELAY_TRACEPARENT_SIZE]);
    /*
     * For event loops: called by belay_client_poll() when another client of the store may have
     * ended the lock with this id, or released a lock for which this id waits. lock_id NULL: this
     * may be true of any lock. Called only if the store wakes waiters on other machines.
     */
    void (*on_wake)(void *context, const char *lock_id);
};
#define BELAY_CLIENT_OPTIONS_INIT                                                                            \
    {                                                                                                        \
        sizeof(struct belay_client_options), NULL, NULL, NULL, NULL, NULL, false, NULL, NULL                 \
    }

/*
 * Open a store: "sqlite:PATH", "postgresql://HOST/DATABASE", "dynamodb:TABLE", or the URL of
 * a belay server, "http://HOST:PORT" or "https://HOST:PORT". An SQLite file is created if it does not
 * exist. A store on the network is contacted by the first operation, not here. `options`
 * may be NULL. Close the client with belay_client_close() after freeing its locks.
 *
 * BELAY_INVALID: the URL is wrong. BELAY_CONFIG: the configuration is wrong.
 * BELAY_BAD_CONTENT: the file is not a lock database. BELAY_UNREACHABLE,
 * BELAY_NOT_PERMITTED: the file cannot be used.
 */
BELAY_API enum belay_code belay_client_open(const struct belay_client_options *options,
                                            struct belay_client **out_client, struct belay_error *err);
BELAY_API void belay_client_close(struct belay_client *client);

/* The store's URL in full, as BELAY_STORE takes it. Lives as long as the client. */
BELAY_API const char *belay_client_store_url(const struct belay_client *client);

/*
 * The id of the store. It is kept in the store: it is the same under every URL of the
 * store, and no two stores have the same id. Deployment states are bound to it
 * (belay/state.h). The first call may contact the store. *out_id lives as long as the
 * client. BELAY_CONFIG: this store has no id.
 */
enum { BELAY_STORE_ID_SIZE = 768 };
BELAY_API enum belay_code belay_client_store_id(struct belay_client *client, const char **out_id,
                                                struct belay_error *err);

/*
 * With owns_file: the path of the Unix socket to which other clients of the file connect.
 * The program listens there; every user who may write the file must be able to connect.
 * *out_file is the path of the file. NULL: there is no socket.
 */
BELAY_API const char *belay_client_socket(const struct belay_client *client, const char **out_file);

/*
 * The process id of the server that owns this client's file, if the last operation went
 * through it; 0: no server. Does not apply to a server that the store URL names.
 */
BELAY_API long belay_client_server_pid(struct belay_client *client);

/*
 * False while locking is disabled (BELAY_DISABLED=1, or locking_enabled: false). Then
 * every acquisition succeeds at once and protects nothing, belay_wait_until_free()
 * returns at once, and renewals and releases succeed whatever the store answers, even
 * without a store. If the caller gave no lock id, the lock gets one that begins with
 * "unprotected-". Once locking is enabled again, such a lock can be
 * released but not renewed.
 */
BELAY_API bool belay_client_locking_enabled(const struct belay_client *client);

/*
 * A struct belay_cancel ends waits, from another thread or a signal handler. After
 * belay_cancel_request() the calls that use it return BELAY_CANCELLED; belay_watch()
 * returns BELAY_OK. A cancellation cannot be withdrawn. Free a belay_cancel only after
 * the calls that use it have returned.
 */
struct belay_cancel;
BELAY_API struct belay_cancel *belay_cancel_new(void); /* NULL: no memory */
BELAY_API void belay_cancel_free(struct belay_cancel *cancel);
BELAY_API void belay_cancel_request(struct belay_cancel *cancel); /* async-signal-safe */

/* ---- acquiring and holding a lock -------------------------------------- */

struct belay_lock;

#define BELAY_POSITION_UNKNOWN SIZE_MAX

/* The progress of a wait, for display. */
struct belay_wait_info {
    const struct belay_info *holder; /* borrowed; the holder that blocks the caller; NULL: not known */
    size_t position;                 /* waiters ahead in the queue, or BELAY_POSITION_UNKNOWN */
    int64_t waited_ms;
    int64_t retry_ms;      /* time until the next attempt, unless the waiter is woken sooner */
    int attempt;           /* attempts so far */
    const char *frozen;    /* borrowed; "lock 'KEY': frozen until TIME by NAME: REASON"; NULL: no
                           freeze is known */
    int64_t since_unix_ms; /* when the caller entered the queue, perhaps with an earlier request of the same
                              lock id; 0: not known, as through a server */
};

struct belay_lock_options {
    size_t struct_size;
    int64_t ttl_ms;             /* length of the lease; 0: that of the profile that the key belongs to,
                               else ten minutes */
    int64_t wait_ms;            /* how long to wait for the lock; 0: do not wait; BELAY_WAIT_FOREVER */
    int attempts;               /* give up after this many attempts; 0: no limit. If wait_ms is set too, the
                               first limit that is reached ends the wait; if wait_ms is 0, this limit
                               does. */
    int64_t heartbeat_ms;       /* renew this often in the background, or more often if the lease is too
                               short for it (belay_lock_heartbeat_ms()); 0: never */
    int64_t stale_after_ms;     /* show the lock as stale this long after the last heartbeat; 0: four
                               heartbeats */
    const char *owner;          /* identifies the holder, for programs; NULL: unique to this acquisition */
    const char *owner_name;     /* the holder's name, for people; NULL: user@host */
    const char *correlation_id; /* kept with the metadata; NULL: none */
    const struct belay_meta *metadata;
    size_t n_metadata;
    /* NULL: a new one. Set it to be able to repeat an acquisition whose answer was lost. */
    const char *lock_id;
    bool reentrant;       /* if the same owner holds the lock already, acquired with the same credential:
                             succeed, with the id and token of that lock */
    bool durable;         /* the lock is not tied to this process: it survives the process and a restart
                             of the machine, and is on disk before the call returns */
    bool stepped_backoff; /* retry after 5, 10, 30 and then every 60 s instead of exponentially */
    bool defer_heartbeat; /* no heartbeat and no on_lost before belay_lock_start_heartbeat() */
    /*
     * Called once, in a thread of the library, when the lease is lost or can no longer be
     * proved. When a lease expires, this is called before another client can acquire the
     * lock, unless this process was suspended. When another client ends the lock, this is
     * called at once on SQLite, on PostgreSQL and through a server, and within 10 s on
     * DynamoDB, whatever the heartbeat is. It must not block. Of the functions on the lock
     * it may call only those that any thread may call.
     */
    void (*on_lost)(void *context, struct belay_lock *lock, const char *why);
    /* Called when a wait begins and whenever its progress changes. */
    void (*on_waiting)(void *context, const struct belay_wait_info *waiting);
    void *context;
    struct belay_cancel *cancel;
    /*
     * For a program that acquires locks on behalf of others, such as `belay serve`: the
     * credential that it has authenticated. It is stored with the lock. Re-entry, a repeated
     * lock_id and a place in the queue then need the same credential. NULL: none.
     */
    const char *acquired_by;
    bool shared; /* beside other shared holders; not with slots */
    int slots;   /* at most this many clients hold the lock at a time, up to BELAY_HOLDERS_MAX; 0: the
                    lock has no slots. It applies as long as any client holds the lock: meanwhile
                    another number is BELAY_INVALID. */
    /*
     * Further keys. All of them and `key` are acquired at once, or none: with one lock id, one
     * place in each queue, one heartbeat, and a token for each key. At most BELAY_KEYS_MAX in
     * all, none twice, and none that is an ancestor of another.
     */
    const char *const *more_keys;
    size_t n_more_keys;
    bool ignore_freeze;        /* acquire the lock although its key is frozen (belay_freeze()) */
    const char *ignore_reason; /* why; needed with ignore_freeze, and recorded */
};
#define BELAY_LOCK_OPTIONS_INIT                                                                              \
    {                                                                                                        \
        sizeof(struct belay_lock_options), 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, 0, NULL, false, false,     \
            false, false, NULL, NULL, NULL, NULL, NULL, false, 0, NULL, 0, false, NULL                       \
    }

/* Set each option that is 0 to the profile's value. */
BELAY_API void belay_profile_apply(const struct belay_profile *profile, struct belay_lock_options *options);

/*
 * Acquire the lock `key`. If it is held, wait in the queue for at most options->wait_ms.
 * Waiters get the lock in the order of arrival. `options` may be NULL. On BELAY_OK the
 * caller owns *out_lock: release it with belay_lock_release(), then free it with
 * belay_lock_free().
 *
 * BELAY_HELD: another client still holds the lock; belay_error_holder() says which.
 * BELAY_FROZEN: the key is frozen, and still was when the wait ended.
 * BELAY_UNKNOWN: the store may have granted the lock; acquire again with the same
 * options->lock_id to find out.
 *
 * With locking disabled this succeeds at once with a lock that protects nothing:
 * belay_lock_is_protected() is false.
 */
BELAY_API enum belay_code belay_lock_acquire(struct belay_client *client, const char *key,
                                             const struct belay_lock_options *options,
                                             struct belay_lock **out_lock, struct belay_error *err);

/*
 * Take over a lock that another process has acquired, by its lock id. The lock gets a new
 * id and a new token, so that of two processes with the same id only one succeeds; the
 * other gets BELAY_NOT_HOLDER. options->wait_ms and attempts are ignored. With
 * options->owner NULL the owner stays. The caller owns *out_lock, as after
 * belay_lock_acquire().
 */
BELAY_API enum belay_code belay_lock_adopt(struct belay_client *client, const char *key, const char *lock_id,
                                           const struct belay_lock_options *options,
                                           struct belay_lock **out_lock, struct belay_error *err);

/*
 * Start the heartbeat and on_lost of a lock that was acquired with defer_heartbeat. They
 * need threads, and starting threads takes longer than acquiring the lock, so a short job
 * should not start them. Call this well before the first heartbeat is due. Calling it again
 * has no effect.
 */
BELAY_API enum belay_code belay_lock_start_heartbeat(struct belay_lock *lock, struct belay_error *err);

/*
 * Renew the lease now, for its full ttl. BELAY_LOST: the lease is over. After
 * BELAY_UNREACHABLE and BELAY_UNKNOWN the lock is still held until its deadline.
 */
BELAY_API enum belay_code belay_lock_renew(struct belay_lock *lock, struct belay_error *err);

/*
 * Release the lock; the caller still frees it. Releasing again is not an error.
 * BELAY_LOST: the lock was lost before, and nothing was changed. Releasing a re-entered
 * lock has no effect on the store: the outermost holder releases it.
 */
BELAY_API enum belay_code belay_lock_release(struct belay_lock *lock, enum belay_outcome outcome,
                                             struct belay_error *err);

/* Stop the heartbeat and free the memory. A lock that was not released stays held until its lease ends. */
BELAY_API void belay_lock_free(struct belay_lock *lock);

BELAY_API const char *belay_lock_key(const struct belay_lock *lock);
BELAY_API const char *belay_lock_id(const struct belay_lock *lock); /* NULL: unprotected */
BELAY_API uint64_t belay_lock_token(const struct belay_lock *lock); /* 0: none */
/* The keys of the lock, in the order in which they were named: their number, a key, and its token. */
BELAY_API size_t belay_lock_n_keys(const struct belay_lock *lock);
BELAY_API const char *belay_lock_key_at(const struct belay_lock *lock, size_t i); /* NULL: there is none */
BELAY_API uint64_t belay_lock_token_at(const struct belay_lock *lock, size_t i);
BELAY_API bool belay_lock_is_protected(const struct belay_lock *lock);
BELAY_API bool belay_lock_is_reentered(const struct belay_lock *lock);

/* The lock as of its acquisition or last renewal. Borrowed until the next call of this; NULL: no memory. */
BELAY_API const struct belay_info *belay_lock_info(struct belay_lock *lock);

/*
 * The time on CLOCK_BOOTTIME until which the caller may rely on the lock. Each renewal
 * extends it. It lies before the end of the lease in the store, and in the past once the
 * lock is lost or released. INT64_MAX: the lock protects nothing.
 */
BELAY_API int64_t belay_lock_deadline_boot_ms(struct belay_lock *lock);

/* The ttl of the lease as it was granted. A lock that was adopted or re-entered keeps its own. */
BELAY_API int64_t belay_lock_ttl_ms(const struct belay_lock *lock);

/*
 * The interval of the heartbeat: options.heartbeat_ms, or less if the lease is too short
 * for that interval. 0: no heartbeat.
 */
BELAY_API int64_t belay_lock_heartbeat_ms(struct belay_lock *lock);

/* True until the deadline; false for a lock that protects nothing. Does not contact the store. */
BELAY_API bool belay_lock_is_mine(struct belay_lock *lock);

/* ---- by key and lock id, without a struct belay_lock -------------------- */

/*
 * The next three functions return BELAY_NOT_HOLDER if another lock id holds the lock and
 * BELAY_NOT_FOUND if the store does not know the key. After BELAY_UNKNOWN they can be
 * repeated. *out_info is the lock after the change; the caller frees it. out_info may be
 * NULL.
 */

/*
 * Renew the lease for `ttl_ms`; 0: for its current ttl. A store that does not keep the
 * ttl uses that of the profile whose key template matches the key, and returns
 * BELAY_INVALID if there is none. BELAY_LOST: the lease is over.
 */
BELAY_API enum belay_code belay_renew(struct belay_client *client, const char *key, const char *lock_id,
                                      int64_t ttl_ms, struct belay_info **out_info, struct belay_error *err);

/*
 * Release the lock. Not an error if it is already released and no client has acquired it
 * since. A store that deletes released locks (some DynamoDB layouts) cannot tell a
 * released lock from one that never existed: it returns BELAY_OK for both, and leaves
 * unknown fields of *out_info empty.
 */
BELAY_API enum belay_code belay_release(struct belay_client *client, const char *key, const char *lock_id,
                                        enum belay_outcome outcome, struct belay_info **out_info,
                                        struct belay_error *err);

/*
 * The same for several keys that were acquired together: BELAY_KEYS_MAX of them at most.
 * A renewal changes all of them or none. A release ends each of them that `lock_id` still
 * holds, and returns an error if another client has ended one before. *out_info is the lock
 * on the first key, and its `joint` are the others.
 */
BELAY_API enum belay_code belay_renew_keys(struct belay_client *client, const char *const *keys,
                                           size_t n_keys, const char *lock_id, int64_t ttl_ms,
                                           struct belay_info **out_info, struct belay_error *err);
BELAY_API enum belay_code belay_release_keys(struct belay_client *client, const char *const *keys,
                                             size_t n_keys, const char *lock_id, enum belay_outcome outcome,
                                             struct belay_info **out_info, struct belay_error *err);

/*
 * Release another client's lock: the one that `lock_id` holds, not a later one. `by` and
 * `reason` are recorded.
 */
BELAY_API enum belay_code belay_force_release(struct belay_client *client, const char *key,
                                              const char *lock_id, const char *by, const char *reason,
                                              struct belay_info **out_info, struct belay_error *err);

/*
 * Get a lock. The caller frees *out_info. BELAY_NOT_FOUND: the key was never held, or its
 * record was removed. Clients may wait for such a key while a key above or below it is
 * held; then belay_error_holder() has them in `waiters`, and names no holder.
 */
BELAY_API enum belay_code belay_get(struct belay_client *client, const char *key,
                                    struct belay_info **out_info, struct belay_error *err);

/*
 * Get the lock if `owner` holds it, or was the last to hold it, and the same credential
 * acquired it. With the lock_id in *out_info, a caller that knows only the owner can renew
 * or release the lock. `acquired_by` is as in struct belay_lock_options; NULL or "": this
 * client's own credential. BELAY_NOT_HOLDER: another owner or another credential has the
 * lock. The caller frees *out_info.
 */
BELAY_API enum belay_code belay_find_own(struct belay_client *client, const char *key, const char *owner,
                                         const char *acquired_by, struct belay_info **out_info,
                                         struct belay_error *err);

/*
 * Check whether `lock_id` holds the lock with `token`, and can rely on it for at least
 * min_valid_ms (0: for any time). Use it before a step that cannot be undone, or in a
 * receiver that verifies a token. Changes nothing. lock_id NULL: check whether `token` is
 * the current one. token 0: check the lock id only, as on a store without tokens.
 *
 * BELAY_OK: the lock is held for (*out_info)->valid_for_ms from now, which is never longer
 * than the holder itself may rely on it. The caller frees *out_info; out_info may be NULL.
 * BELAY_NOT_HOLDER: another client has acquired the lock; belay_error_holder() says which.
 * BELAY_LOST: the lease is over, the lock was released, or less than min_valid_ms is left.
 * BELAY_NOT_FOUND: the store does not know the key. BELAY_INVALID: neither an id nor a token, or
 * only a token on a store that has none. BELAY_UNREACHABLE: it is not known whether the lock is
 * held.
 *
 * With locking disabled this is BELAY_OK, with a warning and the status BELAY_STATUS_NONE if the
 * lock is not held.
 */
BELAY_API enum belay_code belay_check(struct belay_client *client, const char *key, const char *lock_id,
                                      uint64_t token, int64_t min_valid_ms, struct belay_info **out_info,
                                      struct belay_error *err);

struct belay_query {
    size_t struct_size;
    const char *prefix;       /* NULL: all */
    enum belay_status status; /* BELAY_STATUS_NONE: active and expired */
    bool all;                 /* every status */
    bool stale_only;
    size_t limit;       /* 0: no limit */
    const char *cursor; /* continue after this key; NULL: start at the first */
};
#define BELAY_QUERY_INIT                                                                                     \
    {                                                                                                        \
        sizeof(struct belay_query), NULL, BELAY_STATUS_NONE, false, false, 0, NULL                           \
    }

/* Return false to stop. `info` is borrowed. */
typedef bool (*belay_info_fn)(void *context, const struct belay_info *info);

/*
 * List locks in the order of their keys. *out_more (may be NULL) is true if the limit
 * ended the list. If `fn` returns false, the list ends with BELAY_OK. An error may come
 * after `fn` was called for some locks; to continue, pass the last key as the cursor.
 */
BELAY_API enum belay_code belay_list(struct belay_client *client, const struct belay_query *query,
                                     belay_info_fn fn, void *context, bool *out_more,
                                     struct belay_error *err);

/*
 * Call `fn` for the last `limit` (0: all) events of one key, oldest first. If the store keeps
 * no events, they are read from the file in the setting audit.file; BELAY_NOT_FOUND: no file is
 * set.
 */
BELAY_API enum belay_code belay_history(struct belay_client *client, const char *key, size_t limit,
                                        belay_event_fn fn, void *context, struct belay_error *err);

/*
 * Call `fn` for the events after `after_id` of keys that begin with `prefix` (NULL: all),
 * oldest first; with `last` only for that many of the newest (0: all). This is the
 * non-blocking variant of belay_watch(). BELAY_NOT_FOUND: the store keeps no events, or is a
 * server.
 */
BELAY_API enum belay_code belay_events(struct belay_client *client, const char *prefix, uint64_t after_id,
                                       size_t last, belay_event_fn fn, void *context,
                                       struct belay_error *err);

/*
 * Record the event lock.lost on behalf of a holder in another process.
 * `event` has the key, lock id, token, owner and reason. Nothing else is changed.
 */
BELAY_API enum belay_code belay_report_lost(struct belay_client *client, const struct belay_event *event,
                                            struct belay_error *err);

/*
 * Call `fn` for events as they happen, of keys that begin with `prefix` (NULL: all), after
 * the event `after_id` (0: from now on). Returns when `fn` returns false or `cancel` is
 * requested. BELAY_NOT_FOUND: the store keeps no events.
 */
BELAY_API enum belay_code belay_watch(struct belay_client *client, const char *prefix, uint64_t after_id,
                                      belay_event_fn fn, void *context, struct belay_cancel *cancel,
                                      struct belay_error *err);

/*
 * Wait until the lock is free, without acquiring it; with options->shared or options->slots,
 * until it could be acquired in that way. BELAY_HELD: it was not free within options->wait_ms.
 * Of the other options only on_waiting, context and cancel are used.
 */
BELAY_API enum belay_code belay_wait_until_free(struct belay_client *client, const char *key,
                                                const struct belay_lock_options *options,
                                                struct belay_error *err);

/* ---- statistics ----------------------------------------------------------- */

/* How to divide the numbers. */
enum belay_stats_by {
    BELAY_STATS_BY_NOTHING,
    BELAY_STATS_BY_DAY,     /* days of UTC; a hold or a wait counts on the day on which it ended */
    BELAY_STATS_BY_PROFILE, /* the profile whose key template matches; "stack" for a key of a stack; "": none */
    BELAY_STATS_BY_KEY
};
BELAY_API const char *
belay_stats_by_name(enum belay_stats_by by); /* "day", "profile", "key"; NULL: nothing */

enum { BELAY_STATS_GROUPS_MAX = 1000 }; /* all further groups are counted together, in one more */

struct belay_stats_query {
    size_t struct_size;
    const char *key;       /* this lock; NULL: all. Not with `prefix`. */
    const char *prefix;    /* locks whose keys begin with this; NULL: all */
    int64_t since_unix_ms; /* only events since then; 0: all that are kept */
    enum belay_stats_by by;
    /* Returns false to leave out a key; may be NULL. Not used if the store is a server. */
    bool (*includes)(void *context, const char *key);
    void *context;
    /* Called from time to time while events are read. Returns true to end with BELAY_CANCELLED. May be
       NULL. Not used if the store is a server. */
    bool (*should_stop)(void *context);
};
#define BELAY_STATS_QUERY_INIT                                                                               \
    {                                                                                                        \
        sizeof(struct belay_stats_query), NULL, NULL, 0, BELAY_STATS_BY_NOTHING, NULL, NULL, NULL            \
    }

/*
 * A set of durations. The median and the 90th percentile are accurate to within 3 %. If
 * `count` is 0, the others are -1.
 */
struct belay_durations {
    uint64_t count;
    int64_t median_ms; /* half of them were not longer */
    int64_t p90_ms;    /* nine out of ten were not longer */
    int64_t longest_ms;
    int64_t total_ms;
};

struct belay_stats_group {
    char *name; /* the day ("2026-11-17"), profile or key; NULL: the total, or all further groups */
    uint64_t acquired;
    uint64_t released; /* by their holders */
    uint64_t refused;
    uint64_t taken_over;           /* from a holder whose lease had expired */
    uint64_t forced;               /* ended by another client */
    uint64_t lost;                 /* as reported by the holder */
    struct belay_durations held;   /* of locks that were released or forced */
    struct belay_durations waited; /* of clients that were in the queue, whether or not they got the lock */
};

/* Statistics of the time from from_unix_ms to until_unix_ms. */
struct belay_stats {
    int64_t from_unix_ms; /* query.since_unix_ms or, if that is later, the oldest event of the store; 0: the
                             store has no events */
    int64_t until_unix_ms;
    int64_t oldest_unix_ms; /* the oldest event that the store keeps, of any lock; 0: none */
    uint64_t events;        /* that were counted */
    enum belay_stats_by by;
    struct belay_stats_group total;
    struct belay_stats_group *groups; /* days in their order; others by `acquired`, greatest first */
    size_t n_groups;
};
BELAY_API void belay_stats_free(struct belay_stats *stats);

/*
 * Compute statistics from the events that the store keeps. Reads all of them, in bounded memory.
 * BELAY_INVALID: the query is wrong, or the store keeps no events (DynamoDB). BELAY_CANCELLED:
 * should_stop said so. The caller frees *out_stats.
 */
BELAY_API enum belay_code belay_stats(struct belay_client *client, const struct belay_stats_query *query,
                                      struct belay_stats **out_stats, struct belay_error *err);

/* ---- estimates ------------------------------------------------------------ */

enum { BELAY_HOLDS_MAX = 20, BELAY_HOLDS_MIN = 3 /* with fewer there is no estimate */ };

/* The durations of a lock's last holds that were released or forced, oldest first. */
struct belay_holds {
    size_t n;
    int64_t ms[BELAY_HOLDS_MAX];
};

/*
 * Read the past holds of a lock from its last thousand events. If the store keeps no events
 * (DynamoDB), they are read from the file in the setting audit.file. BELAY_NOT_FOUND: there is
 * no history.
 */
BELAY_API enum belay_code belay_past_holds(struct belay_client *client, const char *key,
                                           struct belay_holds *out_holds, struct belay_error *err);

enum {
    BELAY_TURN_UNKNOWN = -1, /* too few past holds, or a shared lock */
    BELAY_TURN_OVERDUE = -2  /* a holder has held the lock for longer than any past hold */
};

/*
 * Estimate when each waiter of `lock` has its turn. out_turns_ms[i] is the time until waiter i,
 * counted from 0, gets the lock, or one of the two values above. A holder is expected to hold the
 * lock for the median of the past holds that were longer than its own so far, and a waiter for the
 * median of all.
 */
BELAY_API void belay_estimate_turns(const struct belay_holds *holds, const struct belay_info *lock,
                                    int64_t now_unix_ms, int64_t *out_turns_ms, size_t n_turns);

/* ---- freezes -------------------------------------------------------------- */

/*
 * While a freeze is in force, no new client can acquire a lock whose key matches its pattern.
 * Holders keep their locks: renewing, releasing, adopting and re-entering work as before.
 * Clients that wait keep their places in the queue, and the first gets the lock when the
 * freeze ends. An acquisition that begins after belay_freeze() has returned is refused with
 * BELAY_FROZEN; one that began before may still succeed.
 *
 * Freezes begin and end by a wall clock: that of the machine with the SQLite file, of the
 * PostgreSQL server, or of the belay server. On DynamoDB there are two, DynamoDB's clock and
 * the client's: a freeze is in force while it is in force by at least one of them.
 */
struct belay_freeze {
    const char *id;
    const char *pattern; /* '*' matches any run of characters, every other character itself */
    const char *reason;
    const char *by;
    int64_t created_unix_ms;
    int64_t from_unix_ms;  /* 0: since it was created */
    int64_t until_unix_ms; /* 0: until it is ended */
    bool in_force;         /* false: it begins later, or is over */
};
/* Return false to stop. `freeze` is borrowed. */
typedef bool (*belay_freeze_fn)(void *context, const struct belay_freeze *freeze);

struct belay_freeze_options {
    size_t struct_size;
    const char *reason;    /* needed */
    const char *by;        /* the name of the person who does it; NULL: user@host */
    int64_t from_unix_ms;  /* 0: now */
    int64_t until_unix_ms; /* when it ends; 0: not set */
    int64_t for_ms; /* how long it lasts; 0: not set. Not with until_unix_ms. With neither, it has no end */
    const char *id; /* NULL: a new one. Set it to be able to repeat a call whose answer was lost. */
};
#define BELAY_FREEZE_OPTIONS_INIT                                                                            \
    {                                                                                                        \
        sizeof(struct belay_freeze_options), NULL, NULL, 0, 0, 0, NULL                                       \
    }

/*
 * Freeze all keys that match `pattern`. The freeze is on disk when this returns. Calls `fn`
 * (may be NULL) with the freeze. BELAY_INVALID: an argument is wrong, or the store has no
 * freezes; the text says what is valid. BELAY_ID_USED: another freeze has the id in the
 * options, or the freeze with this id is over. Through a server this needs an admin's token.
 */
BELAY_API enum belay_code belay_freeze(struct belay_client *client, const char *pattern,
                                       const struct belay_freeze_options *options, belay_freeze_fn fn,
                                       void *context, struct belay_error *err);

/*
 * End the freeze with this id, or all freezes that have exactly this pattern, and wake the
 * waiters. `by` (NULL: user@host) and `reason` (NULL: none) are recorded. Calls `fn` (may be
 * NULL) with each freeze. BELAY_NOT_FOUND: there is no such freeze.
 */
BELAY_API enum belay_code belay_unfreeze(struct belay_client *client, const char *id_or_pattern,
                                         const char *by, const char *reason, belay_freeze_fn fn,
                                         void *context, struct belay_error *err);

/* List the freezes that are in force or begin later, in the order in which they were made. */
BELAY_API enum belay_code belay_freezes(struct belay_client *client, belay_freeze_fn fn, void *context,
                                        struct belay_error *err);

/* ---- asynchronous operations, for event loops ---------------------------- */

/*
 * A struct belay_async is one operation in progress. All work is done inside
 * belay_client_poll(), which also calls the callback of each operation that has ended. An
 * operation that waits needs no thread. Use these functions from one thread at a time, on
 * a client whose store is not a server.
 */
struct belay_async;

/*
 * Called once, from belay_client_poll(), when an operation has ended. `info` is the lock
 * after BELAY_OK, else NULL; `err` says why the operation failed. Both are borrowed. The
 * operation no longer exists afterwards. The callback may start new operations.
 */
typedef void (*belay_async_fn)(void *context, enum belay_code code, const struct belay_info *info,
                               const struct belay_error *err);

/*
 * Start to acquire a lock. `options` is copied; on_lost, on_waiting, cancel and the
 * heartbeat are not used. Renew the lock with belay_async_renew(). *out_async stays valid
 * until the callback returns; out_async may be NULL. BELAY_BUSY: another operation with
 * the same lock id is in progress.
 */
BELAY_API enum belay_code belay_async_acquire(struct belay_client *client, const char *key,
                                              const struct belay_lock_options *options, belay_async_fn fn,
                                              void *context, struct belay_async **out_async,
                                              struct belay_error *err);

/* The counterparts of belay_lock_adopt(), belay_renew(), belay_release() and belay_force_release(). */
BELAY_API enum belay_code belay_async_adopt(struct belay_client *client, const char *key, const char *lock_id,
                                            const struct belay_lock_options *options, belay_async_fn fn,
                                            void *context, struct belay_error *err);
BELAY_API enum belay_code belay_async_renew(struct belay_client *client, const char *key, const char *lock_id,
                                            int64_t ttl_ms, belay_async_fn fn, void *context,
                                            struct belay_error *err);
BELAY_API enum belay_code belay_async_release(struct belay_client *client, const char *key,
                                              const char *lock_id, enum belay_outcome outcome,
                                              belay_async_fn fn, void *context, struct belay_error *err);
BELAY_API enum belay_code belay_async_force_release(struct belay_client *client, const char *key,
                                                    const char *lock_id, const char *by, const char *reason,
                                                    belay_async_fn fn, void *context,
                                                    struct belay_error *err);

/* As belay_async_release(), on behalf of the holder; `by` is recorded. */
BELAY_API enum belay_code belay_async_release_by(struct belay_client *client, const char *key,
                                                 const char *lock_id, enum belay_outcome outcome,
                                                 const char *by, belay_async_fn fn, void *context,
                                                 struct belay_error *err);

/* The same for several keys that were acquired together, as belay_renew_keys() and belay_release_keys(). */
BELAY_API enum belay_code belay_async_renew_keys(struct belay_client *client, const char *const *keys,
                                                 size_t n_keys, const char *lock_id, int64_t ttl_ms,
                                                 belay_async_fn fn, void *context, struct belay_error *err);
BELAY_API enum belay_code belay_async_release_keys(struct belay_client *client, const char *const *keys,
                                                   size_t n_keys, const char *lock_id,
                                                   enum belay_outcome outcome, const char *by,
                                                   belay_async_fn fn, void *context, struct belay_error *err);

/*
 * Free an acquisition; its callback is never invoked. Use this during shutdown. Its place
 * in the queue stays for a while, for a client that acquires again with the same lock id.
 */
BELAY_API void belay_async_abandon(struct belay_async *async);

/* End an acquisition: the next poll calls its callback with BELAY_CANCELLED, unless it has ended by then. */
BELAY_API void belay_async_cancel(struct belay_async *async);

/* True while the store does not answer; the operation is retried automatically. */
BELAY_API bool belay_async_is_retrying(const struct belay_async *async);

/*
 * Advance all operations as far as possible. Returns the time on CLOCK_BOOTTIME at which to
 * call it again; INT64_MAX: no timer. Call it sooner if an operation is started or cancelled.
 */
BELAY_API int64_t belay_client_poll(struct belay_client *client);

/*
 * Write all finished operations to disk, with one fsync. Needed with options.owns_file: every
 * change then has a log sequence number (LSN), and is in memory first. When an
 * operation or a read ends, note belay_client_committed_lsn(); report the result only once
 * belay_client_durable_lsn() has reached that number. After BELAY_UNKNOWN the changes may or
 * may not be on disk: report nothing and restart the process. May be called from another
 * thread while operations continue; it covers the operations that had finished when it began.
 */
BELAY_API enum belay_code belay_client_sync(struct belay_client *client, struct belay_error *err);
/* The LSN of the newest change, and of the newest on disk. Without owns_file both are 0. Any thread may call these. */
BELAY_API uint64_t belay_client_committed_lsn(const struct belay_client *client);
BELAY_API uint64_t belay_client_durable_lsn(const struct belay_client *client);

/*
 * Counters of a client's store since it was opened, for monitoring. With
 * options.owns_file one fsync covers a batch of commits; otherwise each commit is a batch
 * of one.
 */
enum { BELAY_BATCH_BUCKETS = 11 };
struct belay_store_counts {
    uint64_t commits;
    uint64_t syncs; /* writes to disk, of one batch each */
    /* batches[i]: the batches of more than 2^(i-1) and up to 2^i commits; the last also has all larger ones */
    uint64_t batches[BELAY_BATCH_BUCKETS];
    uint64_t errors; /* reads and commits that the store did not answer, or could not do */
};
BELAY_API void belay_client_store_counts(struct belay_client *client, struct belay_store_counts *out);

/*
 * True while the operation waits in the queue, with its ticket in the store. *out_waiting
 * is its progress as of the last read; the holder in it is borrowed until the next poll,
 * and NULL if no holder is known.
 */
BELAY_API bool belay_async_is_waiting(const struct belay_async *async, struct belay_wait_info *out_waiting);

/* False: the store is on the network, and each operation takes as long as the network does. */
BELAY_API bool belay_client_is_local(const struct belay_client *client);

/*
 * Do the I/O of the store in up to `threads` (at least one) worker threads, so that
 * belay_client_poll() never blocks. `wake` is called in a worker thread when there is
 * something to poll. Call this before the first operation.
 */
BELAY_API enum belay_code belay_client_use_threads(struct belay_client *client, size_t threads,
                                                   void (*wake)(void *context), void *context,
                                                   struct belay_error *err);

/*
 * After belay_client_use_threads(): get a file descriptor to watch for input. When it is readable,
 * call belay_client_poll(), as after `wake`. From this call on belay_client_poll() does most I/O of
 * the store itself, without blocking, and threads do the rest. -1: the store cannot do that, and
 * threads do all of it.
 */
BELAY_API int belay_client_poll_fd(struct belay_client *client);

/* ---- webhooks ------------------------------------------------------------- */

/*
 * POST `body` to a URL that an untrusted client has chosen, and wait for the answer.
 *
 * Connects only to public addresses and to those in `allow` ("10.1.0.0/16", "::1"), so that
 * a client cannot make this machine call itself, its network or a cloud's metadata
 * service. The check is on the address of the connection itself: a DNS name cannot point
 * elsewhere between check and use. Redirects are not followed and proxies are not used.
 *
 * BELAY_OK: there was an answer; *out_status is its HTTP status. BELAY_NOT_PERMITTED: the
 * address is not allowed.
 */
struct belay_http_post {
    size_t struct_size;
    const char *url; /* http or https, without user and password */
    const struct belay_meta *headers;
    size_t n_headers;
    const char *body;
    size_t body_len;
    int64_t timeout_ms; /* for the whole request; 0: ten seconds */
    const char *const *allow;
    size_t n_allow;
    const char *ca_file; /* CA certificates to trust instead of the system's; NULL: the system's */
    struct belay_cancel *cancel;
};
#define BELAY_HTTP_POST_INIT                                                                                 \
    {                                                                                                        \
        sizeof(struct belay_http_post), NULL, NULL, 0, NULL, 0, 0, NULL, 0, NULL, NULL                       \
    }
BELAY_API enum belay_code belay_http_post(const struct belay_http_post *post, int *out_status,
                                          struct belay_error *err);

/* ---- diagnostics ----------------------------------------------------------- */

enum belay_finding_level { BELAY_FINDING_OK, BELAY_FINDING_WARNING, BELAY_FINDING_FAILED };
BELAY_API const char *
belay_finding_level_name(enum belay_finding_level level); /* "ok", "warning", "failed" */

/* The result of one check or one step. The strings are valid until the callback returns. */
struct belay_finding {
    enum belay_finding_level level;
    enum belay_code code; /* if it failed: BELAY_UNREACHABLE, BELAY_NOT_PERMITTED or BELAY_CONFIG */
    const char *name;     /* of the check: "credentials", "free space" */
    const char *text;     /* what was found; one line, without secrets */
    const char *advice;   /* what to do; NULL: nothing */
};
typedef void (*belay_finding_fn)(void *context, const struct belay_finding *finding);

struct belay_doctor_options {
    size_t struct_size;
    const char *config_path;  /* as for belay_config_load() */
    const char *store_url;    /* NULL: as configured */
    const char *store_origin; /* where store_url comes from, such as "option --store"; NULL: "the caller" */
    const char *state_store_url; /* of deployment state; NULL: as configured, and not checked if it is not */
};
#define BELAY_DOCTOR_OPTIONS_INIT                                                                            \
    {                                                                                                        \
        sizeof(struct belay_doctor_options), NULL, NULL, NULL, NULL                                          \
    }

/*
 * Check the configuration and the store: whether it can be reached and written, has the
 * right format and permissions, and whether the clocks agree. Calls `fn` for each check as
 * it is made. Leaves no changes: a store that does not exist is not created. Every
 * request has a timeout.
 *
 * BELAY_OK: no check failed; there may be warnings. Otherwise the code of the worst
 * failure: BELAY_CONFIG, then BELAY_NOT_PERMITTED, then BELAY_UNREACHABLE.
 */
BELAY_API enum belay_code belay_doctor(const struct belay_doctor_options *options, belay_finding_fn fn,
                                       void *context, struct belay_error *err);

/* ---- DynamoDB tables --------------------------------------------------------- */

/* A DynamoDB table, and whether it suits a layout. A string is NULL if its value is not known. */
struct belay_dynamodb_table {
    char *name;
    char *layout; /* of the locks in it; NULL: a fence table */
    char *region;
    char *endpoint;
    char *arn;
    char *status;             /* "ACTIVE", "CREATING"; NULL: the table does not exist */
    char *keys;               /* "PK (S, HASH), SK (S, RANGE)" */
    char *keys_expected;      /* the keys that the layout needs */
    char *billing;            /* "PAY_PER_REQUEST", "PROVISIONED" */
    char *ttl_attribute;      /* the attribute by which DynamoDB expires items; NULL: none */
    char *ttl_status;         /* "ENABLED", "DISABLED", "ENABLING" */
    char *ttl_expected;       /* the attribute that the layout needs; NULL: none */
    char *recovery;           /* point-in-time recovery: "ENABLED", "DISABLED" */
    char *encryption;         /* for display */
    bool deletion_protection; /* the table cannot be deleted while this is set */
    int64_t items;            /* updated every few hours; -1: not known */
    int64_t bytes;            /* likewise */
    char *mismatch;           /* why the table does not suit the layout; NULL: it does */
    char *policy;             /* an IAM policy, as JSON, for using, creating and describing the table */
    struct belay_dynamodb_table
        *fence; /* owned; its table of token counters (fence_table=NAME); NULL: none */
};
BELAY_API void belay_dynamodb_table_free(struct belay_dynamodb_table *table);

struct belay_dynamodb_table_options {
    size_t struct_size;
    const char *store_url;             /* dynamodb:TABLE...; NULL: as configured */
    const struct belay_config *config; /* NULL: belay_config_load(NULL) */
    int64_t wait_ms;                   /* how long to wait until the table is active; 0: five minutes */
    const char *kms_key; /* encrypt with this KMS key; NULL: with DynamoDB's own, free of charge */
    bool dry_run;        /* change nothing; each step is a request that would be sent */
    /* Called for each step of belay_dynamodb_table_create(). */
    belay_finding_fn on_step;
    /* Called from time to time during a wait; may be NULL. */
    void (*on_waiting)(void *context, const char *table, const char *status, int64_t waited_ms);
    void *context;
    struct belay_cancel *cancel; /* ends a wait */
};
#define BELAY_DYNAMODB_TABLE_OPTIONS_INIT                                                                    \
    {                                                                                                        \
        sizeof(struct belay_dynamodb_table_options), NULL, NULL, 0, NULL, false, NULL, NULL, NULL, NULL      \
    }

/*
 * Create the table that the store URL names, with the keys that its layout needs, billed by
 * request, with time to live and point-in-time recovery, and wait until it is active. If the
 * table exists and suits the layout, only time to live and recovery are enabled, if they
 * are off. If it does not suit the layout, the result is BELAY_CONFIG and nothing is
 * changed. A feature that the endpoint lacks (recovery, on DynamoDB Local) is a step with a
 * warning. The caller frees *out_table; out_table may be NULL.
 */
BELAY_API enum belay_code belay_dynamodb_table_create(const struct belay_dynamodb_table_options *options,
                                                      struct belay_dynamodb_table **out_table,
                                                      struct belay_error *err);

/* Describe the table. If it does not exist, status is NULL; that is no error. The caller frees *out_table. */
BELAY_API enum belay_code belay_dynamodb_table_describe(const struct belay_dynamodb_table_options *options,
                                                        struct belay_dynamodb_table **out_table,
                                                        struct belay_error *err);

/* ---- PostgreSQL schemas ------------------------------------------------------ */

/* The schema that a store on PostgreSQL uses. */
struct belay_postgresql_schema {
    char name[64];
    char database[64];
    char server[32];       /* the server's version */
    int version;           /* of the schema; 0: it does not exist */
    int version_needed;    /* by this belay */
    int functions_version; /* of the functions for locks, which work with this belay even if they are older */
    int functions_version_needed;
    int state_version; /* of the part for deployment state; 0: the schema lacks it */
    int state_version_needed;
    bool created; /* by this call, or a part of it */
};

struct belay_postgresql_schema_options {
    size_t struct_size;
    const char *store_url;             /* postgresql://...; NULL: as configured */
    const struct belay_config *config; /* NULL: belay_config_load(NULL) */
    const char *grant_to;              /* a role that may use the schema from now on; NULL: none */
};
#define BELAY_POSTGRESQL_SCHEMA_OPTIONS_INIT                                                                 \
    {                                                                                                        \
        sizeof(struct belay_postgresql_schema_options), NULL, NULL, NULL                                     \
    }

/*
 * Create the tables and functions that locks and deployment state need, in one transaction. An
 * existing schema keeps its data, and that of an earlier belay is migrated. The caller needs the
 * right to create a schema in the database. Users of the store need only the right to execute its
 * functions, which grant_to gives. `out_schema` may be NULL. BELAY_CONFIG: the server is too old,
 * or the schema belongs to a newer belay.
 */
BELAY_API enum belay_code
belay_postgresql_schema_create(const struct belay_postgresql_schema_options *options,
                               struct belay_postgresql_schema *out_schema, struct belay_error *err);

/* Describe the schema. If it does not exist, its version is 0; that is no error. */
BELAY_API enum belay_code
belay_postgresql_schema_describe(const struct belay_postgresql_schema_options *options,
                                 struct belay_postgresql_schema *out_schema, struct belay_error *err);

/* ---- backup, restore and repair of an embedded store ------------------------ */

struct belay_maintenance_options {
    size_t struct_size;
    const char *store_url;             /* sqlite:PATH; NULL: as configured */
    const struct belay_config *config; /* NULL: belay_config_load(NULL) */
    bool replace;                      /* belay_restore(): replace a database that exists */
};
#define BELAY_MAINTENANCE_OPTIONS_INIT                                                                       \
    {                                                                                                        \
        sizeof(struct belay_maintenance_options), NULL, NULL, false                                          \
    }

/* The content of a backup. */
struct belay_backup {
    size_t struct_size;
    int64_t locks; /* records of locks */
    int64_t held;  /* locks among them that are held */
    int64_t bytes;
    int64_t made_at_unix_ms;
    uint64_t next_token; /* after belay_restore(): every new token is at least this */
};
#define BELAY_BACKUP_INIT                                                                                    \
    {                                                                                                        \
        sizeof(struct belay_backup), 0, 0, 0, 0, 0                                                           \
    }

/*
 * Write a consistent copy of an embedded store to `file`, which must not exist yet. Works
 * while the store is in use, while a server owns it, and through a server (for admins). The
 * copy is verified, on disk, and readable by its owner only; after a failure there is no
 * file. BELAY_INVALID: the store is not embedded, or `file` exists. `cancel` and
 * out_backup may be NULL.
 */
BELAY_API enum belay_code belay_backup(struct belay_client *client, const char *file,
                                       struct belay_cancel *cancel, struct belay_backup *out_backup,
                                       struct belay_error *err);

/*
 * Put a backup in place of the database that the store URL names. A database that exists is
 * replaced only with options->replace and is kept as FILE.replaced-TIME. It is not replaced
 * while it is in use: owned by a server, open in another process, or with held locks. Then
 * the result is BELAY_HELD. Locks that were held in the backup start again with their full ttl. New
 * tokens are greater than all earlier ones, including those that the original store
 * granted after the backup (docs/operations.md says how). out_backup may be NULL.
 */
BELAY_API enum belay_code belay_restore(const char *file, const struct belay_maintenance_options *options,
                                        struct belay_backup *out_backup, struct belay_error *err);

/*
 * Repair a store that cannot be opened because the journal of a killed server is damaged or
 * missing. The unreadable part of the journal is lost, including locks that were only in
 * it: their holders must not rely on them any more. New tokens are far above all earlier
 * ones, and the other locks start again with their full ttl. The journal is kept beside the
 * database under another name. *out_lost (may be NULL) is false if the store was sound.
 */
BELAY_API enum belay_code belay_repair(const struct belay_maintenance_options *options, bool *out_lost,
                                       struct belay_error *err);

/* The current time on CLOCK_BOOTTIME, the clock of all deadlines. */
BELAY_API int64_t belay_now_boot_ms(void);

BELAY_API const char *belay_version(void);

#ifdef __cplusplus
}
#endif

#endif
