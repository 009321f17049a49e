/*
 * An event as a message: the event itself as JSON, or a text for a chat.
 *
 * Keys, owners, reasons and metadata come from clients, and must not become markup: a mention of all members of
 * the channel, a link, a line that looks like another message. In Slack's mrkdwn '&', '<' and '>' are escaped, which are
 * what mentions and links consist of; the values of the default text are code spans, in which nothing else is
 * interpreted; and marks that would format other text are separated from it. Teams gets TextRuns, which are never
 * interpreted.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/notify_words.h"
#include "base/utf8.h"
#include "server/notify/notify_internal.h"
#include "json/json_write.h"

/* Slack takes 3,000 characters in a block, Teams 28 KB in a message. */
enum { VALUE_MAX = 400, TEXT_MAX = 2900, METADATA_MAX = 900 };

/* ---- the values of an event ---- */

static const char *const titles[][2] = {
    { "lock.acquired", "Lock acquired" },
    { "lock.adopted", "Lock adopted" },
    { "lock.expired", "Lease expired" },
    { "lock.forced", "Lock forced" },
    { "lock.lost", "Lock lost" },
    { "lock.refused", "Lock refused" },
    { "lock.released", "Lock released" },
    { "lock.stale", "Lock stale" },
    { "lock.taken_over", "Expired lock taken over" },
    { "held.long", "Lock held for long" },
    { "wait.long", "Waiting for long" },
    { "freeze.begun", "Freeze begun" },
    { "freeze.ended", "Freeze ended" },
    { "db.stop.stopped", "Database stopped" },
    { "db.stop.error", "Database stop failed" },
    { "db.start.started", "Database started" },
    { "db.start.error", "Database start failed" },
};

static const char *member_or_empty(const json_t *event, const char *name)
{
    const char *text = json_string_value(json_object_get(event, name));

    return text == NULL ? "" : text;
}

static const char *title_of(const json_t *event)
{
    const char *type = member_or_empty(event, "event");

    if (strcmp(type, "lock.released") == 0 && strcmp(member_or_empty(event, "reason"), "failed") == 0) {
        return "Lock released: failed";
    }
    for (size_t i = 0; i < sizeof titles / sizeof titles[0]; i++) {
        if (strcmp(type, titles[i][0]) == 0) {
            return titles[i][1];
        }
    }
    return type;
}

static void add_metadata(const json_t *event, struct buf *out)
{
    const char *name;
    const json_t *value;

    json_object_foreach(json_object_get(event, "metadata"), name, value)
    {
        buf_addf(out, "%s%s=%s", out->len == 0 ? "" : ", ", name, json_string_value(value));
    }
}

static void add_url(const struct notify_settings *settings, const json_t *event, struct buf *out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";

    if (*settings->dashboard == '\0') {
        return;
    }
    buf_addf(out, "%s/#/locks/", settings->dashboard);
    for (const char *c = member_or_empty(event, "lock_key"); *c != '\0'; c++) {
        buf_addf(out, strchr(plain, *c) != NULL ? "%c" : "%%%02X", (unsigned char)*c);
    }
}

/* The value of a placeholder, as it came. */
static void add_placeholder_value(const struct notify_settings *settings, const json_t *event,
                                  const char *name, struct buf *out)
{
    static const char *const fields[][2] = {
        { "event", "event" }, { "key", "lock_key" },  { "holder", "locked_by" }, { "name", "locked_by_name" },
        { "by", "by" },       { "reason", "reason" }, { "time", "timestamp" }
    };
    const json_t *seconds = json_object_get(event, "duration_seconds");
    const json_t *token = json_object_get(event, "token");
    char span[CLOCK_TEXT_SIZE];

    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (strcmp(name, fields[i][0]) == 0) {
            buf_adds(out, member_or_empty(event, fields[i][1]));
            return;
        }
    }
    if (strcmp(name, "title") == 0) {
        buf_adds(out, title_of(event));
    } else if (strcmp(name, "outcome") == 0) {
        buf_adds(out, strcmp(member_or_empty(event, "event"), "lock.released") == 0
                          ? member_or_empty(event, "reason")
                          : "");
    } else if (strcmp(name, "duration") == 0 && json_is_number(seconds)) {
        buf_adds(out, clock_format_span(span, (int64_t)(json_number_value(seconds) * 1000)));
    } else if (strcmp(name, "token") == 0 && json_is_integer(token)) {
        buf_addf(out, "%lld", (long long)json_integer_value(token));
    } else if (strcmp(name, "url") == 0) {
        add_url(settings, event, out);
    } else if (strcmp(name, "correlation_id") == 0) {
        buf_adds(out, member_or_empty(json_object_get(event, "metadata"), "correlation_id"));
    } else if (strcmp(name, "metadata") == 0) {
        add_metadata(event, out);
    }
}

/* ---- making a value harmless ---- */

enum style { STYLE_LITERAL, STYLE_SLACK, STYLE_SLACK_CODE };

static bool is_letter(const char *text, size_t at, size_t len)
{
    unsigned char c = at < len ? (unsigned char)text[at] : 0;

    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80;
}

/* '*', '_' and '~' format only at the edge of a word: a word joiner (U+2060) puts them inside of one. */
static void add_slack_byte(const char *text, size_t at, size_t len, enum style style, struct buf *out)
{
    bool is_inside = at > 0 && is_letter(text, at - 1, len) && is_letter(text, at + 1, len);

    switch (text[at]) {
    case '&':
        buf_adds(out, "&amp;");
        return;
    case '<':
        buf_adds(out, "&lt;");
        return;
    case '>':
        buf_adds(out, "&gt;");
        return;
    case '`':
        buf_adds(out, "'");
        return;
    case '*':
    case '_':
    case '~':
        if (style == STYLE_SLACK && !is_inside) {
            buf_addf(out, "\xe2\x81\xa0%c\xe2\x81\xa0", text[at]);
            return;
        }
        break;
    default:
        break;
    }
    buf_add(out, text + at, 1);
}

/* One line, without characters that hide or reorder text, and not too long. */
static void add_harmless(const char *text, size_t max, enum style style, struct buf *out)
{
    size_t len = strlen(text);

    for (size_t at = 0; at < len;) {
        uint32_t point = 0;
        size_t n = utf8_read(text + at, len - at, &point);

        if (at + n > max) {
            buf_adds(out, "\xe2\x80\xa6"); /* an ellipsis */
            return;
        }
        if (n == 0 || utf8_is_unsafe(point)) {
            buf_adds(out, n == 0 || point > 0x7f ? UTF8_REPLACEMENT : " ");
        } else if (n == 1 && style != STYLE_LITERAL) {
            add_slack_byte(text, at, len, style, out);
        } else {
            buf_add(out, text + at, n);
        }
        at += n == 0 ? 1 : n;
    }
}

/* ---- texts ---- */

/* The index of a placeholder by which a line of the default text is made. */
static const char *const lines[][2] = {
    { "Holder", "holder" }, { "Name", "name" },         { "By", "by" },
    { "Reason", "reason" }, { "Duration", "duration" }, { "Metadata", "metadata" },
};

static bool is_worth_a_line(const json_t *event, const char *name)
{
    /* The name is often the holder again. */
    return strcmp(name, "name") != 0 ||
           strcmp(member_or_empty(event, "locked_by"), member_or_empty(event, "locked_by_name")) != 0;
}

static void add_default_line(const struct notify_settings *settings, const json_t *event, size_t i,
                             struct buf *out)
{
    bool is_slack = settings->format == NOTIFY_SLACK;
    struct buf value = BUF_INIT(1 << 20);

    if (is_worth_a_line(event, lines[i][1])) {
        add_placeholder_value(settings, event, lines[i][1], &value);
    }
    if (value.data != NULL && value.len > 0) {
        buf_addf(out, "\n%s: %s", lines[i][0], is_slack ? "`" : "");
        add_harmless(value.data, strcmp(lines[i][1], "metadata") == 0 ? METADATA_MAX : VALUE_MAX,
                     is_slack ? STYLE_SLACK_CODE : STYLE_LITERAL, out);
        buf_adds(out, is_slack ? "`" : "");
    }
    buf_release(&value);
}

static void add_default(const struct notify_settings *settings, const json_t *event, struct buf *out)
{
    bool is_slack = settings->format == NOTIFY_SLACK;
    struct buf url = BUF_INIT(8192);

    buf_addf(out, is_slack ? "*%s* `" : "%s: ", title_of(event));
    add_harmless(member_or_empty(event, "lock_key"), VALUE_MAX, is_slack ? STYLE_SLACK_CODE : STYLE_LITERAL,
                 out);
    buf_adds(out, is_slack ? "`" : "");
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        add_default_line(settings, event, i, out);
    }
    add_url(settings, event, &url);
    if (url.len > 0 && is_slack) {
        buf_addf(out, "\n<%s|Open in the dashboard>", url.data);
    }
    buf_release(&url);
}

static void add_template(const struct notify_settings *settings, const json_t *event, struct buf *out)
{
    enum style style = settings->format == NOTIFY_SLACK ? STYLE_SLACK : STYLE_LITERAL;
    const char *text = settings->template;
    const char *at = NULL;
    const char *rest;
    size_t index = 0;

    while ((rest = notify_next_placeholder(text, &at, &index)) != NULL) {
        struct buf value = BUF_INIT(1 << 20);

        buf_add(out, text, (size_t)(at - text));
        add_placeholder_value(settings, event, notify_placeholders.words[index], &value);
        if (value.data != NULL && strcmp(notify_placeholders.words[index], "url") == 0) {
            buf_adds(out, value.data); /* percent-encoded */
        } else if (value.data != NULL) {
            add_harmless(value.data, VALUE_MAX, style, out);
        }
        buf_release(&value);
        text = rest;
    }
    buf_adds(out, text);
}

/* The text, cut at the end of a character. */
static char *make_message_text(const struct notify_settings *settings, const json_t *event)
{
    struct buf out = BUF_INIT(1 << 20);

    if (settings->template != NULL) {
        add_template(settings, event, &out);
    } else {
        add_default(settings, event, &out);
    }
    if (!out.failed && out.len > TEXT_MAX) {
        size_t len = TEXT_MAX;

        while (len > 0 && ((unsigned char)out.data[len] & 0xc0) == 0x80) {
            len--;
        }
        out.data[len] = '\0';
    }
    if (out.failed) {
        buf_release(&out);
    }
    return buf_take(&out);
}

/* ---- formats ---- */

/* The text is shown in the block; without blocks, as in the banner of a phone, it is shown as it is. */
static json_t *slack_of(const char *text)
{
    return json_pack("{s:s, s:b, s:b, s:[{s:s, s:{s:s, s:s, s:b}}]}", "text", text, "unfurl_links", 0,
                     "unfurl_media", 0, "blocks", "type", "section", "text", "type", "mrkdwn", "text", text,
                     "verbatim", 1);
}

/* One paragraph for each line. */
static json_t *teams_paragraphs(const char *text)
{
    json_t *body = json_array();

    for (bool is_first = true; *text != '\0'; is_first = false) {
        size_t len = strcspn(text, "\n");

        if (len > 0) {
            (void)json_array_append_new(
                body, json_pack("{s:s, s:s, s:[{s:s, s:s%, s:s}]}", "type", "RichTextBlock", "spacing",
                                is_first ? "default" : "small", "inlines", "type", "TextRun", "text", text,
                                len, "weight", is_first ? "bolder" : "default"));
        }
        text += len + (text[len] == '\n');
    }
    return body;
}

static json_t *teams_of(const struct notify_settings *settings, const json_t *event, const char *text)
{
    json_t *card =
        json_pack("{s:s, s:s, s:s, s:o}", "$schema", "http://adaptivecards.io/schemas/adaptive-card.json",
                  "type", "AdaptiveCard", "version", "1.4", "body", teams_paragraphs(text));
    struct buf url = BUF_INIT(8192);

    add_url(settings, event, &url);
    if (url.len > 0) {
        (void)json_object_set_new(card, "actions",
                                  json_pack("[{s:s, s:s, s:s}]", "type", "Action.OpenUrl", "title",
                                            "Open in the dashboard", "url", url.data));
    }
    buf_release(&url);
    return json_pack("{s:s, s:[{s:s, s:n, s:o}]}", "type", "message", "attachments", "contentType",
                     "application/vnd.microsoft.card.adaptive", "contentUrl", "content", card);
}

char *notify_message(const struct notify_settings *settings, const char *event)
{
    json_t *parsed;
    json_t *message = NULL;
    char *text;

    if (settings->format == NOTIFY_JSON) {
        return strdup(event);
    }
    parsed = json_loads(event, 0, NULL);
    text = parsed == NULL ? NULL : make_message_text(settings, parsed);
    if (text != NULL) {
        message = settings->format == NOTIFY_SLACK ? slack_of(text) : teams_of(settings, parsed, text);
    }
    free(text);
    json_decref(parsed);
    text = message == NULL ? NULL : json_dumps(message, JSON_COMPACT);
    json_decref(message);
    return text;
}
