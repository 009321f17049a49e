/*
 * A list on standard output: a table for people, one name a line with --quiet,
 * {"locks":[...]} with --json. It is printed as it is read, however long it is.
 */
#ifndef CLI_CORE_CLI_LIST_H
#define CLI_CORE_CLI_LIST_H

#include "cli/core/cli.h"
#include "cli/output/text_table.h"

enum cli_list_form { CLI_LIST_TABLE, CLI_LIST_NAMES, CLI_LIST_JSON };

struct cli_list_kind {
    const char *name;                  /* of the array in JSON */
    const struct text_column *columns; /* NULL: the command prints for people itself */
    size_t n_columns;
    bool has_names; /* else --quiet changes nothing */
};

struct cli_list {
    const struct cli_list_kind *kind;  /* borrowed */
    const struct cli_context *context; /* borrowed */
    enum cli_list_form form;
    struct text_table *table; /* owned; NULL but for CLI_LIST_TABLE */
    size_t n;
    bool failed; /* for want of memory */
};

/* Returns CLI_OK, or the exit code for want of memory. After CLI_OK, cli_list_end() must follow. */
int cli_list_begin(struct cli_list *list, const struct cli_list_kind *kind,
                   const struct cli_context *context);

/* One entry is one of these, or a row of the table; then cli_list_next(). The line is freed; NULL fails. */
void cli_list_add_json(struct cli_list *list, char *line);
void cli_list_add_name(struct cli_list *list, const char *name);
/* Count the entry. False: there is no point in going on. */
bool cli_list_next(struct cli_list *list);

/* The end of the table, and what went wrong, if `code` says so. Returns the exit code. */
int cli_list_end(struct cli_list *list, enum belay_code code, const struct belay_error *err);
/* The end of the JSON, if it is JSON; `more` is what follows the array, such as ",\"a\":1". */
void cli_list_close(const struct cli_list *list, const char *more);

#endif
