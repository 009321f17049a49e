/* What belay-otlp.so exports. */
#ifndef TELEMETRY_OTLP_MODULE_H
#define TELEMETRY_OTLP_MODULE_H

#include <stddef.h>

/* POST a JSON body. `headers` is "name=value,name=value". Returns the status, 0 if there was no answer. */
typedef int (*otlp_post_fn)(const char *url, const char *headers, const char *body, size_t len,
                            long timeout_ms);

#endif
