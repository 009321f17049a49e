/* The document of Terraform's http backend: read, write, remove, versions. */
#include "server/state/terraform.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/text.h"
#include "server/core/routes.h"
#include "json/json_write.h"

enum { MD5_TEXT = 24, MD5_BYTES = 16 };

/* ---- one request ---- */

/* Start a job, if the name is valid and the token may touch its lock. */
static void tf_start(struct exchange *x, job_fn *run)
{
    char key[TF_KEY_SIZE];

    if (!text_is_clean(x->key, TF_NAME_MAX) || strpbrk(x->key, "/:") != NULL || x->key[0] == '.') {
        reply_problem(x, 400, "invalid",
                      "the name of a state is 1 to %d bytes without '/', ':' and control characters, and "
                      "does not begin with '.'",
                      TF_NAME_MAX);
        return;
    }
    if (exchange_may_touch(x, tf_key(x->key, key))) {
        job_start(x, WORK_JOB, run);
    }
}

void handle_tf_read(struct exchange *x)
{
    tf_start(x, state_job_read);
}

void handle_tf_write(struct exchange *x)
{
    tf_start(x, x->route->job);
}

/* ---- reading ---- */

void job_tf_get(struct job *job)
{
    struct kept *kept = NULL;
    char key[TF_KEY_SIZE];
    enum belay_code code = state_job_load(job, tf_key(job->x->key, key), &kept);

    if (code == BELAY_OK) {
        state_job_answer(job, kept);
    } else if (code == BELAY_NOT_FOUND) {
        (void)error_set(&job->err, code, "there is no Terraform state '%.128s' yet", job->x->key);
    }
}

void job_tf_version(struct job *job)
{
    struct belay_blob document = { 0 };
    char key[TF_KEY_SIZE];

    if (belay_document_load_snapshot(job->states, tf_key(job->x->key, key), job->x->more[0], &document,
                                     &job->err) == BELAY_OK) {
        state_job_etag(job, &document.tag);
        job->answer = document.data;
        job->answer_len = document.len;
    }
}

void job_tf_versions(struct job *job)
{
    json_t *versions = json_array();
    char key[TF_KEY_SIZE];

    if (belay_document_snapshots(job->states, tf_key(job->x->key, key), state_job_add_version, versions,
                                 &job->err) == BELAY_OK) {
        job->answer = wire_line(json_pack("{s:s, s:O}", "name", job->x->key, "versions", versions));
    }
    json_decref(versions);
}

static bool add_document(void *context, const char *name, uint64_t size, int64_t modified_unix_ms)
{
    const struct listed_states *listing = context;
    char key[TF_KEY_SIZE];

    if (!exchange_may_see(listing->job->x, tf_key(name, key))) {
        return true;
    }
    return json_array_append_new(listing->list,
                                 json_pack("{s:o, s:I, s:o}", "name", wire_text(name), "size",
                                           (json_int_t)size, "modified", wire_time(modified_unix_ms))) == 0;
}

void job_tf_list(struct job *job)
{
    json_t *list = json_array();
    struct listed_states listing = { job, list };

    if (belay_document_list(job->states, "terraform", add_document, &listing, &job->err) == BELAY_OK) {
        job->answer = wire_line(json_pack("{s:O}", "states", list));
    }
    json_decref(list);
}

/* ---- what is written ---- */

/* Check Content-MD5, if present. */
static enum belay_code check_md5(struct job *job)
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    char text[MD5_TEXT + 8];
    unsigned n = 0;

    if (job->content_md5 == NULL) {
        return BELAY_OK;
    }
    if (EVP_Digest(job->body, job->body_len, sum, &n, EVP_md5(), NULL) != 1 || n != MD5_BYTES) {
        return BELAY_OK; /* a system without MD5 cannot check it */
    }
    (void)EVP_EncodeBlock((unsigned char *)text, sum, (int)n);
    if (strcmp(text, job->content_md5) == 0) {
        return BELAY_OK;
    }
    return error_set(&job->err, BELAY_INVALID,
                     "Content-MD5 says '%.40s', but the body that arrived has '%s'; nothing was changed",
                     job->content_md5, text);
}

static enum belay_code check_body(struct job *job)
{
    struct belay_error fault = BELAY_ERROR_INIT;
    enum belay_code code = belay_document_check(job->body, job->body_len, &fault);

    if (code != BELAY_OK) {
        code = error_set(&job->err, code == BELAY_BAD_CONTENT ? BELAY_INVALID : code,
                         "the body is no Terraform state: %s", fault.text);
        belay_error_release(&fault);
        return code;
    }
    return check_md5(job);
}

/* One change of the document, under the client's lock or one that the server takes. */
struct terraform_change {
    struct job *job;
    struct kept *before;        /* owned; NULL: there is no document */
    struct belay_lock *own;     /* owned; NULL: under the client's lock */
    struct belay_info *claimed; /* owned; the client's lock */
    const char *store_id;       /* of the lock store */
    char key[TF_KEY_SIZE];
};

static enum belay_code open_lock(struct terraform_change *change, const char *why)
{
    struct job *job = change->job;
    char id[BELAY_ID_MAX + 1];

    if (strstr(job->query, "ID=") == NULL) {
        return tf_take_own(job, why, &change->own);
    }
    if (!job_query(job, "ID", id, sizeof id) || !tf_id_is_sound(id)) {
        return error_set(&job->err, BELAY_INVALID, "ID in the query is not the id of a lock");
    }
    return tf_claim(job, id, &change->claimed);
}

/*
 * The document is read before the lock is checked: a write between that check and ours changes the document that ours
 * expects, and ours fails.
 */
static enum belay_code change_begin(struct terraform_change *change, struct job *job, const char *why)
{
    enum belay_code code;

    *change = (struct terraform_change){ .job = job };
    (void)tf_key(job->x->key, change->key);
    code = state_job_begin(job, job->x->key, &change->store_id);
    if (code == BELAY_OK) {
        code = state_job_load(job, change->key, &change->before);
        code = code == BELAY_NOT_FOUND ? BELAY_OK : code;
    }
    return code == BELAY_OK ? open_lock(change, why) : code;
}

/* The lock of the change, for a store that checks it in the write; false: locking is switched off. */
static bool change_lock(const struct terraform_change *change, struct belay_state_lock *out)
{
    const struct belay_info *info = change->own != NULL ? belay_lock_info(change->own) : change->claimed;

    if (info == NULL || !belay_client_locking_enabled(change->job->server->client)) {
        return false;
    }
    *out = (struct belay_state_lock){
        .token = info->token, .store = change->store_id, .lock_id = info->lock_id, .key = info->key
    };
    return true;
}

/* Takes the text. *out_kept is the new document. */
static enum belay_code change_save(struct terraform_change *change, char *text, size_t len,
                                   struct kept **out_kept)
{
    struct job *job = change->job;
    struct belay_document_write write = { 0 };
    struct belay_state_lock lock;
    struct belay_blob before = { 0 };
    struct belay_blob_tag tag;
    enum belay_code code;

    if (change->before != NULL) {
        write.before = &before;
        before = (struct belay_blob){ change->before->text, change->before->len, change->before->tag };
        if (before.len == len && memcmp(before.data, text, len) == 0) {
            free(text); /* repeated, because the reply was lost */
            *out_kept = change->before;
            change->before = NULL;
            return BELAY_OK;
        }
    }
    write.lock = change_lock(change, &lock) ? &lock : NULL;
    code = belay_document_save(job->states, change->key, text, len, &write, &tag, &job->err);
    if (code != BELAY_OK) {
        free(text);
        return code;
    }
    *out_kept = state_job_keep(job, change->key, text, len, &tag);
    return *out_kept == NULL ? job->err.code : BELAY_OK;
}

static void change_end(struct terraform_change *change, enum belay_code code)
{
    struct job *job = change->job;

    belay_info_free(change->claimed);
    state_cache_drop(change->before);
    state_job_end(job, job->x->key, change->own, code, "terraform");
    if (code != BELAY_OK) {
        job->etag[0] = '\0';
        tf_answer_held(job);
    } else if (job->shared.data == NULL) {
        job->answer = strdup("{}");
    }
}

/*
 * Terraform counts the writes of a lineage in `serial`. A write with a lower serial, or with other content under the
 * same one, is late or repeated. The lock does not reveal that: it may be the same one. 'terraform state push -force'
 * looks the same, so an admin adds force=true to the address.
 */
static enum belay_code check_order(struct job *job, const struct kept *before)
{
    unsigned long long serial = 0;

    if (before->len == job->body_len && memcmp(before->text, job->body, before->len) == 0) {
        return BELAY_OK; /* repeated, because the reply was lost */
    }
    if (tf_is_later(before->text, job->body, &serial)) {
        return BELAY_OK;
    }
    if (job_query_is_true(job, "force")) {
        return job->x->role >= ROLE_ADMIN ? BELAY_OK
                                          : job_forbid(job, "only an admin may write with force=true");
    }
    job->status = 409;
    return error_set(
        &job->err, BELAY_REFUSED,
        "the Terraform state '%.128s' has serial %llu already, and that of this write is not greater: "
        "it is late, or was made from an older state; nothing was changed. 'POST "
        "/v1/terraform/{name}/restore' goes back to a version; an admin may add ?force=true to the "
        "address",
        job->x->key, serial);
}

void job_tf_put(struct job *job)
{
    struct terraform_change change;
    struct kept *kept = NULL;
    enum belay_code code = check_body(job);

    if (code != BELAY_OK) {
        return;
    }
    if (strstr(job->query, "ID=") == NULL && !state_pool_terraform(job->server->states)->unlocked_writes) {
        (void)error_set(&job->err, BELAY_REFUSED,
                        "a state is written under a lock only: give the backend a lock_address and an "
                        "unlock_address, or set server.terraform.unlocked_writes");
        return;
    }
    code = change_begin(&change, job, "a write without a lock");
    if (code == BELAY_OK && change.before != NULL) {
        code = check_order(job, change.before);
    }
    if (code == BELAY_OK) {
        code = change_save(&change, job->body, job->body_len, &kept);
        job->body = NULL;
    }
    if (code == BELAY_OK) {
        state_job_etag(job, &kept->tag);
    }
    state_cache_drop(kept);
    change_end(&change, code);
}

void job_tf_delete(struct job *job)
{
    struct terraform_change change;
    struct belay_state_lock lock;
    enum belay_code code = change_begin(&change, job, "removal of the state");

    if (code == BELAY_OK) {
        code = belay_document_remove(job->states, change.key, change_lock(&change, &lock) ? &lock : NULL,
                                     &job->err);
    }
    change_end(&change, code);
}

/* ---- restore ---- */

/* If-Match: whether the document is still the one that the user was shown. */
static enum belay_code check_seen(const struct terraform_change *change)
{
    struct job *job = change->job;
    struct belay_blob_tag tag;

    if (job->if_match == NULL || strcmp(job->if_match, "*") == 0) {
        return BELAY_OK;
    }
    if (change->before != NULL && state_job_read_etag(job, job->if_match, &tag) &&
        strcmp(change->before->tag.text, tag.text) == 0) {
        return BELAY_OK;
    }
    job->status = 412;
    return error_set(&job->err, BELAY_REFUSED,
                     "the Terraform state '%.128s' has changed since it was read; nothing was restored",
                     job->x->key);
}

void job_tf_restore(struct job *job)
{
    struct terraform_change change;
    struct belay_blob old = { 0 };
    json_t *root = json_loadb(job->body, job->body_len, 0, NULL);
    const char *version = json_string_value(json_object_get(root, "version"));
    struct kept *kept = NULL;
    char *text;
    enum belay_code code;

    if (version == NULL) {
        (void)error_set(&job->err, BELAY_INVALID,
                        "the body must have 'version': a name, an index or a timestamp of GET "
                        "/v1/terraform/{name}/versions, as a string");
        json_decref(root);
        return;
    }
    code = change_begin(&change, job, "restore of the state");
    if (code == BELAY_OK) {
        code = check_seen(&change);
    }
    if (code == BELAY_OK) {
        code = belay_document_load_snapshot(job->states, change.key, version, &old, &job->err);
    }
    if (code == BELAY_OK) {
        text = tf_with_serial(old.data, change.before == NULL ? NULL : change.before->text);
        code = text == NULL ? error_no_memory(&job->err) : change_save(&change, text, strlen(text), &kept);
    }
    if (code == BELAY_OK) {
        state_job_answer(job, kept);
    }
    change_end(&change, code);
    belay_blob_release(&old);
    json_decref(root);
}
