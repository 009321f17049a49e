/*
 * A list on standard output: a table, one name per line with --quiet, or {"locks":[...]} with --json. Entries are
 * printed as they are read.
 */
#ifndef CLI_CORE_CLI_LIST_H
#define CLI_CORE_CLI_LIST_H

#include "cli/core/cli.h"
#include "cli/output/text_table.h"

enum cli_list_form { CLI_LIST_TABLE, CLI_LIST_NAMES, CLI_LIST_JSON };

struct cli_list_kind {
    const char *name;                  /* of the array in JSON */
    const struct text_column *columns; /* NULL: the command prints the text form itself */
    size_t n_columns;
    bool has_names; /* else --quiet has no effect */
};

struct cli_list {
    const struct cli_list_kind *kind;  /* borrowed */
    const struct cli_context *context; /* borrowed */
    enum cli_list_form form;
    struct text_table *table; /* owned; CLI_LIST_TABLE only */
    size_t n;
    bool failed; /* out of memory */
};

/* Returns CLI_OK, or an exit code if out of memory. After CLI_OK, call cli_list_end(). */
int cli_list_begin(struct cli_list *list, const struct cli_list_kind *kind,
                   const struct cli_context *context);

/* Add one entry with one of these, or as a row of the table; then call cli_list_next(). */
void cli_list_add_json(struct cli_list *list, char *line); /* frees the line; NULL: out of memory */
void cli_list_add_name(struct cli_list *list, const char *name);
/* Count the entry. False: stop, the output failed. */
bool cli_list_next(struct cli_list *list);

/* End the table, and print the error if `code` is one. Returns the exit code. */
int cli_list_end(struct cli_list *list, enum belay_code code, const struct belay_error *err);
/* A whole list: read the entries with `read`, and end it. *out_n is their number. Returns the exit code. */
typedef enum belay_code (*cli_list_fn)(struct belay_client *client, struct cli_list *list,
                                       struct belay_error *err);
int cli_list_read(const struct cli_context *context, struct belay_client *client,
                  const struct cli_list_kind *kind, cli_list_fn read, size_t *out_n, struct belay_error *err);
/*
 * The same after opening the client. If there are no entries, it says so with "no WHAT in STORE" and the hint.
 */
int cli_list_all(struct cli_context *context, const struct cli_list_kind *kind, cli_list_fn read,
                 const char *what, const char *hint, struct belay_error *err);
/* With --json, end the object; `more` follows the array, such as ",\"a\":1". */
void cli_list_close(const struct cli_list *list, const char *more);

#endif
