#include "json/json_write.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/text.h"
#include "base/utf8.h"

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

/* NULL for a name that is unknown, or that the store cannot keep. */
static const char *known_name(const char *name)
{
    return name == NULL || name[0] == '\0' ? NULL : name;
}

/* The fields of a holder: those of a lock but for what all its holders have in common. */
json_t *wire_holder(const struct belay_info *info)
{
    /* Locking is disabled: there is a key, and an id that 'release' accepts. */
    bool none = info->status == BELAY_STATUS_NONE;
    const struct field fields[] = {
        { "lock_id", wire_text(info->lock_id) },
        { "token", wire_token(none ? 0 : info->token) },
        { "locked_by", wire_text(none ? NULL : known_name(info->locked_by)) },
        { "locked_by_name", wire_text(none ? NULL : known_name(info->locked_by_name)) },
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
    bool is_held = info->status == BELAY_STATUS_ACTIVE || info->status == BELAY_STATUS_EXPIRED;

    for (size_t i = 0; i < info->n_holders; i++) {
        (void)json_array_append_new(holders, wire_holder(&info->holders[i]));
    }
    if (is_held && info->n_holders == 0) {
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

/* 0: it is held, has expired, or was never held. */
static int64_t released_at(const struct belay_info *info)
{
    return info->status == BELAY_STATUS_RELEASED ? info->released_at_unix_ms : 0;
}

json_t *wire_lock(const struct belay_info *info)
{
    const struct field key[] = { { "key", wire_text(info->key) } };
    const struct field fields[] = {
        { "released_at", wire_time(released_at(info)) },
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

static bool is_own(const struct belay_info *info, const struct belay_info *holder)
{
    return holder->lock_id != NULL && info->lock_id != NULL && strcmp(holder->lock_id, info->lock_id) == 0;
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
        if (i < shown.n_holders && !is_own(info, &info->holders[i])) {
            failed = json_object_set_new(json_array_get(holders, i), "lock_id", json_null());
        } else if (i >= shown.n_holders && is_own(info, &info->holders[i])) {
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
    /* 15 digits print milliseconds exactly: 0.34, not 0.34000000000000002. */
    plain = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    json_decref(value);
    line = plain == NULL ? NULL : escape_unsafe(plain);
    free(plain);
    return line;
}

/* ---- a lock in a hurry ---- */

enum { LINE_AROUND = 490 }; /* upper limit of the bytes around the texts */

/* A text and its length; NULL: none. */
struct text {
    const char *data;
    size_t len;
};

static struct text text_from(const char *data)
{
    return (struct text){ data, data == NULL ? 0 : strlen(data) };
}

static bool is_plain(struct text text)
{
    return text_plain(text.data, text.len) == text.len;
}

/* `before` is the part of the line in front of the value. */
static void add_text(struct buf *out, struct text before, struct text value)
{
    char *at = buf_room(out, before.len + value.len + sizeof "null");

    if (at == NULL) {
        return;
    }
    memcpy(at, before.data, before.len);
    at += before.len;
    if (value.data == NULL) {
        memcpy(at, "null", 4);
        buf_took(out, before.len + 4);
    } else {
        at[0] = '"';
        memcpy(at + 1, value.data, value.len);
        at[value.len + 1] = '"';
        buf_took(out, before.len + value.len + 2);
    }
}

static struct text time_text(char space[CLOCK_TEXT_SIZE], int64_t unix_ms)
{
    return text_from(unix_ms == 0 ? NULL : clock_format_utc(space, unix_ms, true));
}

static void add_number(struct buf *out, struct text before, int64_t value)
{
    buf_add(out, before.data, before.len);
    buf_add_number(out, value);
}

/* `before` must be a literal: its length is known without counting. */
#define ADD(out, before, add, value) add(out, (struct text){ "" before, sizeof(before) - 1 }, value)

#define ADD_LITERAL(out, literal) buf_add(out, "" literal, sizeof(literal) - 1)

bool wire_lock_line(struct buf *out, const struct belay_info *info)
{
    struct text key = text_from(info->key);
    struct text id = text_from(info->lock_id);
    struct text owner = text_from(known_name(info->locked_by));
    struct text name = text_from(known_name(info->locked_by_name));
    struct text credential = text_from(info->acquired_by);
    char space[2][CLOCK_TEXT_SIZE];
    struct text locked_at = time_text(space[0], info->locked_at_unix_ms);
    size_t from;
    size_t len;

    if (info->status == BELAY_STATUS_NONE || info->mode != BELAY_EXCLUSIVE || info->has_queue ||
        info->n_metadata > 0 || info->token == 0 || info->token > INT64_MAX || info->ttl_ms == 0 ||
        !is_plain(key) || !is_plain(id) || !is_plain(owner) || !is_plain(name) || !is_plain(credential)) {
        return false;
    }
    (void)buf_reserve(out, LINE_AROUND + key.len + 2 * (id.len + owner.len + name.len + credential.len));
    ADD(out, "{\"key\":", add_text, key);
    ADD_LITERAL(out, ",");
    from = out->len;
    ADD(out, "\"lock_id\":", add_text, id);
    ADD(out, ",\"token\":", add_number, (int64_t)info->token);
    ADD(out, ",\"locked_by\":", add_text, owner);
    ADD(out, ",\"locked_by_name\":", add_text, name);
    ADD(out, ",\"acquired_by\":", add_text, credential);
    ADD(out, ",\"status\":", add_text, text_from(belay_status_name(info->status)));
    ADD(out, ",\"outcome\":", add_text, text_from(belay_outcome_name(info->outcome)));
    ADD(out, ",\"locked_at\":", add_text, locked_at);
    ADD(out, ",\"expires_at\":", add_text, time_text(space[1], info->expires_at_unix_ms));
    ADD(out, ",\"last_heartbeat\":", add_text,
        info->last_heartbeat_unix_ms == info->locked_at_unix_ms
            ? locked_at
            : time_text(space[1], info->last_heartbeat_unix_ms));
    ADD(out, ",\"ttl_ms\":", add_number, info->ttl_ms);
    ADD(out, ",\"expires_in_ms\":", add_number, info->expires_in_ms);
    if (info->valid_for_ms < 0) {
        ADD_LITERAL(out, ",\"valid_for_ms\":null");
    } else {
        ADD(out, ",\"valid_for_ms\":", add_number, info->valid_for_ms);
    }
    if (info->is_stale) {
        ADD_LITERAL(out, ",\"is_stale\":true");
    } else {
        ADD_LITERAL(out, ",\"is_stale\":false");
    }
    ADD_LITERAL(out, ",\"metadata\":{}");
    len = out->len - from;
    ADD(out, ",\"released_at\":", add_text, time_text(space[1], released_at(info)));
    ADD_LITERAL(out, ",\"mode\":\"exclusive\",\"slots\":null,\"holders\":[");
    if (info->status != BELAY_STATUS_RELEASED && buf_reserve(out, len + 2)) {
        /* The only holder has just been written. */
        ADD_LITERAL(out, "{");
        memcpy(out->data + out->len, out->data + from, len);
        out->len += len;
        ADD_LITERAL(out, "}");
    }
    ADD_LITERAL(out, "],\"waiting\":null}");
    return !out->failed;
}

/* ---- one of several holders, in a hurry ---- */

enum { QUICK_HOLDERS = 100 };

static void add_count(struct buf *out, struct text before, int64_t value, bool is_known)
{
    if (is_known) {
        add_number(out, before, value);
    } else {
        add_text(out, before, text_from(NULL));
    }
}
#define ADD_COUNT(out, before, value, is_known)                                                              \
    add_count(out, (struct text){ "" before, sizeof(before) - 1 }, value, is_known)

static bool is_plain_holder(const struct belay_info *info)
{
    return info->status != BELAY_STATUS_NONE && info->n_metadata == 0 && info->token <= INT64_MAX &&
           is_plain(text_from(info->lock_id)) && is_plain(text_from(info->locked_by)) &&
           is_plain(text_from(info->locked_by_name)) && is_plain(text_from(info->acquired_by));
}

/* The members of wire_holder(), without the braces. */
static void add_holder(struct buf *out, const struct belay_info *info, const char *lock_id)
{
    char space[CLOCK_TEXT_SIZE];

    ADD(out, "\"lock_id\":", add_text, text_from(lock_id));
    ADD_COUNT(out, ",\"token\":", (int64_t)info->token, info->token > 0);
    ADD(out, ",\"locked_by\":", add_text, text_from(known_name(info->locked_by)));
    ADD(out, ",\"locked_by_name\":", add_text, text_from(known_name(info->locked_by_name)));
    ADD(out, ",\"acquired_by\":", add_text, text_from(info->acquired_by));
    ADD(out, ",\"status\":", add_text, text_from(belay_status_name(info->status)));
    ADD(out, ",\"outcome\":", add_text, text_from(belay_outcome_name(info->outcome)));
    ADD(out, ",\"locked_at\":", add_text, time_text(space, info->locked_at_unix_ms));
    ADD(out, ",\"expires_at\":", add_text, time_text(space, info->expires_at_unix_ms));
    ADD(out, ",\"last_heartbeat\":", add_text, time_text(space, info->last_heartbeat_unix_ms));
    ADD_COUNT(out, ",\"ttl_ms\":", info->ttl_ms, info->ttl_ms != 0);
    ADD_COUNT(out, ",\"expires_in_ms\":", info->expires_in_ms, true);
    ADD_COUNT(out, ",\"valid_for_ms\":", info->valid_for_ms, info->valid_for_ms >= 0);
    buf_adds(out, info->is_stale ? ",\"is_stale\":true" : ",\"is_stale\":false");
    buf_adds(out, ",\"metadata\":{}");
}

static void add_holders(struct buf *out, const struct belay_info *info)
{
    bool is_held = info->status == BELAY_STATUS_ACTIVE || info->status == BELAY_STATUS_EXPIRED;

    if (is_held && info->n_holders == 0) {
        buf_adds(out, "{");
        add_holder(out, info, info->lock_id);
        buf_adds(out, "}");
    }
    for (size_t i = 0; i < info->n_holders; i++) {
        const char *id = info->holders[i].lock_id;
        bool is_shown = id != NULL && info->lock_id != NULL && strcmp(id, info->lock_id) == 0;

        buf_adds(out, i == 0 ? "{" : ",{");
        add_holder(out, &info->holders[i], is_shown ? id : NULL);
        buf_adds(out, "}");
    }
}

bool wire_grant_line(struct buf *out, const struct belay_info *info)
{
    bool is_simple = info->mode != BELAY_EXCLUSIVE && !info->has_queue && info->n_holders <= QUICK_HOLDERS &&
                     is_plain(text_from(info->key)) && is_plain_holder(info);
    char space[CLOCK_TEXT_SIZE];

    for (size_t i = 0; i < info->n_holders && is_simple; i++) {
        is_simple = is_plain_holder(&info->holders[i]);
    }
    if (!is_simple) {
        return false;
    }
    ADD(out, "{\"key\":", add_text, text_from(info->key));
    buf_adds(out, ",");
    add_holder(out, info, info->lock_id);
    ADD(out, ",\"released_at\":", add_text, time_text(space, released_at(info)));
    ADD(out, ",\"mode\":", add_text, text_from(belay_mode_name(info->mode)));
    ADD_COUNT(out, ",\"slots\":", info->slots, info->slots != 0);
    buf_adds(out, ",\"holders\":[");
    add_holders(out, info);
    buf_adds(out, "],\"waiting\":null}");
    return !out->failed;
}
