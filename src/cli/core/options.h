/*
 * The command line. One table of options serves the parser, --help, the shell completions, the man pages and
 * docs/cli.md, so that they cannot disagree.
 */
#ifndef CLI_CORE_OPTIONS_H
#define CLI_CORE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "belay.h"

enum option_kind {
    OPTION_FLAG,
    OPTION_TEXT,
    OPTION_DURATION,
    OPTION_COUNT, /* a whole number from `min` to 2147483647 */
    OPTION_CHOICE /* one of `choices` */
};

/* How the shell completes the value. */
enum option_complete { COMPLETE_NOTHING, COMPLETE_FILE, COMPLETE_PROFILE, COMPLETE_KEY };

struct option_def {
    const char *name; /* without the dashes; NULL ends a table */
    char letter;      /* of its short form, such as the q of -q; 0: none */
    enum option_kind kind;
    const char *value;   /* placeholder of the value: "D", "NAME" */
    const char *help;    /* a phrase: no capital, no full stop */
    const char *choices; /* OPTION_CHOICE: "completed|failed" */
    enum option_complete complete;
    long min;
    bool repeatable; /* else it may be given twice only with the same value */
};

/* Rows of a table of options. OPT_LIST may be given several times; OPT_FROM completes its value from `source`. */
/* clang-format off */
#define OPT_FLAG(word, says) { .name = (word), .kind = OPTION_FLAG, .help = (says) }
#define OPT_LETTER(word, short_form, says) { .name = (word), .letter = (short_form), .kind = OPTION_FLAG, .help = (says) }
#define OPT_TEXT(word, place, says) { .name = (word), .kind = OPTION_TEXT, .value = (place), .help = (says) }
#define OPT_LIST(word, place, says) \
    { .name = (word), .kind = OPTION_TEXT, .value = (place), .help = (says), .repeatable = true }
#define OPT_FROM(source, word, place, says) \
    { .name = (word), .kind = OPTION_TEXT, .value = (place), .help = (says), .complete = (source) }
#define OPT_DURATION(word, says) { .name = (word), .kind = OPTION_DURATION, .value = "D", .help = (says) }
#define OPT_COUNT(word, least, says) \
    { .name = (word), .kind = OPTION_COUNT, .value = "N", .min = (least), .help = (says) }
#define OPT_CHOICE(word, words, says) { .name = (word), .kind = OPTION_CHOICE, .choices = (words), .help = (says) }
#define OPT_END { .name = NULL }
#define OPTION_TABLE(...) (const struct option_def[]){ __VA_ARGS__, OPT_END }
/* clang-format on */

struct option_group {
    const char *title; /* "Lock options" */
    const struct option_def *defs;
};

struct option_value {
    const struct option_def *def;
    const char *text; /* borrowed from argv; "" for a flag */
};

struct cli_command;

/* A parsed command line. */
struct options {
    const struct cli_command *command; /* NULL: none given */
    const char *group;                 /* "state" of "state load"; borrowed from argv; NULL: none given */
    struct option_value *values;       /* owned */
    size_t n_values;
    const char **args; /* owned array, borrowed strings: KEY and the like */
    size_t n_args;
    /* The words after "--", for a command that takes a command; NULL-terminated. NULL: there was no "--". */
    char **rest; /* borrowed from argv */
};

/*
 * Parse argv: the command, and options and arguments in any order. BELAY_INVALID names the wrong word and
 * suggests a similar one. `options` is zero-initialized, and released by the caller even after an error.
 */
enum belay_code options_parse(struct options *options, int argc, char **argv, struct belay_error *err);
void options_release(struct options *options);

/* Whether the command has this option. */
bool options_accept(const struct options *options, const char *name);
/* Whether it is given. */
bool options_has(const struct options *options, const char *name);
/* The value; NULL if the option was not given. */
const char *options_text(const struct options *options, const char *name);
/* The i-th value of a repeatable option; NULL after the last. */
const char *options_nth(const struct options *options, const char *name, size_t i);
/* These return false and leave *out unchanged if the option was not given. */
bool options_duration(const struct options *options, const char *name, int64_t *out_ms);
bool options_count(const struct options *options, const char *name, long *out);

/* Fails with the command that was perhaps meant. */
enum belay_code options_unknown_command(const char *word, struct belay_error *err);

extern const struct option_def global_options[];

#endif
