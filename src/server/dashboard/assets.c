/* The dashboard's files, sent with headers that limit what a page can do. */
#include "server/dashboard/assets.h"

#include <string.h>

#include "server/core/server.h"

/*
 * Scripts, styles and requests of this server only, and no HTML made from strings: clients choose keys, owners and
 * metadata.
 */
#define POLICY                                                                                               \
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "          \
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "      \
    "trusted-types 'none'"

static const struct asset *find_asset(const char *name)
{
    for (size_t i = 0; i < n_assets; i++) {
        if (strcmp(assets[i].name, name) == 0) {
            return &assets[i];
        }
    }
    return NULL;
}

static bool header_has(const struct exchange *x, const char *name, const char *word)
{
    const char *value = http_header(x->request, name);

    return value != NULL && strstr(value, word) != NULL;
}

static void send_asset(struct exchange *x, const struct asset *asset)
{
    bool is_gzip = header_has(x, "Accept-Encoding", "gzip");
    struct http_header headers[] = {
        { "Content-Type", asset->type },         { "ETag", asset->etag },
        { "Cache-Control", "no-cache" }, /* revalidate: the next version of belay has others */
        { "Vary", "Accept-Encoding" },           { "Content-Security-Policy", POLICY },
        { "X-Content-Type-Options", "nosniff" }, { "X-Frame-Options", "DENY" },
        { "Referrer-Policy", "no-referrer" },    { "Cross-Origin-Opener-Policy", "same-origin" },
        { "Content-Encoding", "gzip" },
    };
    size_t n = sizeof headers / sizeof headers[0] - (is_gzip ? 0 : 1);

    if (header_has(x, "If-None-Match", asset->etag)) {
        reply_with(x, 304, headers, n, NULL, 0);
    } else {
        reply_with(x, 200, headers, n, is_gzip ? asset->gzip : asset->data,
                   is_gzip ? asset->gzip_len : asset->len);
    }
}

void handle_page(struct exchange *x)
{
    send_asset(x, find_asset("index.html"));
}

void handle_asset(struct exchange *x)
{
    const struct asset *asset = find_asset(x->key);

    if (asset == NULL) {
        reply_problem(x, 404, "no_such_route", "the dashboard has no file '%.60s'", x->key);
        return;
    }
    send_asset(x, asset);
}
