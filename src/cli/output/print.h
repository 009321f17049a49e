/* Text for people: hostile bytes made visible, spans of time, tables. */
#ifndef CLI_OUTPUT_PRINT_H
#define CLI_OUTPUT_PRINT_H

#include <stdio.h>

#include "base/buf.h"
#include "base/clock.h"
#include "belay.h"

/*
 * Add `text` with everything that could move a cursor, reorder or hide what
 * stands on the line written as \xNN or \u{NNNN}. Bytes that are no UTF-8 too.
 */
void escape_text(struct buf *out, const char *text);
/* The same to a stream. */
void print_escaped(FILE *file, const char *text);

/* A line of a card: "name          value"; NULL is not known. */
void print_field(const char *name, const char *value);

/* How many columns a terminal needs for `text`, which is escaped. */
size_t text_width(const char *text);
/* Add `text`, cut to `columns` with an ellipsis at its end if it is wider. */
void truncate_text(struct buf *out, const char *text, size_t columns);

/* The columns of the terminal behind `fd`; 0 if it is none. */
size_t print_columns(int fd);

/* "bold", "dim", "red", "yellow", "green": the escape sequence if `on`, else "". */
const char *print_style(bool on, const char *style);
#define PRINT_RESET "reset"

enum { PRINT_TIME_SIZE = 80 };
/* "2024-01-15T10:30:00Z (4h ago)". Returns `out`. */
char *print_ago(char out[PRINT_TIME_SIZE], int64_t unix_ms, int64_t now_unix_ms);

/* As document 004 writes them: "2024-01-15 10:30:00 UTC" and "3 hours 45 minutes". Return `out`. */
char *print_day(char out[PRINT_TIME_SIZE], int64_t unix_ms);
char *print_long_span(char out[PRINT_TIME_SIZE], int64_t ms, size_t units);

/* "alice (execution-abc123)": name and owner, or the owner alone where it begins with the name. */
void print_holder(struct buf *out, const struct belay_info *info);
/* The same with the name alone in that case: an owner made by belay is user@host and numbers. */
void print_holder_short(struct buf *out, const struct belay_info *info);

/* One event on one line, for people or as JSON. */
void print_event(FILE *file, const struct belay_event *event, bool json, bool color);

#endif
