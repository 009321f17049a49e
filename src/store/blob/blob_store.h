/* Shared by the blob stores. */
#ifndef STORE_BLOB_BLOB_STORE_H
#define STORE_BLOB_BLOB_STORE_H

#include "belay/blob.h"

/* Calls the store's on_progress, if there is one. */
void blob_progress(const struct belay_blob_store *store, size_t done, size_t total);

/* Checks the name of a blob, and the size of its new content. */
enum belay_code blob_put_check(const char *name, size_t len, struct belay_error *err);

/* Entries, with names of their own, until they are reported. */
struct blob_list {
    struct belay_blob_entry *entries; /* owned, and so are the names */
    size_t n;
    size_t cap;
};
bool blob_list_add(struct blob_list *list, struct belay_blob_entry entry); /* false: no memory */
/* Reports them in byte order. False: fn returned false. */
bool blob_list_report(struct blob_list *list, belay_blob_fn fn, void *context);
void blob_list_release(struct blob_list *list);

#endif
