/* The objects below a prefix, page by page. */
#include <stdlib.h>
#include <string.h>

#include "aws/text/xml.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "http_client/uri.h"
#include "store/blob/blob_store.h"
#include "store/s3/s3_internal.h"

enum { KEY_SIZE = 2 * BELAY_BLOB_NAME_MAX + 16 };

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

/* An object or a folder; false: no memory. */
static bool take_entry(const struct s3_store *store, const struct xml *child, bool shallow,
                       struct blob_list *out)
{
    bool is_object = strcmp(child->name, "Contents") == 0;
    bool is_folder = strcmp(child->name, "CommonPrefixes") == 0;
    const char *text = is_object ? xml_text(child, "Key") : is_folder ? xml_text(child, "Prefix") : NULL;
    const char *size = is_object ? xml_text(child, "Size") : NULL;
    char key[KEY_SIZE];
    struct belay_blob_entry entry = { .name = key + strlen(store->params.prefix),
                                      .size = size == NULL ? 0 : strtoull(size, NULL, 10),
                                      .modified_unix_ms = clock_parse_utc(xml_text(child, "LastModified")) };

    /* Names are percent-encoded, with '+' for a blank: XML cannot contain every character. */
    if (text == NULL || !text_decode_percent(text, strlen(text), true, key, sizeof key) ||
        !text_has_prefix(key, store->params.prefix) || !is_shown(entry.name, shallow)) {
        return true;
    }
    return blob_list_add(out, entry);
}

/* Objects and folders are listed separately; together they are one range of names. */
static bool page_read(const struct s3_store *store, const struct xml *root, bool shallow,
                      struct blob_list *out, char **out_next)
{
    const char *truncated = xml_text(root, "IsTruncated");
    bool is_last = truncated == NULL || strcmp(truncated, "true") != 0;
    bool ok = true;

    for (size_t i = 0; ok && i < root->n_children; i++) {
        ok = take_entry(store, root->children[i], shallow, out);
    }
    *out_next = is_last ? NULL : text_copy(xml_text(root, "NextContinuationToken"), &ok);
    return ok;
}

/* *token is the page's, and becomes that of the next page; NULL: there is none. */
static enum belay_code fetch_page(struct s3_store *store, const char *prefix, bool shallow, char **token,
                                  struct blob_list *out, struct belay_error *err)
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
    if (*token != NULL) {
        uri_add_query(&query, "continuation-token", *token);
    }
    free(*token);
    *token = NULL;
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
        } else if (!page_read(store, root, shallow, out, token)) {
            code = error_no_memory(err);
        }
    }
    xml_free(root);
    aws_response_release(&response);
    buf_release(&query);
    buf_release(&full);
    return code;
}

enum belay_code s3_list(struct belay_blob_store *base, const char *prefix, bool shallow, belay_blob_fn fn,
                        void *context, struct belay_error *err)
{
    char *token = NULL;
    bool go_on = true;
    enum belay_code code = BELAY_OK;

    do {
        struct blob_list page = { 0 };

        code = fetch_page((struct s3_store *)base, prefix, shallow, &token, &page, err);
        go_on = code == BELAY_OK && blob_list_report(&page, fn, context);
        blob_list_release(&page);
    } while (go_on && token != NULL);
    free(token);
    return code;
}
