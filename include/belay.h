/*
 * belay: one deploy, build, migration or database stop at a time.
 *
 * This header is the public interface of libbelay, and its manual. Beside it are
 * belay/state.h (deployment state), belay/shared_db.h (shared databases), and, for who
 * brings a store of their own, belay/store.h and belay/blob.h.
 *
 * A client is a connection to a store of locks. A lock has a key, and at most
 * one holder at a time; the holder has a lease, which ends by itself unless it
 * is renewed, and a token, which is greater than the token of every earlier
 * holder of that key. Whoever writes under a lock passes the token along, and
 * whoever stores the write refuses a token smaller than one it has seen: then a
 * holder that lost its lock without noticing can do no damage.
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
 * The library keeps no global state, never prints, never exits, and installs no
 * signal handler. What an out_ parameter points to is written on BELAY_OK only.
 * A _free() or _close() of NULL does nothing. A struct with a struct_size is
 * begun with its ..._INIT, so that a later library knows what an earlier program
 * has filled in.
 *
 * A client may be used by several threads, a lock by one at a time, but for
 * belay_lock_is_mine() and belay_lock_deadline_boot_ms(), which any thread may
 * ask. A configuration is only read, by any number. Times whose names
 * end in _unix_ms are wall-clock milliseconds since 1970, for people to read;
 * no decision is made by them. Times that end in _boot_ms are milliseconds of
 * this machine's CLOCK_BOOTTIME, which counts suspension and is never set.
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

/* Limits on what a caller may say; one byte or one entry more is BELAY_INVALID. */
enum {
    BELAY_KEY_MAX = 512,         /* bytes of a key, UTF-8, no control characters */
    BELAY_ID_MAX = 64,           /* bytes of a lock id: letters, digits, '-', '_', '.' */
    BELAY_OWNER_MAX = 256,       /* bytes of an owner or an owner's name */
    BELAY_META_MAX = 64,         /* entries of metadata */
    BELAY_META_NAME_MAX = 128,   /* bytes of the name of one */
    BELAY_META_VALUE_MAX = 4096, /* bytes of its value */
    BELAY_REASON_MAX = 1024,     /* bytes of a reason */
    BELAY_QUEUE_MAX = 10000,     /* waiters for one key */
    BELAY_TTL_MIN_MS = 100
};
#define BELAY_TTL_MAX_MS (366LL * 24 * 3600 * 1000)
#define BELAY_WAIT_FOREVER (-1)

/* ---- errors ------------------------------------------------------------ */

/* Told apart by what the caller does next. */
enum belay_code {
    BELAY_OK = 0,
    BELAY_HELD,          /* somebody else has the lock: wait, or give up */
    BELAY_LOST,          /* the lease is over: stop at once */
    BELAY_NOT_HOLDER,    /* the lock id is not the present holder's: nothing was changed */
    BELAY_ID_USED,       /* the lock id had its acquisition, which is over: take a new id */
    BELAY_NOT_FOUND,     /* there is no such thing */
    BELAY_NOT_PERMITTED, /* one may not do that */
    BELAY_INVALID,       /* an argument is wrong; the text says which, and what would be right */
    BELAY_BAD_CONTENT,   /* a file does not contain what it should */
    BELAY_CONFIG,        /* the configuration is wrong */
    BELAY_UNREACHABLE,   /* the store did not answer, and surely nothing happened */
    BELAY_UNKNOWN,       /* it may have happened: repeat with the same lock id to find out */
    BELAY_CANCELLED,     /* belay_cancel_request() ended the wait */
    BELAY_BUSY,          /* another operation with this lock id is in progress: try again later */
    BELAY_NO_MEMORY,
    BELAY_BUG,       /* libbelay contradicts itself; please report it */
    BELAY_REFUSED,   /* between the library and a store only: a condition did not hold */
    BELAY_REDIRECTED /* the same: its locks are to be asked for elsewhere, at a server or without it */
};

/* A short name in lower case, such as "lock_held"; the codes of the HTTP API. */
BELAY_API const char *belay_code_name(enum belay_code code);

struct belay_info;

/*
 * What went wrong, in the caller's storage. Every function that takes one also
 * takes NULL. It may be reused without being released in between.
 */
struct belay_error {
    enum belay_code code;
    char text[700];            /* one line, lower case, no full stop */
    struct belay_info *holder; /* owned; who is in the way, or NULL */
};
#define BELAY_ERROR_INIT                                                                                     \
    {                                                                                                        \
        BELAY_OK, "", NULL                                                                                   \
    }

BELAY_API void belay_error_release(struct belay_error *err);

/* Who holds the lock that could not be had; NULL if that is not known. */
BELAY_API const struct belay_info *belay_error_holder(const struct belay_error *err);

/* ---- what a lock looks like -------------------------------------------- */

enum belay_status {
    BELAY_STATUS_NONE, /* locking is switched off: nobody holds anything */
    BELAY_STATUS_ACTIVE,
    BELAY_STATUS_EXPIRED, /* the lease ended, nobody has taken the lock since */
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

struct belay_meta {
    const char *name;
    const char *value;
};

/* One that waits for a lock, in the order in which they will get it. */
struct belay_waiter {
    char *key; /* what it waits for: the lock's key, or a key below it */
    char *locked_by;
    char *locked_by_name;
    int64_t since_unix_ms;
};

/* A lock as it stands in the store. Strings are never NULL unless it says so. */
struct belay_info {
    char *key;
    char *lock_id;  /* NULL if it is not ours to know */
    uint64_t token; /* 0: none, as on stores that have no fencing tokens */
    char *locked_by;
    char *locked_by_name;
    enum belay_status status;
    enum belay_outcome outcome;
    int64_t locked_at_unix_ms;
    int64_t expires_at_unix_ms;
    int64_t released_at_unix_ms;    /* 0 while it is not released */
    int64_t last_heartbeat_unix_ms; /* 0 if it declared no heartbeat */
    int64_t ttl_ms;
    int64_t expires_in_ms; /* by the store's clock; 0 once it is over */
    int64_t valid_for_ms;  /* how long its holder may rely on it, counted from before the call (or the
                              request to a server) that brought this: less than expires_in_ms by what
                              clocks may differ. -1: not known; only for what a holder asks itself,
                              to acquire, adopt and renew. */
    bool is_stale;         /* it declared a heartbeat and has missed it for long */
    struct belay_meta *metadata;
    size_t n_metadata;
    struct belay_waiter *waiters;
    size_t n_waiters;
    char *acquired_by; /* the credential that acquired it: the name of a server's token. NULL: none, as for a
                          local command, or the store has no place for it. Unlike locked_by and
                          locked_by_name it is not chosen by the client. */
};

BELAY_API void belay_info_free(struct belay_info *info);

/* ---- configuration ----------------------------------------------------- */

/*
 * A configuration file and the environment, read once. Flags of a program beat
 * the environment, the environment beats the file, the file beats the defaults.
 */
struct belay_config;

/*
 * Read the configuration. `path` names the file, and if it is NULL the variable
 * BELAY_CONFIG does. If neither does, $XDG_CONFIG_HOME/belay/config.yaml is read,
 * or /etc/belay/config.yaml if that is not there, and over it ./belay.yaml, which
 * may define profiles and nothing else: a checkout must not redirect locks or run
 * code. BELAY_CONFIG for a file that is wrong; the text names the line and, for
 * a name it does not know, the nearest.
 */
BELAY_API enum belay_code belay_config_load(const char *path, struct belay_config **out_config,
                                            struct belay_error *err);
BELAY_API void belay_config_free(struct belay_config *config);

/* The file that was read, of two the one that is not in the working directory; NULL: there was none. */
BELAY_API const char *belay_config_path(const struct belay_config *config);

/* One value in force and where it came from, as `belay config show` prints. */
struct belay_setting {
    const char *name; /* dotted, such as "profiles.build.ttl" */
    const char *value;
    const char *origin; /* "default", "environment BELAY_STORE", "/etc/belay/config.yaml:3" */
};
BELAY_API size_t belay_config_count(const struct belay_config *config);
BELAY_API struct belay_setting belay_config_setting(const struct belay_config *config, size_t i);
/* The value of a setting by its dotted name, such as "profiles.build.components.0"; NULL if there is none. */
BELAY_API const char *belay_config_get(const struct belay_config *config, const char *name);

/* A named set of defaults for lock options. Values that are not set are 0. */
struct belay_profile {
    const char *name;
    int64_t ttl_ms;
    int64_t heartbeat_ms;
    int64_t stale_after_ms;
    int64_t wait_ms;
    int attempts;
    bool reentrant;
    const char *key_template; /* NULL: none */
};
/* BELAY_INVALID, which lists those there are, if there is none of that name. Borrows from `config`. */
BELAY_API enum belay_code belay_config_profile(const struct belay_config *config, const char *name,
                                               struct belay_profile *out_profile, struct belay_error *err);

/* The parts a key can be made of instead of being typed in full. */
struct belay_key_parts {
    const char *profile; /* NULL: none named */
    const char *stack;
    const char *environment;
    const char *service;
    const char *component;
};

/*
 * Make the key that the parts name: `stack` with `environment` and perhaps
 * `service` or `component`, or `component` with `environment` and a profile
 * that has a key template. BELAY_INVALID says which part is wrong or missing
 * and what is allowed. The caller frees *out_key with free().
 */
BELAY_API enum belay_code belay_key_make(const struct belay_config *config,
                                         const struct belay_key_parts *parts, char **out_key,
                                         struct belay_error *err);

/* Check a key that was typed in full, for a profile (or NULL). BELAY_INVALID says what is wrong with it. */
BELAY_API enum belay_code belay_key_check(const struct belay_config *config, const char *profile,
                                          const char *key, struct belay_error *err);

/*
 * The profile of a lock that is to be taken. A key that has the form of a
 * profile's template is that profile's lock: BELAY_INVALID if its lists do not
 * allow the key. `profile` is the one that the caller names, or NULL; one with
 * another template is refused. With NULL it is the key's own ("stack" for a
 * stack's key), or one whose name is NULL. Borrows from `config`.
 */
BELAY_API enum belay_code belay_key_profile(const struct belay_config *config, const char *profile,
                                            const char *key, struct belay_profile *out_profile,
                                            struct belay_error *err);

/*
 * The keys above `key`, nearest first: a lock on one of them excludes a lock on
 * `key` and the other way round. Returns how many there are. The caller frees
 * each with free(); one is NULL if there was no memory for it.
 */
enum { BELAY_ANCESTORS_MAX = 2 };
BELAY_API size_t belay_key_ancestors(const struct belay_config *config, const char *key,
                                     char *out_keys[BELAY_ANCESTORS_MAX]);

/* What a key says by its form, for who counts and groups locks. Names that it does not have are "". */
struct belay_parsed_key {
    const char *level;   /* "stack", "service", "component", or "key" for one that says nothing */
    const char *profile; /* borrowed from `config`; the one whose template it fits; "" */
    char stack[BELAY_KEY_MAX + 1];
    char environment[BELAY_KEY_MAX + 1];
};
BELAY_API void belay_key_parse(const struct belay_config *config, const char *key,
                               struct belay_parsed_key *out_form);

/* "1h30m", "250ms" to milliseconds; false if it is not a duration. */
BELAY_API bool belay_parse_duration(const char *text, int64_t *out_ms);

/* ---- events ------------------------------------------------------------ */

enum belay_level { BELAY_LEVEL_INFO, BELAY_LEVEL_WARNING };

/*
 * One thing that happened to a lock. Everything that happens is one event;
 * stores that can keep them do so in the same transaction.
 */
struct belay_event {
    uint64_t id; /* grows; 0 if the store keeps no events */
    int64_t at_unix_ms;
    enum belay_level level;
    const char *type; /* "lock.acquired", "lock.released", "wait.began", ... */
    const char *key;
    const char *lock_id;
    uint64_t token;
    const char *locked_by;
    const char *locked_by_name;
    const char *by;      /* who did it, if not the holder; NULL */
    const char *reason;  /* NULL */
    int64_t duration_ms; /* how long it was held or waited for; -1: does not apply. As on_event
                            is told of "lock.acquired": how long that took; of "lock.renewed": how
                            long it has been held. */
    const struct belay_meta *metadata;
    size_t n_metadata;
    int64_t commit_us; /* for on_event: how long the store took to do it; 0: not known */
};

/* Return false to stop. */
typedef bool (*belay_event_fn)(void *context, const struct belay_event *event);

/* ---- clients ----------------------------------------------------------- */

struct belay_client;

enum { BELAY_TRACEPARENT_SIZE = 56 };

struct belay_client_options {
    size_t struct_size;
    const char *store_url;             /* NULL: what the configuration says */
    const struct belay_config *config; /* borrowed while the client lives; NULL: as
                                          belay_config_load(NULL) finds it */
    /* Called for every event this client causes, by the thread that caused it. */
    void (*on_event)(void *context, const struct belay_event *event);
    /* Called for what a person should know but no caller acts upon; one line. */
    void (*on_warning)(void *context, const char *text);
    void *context;
    /*
     * For a server: while this client is open, an embedded store's file is its
     * alone. Other clients of the file, whether opened before or after, reach
     * it through the socket that belay_client_socket() names. Everything is then
     * in memory as well, and changes are on disk only after belay_client_sync(),
     * once for many. For one thread, with calls.
     */
    bool owns_file;
    /*
     * For who traces: asked before each request to a server that is about a lock
     * id, by the thread that sends it. Writes the W3C traceparent to go with it:
     * the span of the acquisition or, if `is_held`, of the holding. False: none.
     */
    bool (*traceparent)(void *context, const char *lock_id, bool is_held, char out[BELAY_TRACEPARENT_SIZE]);
};
#define BELAY_CLIENT_OPTIONS_INIT                                                                            \
    {                                                                                                        \
        sizeof(struct belay_client_options), NULL, NULL, NULL, NULL, NULL, false, NULL                       \
    }

/*
 * Open the store that options->store_url names: "sqlite:PATH", "dynamodb:TABLE",
 * or "http://HOST:PORT" or "https://HOST:PORT" of a belay server. An embedded one
 * is made if there is none. `options` may be NULL.
 *
 * BELAY_INVALID if the URL is wrong, BELAY_CONFIG if the configuration is,
 * BELAY_BAD_CONTENT if the file is something else, and BELAY_UNREACHABLE or
 * BELAY_NOT_PERMITTED if it cannot be used. A store on the network is not asked
 * before it is needed. End it with belay_client_close(), after its locks.
 */
BELAY_API enum belay_code belay_client_open(const struct belay_client_options *options,
                                            struct belay_client **out_client, struct belay_error *err);
BELAY_API void belay_client_close(struct belay_client *client);

/* The store's URL as it was understood, fit for BELAY_STORE. */
BELAY_API const char *belay_client_store_url(const struct belay_client *client);

/*
 * The id of the store, which is kept in it: the same through whichever URL it is
 * reached, another one for every other store. Deployment states are bound to it
 * (belay/state.h). The first call may ask the store; the text lives as long as the
 * client. BELAY_CONFIG if the store has none.
 */
enum { BELAY_STORE_ID_SIZE = 768 };
BELAY_API enum belay_code belay_client_store_id(struct belay_client *client, const char **out_id,
                                                struct belay_error *err);

/*
 * With owns_file: the socket at which the clients of *out_file look for its
 * server. Who may write the file should be able to connect. NULL: there is none.
 */
BELAY_API const char *belay_client_socket(const struct belay_client *client, const char **out_file);

/*
 * The process that serves this client's file, through which its last call went;
 * 0: none did. (A server named by its URL is not meant.)
 */
BELAY_API long belay_client_server_pid(struct belay_client *client);

/*
 * False when the kill switch (BELAY_DISABLED=1, locking_enabled: false) is on. Then
 * every lock is granted at once and protects nothing; belay_wait_until_free() returns, and
 * renewing and releasing succeed whatever the store says, also without a store. The
 * ids of locks that are granted without one of the caller's begin with
 * "unprotected-"; they can be released, and not renewed, when locking is on again.
 */
BELAY_API bool belay_client_locking_enabled(const struct belay_client *client);

/*
 * Ends waits from another thread, or from a signal handler: they return
 * BELAY_CANCELLED, belay_watch() BELAY_OK. Once requested it stays so. It must
 * outlive the calls that it is given to.
 */
struct belay_cancel;
BELAY_API struct belay_cancel *belay_cancel_new(void); /* NULL: no memory */
BELAY_API void belay_cancel_free(struct belay_cancel *cancel);
BELAY_API void belay_cancel_request(struct belay_cancel *cancel); /* async-signal-safe */

/* ---- holding a lock ---------------------------------------------------- */

struct belay_lock;

/* What a waiting caller may want to show. */
struct belay_wait_info {
    const struct belay_info *holder; /* who is in the way */
    size_t position;                 /* how many wait before us */
    int64_t waited_ms;
    int64_t retry_ms; /* when we look again unless woken sooner */
    int attempt;      /* how often we have tried */
};

struct belay_lock_options {
    size_t struct_size;
    int64_t ttl_ms;         /* how long the lease lasts without a renewal; 0: as the profile says
                               whose lock the key is by its form, else ten minutes */
    int64_t wait_ms;        /* how long to wait for the lock; 0: not at all */
    int attempts;           /* give up after so many tries; 0: no such limit. With wait_ms,
                        whichever ends first; without, the tries alone end it. */
    int64_t heartbeat_ms;   /* renew this often in the background, or more often where the lease would
                               not leave time for it (belay_lock_heartbeat_ms()); 0: never */
    int64_t stale_after_ms; /* flagged as stale without a heartbeat for so long; 0: four of them */
    const char *owner;      /* NULL: unique to this acquisition */
    const char *owner_name; /* for people; NULL: user@host */
    const char *correlation_id;
    const struct belay_meta *metadata;
    size_t n_metadata;
    /* NULL: a fresh one. Give one to be able to repeat an acquire whose answer was lost. */
    const char *lock_id;
    bool reentrant;       /* the same owner (and credential) gets its live lock again, same id and token */
    bool durable;         /* nobody's process: it survives this one, and a restart of the machine */
    bool stepped_backoff; /* retry after 5, 10, 30, 60 s instead of exponentially */
    bool defer_heartbeat; /* no heartbeat and no on_lost before belay_lock_start_heartbeat() */
    /*
     * Called once, by a thread of the library, when the lease is lost or can no
     * longer be proved: before anyone else can have the lock, while this
     * process runs and nobody forced it. If somebody else has ended the lock,
     * at once on an embedded store and through a server, and within 10 s on
     * others, whatever the heartbeat. Must not block and must not call back
     * into this lock.
     */
    void (*on_lost)(void *context, struct belay_lock *lock, const char *why);
    /* Called when a wait begins and whenever what it shows has changed. */
    void (*on_waiting)(void *context, const struct belay_wait_info *waiting);
    void *context;
    struct belay_cancel *cancel;
    /*
     * For a program that acquires on behalf of others, as `belay serve` does: the credential that it has
     * authenticated. Kept with the lock; re-entry, a repeated lock_id and a place in the queue are for the
     * same credential only. NULL: none.
     */
    const char *acquired_by;
};
#define BELAY_LOCK_OPTIONS_INIT                                                                              \
    {                                                                                                        \
        sizeof(struct belay_lock_options), 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, 0, NULL, false, false,     \
            false, false, NULL, NULL, NULL, NULL, NULL                                                       \
    }

/* Fill what is not set in `options` from a profile. */
BELAY_API void belay_profile_apply(const struct belay_profile *profile, struct belay_lock_options *options);

/*
 * Acquire the lock `key`, waiting at most options->wait_ms for it, in the order
 * of arrival.
 *
 * Returns BELAY_HELD if somebody else still has it then; belay_error_holder()
 * says who. After BELAY_UNKNOWN the store may show us as the holder: acquire
 * again with the same options->lock_id to find out. On BELAY_OK the caller owns
 * *out_lock, ends it with belay_lock_release() and then belay_lock_free().
 *
 * With locking switched off it succeeds at once with a lock that protects
 * nothing: belay_lock_is_protected() is false.
 */
BELAY_API enum belay_code belay_lock_acquire(struct belay_client *client, const char *key,
                                             const struct belay_lock_options *options,
                                             struct belay_lock **out_lock, struct belay_error *err);

/*
 * Take over a lock that somebody acquired for us and whose id we were given.
 * The id is exchanged for a new id and token, so that of two who were given the
 * same id one succeeds; the other gets BELAY_NOT_HOLDER. options->wait_ms and
 * attempts have no meaning here; options->owner NULL keeps the owner. The caller
 * owns *out_lock as after belay_lock_acquire().
 */
BELAY_API enum belay_code belay_lock_adopt(struct belay_client *client, const char *key, const char *lock_id,
                                           const struct belay_lock_options *options,
                                           struct belay_lock **out_lock, struct belay_error *err);

/*
 * Start to look after a lock that was acquired with defer_heartbeat: heartbeats, and
 * on_lost. They take threads, which cost a short job more than its lock does;
 * to be called well before the first heartbeat is due. Doing it again is not an
 * error.
 */
BELAY_API enum belay_code belay_lock_start_heartbeat(struct belay_lock *lock, struct belay_error *err);

/*
 * Renew the lease now, for its whole ttl. BELAY_LOST if it is over. After
 * BELAY_UNREACHABLE and BELAY_UNKNOWN the lock is ours until its deadline.
 */
BELAY_API enum belay_code belay_lock_renew(struct belay_lock *lock, struct belay_error *err);

/*
 * End the lock. Doing it again is not an error. BELAY_LOST if it was lost
 * before, in which case nothing was changed. A re-entered lock only stops
 * being used here: the outermost holder ends it. The lock must still be freed.
 */
BELAY_API enum belay_code belay_lock_release(struct belay_lock *lock, enum belay_outcome outcome,
                                             struct belay_error *err);

/* Stop the heartbeat and forget the lock, which stays in the store until its lease ends. */
BELAY_API void belay_lock_free(struct belay_lock *lock);

BELAY_API const char *belay_lock_key(const struct belay_lock *lock);
BELAY_API const char *belay_lock_id(const struct belay_lock *lock); /* NULL if unprotected */
BELAY_API uint64_t belay_lock_token(const struct belay_lock *lock); /* 0 if there is none */
BELAY_API bool belay_lock_is_protected(const struct belay_lock *lock);
BELAY_API bool belay_lock_is_reentered(const struct belay_lock *lock);

/* As it was when it was acquired or last renewed. Borrowed until the next such call; NULL: no memory. */
BELAY_API const struct belay_info *belay_lock_info(struct belay_lock *lock);

/*
 * The moment, on CLOCK_BOOTTIME, from which the lock must not be relied upon.
 * It moves with every renewal, lies before the end of the lease in the store,
 * and is in the past once the lock is lost or released. INT64_MAX for a lock
 * that protects nothing.
 */
BELAY_API int64_t belay_lock_deadline_boot_ms(struct belay_lock *lock);

/*
 * How often the lock is renewed: options.heartbeat_ms, or more often if so rare a
 * heartbeat would come too late for what its lease may be relied upon. 0: never.
 */
BELAY_API int64_t belay_lock_heartbeat_ms(struct belay_lock *lock);

/* True while the lease can be proved without asking the store. */
BELAY_API bool belay_lock_is_mine(struct belay_lock *lock);

/* ---- by key and lock id, for who keeps no struct belay_lock ------------- */

/*
 * These three return BELAY_NOT_HOLDER if the lock is not that id's, and
 * BELAY_NOT_FOUND if nothing is known of the key; after BELAY_UNKNOWN they may be
 * repeated. out_info may be NULL; the caller frees *out_info, which is the lock
 * afterwards.
 */

/*
 * `ttl_ms` 0 keeps the ttl. Where the store does not keep it, it is that of the profile whose
 * key template the key fits, and BELAY_INVALID if there is none. BELAY_LOST if the lease is over.
 */
BELAY_API enum belay_code belay_renew(struct belay_client *client, const char *key, const char *lock_id,
                                      int64_t ttl_ms, struct belay_info **out_info, struct belay_error *err);

/*
 * Not an error if it was released before and nobody has taken it since. A store that
 * keeps nothing of a released lock (DynamoDB layouts that delete the item) cannot tell
 * that from one that never was: there it is BELAY_OK, too, and what is not known of it is
 * empty in *out_info.
 */
BELAY_API enum belay_code belay_release(struct belay_client *client, const char *key, const char *lock_id,
                                        enum belay_outcome outcome, struct belay_info **out_info,
                                        struct belay_error *err);

/*
 * End somebody else's lock: that of `lock_id`, and no later one. `by` and
 * `reason` are recorded.
 */
BELAY_API enum belay_code belay_force_release(struct belay_client *client, const char *key,
                                              const char *lock_id, const char *by, const char *reason,
                                              struct belay_info **out_info, struct belay_error *err);

/* BELAY_NOT_FOUND if nothing is known of the key. The caller frees *out_info. */
BELAY_API enum belay_code belay_get(struct belay_client *client, const char *key,
                                    struct belay_info **out_info, struct belay_error *err);

struct belay_query {
    size_t struct_size;
    const char *prefix;       /* NULL: all */
    enum belay_status status; /* NONE: active and expired */
    bool all;                 /* whatever the status */
    bool stale_only;
    size_t limit;       /* 0: no limit */
    const char *cursor; /* continue after this key; NULL: from the start */
};
#define BELAY_QUERY_INIT                                                                                     \
    {                                                                                                        \
        sizeof(struct belay_query), NULL, BELAY_STATUS_NONE, false, false, 0, NULL                           \
    }

/* Return false to stop. The info is borrowed. */
typedef bool (*belay_info_fn)(void *context, const struct belay_info *info);

/*
 * Locks in the order of their keys. *out_more (may be NULL): the limit cut it
 * short. What fails after some were told is an error all the same; go on with
 * the last key as the cursor. That `fn` stopped is none.
 */
BELAY_API enum belay_code belay_list(struct belay_client *client, const struct belay_query *query,
                                     belay_info_fn fn, void *context, bool *out_more,
                                     struct belay_error *err);

/*
 * The last `limit` events of one key, oldest first. 0: all that are kept. On a
 * store that keeps none, those in the file that the setting audit.file names;
 * without that BELAY_NOT_FOUND.
 */
BELAY_API enum belay_code belay_history(struct belay_client *client, const char *key, size_t limit,
                                        belay_event_fn fn, void *context, struct belay_error *err);

/*
 * The events that are kept, of keys that begin with `prefix` (NULL: all), after
 * the event `after_id`, oldest first; with `last` only the last so many (0: all).
 * Does not wait for more: for who has other things to do than belay_watch().
 * BELAY_NOT_FOUND where the store keeps no events, and through a server.
 */
BELAY_API enum belay_code belay_events(struct belay_client *client, const char *prefix, uint64_t after_id,
                                       size_t last, belay_event_fn fn, void *context,
                                       struct belay_error *err);

/*
 * Keep the event lock.lost, for a holder elsewhere that has told us so: `event`
 * says of which key, id, token and owner, and why. Nothing else is changed.
 */
BELAY_API enum belay_code belay_report_lost(struct belay_client *client, const struct belay_event *event,
                                            struct belay_error *err);

/*
 * Events as they happen, of keys that begin with `prefix` (NULL: all), after
 * the event `after_id` (0: from now on), until `fn` returns false or `cancel`.
 * BELAY_NOT_FOUND where the store keeps no events.
 */
BELAY_API enum belay_code belay_watch(struct belay_client *client, const char *prefix, uint64_t after_id,
                                      belay_event_fn fn, void *context, struct belay_cancel *cancel,
                                      struct belay_error *err);

/*
 * Return when the lock is free to be taken, without taking it. BELAY_HELD after
 * wait_ms; options->on_waiting, context and cancel are used, the rest is not.
 */
BELAY_API enum belay_code belay_wait_until_free(struct belay_client *client, const char *key,
                                                const struct belay_lock_options *options,
                                                struct belay_error *err);

/* ---- without blocking, for event loops ---------------------------------- */

/*
 * A call is an operation that is under way. belay_client_poll() carries calls
 * out and tells how they ended; nothing happens outside of it. A call that has
 * to wait costs no thread. All of this is for one thread at a time.
 */
struct belay_async;

/*
 * How a call ended, told once, from belay_client_poll(). `info` is the lock as it
 * is now, after BELAY_OK; `err` says why not. Both are borrowed. The call is
 * gone afterwards. New calls may be begun from here.
 */
typedef void (*belay_async_fn)(void *context, enum belay_code code, const struct belay_info *info,
                               const struct belay_error *err);

/*
 * Begin to acquire. What `options` says is copied; on_lost, on_waiting, cancel
 * and heartbeat threads have no part in it: who holds the lock renews it by
 * belay_async_renew(). BELAY_BUSY while another operation with the same lock id is in
 * progress. *out_call may be NULL.
 */
BELAY_API enum belay_code belay_async_acquire(struct belay_client *client, const char *key,
                                              const struct belay_lock_options *options, belay_async_fn fn,
                                              void *context, struct belay_async **out_call,
                                              struct belay_error *err);
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

/*
 * Forget a wait and free the call, whose fn hears nothing more; for who stops.
 * Its place in line stays for a while, for who asks again with the same lock id.
 */
BELAY_API void belay_async_abandon(struct belay_async *call);

/* End a wait: its fn hears BELAY_CANCELLED in the next turn, unless it has ended before. */
BELAY_API void belay_async_cancel(struct belay_async *call);

/* True while the store does not answer it: it tries again by itself. */
BELAY_API bool belay_async_is_retrying(const struct belay_async *call);

/* Do all that can be done now. Returns when there is more to do, on CLOCK_BOOTTIME; INT64_MAX: nothing. */
BELAY_API int64_t belay_client_poll(struct belay_client *client);

/*
 * Have on disk all that calls have done. With options.owns_file: nobody may be told
 * what became of a call, nor of anything that was read since, before this. After
 * BELAY_UNKNOWN it may or may not be there: tell nobody anything, and start again.
 * Another thread may do this while calls go on: then it is about those that were
 * done before it began.
 */
BELAY_API enum belay_code belay_client_sync(struct belay_client *client, struct belay_error *err);
/* True if that would find nothing to do. */
BELAY_API bool belay_client_is_synced(struct belay_client *client);

/*
 * How a client's own store has done since it was opened, for who watches it.
 * A store that has many changes on disk with one sync (options.owns_file) counts
 * how many came with each; on another every change is a write of its own.
 */
enum { BELAY_BATCH_BUCKETS = 11 };
struct belay_store_counts {
    uint64_t commits; /* changes that were made */
    uint64_t syncs;   /* writes that they took */
    /* [i]: writes of up to 2^i changes, and more than 2^(i-1); the last: of still more */
    uint64_t batches[BELAY_BATCH_BUCKETS];
    uint64_t errors; /* questions and changes that it did not answer, or could not */
};
BELAY_API void belay_client_store_counts(struct belay_client *client, struct belay_store_counts *out);

/*
 * True while the call waits in line, with its ticket in the store; *out_waiting
 * is as it was seen last, its holder borrowed until the next turn and NULL if
 * nobody is known to hold it.
 */
BELAY_API bool belay_async_is_waiting(const struct belay_async *call, struct belay_wait_info *out_waiting);

/* False: the store is on the network, and every question takes as long as the network does. */
BELAY_API bool belay_client_is_local(const struct belay_client *client);

/*
 * Have up to so many threads, at least one, ask the store for the calls, so that
 * belay_client_poll() never waits for it. `wake` is called, from one of them,
 * when an answer is there for the next turn. Before the first call.
 */
BELAY_API enum belay_code belay_client_use_threads(struct belay_client *client, size_t threads,
                                                   void (*wake)(void *context), void *context,
                                                   struct belay_error *err);

/* As belay_async_release(), for who ends a lock in its holder's stead; `by` is recorded. */
BELAY_API enum belay_code belay_async_release_by(struct belay_client *client, const char *key,
                                                 const char *lock_id, enum belay_outcome outcome,
                                                 const char *by, belay_async_fn fn, void *context,
                                                 struct belay_error *err);

/* ---- telling others ------------------------------------------------------ */

/*
 * POST `body` to a URL that somebody else has chosen, and wait for the answer.
 *
 * Only public addresses are connected to, and those in `allow` ("10.1.0.0/16",
 * "::1"): a stranger must not be able to have us call this machine, its network
 * or a cloud's metadata service. It is the address of the connection itself that
 * is looked at, so a name cannot point elsewhere in between. Redirects are not
 * followed, proxies not used. BELAY_OK: there was an answer, *out_status is its
 * status. BELAY_NOT_PERMITTED: the address is not one that may be called.
 */
struct belay_http_post {
    size_t struct_size;
    const char *url; /* http or https, without a user or a password in it */
    const struct belay_meta *headers;
    size_t n_headers;
    const char *body;
    size_t body_len;
    int64_t timeout_ms; /* for all of it; 0: ten seconds */
    const char *const *allow;
    size_t n_allow;
    const char *ca_file; /* certificates to trust instead of the system's; NULL: none */
    struct belay_cancel *cancel;
};
#define BELAY_HTTP_POST_INIT                                                                                 \
    {                                                                                                        \
        sizeof(struct belay_http_post), NULL, NULL, 0, NULL, 0, 0, NULL, 0, NULL, NULL                       \
    }
BELAY_API enum belay_code belay_http_post(const struct belay_http_post *post, int *out_status,
                                          struct belay_error *err);

/* ---- looking after a store ----------------------------------------------- */

enum belay_finding_level { BELAY_FINDING_OK, BELAY_FINDING_WARNING, BELAY_FINDING_FAILED };
BELAY_API const char *
belay_finding_level_name(enum belay_finding_level level); /* "ok", "warning", "failed" */

/* One thing that was looked at or done. The strings are borrowed until the callback returns. */
struct belay_finding {
    enum belay_finding_level level;
    enum belay_code code; /* of what failed: BELAY_UNREACHABLE, BELAY_NOT_PERMITTED or BELAY_CONFIG */
    const char *name;     /* what it is about: "credentials", "free space" */
    const char *text;     /* what was found; one line, nothing secret in it */
    const char *advice;   /* what to do about it; NULL: nothing */
};
typedef void (*belay_finding_fn)(void *context, const struct belay_finding *finding);

struct belay_doctor_options {
    size_t struct_size;
    const char *config_path;  /* as for belay_config_load() */
    const char *store_url;    /* NULL: what the configuration says */
    const char *store_origin; /* who gave store_url, such as "option --store"; NULL: "the caller" */
};
#define BELAY_DOCTOR_OPTIONS_INIT                                                                            \
    {                                                                                                        \
        sizeof(struct belay_doctor_options), NULL, NULL, NULL                                                \
    }

/*
 * Look at the configuration and the store: can it be found, reached and written,
 * is it what it should be, are the clocks right, is anything not allowed? `fn`
 * gets one finding at a time, as they are made. Nothing that stays is changed: a
 * store that does not exist yet is not made. Every request has a time limit.
 *
 * BELAY_OK if nothing failed, warnings or not. Else the code of the worst:
 * BELAY_CONFIG before BELAY_NOT_PERMITTED before BELAY_UNREACHABLE.
 */
BELAY_API enum belay_code belay_doctor(const struct belay_doctor_options *options, belay_finding_fn fn,
                                       void *context, struct belay_error *err);

/* A DynamoDB table, and whether it is what a layout needs. Strings are NULL where something is not known. */
struct belay_dynamodb_table {
    char *name;
    char *layout; /* of the locks in it; NULL for a fence table */
    char *region;
    char *endpoint;
    char *arn;
    char *status;             /* "ACTIVE", "CREATING"; NULL: there is no such table */
    char *keys;               /* "PK (S, HASH), SK (S, RANGE)" */
    char *keys_expected;      /* the same as the layout needs it */
    char *billing;            /* "PAY_PER_REQUEST", "PROVISIONED" */
    char *ttl_attribute;      /* what items are removed by; NULL: nothing */
    char *ttl_status;         /* "ENABLED", "DISABLED", "ENABLING" */
    char *ttl_expected;       /* NULL: the layout has no such attribute */
    char *recovery;           /* point-in-time recovery: "ENABLED", "DISABLED" */
    char *encryption;         /* in words */
    bool deletion_protection; /* the table must be unprotected before it can be deleted */
    int64_t items;            /* of hours ago; -1: not known */
    int64_t bytes;            /* likewise */
    char *mismatch;           /* why locks of this layout cannot be kept in it; NULL: they can */
    char *policy;             /* an IAM policy, as JSON: what using, making and examining it takes */
    struct belay_dynamodb_table
        *fence; /* owned; the table of counters beside it (fence_table=NAME); NULL: none */
};
BELAY_API void belay_dynamodb_table_free(struct belay_dynamodb_table *table);

struct belay_dynamodb_table_options {
    size_t struct_size;
    const char *store_url;             /* dynamodb:TABLE...; NULL: what the configuration says */
    const struct belay_config *config; /* NULL: as belay_config_load(NULL) finds it */
    int64_t wait_ms;                   /* how long to wait until it is active; 0: five minutes */
    const char *kms_key;               /* encrypt with this KMS key; NULL: with DynamoDB's own, at no cost */
    bool dry_run;                      /* change nothing; each finding is a request that would be sent */
    /* Called for every step of belay_dynamodb_table_create(). */
    belay_finding_fn on_step;
    /* Called every now and then while it waits; NULL: nobody looks. */
    void (*on_waiting)(void *context, const char *table, const char *status, int64_t waited_ms);
    void *context;
    struct belay_cancel *cancel; /* ends a wait */
};
#define BELAY_DYNAMODB_TABLE_OPTIONS_INIT                                                                    \
    {                                                                                                        \
        sizeof(struct belay_dynamodb_table_options), NULL, NULL, 0, NULL, false, NULL, NULL, NULL, NULL      \
    }

/*
 * Make the table that the store's URL names, with the keys that its layout
 * needs, billed by request, with time to live and point-in-time recovery, and
 * wait until it can be used. A table that is there and fits is left as it is,
 * but for time to live and recovery that are off; one that does not fit is
 * BELAY_CONFIG, and nothing is changed. What a server does not have (recovery,
 * on DynamoDB Local) is a step with a warning. *out_table may be NULL.
 */
BELAY_API enum belay_code belay_dynamodb_table_create(const struct belay_dynamodb_table_options *options,
                                                      struct belay_dynamodb_table **out_table,
                                                      struct belay_error *err);

/* Only looks. Without such a table it is no error: status is NULL then. The caller frees *out_table. */
BELAY_API enum belay_code belay_dynamodb_table_describe(const struct belay_dynamodb_table_options *options,
                                                        struct belay_dynamodb_table **out_table,
                                                        struct belay_error *err);

/* ---- Looking after an embedded store ---- */

struct belay_maintenance_options {
    size_t struct_size;
    const char *store_url;             /* sqlite:PATH; NULL: what the configuration says */
    const struct belay_config *config; /* NULL: as belay_config_load(NULL) finds it */
    bool replace;                      /* belay_restore(): also over a database that is there */
};
#define BELAY_MAINTENANCE_OPTIONS_INIT                                                                       \
    {                                                                                                        \
        sizeof(struct belay_maintenance_options), NULL, NULL, false                                          \
    }

/* What a backup contains. */
struct belay_backup {
    size_t struct_size;
    int64_t locks; /* records of locks, of which so many are */
    int64_t held;
    int64_t bytes;
    int64_t made_at_unix_ms;
    uint64_t next_token; /* after belay_restore(): tokens are at least this */
};
#define BELAY_BACKUP_INIT                                                                                    \
    {                                                                                                        \
        sizeof(struct belay_backup), 0, 0, 0, 0, 0                                                           \
    }

/*
 * Write a consistent copy of an embedded store to `file`, which must not be there yet: while it is used, while it
 * is served, and through a server (for which one has to be an admin). The copy is verified, synced, and readable for
 * its owner alone; on any failure there is no file. BELAY_INVALID: the store is not such a one, or there is such a
 * file. `cancel` and *out_backup may be NULL.
 */
BELAY_API enum belay_code belay_backup(struct belay_client *client, const char *file,
                                       struct belay_cancel *cancel, struct belay_backup *out_backup,
                                       struct belay_error *err);

/*
 * Put a backup in the place of the database that the store's URL names. One that is there is replaced only with
 * `replace`, and never while it is used (BELAY_HELD): served, open in another process, or with locks that are held; it is
 * kept beside it as FILE.replaced-TIME. Locks that were held in the backup start again with their whole ttl, and tokens go
 * on above all that were handed out, by the original after the backup was made, too (docs/operations.md says how).
 */
BELAY_API enum belay_code belay_restore(const char *file, const struct belay_maintenance_options *options,
                                        struct belay_backup *out_backup, struct belay_error *err);

/*
 * Open a store that is refused because the journal of a killed server is damaged or missing, and go on without
 * what cannot be read of it. Locks that were only in there are forgotten, so nobody may rely on them any more;
 * tokens go on far above all that were handed out; the other locks start again with their whole ttl; the
 * journal is kept beside the database under another name. *out_lost (may be NULL) is false if the store was in order.
 */
BELAY_API enum belay_code belay_repair(const struct belay_maintenance_options *options, bool *out_lost,
                                       struct belay_error *err);

/* Now, on the clock that deadlines are counted on. */
BELAY_API int64_t belay_now_boot_ms(void);

BELAY_API const char *belay_version(void);

#ifdef __cplusplus
}
#endif

#endif
