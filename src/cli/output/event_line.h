/* One event on one line, for people or as JSON. */
#ifndef CLI_OUTPUT_EVENT_LINE_H
#define CLI_OUTPUT_EVENT_LINE_H

#include <stdbool.h>
#include <stdio.h>

#include "belay.h"

void event_line(FILE *file, const struct belay_event *event, bool json, bool color);

#endif
