#include "cli/core/listing.h"

#include <stdlib.h>
#include <unistd.h>

#include "cli/output/print.h"

static int no_memory(const struct listing *listing)
{
    return cli_fail(listing->context, BELAY_NO_MEMORY, "out of memory");
}

int listing_begin(struct listing *listing, const struct listing_kind *kind, const struct cli_context *context)
{
    *listing = (struct listing){ .kind = kind, .context = context };
    if (context->json) {
        listing->form = LISTING_JSON;
    } else if (context->quiet && kind->has_names) {
        listing->form = LISTING_NAMES;
    } else if (kind->columns != NULL) {
        listing->table = table_new(stdout, kind->columns, kind->n_columns, print_columns(STDOUT_FILENO),
                                   context->color_out);
        return listing->table == NULL ? no_memory(listing) : CLI_OK;
    }
    return CLI_OK;
}

/* Said with the first entry, so that a store that fails at once leaves standard output empty. */
static void open_array(const struct listing *listing)
{
    (void)printf("{\"%s\":[", listing->kind->name);
}

void listing_add_json(struct listing *listing, char *line)
{
    if (line == NULL) {
        listing->failed = true;
        return;
    }
    if (listing->n == 0) {
        open_array(listing);
    }
    (void)printf("%s%s", listing->n == 0 ? "" : ",\n", line);
    free(line);
}

void listing_add_name(struct listing *listing, const char *name)
{
    (void)listing;
    print_safe(stdout, name);
    (void)putchar('\n');
}

bool listing_next(struct listing *listing)
{
    listing->n++;
    return !listing->failed && !ferror(stdout); /* nobody reads any more: stop */
}

int listing_end(struct listing *listing, enum belay_code code, const struct belay_error *err)
{
    if (listing->table != NULL) {
        listing->failed = !table_finish(listing->table) || listing->failed;
        listing->table = NULL;
    }
    if (code != BELAY_OK) {
        return cli_error(listing->context, err);
    }
    return listing->failed ? no_memory(listing) : CLI_OK;
}

void listing_close(const struct listing *listing, const char *more)
{
    if (listing->form != LISTING_JSON) {
        return;
    }
    if (listing->n == 0) {
        open_array(listing);
    }
    (void)printf("]%s}\n", more);
}
