/* The dashboard's files, made part of the module by cmake/embed.cmake. */
#ifndef SERVER_DASHBOARD_ASSETS_H
#define SERVER_DASHBOARD_ASSETS_H

#include <stddef.h>

struct asset {
    const char *name;
    const char *type;
    const char *etag; /* of what is sent as it is, in quotes */
    const unsigned char *data;
    size_t len;
    const unsigned char *gzip; /* the same, compressed */
    size_t gzip_len;
};

extern const struct asset assets[];
extern const size_t n_assets;

#endif
