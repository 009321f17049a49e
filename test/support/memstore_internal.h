/* Shared by memstore.c (the port), memstore_commit.c (conditions and writes) and memstore_items.c. */
#ifndef SUPPORT_MEMSTORE_INTERNAL_H
#define SUPPORT_MEMSTORE_INTERNAL_H

#include <pthread.h>

#include "support/memstore.h"

struct used_id {
    char *key;
    char *lock_id;
};

struct wake_count {
    char *lock_id; /* NULL: all events */
    uint32_t count;
};

struct mem_item {
    char *space;
    struct belay_item item;
};

struct memstore_data {
    struct belay_store_ops ops;
    pthread_mutex_t mutex;
    int64_t (*now_ms)(void *ctx);
    int64_t (*unix_ms)(void *ctx);
    void *ctx;
    struct belay_store_capabilities capabilities;
    bool knows_used_ids;

    struct belay_record *records; /* by key */
    size_t n_records;
    uint64_t last_revision;
    uint64_t last_token;
    uint64_t last_seq;
    struct belay_event *events; /* all strings in them are owned */
    size_t n_events;
    size_t cap_events;
    struct used_id *used;
    size_t n_used;
    char **dead;
    size_t n_dead;
    struct wake_count *wakes;
    size_t n_wakes;
    struct mem_item *items; /* by space and name */
    size_t n_items;
    /* With the mutex held. NULL: there are no freezes. */
    enum belay_code (*check_freezes)(const struct memstore_data *data, const struct belay_batch *batch,
                                     struct belay_commit *out, struct belay_error *err);
};

struct memstore_data *mem_data(struct belay_store *store);

/* Memory that cannot be had ends the program. */
void *mem_must(void *memory);
void *mem_grow(void *array, size_t n, size_t size);
char *mem_copy(const char *text); /* NULL becomes "" */
char *mem_copy_or_null(const char *text);

/* NULL: there is no such record. */
struct belay_record *mem_find(const struct memstore_data *data, const char *key);
/* The fields of a record that is not there. */
void mem_make_absent(struct belay_record *record, const char *key);
/* The record of `key` as it is, for the caller to keep. */
void mem_read(const struct memstore_data *data, const char *key, struct belay_record *out);
void mem_wake(struct memstore_data *data, const char *lock_id);
void mem_free_event(struct belay_event *event);

/* With the mutex held. */
enum belay_code mem_commit(struct memstore_data *data, const struct belay_batch *batch,
                           struct belay_commit *out, struct belay_error *err);

#endif
