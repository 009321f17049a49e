/* Splits a command line into arguments as a shell does, with quotes but no other shell syntax. */
#ifndef AWS_TEXT_ARGV_SPLIT_H
#define AWS_TEXT_ARGV_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

/*
 * 'single quotes' keep everything; "double quotes" keep all but \" and \\; a backslash
 * elsewhere keeps the next character. False for an open quote or backslash, an empty line, or
 * without memory. *out_argv ends in NULL.
 */
bool argv_split(const char *line, char ***out_argv);
void argv_free(char **words);

#endif
