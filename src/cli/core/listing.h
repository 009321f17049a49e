/*
 * A list on standard output: a table for people, one name a line with --quiet,
 * {"locks":[...]} with --json. It is printed as it is read, however long it is.
 */
#ifndef CLI_CORE_LISTING_H
#define CLI_CORE_LISTING_H

#include "cli/core/cli.h"
#include "cli/output/text_table.h"

enum listing_form { LISTING_TABLE, LISTING_NAMES, LISTING_JSON };

struct listing_kind {
    const char *name;                   /* of the array in JSON */
    const struct table_column *columns; /* NULL: the command prints for people itself */
    size_t n_columns;
    bool has_names; /* else --quiet changes nothing */
};

struct listing {
    const struct listing_kind *kind;   /* borrowed */
    const struct cli_context *context; /* borrowed */
    enum listing_form form;
    struct table *table; /* owned; NULL but for LISTING_TABLE */
    size_t n;
    bool failed; /* for want of memory */
};

/* Returns CLI_OK, or the exit code for want of memory. After CLI_OK, listing_end() must follow. */
int listing_begin(struct listing *listing, const struct listing_kind *kind,
                  const struct cli_context *context);

/* One entry is one of these, or a row of the table; then listing_next(). The line is freed; NULL fails. */
void listing_add_json(struct listing *listing, char *line);
void listing_add_name(struct listing *listing, const char *name);
/* Count the entry. False: there is no point in going on. */
bool listing_next(struct listing *listing);

/* The end of the table, and what went wrong, if `code` says so. Returns the exit code. */
int listing_end(struct listing *listing, enum belay_code code, const struct belay_error *err);
/* The end of the JSON, if it is JSON; `more` is what follows the array, such as ",\"a\":1". */
void listing_close(const struct listing *listing, const char *more);

#endif
