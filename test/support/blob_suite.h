/*
 * The conformance suite of the blob port (include/belay/blob.h): a store of blobs
 * is one of belay's if all these cases pass on it. As with support/suite.h, a case
 * reports instead of aborting, so that it can be run on stores broken on purpose.
 */
#ifndef SUPPORT_BLOB_SUITE_H
#define SUPPORT_BLOB_SUITE_H

#include "belay/blob.h"

struct blob_fixture {
    /* Another handle on the same, at first empty, data; the suite closes it. NULL: it cannot be opened. */
    struct belay_blob_store *(*open)(void *ctx);
    void *ctx;
    size_t large; /* bytes of the largest blob to try; 0: 3 MB */
};

size_t blob_suite_count(void);
const char *blob_suite_name(size_t i);
bool blob_suite_run(size_t i, const struct blob_fixture *fixture, char *why, size_t why_size);

/* A cmocka program that runs it all, each case on a fresh fixture. */
struct blob_program {
    const char *name;
    bool (*begin)(struct blob_fixture *out_fixture);
    void (*end)(void);
};
int blob_suite_main(const struct blob_program *program);

#endif
