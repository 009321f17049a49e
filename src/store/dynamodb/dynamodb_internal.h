/* Internals of the DynamoDB store; for src/store/dynamodb/ only. */
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
#define DDB_KEEP_MS (INT64_C(25) * 3600 * 1000) /* L2 needs 24 h; one more hour for clocks and rounding */

/* ---- time (dynamodb_clock.c) --------------------------------------------- */

/*
 * Bounds of the service's clock. The Date of an answer says that the service's clock was at
 * least that, and less than a second more. The local boot clock advances both bounds, and they
 * widen with age by the possible drift of a boot clock.
 */
struct ddb_clock {
    pthread_mutex_t mutex;
    int64_t anchor_unix_ms; /* the local wall clock, read once and advanced by the boot clock */
    int64_t anchor_boot_ms;
    bool has_date; /* there are bounds */
    int64_t low_ms;
    int64_t high_ms;
    int64_t at_boot_ms; /* when the last answer arrived, to which the bounds belong */
};

struct ddb_store;

void ddb_clock_init(struct ddb_store *store);
void ddb_clock_release(struct ddb_store *store);
int64_t ddb_boot_ms(const struct ddb_store *store);
/* Called for an answer with this Date to a request sent at `sent_boot_ms`. */
void ddb_clock_set_date(struct ddb_store *store, int64_t date_unix_ms, int64_t sent_boot_ms);
/*
 * Whether a deadline can be written without asking for the time first. Not before the first
 * answer, and not when the last answer is so old that the boot clock may have drifted by half
 * of max_clock_skew.
 */
bool ddb_clock_is_known(struct ddb_store *store);
bool ddb_clock_has_date(struct ddb_store *store);
/* The time to write: the local clock, moved into the bounds. */
int64_t ddb_clock_write_ms(struct ddb_store *store);
/* The time to judge other clients' leases by: never later than the service's clock. */
int64_t ddb_clock_judge_ms(struct ddb_store *store);
/* The earliest and the latest that the time can be, by the service's clock and the local one. */
void ddb_clock_bounds(struct ddb_store *store, int64_t *out_low_ms, int64_t *out_high_ms);
/* How far the local clock is ahead of the service's, at least and at most. False: no answer had a Date. */
bool ddb_clock_ahead(struct ddb_store *store, int64_t *out_least_ms, int64_t *out_most_ms);
/* How far the local clock is certainly wrong, positive if it is ahead; 0: not more than allowed. */
int64_t ddb_clock_skew_ms(struct ddb_store *store);
enum belay_code ddb_clock_say_skew(const struct ddb_store *store, int64_t skew_ms, struct belay_error *err);

/* ---- what was last seen of a key (dynamodb_seen.c) -------------------------- */

/*
 * All items that make up a record. In a layout without a revision, "unchanged since revision
 * R" means that the items are equal to those that were read, so they are kept.
 */
struct ddb_items {
    json_t *item;     /* owned; NULL: absent */
    json_t *queue;    /* owned; NULL: absent; equal to `item` if the layout has one item */
    json_t *fence;    /* owned; the counter in the fence table; NULL: absent */
    bool queue_known; /* the queue was read */
};
void ddb_items_release(struct ddb_items *items);

enum { SEEN_MAX = 128 };
struct ddb_seen {
    pthread_mutex_t mutex;
    struct ddb_seen_entry {
        char *key; /* owned */
        struct ddb_items items;
        uint64_t revision;
        int64_t free_since_ms; /* 0: held */
    } entries[SEEN_MAX];
    size_t next;
};
void ddb_seen_init(struct ddb_seen *seen);
void ddb_seen_release(struct ddb_seen *seen);
/*
 * Keeps the items. Returns since when this handle has seen the lock free, 0 if it is held: in
 * a layout without a time of release, the queue goes by that.
 */
int64_t ddb_seen_put(struct ddb_seen *seen, const char *key, const struct ddb_items *items,
                     const struct belay_record *record, int64_t now_ms);
/* The items at that revision. The caller releases them. */
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
    bool freezes; /* a commit that acquires reads the freezes first */
};

/* "TABLE?layout=NAME&region=R...", with '&' or ','. */
enum belay_code ddb_params_parse(const char *text, struct ddb_params *out_params, struct belay_error *err);
void ddb_params_release(struct ddb_params *params);
char *ddb_params_url(const struct ddb_params *params); /* in full; the caller frees it */

/* A lease, and since when it is unchanged, on the local boot clock. */
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
    _Atomic uint64_t requests;                  /* how many were sent; for tests */
    atomic_bool returns_items;                  /* set when a refusal returned the item */
    bool is_for_admin; /* of 'belay table' and 'belay doctor': few attempts, short timeouts */
    void (*on_warning)(void *context, const char *text);
    void *warn_context;
};

static inline struct ddb_store *ddb_of(struct belay_store *store)
{
    return (struct ddb_store *)store;
}

/* ---- requests (dynamodb_wire.c) ------------------------------------------- */

#define DDB_TOO_LARGE                                                                                        \
    "its item would be larger than the 400 KB that DynamoDB allows: it has too many holders or waiters, or " \
    "they have too much metadata"
/* Whether this message of the service says so. */
bool ddb_says_too_large(const char *message);

struct ddb_answer {
    json_t *body;        /* owned; NULL if there was none that could be read */
    char *error_code;    /* owned; NULL after success */
    char *error_message; /* owned; or NULL */
    bool is_missing;     /* no answer came */
};
void ddb_answer_release(struct ddb_answer *answer);

/*
 * Sends one request and reads the Date of the answer. Takes over `request`; NULL means no
 * memory. `timeout_ms` 0: the usual one. Returns the code of aws_call().
 */
enum belay_code ddb_send(struct ddb_store *store, const char *operation, json_t *request, int64_t timeout_ms,
                         struct ddb_answer *out, struct belay_error *err);
/* The same with advice in the error where the user can act. After BELAY_OK there is a body. */
enum belay_code ddb_call(struct ddb_store *store, const char *operation, json_t *request,
                         struct ddb_answer *out, struct belay_error *err);
/* The same with a timeout; 0: the usual one. */
enum belay_code ddb_call_within(struct ddb_store *store, const char *operation, json_t *request,
                                int64_t timeout_ms, struct ddb_answer *out, struct belay_error *err);

/*
 * Asks for the service's time with a request that the service refuses: it is not signed, so it
 * costs nothing, and the refusal has a Date.
 */
enum belay_code ddb_ask_date(struct ddb_store *store, int64_t timeout_ms, struct belay_error *err);

/* {"PK": {"S": ...}, ...} of a lock's item, or of the item of its queue. NULL: no memory. */
json_t *ddb_item_key(const struct layout *layout, const char *key);
json_t *ddb_queue_key(const struct layout *layout, const char *key);
json_t *ddb_fence_key(const struct ddb_store *store, const char *key);

/* The key of an item, and the item. */
struct ddb_place {
    const char *table; /* borrowed */
    json_t *key;       /* owned; NULL: no memory */
    json_t *item;      /* owned; NULL: absent */
};
/* Consistent reads: one GetItem, or one BatchGetItem. */
enum belay_code ddb_read(struct ddb_store *store, struct ddb_place *places, size_t n,
                         struct belay_error *err);
void ddb_places_release(struct ddb_place *places, size_t n);

/* ---- items to records (dynamodb_read.c, dynamodb_foreign.c) ------------------ */

/* Reads all items of these keys. */
enum belay_code ddb_read_locks(struct ddb_store *store, const char *const *keys, size_t n,
                               struct ddb_items *out_items, struct belay_error *err);
enum belay_code ddb_record(struct ddb_store *store, const char *key, const struct ddb_items *items,
                           struct belay_record *out_record, struct belay_error *err);
/* The attributes of one holder, in an item or in an entry of its holders. */
void ddb_read_holder(const struct layout *layout, const json_t *item, struct belay_record *record, bool *ok);
/* Adds an entry to the record's metadata. */
void ddb_add_meta(struct belay_record *record, const char *name, const char *value, bool *ok);
/* A hash of an item's content, whatever the order of its attributes; `hash` is FNV_INIT or that of another item. */
uint64_t ddb_hash_item(const json_t *item, uint64_t hash);

/* The holder in an item of another program. */
void ddb_foreign_holder(struct ddb_store *store, const char *key, const json_t *item,
                        struct belay_record *record, bool *ok);
/* Whether the id was made for a holder without one. */
bool ddb_is_foreign_id(const char *lock_id);
/* Parses a time in any of the forms that programs write. */
bool ddb_parse_time(const char *text, int64_t *out_unix_ms);
json_t *ddb_time_value(enum layout_format format, int64_t unix_ms, bool round_up);

/* The ttl of an intent, from when it was written. */
int64_t ddb_intent_ttl_ms(const json_t *queue, const char *lock_id);

/* ---- trusting no clock (dynamodb_observe.c) ---------------------------------- */

/* Sets the expiries of the record by local observation. */
void ddb_observe(struct ddb_store *store, const json_t *queue, struct belay_record *record);

/* ---- writes to expressions (dynamodb_condition.c, dynamodb_write.c, dynamodb_queue.c) ---------------- */

/* Attributes of the queue, in the lock's item or in an item of its own. */
#define QUEUE_WAITING "waiting" /* SS: ids of the tickets */
#define QUEUE_INTENTS "intents" /* SS: ids of the intents */
#define QUEUE_TICKET "ticket#"  /* M, one for each */
#define QUEUE_SEQ "seq#"        /* N, one for each ticket */
#define QUEUE_INTENT "intent#"  /* M, one for each */
#define QUEUE_LAST_SEQ "last_seq"
#define QUEUE_REVISION "revision"
/* The attribute that is named after an id, such as "ticket#ID". Returns `out`. */
enum { ID_NAME_SIZE = 512 };
char *ddb_id_name(char out[ID_NAME_SIZE], const char *prefix, const char *id);

#define FENCE_KEY "lock_key" /* of the counters in the fence table: TABLE#KEY */

/* Whether the write's condition names a holder. */
static inline bool ddb_names_holder(const struct belay_write *write)
{
    return write->condition == BELAY_IF_HELD_BY || write->condition == BELAY_IF_LIVE_BY;
}
/* Whether the write creates a record if there is none. */
bool ddb_creates(const struct belay_write *write);
/* The same of the lock's item. */
bool ddb_creates_item(const struct ddb_store *store, const struct belay_write *write);
/* Whether the write's condition holds without a record. */
bool ddb_holds_if_absent(const struct belay_write *write);

/* Adds the condition that the attribute is as in this item: it has the same value, or is absent. NULL adds nothing. */
void ddb_require_as_seen(const char *attribute, const json_t *item, struct expr *expr);
/* `seen`: the items that the condition refers to, or NULL. */
void ddb_write_condition(const struct ddb_store *store, const struct belay_write *write,
                         const struct ddb_items *seen, int64_t now_ms, struct expr *expr);
/* `seen`: the item, if the condition is that it is unchanged and the write needs it; or NULL. */
void ddb_write_fields(const struct ddb_store *store, const struct belay_write *write, const json_t *seen,
                      int64_t now_ms, struct expr *expr);
/* The fields of a holder, without those of the whole record: lock id, token, status. */
void ddb_write_holder(const struct ddb_store *store, const struct belay_write *write, int64_t now_ms,
                      struct expr *expr);
/* How the holding ended, and whose it was. */
void ddb_write_outcome(const struct ddb_store *store, const struct belay_write *write, struct expr *expr);
/* The same for a queue in an item of its own. */
void ddb_queue_condition(const struct belay_write *write, const struct ddb_items *seen, struct expr *expr);
bool ddb_changes_queue(const struct belay_write *write);
bool ddb_ids_contain(const char *const *ids, size_t n, const char *id);
/* `seen`: the item with the queue, if the condition is that it is unchanged; or NULL. */
void ddb_write_queue(const struct belay_write *write, const json_t *seen, int64_t now_ms, struct expr *expr);
void ddb_write_queue_revision(struct expr *expr);

/* ---- several holders, in belay's own layout (dynamodb_holders.c, dynamodb_holders_read.c) ---- */

/*
 * The attributes of a lock that is shared or has slots. Its `lock_id` is HOLDERS_SEVERAL,
 * which is not a lock id: so no write about an exclusive holder applies to it, and an
 * exclusive holder replaces it. Without it, these attributes mean nothing.
 */
#define HOLDERS_SEVERAL "several holders"
#define HOLDERS_MAP "holders"       /* M: by lock id, an M with the attributes of a holder */
#define HOLDERS_MARKS "marks"       /* L: for each holder, the status that the lock has while it holds it */
#define HOLDERS_MODE "mode"         /* S */
#define HOLDERS_SLOTS "slots"       /* N */
#define HOLDERS_FIRST "first_token" /* N: of the holder whose entry has none */
#define HOLDERS_KEEP "keep_s"       /* N: how long the item is kept after each renewal */
#define HOLDERS_LAST "last_holder"  /* M: the entry of the last release */
#define HOLDERS_LAST_ID "last_holder_id"
#define HOLDERS_RELEASED                                                                                     \
    "released_id_%zu" /* S, from 2 to BELAY_RELEASED_MAX: released before FIELD_RELEASED_ID */

/* Whether the write is about holders that only the item shows: it must be read first. */
bool ddb_holders_need_item(const struct belay_write *write);
/* Whether the item says that the lock is, or was last, held by several. */
bool ddb_is_several(const struct layout *layout, const json_t *item);
/* The entry of a holder; NULL: it has none. */
const json_t *ddb_holder_entry(const json_t *item, const char *lock_id);
void ddb_holders_condition(const struct ddb_store *store, const struct belay_write *write, const json_t *seen,
                           int64_t now_ms, struct expr *expr);
/* Whether the write was refused only because it renews for longer than any holder before it. */
bool ddb_holders_must_grow(const struct ddb_store *store, const struct belay_write *write,
                           const json_t *item);
void ddb_write_co_holder(const struct ddb_store *store, const struct belay_write *write, const json_t *seen,
                         int64_t now_ms, struct expr *expr);
void ddb_write_drops(const struct ddb_store *store, const struct belay_write *write, const json_t *seen,
                     struct expr *expr);
/* The lock is exclusive from now on. */
void ddb_holders_clear(struct expr *expr);
/* For a release of one of several: the ids that were released before it. */
void ddb_holders_shift_released(const struct layout *layout, struct expr *expr);
/* Renewals keep the item for as long as an intent may last. */
void ddb_holders_keep_long(struct expr *expr);

/* The mode that `mode` and `slots` say, in an item or a ticket; exclusive if there is none. */
enum belay_mode ddb_read_mode(const json_t *map, int *out_slots);
void ddb_read_released(const struct layout *layout, const json_t *item, struct belay_record *record,
                       bool *ok);
void ddb_read_holders(const struct ddb_store *store, const json_t *item, struct belay_record *record,
                      bool *ok);
struct belay_holder *ddb_holder_find(const struct belay_record *record, const char *lock_id);
/* The record's own fields repeat the holder whose lease ends last. */
void ddb_holders_repeat(struct belay_record *record, bool *ok);
/* Removes the holder from the record; the record keeps the last one, not held. */
void ddb_holders_end(struct belay_record *record, const char *lock_id, bool *ok);

/* ---- reading and committing (dynamodb_read.c, dynamodb_commit.c, dynamodb_scan.c) ------------------ */

enum belay_code ddb_get(struct belay_store *base, const char *const *keys, size_t n,
                        struct belay_record *out_records, int64_t *out_now_ms, struct belay_error *err);
enum belay_code ddb_commit(struct belay_store *base, const struct belay_batch *batch,
                           struct belay_commit *out, struct belay_error *err);
enum belay_code ddb_scan(struct belay_store *base, const struct belay_scan *scan, belay_record_fn fn,
                         void *context, struct belay_error *err);
/* Calls fn for each item of the table. Every page, or an error: a lock on a missing page may be held. */
typedef enum belay_code (*ddb_item_fn)(struct ddb_store *store, json_t *item, void *context,
                                       struct belay_error *err);
enum belay_code ddb_each_item(struct ddb_store *store, ddb_item_fn fn, void *context,
                              struct belay_error *err);

/* ---- items beside the locks (dynamodb_items.c, dynamodb_appregistry.c) --------------------------- */

enum belay_code ddb_item_get(struct belay_store *base, const char *space, const char *name,
                             struct belay_item *out_item, struct belay_error *err);
enum belay_code ddb_item_put(struct belay_store *base, const struct belay_item_write *write,
                             uint64_t *out_version, struct belay_error *err);
enum belay_code ddb_item_list(struct belay_store *base, const char *space, belay_item_fn fn, void *context,
                              struct belay_error *err);
/* Whether this is the key of such an item, and not of a lock. */
bool ddb_is_item(const struct layout *layout, const char *key);

/* A row of document 003 as the registry's JSON, and its version: belay's, or a hash of the row. NULL: no memory. */
char *ddb_row_to_app(const json_t *row, uint64_t *out_version);
/* Sets the row's attributes. False: no memory, or not such JSON. */
bool ddb_app_to_row(const char *value, uint64_t version, struct expr *expr);
/* Adds the condition that the row is unchanged. */
void ddb_row_condition(const json_t *row, struct expr *expr);

/* ---- which table this is (dynamodb_identity.c) ----------------------------------------------------- */

enum belay_code ddb_identity(struct belay_store *base, char out_id[BELAY_STORE_ID_SIZE],
                             struct belay_error *err);

#endif
