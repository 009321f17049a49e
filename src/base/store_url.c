#include "base/store_url.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"

enum { PARAMS_MAX = 32 };

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

static bool has_one_of(const char *url, const char *const *prefixes)
{
    while (*prefixes != NULL && !text_has_prefix(url, *prefixes)) {
        prefixes++;
    }
    return *prefixes != NULL;
}

/* Where the text has "password=", in which libpq permits spaces; else its end. */
static const char *find_secret(const char *text)
{
    static const char word[] = "password";

    for (const char *at = strcasestr(text, word); at != NULL; at = strcasestr(at + 1, word)) {
        const char *after = at + strlen(word);

        if (after[strspn(after, " \t")] == '=') {
            return at;
        }
    }
    return text + strlen(text);
}

/*
 * A text that is no URL of a store may have its password anywhere, such as in "postgresql//USER:PASSWORD@HOST" or
 * "host=HOST password=PASSWORD": leave out all that may be one. Returns the parameters.
 */
static const char *add_shown_mistyped(struct buf *out, const char *text)
{
    const char *end = find_secret(text);
    const char *at = memrchr(text, '@', (size_t)(end - text));
    const char *scheme = text + strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789+.-");
    const char *user = scheme + (*scheme == ':' ? 1 : 0);
    const char *rest = at == NULL ? text : at;
    const char *colon;
    size_t len;

    user += strspn(user, "/");
    colon = at == NULL || user > at ? NULL : memchr(user, ':', (size_t)(at - user));
    if (colon == NULL && *scheme == ':' && user == scheme + 1) {
        colon = scheme; /* USER:PASSWORD@HOST */
    }
    if (at != NULL) {
        buf_add(out, text, (size_t)((colon == NULL ? at : colon) - text));
    }
    len = strcspn(rest, "?");
    len = len < (size_t)(end - rest) ? len : (size_t)(end - rest);
    buf_add(out, rest, len);
    return *end != '\0' ? "" : rest + len;
}

/* All before the parameters, without a password. Returns what is left. As for libpq, a '?' may be in a password. */
static const char *add_shown_place(struct buf *out, const char *url)
{
    static const char *const with_authority[] = { "postgresql://", "postgres://", "http://",
                                                  "https://",      "s3://",       NULL };
    static const char *const without[] = { "sqlite:", "dynamodb:", "file:", NULL };
    const char *begin = has_one_of(url, with_authority) ? strstr(url, "://") + strlen("://") : NULL;
    const char *at = begin == NULL ? NULL : memrchr(begin, '@', strcspn(begin, "/"));
    const char *colon = at == NULL ? NULL : memchr(begin, ':', (size_t)(at - begin));
    const char *rest = at == NULL ? url : at;
    size_t len = strcspn(rest, "?");

    if (begin == NULL && !has_one_of(url, without)) {
        return add_shown_mistyped(out, url);
    }
    if (at != NULL) {
        buf_add(out, url, (size_t)((colon == NULL ? at : colon) - url));
    }
    buf_add(out, rest, len);
    return rest + len;
}

static bool is_secret(const char *pair)
{
    return text_has_prefix(pair, "password=") || text_has_prefix(pair, "sslpassword=");
}

/* listen=URL, which may have a password as well. */
static void add_shown_listen(struct buf *out, char sign, const char *pair, size_t len)
{
    struct buf shown = BUF_INIT(STORE_URL_MAX);
    size_t name = strlen("listen=");
    char *url = strndup(pair + name, len - name);

    if (url != NULL && decode_in_place(url)) {
        const char *query = add_shown_place(&shown, url);
        char inner = '?';

        while (query[0] != '\0') {
            size_t n = strcspn(query + 1, "&");

            if (n > 0 && !is_secret(query + 1)) {
                buf_addf(&shown, "%c%.*s", inner, (int)n, query + 1);
                inner = '&';
            }
            query += 1 + n;
        }
    }
    if (url != NULL && shown.data != NULL && !shown.failed && strcmp(shown.data, url) == 0) {
        buf_addf(out, "%c%.*s", sign, (int)len, pair); /* as it was encoded */
    } else {
        add_param(out, sign, "listen", shown.data == NULL || shown.failed ? "" : shown.data);
    }
    buf_release(&shown);
    free(url);
}

/* URL,URL: none of them may have a password, but one that has it is shown in a message. */
static void add_shown_servers(struct buf *out, const char *urls)
{
    while (*urls != '\0') {
        size_t len = strcspn(urls, ",");
        char *url = strndup(urls, len);

        if (url == NULL) {
            out->failed = true;
            return;
        }
        buf_adds(out, add_shown_place(out, url));
        free(url);
        urls += len;
        if (*urls == ',') {
            buf_adds(out, ",");
            urls++;
        }
    }
}

void store_url_add_shown(struct buf *out, const char *url)
{
    const char *query = "";
    char sign = '?';

    if (text_has_prefix(url, "http://") || text_has_prefix(url, "https://")) {
        add_shown_servers(out, url);
    } else {
        query = add_shown_place(out, url);
    }
    while (query[0] != '\0') {
        const char *pair = query + 1;
        size_t len = strcspn(pair, "&");

        if (text_has_prefix(pair, "listen=")) {
            add_shown_listen(out, sign, pair, len);
            sign = '&';
        } else if (len > 0 && !is_secret(pair)) {
            buf_addf(out, "%c%.*s", sign, (int)len, pair);
            sign = '&';
        }
        query = pair + len;
    }
}

const char *store_url_show(const char *url, char out[STORE_URL_SHOWN])
{
    struct buf shown = BUF_INIT(STORE_URL_MAX);

    store_url_add_shown(&shown, url);
    (void)snprintf(out, STORE_URL_SHOWN, "%s", shown.data == NULL || shown.failed ? "..." : shown.data);
    buf_release(&shown);
    return out;
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
    const char *shown = strchr(name, '@') != NULL || !text_is_clean(name, STORE_URL_MAX) ? "..." : name;

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

static enum belay_code parse_param(const struct store_url_kind *kind, char *text, void *params,
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

static enum belay_code parse_params(const struct store_url_kind *kind, char *list, void *params,
                                    struct buf *query, struct belay_error *err)
{
    enum belay_code code = BELAY_OK;
    size_t n = 0;
    char *one;

    while (code == BELAY_OK && (one = strsep(&list, "&,")) != NULL) {
        if (*one != '\0') {
            code = ++n > PARAMS_MAX ? error_set(err, BELAY_INVALID,
                                                "a store's URL has more than %d parameters", (int)PARAMS_MAX)
                                    : parse_param(kind, one, params, query, err);
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
    struct buf query = BUF_INIT(STORE_URL_MAX);
    char *place = strlen(text) > STORE_URL_MAX ? NULL : strdup(text);
    char *list = place == NULL ? NULL : strpbrk(place, "?,");
    char *made = NULL;
    enum belay_code code = BELAY_OK;

    assert(kind->scheme != NULL);
    if (place == NULL) {
        return strlen(text) > STORE_URL_MAX
                   ? error_set(err, BELAY_INVALID, "a store's URL is longer than %d bytes",
                               (int)STORE_URL_MAX)
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
        code = parse_params(kind, list, params, &query, err);
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
