/* Schemas for /openapi.json. */
#ifndef SERVER_API_OPENAPI_SCHEMAS_H
#define SERVER_API_OPENAPI_SCHEMAS_H

#include <jansson.h>

/* All schemas that are in no table of fields, by their names. */
json_t *openapi_schemas(void);
/* {"$ref": the schema of this name} */
json_t *openapi_ref(const char *name);

#endif
