/*
 * belay-pg.so: the code that needs libpq. It is found, checked and never closed as belay-net.so is
 * (net_module.h). libbelay.a contains this code as well, for programs that link libpq and refer to
 * belay_pg_entry.
 */
#ifndef NETWORK_PG_MODULE_H
#define NETWORK_PG_MODULE_H

#include <stdint.h>

#include "belay.h"

struct belay_blob_store;
struct belay_store;
struct diagnostics;
struct postgresql_options;

#define PG_MODULE_FILE "belay-pg.so"
#define PG_MODULE_SYMBOL "belay_pg_entry"
enum { PG_MODULE_ABI = 2 }; /* increment it whenever this struct changes */

/* store/postgresql/postgresql_store.h */
struct pg_module {
    uint32_t abi;
    const char *version;
    enum belay_code (*open)(const char *url, const struct postgresql_options *options,
                            struct belay_store **out_store, char **out_url, struct belay_error *err);
    enum belay_code (*schema_create)(const char *url, const char *grant_to,
                                     struct belay_postgresql_schema *out_schema, struct belay_error *err);
    enum belay_code (*schema_describe)(const char *url, struct belay_postgresql_schema *out_schema,
                                       struct belay_error *err);
    enum belay_code (*open_blobs)(const char *url, const struct postgresql_options *options,
                                  struct belay_blob_store **out_store, char **out_url,
                                  struct belay_error *err);
    void (*doctor)(const char *url, const char *origin, struct diagnostics *diagnostics);
};

extern BELAY_API const struct pg_module belay_pg_entry;

#endif
