/* The objects below a prefix, page by page. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aws/text/xml.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "http_client/uri.h"
#include "store/s3/s3_internal.h"

/* Names are percent-encoded, with '+' for a blank: XML cannot contain every character. */
static char *decode_name(const char *text)
{
    struct buf name = BUF_INIT(8192);
    char *plain = strdup(text);
    char *out;

    for (char *c = plain; c != NULL && *c != '\0'; c++) {
        *c = *c == '+' ? ' ' : *c;
    }
    buf_adds(&name, "");
    uri_decode(&name, plain == NULL ? "" : plain, plain == NULL ? 0 : strlen(plain));
    free(plain);
    out = buf_take(&name);
    buf_release(&name);
    return out;
}

struct s3_found {
    char *name; /* owned; with the prefix of the store */
    uint64_t size;
    int64_t modified_unix_ms;
};

struct s3_page {
    struct s3_found *items;
    size_t n;
    char *next; /* owned; NULL: this is the last page */
};

static void page_release(struct s3_page *page)
{
    for (size_t i = 0; i < page->n; i++) {
        free(page->items[i].name);
    }
    free(page->items);
    free(page->next);
    *page = (struct s3_page){ 0 };
}

static int compare_objects(const void *a, const void *b)
{
    return strcmp(((const struct s3_found *)a)->name, ((const struct s3_found *)b)->name);
}

/* Objects and folders are listed separately; together they are one range of names. */
static bool page_read(const struct xml *root, struct s3_page *out)
{
    const char *truncated = xml_text(root, "IsTruncated");
    const char *next = xml_text(root, "NextContinuationToken");

    out->items = calloc(root->n_children + 1, sizeof *out->items);
    if (out->items == NULL) {
        return false;
    }
    for (size_t i = 0; i < root->n_children; i++) {
        const struct xml *child = root->children[i];
        bool is_object = strcmp(child->name, "Contents") == 0;
        const char *name = is_object                                    ? xml_text(child, "Key")
                           : strcmp(child->name, "CommonPrefixes") == 0 ? xml_text(child, "Prefix")
                                                                        : NULL;

        if (name != NULL) {
            const char *size = xml_text(child, "Size");
            struct s3_found *item = &out->items[out->n];

            item->name = decode_name(name);
            if (item->name == NULL) {
                return false;
            }
            out->n++;
            item->size = is_object && size != NULL ? strtoull(size, NULL, 10) : 0;
            item->modified_unix_ms = clock_parse_utc(xml_text(child, "LastModified"));
        }
    }
    qsort(out->items, out->n, sizeof *out->items, compare_objects);
    if (truncated != NULL && strcmp(truncated, "true") == 0 && next != NULL) {
        out->next = strdup(next);
        return out->next != NULL;
    }
    return true;
}

static enum belay_code fetch_page(struct s3_store *store, const char *prefix, bool shallow, const char *token,
                                  struct s3_page *out, struct belay_error *err)
{
    struct buf query = BUF_INIT(16384);
    struct buf full = BUF_INIT(4096);
    struct s3_call call = { .method = "GET", .operation = "ListObjectsV2", .reads_only = true };
    struct aws_response response = { 0 };
    struct xml *root = NULL;
    enum belay_code code;

    buf_addf(&full, "%s%s", store->params.prefix, prefix);
    uri_add_query(&query, "list-type", "2");
    uri_add_query(&query, "encoding-type", "url");
    if (shallow) {
        uri_add_query(&query, "delimiter", "/");
    }
    uri_add_query(&query, "prefix", full.failed ? "" : full.data);
    if (token != NULL) {
        uri_add_query(&query, "continuation-token", token);
    }
    call.query = query.data;
    code = query.failed || full.failed ? error_no_memory(err) : s3_call(store, &call, &response, err);
    if (code == BELAY_NOT_FOUND) {
        code = s3_say_no_bucket(store, err);
    }
    if (code == BELAY_OK) {
        root = xml_parse(response.http.body, response.http.body_len);
        if (root == NULL || strcmp(root->name, "ListBucketResult") != 0) {
            code = error_set(err, BELAY_UNREACHABLE, "the S3 server's list of bucket '%s' cannot be read",
                             store->params.bucket);
        } else if (!page_read(root, out)) {
            code = error_no_memory(err);
        }
    }
    xml_free(root);
    aws_response_release(&response);
    buf_release(&query);
    buf_release(&full);
    return code;
}

static bool is_shown(const char *name, bool shallow)
{
    size_t n = strlen(name);
    char plain[BELAY_BLOB_NAME_MAX + 2];

    if (n > 0 && name[n - 1] == '/') {
        if (!shallow || n > BELAY_BLOB_NAME_MAX) {
            return false;
        }
        memcpy(plain, name, n - 1);
        plain[n - 1] = '\0';
        return belay_blob_name_check(plain, NULL) == BELAY_OK;
    }
    return belay_blob_name_check(name, NULL) == BELAY_OK;
}

enum belay_code s3_list(struct belay_blob_store *base, const char *prefix, bool shallow, belay_blob_fn fn,
                        void *context, struct belay_error *err)
{
    struct s3_store *store = (struct s3_store *)base;
    size_t skip = strlen(store->params.prefix);
    char *token = NULL;
    bool go_on = true;
    enum belay_code code = BELAY_OK;

    do {
        struct s3_page page = { 0 };

        code = fetch_page(store, prefix, shallow, token, &page, err);
        for (size_t i = 0; code == BELAY_OK && go_on && i < page.n; i++) {
            struct belay_blob_entry entry = { page.items[i].name + skip, page.items[i].size,
                                              page.items[i].modified_unix_ms };

            if (text_has_prefix(page.items[i].name, store->params.prefix) && is_shown(entry.name, shallow)) {
                go_on = fn(context, &entry);
            }
        }
        free(token);
        token = page.next;
        page.next = NULL;
        page_release(&page);
    } while (code == BELAY_OK && go_on && token != NULL);
    free(token);
    return code;
}
