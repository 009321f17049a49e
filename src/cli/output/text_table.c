#include "cli/output/text_table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cli/output/print.h"

enum { BATCH_ROWS = 256, GAP = 2, COLUMNS_MAX = 16 };

struct text_table {
    FILE *file;
    const struct text_column *columns; /* borrowed */
    size_t n_columns;
    size_t width;
    bool bold;
    bool has_titles; /* they were printed */
    bool failed;
    char **cells; /* owned; BATCH_ROWS * n_columns, each owned */
    size_t n_cells;
    size_t *widths; /* owned; the maximum over all batches, so that columns never get narrower */
    const char *left_out[COLUMNS_MAX]; /* borrowed; the cell that it has in every row; NULL: it is shown */
};

struct text_table *text_table_new(FILE *file, const struct text_column *columns, size_t n_columns,
                                  size_t width, bool bold_titles)
{
    struct text_table *table = calloc(1, sizeof *table);

    assert(n_columns > 0 && n_columns <= COLUMNS_MAX);
    if (table == NULL) {
        return NULL;
    }
    *table = (struct text_table){ .file = file, .columns = columns, .n_columns = n_columns, .width = width };
    table->bold = bold_titles;
    table->cells = calloc(BATCH_ROWS * n_columns, sizeof *table->cells);
    table->widths = calloc(n_columns, sizeof *table->widths);
    if (table->cells == NULL || table->widths == NULL) {
        (void)text_table_finish(table);
        return NULL;
    }
    for (size_t i = 0; i < n_columns; i++) {
        table->widths[i] = text_width(columns[i].title);
    }
    return table;
}

void text_table_leave_out(struct text_table *table, size_t column, const char *usual)
{
    assert(column < table->n_columns && table->n_cells == 0 && !table->has_titles);
    table->left_out[column] = usual;
}

/* A column that appears late gets its title then, so the titles are printed again. */
static void choose_columns(struct text_table *table)
{
    for (size_t i = 0; i < table->n_cells; i++) {
        size_t column = i % table->n_columns;

        if (table->left_out[column] != NULL && strcmp(table->cells[i], table->left_out[column]) != 0) {
            table->left_out[column] = NULL;
            table->has_titles = false;
        }
    }
}

static void measure_widths(struct text_table *table)
{
    for (size_t i = 0; i < table->n_cells; i++) {
        size_t width = text_width(table->cells[i]);
        size_t *widest = &table->widths[i % table->n_columns];

        *widest = width > *widest ? width : *widest;
    }
}

/* Shrink the widest column that may shrink, step by step, until the row fits. */
static void shrink(const struct text_table *table, size_t *widths)
{
    size_t total = 0;

    for (size_t i = 0; i < table->n_columns; i++) {
        total += table->left_out[i] != NULL ? 0 : widths[i] + (total > 0 ? GAP : 0);
    }
    while (total > table->width) {
        size_t widest = table->n_columns;

        for (size_t i = 0; i < table->n_columns; i++) {
            if (table->left_out[i] == NULL && table->columns[i].min_width > 0 &&
                widths[i] > table->columns[i].min_width &&
                (widest == table->n_columns || widths[i] > widths[widest])) {
                widest = i;
            }
        }
        if (widest == table->n_columns) {
            return;
        }
        widths[widest]--;
        total--;
    }
}

static void print_row(const struct text_table *table, const size_t *widths, const char *const *cells)
{
    struct buf line = BUF_INIT((size_t)1 << 20);

    for (size_t i = 0; i < table->n_columns; i++) {
        size_t before = line.len;
        size_t width;

        if (table->left_out[i] != NULL) {
            continue;
        }
        truncate_text(&line, cells[i], table->width == 0 ? SIZE_MAX / 4 : widths[i]);
        width = line.failed || line.data == NULL ? 0 : text_width(line.data + before);
        if (i + 1 < table->n_columns) {
            buf_addf(&line, "%*s", (int)(widths[i] - (width < widths[i] ? width : widths[i]) + GAP), "");
        }
    }
    while (!line.failed && line.data != NULL && line.len > 0 && line.data[line.len - 1] == ' ') {
        line.data[--line.len] = '\0';
    }
    (void)fprintf(table->file, "%s\n", line.failed || line.data == NULL ? "?" : line.data);
    buf_release(&line);
}

static void print_titles(struct text_table *table, const size_t *widths)
{
    const char *titles[COLUMNS_MAX];

    for (size_t i = 0; i < table->n_columns; i++) {
        titles[i] = table->columns[i].title;
    }
    (void)fputs(print_style(table->bold, "bold"), table->file);
    print_row(table, widths, titles);
    (void)fputs(print_style(table->bold, PRINT_RESET), table->file);
    table->has_titles = true;
}

static void flush_rows(struct text_table *table)
{
    size_t widths[COLUMNS_MAX];

    choose_columns(table);
    measure_widths(table);
    for (size_t i = 0; i < table->n_columns; i++) {
        widths[i] = table->widths[i];
    }
    if (table->width > 0) {
        shrink(table, widths);
    }
    if (!table->has_titles && table->n_cells > 0) {
        print_titles(table, widths);
    }
    for (size_t i = 0; i + table->n_columns <= table->n_cells; i += table->n_columns) {
        print_row(table, widths, (const char *const *)table->cells + i);
    }
    for (size_t i = 0; i < table->n_cells; i++) {
        free(table->cells[i]);
    }
    table->n_cells = 0;
}

void text_table_add(struct text_table *table, const char *text)
{
    struct buf cell = BUF_INIT((size_t)1 << 20);
    char *owned;

    escape_text(&cell, text);
    owned = buf_take(&cell);
    if (owned == NULL) {
        buf_release(&cell);
        table->failed = true;
        return;
    }
    assert(table->n_cells < BATCH_ROWS * table->n_columns);
    table->cells[table->n_cells++] = owned;
    if (table->n_cells == BATCH_ROWS * table->n_columns) {
        flush_rows(table);
    }
}

bool text_table_finish(struct text_table *table)
{
    bool whole;

    if (table == NULL) {
        return false;
    }
    whole = !table->failed;
    if (table->cells != NULL && table->widths != NULL) {
        flush_rows(table);
    }
    free(table->cells);
    free(table->widths);
    free(table);
    return whole;
}
