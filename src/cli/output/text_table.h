/*
 * A table of text. On a terminal its columns shrink until it fits; elsewhere nothing is truncated. Rows are
 * buffered in batches, to align them.
 */
#ifndef CLI_OUTPUT_TEXT_TABLE_H
#define CLI_OUTPUT_TEXT_TABLE_H

#include <stdbool.h>
#include <stdio.h>

struct text_column {
    const char *title;
    size_t min_width; /* how far it may shrink on a terminal; 0: it does not shrink */
};

struct text_table;

/* `columns` is borrowed. `width` 0: do not truncate. NULL if out of memory. */
struct text_table *text_table_new(FILE *file, const struct text_column *columns, size_t n_columns,
                                  size_t width, bool bold_titles);
/* Leave out a column as long as all its cells are `usual`, which is borrowed. Call this before the first cell. */
void text_table_leave_out(struct text_table *table, size_t column, const char *usual);
/* Add the next cell, row by row; it is escaped. */
void text_table_add(struct text_table *table, const char *text);
/* Print the buffered rows and free the table. False if cells were lost because memory ran out. */
bool text_table_finish(struct text_table *table);

#endif
