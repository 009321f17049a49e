#include "server/core/json_body.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/suggest.h"
#include "json/flat_json.h"

enum { FIELDS_MAX = 32 };

#define AT(member) offsetof(struct body, member)
#define SPAN_MAX BELAY_TTL_MAX_MS
#define FREEZE_MAX_MS                                                                                        \
    (4000LL * 365 * 24 * 3600 * 1000) /* belay_freeze() refuses to go beyond the year 9999 */

/* The lock, in full or by its parts: BODY_KEY_FIELDS of them. */
/* clang-format off */
#define KEY_FIELDS                                                                                           \
    { "key", BODY_TEXT, false, AT(key), 0, 0, NULL, "the lock's key; or its parts instead" },                \
    { "keys", BODY_KEYS, false, 0, 1, BELAY_KEYS_MAX, NULL,                                                  \
      "several keys instead of one, all at once or none; the answer then has a lock for each" },             \
    { "stack", BODY_TEXT, false, AT(stack), 0, 0, NULL, "the stack; needs environment" },                    \
    { "environment", BODY_TEXT, false, AT(environment), 0, 0, NULL, "the environment" },                     \
    { "service", BODY_TEXT, false, AT(service), 0, 0, NULL, "a service of the stack" },                      \
    { "component", BODY_TEXT, false, AT(component), 0, 0, NULL,                                              \
      "a component of the stack, or for the key template of the profile" }
#define PROFILE_FIELD(about)                                                                                 \
    { "profile", BODY_TEXT, false, AT(profile), 0, 0, NULL, about }
#define OWNER_FIELD                                                                                          \
    { "locked_by", BODY_TEXT, false, AT(locked_by), 0, 0, NULL,                                              \
      "instead of lock_id, if the profile is re-entrant: the owner, with the token that acquired the lock" }

static const struct body_field key_fields[] = { KEY_FIELDS, { .name = NULL } };
const struct body_field acquire_fields[] = {
    KEY_FIELDS,
    PROFILE_FIELD("a profile of the server's configuration, for what is not given here"),
    { "locked_by", BODY_TEXT, true, AT(locked_by), 0, 0, NULL, "the holder: an execution, a job, a person" },
    { "locked_by_name", BODY_TEXT, false, AT(locked_by_name), 0, 0, NULL,
      "its name for people; the name of the token is added to it" },
    { "ttl_ms", BODY_NUMBER, false, AT(ttl_ms), BELAY_TTL_MIN_MS, SPAN_MAX, NULL,
      "how long the lease lasts without a renewal; by default as in the profile of the key, else ten minutes" },
    { "wait_ms", BODY_NUMBER, false, AT(wait_ms), 0, SPAN_MAX, NULL,
      "how long to wait in the queue; at most a third of ttl_ms in one request. By default 0" },
    { "lock_id", BODY_TEXT, false, AT(lock_id), 0, 0, NULL,
      "an id of your own for this acquisition: repeat the request with it to keep the place in the queue, or "
      "after a lost reply" },
    { "heartbeat_ms", BODY_NUMBER, false, AT(heartbeat_ms), 0, SPAN_MAX, NULL,
      "you promise to renew this often; without it the lock is never stale" },
    { "stale_after_ms", BODY_NUMBER, false, AT(stale_after_ms), 0, SPAN_MAX, NULL,
      "shown as stale without a renewal for so long; by default four heartbeats" },
    { "reentrant", BODY_SWITCH, false, AT(reentrant), 0, 0, NULL,
      "the same locked_by gets its live lock again, with the same id and token" },
    { "shared", BODY_SWITCH, false, AT(shared), 0, 0, NULL, "beside other shared holders; not with slots" },
    { "slots", BODY_NUMBER, false, AT(slots), 1, BELAY_HOLDERS_MAX, NULL,
      "at most so many holders at a time; all of them must give the same number" },
    { "correlation_id", BODY_TEXT, false, AT(correlation_id), 0, 0, NULL, "kept with the metadata" },
    { "metadata", BODY_METADATA, false, 0, 0, 0, NULL, "names and values to keep with the lock" },
    { "webhook", BODY_WEBHOOK, false, AT(has_webhook), 0, 0, NULL,
      "reply 202 at once, wait in the server for at most wait_ms, and call this webhook when the lock is granted" },
    { "ignore_freeze", BODY_SWITCH, false, AT(ignore_freeze), 0, 0, NULL,
      "acquire the lock although its key is frozen; for admins, with a reason" },
    { "reason", BODY_TEXT, false, AT(reason), 0, 0, NULL, "why the freeze is ignored, for the audit trail" },
    { .name = NULL },
};

const struct body_field freeze_fields[] = {
    { "pattern", BODY_TEXT, true, AT(pattern), 0, 0, NULL, "the keys to freeze; '*' matches any run of characters" },
    { "reason", BODY_TEXT, true, AT(reason), 0, 0, NULL, "the reason; shown to every client that the freeze refuses" },
    { "by", BODY_TEXT, false, AT(by), 0, 0, NULL, "your name, for people; the name of the token is added to it" },
    { "from", BODY_TEXT, false, AT(from), 0, 0, NULL, "when it begins, RFC 3339; by default now" },
    { "until", BODY_TEXT, false, AT(until), 0, 0, NULL, "when it ends, RFC 3339; by default when it is deleted" },
    { "for_ms", BODY_NUMBER, false, AT(for_ms), 1, FREEZE_MAX_MS, NULL, "how long it lasts, instead of until" },
    { "id", BODY_TEXT, false, AT(id), 0, 0, NULL, "an id of your own: repeat the request with it after a lost reply" },
    { .name = NULL },
};

const struct body_field unfreeze_fields[] = {
    { "reason", BODY_TEXT, false, AT(reason), 0, 0, NULL, "why, for the audit trail" },
    { "by", BODY_TEXT, false, AT(by), 0, 0, NULL, "your name, for people; the name of the token is added to it" },
    { .name = NULL },
};

const struct body_field webhook_fields[] = {
    { "url", BODY_TEXT, true, AT(webhook_url), 0, 0, NULL, "called with the lock, by POST; http or https" },
    { "timeout_ms", BODY_NUMBER, false, AT(webhook_timeout_ms), 100, 60000, NULL,
      "how long one call may take; by default ten seconds" },
    { "secret", BODY_TEXT, false, AT(webhook_secret), 0, 0, NULL,
      "the key that signs the calls; by default the one that the server has for the token" },
    { .name = NULL },
};

const struct body_field adopt_fields[] = {
    KEY_FIELDS,
    PROFILE_FIELD("a profile of the server's configuration: its heartbeat, and its ttl if the store does not keep the lock's"),
    { "lock_id", BODY_TEXT, true, AT(lock_id), 0, 0, NULL, "the lock_id you were given; it is invalid afterwards" },
    { "new_lock_id", BODY_TEXT, false, AT(new_lock_id), 0, 0, NULL,
      "an id of your own for the lock from now on: repeat the request with it after a lost reply" },
    { "locked_by", BODY_TEXT, false, AT(locked_by), 0, 0, NULL, "the new holder; by default unchanged" },
    { "locked_by_name", BODY_TEXT, false, AT(locked_by_name), 0, 0, NULL, "its name for people, with locked_by" },
    { "ttl_ms", BODY_NUMBER, false, AT(ttl_ms), BELAY_TTL_MIN_MS, SPAN_MAX, NULL, "a new ttl; by default it is kept" },
    { "heartbeat_ms", BODY_NUMBER, false, AT(heartbeat_ms), 0, SPAN_MAX, NULL, "you promise to renew this often" },
    { "stale_after_ms", BODY_NUMBER, false, AT(stale_after_ms), 0, SPAN_MAX, NULL,
      "shown as stale without a renewal for so long; by default four heartbeats" },
    { "metadata", BODY_METADATA, false, 0, 0, 0, NULL, "names and values to keep with the lock; by default unchanged" },
    { .name = NULL },
};

const struct body_field renew_fields[] = {
    KEY_FIELDS,
    PROFILE_FIELD("the profile of the lock"),
    { "lock_id", BODY_TEXT, false, AT(lock_id), 0, 0, NULL, "the lock_id that acquire answered" },
    OWNER_FIELD,
    { "ttl_ms", BODY_NUMBER, false, AT(ttl_ms), BELAY_TTL_MIN_MS, SPAN_MAX, NULL, "a new ttl; by default it is kept" },
    { .name = NULL },
};

const struct body_field held_fields[] = {
    KEY_FIELDS,
    PROFILE_FIELD("the profile of the lock, with its parts"),
    { "lock_id", BODY_TEXT, true, AT(lock_id), 0, 0, NULL, "the lock_id that acquire answered" },
    { "wait_ms", BODY_NUMBER, false, AT(wait_ms), 0, 60000, NULL,
      "reply after this time at the latest, if you still hold the lock; by default 0: at once" },
    { .name = NULL },
};

const struct body_field check_fields[] = {
    KEY_FIELDS,
    PROFILE_FIELD("the profile of the lock, with its parts"),
    { "lock_id", BODY_TEXT, false, AT(lock_id), 0, 0, NULL, "it must be the holder's; without it the token decides" },
    { "token", BODY_NUMBER, false, AT(token), 1, INT64_MAX, NULL, "it must be the current one; without it the lock_id decides" },
    { "for_ms", BODY_NUMBER, false, AT(for_ms), 0, SPAN_MAX, NULL,
      "the lock must be valid for at least so long; by default for any time" },
    { .name = NULL },
};

const struct body_field release_fields[] = {
    KEY_FIELDS,
    PROFILE_FIELD("the profile of the lock"),
    { "lock_id", BODY_TEXT, false, AT(lock_id), 0, 0, NULL, "the lock_id that acquire answered" },
    OWNER_FIELD,
    { "outcome", BODY_CHOICE, false, AT(outcome), 0, 0, "completed|failed", "how the work ended; by default completed" },
    { .name = NULL },
};

const struct body_field force_fields[] = {
    { "lock_id", BODY_TEXT, false, AT(lock_id), 0, 0, NULL, "release this lock and no later one; by default the present one" },
    { "reason", BODY_TEXT, false, AT(reason), 0, 0, NULL, "why, for the audit trail" },
    { "by", BODY_TEXT, false, AT(by), 0, 0, NULL, "your name, for people; the name of the token is added to it" },
    { .name = NULL },
};

const struct body_field lost_fields[] = {
    KEY_FIELDS,
    PROFILE_FIELD("the profile of the lock, with its parts"),
    { "lock_id", BODY_TEXT, true, AT(lock_id), 0, 0, NULL, "the lock_id that acquire answered" },
    { "token", BODY_NUMBER, false, AT(token), 0, INT64_MAX, NULL, "its token" },
    { "locked_by", BODY_TEXT, false, AT(locked_by), 0, 0, NULL, "the holder that lost it" },
    { "locked_by_name", BODY_TEXT, false, AT(locked_by_name), 0, 0, NULL, "its name for people" },
    { "reason", BODY_TEXT, false, AT(reason), 0, 0, NULL, "how it was lost" },
    { "metadata", BODY_METADATA, false, 0, 0, 0, NULL, "the lock's metadata, for the event" },
    { .name = NULL },
};
/* clang-format on */

static const struct body_field *body_find_field(const struct body_field *fields, const char *name)
{
    for (; fields->name != NULL; fields++) {
        if (fields->name[0] == name[0] && strcmp(fields->name, name) == 0) {
            return fields;
        }
    }
    return NULL;
}

static enum belay_code say_unknown_field(const struct body_field *fields, const char *name,
                                         struct belay_error *err)
{
    const char *names[FIELDS_MAX];
    struct buf known = BUF_INIT(400);
    const char *nearest;
    size_t n = 0;

    for (; n < FIELDS_MAX && fields[n].name != NULL; n++) {
        names[n] = fields[n].name;
        buf_addf(&known, "%s%s", n == 0 ? "" : ", ", names[n]);
    }
    nearest = suggest_name(name, names, n);
    if (body_find_field(key_fields, name) != NULL) {
        (void)error_set(err, BELAY_INVALID,
                        "there is no field '%s' here, because the path names the lock; give only one of them",
                        name);
    } else if (nearest != NULL) {
        (void)error_set(err, BELAY_INVALID, "there is no field '%.60s'; did you mean '%s'?", name, nearest);
    } else {
        (void)error_set(err, BELAY_INVALID, "there is no field '%.60s'; there are %s", name,
                        known.failed ? "others" : known.data);
    }
    buf_release(&known);
    return BELAY_INVALID;
}

static enum belay_code read_number(const struct body_field *field, const json_t *value, int64_t *out,
                                   struct belay_error *err)
{
    if (!json_is_integer(value)) {
        return error_set(err, BELAY_INVALID, "%s must be a whole number%s", field->name,
                         strstr(field->name, "_ms") != NULL ? " of milliseconds" : "");
    }
    if (json_integer_value(value) < field->min || json_integer_value(value) > field->max) {
        return error_set(err, BELAY_INVALID, "%s is %" PRId64 ": it must be from %" PRId64 " to %" PRId64,
                         field->name, (int64_t)json_integer_value(value), field->min, field->max);
    }
    *out = json_integer_value(value);
    return BELAY_OK;
}

static bool has_choice(const char *choices, const char *word)
{
    size_t len = strlen(word);

    for (const char *at = choices; at != NULL; at = strchr(at, '|')) {
        at += *at == '|';
        if (strncmp(at, word, len) == 0 && (at[len] == '|' || at[len] == '\0')) {
            return len > 0;
        }
    }
    return false;
}

static enum belay_code read_text(const struct body_field *field, const json_t *value, const char **out,
                                 struct belay_error *err)
{
    const char *text = json_string_value(value);

    if (text == NULL) {
        return error_set(err, BELAY_INVALID, "%s must be a string", field->name);
    }
    if (field->type == BODY_CHOICE && !has_choice(field->choices, text)) {
        return error_set(err, BELAY_INVALID, "%s is '%.60s': it must be one of %s", field->name, text,
                         field->choices);
    }
    *out = text;
    return BELAY_OK;
}

static enum belay_code read_metadata_object(struct body *body, json_t *value, struct belay_error *err)
{
    const char *name;
    json_t *item;

    if (!json_is_object(value)) {
        return error_set(err, BELAY_INVALID, "metadata must be an object of strings");
    }
    if (json_object_size(value) > BELAY_META_MAX) {
        return error_set(err, BELAY_INVALID, "%zu entries of metadata; the maximum is %d",
                         json_object_size(value), BELAY_META_MAX);
    }
    json_object_foreach(value, name, item)
    {
        if (!json_is_string(item)) {
            return error_set(err, BELAY_INVALID, "metadata '%.60s' must be a string", name);
        }
        body->metadata[body->n_metadata++] = (struct belay_meta){ name, json_string_value(item) };
    }
    return BELAY_OK;
}

static enum belay_code read_key_array(struct body *body, const json_t *value, struct belay_error *err)
{
    size_t n = json_array_size(value);

    if (!json_is_array(value) || n == 0) {
        return error_set(err, BELAY_INVALID, "keys must be an array of 1 to %d strings", BELAY_KEYS_MAX);
    }
    if (n > BELAY_KEYS_MAX) {
        return error_set(err, BELAY_INVALID, "%zu keys: %d at once are the most", n, BELAY_KEYS_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        const char *key = json_string_value(json_array_get(value, i));

        if (key == NULL || *key == '\0' || strlen(key) > BELAY_KEY_MAX) {
            return error_set(err, BELAY_INVALID, "keys[%zu] must be a string of 1 to %d bytes", i,
                             BELAY_KEY_MAX);
        }
        body->keys[body->n_keys++] = key;
    }
    return BELAY_OK;
}

static enum belay_code read_fields(struct body *body, const struct body_field *fields, json_t *object,
                                   struct belay_error *err);

static enum belay_code read_webhook(struct body *body, json_t *value, struct belay_error *err)
{
    if (!json_is_object(value)) {
        return error_set(err, BELAY_INVALID, "webhook must be an object with a url");
    }
    if (read_fields(body, webhook_fields, value, err) != BELAY_OK) {
        return error_wrap(err, "webhook");
    }
    body->has_webhook = true;
    return BELAY_OK;
}

static enum belay_code read_body_field(struct body *body, const struct body_field *field, json_t *value,
                                       struct belay_error *err)
{
    void *at = (char *)body + field->offset;

    switch (field->type) {
    case BODY_TEXT:
    case BODY_CHOICE:
        return read_text(field, value, at, err);
    case BODY_NUMBER:
        return read_number(field, value, at, err);
    case BODY_METADATA:
        return read_metadata_object(body, value, err);
    case BODY_WEBHOOK:
        return read_webhook(body, value, err);
    case BODY_KEYS:
        return read_key_array(body, value, err);
    case BODY_SWITCH:
        break;
    }
    if (!json_is_boolean(value)) {
        return error_set(err, BELAY_INVALID, "%s must be true or false", field->name);
    }
    *(bool *)at = json_is_true(value);
    return BELAY_OK;
}

static enum belay_code check_required(const json_t *root, const struct body_field *fields,
                                      struct belay_error *err)
{
    for (; fields->name != NULL; fields++) {
        const json_t *value = json_object_get(root, fields->name);

        if (fields->is_required && (value == NULL || json_is_null(value))) {
            return error_set(err, BELAY_INVALID, "%s is missing: %s", fields->name, fields->about);
        }
    }
    return BELAY_OK;
}

static enum belay_code read_fields(struct body *body, const struct body_field *fields, json_t *object,
                                   struct belay_error *err)
{
    enum belay_code code = BELAY_OK;
    const char *name;
    json_t *value;

    json_object_foreach(object, name, value)
    {
        const struct body_field *field = body_find_field(fields, name);

        if (field == NULL) {
            return say_unknown_field(fields, name, err);
        }
        /* null means absent, in requests as in replies. */
        if (!json_is_null(value)) {
            code = read_body_field(body, field, value, err);
        }
        if (code != BELAY_OK) {
            return code;
        }
    }
    return check_required(object, fields, err);
}

static void body_clear(struct body *body)
{
    memset(body, 0, offsetof(struct body, keys));
}

enum belay_code body_read_json(struct body *body, const struct body_field *fields, json_t *root,
                               struct belay_error *err)
{
    body_clear(body);
    body->root = root;
    if (!json_is_object(root)) {
        return error_set(err, BELAY_INVALID, "the body must be a JSON object");
    }
    return read_fields(body, fields, root, err);
}

/* ---- a plain object, as nearly all are ---- */

static bool take_member(struct body *body, const struct body_field *field, const struct flat_member *member)
{
    void *at = (char *)body + field->offset;

    switch (field->type) {
    case BODY_TEXT:
    case BODY_CHOICE:
        *(const char **)at = member->text;
        return member->kind == FLAT_TEXT &&
               (field->type == BODY_TEXT || has_choice(field->choices, member->text));
    case BODY_NUMBER:
        *(int64_t *)at = member->number;
        return member->kind == FLAT_NUMBER && member->number >= field->min && member->number <= field->max;
    case BODY_SWITCH:
        *(bool *)at = member->kind == FLAT_TRUE;
        return member->kind == FLAT_TRUE || member->kind == FLAT_FALSE;
    case BODY_METADATA:
    case BODY_WEBHOOK:
    case BODY_KEYS:
        break;
    }
    return false;
}

/* Read a plain object without building a tree. False if it is not plain or has an error: the tree tells which. */
static bool take_members(struct body *body, const struct body_field *fields, size_t len)
{
    struct flat_json json = { body->text, body->text + len, false };
    struct flat_member member = { 0 };
    enum flat_step step;
    unsigned seen = 0;
    unsigned given = 0;

    while ((step = flat_json_next(&json, &member)) == FLAT_MEMBER) {
        const struct body_field *field = body_find_field(fields, member.name);
        unsigned bit = field == NULL ? 0 : 1U << (field - fields);

        if (field == NULL || (seen & bit) != 0 ||
            (member.kind != FLAT_NULL && !take_member(body, field, &member))) {
            return false;
        }
        seen |= bit;
        given |= member.kind == FLAT_NULL ? 0 : bit;
    }
    for (size_t i = 0; fields[i].name != NULL; i++) {
        if (fields[i].is_required && (given & 1U << i) == 0) {
            return false;
        }
    }
    return step == FLAT_END;
}

enum belay_code body_read(struct body *body, const struct body_field *fields, const char *text, size_t len,
                          struct belay_error *err)
{
    json_error_t why;
    json_t *root;

    body_clear(body);
    body->text = len == 0 ? NULL : malloc(len);
    if (body->text != NULL) {
        memcpy(body->text, text, len);
        if (take_members(body, fields, len)) {
            return BELAY_OK;
        }
        body_release(body);
    }
    root = len == 0 ? json_object() : json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    if (root == NULL) {
        body_clear(body);
        return len == 0 ? error_no_memory(err)
                        : error_set(err, BELAY_INVALID, "the body is not JSON: line %d, column %d: %.150s",
                                    why.line, why.column, why.text);
    }
    return body_read_json(body, fields, root, err);
}

void body_release(struct body *body)
{
    json_decref(body->root);
    free(body->text);
    body->root = NULL;
    body->text = NULL;
}
