/*
 * A layout says how a lock is stored in an item: what its key consists of, and which attribute
 * of which type holds which field of the record. It is data: the built-in layouts are a table,
 * others come from the configuration.
 */
#ifndef STORE_DYNAMODB_DYNAMODB_LAYOUT_H
#define STORE_DYNAMODB_DYNAMODB_LAYOUT_H

#include "belay/store.h"

enum layout_field {
    FIELD_STATUS,
    FIELD_LOCK_ID,
    FIELD_RELEASED_ID,
    FIELD_TOKEN,
    FIELD_OWNER,
    FIELD_OWNER_NAME,
    FIELD_ACQUIRED_BY, /* the credential; layouts of other programs have no place for it */
    FIELD_OUTCOME,
    FIELD_OUTLIVES,
    FIELD_STALE_NOTED,
    FIELD_LEASE,
    FIELD_HEARTBEAT,
    FIELD_STALE_AFTER,
    FIELD_EXPIRES,
    FIELD_BEAT,
    FIELD_FREED,
    FIELD_LOCKED_AT,
    FIELD_METADATA,
    FIELD_REVISION,
    FIELD_TTL, /* DynamoDB removes old items by it; not the expiry */
    N_FIELDS
};

enum layout_format {
    FORMAT_TEXT,    /* S */
    FORMAT_NUMBER,  /* N */
    FORMAT_SWITCH,  /* BOOL */
    FORMAT_MAP,     /* M of S */
    FORMAT_SECONDS, /* N, since 1970 */
    FORMAT_MILLIS,  /* N, since 1970 */
    FORMAT_RFC3339, /* S, "2024-11-05T14:32:15Z" */
    FORMAT_ISO_MS   /* S, "2024-11-05T14:32:15.123Z" */
};

struct layout_attribute {
    const char *name; /* NULL: the layout has no place for it */
    enum layout_format format;
};

/* An attribute of the key: its value is `before`, the lock's key, `after`; or `before` alone. */
struct layout_key {
    const char *name;
    const char *before;
    const char *after;
    bool has_key;
};

/* An attribute with a constant value, or taken from the metadata or from a part of the key. */
struct layout_extra {
    const char *name;
    const char *value; /* constant; may be "{key}" */
    const char *meta;  /* the metadata's name; a part of the key (has_key_parts) if there is no such entry */
};

enum { LAYOUT_KEYS_MAX = 2, LAYOUT_EXTRAS_MAX = 8 };

struct layout {
    const char *name;
    struct layout_key keys[LAYOUT_KEYS_MAX];
    size_t n_keys;
    /*
     * Tickets and intents are in an item of their own, whose first key is this and the lock's
     * key. NULL: they are in the lock's item.
     */
    const char *queue_prefix;
    struct layout_attribute fields[N_FIELDS];
    struct layout_extra extras[LAYOUT_EXTRAS_MAX];
    size_t n_extras;
    bool has_key_parts;    /* the key is COMMAND-COMPONENT-ENVIRONMENT */
    const char *held_word; /* in FIELD_STATUS; with any other word the lock is not held */
    const char *completed_word;
    const char *failed_word;
    const char *forced_word;
    bool release_deletes;
    bool release_expires; /* a release sets the expiry to the past, for programs that check only that */
    bool takes_whole_key; /* a key with the item's prefix is taken as it is: LOCK#DB#i-0 is i-0 */
    bool read_only;       /* locks can only be shown and forced */
    int64_t heartbeat_ms; /* of holders that do not store it; 0: none */
    int64_t stale_after_ms;
    const char *info;            /* an attribute with JSON, as Terraform writes it; NULL: none */
    const char *lease_text;      /* an attribute with the lease's length as text; NULL: none */
    const char *released_flag;   /* an attribute that exists once the lock is released; NULL: none */
    const char *owner_name_meta; /* a metadata entry that overrides the owner's name; NULL: none */
};

const struct layout *layout_builtin(const char *name); /* NULL: unknown */
/* "belay, chatops, ..." */
const char *layout_builtin_names(void);

/* A layout from the configuration: `layouts: NAME: {...}`. */
struct layout_made {
    struct layout layout;
    char **
        texts; /* owned; strings of the layout that are parts of settings. Others are borrowed from the settings */
    size_t n_texts;
};
typedef const char *(*layout_setting_fn)(const void *settings, const char *name);

/* BELAY_NOT_FOUND if there is no layout of that name. */
enum belay_code layout_make(const char *name, layout_setting_fn setting, const void *settings,
                            struct layout_made *out_made, struct belay_error *err);
void layout_made_release(struct layout_made *made);

/* Whether this status means free. An unknown word means held. */
bool layout_word_is_free(const struct layout *layout, const char *word);

/* The part `command`, `component` or `environment` of a key; NULL: the layout's keys have no such part. The caller
 * frees it. */
char *layout_key_part(const struct layout *layout, const char *key, const char *part);

/* The lock's key without the layout's prefix. */
const char *layout_short_key(const struct layout *layout, const char *key);

/* Whether other programs write these items too. */
static inline bool layout_is_foreign(const struct layout *layout)
{
    return layout->queue_prefix != NULL;
}

static inline const char *layout_name_of(const struct layout *layout, enum layout_field field)
{
    return layout->fields[field].name;
}

#endif
