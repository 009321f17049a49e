#include "json/json_write.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/utf8.h"
#include "json/lock_fields.h"

/* jansson refuses a string that is not UTF-8. */
static char *replace_invalid(const char *text)
{
    struct buf out = BUF_INIT((size_t)1 << 24);

    while (*text != '\0') {
        uint32_t point;
        size_t n = utf8_read(text, UTF8_MAX, &point);

        buf_add(&out, n == 0 ? UTF8_REPLACEMENT : text, n == 0 ? strlen(UTF8_REPLACEMENT) : n);
        text += n == 0 ? 1 : n;
    }
    return buf_take(&out);
}

json_t *wire_text(const char *text)
{
    json_t *value;
    char *replaced;

    if (text == NULL) {
        return json_null();
    }
    value = json_string(text);
    if (value == NULL && (replaced = replace_invalid(text)) != NULL) {
        value = json_string(replaced);
        free(replaced);
    }
    return value;
}

json_t *wire_time(int64_t unix_ms)
{
    char text[CLOCK_TEXT_SIZE];

    return unix_ms == 0 ? json_null() : json_string(clock_format_utc(text, unix_ms, true));
}

static json_t *wire_token(uint64_t token)
{
    return token == 0 || token > INT64_MAX ? json_null() : json_integer((json_int_t)token);
}

/* A whole number of seconds stays one. */
static json_t *wire_seconds(int64_t ms)
{
    if (ms < 0) {
        return json_null();
    }
    return ms % 1000 == 0 ? json_integer(ms / 1000) : json_real((double)ms / 1000.0);
}

static json_t *wire_metadata(const struct belay_meta *metadata, size_t n)
{
    json_t *object = json_object();

    for (size_t i = 0; object != NULL && i < n; i++) {
        json_t *name = wire_text(metadata[i].name);

        if (name == NULL ||
            json_object_set_new(object, json_string_value(name), wire_text(metadata[i].value)) != 0) {
            json_decref(object);
            object = NULL;
        }
        json_decref(name);
    }
    return object;
}

struct field {
    const char *name;
    json_t *value;
};

/* An object of the fields in their order; takes over every value. NULL if any of them is NULL. */
static json_t *wire_object(const struct field *fields, size_t n)
{
    json_t *object = json_object();
    bool failed = object == NULL;

    for (size_t i = 0; i < n; i++) {
        if (failed || fields[i].value == NULL) {
            json_decref(fields[i].value);
            failed = true;
        } else {
            failed = json_object_set_new(object, fields[i].name, fields[i].value) != 0;
        }
    }
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}
#define WIRE_OBJECT(fields) wire_object(fields, sizeof(fields) / sizeof((fields)[0]))

/* An entry of "holders". It has the fields of a lock, except those that all its holders have in common. */
static json_t *wire_holder(const struct belay_info *info)
{
    /* Locking is disabled: there is a key, and an id that 'release' accepts. */
    bool none = info->status == BELAY_STATUS_NONE;
    const struct field fields[] = {
        { "lock_id", wire_text(info->lock_id) },
        { "token", wire_token(none ? 0 : info->token) },
        { "locked_by", wire_text(none ? NULL : lock_known_name(info->locked_by)) },
        { "locked_by_name", wire_text(none ? NULL : lock_known_name(info->locked_by_name)) },
        { "acquired_by", wire_text(none ? NULL : info->acquired_by) },
        { "status", wire_text(none ? NULL : belay_status_name(info->status)) },
        { "outcome", wire_text(belay_outcome_name(info->outcome)) },
        { "locked_at", wire_time(none ? 0 : info->locked_at_unix_ms) },
        { "expires_at", wire_time(none ? 0 : info->expires_at_unix_ms) },
        { "last_heartbeat", wire_time(info->last_heartbeat_unix_ms) },
        { "ttl_ms", none || info->ttl_ms == 0 ? json_null() : json_integer(info->ttl_ms) },
        { "expires_in_ms", none ? json_null() : json_integer(info->expires_in_ms) },
        { "valid_for_ms", none || info->valid_for_ms < 0 ? json_null() : json_integer(info->valid_for_ms) },
        { "is_stale", json_boolean(info->is_stale) },
        { "metadata", wire_metadata(info->metadata, info->n_metadata) },
    };

    return WIRE_OBJECT(fields);
}

/* One entry for an exclusive lock; none if it is not held. */
static json_t *wire_holders(const struct belay_info *info)
{
    json_t *holders = json_array();

    for (size_t i = 0; i < info->n_holders; i++) {
        (void)json_array_append_new(holders, wire_holder(&info->holders[i]));
    }
    if (lock_is_held(info) && info->n_holders == 0) {
        (void)json_array_append_new(holders, wire_holder(info));
    }
    return holders;
}

static json_t *wire_queue(const struct belay_info *info)
{
    json_t *waiting = info->has_queue ? json_array() : json_null();

    for (size_t i = 0; info->has_queue && i < info->n_waiters; i++) {
        (void)json_array_append_new(waiting, wire_waiter(&info->waiters[i], i));
    }
    return waiting;
}

json_t *wire_lock(const struct belay_info *info)
{
    const struct field key[] = { { "key", wire_text(info->key) } };
    const struct field fields[] = {
        { "released_at", wire_time(lock_released_at(info)) },
        { "mode", wire_text(belay_mode_name(info->mode)) },
        { "slots", info->slots == 0 ? json_null() : json_integer(info->slots) },
        { "holders", wire_holders(info) },
        { "waiting", wire_queue(info) },
    };
    json_t *lock = WIRE_OBJECT(key);
    json_t *holder = wire_holder(info);
    json_t *rest = WIRE_OBJECT(fields);

    if (lock == NULL || json_object_update(lock, holder) != 0 || json_object_update(lock, rest) != 0) {
        json_decref(lock);
        lock = NULL;
    }
    json_decref(holder);
    json_decref(rest);
    return lock;
}

json_t *wire_grant(const struct belay_info *info)
{
    struct belay_info shown = *info;
    json_t *lock;
    json_t *holders;
    int failed = 0;

    shown.n_holders = info->n_holders < WIRE_HOLDERS_SHOWN ? info->n_holders : WIRE_HOLDERS_SHOWN;
    lock = wire_lock(&shown);
    holders = json_object_get(lock, "holders");
    for (size_t i = 0; failed == 0 && i < info->n_holders; i++) {
        if (i < shown.n_holders && !lock_is_own_holder(info, &info->holders[i])) {
            failed = json_object_set_new(json_array_get(holders, i), "lock_id", json_null());
        } else if (i >= shown.n_holders && lock_is_own_holder(info, &info->holders[i])) {
            failed = json_array_set_new(holders, shown.n_holders - 1, wire_holder(&info->holders[i]));
        }
    }
    if (failed != 0) {
        json_decref(lock);
        return NULL;
    }
    return lock;
}

json_t *wire_grants(const struct belay_info *info)
{
    json_t *locks = json_array();
    int failed = json_array_append_new(locks, wire_grant(info));

    assert(info->n_joint < BELAY_KEYS_MAX);
    for (size_t i = 0; failed == 0 && i < info->n_joint; i++) {
        failed = json_array_append_new(locks, wire_grant(&info->joint[i]));
    }
    if (failed != 0) {
        json_decref(locks);
        return NULL;
    }
    return json_pack("{s:O, s:o}", "lock_id", json_object_get(json_array_get(locks, 0), "lock_id"), "locks",
                     locks);
}

json_t *wire_waiter(const struct belay_waiter *waiter, size_t position)
{
    const struct field fields[] = {
        { "position", json_integer((json_int_t)position) },
        { "key", wire_text(waiter->key) },
        { "locked_by", wire_text(waiter->locked_by) },
        { "locked_by_name", wire_text(waiter->locked_by_name) },
        { "since", wire_time(waiter->since_unix_ms) },
        { "mode", wire_text(belay_mode_name(waiter->mode)) },
    };

    return WIRE_OBJECT(fields);
}

json_t *wire_event(const struct belay_event *event)
{
    const struct field fields[] = {
        { "id", event->id == 0 ? json_null() : json_integer((json_int_t)event->id) },
        { "timestamp", wire_time(event->at_unix_ms) },
        { "level", wire_text(event->level == BELAY_LEVEL_WARNING ? "WARN" : "INFO") },
        { "event", wire_text(event->type) },
        { "lock_key", wire_text(event->key) },
        { "lock_id", wire_text(event->lock_id) },
        { "token", wire_token(event->token) },
        { "locked_by", wire_text(event->locked_by) },
        { "locked_by_name", wire_text(event->locked_by_name) },
        { "by", wire_text(event->by) },
        { "reason", wire_text(event->reason) },
        { "duration_seconds", wire_seconds(event->duration_ms) },
        { "metadata", wire_metadata(event->metadata, event->n_metadata) },
    };

    return WIRE_OBJECT(fields);
}

json_t *wire_freeze(const struct belay_freeze *freeze)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b}", "id", wire_text(freeze->id), "pattern",
                     wire_text(freeze->pattern), "reason", wire_text(freeze->reason), "by",
                     wire_text(freeze->by), "created_at", wire_time(freeze->created_unix_ms), "from",
                     wire_time(freeze->from_unix_ms), "until", wire_time(freeze->until_unix_ms), "in_force",
                     freeze->in_force ? 1 : 0);
}

json_t *wire_error(const struct belay_error *err)
{
    const struct belay_info *holder = belay_error_holder(err);
    const struct field inner[] = {
        { "code", wire_text(belay_code_name(err->code)) },
        { "message", wire_text(err->text) },
        { "lock", holder == NULL || err->code == BELAY_NOT_FOUND ? json_null() : wire_lock(holder) },
    };
    const struct field outer[] = { { "error", WIRE_OBJECT(inner) } };

    return WIRE_OBJECT(outer);
}

/* Outside of strings JSON is plain ASCII, so such a character is inside one. */
static char *escape_unsafe(const char *json)
{
    struct buf out = BUF_INIT((size_t)1 << 26);
    const char *from = json;

    for (const char *at = json; *at != '\0';) {
        uint32_t point = ' ';
        size_t n = (unsigned char)*at < 0x7f ? 1 : utf8_read(at, UTF8_MAX, &point);

        if (utf8_is_unsafe(point)) {
            buf_add(&out, from, (size_t)(at - from));
            buf_addf(&out, "\\u%04x", (unsigned)point);
            from = at + n;
        }
        at += n == 0 ? 1 : n;
    }
    buf_adds(&out, from);
    return buf_take(&out);
}

char *wire_line(json_t *value)
{
    char *plain;
    char *line;

    if (value == NULL) {
        return NULL;
    }
    /* With 15 digits milliseconds are printed as 0.34, not as 0.34000000000000002. */
    plain = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    json_decref(value);
    line = plain == NULL ? NULL : escape_unsafe(plain);
    free(plain);
    return line;
}
