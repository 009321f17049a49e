/* The dashboard's files, which cmake/embed.cmake makes part of the module. */
#ifndef SERVER_DASHBOARD_ASSETS_H
#define SERVER_DASHBOARD_ASSETS_H

#include <stddef.h>

struct asset {
    const char *name;
    const char *type;
    const char *etag; /* of the uncompressed file, in quotes */
    const unsigned char *data;
    size_t len;
    const unsigned char *gzip; /* the same, compressed */
    size_t gzip_len;
};

extern const struct asset assets[];
extern const size_t n_assets;

#endif
