/* For src/server/notify only. */
#ifndef SERVER_NOTIFY_NOTIFY_INTERNAL_H
#define SERVER_NOTIFY_NOTIFY_INTERNAL_H

#include <jansson.h>

#include "base/buf.h"
#include "server/core/server.h"
#include "server/notify/notify.h"
#include "server/webhooks/webhooks.h"

enum {
    NOTIFY_TARGETS_MAX = 32,
    NOTIFY_KEYS_MAX = 64,
    NOTIFY_EVENTS_MAX = 64,
    NOTIFY_DEFAULT_MAX = 1000,  /* notices in the queue of a target */
    NOTIFY_BYTES_MAX = 8 << 20, /* of all notices in a queue */
    NOTIFY_SAID_MAX = 4096,     /* notices of the scan that are remembered, for each target */
    NOTIFY_TIMEOUT_MS = 10000,  /* of one call */
    NOTIFY_ATTEMPTS = 16,       /* of one notice: about 45 minutes */
    NOTIFY_PAUSE_MS = 1000,     /* before the second attempt; doubles with each further one */
    NOTIFY_PAUSE_MAX_MS = 300000,
    NOTIFY_SAVE_MS = 500,           /* between two writes of the file */
    NOTIFY_SCAN_MS = 1000,          /* between two scans */
    NOTIFY_SCAN_NETWORK_MS = 60000, /* DynamoDB charges for a scan */
    NOTIFY_SCAN_SHARE = 50,         /* a scan takes at most such a part of the time */
    NOTIFY_SLACK_MS = 600000,       /* how far the clocks of the scan may be off */
    NOTIFY_UNSAVED_MAX = 20000,     /* events that are for no target, between two writes of the file */
    NOTIFY_PIECE = 500,             /* events that are read at once to catch up */
    NOTIFY_ID_SIZE = 17
};
#define NOTIFY_AGE_MAX_MS (24LL * 3600 * 1000) /* an older notice is dropped */

/* In the order of notify_formats. */
enum notify_format { NOTIFY_JSON, NOTIFY_SLACK, NOTIFY_TEAMS };

/* One entry of `notify`. Calls and scans keep a reference; counted on the loop only. */
struct notify_settings {
    size_t n_refs;
    char name[NOTIFY_NAME_SIZE];
    char id[NOTIFY_ID_SIZE]; /* made from the URL: finds the target again after a restart */
    enum notify_format format;
    char *url; /* owned; a secret */
    char host[WEBHOOK_HOST_SIZE];
    char secret[WEBHOOK_SECRET_MAX + 1]; /* "": not signed */
    char *template;                      /* owned; NULL: the default text */
    char *dashboard;                     /* owned; server.url without its last '/'; "": none */
    bool wants[NOTIFY_EVENTS_MAX];       /* by the index in notify_events */
    char *keys[NOTIFY_KEYS_MAX];         /* owned; patterns; none: every key */
    size_t n_keys;
    int64_t held_ms; /* 0: not asked for */
    int64_t wait_ms;
    size_t max;
};

struct notify_targets {
    struct notify_settings *items[NOTIFY_TARGETS_MAX]; /* references */
    size_t n;
};

/* An event to be sent to one target. */
struct notice {
    struct notice *next;
    uint64_t event_id; /* 0: the store does not keep it, the file does */
    uint64_t lsn;      /* once this is durable it may be sent */
    int64_t at_unix_ms;
    char *event; /* owned; JSON, without the lock id */
    size_t len;
};

/* A notice of the scan that was made: not made again. */
struct notify_said {
    uint64_t mark;
    int64_t due_unix_ms;
};

struct notify_target {
    struct notify_target *next;
    struct notify *notify;            /* borrowed */
    struct notify_settings *settings; /* a reference */
    struct notice *first;             /* by event id; those without one as they came */
    struct notice **end;
    size_t n_queued;
    size_t bytes;
    uint64_t start;           /* nothing up to this event is for the target */
    int64_t since_unix_ms;    /* leases that ended before are not told */
    int64_t scanned_unix_ms;  /* 0: no scan has seen this target */
    struct notify_said *said; /* owned; the scan's while it is pending */
    size_t n_said;
    struct notify_counts counts;
    int64_t warned_ms; /* of a full queue */
    bool is_removed;   /* freed when neither a call nor a scan needs it */
    /* the call for `first` */
    int attempt;
    struct timer timer; /* the next attempt */
    bool is_paused;
    struct work work;
    bool is_calling;
    struct notify_settings *calling; /* a reference: the settings that the call borrows */
    char delivery_id[24];
    char event_type[64];
    struct outgoing out;
};

struct notify_scan;
struct notify_catch_up;

struct notify {
    struct server *server; /* borrowed */
    struct notify_target *first;
    uint64_t newest;             /* event that was seen */
    uint64_t newest_saved;       /* `newest` one save ago: an event of another thread may arrive late */
    uint64_t told;               /* the newest event that was sent or dropped */
    char *path;                  /* owned; of the file; NULL: none */
    struct belay_cancel *cancel; /* owned */
    bool is_stopped;
    bool is_dirty;
    struct timer save_timer;
    bool is_save_due;
    struct work save_work;
    char *save_text; /* owned; the worker's while it is pending */
    char save_why[128];
    bool save_failed;
    struct timer scan_timer;
    struct notify_scan *scan;         /* owned; NULL: none is pending */
    struct notify_catch_up *catch_up; /* owned; NULL: over */
};

/* ---- notify_settings.c ---- */

struct notify_settings *notify_settings_keep(struct notify_settings *settings);
void notify_settings_drop(struct notify_settings *settings);
bool notify_wants_event(const struct notify_settings *settings, const char *type);
bool notify_wants_key(const struct notify_settings *settings, const char *key);
/* Both of an event. The key of a freeze's event is a pattern, which has to meet one of the target's. */
bool notify_wants(const struct notify_settings *settings, const char *type, const char *key);
bool notify_wants_scan(const struct notify_settings *settings);
/* "slack to hooks.slack.com: lock.forced, lock.stale of deploy-*" */
void notify_settings_describe(const struct notify_settings *settings, struct buf *out);

/* ---- notify_queue.c ---- */

/* Add an event; takes `event`, which is JSON; NULL: no memory. */
void notice_add(struct notify_target *target, uint64_t event_id, int64_t at_unix_ms, char *event);
/* Remove the first; false: there is none. */
bool notice_drop_first(struct notify_target *target);
/* wire_event() without the lock id, with which one could release the lock. NULL: no memory. */
char *notice_text(const struct belay_event *event);
/* The event before the first one that is still to be sent; UINT64_MAX: none is. */
uint64_t notify_target_done(const struct notify_target *target);

/* ---- notify_message.c ---- */

/* The body of a call, which the caller frees. NULL: no memory. */
char *notify_message(const struct notify_settings *settings, const char *event);

/* ---- notify_send.c ---- */

/* Call the target if it is not being called and has a notice. */
void notify_pump(struct notify_target *target);

/* ---- notify_scan.c ---- */

/* Scan now and then, if a target needs it. */
void notify_scan_start(struct notify *notify);

/* ---- notify_catch_up.c ---- */

/* Read the events since the last server. Nothing is sent before that is over. */
void notify_catch_up_start(struct notify *notify, uint64_t tail);
void notify_catch_up_free(struct notify_catch_up *all); /* may be NULL */

/* ---- notify_file.c ---- */

/* Set the state of the targets that the file knows. */
void notify_file_load(struct notify *notify, struct notify_target *targets, uint64_t tail);
/* Soon, off the loop. */
void notify_file_save(struct notify *notify);
/* Now, on the loop: at the start and at the end. */
void notify_file_write(struct notify *notify);

/* ---- notify.c ---- */

/* Free removed targets that nothing uses any more. */
void notify_sweep(struct notify *notify);

#endif
