/* The texts of /openapi.json that nothing else needs. */
#ifndef SERVER_API_OPENAPI_TEXTS_H
#define SERVER_API_OPENAPI_TEXTS_H

#include <stddef.h>

struct operation_text {
    const char *operation; /* method and path, as in the table of routes */
    const char *id;        /* unique */
    const char *description;
    const char *example; /* of the body, as JSON; NULL: none */
};

struct operation_tag {
    const char *prefix; /* of the path */
    const char *name;
    const char *description; /* NULL: of a further prefix of the same tag */
};

const struct operation_text *openapi_text(const char *method, const char *path);
const char *openapi_tag(const char *path);
const struct operation_tag *openapi_tags(size_t *out_n);

#endif
