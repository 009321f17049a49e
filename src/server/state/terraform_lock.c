/* LOCK and UNLOCK of Terraform's http backend, and the check of the lock before a write. */
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "server/state/terraform.h"
#include "json/json_write.h"

enum { OWN_TTL_MS = 600000, HISTORY_LOOK = 1000, LOCK_ID_BYTES = 20, AGAIN_WAIT_MS = 5000 };

/* ---- names ---- */

const char *tf_key(const char *name, char out[TF_KEY_SIZE])
{
    (void)snprintf(out, TF_KEY_SIZE, "terraform/%.*s", TF_NAME_MAX, name);
    return out;
}

bool tf_id_is_sound(const char *id)
{
    size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");

    return n > 0 && n <= TF_ID_MAX && id[n] == '\0';
}

/*
 * The lock id for an ID of Terraform's. Terraform shows its ID to every client that the lock refuses, and a lock id
 * suffices to release a lock. So with tokens the lock id is a hash of the ID and the token, which no other client can
 * compute.
 */
static const char *lock_id_of(const struct job *job, const char *id, char out[BELAY_ID_MAX + 1])
{
    unsigned char sum[SHA256_DIGEST_LENGTH];
    unsigned char text[AUTH_HASH_BYTES + TF_ID_MAX + 1];
    size_t n = strlen(id);

    if (job->x->who[0] == '\0') {
        (void)snprintf(out, BELAY_ID_MAX + 1, "%s", id);
        return out;
    }
    memcpy(text, job->x->token->hash, AUTH_HASH_BYTES);
    memcpy(text + AUTH_HASH_BYTES, id, n);
    (void)SHA256(text, AUTH_HASH_BYTES + n, sum);
    (void)memcpy(out, "tf-", 3);
    text_hex(out + 3, sum, LOCK_ID_BYTES);
    return out;
}

/* The id of a lock that was acquired again is the old id, a '.' and the fencing token of the lock before. */
static bool is_id_of(const char *lock_id, const char *id)
{
    size_t n = strlen(id);

    return lock_id != NULL && strncmp(lock_id, id, n) == 0 && (lock_id[n] == '\0' || lock_id[n] == '.');
}

/* `lease` of the query, else as configured. BELAY_INVALID: it is malformed. */
static enum belay_code read_lease(struct job *job, int64_t *out_ms)
{
    char text[32];

    if (strstr(job->query, "lease=") == NULL) {
        *out_ms = state_pool_terraform(job->server->states)->lease_ms;
        return BELAY_OK;
    }
    if (job_query(job, "lease", text, sizeof text)) {
        if (strcmp(text, "none") == 0) {
            *out_ms = BELAY_TTL_MAX_MS;
            return BELAY_OK;
        }
        if (belay_parse_duration(text, out_ms) && *out_ms >= BELAY_TTL_MIN_MS &&
            *out_ms <= BELAY_TTL_MAX_MS) {
            return BELAY_OK;
        }
    }
    return error_set(&job->err, BELAY_INVALID, "lease must be a time such as 90s or 6h, or none");
}

/* ---- what Terraform says of a lock ---- */

/* Whether its holder sent this ID with LOCK. */
static bool is_said_id(const struct belay_info *info, const char *id)
{
    const char *sent = meta_find(info->metadata, info->n_metadata, TF_LOCK_META);
    json_t *root = sent == NULL ? NULL : json_loads(sent, 0, NULL);
    const char *said = json_string_value(json_object_get(root, "ID"));
    bool is_same = said != NULL && strcmp(said, id) == 0;

    json_decref(root);
    return is_same;
}

/* Whether the same credential took the lock with this ID, perhaps with an earlier secret. */
static bool is_same_credential(const struct job *job, const struct belay_info *info, const char *id)
{
    char lock_id[BELAY_ID_MAX + 1];

    if (is_id_of(info->lock_id, lock_id_of(job, id, lock_id))) {
        return true;
    }
    return (job->x->who[0] == '\0' ||
            (info->acquired_by != NULL && strcmp(info->acquired_by, job->x->who) == 0)) &&
           is_said_id(info, id);
}

/* A lock in Terraform's form. `id` and `info` are shown to its user. */
static char *describe_lock(const char *id, const char *operation, const char *info, const char *who,
                           int64_t created_unix_ms, const char *path)
{
    return wire_line(json_pack("{s:o, s:s, s:o, s:o, s:s, s:o, s:o}", "ID", wire_text(id), "Operation",
                               operation, "Info", wire_text(info), "Who", wire_text(who), "Version", "",
                               "Created", wire_time(created_unix_ms), "Path", wire_text(path)));
}

/* The text that its holder sent with LOCK, or the equivalent for a lock that was acquired in another way. */
static char *describe_holder(const struct job *job, const struct belay_info *info)
{
    const char *sent = meta_find(info->metadata, info->n_metadata, TF_LOCK_META);
    bool shows_id = info->lock_id != NULL && may_see_id(job->x->role, job->x->who, info);

    return sent != NULL ? strdup(sent)
                        : describe_lock(shows_id ? info->lock_id : info->locked_by, "belay", "",
                                        info->locked_by_name, info->locked_at_unix_ms, info->key);
}

void tf_answer_held(struct job *job)
{
    const struct belay_info *holder = belay_error_holder(&job->err);

    if (job->err.code == BELAY_HELD && holder != NULL) {
        job->answer = describe_holder(job, holder);
        job->status = 423;
    } else if (job->err.code == BELAY_FROZEN) {
        /* Terraform shows this to its user, and no other text. */
        job->answer = describe_lock("frozen", "freeze", job->err.text, "belay", clock_unix_ms(), "");
        job->status = 423;
    }
}

/* The body of LOCK as kept with the lock, and its ID. NULL, and job->err, if it is invalid. */
static json_t *read_lock_body(struct job *job, const char **out_id)
{
    json_t *root = json_loadb(job->body, job->body_len, 0, NULL);
    const char *id = json_string_value(json_object_get(root, "ID"));

    if (id == NULL || !tf_id_is_sound(id)) {
        (void)error_set(
            &job->err, BELAY_INVALID,
            "the body must be Terraform's description of a lock, with an 'ID' of at most %d letters, "
            "digits, '-' and '_'",
            TF_ID_MAX);
        json_decref(root);
        return NULL;
    }
    *out_id = id;
    return root;
}

/* ---- LOCK ---- */

static void make_owner(const struct job *job, const json_t *root, char owner[BELAY_OWNER_MAX + 1],
                       char name[BELAY_OWNER_MAX + 1])
{
    const char *who = json_string_value(json_object_get(root, "Who"));
    int n;

    if (who == NULL || !text_is_clean(who, BELAY_OWNER_MAX - AUTH_NAME_MAX - 3)) {
        who = "terraform";
    }
    (void)snprintf(owner, BELAY_OWNER_MAX + 1, "%s", who);
    n = job->x->who[0] == '\0' ? snprintf(name, BELAY_OWNER_MAX + 1, "%s", who)
                               : snprintf(name, BELAY_OWNER_MAX + 1, "%s (%s)", who, job->x->who);
    (void)n;
}

/* All fields are kept, except strings that do not fit. */
static char *make_kept(json_t *root)
{
    char *text = json_dumps(root, JSON_COMPACT | JSON_ENSURE_ASCII);

    if (text != NULL && strlen(text) > BELAY_META_VALUE_MAX) {
        json_t *less = json_pack("{s:O}", "ID", json_object_get(root, "ID"));

        free(text);
        text = json_dumps(less, JSON_COMPACT | JSON_ENSURE_ASCII);
        json_decref(less);
    }
    return text;
}

static enum belay_code take_tf_lock(struct job *job, const char *id, const struct belay_lock_options *more)
{
    struct belay_lock_options options = *more;
    struct belay_lock *lock = NULL;
    char key[TF_KEY_SIZE];
    enum belay_code code;

    options.lock_id = id;
    options.acquired_by = job->x->who;
    options.durable = true; /* the holder is another process: on disk before the reply */
    options.cancel = job->cancel;
    code = belay_lock_acquire(job->server->client, tf_key(job->x->key, key), &options, &lock, &job->err);
    belay_lock_free(lock);
    return code;
}

void job_tf_lock(struct job *job)
{
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    char owner[BELAY_OWNER_MAX + 1];
    char name[BELAY_OWNER_MAX + 1];
    struct belay_meta meta = { TF_LOCK_META, NULL };
    char lock_id[BELAY_ID_MAX + 1];
    const char *id = NULL;
    char *kept = NULL;
    json_t *root = read_lock_body(job, &id);
    enum belay_code code;

    if (root == NULL || read_lease(job, &options.ttl_ms) != BELAY_OK) {
        json_decref(root);
        return;
    }
    make_owner(job, root, owner, name);
    kept = make_kept(root);
    meta.value = kept;
    options.owner = owner;
    options.owner_name = name;
    options.metadata = &meta;
    options.n_metadata = kept == NULL ? 0 : 1;
    /* A lock that does not fence the state would let two clients apply at once: refuse it. */
    code = state_job_begin(job, job->x->key, NULL);
    if (code == BELAY_OK) {
        code = kept == NULL ? error_no_memory(&job->err)
                            : take_tf_lock(job, lock_id_of(job, id, lock_id), &options);
    }
    state_job_end(job, job->x->key, NULL, code, "terraform");
    if (code == BELAY_OK) {
        job->answer = kept;
        kept = NULL;
    } else {
        tf_answer_held(job);
    }
    free(kept);
    json_decref(root);
}

/* ---- who may write ---- */

static enum belay_code refuse_tf_id(struct job *job, struct belay_info *holder, const char *id,
                                    const char *why)
{
    enum belay_code code = error_set(&job->err, BELAY_NOT_HOLDER,
                                     "'%.44s' does not hold the lock of Terraform's state '%.128s': %s; "
                                     "nothing was changed",
                                     id, job->x->key, why);

    error_set_holder(&job->err, holder);
    return code;
}

/* The lease has expired, but no other client has held the lock since: the holder is late, and gets it again. */
static enum belay_code take_again(struct job *job, const struct belay_info *info, const char *id,
                                  char again[BELAY_ID_MAX + 1])
{
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    char lock_id[BELAY_ID_MAX + 1];

    (void)snprintf(again, BELAY_ID_MAX + 1, "%.47s.%llu", lock_id_of(job, id, lock_id),
                   (unsigned long long)(info->token % 1000000000000000));
    options.ttl_ms = info->ttl_ms;
    options.wait_ms = AGAIN_WAIT_MS; /* a store may grant an expired lock only after a margin for its clock */
    options.owner = info->locked_by;
    options.owner_name = info->locked_by_name;
    options.metadata = info->metadata;
    options.n_metadata = info->n_metadata;
    return take_tf_lock(job, again, &options);
}

/* The lock of the key; refuses `id` if there never was one. */
static enum belay_code find_lock(struct job *job, const char *id, const char *key,
                                 struct belay_info **out_info)
{
    enum belay_code code = belay_get(job->server->client, key, out_info, &job->err);

    return code == BELAY_NOT_FOUND ? refuse_tf_id(job, NULL, id, "it was never acquired") : code;
}

/* The lock that was just acquired again as `again`, if it still is. */
static enum belay_code find_again(struct job *job, const char *id, const char *again, const char *key,
                                  struct belay_info **out_info)
{
    struct belay_info *info = NULL;
    enum belay_code code = find_lock(job, id, key, &info);

    if (code == BELAY_OK && (info->lock_id == NULL || strcmp(info->lock_id, again) != 0)) {
        return refuse_tf_id(job, info, id, "another client has held it since");
    }
    if (code == BELAY_OK) {
        *out_info = info;
    }
    return code;
}

enum belay_code tf_claim(struct job *job, const char *id, struct belay_info **out_info)
{
    struct belay_client *client = job->server->client;
    struct belay_info *info = NULL;
    char key[TF_KEY_SIZE];
    char again[BELAY_ID_MAX + 1];
    enum belay_code code;

    if (!belay_client_locking_enabled(client)) {
        return BELAY_OK;
    }
    code = find_lock(job, id, tf_key(job->x->key, key), &info);
    if (code != BELAY_OK) {
        return code;
    }
    if (!is_same_credential(job, info, id)) {
        return refuse_tf_id(job, info, id,
                            is_said_id(info, id) ? "another token took it"
                                                 : "another client has held it since");
    }
    if (info->status == BELAY_STATUS_RELEASED) {
        return refuse_tf_id(job, info, id,
                            info->outcome == BELAY_OUTCOME_FORCED ? "it was unlocked by force"
                                                                  : "it was unlocked");
    }
    code = info->status == BELAY_STATUS_ACTIVE
               ? belay_renew(client, key, info->lock_id, 0, out_info, &job->err)
               : BELAY_LOST;
    if (code == BELAY_LOST) {
        code = take_again(job, info, id, again);
        if (code == BELAY_OK) {
            code = find_again(job, id, again, key, out_info);
        }
    }
    belay_info_free(info);
    return code;
}

enum belay_code tf_take_own(struct job *job, const char *why, struct belay_lock **out_lock)
{
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    const struct belay_meta meta = { "operation", why };
    char key[TF_KEY_SIZE];

    options.ttl_ms = OWN_TTL_MS;
    options.owner_name = job->by;
    options.acquired_by = job->x->who;
    options.metadata = &meta;
    options.n_metadata = 1;
    options.cancel = job->cancel;
    return belay_lock_acquire(job->server->client, tf_key(job->x->key, key), &options, out_lock, &job->err);
}

/* ---- UNLOCK ---- */

struct release_search {
    const char *id; /* of the lock */
    bool is_released;
};

static bool see_event(void *context, const struct belay_event *event)
{
    struct release_search *search = context;

    if (is_id_of(event->lock_id, search->id) && strcmp(event->type, "lock.released") == 0) {
        search->is_released = true;
    }
    return true;
}

/* Another client holds the lock. The UNLOCK may be repeated, because its reply was lost. */
static enum belay_code was_released(struct job *job, const char *key, const char *id,
                                    struct belay_info *holder)
{
    char lock_id[BELAY_ID_MAX + 1];
    struct release_search search = { lock_id_of(job, id, lock_id), false };
    struct belay_error err = BELAY_ERROR_INIT;

    (void)belay_history(job->server->client, key, HISTORY_LOOK, see_event, &search, &err);
    belay_error_release(&err);
    if (search.is_released) {
        belay_info_free(holder);
        return BELAY_OK;
    }
    return refuse_tf_id(job, holder, id, "another client has held it since");
}

/* The lease has expired. Until the lock is released, its id could still write. */
static enum belay_code release_expired(struct job *job, const char *key, const struct belay_info *info,
                                       const char *id)
{
    char again[BELAY_ID_MAX + 1];
    enum belay_code code = take_again(job, info, id, again);

    if (code == BELAY_OK) {
        code = belay_release(job->server->client, key, again, BELAY_OUTCOME_COMPLETED, NULL, &job->err);
    }
    /* Another client has acquired it: nothing to release. */
    return code == BELAY_HELD || code == BELAY_ID_USED || code == BELAY_LOST ? BELAY_OK : code;
}

/* Release the lock of any holder. */
static enum belay_code force_lock(struct job *job, const char *key, const struct belay_info *info)
{
    enum force_unlock policy = state_pool_terraform(job->server->states)->force_unlock;

    if (policy == FORCE_UNLOCK_NEVER || (policy == FORCE_UNLOCK_ADMIN && job->x->role < ROLE_ADMIN)) {
        return job_forbid(
            job,
            "an UNLOCK without a body, or with the ID of another token's lock, releases the lock of any "
            "holder, "
            "which %s; 'belay unlock %s' names the holder",
            policy == FORCE_UNLOCK_NEVER ? "this server does not permit" : "only an admin may do", key);
    }
    if (info == NULL || info->status != BELAY_STATUS_ACTIVE || info->lock_id == NULL) {
        return BELAY_OK;
    }
    return belay_force_release(job->server->client, key, info->lock_id, job->by, "terraform force-unlock",
                               NULL, &job->err);
}

static enum belay_code release_tf_lock(struct job *job, const char *id)
{
    struct belay_client *client = job->server->client;
    struct belay_info *info = NULL;
    char key[TF_KEY_SIZE];
    enum belay_code code = find_lock(job, id, tf_key(job->x->key, key), &info);

    if (code != BELAY_OK) {
        return code;
    }
    if (!is_same_credential(job, info, id)) {
        if (info->status == BELAY_STATUS_ACTIVE && is_said_id(info, id)) {
            code = force_lock(job, key, info);
            belay_info_free(info);
            return code;
        }
        return was_released(job, key, id, info);
    }
    if (info->status == BELAY_STATUS_ACTIVE) {
        code = belay_release(client, key, info->lock_id, BELAY_OUTCOME_COMPLETED, NULL, &job->err);
    }
    if (code == BELAY_LOST || info->status == BELAY_STATUS_EXPIRED) {
        code = release_expired(job, key, info, id);
    }
    belay_info_free(info);
    return code;
}

/* Terraform's force-unlock sends no body, and so no ID. */
static enum belay_code force_any(struct job *job)
{
    struct belay_info *info = NULL;
    char key[TF_KEY_SIZE];
    enum belay_code code = belay_get(job->server->client, tf_key(job->x->key, key), &info, &job->err);

    if (code == BELAY_OK || code == BELAY_NOT_FOUND) {
        belay_error_release(&job->err);
        code = force_lock(job, key, info);
    }
    belay_info_free(info);
    return code;
}

void job_tf_unlock(struct job *job)
{
    const char *id = NULL;
    json_t *root = job->body_len == 0 ? NULL : read_lock_body(job, &id);
    enum belay_code code;

    if (job->body_len > 0 && root == NULL) {
        return;
    }
    state_pool_enter(job->server->states, job->x->key);
    code = root == NULL ? force_any(job) : release_tf_lock(job, id);
    if (!belay_client_locking_enabled(job->server->client)) {
        belay_error_release(&job->err); /* it may be a lock that was granted while locking is off */
        code = BELAY_OK;
    }
    state_pool_leave(job->server->states, job->x->key);
    if (code == BELAY_OK) {
        job->answer = strdup("{}");
    }
    json_decref(root);
}
