#include "network/pg_module.h"

#include "store/postgresql/postgresql_store.h"
#include "version.h"

const struct pg_module belay_pg_entry = {
    .abi = PG_MODULE_ABI,
    .version = BELAY_VERSION,
    .open = postgresql_store_open,
    .schema_create = postgresql_schema_create,
    .schema_describe = postgresql_schema_describe,
    .open_blobs = postgresql_blob_open,
    .doctor = postgresql_doctor,
};
