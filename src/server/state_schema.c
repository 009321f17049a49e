/* Schemas of states and their versions, for /openapi.json. */
#include "server/routes.h"

const char state_schemas[] =
    "{\"TerraformState\":{\"type\":\"object\",\"description\":\"whatever Terraform or OpenTofu wrote\"},"
    "\"TerraformLock\":{\"type\":\"object\",\"required\":[\"ID\"],\"properties\":{"
    "\"ID\":{\"type\":\"string\"},\"Operation\":{\"type\":\"string\"},\"Info\":{\"type\":\"string\"},"
    "\"Who\":{\"type\":\"string\"},\"Version\":{\"type\":\"string\"},\"Created\":{\"type\":\"string\"},"
    "\"Path\":{\"type\":\"string\"}}},"
    "\"Version\":{\"type\":\"object\",\"required\":[\"index\",\"name\",\"timestamp\",\"size\"],"
    "\"properties\":{\"index\":{\"type\":\"integer\",\"description\":\"1 is the newest\"},"
    "\"name\":{\"type\":\"string\"},\"timestamp\":{\"type\":\"string\",\"format\":\"date-time\"},"
    "\"size\":{\"type\":\"integer\"}}},"
    "\"VersionList\":{\"type\":\"object\",\"required\":[\"versions\"],\"properties\":{"
    "\"name\":{\"type\":\"string\"},\"versions\":{\"type\":\"array\","
    "\"items\":{\"$ref\":\"#/components/schemas/Version\"}}}},"
    "\"Restore\":{\"type\":\"object\",\"required\":[\"version\"],\"properties\":{"
    "\"version\":{\"type\":\"string\",\"description\":\"its name, index or timestamp, or latest\"}}}}";
