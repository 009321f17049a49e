#include "config/value.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/text.h"
#include "belay.h"
#include "lock/keys.h"

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

static const char *find_fault(const struct value_rule *rule, const char *value, char *why)
{
    bool is_on;

    if (rule->kind == VALUE_ARGUMENT) {
        return NULL;
    }
    if (*value == '\0') {
        return "is empty; give it a value or remove it";
    }
    if (!text_is_clean(value, VALUE_TEXT_MAX)) {
        return "is not one line of UTF-8 without control characters";
    }
    switch (rule->kind) {
    case VALUE_STORE:
        return is_store(value)
                   ? NULL
                   : "is not a store; write it as KIND:WHERE, such as sqlite:/var/lib/belay/belay.db";
    case VALUE_HTTP:
        return text_has_prefix(value, "http://") || text_has_prefix(value, "https://")
                   ? NULL
                   : "is not a URL; write it as https://HOST/PATH";
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
        return strcmp(value, "document") == 0 || strcmp(value, "cautious") == 0
                   ? NULL
                   : "is not valid; write document or cautious";
    case VALUE_ENDS:
        return strcmp(value, "host") == 0 || strcmp(value, "database") == 0
                   ? NULL
                   : "is not valid; write host or database";
    case VALUE_EC2:
        return strcmp(value, "stop") == 0 || strcmp(value, "start") == 0
                   ? NULL
                   : "is not valid; write stop or start";
    case VALUE_TEXT:
    case VALUE_ARGUMENT:
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
