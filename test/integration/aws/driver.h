/* Shared by the two halves of aws_driver. */
#ifndef NET_DRIVER_H
#define NET_DRIVER_H

#include <jansson.h>

#include "http_client/http.h"

/* The text under `key`, or NULL. */
const char *text_of(const json_t *object, const char *key);
/* [["name", "value"], ...]; the array is the caller's to free, the texts are the JSON's. */
struct http_client_header *headers_of(const json_t *object, size_t *out_n);

/* {"do": "sign"}: our signature for one request. */
json_t *do_sign(const json_t *command);

#endif
