/*
 * Layouts that a team describes itself:
 *
 *     layouts:
 *       ours:
 *         key: PK=LOCK#{key}              # ATTRIBUTE=VALUE
 *         sort_key: SK=LOCK
 *         expires_at: ExpiresAt rfc3339   # ATTRIBUTE FORMAT
 *         release: delete
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/dynamodb/dynamodb_layout.h"

struct layout_reader {
    const char *name;
    layout_setting_fn setting;
    const void *settings;
    struct layout_made *made;
    struct belay_error *err;
};

static const struct {
    const char *word;
    enum layout_format format;
} formats[] = {
    { "seconds", FORMAT_SECONDS },
    { "millis", FORMAT_MILLIS },
    { "rfc3339", FORMAT_RFC3339 },
    { "iso", FORMAT_ISO_MS },
};

static const struct {
    const char *name;
    enum layout_field field;
    enum layout_format format;
    bool is_time;
} fields[] = {
    { "lock_id", FIELD_LOCK_ID, FORMAT_TEXT, false },
    { "owner", FIELD_OWNER, FORMAT_TEXT, false },
    { "owner_name", FIELD_OWNER_NAME, FORMAT_TEXT, false },
    { "status", FIELD_STATUS, FORMAT_TEXT, false },
    { "metadata", FIELD_METADATA, FORMAT_MAP, false },
    { "locked_at", FIELD_LOCKED_AT, FORMAT_RFC3339, true },
    { "expires_at", FIELD_EXPIRES, FORMAT_SECONDS, true },
    { "heartbeat_at", FIELD_BEAT, FORMAT_SECONDS, true },
    { "released_at", FIELD_FREED, FORMAT_RFC3339, true },
    { "ttl", FIELD_TTL, FORMAT_SECONDS, true },
};

void layout_made_release(struct layout_made *made)
{
    for (size_t i = 0; i < made->n_texts; i++) {
        free(made->texts[i]);
    }
    free(made->texts);
    memset(made, 0, sizeof *made);
}

static const char *layout_setting(const struct layout_reader *reader, const char *what)
{
    char name[256];

    (void)snprintf(name, sizeof name, "layouts.%s.%s", reader->name, what);
    return reader->setting(reader->settings, name);
}

/* Keeps the first `n` bytes. NULL: no memory. */
static const char *keep_copy(struct layout_reader *reader, const char *text, size_t n)
{
    struct layout_made *made = reader->made;
    char **texts = realloc(made->texts, (made->n_texts + 1) * sizeof *texts);

    if (texts == NULL) {
        return NULL;
    }
    made->texts = texts;
    texts[made->n_texts] = strndup(text, n);
    return texts[made->n_texts] == NULL ? NULL : texts[made->n_texts++];
}

static enum belay_code layout_fail(const struct layout_reader *reader, const char *what, const char *value,
                                   const char *right)
{
    return error_set(reader->err, BELAY_CONFIG, "layouts.%s.%s: '%.80s' %s", reader->name, what,
                     value == NULL ? "" : value, right);
}

/* "PK=LOCK#{key}" */
static enum belay_code read_key(struct layout_reader *reader, const char *what, bool is_first)
{
    struct layout *layout = &reader->made->layout;
    struct layout_key *key = &layout->keys[layout->n_keys];
    const char *value = layout_setting(reader, what);
    const char *equals = value == NULL ? NULL : strchr(value, '=');
    const char *hole;

    if (value == NULL && !is_first) {
        return BELAY_OK;
    }
    if (equals == NULL || equals == value || equals[1] == '\0') {
        return layout_fail(reader, what, value, "must be ATTRIBUTE=VALUE, such as PK=LOCK#{key}");
    }
    hole = strstr(equals, "{key}");
    if (hole == NULL && is_first) {
        return layout_fail(reader, what, value, "must have {key} in it, where the lock's key goes");
    }
    key->name = keep_copy(reader, value, (size_t)(equals - value));
    key->has_key = hole != NULL;
    key->before =
        keep_copy(reader, equals + 1, hole == NULL ? strlen(equals + 1) : (size_t)(hole - equals - 1));
    key->after =
        hole == NULL ? "" : keep_copy(reader, hole + strlen("{key}"), strlen(hole) - strlen("{key}"));
    layout->n_keys++;
    return key->name == NULL || key->before == NULL || key->after == NULL ? error_no_memory(reader->err)
                                                                          : BELAY_OK;
}

static bool find_format(const char *word, enum layout_format *out)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(formats[i].word, word) == 0) {
            *out = formats[i].format;
            return true;
        }
    }
    return false;
}

/* "ExpiresAt rfc3339" */
static enum belay_code read_attribute(struct layout_reader *reader, size_t i)
{
    struct layout_attribute *attribute = &reader->made->layout.fields[fields[i].field];
    const char *value = layout_setting(reader, fields[i].name);
    size_t n = value == NULL ? 0 : strcspn(value, " ");

    if (value == NULL) {
        return BELAY_OK;
    }
    attribute->format = fields[i].format;
    if (value[n] == ' ' && (!fields[i].is_time || !find_format(value + n + 1, &attribute->format))) {
        return layout_fail(reader, fields[i].name, value,
                           fields[i].is_time
                               ? "must be ATTRIBUTE or ATTRIBUTE FORMAT, with seconds, millis, rfc3339 or iso"
                               : "must be the name of an attribute");
    }
    attribute->name = keep_copy(reader, value, n);
    return attribute->name == NULL ? error_no_memory(reader->err) : BELAY_OK;
}

/* "lock_type=database" is a constant; "component" or "correlation_id=correlationId" is metadata. */
static enum belay_code read_extras(struct layout_reader *reader, const char *list, bool constant)
{
    struct layout *layout = &reader->made->layout;
    char what[64];

    for (size_t i = 0;; i++) {
        struct layout_extra *extra = &layout->extras[layout->n_extras];
        const char *value, *equals;

        (void)snprintf(what, sizeof what, "%s.%zu", list, i);
        value = layout_setting(reader, what);
        if (value == NULL) {
            return BELAY_OK;
        }
        equals = strchr(value, '=');
        if (layout->n_extras == LAYOUT_EXTRAS_MAX) {
            return layout_fail(reader, what, value, "is one too many: at most 8 constants and attributes");
        }
        if (equals == NULL && constant) {
            return layout_fail(reader, what, value, "must be ATTRIBUTE=VALUE");
        }
        if (constant) {
            extra->name = keep_copy(reader, value, (size_t)(equals - value));
            extra->value = equals + 1;
        } else {
            extra->meta = keep_copy(reader, value, equals == NULL ? strlen(value) : (size_t)(equals - value));
            extra->name = equals == NULL ? extra->meta : equals + 1;
        }
        layout->n_extras++;
        if (extra->name == NULL) {
            return error_no_memory(reader->err);
        }
    }
}

static const char *setting_or(const struct layout_reader *reader, const char *what, const char *otherwise)
{
    const char *value = layout_setting(reader, what);

    return value == NULL ? otherwise : value;
}

static void read_words(struct layout_reader *reader)
{
    struct layout *layout = &reader->made->layout;
    const char *release = setting_or(reader, "release", "delete");

    layout->held_word = layout_setting(reader, "held");
    layout->completed_word = layout_setting(reader, "completed");
    layout->failed_word = setting_or(reader, "failed", layout->completed_word);
    layout->forced_word = setting_or(reader, "forced", layout->failed_word);
    layout->queue_prefix = setting_or(reader, "line_prefix", "belay-line#");
    layout->release_deletes = strcmp(release, "delete") == 0;
    layout->release_expires = strcmp(release, "expire") == 0;
    (void)belay_parse_duration(layout_setting(reader, "heartbeat"), &layout->heartbeat_ms);
    (void)belay_parse_duration(layout_setting(reader, "stale_after"), &layout->stale_after_ms);
}

/* The fields without which L1 and L3 do not hold. */
static enum belay_code check_complete(const struct layout_reader *reader)
{
    const struct layout *layout = &reader->made->layout;
    const char *release = layout_setting(reader, "release");

    if (layout_name_of(layout, FIELD_OWNER) == NULL) {
        return layout_fail(reader, "owner", NULL, "is missing: name the attribute with the holder");
    }
    if (layout_name_of(layout, FIELD_EXPIRES) == NULL) {
        return layout_fail(reader, "expires_at", NULL, "is missing: name the attribute with the expiry");
    }
    if (layout_name_of(layout, FIELD_LOCK_ID) == NULL) {
        return layout_fail(
            reader, "lock_id", NULL,
            "is missing: name an attribute for the id of each acquisition, a new one if need be");
    }
    if (release != NULL && strcmp(release, "delete") != 0 && strcmp(release, "update") != 0 &&
        strcmp(release, "expire") != 0) {
        return layout_fail(reader, "release", release, "must be delete, update or expire");
    }
    if ((!layout->release_deletes || layout_name_of(layout, FIELD_STATUS) != NULL) &&
        (layout_name_of(layout, FIELD_STATUS) == NULL || layout->held_word == NULL ||
         layout->completed_word == NULL)) {
        return layout_fail(reader, "status", layout_setting(reader, "status"),
                           "needs an attribute and the words for held and completed");
    }
    return BELAY_OK;
}

static enum belay_code layout_read(struct layout_reader *reader)
{
    enum belay_code code = read_key(reader, "key", true);

    if (code == BELAY_OK) {
        code = read_key(reader, "sort_key", false);
    }
    for (size_t i = 0; code == BELAY_OK && i < sizeof fields / sizeof fields[0]; i++) {
        code = read_attribute(reader, i);
    }
    if (code == BELAY_OK) {
        code = read_extras(reader, "constants", true);
    }
    if (code == BELAY_OK) {
        code = read_extras(reader, "attributes", false);
    }
    if (code != BELAY_OK) {
        return code;
    }
    read_words(reader);
    return check_complete(reader);
}

enum belay_code layout_make(const char *name, layout_setting_fn setting, const void *settings,
                            struct layout_made *out_made, struct belay_error *err)
{
    struct layout_made made = { 0 };
    struct layout_reader reader = { name, setting, settings, &made, err };
    enum belay_code code;

    if (setting == NULL || strlen(name) > 64 || layout_setting(&reader, "key") == NULL) {
        return BELAY_NOT_FOUND;
    }
    made.layout.name = name;
    code = layout_read(&reader);
    if (code != BELAY_OK) {
        layout_made_release(&made);
        return code;
    }
    *out_made = made;
    return BELAY_OK;
}
