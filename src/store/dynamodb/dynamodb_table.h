/*
 * The table itself: making it, describing it, and finding out what is wrong with
 * it. belay.h says what `belay_dynamodb_table_create`, `belay_dynamodb_table_describe` and
 * `belay_doctor` promise; `table_and_params` is what follows "dynamodb:".
 */
#ifndef STORE_DYNAMODB_DYNAMODB_TABLE_H
#define STORE_DYNAMODB_DYNAMODB_TABLE_H

#include "belay.h"

struct dynamodb_options;
struct diagnostics;

/* options->store_url and options->config do not count: `store` and `table_and_params` were made of them. */
enum belay_code dynamodb_table_create(const char *table_and_params, const struct dynamodb_options *store,
                                      const struct belay_dynamodb_table_options *options,
                                      struct belay_dynamodb_table **out_table, struct belay_error *err);
enum belay_code dynamodb_table_describe(const char *table_and_params, const struct dynamodb_options *store,
                                        struct belay_dynamodb_table **out_table, struct belay_error *err);

void dynamodb_doctor(const char *table_and_params, const struct dynamodb_options *store,
                     struct diagnostics *diagnostics);

#endif
