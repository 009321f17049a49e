/* The interface of belay-otlp.so. */
#ifndef TELEMETRY_OTLP_MODULE_H
#define TELEMETRY_OTLP_MODULE_H

#include <stdatomic.h>
#include <stddef.h>

struct otlp_post {
    const char *url;
    const char *headers; /* "name=value,name=value" */
    const char *ca_file; /* certificates to trust, in PEM; NULL: the system's */
    const char *body;    /* JSON */
    size_t len;
    long timeout_ms;
    const atomic_bool *stop; /* true: do not wait for the answer any longer */
};

/* Returns the HTTP status, 0 if there was no answer. */
typedef int (*otlp_post_fn)(const struct otlp_post *post);

#endif
