#include "cli/core/options.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/suggest.h"
#include "base/text.h"
#include "cli/core/cli.h"

const struct option_def global_options[] = {
    OPT_TEXT("store", "URL",
             "where locks are kept: sqlite:PATH, postgresql://HOST/DATABASE, dynamodb:TABLE or "
             "http://HOST:PORT[,http://HOST:PORT]; default: BELAY_STORE"),
    OPT_TEXT("state-store", "URL",
             "where deployment state is kept: file:DIR, s3://BUCKET/PREFIX, postgresql://HOST/DATABASE or "
             "http://HOST:PORT; default: BELAY_STATE_STORE"),
    OPT_FROM(COMPLETE_FILE, "config", "FILE", "the configuration file; default: BELAY_CONFIG"),
    OPT_TEXT("metrics", "WHERE", "send metrics to emf, emf:FILE or statsd:HOST:PORT; default: as configured"),
    OPT_FLAG("json", "print JSON, errors included"),
    OPT_LETTER("quiet", 'q', "print no notes and no warnings, except that locking is switched off"),
    OPT_LETTER("verbose", 'v', "print every event to standard error"),
    OPT_FLAG("no-color", "do not use colors; NO_COLOR does the same"),
    OPT_LETTER("help", 'h', "show the help of the command"),
    OPT_LETTER("version", 'V', "show the version"),
    OPT_END,
};

/* The option whose name is the `len` bytes at `name`; NULL: none. */
static const struct option_def *find_def(const struct cli_command *command, const char *name, size_t len)
{
    const struct option_def *def = global_options;

    for (size_t next = 0;; next++) {
        for (; def->name != NULL; def++) {
            if (strncmp(def->name, name, len) == 0 && def->name[len] == '\0') {
                return def;
            }
        }
        if (command == NULL || command->groups[next] == NULL) {
            return NULL;
        }
        def = command->groups[next]->defs;
    }
}

/* NULL: no option has this short form. */
static const struct option_def *find_letter(const char *word)
{
    const struct option_def *def = global_options;

    while (def->name != NULL && (def->letter != word[1] || word[2] != '\0')) {
        def++;
    }
    return def->name == NULL ? NULL : def;
}

static void suggest_add_all(struct suggestion *suggestion, const struct option_def *defs)
{
    for (; defs->name != NULL; defs++) {
        suggest_add(suggestion, defs->name);
    }
}

/* Names that other programs have for the same thing. */
static const char *const other_names[][2] = {
    { "timeout", "wait" },    { "max-wait", "wait" },     { "lock-timeout", "wait" },
    { "lease", "ttl" },       { "expire", "ttl" },        { "expires", "ttl" },
    { "expiry", "ttl" },      { "duration", "ttl" },      { "retries", "attempts" },
    { "retry", "attempts" },  { "user", "owner" },        { "holder", "owner" },
    { "name", "owner-name" }, { "metadata", "meta" },     { "label", "meta" },
    { "tag", "meta" },        { "concurrency", "slots" }, { "max-holders", "slots" },
    { "lock-id", "id" },      { "env", "environment" },   { "status", "filter" },
    { "last", "limit" },      { "count", "limit" },       { "output", "json" },
    { "format", "json" },     { "message", "reason" },    { "kill-timeout", "kill-after" },
};

/* NULL: the command has no option that another program calls `name`. */
static const char *by_other_name(const struct cli_command *command, const char *name)
{
    for (size_t i = 0; i < sizeof other_names / sizeof other_names[0]; i++) {
        const char *ours = other_names[i][1];

        if (strcmp(other_names[i][0], name) == 0 && find_def(command, ours, strlen(ours)) != NULL) {
            return ours;
        }
    }
    return NULL;
}

static enum belay_code unknown_option(const struct cli_command *command, const char *word, size_t name_len,
                                      struct belay_error *err)
{
    char name[64];
    struct suggestion suggestion;
    const char *ours;

    if (word[1] != '-' || name_len >= sizeof name) {
        return error_set(err, BELAY_INVALID, "unknown option '%s'%s", word,
                         command != NULL && command->takes_command ? "; the command follows '--'" : "");
    }
    memcpy(name, word + 2, name_len);
    name[name_len] = '\0';
    suggest_begin(&suggestion, name);
    suggest_add_all(&suggestion, global_options);
    for (size_t i = 0; command != NULL && command->groups[i] != NULL; i++) {
        suggest_add_all(&suggestion, command->groups[i]->defs);
    }
    ours = by_other_name(command, name);
    if (ours != NULL || suggestion.found != NULL) {
        return error_set(err, BELAY_INVALID, "unknown option '--%s': did you mean '--%s'?", name,
                         ours != NULL ? ours : suggestion.found);
    }
    if (command == NULL) {
        return error_set(err, BELAY_INVALID, "unknown option '--%s'; options of a command follow its name",
                         name);
    }
    return error_set(err, BELAY_INVALID, "'belay %s' has no option '--%s'%s", command->name, name,
                     command->takes_command ? "; the command follows '--'" : "");
}

enum belay_code options_unknown_command(const char *word, struct belay_error *err)
{
    struct suggestion suggestion;

    suggest_begin(&suggestion, word);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        suggest_add(&suggestion, cli_commands[i]->name);
    }
    if (suggestion.found == NULL) {
        return error_set(err, BELAY_INVALID, "unknown command '%s'", word);
    }
    return error_set(err, BELAY_INVALID, "unknown command '%s': did you mean '%s'?", word, suggestion.found);
}

/* True if `word` is one of "a|b|c". */
static bool is_one_of(const char *choices, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = choices; at != NULL; at = strchr(at, '|')) {
        at += *at == '|';
        if (n > 0 && strncmp(at, word, n) == 0 && (at[n] == '|' || at[n] == '\0')) {
            return true;
        }
    }
    return false;
}

static bool parse_count(const char *text, long min, long *out)
{
    char *end;
    long value;

    if (*text < '0' || *text > '9') {
        return false;
    }
    errno = 0;
    value = strtol(text, &end, 10);
    if (*end != '\0' || errno != 0 || value < min || value > INT32_MAX) {
        return false;
    }
    *out = value;
    return true;
}

/* Digits and a unit, and yet no duration: it is too long. */
static bool is_too_long(const char *text)
{
    char one[16];
    int64_t ms;

    return (size_t)snprintf(one, sizeof one, "1%s", text + strspn(text, "0123456789")) < sizeof one &&
           strspn(text, "0123456789") > 0 && belay_parse_duration(one, &ms);
}

static enum belay_code say_not_a_duration(const char *name, const char *text, struct belay_error *err)
{
    return is_too_long(text)
               ? error_set(err, BELAY_INVALID,
                           "--%s '%s' is too long: give a duration such as 30s, 10m, 1h30m or 365d", name,
                           text)
               : error_set(err, BELAY_INVALID,
                           "--%s '%s' is not a duration: write it as 500ms, 30s, 10m or 1h30m", name, text);
}

static enum belay_code say_not_a_count(const struct option_def *def, const char *text,
                                       struct belay_error *err)
{
    long count;

    if (strspn(text, "0123456789") == strlen(text) && strlen(text) > 9 && !parse_count(text, 0, &count)) {
        return error_set(err, BELAY_INVALID, "--%s '%s' is too large: give at most %d", def->name, text,
                         INT32_MAX);
    }
    return error_set(err, BELAY_INVALID, "--%s '%s' is not a whole number of at least %ld", def->name, text,
                     def->min);
}

static enum belay_code check_value(const struct option_def *def, const char *text, struct belay_error *err)
{
    int64_t ms;
    long count;

    switch (def->kind) {
    case OPTION_DURATION:
        if (!belay_parse_duration(text, &ms)) {
            return say_not_a_duration(def->name, text, err);
        }
        break;
    case OPTION_COUNT:
        if (!parse_count(text, def->min, &count)) {
            return say_not_a_count(def, text, err);
        }
        break;
    case OPTION_CHOICE:
        if (!is_one_of(def->choices, text)) {
            return error_set(err, BELAY_INVALID, "--%s '%s' is not one of %s", def->name, text, def->choices);
        }
        break;
    case OPTION_TEXT:
        if (*text == '\0') {
            return error_set(err, BELAY_INVALID, "--%s is empty: give it a value or leave it out", def->name);
        }
        break;
    case OPTION_FLAG:
        break;
    }
    return BELAY_OK;
}

/* Parse the option at argv[*at]; its value is after "=" or in the next word. */
static enum belay_code parse_option(struct options *options, char **argv, int *at, struct belay_error *err)
{
    const char *word = argv[*at];
    bool is_long = word[1] == '-';
    const char *equals = is_long ? strchr(word, '=') : NULL;
    size_t len = !is_long ? 0 : equals == NULL ? strlen(word + 2) : (size_t)(equals - word) - 2;
    const struct option_def *def = is_long ? find_def(options->command, word + 2, len) : find_letter(word);
    const char *text = "";
    const char *before;
    struct option_value *values;

    if (def == NULL) {
        return unknown_option(options->command, word, len, err);
    }
    if (def->kind == OPTION_FLAG && equals != NULL) {
        return error_set(err, BELAY_INVALID, "--%s takes no value", def->name);
    }
    if (def->kind != OPTION_FLAG) {
        text = equals != NULL ? equals + 1 : argv[++*at];
    }
    if (text == NULL) {
        return error_set(err, BELAY_INVALID, "--%s needs a value: --%s %s", def->name, def->name,
                         def->kind == OPTION_CHOICE ? def->choices : def->value);
    }
    before = options_text(options, def->name);
    /* To let the last one win would hide which of two lock ids or ttls was meant. */
    if (!def->repeatable && before != NULL && strcmp(before, text) != 0) {
        return error_set(err, BELAY_INVALID, "--%s is given twice: '%s' and '%s'", def->name, before, text);
    }
    if (check_value(def, text, err) != BELAY_OK) {
        return err->code;
    }
    values = realloc(options->values, (options->n_values + 1) * sizeof *values);
    if (values == NULL) {
        return error_no_memory(err);
    }
    values[options->n_values++] = (struct option_value){ def, text };
    options->values = values;
    return BELAY_OK;
}

/* A word that is not an option: the group, the command, or an argument. */
static enum belay_code parse_word(struct options *options, const char *word, struct belay_error *err)
{
    const char *group = options->group;
    char name[64];
    int n;

    if (options->command != NULL) {
        options->args[options->n_args++] = word;
        return BELAY_OK;
    }
    if (group == NULL && cli_group_summary(word) != NULL) {
        options->group = word;
        return BELAY_OK;
    }
    n = snprintf(name, sizeof name, "%s%s%s", group == NULL ? "" : group, group == NULL ? "" : " ", word);
    options->command = n < (int)sizeof name ? cli_find_command(name) : NULL;
    return options->command == NULL ? options_unknown_command(n < (int)sizeof name ? name : word, err)
                                    : BELAY_OK;
}

static enum belay_code check_arguments(const struct options *options, struct belay_error *err)
{
    const struct cli_command *command = options->command;

    if (options_has(options, "help") || options_has(options, "version")) {
        return BELAY_OK;
    }
    if (command == NULL) {
        return options->group == NULL
                   ? BELAY_OK
                   : error_set(err, BELAY_INVALID, "'belay %s' needs a subcommand", options->group);
    }
    if (options->n_args > command->max_args) {
        return error_set(err, BELAY_INVALID, "unexpected argument '%s': usage: belay %s%s%s",
                         options->args[command->max_args], command->name,
                         *command->synopsis == '\0' ? "" : " ", command->synopsis);
    }
    if (options->n_args < command->min_args) {
        return error_set(err, BELAY_INVALID, "missing argument: usage: belay %s %s", command->name,
                         command->synopsis);
    }
    return BELAY_OK;
}

/* The characters that a word processor or a web page puts in place of "--": U+2010 to U+2015, U+2212 and U+FF0D. */
static bool begins_with_other_dash(const char *word)
{
    const unsigned char *bytes = (const unsigned char *)word;

    return (bytes[0] == 0xe2 && bytes[1] == 0x80 && bytes[2] >= 0x90 && bytes[2] <= 0x95) ||
           text_has_prefix(word, "\xe2\x88\x92") || text_has_prefix(word, "\xef\xbc\x8d");
}

enum belay_code options_parse(struct options *options, int argc, char **argv, struct belay_error *err)
{
    bool ended = false;
    enum belay_code code = BELAY_OK;

    assert(options->command == NULL && options->args == NULL && argv[argc] == NULL);
    options->args = calloc((size_t)argc + 1, sizeof *options->args);
    if (options->args == NULL) {
        return error_no_memory(err);
    }
    for (int at = 1; code == BELAY_OK && at < argc; at++) {
        if (!ended && strcmp(argv[at], "--") == 0) {
            ended = true;
            if (options->command != NULL && options->command->takes_command) {
                options->rest = argv + at + 1;
                break;
            }
        } else if (!ended && argv[at][0] == '-' && argv[at][1] != '\0') {
            code = parse_option(options, argv, &at, err);
        } else if (!ended && begins_with_other_dash(argv[at])) {
            code = error_set(
                err, BELAY_INVALID,
                "'%s' begins with a dash that is not the '-' of the keyboard: an option begins with '--'",
                argv[at]);
        } else {
            code = parse_word(options, argv[at], err);
        }
    }
    return code == BELAY_OK ? check_arguments(options, err) : code;
}

void options_release(struct options *options)
{
    free(options->values);
    free(options->args);
    memset(options, 0, sizeof *options);
}

const char *options_nth(const struct options *options, const char *name, size_t i)
{
    for (size_t k = 0; k < options->n_values; k++) {
        if (strcmp(options->values[k].def->name, name) == 0 && i-- == 0) {
            return options->values[k].text;
        }
    }
    return NULL;
}

const char *options_text(const struct options *options, const char *name)
{
    return options_nth(options, name, 0);
}

bool options_accept(const struct options *options, const char *name)
{
    return find_def(options->command, name, strlen(name)) != NULL;
}

bool options_has(const struct options *options, const char *name)
{
    return options_text(options, name) != NULL;
}

bool options_duration(const struct options *options, const char *name, int64_t *out_ms)
{
    const char *text = options_text(options, name);
    bool is_valid = text != NULL && belay_parse_duration(text, out_ms);

    assert(is_valid || text == NULL); /* check_value() has seen it */
    return is_valid;
}

bool options_count(const struct options *options, const char *name, long *out)
{
    const char *text = options_text(options, name);

    return text != NULL && parse_count(text, 0, out);
}
