/* Text for terminals: escaping, widths, styles, times, holders and events. */
#ifndef CLI_OUTPUT_PRINT_H
#define CLI_OUTPUT_PRINT_H

#include <stdio.h>

#include "base/buf.h"
#include "base/clock.h"
#include "belay.h"

/*
 * Add `text`, with every character that could move the cursor, or reorder or hide text, and every byte that is not
 * UTF-8, as \xNN or \u{NNNN}.
 */
void escape_text(struct buf *out, const char *text);
/* The same to a stream. */
void print_escaped(FILE *file, const char *text);
/* A line, without its newline in the format; all of it is escaped. */
void print_line_escaped(FILE *file, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * The rest of a line, whose first `at` columns are printed, and its newline; all of it is escaped. It is wrapped at
 * spaces to the terminal at `fd`, with `indent` columns before each further line. Elsewhere it stays one line, for
 * grep.
 */
void print_wrapped(FILE *file, int fd, size_t at, size_t indent, const char *text);

/* Print "name          value"; NULL: unknown. */
void print_field(const char *name, const char *value);

/* The columns that `text`, which is escaped, takes on a terminal. */
size_t text_width(const char *text);
/* Add `text`, truncated to `columns` with an ellipsis. */
void truncate_text(struct buf *out, const char *text, size_t columns);
/* The same with the ellipsis in the middle. */
void truncate_middle(struct buf *out, const char *text, size_t columns);

/* The width of the terminal at `fd`; 0 if it is not a terminal. */
size_t print_columns(int fd);

/* "bold", "dim", "red", "yellow", "green": the escape sequence if `on`, else "". */
const char *print_style(bool on, const char *style);
#define PRINT_RESET "reset"

enum { PRINT_TIME_SIZE = 80 };
/* "2024-01-15T10:30:00Z (4h ago)". Returns `out`. */
char *print_ago(char out[PRINT_TIME_SIZE], int64_t unix_ms, int64_t now_unix_ms);

/* "2024-01-15 10:30:00 UTC" and "3 hours 45 minutes" (S4.10). Return `out`. */
char *print_day(char out[PRINT_TIME_SIZE], int64_t unix_ms);
char *print_long_span(char out[PRINT_TIME_SIZE], int64_t ms, size_t units);

/* "alice (execution-abc123)": name and owner, or the owner alone if it begins with the name. */
void print_holder(struct buf *out, const struct belay_info *info);
/* The name alone if the owner begins with it: the default owner is user@host and numbers. */
void print_holder_short(struct buf *out, const struct belay_info *info);
/* The same; of a lock with several holders the oldest, and how many more there are: "alice +2". */
void print_holders_short(struct buf *out, const struct belay_info *info);

/* The same as print_holder_short(). */
void print_event_holder(struct buf *out, const struct belay_event *event);
/* Add " after 4s, by admin: reason", as far as the event has them; escaped. */
void add_event_details(struct buf *line, const struct belay_event *event);
/* One event on one line, as text or JSON. */
void print_event(FILE *file, const struct belay_event *event, bool json, bool color);

#endif
