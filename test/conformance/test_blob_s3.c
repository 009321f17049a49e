/*
 * The conformance suite of blobs on S3, against a server that honours conditions
 * (test/s3/server.mjs), and then with answers that get lost. Every case has a
 * prefix of its own.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/s3/s3_blob.h"
#include "support/blob_suite.h"
#include "support/server.h"

static struct server server;
static int number;

static struct belay_blob_store *open_store(void *ctx)
{
    struct belay_blob_store *store = NULL;
    struct belay_error err = BELAY_ERROR_INIT;
    char url[160];

    (void)ctx;
    (void)snprintf(url, sizeof url, "states/case %d+ü?region=eu-west-1&endpoint=http://127.0.0.1:%d", number,
                   server.port);
    if (s3_blob_open(url, &store, NULL, &err) != BELAY_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        belay_error_release(&err);
    }
    return store;
}

static bool begin(struct blob_fixture *out_fixture)
{
    number++;
    *out_fixture = (struct blob_fixture){ .open = open_store };
    return true;
}

static void end(void)
{
}

int main(void)
{
    const struct blob_program program = { "s3", begin, end };
    int failed = 1;

    (void)setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE", 1);
    (void)setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", 1);
    (void)setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    (void)setenv("HOME", "/nonexistent", 1);
    (void)unsetenv("XDG_CACHE_HOME");
    if (server_start(&server, BELAY_SOURCE_DIR "/tools/s3-server", "conditions")) {
        failed = blob_suite_main(&program);
    }
    server_stop(&server);
    return failed;
}
