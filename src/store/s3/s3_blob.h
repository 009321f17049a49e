/*
 * Blobs as objects of an S3 bucket, by conditional writes. A server that ignores conditions is
 * refused: two writers would both succeed. docs/stores/s3.md is the user's manual.
 */
#ifndef STORE_S3_S3_BLOB_H
#define STORE_S3_S3_BLOB_H

#include "belay/blob.h"

/*
 * `bucket_and_params` is what follows "s3://": BUCKET/PREFIX?NAME=VALUE&NAME=VALUE
 * (or with ','). Sends nothing. *out_url (may be NULL) is the same in full; the
 * caller frees it.
 */
enum belay_code s3_blob_open(const char *bucket_and_params, struct belay_blob_store **out_store,
                             char **out_url, struct belay_error *err);

#endif
