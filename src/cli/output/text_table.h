/*
 * A table for people. On a terminal its columns shrink until it fits; elsewhere
 * nothing is cut. Rows are held back a few hundred at a time, however many there
 * are: enough to align them, too few to matter.
 */
#ifndef CLI_OUTPUT_TEXT_TABLE_H
#define CLI_OUTPUT_TEXT_TABLE_H

#include <stdbool.h>
#include <stdio.h>

struct text_column {
    const char *title;
    size_t least; /* on a terminal it may shrink to so many columns; 0: not at all */
};

struct text_table;

/* `columns` is borrowed. `width` 0: nothing is cut. NULL if there is no memory. */
struct text_table *text_table_new(FILE *file, const struct text_column *columns, size_t n_columns,
                                  size_t width, bool bold_titles);
/* The next cell, row by row; escaped on the way. */
void text_table_add(struct text_table *table, const char *text);
/* Print what is held back and forget the table. False if anything was lost for want of memory. */
bool text_table_finish(struct text_table *table);

#endif
