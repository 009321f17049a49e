/*
 * Blobs as files below one directory, for any number of processes.
 *
 * A file is replaced by renaming another over it, which was synced before; a
 * reader sees the old content or the new. Which of two writers wins is decided
 * under a lock on the file .belay-lock beside it, which also remembers the tag of
 * what was written last, so that a large file need not be read again to compare.
 * Symbolic links below the directory are not followed.
 */
#ifndef STORE_FILE_FILE_BLOB_H
#define STORE_FILE_FILE_BLOB_H

#include "belay/blob.h"

/* What follows "file:" (base/store_url.h; there are no parameters). The directory is made when something is first put. *out_url (may be NULL) has its absolute path; the caller frees it. */
enum belay_code file_blob_open(const char *dir_and_params, struct belay_blob_store **out_store,
                               char **out_url, struct belay_error *err);

#endif
