#include <assert.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "client/client.h"
#include "config/config.h"

enum { DEFAULT_TTL_MS = 600000, STALE_BEATS = 4 };

/* Not isalnum(): a locale may have letters of its own. */
/* clang-format off */
static const bool is_id_char[256] = {
    ['-'] = 1, ['.'] = 1, ['_'] = 1,
    ['0'] = 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    ['A'] = 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    ['a'] = 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
};
/* clang-format on */

enum belay_code lock_id_check(const char *id, struct belay_error *err)
{
    size_t len = 0;

    while (len <= BELAY_ID_MAX && is_id_char[(unsigned char)id[len]]) {
        len++;
    }
    if (len == 0 || len > BELAY_ID_MAX || id[len] != '\0') {
        return error_set(err, BELAY_INVALID,
                         "'%.80s' is not a lock id: 1 to %d letters, digits, '-', '_' or '.'", id,
                         BELAY_ID_MAX);
    }
    return BELAY_OK;
}

/* First of all: request_release() is for requests that were refused, too. The rest is room for what it may borrow. */
static void request_clear(struct client_request *request)
{
    memset(&request->op, 0, sizeof request->op);
    request->joint = NULL;
    request->profile = NULL;
}

enum belay_code request_init(struct client_request *request, struct belay_client *client, enum op_kind kind,
                             const char *key, const char *lock_id, struct belay_error *err)
{
    struct config_key form = { .n_above = 0 };
    enum belay_code code;

    request_clear(request);
    if (lock_id == NULL && (kind == OP_RENEW || kind == OP_RELEASE || kind == OP_FORCE)) {
        return error_set(err, BELAY_INVALID, "no lock id: say whose lock it is");
    }
    if (key == NULL) {
        return error_set(err, BELAY_INVALID, "no key: say which lock");
    }
    code = lock_id == NULL ? BELAY_OK : lock_id_check(lock_id, err);
    if (code == BELAY_OK) {
        code = config_read_key(client->config, key, &form, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    request->op.kind = kind;
    request->op.key = key;
    request->op.lock_id = lock_id;
    request->op.began_unix_ms = clock_unix_ms();
    request->op.began_ms = clock_boot_ms();
    request->op.capabilities = client_capabilities(client);
    request->profile = form.profile;
    assert(form.n_above <= BELAY_ANCESTORS_MAX);
    request->op.n_ancestors = form.n_above;
    for (size_t i = 0; i < form.n_above; i++) {
        (void)snprintf(request->ancestors[i], sizeof request->ancestors[i], "%s", form.above[i]);
        request->op.ancestors[i] = request->ancestors[i];
    }
    config_key_release(&form);
    request->op.seed = atomic_fetch_add(&client->seed, 0x9e3779b97f4a7c15U);
    return BELAY_OK;
}

/* ---- several keys ---- */

size_t joint_text_size(const struct op_joint *joint)
{
    size_t size = 0;

    for (size_t i = 0; i < joint->n_keys; i++) {
        size += text_room(joint->keys[i]);
    }
    for (size_t i = 0; i < joint->n_ancestors; i++) {
        size += text_room(joint->ancestors[i]);
    }
    return size;
}

void joint_keep_texts(struct op_joint *joint, char **at)
{
    for (size_t i = 0; i < joint->n_keys; i++) {
        joint->keys[i] = text_place(at, joint->keys[i]);
    }
    for (size_t i = 0; i < joint->n_ancestors; i++) {
        joint->ancestors[i] = text_place(at, joint->ancestors[i]);
    }
}

struct op_joint *joint_copy(const struct op_joint *joint)
{
    struct op_joint *copy = malloc(sizeof *copy + joint_text_size(joint));

    if (copy != NULL) {
        char *at = (char *)(copy + 1);

        *copy = *joint;
        joint_keep_texts(copy, &at);
    }
    return copy;
}

/* An ancestor of key number `target`, which others may have, too. */
static void add_ancestor(struct op_joint *joint, const char *ancestor, size_t target)
{
    size_t i = 0;

    while (i < joint->n_ancestors && strcmp(joint->ancestors[i], ancestor) != 0) {
        i++;
    }
    assert(target < joint->n_keys && joint->n_keys <= BELAY_KEYS_MAX);
    if (i == joint->n_ancestors) {
        assert(joint->n_ancestors < OP_ANCESTORS_MAX);
        joint->ancestors[joint->n_ancestors++] = ancestor;
        joint->below[i] = 0;
    }
    joint->below[i] = (uint16_t)(joint->below[i] | 1U << target);
}

/* Each key once, and none above another: the lock above is all that is needed. */
static enum belay_code check_joint(const struct op_joint *joint, struct belay_error *err)
{
    for (size_t i = 0; i < joint->n_keys; i++) {
        for (size_t k = 0; k < i; k++) {
            if (strcmp(joint->keys[i], joint->keys[k]) == 0) {
                return error_set(err, BELAY_INVALID, "the key '%.200s' is given twice", joint->keys[i]);
            }
        }
        for (size_t k = 0; k < joint->n_ancestors; k++) {
            if (strcmp(joint->keys[i], joint->ancestors[k]) == 0) {
                return error_set(
                    err, BELAY_INVALID,
                    "the key '%.200s' is above another one that is given: leave out the lower one",
                    joint->keys[i]);
            }
        }
    }
    return BELAY_OK;
}

enum belay_code request_add_keys(struct client_request *request, struct belay_client *client,
                                 const char *const *more_keys, size_t n, struct belay_error *err)
{
    struct op_joint joint = { .n_keys = 1 + n };
    struct config_key forms[BELAY_KEYS_MAX] = { { .n_above = 0 } };
    enum belay_code code = BELAY_OK;

    if (n == 0) {
        return BELAY_OK;
    }
    if (n + 1 > BELAY_KEYS_MAX) {
        return error_set(err, BELAY_INVALID, "%zu keys: %d at once are the most", n + 1, BELAY_KEYS_MAX);
    }
    joint.keys[0] = request->op.key;
    for (size_t i = 0; i < request->op.n_ancestors; i++) {
        add_ancestor(&joint, request->op.ancestors[i], 0);
    }
    for (size_t i = 0; code == BELAY_OK && i < n; i++) {
        joint.keys[1 + i] = more_keys[i];
        code = more_keys[i] == NULL ? error_set(err, BELAY_INVALID, "no key: say which lock")
                                    : config_read_key(client->config, more_keys[i], &forms[i], err);
        if (code == BELAY_OK) {
            code = config_check_lists(forms[i].profile, more_keys[i], err);
        }
        for (size_t k = 0; code == BELAY_OK && k < forms[i].n_above; k++) {
            add_ancestor(&joint, forms[i].above[k], 1 + i);
        }
    }
    if (code == BELAY_OK) {
        code = check_joint(&joint, err);
    }
    if (code == BELAY_OK) {
        request->joint = joint_copy(&joint);
        request->op.joint = request->joint;
        code = request->joint == NULL ? error_no_memory(err) : BELAY_OK;
    }
    for (size_t i = 0; i < n; i++) {
        config_key_release(&forms[i]);
    }
    return code;
}

void request_release(struct client_request *request)
{
    free(request->joint);
    request->joint = NULL;
    request->op.joint = NULL;
}

/* ---- the owner, metadata and times ---- */

/* The environment is asked first: the user database may be on a network. */
static const char *user_name(char *space, size_t size)
{
    static const char *const names[] = { "USER", "LOGNAME" };
    struct passwd entry;
    struct passwd *found = NULL;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *user = getenv(names[i]);

        if (user != NULL && text_is_clean(user, 100)) {
            return user;
        }
    }
    if (getpwuid_r(geteuid(), &entry, space, size, &found) == 0 && found != NULL) {
        return entry.pw_name;
    }
    return "unknown";
}

/* "user@host", for people. Asked of the system once: it is most of what an acquire would cost. */
const char *client_user_name(struct belay_client *client)
{
    char host[128] = "localhost";
    char space[2048];

    (void)pthread_mutex_lock(&client->mutex);
    if (client->user[0] == '\0') {
        (void)gethostname(host, sizeof host - 1);
        (void)snprintf(client->user, sizeof client->user, "%.100s@%.100s", user_name(space, sizeof space),
                       host);
    }
    (void)pthread_mutex_unlock(&client->mutex);
    return client->user;
}

enum belay_code client_check_text(const char *what, const char *text, size_t max, struct belay_error *err)
{
    return text_is_clean(text, max)
               ? BELAY_OK
               : error_set(err, BELAY_INVALID,
                           "the %s '%.80s' is not 1 to %zu bytes of UTF-8 without control characters", what,
                           text, max);
}

static enum belay_code fill_owner(struct client_request *request, struct belay_client *client,
                                  const struct belay_lock_options *options, struct belay_error *err)
{
    enum belay_code code = BELAY_OK;

    request->op.owner_name = options->owner_name;
    if (options->owner_name == NULL) {
        request->op.owner_name = client_user_name(client);
    } else {
        code = client_check_text("owner's name", options->owner_name, BELAY_OWNER_MAX, err);
    }
    if (code == BELAY_OK && options->owner != NULL) {
        request->op.owner = options->owner;
        code = client_check_text("owner", options->owner, BELAY_OWNER_MAX, err);
    } else if (options->owner == NULL) {
        (void)snprintf(request->owner, sizeof request->owner, "%.200s:%ld:%04x", client_user_name(client),
                       (long)getpid(), (unsigned)(request->op.seed & 0xffff));
        request->op.owner = request->owner;
    }
    if (code == BELAY_OK && options->acquired_by != NULL && options->acquired_by[0] != '\0') {
        request->op.acquired_by = options->acquired_by;
        code = client_check_text("credential", options->acquired_by, BELAY_OWNER_MAX, err);
    }
    return code;
}

/*
 * A made-up name is no person's address: neither user@host, nor what a server says for a client that gave no name,
 * which is its credential or its owner.
 */
static bool names_person(const struct belay_lock_options *options)
{
    const char *name = options->owner_name;

    if (name == NULL || options->acquired_by == NULL) {
        return name != NULL;
    }
    return strcmp(name, options->acquired_by) != 0 &&
           (options->owner == NULL || strcmp(name, options->owner) != 0);
}

static enum belay_code check_person(const struct client_request *request,
                                    const struct belay_lock_options *options, struct belay_error *err)
{
    const char *meta = request->op.capabilities.owner_name_meta;

    for (size_t i = 0; meta != NULL && i < options->n_metadata; i++) {
        if (strcmp(options->metadata[i].name, meta) == 0 && options->metadata[i].value[0] != '\0') {
            return BELAY_OK;
        }
    }
    if (meta == NULL || names_person(options)) {
        return BELAY_OK;
    }
    if (options->acquired_by != NULL) {
        return error_set(
            err, BELAY_INVALID,
            "no %s: this layout keeps one with every lock; give it in metadata, or locked_by_name", meta);
    }
    return error_set(err, BELAY_INVALID,
                     "no %s: this layout keeps one with every lock; give --meta %s=ADDRESS, or --owner-name",
                     meta, meta);
}

static bool meta_value_is_right(const char *value)
{
    return value[0] == '\0' || text_is_clean(value, BELAY_META_VALUE_MAX);
}

enum belay_code metadata_check(const struct belay_meta *metadata, size_t n, struct belay_error *err)
{
    if (n > BELAY_META_MAX) {
        return error_set(err, BELAY_INVALID, "%zu entries of metadata: %d are the most", n, BELAY_META_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        const struct belay_meta *meta = &metadata[i];

        if (!text_is_clean(meta->name, BELAY_META_NAME_MAX) || !meta_value_is_right(meta->value)) {
            return error_set(err, BELAY_INVALID,
                             "metadata '%.60s': a name is 1 to %d and a value 0 to %d bytes of UTF-8 without "
                             "control characters",
                             meta->name, BELAY_META_NAME_MAX, BELAY_META_VALUE_MAX);
        }
        for (size_t k = 0; k < i; k++) {
            if (strcmp(metadata[k].name, meta->name) == 0) {
                return error_set(err, BELAY_INVALID, "metadata '%.60s' is given twice", meta->name);
            }
        }
    }
    return BELAY_OK;
}

static enum belay_code fill_metadata(struct client_request *request, const struct belay_lock_options *options,
                                     struct belay_error *err)
{
    size_t n = options->n_metadata;

    if (n == 0 && options->correlation_id == NULL) {
        return BELAY_OK;
    }
    if (n + (options->correlation_id != NULL) > BELAY_META_MAX) {
        return error_set(err, BELAY_INVALID, "%zu entries of metadata: %d are the most", n, BELAY_META_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        request->metadata[i] = options->metadata[i];
    }
    if (options->correlation_id != NULL) {
        request->metadata[n++] = (struct belay_meta){ "correlation_id", options->correlation_id };
    }
    request->op.metadata = request->metadata;
    request->op.n_metadata = n;
    return metadata_check(request->metadata, n, err);
}

/* Of half the margin's ttl little more is left than clocks may differ by: it could not be kept alive. */
static enum belay_code check_ttl_range(int64_t ttl_ms, const struct belay_store_capabilities *capabilities,
                                       struct belay_error *err)
{
    char ttl[CLOCK_TEXT_SIZE], least[CLOCK_TEXT_SIZE];

    if (ttl_ms < BELAY_TTL_MIN_MS || ttl_ms > BELAY_TTL_MAX_MS) {
        return error_set(err, BELAY_INVALID, "a ttl of %s: it must be from %s to 366 days",
                         clock_format_duration(ttl, ttl_ms), clock_format_duration(least, BELAY_TTL_MIN_MS));
    }
    if (ttl_ms <= capabilities->margin_ms * 2) {
        return error_set(err, BELAY_INVALID, "a ttl of %s: on this store it must be over %s",
                         clock_format_duration(ttl, ttl_ms),
                         clock_format_duration(least, capabilities->margin_ms * 2));
    }
    return BELAY_OK;
}

static const char *slots_text(int slots, char out[32])
{
    if (slots == 0) {
        return "is exclusive";
    }
    (void)snprintf(out, 32, "has %d slots", slots);
    return out;
}

/* The locks of one request are held alike: keys whose profiles differ are not acquired together. */
static enum belay_code check_profiles(const struct client_request *request, const struct belay_client *client,
                                      const struct belay_lock_options *options, struct belay_error *err)
{
    bool is_said = options->slots != 0 || options->shared;
    int slots = request->op.slots;

    for (size_t i = 0; !is_said && i < options->n_more_keys; i++) {
        const char *key = options->more_keys[i];
        struct belay_profile profile;
        char one[32];
        char other[32];
        enum belay_code code = belay_key_profile(client->config, NULL, key, &profile, err);

        if (code != BELAY_OK) {
            return code;
        }
        if (profile.slots != slots) {
            return error_set(
                err, BELAY_INVALID,
                "by their profiles '%s' %s and '%s' %s: acquire them one by one, or say how many "
                "slots (--slots)",
                request->op.key, slots_text(slots, one), key, slots_text(profile.slots, other));
        }
    }
    return BELAY_OK;
}

/* How the lock is to be held, and whether the store can keep it so. */
static enum belay_code fill_mode(struct client_request *request, const struct belay_lock_options *options,
                                 struct belay_error *err)
{
    struct op_request *op = &request->op;
    bool is_plain;

    if (options->shared && options->slots != 0) {
        return error_set(err, BELAY_INVALID, "a lock is shared or has slots: say one of them");
    }
    if (op->slots < 0 || op->slots > BELAY_HOLDERS_MAX) {
        return error_set(err, BELAY_INVALID, "%d slots: a lock has from 1 to %d", op->slots,
                         BELAY_HOLDERS_MAX);
    }
    op->mode = options->shared ? BELAY_SHARED : op->slots > 0 ? BELAY_SLOTS : BELAY_EXCLUSIVE;
    is_plain = op->mode == BELAY_EXCLUSIVE && op->joint == NULL;
    if (!is_plain && !op->capabilities.has_modes) {
        return error_set(err, BELAY_INVALID,
                         "this store keeps exclusive locks on one key at a time: no shared locks, slots or "
                         "several keys");
    }
    if (op->joint != NULL && options->reentrant) {
        return error_set(err, BELAY_INVALID, "several keys cannot be re-entered: acquire them one by one");
    }
    return BELAY_OK;
}

static enum belay_code fill_times(struct client_request *request, const struct belay_lock_options *options,
                                  struct belay_error *err)
{
    struct op_request *op = &request->op;
    bool keeps_ttl = op->ttl_ms == 0; /* an adopted lock, whose ttl only the store knows */
    enum belay_code code = keeps_ttl ? BELAY_OK : check_ttl_range(op->ttl_ms, &op->capabilities, err);

    if (code != BELAY_OK) {
        return code;
    }
    if (options->heartbeat_ms < 0 || options->heartbeat_ms >= (keeps_ttl ? BELAY_TTL_MAX_MS : op->ttl_ms)) {
        char heartbeat[CLOCK_TEXT_SIZE], ttl[CLOCK_TEXT_SIZE];

        return error_set(err, BELAY_INVALID, "a heartbeat every %s: it must be shorter than the ttl, %s",
                         clock_format_duration(heartbeat, options->heartbeat_ms),
                         clock_format_duration(ttl, keeps_ttl ? BELAY_TTL_MAX_MS : op->ttl_ms));
    }
    if (options->attempts < 0 || options->stale_after_ms < 0) {
        return error_set(err, BELAY_INVALID, "attempts and stale_after must not be negative");
    }
    op->heartbeat_ms = options->heartbeat_ms;
    op->stale_after_ms =
        options->stale_after_ms == 0 ? STALE_BEATS * options->heartbeat_ms : options->stale_after_ms;
    op->wait_ms = options->wait_ms;
    op->attempts = options->attempts;
    return BELAY_OK;
}

static enum belay_code make_lock_id(struct client_request *request, const struct belay_client *client,
                                    struct belay_error *err)
{
    static const char mark[] = UNPROTECTED_PREFIX;
    size_t n = client->enabled ? 0 : sizeof mark - 1;

    memcpy(request->id, mark, n);
    if (!uuid_make_at(request->op.began_unix_ms, request->id + n)) {
        return error_set(err, BELAY_BUG, "the system gives no random bytes");
    }
    request->op.lock_id = request->id;
    request->op.id_is_fresh = true;
    return BELAY_OK;
}

/* The event of the acquisition says that no freeze was considered, and why. */
static enum belay_code fill_reason(struct client_request *request, const struct belay_lock_options *options,
                                   struct belay_error *err)
{
    if (options->ignore_reason == NULL || !text_is_clean(options->ignore_reason, BELAY_REASON_MAX)) {
        return error_set(err, BELAY_INVALID,
                         "to ignore a freeze needs a reason of 1 to %d bytes of UTF-8 without control "
                         "characters",
                         BELAY_REASON_MAX);
    }
    (void)snprintf(request->reason, sizeof request->reason, FREEZE_IGNORED "%s", options->ignore_reason);
    request->op.reason = request->reason;
    request->op.ignore_freeze = true;
    return BELAY_OK;
}

/* An acquire; with is_adopting an adopt, which keeps what the lock has. */
static enum belay_code init_lock(struct client_request *request, struct belay_client *client, const char *key,
                                 const struct belay_lock_options *options, bool is_adopting,
                                 struct belay_error *err)
{
    struct belay_profile profile = { .ttl_ms = 0 };
    enum belay_code code =
        request_init(request, client, is_adopting ? OP_ADOPT : OP_ACQUIRE, key, options->lock_id, err);

    if (code == BELAY_OK && !is_adopting) {
        /* A key that fits a template is that profile's lock: its lists bind, and its ttl is the default. */
        code = config_check_lists(request->profile, key, err);
        if (request->profile != NULL) {
            profile = request->profile->values;
        }
        profile.ttl_ms = profile.ttl_ms == 0 ? DEFAULT_TTL_MS : profile.ttl_ms;
    }
    if (code != BELAY_OK) {
        return code;
    }
    request->op.ttl_ms = options->ttl_ms == 0 ? profile.ttl_ms : options->ttl_ms; /* 0: as adopted */
    request->op.slots = options->slots != 0 || options->shared ? options->slots : profile.slots;
    if (options->lock_id == NULL) {
        code = make_lock_id(request, client, err);
    } else if (client->enabled && id_is_unprotected(options->lock_id)) {
        code = error_set(err, BELAY_INVALID,
                         "the lock id '%.80s' is of a lock that was granted while locking was switched off: "
                         "leave it out",
                         options->lock_id);
    }
    if (code == BELAY_OK && options->reentrant && options->owner == NULL && !is_adopting) {
        code = error_set(err, BELAY_INVALID,
                         "a re-entrant lock needs an owner: the same owner may acquire it again");
    }
    if (code == BELAY_OK && !is_adopting) {
        code = check_person(request, options, err);
    }
    if (code == BELAY_OK) {
        code = fill_owner(request, client, options, err);
    }
    if (code == BELAY_OK) {
        code = fill_metadata(request, options, err);
    }
    if (code == BELAY_OK) {
        code = request_add_keys(request, client, options->more_keys, options->n_more_keys, err);
    }
    if (code == BELAY_OK && !is_adopting) {
        code = check_profiles(request, client, options, err);
    }
    if (code == BELAY_OK && !is_adopting) {
        code = fill_mode(request, options, err);
    }
    if (code == BELAY_OK) {
        code = fill_times(request, options, err);
    }
    if (code == BELAY_OK && options->ignore_freeze && !is_adopting) {
        code = fill_reason(request, options, err);
    }
    request->op.reentrant = options->reentrant;
    request->op.durable = options->durable;
    request->op.stepped_backoff = options->stepped_backoff;
    return code;
}

enum belay_code request_init_acquire(struct client_request *request, struct belay_client *client,
                                     const char *key, const struct belay_lock_options *options,
                                     struct belay_error *err)
{
    return init_lock(request, client, key, options, false, err);
}

enum belay_code request_init_wait(struct client_request *request, struct belay_client *client,
                                  const char *key, const struct belay_lock_options *options,
                                  struct belay_error *err)
{
    enum belay_code code = request_init(request, client, OP_ACQUIRE, key, "-", err);

    if (code == BELAY_OK) {
        request->op.slots = options->slots;
        code = fill_mode(request, options, err);
    }
    return code;
}

/* Of the profile that the key belongs to; 0: of none. For stores that keep no ttl. Its lists do not matter here. */
static int64_t ttl_of_profile_ms(const struct client_request *request)
{
    return request->profile == NULL ? 0 : request->profile->values.ttl_ms;
}

enum belay_code request_init_adopt(struct client_request *request, struct belay_client *client,
                                   const char *key, const char *lock_id,
                                   const struct belay_lock_options *options, struct belay_error *err)
{
    enum belay_code code;

    request_clear(request);
    if (lock_id == NULL) {
        return error_set(err, BELAY_INVALID, "no lock id: say which lock to adopt");
    }
    code = lock_id_check(lock_id, err);
    if (code == BELAY_OK && options->lock_id != NULL && strcmp(options->lock_id, lock_id) == 0) {
        /* Of two clients that were given the id, both would succeed. */
        code =
            error_set(err, BELAY_INVALID,
                      "the new lock id is the one to adopt, '%s': choose another, or leave it out", lock_id);
    }
    if (code == BELAY_OK) {
        code = init_lock(request, client, key, options, true, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    request->op.old_id = lock_id;
    request->op.slots = 0; /* it keeps its mode, which the record shows */
    request->op.ttl_if_unknown_ms = options->ttl_ms == 0 ? ttl_of_profile_ms(request) : 0;
    if (options->owner == NULL) {
        request->op.owner = NULL;
    }
    return BELAY_OK;
}

enum belay_code request_init_renew(struct client_request *request, struct belay_client *client,
                                   const char *key, const char *lock_id, int64_t ttl_ms,
                                   struct belay_error *err)
{
    enum belay_code code = request_init(request, client, OP_RENEW, key, lock_id, err);

    if (code == BELAY_OK && ttl_ms != 0) {
        code = check_ttl_range(ttl_ms, &request->op.capabilities, err);
    }
    if (code == BELAY_OK) {
        request->op.ttl_ms = ttl_ms;
        request->op.ttl_if_unknown_ms = ttl_ms == 0 ? ttl_of_profile_ms(request) : 0;
    }
    return code;
}

enum belay_code request_init_release(struct client_request *request, struct belay_client *client,
                                     const char *key, const char *lock_id, enum belay_outcome outcome,
                                     struct belay_error *err)
{
    enum belay_code code = request_init(request, client, OP_RELEASE, key, lock_id, err);

    request->op.outcome = outcome == BELAY_OUTCOME_NONE ? BELAY_OUTCOME_COMPLETED : outcome;
    return code;
}

enum belay_code request_init_force(struct client_request *request, struct belay_client *client,
                                   const char *key, const char *lock_id, const char *by, const char *reason,
                                   struct belay_error *err)
{
    enum belay_code code = request_init(request, client, OP_FORCE, key, lock_id, err);

    if (code == BELAY_OK && reason != NULL && !text_is_clean(reason, BELAY_REASON_MAX)) {
        code = error_set(err, BELAY_INVALID,
                         "the reason must be 1 to %d bytes of UTF-8 without control characters",
                         BELAY_REASON_MAX);
    }
    request->op.by = by;
    request->op.reason = reason;
    return code;
}
