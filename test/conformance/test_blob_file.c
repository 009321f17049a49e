/* The conformance suite of blobs on files. The threads of its races have handles of their own, as processes would. */
#include <stdio.h>
#include <stdlib.h>

#include "store/file/file_blob.h"
#include "support/blob_suite.h"

static char directory[64];

static struct belay_blob_store *open_store(void *ctx)
{
    struct belay_blob_store *store = NULL;
    char path[128];

    (void)ctx;
    (void)snprintf(path, sizeof path, "%s/made/by/the/store", directory);
    return file_blob_open(path, &store, NULL, NULL) == BELAY_OK ? store : NULL;
}

static bool begin(struct blob_fixture *out_fixture)
{
    (void)snprintf(directory, sizeof directory, "/tmp/belay-blob-XXXXXX");
    *out_fixture = (struct blob_fixture){ .open = open_store };
    return mkdtemp(directory) != NULL;
}

static void end(void)
{
    char command[128];

    (void)snprintf(command, sizeof command, "rm -rf %s", directory);
    (void)!system(command);
}

int main(void)
{
    const struct blob_program program = { "file", begin, end };

    return blob_suite_main(&program);
}
