/*
 * The URL of a store, after its scheme: PLACE?NAME=VALUE&NAME=VALUE, where ',' can replace '?'
 * and '&'. Every store parses its URL here, so that the same text means the same place and
 * parameters everywhere.
 * A '?', ',' or '%' in the place is written %3F, %2C or %25; in a value '&', ',' and '%' must
 * be encoded.
 */
#ifndef BASE_STORE_URL_H
#define BASE_STORE_URL_H

#include "base/buf.h"
#include "belay.h"

enum { STORE_URL_MAX = 8192 }; /* bytes */

/* A parameter that is kept as a text: the offset of its char * in the struct of parameters. */
struct store_url_text {
    const char *name;
    size_t offset;
};

struct store_url_kind {
    const char *scheme;   /* "sqlite:", for messages */
    const char *known;    /* its parameters, for messages, such as "region=R and endpoint=URL"; NULL: none */
    bool place_is_a_url;  /* it has an encoding of its own and is left as it is */
    bool place_is_a_path; /* a '~' at its beginning is refused */
    const struct store_url_text *texts; /* ends with a NULL name; may be NULL */
    /* Sets one of the others. BELAY_NOT_FOUND: there is no such parameter. May be NULL. */
    enum belay_code (*set)(void *params, const char *name, const char *value, struct belay_error *err);
};

/*
 * Each parameter is given to kind->set(). *out_place is decoded; *out_query (may be NULL) is "" or the
 * parameters as "?NAME=VALUE&NAME=VALUE". The caller frees both.
 */
enum belay_code store_url_parse(const struct store_url_kind *kind, const char *text, void *params,
                                char **out_place, char **out_query, struct belay_error *err);

/* The decoded place of a URL that a store made; NULL: another scheme, or no memory. */
char *store_url_place(const char *url, const char *scheme);

/*
 * Add a URL as it is shown, stored with states and passed to commands: without a password before
 * its host or among its parameters.
 */
void store_url_add_shown(struct buf *out, const char *url);

/* The same for a message, which also may be about a URL that no store knows. Returns `out`. */
enum { STORE_URL_SHOWN = 201 };
const char *store_url_show(const char *url, char out[STORE_URL_SHOWN]);

/* Add a place, encoded, and then parameters; a NULL value is left out. */
void store_url_add_place(struct buf *url, const char *place);
void store_url_add_param(struct buf *url, const char *name, const char *value);
/* The same for each of the texts of `params`. */
void store_url_add_texts(struct buf *url, const struct store_url_text *texts, const void *params);
void store_url_free_texts(const struct store_url_text *texts, void *params);

#endif
