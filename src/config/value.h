/* The types of values, from the file or the environment. */
#ifndef CONFIG_VALUE_H
#define CONFIG_VALUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/store_url.h"

enum value_kind {
    VALUE_TEXT,     /* one line */
    VALUE_ARGUMENT, /* of a command: any text */
    VALUE_STORE,    /* SCHEME:REST */
    VALUE_HTTP,     /* http:// or https:// */
    VALUE_DURATION, /* from min to max milliseconds */
    VALUE_NUMBER,   /* from min to max */
    VALUE_SWITCH,   /* yes or no */
    VALUE_TEMPLATE, /* of keys */
    VALUE_RULE,     /* document or cautious */
    VALUE_EC2,      /* stop or start */
    VALUE_ENDS,     /* host or database */
    VALUE_NAME,     /* of a component or an environment: part of a key */
    VALUE_URL,      /* as VALUE_HTTP; a secret: never shown */
    VALUE_EVENT,    /* base/notify_words.h has these three */
    VALUE_FORMAT,
    VALUE_MESSAGE, /* a template of a notification */
    VALUE_PATTERN, /* of keys */
    VALUE_LABEL    /* a name for logs and metrics */
};

struct value_rule {
    enum value_kind kind;
    int64_t min, max;
};

enum { VALUE_WHY_SIZE = 256, VALUE_TEXT_MAX = 4096 };

/* False with a reason that follows the value: "is not a duration; write it as 30s, ...". */
bool value_is_valid(const struct value_rule *rule, const char *value, char out_why[VALUE_WHY_SIZE]);

/* 1, true, yes, on; 0, false, no, off. False if it is none of these. */
bool value_parse_switch(const char *text, bool *out);

/* The value for an error message, or a placeholder if it is long or unprintable. */
const char *value_shown(const char *value);
/* The same, unless a value of this kind is a secret, or has one: then without it. `space` may have the result. */
const char *value_shown_of(const struct value_rule *rule, const char *value, char space[STORE_URL_SHOWN]);

#endif
