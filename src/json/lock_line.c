/* wire_grant_line(): the answer of most requests of a server, written without jansson. */
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "json/json_write.h"
#include "json/lock_fields.h"

enum { LINE_AROUND = 490 }; /* upper limit of the bytes around the texts */

/* A text and its length; NULL: none. */
struct text {
    const char *data;
    size_t len;
};

/* The texts of a holder. */
struct holder_texts {
    struct text id;
    struct text owner;
    struct text name;
    struct text credential;
};

static struct text text_from(const char *data)
{
    return (struct text){ data, data == NULL ? 0 : strlen(data) };
}

static struct text text_of_time(char space[CLOCK_TEXT_SIZE], int64_t unix_ms)
{
    return text_from(unix_ms == 0 ? NULL : clock_format_utc(space, unix_ms, true));
}

static bool needs_no_escape(struct text text)
{
    return text_plain(text.data, text.len) == text.len;
}

/* False if the holder has metadata, or texts that need escapes. */
static bool read_holder_texts(const struct belay_info *info, struct holder_texts *out)
{
    *out = (struct holder_texts){ text_from(info->lock_id), text_from(lock_known_name(info->locked_by)),
                                  text_from(lock_known_name(info->locked_by_name)),
                                  text_from(info->acquired_by) };
    return info->status != BELAY_STATUS_NONE && info->n_metadata == 0 && needs_no_escape(out->id) &&
           needs_no_escape(out->owner) && needs_no_escape(out->name) && needs_no_escape(out->credential);
}

/* ---- fields: `before` is the part of the line in front of the value ---- */

static void add_text_field(struct buf *out, struct text before, struct text value)
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

static void add_number_field(struct buf *out, struct text before, int64_t value, bool is_known)
{
    buf_add(out, before.data, before.len);
    if (is_known) {
        buf_add_number(out, value);
    } else {
        buf_add(out, "null", 4);
    }
}

/* `before` must be a literal: its length is known without counting. */
#define BEFORE(literal) ((struct text){ "" literal, sizeof(literal) - 1 })
#define ADD_TEXT(out, before, value) add_text_field(out, BEFORE(before), value)
#define ADD_NUMBER(out, before, value, is_known) add_number_field(out, BEFORE(before), value, is_known)
#define ADD_LITERAL(out, literal) buf_add(out, "" literal, sizeof(literal) - 1)

/* The members of wire_holder(), without the braces. */
static void add_holder_fields(struct buf *out, const struct belay_info *info,
                              const struct holder_texts *texts, bool shows_id)
{
    char space[2][CLOCK_TEXT_SIZE];
    struct text locked_at = text_of_time(space[0], info->locked_at_unix_ms);

    ADD_TEXT(out, "\"lock_id\":", shows_id ? texts->id : text_from(NULL));
    ADD_NUMBER(out, ",\"token\":", (int64_t)info->token, info->token > 0 && info->token <= INT64_MAX);
    ADD_TEXT(out, ",\"locked_by\":", texts->owner);
    ADD_TEXT(out, ",\"locked_by_name\":", texts->name);
    ADD_TEXT(out, ",\"acquired_by\":", texts->credential);
    ADD_TEXT(out, ",\"status\":", text_from(belay_status_name(info->status)));
    ADD_TEXT(out, ",\"outcome\":", text_from(belay_outcome_name(info->outcome)));
    ADD_TEXT(out, ",\"locked_at\":", locked_at);
    ADD_TEXT(out, ",\"expires_at\":", text_of_time(space[1], info->expires_at_unix_ms));
    ADD_TEXT(out, ",\"last_heartbeat\":",
             info->last_heartbeat_unix_ms == info->locked_at_unix_ms
                 ? locked_at
                 : text_of_time(space[1], info->last_heartbeat_unix_ms));
    ADD_NUMBER(out, ",\"ttl_ms\":", info->ttl_ms, info->ttl_ms != 0);
    ADD_NUMBER(out, ",\"expires_in_ms\":", info->expires_in_ms, true);
    ADD_NUMBER(out, ",\"valid_for_ms\":", info->valid_for_ms, info->valid_for_ms >= 0);
    if (info->is_stale) {
        ADD_LITERAL(out, ",\"is_stale\":true,\"metadata\":{}");
    } else {
        ADD_LITERAL(out, ",\"is_stale\":false,\"metadata\":{}");
    }
}

/* The only holder, whose fields have just been written. */
static void add_same_holder(struct buf *out, size_t from, size_t len)
{
    if (buf_reserve(out, len + 2)) {
        ADD_LITERAL(out, "{");
        memcpy(out->data + out->len, out->data + from, len);
        out->len += len;
        ADD_LITERAL(out, "}");
    }
}

static void add_holder_objects(struct buf *out, const struct belay_info *info)
{
    for (size_t i = 0; i < info->n_holders; i++) {
        struct holder_texts texts;

        (void)read_holder_texts(&info->holders[i], &texts);
        buf_adds(out, i == 0 ? "{" : ",{");
        add_holder_fields(out, &info->holders[i], &texts, lock_is_own_holder(info, &info->holders[i]));
        ADD_LITERAL(out, "}");
    }
}

bool wire_grant_line(struct buf *out, const struct belay_info *info)
{
    struct text key = text_from(info->key);
    struct holder_texts own;
    struct holder_texts others;
    char space[CLOCK_TEXT_SIZE];
    size_t from;
    size_t len;

    if (info->has_queue || info->n_holders > WIRE_HOLDERS_SHOWN || !needs_no_escape(key) ||
        !read_holder_texts(info, &own)) {
        return false;
    }
    for (size_t i = 0; i < info->n_holders; i++) {
        if (!read_holder_texts(&info->holders[i], &others)) {
            return false;
        }
    }
    (void)buf_reserve(out, LINE_AROUND + key.len +
                               2 * (own.id.len + own.owner.len + own.name.len + own.credential.len));
    ADD_TEXT(out, "{\"key\":", key);
    ADD_LITERAL(out, ",");
    from = out->len;
    add_holder_fields(out, info, &own, true);
    len = out->len - from;
    ADD_TEXT(out, ",\"released_at\":", text_of_time(space, lock_released_at(info)));
    ADD_TEXT(out, ",\"mode\":", text_from(belay_mode_name(info->mode)));
    ADD_NUMBER(out, ",\"slots\":", info->slots, info->slots != 0);
    ADD_LITERAL(out, ",\"holders\":[");
    if (info->n_holders > 0) {
        add_holder_objects(out, info);
    } else if (lock_is_held(info)) {
        add_same_holder(out, from, len);
    }
    ADD_LITERAL(out, "],\"waiting\":null}");
    return !out->failed;
}
