/*
 * Options as tables. One table serves the parser, --help, the completions, the
 * man pages and docs/cli.md, so that none of them can tell a different story.
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

/* What a shell offers for the value. */
enum option_complete { COMPLETE_NOTHING, COMPLETE_FILE, COMPLETE_PROFILE, COMPLETE_KEY };

struct option_def {
    const char *name; /* without the dashes; NULL ends a table */
    enum option_kind kind;
    const char *value;   /* what stands for the value in a synopsis: "D", "NAME" */
    const char *help;    /* a phrase: no capital, no full stop */
    const char *choices; /* OPTION_CHOICE: "completed|failed" */
    enum option_complete complete;
    long min;
    bool repeatable; /* others may be given twice only if they say the same */
};

struct option_group {
    const char *title; /* "Lock options" */
    const struct option_def *defs;
};

struct option_value {
    const struct option_def *def;
    const char *text; /* borrowed from argv; NULL for a flag */
};

struct cli_command;

/* A command line, taken apart. */
struct options {
    const struct cli_command *command; /* NULL: none was named */
    struct option_value *values;       /* owned */
    size_t n_values;
    const char **args; /* owned array, borrowed strings: KEY and the like */
    size_t n_args;
    /* What follows "--", for a command that takes a command; ends in NULL. NULL: there was no "--". */
    char **rest; /* borrowed from argv */
    size_t n_rest;
};

/*
 * Take argv apart: the command, then its options and the global ones in any
 * order, then its arguments. BELAY_INVALID names what is wrong and the nearest
 * that would be right.
 */
enum belay_code options_parse(struct options *options, int argc, char **argv, struct belay_error *err);
void options_release(struct options *options);

bool options_has(const struct options *options, const char *name);
/* NULL if it was not given. */
const char *options_text(const struct options *options, const char *name);
/* The i-th value of an option that may be repeated; NULL after the last. */
const char *options_nth(const struct options *options, const char *name, size_t i);
/* These leave *out alone and return false if the option was not given. */
bool options_duration(const struct options *options, const char *name, int64_t *out_ms);
bool options_count(const struct options *options, const char *name, long *out);

extern const struct option_def global_options[];

#endif
