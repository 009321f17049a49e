#include "cli/core/cli_list.h"

#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/output/print.h"

static int no_memory(const struct cli_list *list)
{
    return cli_fail(list->context, BELAY_NO_MEMORY, "out of memory");
}

int cli_list_begin(struct cli_list *list, const struct cli_list_kind *kind, const struct cli_context *context)
{
    *list = (struct cli_list){ .kind = kind, .context = context };
    if (context->json) {
        list->form = CLI_LIST_JSON;
    } else if (context->quiet && kind->has_names) {
        list->form = CLI_LIST_NAMES;
    } else if (kind->columns != NULL) {
        list->table = text_table_new(stdout, kind->columns, kind->n_columns, print_columns(STDOUT_FILENO),
                                     context->color_out);
        return list->table == NULL ? no_memory(list) : CLI_OK;
    }
    return CLI_OK;
}

/* Printed with the first entry, so that standard output stays empty if the store fails at once. */
static void open_array(const struct cli_list *list)
{
    (void)printf("{\"%s\":[", list->kind->name);
}

void cli_list_add_json(struct cli_list *list, char *line)
{
    assert(list->form == CLI_LIST_JSON);
    if (line == NULL) {
        list->failed = true;
        return;
    }
    if (list->n == 0) {
        open_array(list);
    }
    (void)printf("%s%s", list->n == 0 ? "" : ",\n", line);
    free(line);
}

void cli_list_add_name(struct cli_list *list, const char *name)
{
    assert(list->form == CLI_LIST_NAMES);
    print_line_escaped(stdout, "%s", name);
}

bool cli_list_next(struct cli_list *list)
{
    list->n++;
    return !list->failed && !ferror(stdout); /* stop when the reader is gone */
}

int cli_list_end(struct cli_list *list, enum belay_code code, const struct belay_error *err)
{
    if (list->table != NULL) {
        list->failed = !text_table_finish(list->table) || list->failed;
        list->table = NULL;
    }
    if (code != BELAY_OK) {
        return cli_error(list->context, err);
    }
    return list->failed ? no_memory(list) : CLI_OK;
}

void cli_list_close(const struct cli_list *list, const char *more)
{
    if (list->form != CLI_LIST_JSON) {
        return;
    }
    if (list->n == 0) {
        open_array(list);
    }
    (void)printf("]%s}\n", more);
}

int cli_list_read(const struct cli_context *context, struct belay_client *client,
                  const struct cli_list_kind *kind, cli_list_fn read, size_t *out_n, struct belay_error *err)
{
    struct cli_list list;
    int status = cli_list_begin(&list, kind, context);

    if (status == CLI_OK) {
        status = cli_list_end(&list, read(client, &list, err), err);
    }
    if (status == CLI_OK) {
        cli_list_close(&list, "");
        *out_n = list.n;
    }
    return status;
}

int cli_list_all(struct cli_context *context, const struct cli_list_kind *kind, cli_list_fn read,
                 const char *what, const char *hint, struct belay_error *err)
{
    struct belay_client *client;
    size_t n = 1;
    int status = cli_existing_client(context, &client, err) == BELAY_OK
                     ? cli_list_read(context, client, kind, read, &n, err)
                     : cli_error(context, err);

    if (n == 0) {
        cli_note(context, "no %s in %s", what, belay_client_store_url(client));
        cli_hint(context, "%s", hint);
    }
    return status;
}
