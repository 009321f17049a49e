#include "base/store_url.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

enum { URL_MAX = 8192, PARAMS_MAX = 32 };

/* ---- percent-encoding ---- */

static bool decode_in_place(char *text)
{
    return text_decode_percent(text, strlen(text), false, text, strlen(text) + 1);
}

static void encode(struct buf *out, const char *text, const char *special)
{
    for (; *text != '\0'; text++) {
        if (strchr(special, *text) != NULL) {
            buf_addf(out, "%%%02X", (unsigned)(unsigned char)*text);
        } else {
            buf_add(out, text, 1);
        }
    }
}

void store_url_add_place(struct buf *url, const char *place)
{
    encode(url, place, "%,?");
}

static void add_param(struct buf *query, char sign, const char *name, const char *value)
{
    buf_addf(query, "%c%s=", sign, name);
    encode(query, value, "%,&");
}

void store_url_add_param(struct buf *url, const char *name, const char *value)
{
    if (value != NULL && !url->failed) {
        add_param(url, url->data != NULL && strchr(url->data, '?') != NULL ? '&' : '?', name, value);
    }
}

static void add_shown_place(struct buf *out, const char *place, size_t len)
{
    const char *begin = strstr(place, "://");
    size_t authority = begin == NULL ? 0 : strcspn(begin + 3, "/?");
    const char *at = begin == NULL ? NULL : memrchr(begin + 3, '@', authority);
    const char *colon = at == NULL ? NULL : memchr(begin + 3, ':', (size_t)(at - begin - 3));

    if (colon == NULL || colon > place + len) {
        buf_add(out, place, len);
    } else {
        buf_add(out, place, (size_t)(colon - place));
        buf_add(out, at, (size_t)(place + len - at));
    }
}

void store_url_add_shown(struct buf *out, const char *url)
{
    const char *query = url + strcspn(url, "?");
    char sign = '?';

    add_shown_place(out, url, (size_t)(query - url));
    while (query[0] != '\0') {
        const char *pair = query + 1;
        size_t len = strcspn(pair, "&");

        if (len > 0 && !text_has_prefix(pair, "password=") && !text_has_prefix(pair, "sslpassword=")) {
            buf_addf(out, "%c%.*s", sign, (int)len, pair);
            sign = '&';
        }
        query = pair + len;
    }
}

char *store_url_place(const char *url, const char *scheme)
{
    char *place;

    if (url == NULL || !text_has_prefix(url, scheme)) {
        return NULL;
    }
    url += strlen(scheme);
    place = strndup(url, strcspn(url, "?,"));
    if (place != NULL && !decode_in_place(place)) {
        free(place);
        return NULL;
    }
    return place;
}

/* ---- parsing ---- */

static const char hint[] = "a ',' or '?' that is part of the name is written %2C or %3F";

static enum belay_code refuse_param(const struct store_url_kind *kind, const char *name, const char *why,
                                    struct belay_error *err)
{
    /* A password in the wrong place must not appear in a log. */
    const char *shown = strchr(name, '@') != NULL || !text_is_clean(name, URL_MAX) ? "..." : name;

    if (kind->known == NULL) {
        return error_set(err, BELAY_INVALID, "store parameter '%.40s' %s: %s takes none; %s", shown, why,
                         kind->scheme, hint);
    }
    return error_set(err, BELAY_INVALID, "store parameter '%.40s' %s; valid are %s; %s", shown, why,
                     kind->known, hint);
}

/* `query` has the parameters that were read so far: "?NAME=VALUE&NAME=VALUE". */
static bool has_param(const struct buf *query, const char *name)
{
    size_t n = strlen(name);

    for (const char *at = query->data; at != NULL && *at != '\0'; at += strcspn(at, "&")) {
        at++;
        if (strncmp(at, name, n) == 0 && at[n] == '=') {
            return true;
        }
    }
    return false;
}

static char **text_field(const struct store_url_text *text, void *params)
{
    return (char **)(void *)((char *)params + text->offset);
}

static enum belay_code keep_param(const struct store_url_kind *kind, void *params, const char *name,
                                  const char *value, struct belay_error *err)
{
    for (const struct store_url_text *text = kind->texts; text != NULL && text->name != NULL; text++) {
        if (strcmp(text->name, name) == 0) {
            char **at = text_field(text, params);

            *at = strdup(value);
            return *at == NULL ? error_no_memory(err) : BELAY_OK;
        }
    }
    return kind->set == NULL ? BELAY_NOT_FOUND : kind->set(params, name, value, err);
}

void store_url_add_texts(struct buf *url, const struct store_url_text *texts, const void *params)
{
    for (; texts->name != NULL; texts++) {
        const char *const *text = (const char *const *)(const void *)((const char *)params + texts->offset);

        store_url_add_param(url, texts->name, *text);
    }
}

void store_url_free_texts(const struct store_url_text *texts, void *params)
{
    for (; texts->name != NULL; texts++) {
        free(*text_field(texts, params));
        *text_field(texts, params) = NULL;
    }
}

static enum belay_code parse_one(const struct store_url_kind *kind, char *text, void *params,
                                 struct buf *query, struct belay_error *err)
{
    char *value = strchr(text, '=');
    enum belay_code code;

    if (value == NULL || value[1] == '\0') {
        return refuse_param(kind, text, "has no value or is not known", err);
    }
    *value++ = '\0';
    if (has_param(query, text)) {
        return error_set(err, BELAY_INVALID, "store parameter '%.40s' is given twice", text);
    }
    if (!decode_in_place(value)) {
        return error_set(err, BELAY_INVALID, "store parameter '%.40s': a '%%' in a value is written %%25",
                         text);
    }
    code = keep_param(kind, params, text, value, err);
    if (code == BELAY_NOT_FOUND) {
        return refuse_param(kind, text, "is not known", err);
    }
    add_param(query, query->data == NULL ? '?' : '&', text, value);
    return code;
}

static enum belay_code parse_list(const struct store_url_kind *kind, char *list, void *params,
                                  struct buf *query, struct belay_error *err)
{
    enum belay_code code = BELAY_OK;
    size_t n = 0;
    char *one;

    while (code == BELAY_OK && (one = strsep(&list, "&,")) != NULL) {
        if (*one != '\0') {
            code = ++n > PARAMS_MAX ? error_set(err, BELAY_INVALID,
                                                "a store's URL has more than %d parameters", (int)PARAMS_MAX)
                                    : parse_one(kind, one, params, query, err);
        }
    }
    return code;
}

/* A shell expands '~' in BELAY_STORE=sqlite:~/f, but not in --store sqlite:~/f: they would name two files. */
static enum belay_code refuse_tilde(const struct store_url_kind *kind, const char *text,
                                    struct belay_error *err)
{
    return error_set(err, BELAY_INVALID,
                     "'%s%.300s': '~' does not stand for the home directory here; write the path in full, or "
                     "./~ for a name that begins so",
                     kind->scheme, text);
}

enum belay_code store_url_parse(const struct store_url_kind *kind, const char *text, void *params,
                                char **out_place, char **out_query, struct belay_error *err)
{
    struct buf query = BUF_INIT(URL_MAX);
    char *place = strlen(text) > URL_MAX ? NULL : strdup(text);
    char *list = place == NULL ? NULL : strpbrk(place, "?,");
    char *made = NULL;
    enum belay_code code = BELAY_OK;

    assert(kind->scheme != NULL);
    if (place == NULL) {
        return strlen(text) > URL_MAX
                   ? error_set(err, BELAY_INVALID, "a store's URL is longer than %d bytes", (int)URL_MAX)
                   : error_no_memory(err);
    }
    if (list != NULL) {
        *list++ = '\0';
    }
    if (kind->place_is_a_path && text[0] == '~') {
        code = refuse_tilde(kind, text, err);
    }
    if (code == BELAY_OK && !kind->place_is_a_url && !decode_in_place(place)) {
        code = error_set(err, BELAY_INVALID, "'%s%.200s': a '%%' that is part of the name is written %%25",
                         kind->scheme, text);
    }
    if (code == BELAY_OK && list != NULL) {
        code = parse_list(kind, list, params, &query, err);
    }
    if (code == BELAY_OK && out_query != NULL) {
        buf_adds(&query, "");
        made = buf_take(&query);
        code = made == NULL ? error_no_memory(err) : BELAY_OK;
    }
    buf_release(&query);
    if (code != BELAY_OK) {
        free(place);
        return code;
    }
    if (out_query != NULL) {
        *out_query = made;
    }
    *out_place = place;
    return BELAY_OK;
}
