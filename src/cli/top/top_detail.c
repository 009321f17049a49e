#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/core/lock_print.h"
#include "cli/output/print.h"
#include "cli/top/top.h"

enum { HISTORY_EVENTS = 50 };

static void add_detail(struct top_lines *lines, const char *name, const char *text)
{
    char **texts = realloc(lines->texts, (lines->n + 1) * sizeof *texts);
    struct buf line = BUF_INIT(1 << 16);

    if (texts == NULL) {
        return;
    }
    lines->texts = texts;
    buf_addf(&line, "  %-12s", name);
    escape_text(&line, text);
    texts[lines->n] = buf_take(&line);
    lines->n += texts[lines->n] != NULL;
}

void top_lines_free(struct top_lines *lines)
{
    for (size_t i = 0; i < lines->n; i++) {
        free(lines->texts[i]);
    }
    free(lines->texts);
    *lines = (struct top_lines){ 0 };
}

static void detail_lease(struct top_lines *lines, const struct belay_info *info, int64_t now)
{
    struct buf text = BUF_INIT(1 << 16);
    char time[PRINT_TIME_SIZE];
    char span[CLOCK_TEXT_SIZE];
    char number[24];

    lock_format_state(&text, info);
    add_detail(lines, "Status:", text.failed ? "?" : text.data);
    buf_release(&text);
    print_holder(&text, info);
    add_detail(lines, "Holder:", text.failed ? "?" : text.data);
    buf_release(&text);
    add_detail(lines, "Since:", print_ago(time, info->locked_at_unix_ms, now));
    if (info->status == BELAY_STATUS_ACTIVE) {
        add_detail(lines, "Expires in:", clock_format_span(span, info->expires_in_ms / 1000 * 1000));
    }
    if (info->last_heartbeat_unix_ms != 0) {
        add_detail(lines, "Heartbeat:", print_ago(time, info->last_heartbeat_unix_ms, now));
    }
    (void)snprintf(number, sizeof number, "%llu", (unsigned long long)info->token);
    add_detail(lines, "Token:", info->token == 0 ? "none: this store issues no tokens" : number);
}

/* How the lock is held, and by whom, if it is not exclusive. */
static void detail_holders(struct top_lines *lines, const struct belay_info *info, int64_t now)
{
    struct buf text = BUF_INIT(1 << 16);

    if (info->mode == BELAY_EXCLUSIVE) {
        return;
    }
    lock_format_mode(&text, info);
    add_detail(lines, "Mode:", text.failed ? "?" : text.data);
    buf_release(&text);
    for (size_t i = 0; i < info->n_holders; i++) {
        lock_format_holder(&text, info, i, now);
        add_detail(lines, i == 0 ? "Holders:" : "", text.failed ? "?" : text.data);
        buf_release(&text);
    }
}

static void detail_lists(struct top_lines *lines, const struct belay_info *info, int64_t now)
{
    for (size_t i = 0; i < info->n_metadata; i++) {
        struct buf text = BUF_INIT(1 << 16);

        buf_addf(&text, "%s=%s", info->metadata[i].name, info->metadata[i].value);
        add_detail(lines, i == 0 ? "Metadata:" : "", text.failed ? "?" : text.data);
        buf_release(&text);
    }
    for (size_t i = 0; i < info->n_waiters; i++) {
        const struct belay_waiter *waiter = &info->waiters[i];
        struct buf text = BUF_INIT(1 << 16);
        char span[CLOCK_TEXT_SIZE];

        buf_addf(&text, "%zu. %s (%s), for %s%s%s", i + 1, waiter->locked_by_name, waiter->locked_by,
                 clock_format_span(span, (now - waiter->since_unix_ms) / 1000 * 1000),
                 waiter->mode == BELAY_EXCLUSIVE ? "" : ", ",
                 waiter->mode == BELAY_EXCLUSIVE ? "" : belay_mode_name(waiter->mode));
        add_detail(lines, i == 0 ? "Waiting:" : "", text.failed ? "?" : text.data);
        buf_release(&text);
    }
}

static bool on_history(void *context, const struct belay_event *event)
{
    struct top_lines *lines = context;
    struct buf text = BUF_INIT(1 << 16);
    char time[CLOCK_TEXT_SIZE];

    buf_addf(&text, "%s %-14s ", clock_format_utc(time, event->at_unix_ms, false), event->type);
    print_event_holder(&text, event);
    add_event_details(&text, event);
    add_detail(lines, "", text.failed ? "?" : text.data);
    buf_release(&text);
    return true;
}

/* Wrap a long text at spaces. */
static void add_wrapped(struct top_lines *lines, const char *text, size_t columns)
{
    size_t room = columns > 40 ? columns - 16 : 24;
    char line[256];

    room = room < sizeof line ? room : sizeof line - 1;
    while (*text != '\0') {
        size_t len = strlen(text);

        if (len > room) {
            len = room;
            while (len > room / 2 && text[len] != ' ') {
                len--;
            }
            len = text[len] == ' ' ? len : room;
        }
        (void)snprintf(line, sizeof line, "%.*s", (int)len, text);
        add_detail(lines, "", line);
        text += len + strspn(text + len, " ");
    }
}

void top_read_detail(struct belay_client *client, const char *key, size_t columns, struct top_lines *out)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_info *info = NULL;
    int64_t now = clock_unix_ms();

    if (belay_get(client, key, &info, &err) != BELAY_OK) {
        add_detail(out, "Status:", err.text);
    } else {
        detail_lease(out, info, now);
        detail_holders(out, info, now);
        detail_lists(out, info, now);
    }
    add_detail(out, "", "");
    add_detail(out, "History:", "");
    if (belay_history(client, key, HISTORY_EVENTS, on_history, out, &err) != BELAY_OK) {
        add_wrapped(out, err.text, columns);
    }
    belay_info_free(info);
    belay_error_release(&err);
}
