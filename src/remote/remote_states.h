/* The deployment states of a belay server, over its HTTP API. */
#ifndef REMOTE_REMOTE_STATES_H
#define REMOTE_REMOTE_STATES_H

#include "belay/blob.h"
#include "remote/remote.h"
#include "state/state_server.h"

/*
 * Open the states of a server; sends nothing yet. *out_store reads them as blobs, *out_server
 * writes them. Closing *out_store closes both. The caller frees *out_url.
 */
enum belay_code remote_states_open(const char *url, const struct remote_options *options,
                                   struct belay_blob_store **out_store, struct states_server **out_server,
                                   char **out_url, struct belay_error *err);

#endif
