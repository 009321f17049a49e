#include "config/value.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/notify_words.h"
#include "base/suggest.h"
#include "base/text.h"
#include "base/utf8.h"
#include "belay.h"
#include "config/key_forms.h"

enum { MESSAGE_MAX = 2000 };

bool value_parse_switch(const char *text, bool *out)
{
    static const char *const words[2][4] = { { "0", "false", "no", "off" }, { "1", "true", "yes", "on" } };

    for (size_t i = 0; i < 8; i++) {
        if (strcasecmp(text, words[i / 4][i % 4]) == 0) {
            *out = i >= 4;
            return true;
        }
    }
    return false;
}

const char *value_shown(const char *value)
{
    return *value == '\0' || text_is_clean(value, 200) ? value : "(unprintable or long)";
}

const char *value_shown_of(const struct value_rule *rule, const char *value, char space[STORE_URL_SHOWN])
{
    const char *shown = rule->kind == VALUE_URL ? "(hidden)" : value_shown(value);

    return rule->kind == VALUE_STORE && shown == value && *value != '\0' ? store_url_show(value, space)
                                                                         : shown;
}

/* "SCHEME:REST", in lower case. Any scheme: users can implement their own stores. */
static bool is_store(const char *value)
{
    size_t n = strspn(value, "abcdefghijklmnopqrstuvwxyz0123456789+.-");

    return n > 1 && value[n] == ':' && value[n + 1] != '\0';
}

static const char *duration_fault(const struct value_rule *rule, const char *value, char *why)
{
    char limit[CLOCK_TEXT_SIZE];
    int64_t ms;

    if (!belay_parse_duration(value, &ms)) {
        return "is not a duration; write it as 30s, 10m or 1h30m";
    }
    if (ms < rule->min) {
        (void)snprintf(why, VALUE_WHY_SIZE, "is too short; it must be at least %s",
                       clock_format_duration(limit, rule->min));
        return why;
    }
    if (ms > rule->max) {
        (void)snprintf(why, VALUE_WHY_SIZE, "is too long; it must be at most %s",
                       clock_format_duration(limit, rule->max));
        return why;
    }
    return NULL;
}

static const char *number_fault(const struct value_rule *rule, const char *value, char *why)
{
    size_t digits = strspn(value, "0123456789");
    long long number = digits < 19 ? strtoll(value, NULL, 10) : -1;

    if (digits == 0 || value[digits] != '\0' || number < rule->min || number > rule->max) {
        (void)snprintf(why, VALUE_WHY_SIZE, "is not valid; write a whole number from %" PRId64 " to %" PRId64,
                       rule->min, rule->max);
        return why;
    }
    return NULL;
}

/* ---- values of notifications ---- */

static const char *word_fault(const struct word_list *list, const char *what, const char *word, size_t len,
                              char *why)
{
    char typed[64];
    const char *near;

    if (word_find(list, word, len) < list->n) {
        return NULL;
    }
    (void)snprintf(typed, sizeof typed, "%.*s", (int)(len < sizeof typed ? len : sizeof typed - 1), word);
    near = suggest_name(typed, list->words, list->n);
    if (near != NULL) {
        (void)snprintf(why, VALUE_WHY_SIZE, "is not %s; did you mean '%s'?", what, near);
    } else {
        (void)snprintf(why, VALUE_WHY_SIZE, "is not %s; docs/notifications.md lists them", what);
    }
    return why;
}

static const char *placeholder_fault(const char *at, char *why)
{
    size_t len = strcspn(at + 1, "{}");
    char inner[VALUE_WHY_SIZE];

    if (at[1 + len] != '}') {
        return "has a '{' without its '}'; a placeholder is written as {key}";
    }
    if (len > 40 || word_fault(&notify_placeholders, "a placeholder", at + 1, len, inner) == NULL) {
        return "has a placeholder that does not exist";
    }
    (void)snprintf(why, VALUE_WHY_SIZE, "has '{%.*s}', which %.180s", (int)len, at + 1, inner);
    return why;
}

/* Lines of text, with placeholders. */
static const char *message_fault(const char *value, char *why)
{
    const char *at = NULL;
    size_t index = 0;

    if (*value == '\0' || strlen(value) > MESSAGE_MAX) {
        return "is empty or has more than 2000 bytes";
    }
    for (const char *c = value; *c != '\0';) {
        uint32_t point = 0;
        size_t n = utf8_read(c, UTF8_MAX, &point);

        if (n == 0 || (utf8_is_control(point) && *c != '\n')) {
            return "is not UTF-8 without control characters";
        }
        c += n;
    }
    while ((value = notify_next_placeholder(value, &at, &index)) != NULL) {
        if (index == notify_placeholders.n) {
            return placeholder_fault(at, why);
        }
    }
    return NULL;
}

/* '*' matches anything. Without one it must be a key, else it matches nothing. */
static const char *pattern_fault(const char *value, char *why)
{
    struct belay_error err = BELAY_ERROR_INIT;
    const char *fault = NULL;

    if (strlen(value) > BELAY_KEY_MAX) {
        return "is longer than any key";
    }
    if (strchr(value, '*') == NULL && key_check(value, &err) != BELAY_OK) {
        (void)snprintf(why, VALUE_WHY_SIZE, "matches no key: %.200s", err.text);
        fault = why;
    }
    belay_error_release(&err);
    return fault;
}

static const char *label_fault(const char *value)
{
    size_t n = strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.@-");

    return n <= 64 && value[n] == '\0'
               ? NULL
               : "is not a name; use at most 64 letters, digits, '_', '.', '@' and '-'";
}

/* A value that is one of two words. */
static const char *choice_fault(const char *value, const char *one, const char *other, char *why)
{
    if (strcmp(value, one) == 0 || strcmp(value, other) == 0) {
        return NULL;
    }
    (void)snprintf(why, VALUE_WHY_SIZE, "is not valid; write %s or %s", one, other);
    return why;
}

static bool is_http(const char *value)
{
    return text_has_prefix(value, "http://") || text_has_prefix(value, "https://");
}

/* A space at an end would be part of a file's or a database's name: such a store has other locks. */
static const char *store_fault(const char *value)
{
    if (value[0] == ' ' || value[strlen(value) - 1] == ' ') {
        return "begins or ends with a space; remove it";
    }
    return is_store(value) ? NULL
                           : "is not a store; write it as KIND:WHERE, such as sqlite:/var/lib/belay/belay.db";
}

static const char *find_fault(const struct value_rule *rule, const char *value, char *why)
{
    bool is_on;

    if (rule->kind == VALUE_ARGUMENT) {
        return NULL;
    }
    if (rule->kind == VALUE_MESSAGE) {
        return message_fault(value, why);
    }
    if (*value == '\0') {
        return "is empty; give it a value or remove it";
    }
    if (!text_is_clean(value, VALUE_TEXT_MAX)) {
        return "is not one line of UTF-8 without control characters";
    }
    switch (rule->kind) {
    case VALUE_STORE:
        return store_fault(value);
    case VALUE_HTTP:
    case VALUE_URL:
        return is_http(value) ? NULL : "is not a URL; write it as https://HOST/PATH";
    case VALUE_DURATION:
        return duration_fault(rule, value, why);
    case VALUE_NUMBER:
        return number_fault(rule, value, why);
    case VALUE_SWITCH:
        return value_parse_switch(value, &is_on) ? NULL
                                                 : "is not a switch; write 1, true, yes or on, or 0, "
                                                   "false, no or off";
    case VALUE_TEMPLATE:
        return key_template_fault(value);
    case VALUE_NAME:
        return strchr(value, ':') == NULL ? NULL : "has a ':', which separates the parts of a key";
    case VALUE_RULE:
        return choice_fault(value, "document", "cautious", why);
    case VALUE_ENDS:
        return choice_fault(value, "host", "database", why);
    case VALUE_EC2:
        return choice_fault(value, "stop", "start", why);
    case VALUE_EVENT:
        return word_fault(&notify_events, "an event", value, strlen(value), why);
    case VALUE_FORMAT:
        return word_fault(&notify_formats, "a format", value, strlen(value), why);
    case VALUE_PATTERN:
        return pattern_fault(value, why);
    case VALUE_LABEL:
        return label_fault(value);
    case VALUE_TEXT:
    case VALUE_ARGUMENT:
    case VALUE_MESSAGE:
        break;
    }
    return NULL;
}

bool value_is_valid(const struct value_rule *rule, const char *value, char out_why[VALUE_WHY_SIZE])
{
    char space[VALUE_WHY_SIZE];
    const char *fault = find_fault(rule, value, space);

    if (fault == NULL) {
        return true;
    }
    (void)snprintf(out_why, VALUE_WHY_SIZE, "%s", fault);
    return false;
}
