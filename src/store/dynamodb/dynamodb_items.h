/* Items beside the locks; for src/store/dynamodb/ only. */
#ifndef STORE_DYNAMODB_DYNAMODB_ITEMS_H
#define STORE_DYNAMODB_DYNAMODB_ITEMS_H

#include "store/dynamodb/dynamodb_internal.h"

enum ddb_form {
    DDB_FORM_NONE, /* the layout has no place for items */
    DDB_FORM_JSON, /* `value` and `version` */
    DDB_FORM_ROW   /* a row of document 003's table of applications */
};

/* ---- dynamodb_appregistry.c ---- */

/*
 * The row as the registry's JSON, and its version: belay's, or a hash of what another program
 * wrote. NULL: no memory.
 */
char *ddb_row_to_app(const json_t *row, uint64_t *out_version);
/* Sets the row's attributes. False: no memory, or not such JSON. */
bool ddb_app_to_row(const char *value, uint64_t version, struct expr *expr);
/* Adds the condition that the row is unchanged. */
void ddb_row_condition(const json_t *row, struct expr *expr);

#endif
