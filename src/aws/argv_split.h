/* A command line taken apart as a shell would, with quotes but nothing else of a shell. */
#ifndef AWS_ARGV_SPLIT_H
#define AWS_ARGV_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

/*
 * 'single quotes' keep everything; "double quotes" keep all but \" and \\; a
 * backslash elsewhere keeps the next character. False if a quote or backslash
 * is left open, if there is no word, or without memory. *out_words ends in NULL.
 */
bool words_split(const char *line, char ***out_words);
void words_free(char **words);

#endif
