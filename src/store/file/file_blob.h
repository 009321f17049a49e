/*
 * Blobs as files below one directory, for any number of processes.
 * A file is replaced by renaming a synced file over it, so a reader sees the old content or
 * the new. A lock on the file .belay-lock beside it decides which of two writers wins; it also
 * records the tag of the last write, so that a large file need not be read for a comparison.
 * Symbolic links below the directory are not followed.
 */
#ifndef STORE_FILE_FILE_BLOB_H
#define STORE_FILE_FILE_BLOB_H

#include "belay/blob.h"

/*
 * `dir_and_params` follows "file:" (base/store_url.h; there are no parameters). The directory
 * is created with the first put. *out_url (may be NULL) has its absolute path; the caller
 * frees it.
 */
enum belay_code file_blob_open(const char *dir_and_params, struct belay_blob_store **out_store,
                               char **out_url, struct belay_error *err);

#endif
