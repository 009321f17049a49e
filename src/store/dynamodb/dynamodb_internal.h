/* Inside of the DynamoDB store; for src/store/dynamodb/ only. */
#ifndef STORE_DYNAMODB_DYNAMODB_INTERNAL_H
#define STORE_DYNAMODB_DYNAMODB_INTERNAL_H

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

#include "aws/aws.h"
#include "store/dynamodb/dynamodb_expr.h"
#include "store/dynamodb/dynamodb_layout.h"
#include "store/dynamodb/dynamodb_store.h"

enum { DDB_DATE_RESOLUTION_MS = 1000 };         /* of the Date of an answer */
#define DDB_KEEP_MS (INT64_C(25) * 3600 * 1000) /* L2 wants 24 h; an hour for clocks and rounding */

/* ---- time (dynamodb_clock.c) --------------------------------------------- */

/*
 * What is known of the service's clock. Each answer's Date says that its clock
 * is at least that, and less than a second more. Both bounds are carried on by
 * our boot clock, and widened as they age by what a boot clock may be wrong.
 */
struct ddb_clock {
    pthread_mutex_t mutex;
    int64_t anchor_unix_ms; /* the local wall clock, read once and carried on by the boot clock */
    int64_t anchor_boot_ms;
    bool heard; /* there are bounds */
    int64_t low_ms;
    int64_t high_ms;
    int64_t at_boot_ms;
    int64_t heard_boot_ms; /* when the last answer came */
};

struct ddb_store;

void ddb_clock_init(struct ddb_store *store);
void ddb_clock_release(struct ddb_store *store);
int64_t ddb_boot_ms(const struct ddb_store *store);
/* An answer with this Date came, to what was sent at `sent_boot_ms`. */
void ddb_clock_hear(struct ddb_store *store, int64_t date_unix_ms, int64_t sent_boot_ms);
/*
 * Whether a deadline can be written without asking first. Not before the first answer, and not
 * when the last one is so old that a boot clock may be wrong by half of max_clock_skew since.
 */
bool ddb_clock_is_known(struct ddb_store *store);
bool ddb_clock_was_heard(struct ddb_store *store);
/* The time to write: the local clock, moved as little as the bounds want. */
int64_t ddb_clock_write_ms(struct ddb_store *store);
/* The time to judge others' leases by: not later than the service's clock. */
int64_t ddb_clock_judge_ms(struct ddb_store *store);
/* By how much the local clock is surely wrong, + ahead; 0: not by more than is allowed. */
int64_t ddb_clock_skew_ms(struct ddb_store *store);
enum belay_code ddb_clock_say_skew(const struct ddb_store *store, int64_t skew_ms, struct belay_error *err);

/* ---- what was last seen of a key (dynamodb_seen.c) -------------------------- */

/*
 * All items that a record is made of. Where an item has no revision of its own,
 * "unchanged since revision R" is said by what lay in it then, so this is kept.
 */
struct ddb_items {
    json_t *item;    /* owned; NULL: there is none */
    json_t *line;    /* owned; NULL: there is none; the same as `item` where they are one */
    json_t *fence;   /* owned; the counter beside it; NULL: there is none */
    bool line_known; /* somebody looked */
};
void ddb_items_release(struct ddb_items *items);

enum { SEEN_MAX = 128 };
struct ddb_seen {
    pthread_mutex_t mutex;
    struct ddb_seen_entry {
        char *key; /* owned */
        struct ddb_items items;
        uint64_t revision;
        int64_t free_since_ms; /* 0: somebody has it */
    } entries[SEEN_MAX];
    size_t next;
};
void ddb_seen_init(struct ddb_seen *seen);
void ddb_seen_release(struct ddb_seen *seen);
/*
 * Keep it. Returns since when this handle sees the lock free, 0 if it is held:
 * where nothing says when it was given back, the line goes by that.
 */
int64_t ddb_seen_put(struct ddb_seen *seen, const char *key, const struct ddb_items *items,
                     const struct belay_record *record, int64_t now_ms);
/* What it was at that revision. The caller releases it. */
bool ddb_seen_find(struct ddb_seen *seen, const char *key, uint64_t revision, struct ddb_items *out_items);

/* ---- the store ------------------------------------------------------------ */

struct ddb_params {
    char *table;         /* owned */
    char *layout;        /* owned; or NULL */
    char *region;        /* owned; or NULL */
    char *endpoint;      /* owned; or NULL */
    char *profile;       /* owned; or NULL */
    char *fence_table;   /* owned; or NULL */
    int64_t max_skew_ms; /* default 2 s */
    bool observe;
};

/* "TABLE?layout=NAME&region=R...", with '&' or ','. */
enum belay_code ddb_params_parse(const char *text, struct ddb_params *out_params, struct belay_error *err);
void ddb_params_release(struct ddb_params *params);
char *ddb_params_url(const struct ddb_params *params); /* the whole of it again; the caller frees */

/* Something that somebody holds, and since when it is as it is, on our boot clock. */
struct ddb_observed {
    uint64_t what;
    uint64_t state;
    int64_t since_ms;
};
enum { OBSERVED_MAX = 256 };

struct ddb_store {
    struct belay_store base;
    struct aws_client *aws; /* owned */
    struct ddb_params params;
    const struct layout *layout;
    struct layout_made made; /* owned; empty if the layout is built in */
    struct dynamodb_hooks hooks;
    struct ddb_clock clock;
    struct ddb_seen seen;
    struct ddb_observed observed[OBSERVED_MAX]; /* under the mutex of `seen` */
    _Atomic uint64_t requests;
    atomic_bool returns_items; /* a refusal was seen to bring the item back */
    void (*on_warning)(void *context, const char *text);
    void *warn_context;
};

static inline struct ddb_store *ddb_of(struct belay_store *store)
{
    return (struct ddb_store *)store;
}

/* ---- requests (dynamodb_wire.c) ------------------------------------------- */

struct ddb_answer {
    json_t *body;     /* owned; NULL if there was none that could be read */
    char *error_code; /* owned; NULL after success */
};
void ddb_answer_release(struct ddb_answer *answer);

/*
 * Send one request and hear the Date of the answer. Takes over `request`, which
 * may be NULL for want of memory. BELAY_OK or what aws_call() says; an error of
 * which a user can do something about says what.
 */
enum belay_code ddb_call(struct ddb_store *store, const char *operation, json_t *request,
                         struct ddb_answer *out, struct belay_error *err);
/* The same, for who has no use for an answer after `timeout_ms`; 0: as usual. */
enum belay_code ddb_call_within(struct ddb_store *store, const char *operation, json_t *request,
                                int64_t timeout_ms, struct ddb_answer *out, struct belay_error *err);

/*
 * Ask the service what time it is, by a request that it refuses: it is not signed,
 * so nobody is charged for it, and the refusal has a Date.
 */
enum belay_code ddb_ask_date(struct ddb_store *store, int64_t timeout_ms, struct belay_error *err);

/* {"PK": {"S": ...}, ...} of a lock's item, or of the item of its line. NULL: no memory. */
json_t *ddb_item_key(const struct layout *layout, const char *key);
json_t *ddb_line_key(const struct layout *layout, const char *key);
json_t *ddb_fence_key(const struct ddb_store *store, const char *key);

/* Where an item is, and the item. */
struct ddb_place {
    const char *table; /* borrowed */
    json_t *key;       /* owned; NULL fails for want of memory */
    json_t *item;      /* owned; NULL: there is none */
};
/* Consistent reads: one GetItem, or one BatchGetItem. */
enum belay_code ddb_read(struct ddb_store *store, struct ddb_place *places, size_t n,
                         struct belay_error *err);
void ddb_places_release(struct ddb_place *places, size_t n);

/* ---- items to records (dynamodb_read.c, dynamodb_foreign.c) ------------------ */

/* Read all there is of these keys. */
enum belay_code ddb_look(struct ddb_store *store, const char *const *keys, size_t n,
                         struct ddb_items *out_items, struct belay_error *err);
enum belay_code ddb_record(struct ddb_store *store, const char *key, const struct ddb_items *items,
                           struct belay_record *out_record, struct belay_error *err);

/* The holder of an item of another program's. */
void ddb_foreign_holder(struct ddb_store *store, const char *key, const json_t *item,
                        struct belay_record *record, bool *ok);
/* Whether it is an id that was made for a holder that has none. */
bool ddb_is_foreign_id(const char *lock_id);
/* A time in any of the forms that programs write. */
bool ddb_parse_time(const char *text, int64_t *out_unix_ms);
json_t *ddb_time_value(enum layout_format format, int64_t unix_ms, bool round_up);

/* How long an intent was meant to last, from when it was put. */
int64_t ddb_intent_ttl_ms(const json_t *line, const char *lock_id);

/* ---- trusting no clock (dynamodb_observe.c) ---------------------------------- */

/* Put the ends of the record's leases where our own looking on puts them. */
void ddb_observe(struct ddb_store *store, const json_t *line, struct belay_record *record);

/* ---- writes to expressions (dynamodb_write.c) ------------------------------ */

/* Names of what a line is made of, in the lock's item or in its own. */
#define LINE_WAITING "waiting" /* SS: ids of the tickets */
#define LINE_INTENTS "intents" /* SS: ids of the intents */
#define LINE_TICKET "ticket#"  /* M, one for each */
#define LINE_SEQ "seq#"        /* N, one for each ticket */
#define LINE_INTENT "intent#"  /* M, one for each */
#define LINE_LAST_SEQ "last_seq"
#define LINE_REVISION "revision"
#define FENCE_KEY "lock_key" /* of the counters in the fence table: TABLE#KEY */

/* Whether the write brings a record into being that was not there. */
bool ddb_creates(const struct belay_write *write);
/* Whether its condition holds where there is no record. */
bool ddb_holds_if_absent(const struct belay_write *write);

/* `seen`: what the write's condition speaks of, if it is about that; else NULL. */
void ddb_write_condition(const struct ddb_store *store, const struct belay_write *write,
                         const struct ddb_items *seen, int64_t now_ms, struct expr *expr);
void ddb_write_fields(const struct ddb_store *store, const struct belay_write *write, int64_t now_ms,
                      struct expr *expr);
/* The same for an item of its own that holds the line. */
void ddb_line_condition(const struct belay_write *write, const struct ddb_items *seen, struct expr *expr);
bool ddb_changes_line(const struct belay_write *write);
/* `seen`: the item with the line, if the write is on condition that it is still like that; or NULL. */
void ddb_write_line(const struct belay_write *write, const json_t *seen, int64_t now_ms, struct expr *expr);
void ddb_write_line_revision(struct expr *expr);

/* ---- the operations -------------------------------------------------------- */

enum belay_code ddb_get(struct belay_store *base, const char *const *keys, size_t n,
                        struct belay_record *out_records, int64_t *out_now_ms, struct belay_error *err);
enum belay_code ddb_commit(struct belay_store *base, const struct belay_batch *batch,
                           struct belay_commit *out, struct belay_error *err);
/* ---- items beside the locks (dynamodb_items.c) ---- */
enum belay_code ddb_item_get(struct belay_store *base, const char *space, const char *name,
                             struct belay_item *out_item, struct belay_error *err);
enum belay_code ddb_item_put(struct belay_store *base, const struct belay_item_write *write,
                             uint64_t *out_version, struct belay_error *err);
enum belay_code ddb_item_list(struct belay_store *base, const char *space, belay_item_fn fn, void *context,
                              struct belay_error *err);
/* Whether that is the key of such an item, and not of a lock. */
bool ddb_is_item(const struct layout *layout, const char *key);

/* ---- which table this is (dynamodb_identity.c) ---- */
enum belay_code ddb_identity(struct belay_store *base, char out_id[BELAY_STORE_ID_SIZE],
                             struct belay_error *err);

enum belay_code ddb_scan(struct belay_store *base, const struct belay_scan *scan, belay_record_fn fn,
                         void *context, struct belay_error *err);

#endif
