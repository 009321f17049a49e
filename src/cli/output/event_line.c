#include "cli/output/event_line.h"

#include <stdlib.h>

#include "cli/output/print.h"
#include "json/json_write.h"

enum { TYPE_WIDTH = 14 };

static void add_details(struct buf *line, const struct belay_event *event)
{
    char span[CLOCK_TEXT_SIZE];

    if (event->duration_ms >= 0) {
        buf_addf(line, " after %s", clock_format_span(span, event->duration_ms));
    }
    if (event->by != NULL) {
        buf_adds(line, ", by ");
        escape_text(line, event->by);
    }
    if (event->reason != NULL) {
        buf_adds(line, ": ");
        escape_text(line, event->reason);
    }
}

void event_line(FILE *file, const struct belay_event *event, bool json, bool color)
{
    struct buf line = BUF_INIT(1 << 16);
    char at[CLOCK_TEXT_SIZE];
    size_t type_from;

    if (json) {
        char *text = wire_line(wire_event(event));

        (void)fprintf(file, "%s\n", text == NULL ? "{}" : text);
        free(text);
        return;
    }
    buf_addf(&line, "%s %s", clock_format_utc(at, event->at_unix_ms, true),
             print_style(color && event->level == BELAY_LEVEL_WARNING, "yellow"));
    type_from = line.len;
    escape_text(&line, event->type); /* a server's word, as the rest */
    buf_addf(&line, "%*s%s ",
             line.len - type_from < TYPE_WIDTH ? (int)(TYPE_WIDTH - (line.len - type_from)) : 0, "",
             print_style(color && event->level == BELAY_LEVEL_WARNING, PRINT_RESET));
    escape_text(&line, event->key);
    buf_adds(&line, " ");
    escape_text(&line, event->locked_by_name == NULL || *event->locked_by_name == '\0'
                           ? (event->locked_by == NULL ? "" : event->locked_by)
                           : event->locked_by_name);
    add_details(&line, event);
    (void)fprintf(file, "%s\n", line.failed ? "?" : line.data);
    buf_release(&line);
}
