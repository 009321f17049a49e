#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/core/lock_print.h"
#include "cli/output/print.h"
#include "cli/top/top.h"

enum {
    AGE_WIDTH = 8,
    LEFT_WIDTH = 8,
    STATE_WIDTH = 8,
    QUEUE_WIDTH = 5,
    GAP = 2,
    HEAD_ROWS = 2,
    FOOT_ROWS = 1
};
enum { HISTORY_EVENTS = 50 };

static const char *const sort_names[TOP_SORTS] = { "key", "holder", "age", "expiry", "status", "queue" };

size_t top_page(const struct top *top)
{
    size_t rows = top->terminal.rows;

    return rows > HEAD_ROWS + FOOT_ROWS + 1 ? rows - HEAD_ROWS - FOOT_ROWS : 1;
}

size_t top_selected(const struct top *top)
{
    for (size_t i = 0; top->selected != NULL && i < top->model.n; i++) {
        if (strcmp(top->model.rows[i].key, top->selected) == 0) {
            return i;
        }
    }
    return 0;
}

/* ---- lines ---- */

static const char *style(const struct top *top, const char *name)
{
    return print_style(top->terminal.color, name);
}

/* One truncated line of the screen. Reverse video is used without colors too: it shows the selection. */
static void add_line(struct top *top, struct buf *out, const char *begin, const char *text)
{
    struct buf cut = BUF_INIT(1 << 16);

    buf_adds(&cut, "");
    truncate_text(&cut, text, top->terminal.columns);
    buf_addf(out, "%s%s", begin, cut.failed ? "" : cut.data);
    buf_adds(out, *begin == '\0' ? "\033[K\r\n" : "\033[K\033[0m\r\n");
    buf_release(&cut);
}

/* Add `text` in exactly `width` columns. */
static void add_cell(struct buf *line, const char *text, size_t width, bool is_last)
{
    struct buf cut = BUF_INIT(1 << 16);
    size_t wide;

    buf_adds(&cut, "");
    truncate_text(&cut, text, width);
    if (!cut.failed) {
        wide = text_width(cut.data);
        buf_adds(line, cut.data);
        buf_addf(line, "%*s", (int)((wide < width ? width - wide : 0) + (is_last ? 0 : GAP)), "");
    }
    buf_release(&cut);
}

struct widths {
    size_t key;
    size_t holder;
};

static struct widths widths_of(const struct top *top)
{
    size_t fixed = AGE_WIDTH + LEFT_WIDTH + STATE_WIDTH + QUEUE_WIDTH + 5 * GAP;
    size_t rest = top->terminal.columns > fixed + 20 ? top->terminal.columns - fixed : 20;

    return (struct widths){ rest * 3 / 5, rest - rest * 3 / 5 };
}

static void add_cells(const struct top *top, struct buf *line, const char *const cells[6])
{
    struct widths widths = widths_of(top);

    add_cell(line, cells[0], widths.key, false);
    add_cell(line, cells[1], widths.holder, false);
    add_cell(line, cells[2], AGE_WIDTH, false);
    add_cell(line, cells[3], LEFT_WIDTH, false);
    add_cell(line, cells[4], STATE_WIDTH, false);
    add_cell(line, cells[5], QUEUE_WIDTH, true);
}

/* ---- the list ---- */

static void draw_row(struct top *top, struct buf *out, const struct top_row *row, bool is_selected)
{
    enum belay_status status = top_row_status(row);
    bool is_stale = status == BELAY_STATUS_ACTIVE && row->is_stale;
    struct buf line = BUF_INIT(1 << 16);
    char age[CLOCK_TEXT_SIZE];
    char left[CLOCK_TEXT_SIZE];
    char queue[24];
    const char *begin = is_selected                      ? "\033[7m"
                        : is_stale                       ? style(top, "yellow")
                        : status == BELAY_STATUS_EXPIRED ? style(top, "dim")
                                                         : "";

    (void)clock_format_span(age, (clock_unix_ms() - row->locked_at_unix_ms) / 1000 * 1000);
    (void)clock_format_span(left, top_row_left_ms(row) / 1000 * 1000);
    (void)snprintf(queue, sizeof queue, "%zu", row->n_waiters);
    add_cells(top, &line,
              (const char *const[]){ row->shown, row->holder, age, status == BELAY_STATUS_ACTIVE ? left : "-",
                                     is_stale ? "stale" : belay_status_name(status),
                                     row->n_waiters == 0 ? "-" : queue });
    add_line(top, out, begin, line.failed ? "?" : line.data);
    buf_release(&line);
}

static void draw_titles(struct top *top, struct buf *out)
{
    struct buf line = BUF_INIT(4096);
    size_t held = 0;
    size_t waiting = 0;
    size_t stale = 0;

    for (size_t i = 0; i < top->model.n; i++) {
        const struct top_row *row = &top->model.rows[i];

        held += top_row_status(row) == BELAY_STATUS_ACTIVE;
        stale += row->is_stale;
        waiting += row->n_waiters;
    }
    buf_addf(&line, "belay top  %zu held, %zu waiting, %zu stale  sorted by %s%s", held, waiting, stale,
             sort_names[top->model.sort], top->model.is_reversed ? ", reversed" : "");
    if (top->model.filter[0] != '\0') {
        buf_adds(&line, "  filter '");
        escape_text(&line, top->model.filter);
        buf_adds(&line, "'");
    }
    add_line(top, out, style(top, "bold"), line.failed ? "belay top" : line.data);
    buf_release(&line);
    add_cells(top, &line, (const char *const[]){ "KEY", "HOLDER", "AGE", "EXPIRES", "STATUS", "QUEUE" });
    add_line(top, out, style(top, "dim"), line.failed ? "" : line.data);
    buf_release(&line);
}

/* Scroll only as far as needed to show the selected row. */
static void scroll_to(struct top *top, size_t selected)
{
    size_t page = top_page(top);

    if (selected < top->first) {
        top->first = selected;
    } else if (selected >= top->first + page) {
        top->first = selected - page + 1;
    }
    if (top->first + page > top->model.n) {
        top->first = top->model.n > page ? top->model.n - page : 0;
    }
}

static void draw_list(struct top *top, struct buf *out)
{
    size_t page = top_page(top);
    size_t selected = top_selected(top);

    scroll_to(top, selected);
    draw_titles(top, out);
    for (size_t i = 0; i < page; i++) {
        if (top->first + i < top->model.n) {
            draw_row(top, out, &top->model.rows[top->first + i], top->first + i == selected);
        } else if (i == 1 && top->model.n == 0) {
            add_line(top, out, "",
                     !top->model.is_listed          ? "  reading the locks"
                     : top->model.filter[0] != '\0' ? "  no matching locks; press / and Enter to show all"
                                                    : "  no locks; to acquire one: belay acquire KEY");
        } else {
            buf_adds(out, "\033[K\r\n");
        }
    }
}

/* ---- one lock ---- */

static void add_detail(struct top *top, const char *name, const char *text)
{
    char **lines = realloc(top->lines, (top->n_lines + 1) * sizeof *lines);
    struct buf line = BUF_INIT(1 << 16);

    if (lines == NULL) {
        return;
    }
    top->lines = lines;
    buf_addf(&line, "  %-12s", name);
    escape_text(&line, text);
    lines[top->n_lines] = buf_take(&line);
    top->n_lines += lines[top->n_lines] != NULL;
}

void top_free_detail(struct top *top)
{
    for (size_t i = 0; i < top->n_lines; i++) {
        free(top->lines[i]);
    }
    free(top->lines);
    top->lines = NULL;
    top->n_lines = 0;
}

static void detail_lease(struct top *top, const struct belay_info *info, int64_t now)
{
    struct buf text = BUF_INIT(1 << 16);
    char time[PRINT_TIME_SIZE];
    char span[CLOCK_TEXT_SIZE];
    char number[24];

    lock_format_state(&text, info);
    add_detail(top, "Status:", text.failed ? "?" : text.data);
    buf_release(&text);
    print_holder(&text, info);
    add_detail(top, "Holder:", text.failed ? "?" : text.data);
    buf_release(&text);
    add_detail(top, "Since:", print_ago(time, info->locked_at_unix_ms, now));
    if (info->status == BELAY_STATUS_ACTIVE) {
        add_detail(top, "Expires in:", clock_format_span(span, info->expires_in_ms / 1000 * 1000));
    }
    if (info->last_heartbeat_unix_ms != 0) {
        add_detail(top, "Heartbeat:", print_ago(time, info->last_heartbeat_unix_ms, now));
    }
    (void)snprintf(number, sizeof number, "%llu", (unsigned long long)info->token);
    add_detail(top, "Token:", info->token == 0 ? "none: this store issues no tokens" : number);
}

/* How the lock is held, and by whom, if it is not exclusive. */
static void detail_holders(struct top *top, const struct belay_info *info, int64_t now)
{
    struct buf text = BUF_INIT(1 << 16);

    if (info->mode == BELAY_EXCLUSIVE) {
        return;
    }
    lock_format_mode(&text, info);
    add_detail(top, "Mode:", text.failed ? "?" : text.data);
    buf_release(&text);
    for (size_t i = 0; i < info->n_holders; i++) {
        lock_format_holder(&text, info, i, now);
        add_detail(top, i == 0 ? "Holders:" : "", text.failed ? "?" : text.data);
        buf_release(&text);
    }
}

static void detail_lists(struct top *top, const struct belay_info *info, int64_t now)
{
    for (size_t i = 0; i < info->n_metadata; i++) {
        struct buf text = BUF_INIT(1 << 16);

        buf_addf(&text, "%s=%s", info->metadata[i].name, info->metadata[i].value);
        add_detail(top, i == 0 ? "Metadata:" : "", text.failed ? "?" : text.data);
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
        add_detail(top, i == 0 ? "Waiting:" : "", text.failed ? "?" : text.data);
        buf_release(&text);
    }
}

static bool on_history(void *context, const struct belay_event *event)
{
    struct top *top = context;
    struct buf text = BUF_INIT(1 << 16);
    char time[CLOCK_TEXT_SIZE];

    buf_addf(&text, "%s %-14s ", clock_format_utc(time, event->at_unix_ms, false), event->type);
    print_event_holder(&text, event);
    add_event_details(&text, event);
    add_detail(top, "", text.failed ? "?" : text.data);
    buf_release(&text);
    return true;
}

/* Wrap a long text at spaces. */
static void add_wrapped(struct top *top, const char *text)
{
    size_t room = top->terminal.columns > 40 ? top->terminal.columns - 16 : 24;
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
        add_detail(top, "", line);
        text += len + strspn(text + len, " ");
    }
}

void top_read_detail(struct top *top)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_info *info = NULL;
    int64_t now = clock_unix_ms();

    if (top->selected == NULL) {
        return;
    }
    top_free_detail(top);
    if (belay_get(top->model.client, top->selected, &info, &err) != BELAY_OK) {
        add_detail(top, "Status:", err.text);
    } else {
        detail_lease(top, info, now);
        detail_holders(top, info, now);
        detail_lists(top, info, now);
    }
    add_detail(top, "", "");
    add_detail(top, "History:", "");
    if (belay_history(top->model.client, top->selected, HISTORY_EVENTS, on_history, top, &err) != BELAY_OK) {
        add_wrapped(top, err.text);
    }
    belay_info_free(info);
    belay_error_release(&err);
}

static void draw_lines(struct top *top, struct buf *out, const char *title, char *const *lines, size_t n)
{
    size_t page = top_page(top);

    if (top->first_line + page > n) {
        top->first_line = n > page ? n - page : 0;
    }
    add_line(top, out, style(top, "bold"), title);
    buf_adds(out, "\033[K\r\n");
    for (size_t i = 0; i < page; i++) {
        add_line(top, out, "", top->first_line + i < n ? lines[top->first_line + i] : "");
    }
}

static void draw_detail(struct top *top, struct buf *out)
{
    struct buf title = BUF_INIT(4096);

    escape_text(&title, top->selected == NULL ? "" : top->selected);
    draw_lines(top, out, title.failed || title.data == NULL ? "" : title.data, top->lines, top->n_lines);
    buf_release(&title);
}

static void draw_help(struct top *top, struct buf *out)
{
    static char *const lines[] = {
        "  up, down, j, k        select a lock",
        "  PgUp, PgDn, Home, End scroll by pages",
        "  Enter                 show all fields of the lock and its history",
        "  /                     show only keys and holders that contain a text",
        "  s                     sort by key, holder, age, expiry, status or queue",
        "  r                     reverse the order",
        "  u                     unlock: end the lock of another client, after confirmation",
        "  Esc, q                back; q in the list quits",
    };

    draw_lines(top, out, "Keys", lines, sizeof lines / sizeof lines[0]);
}

/* ---- the last line ---- */

static void draw_foot(struct top *top, struct buf *out)
{
    struct buf line = BUF_INIT(1 << 16);
    struct buf cut = BUF_INIT(1 << 16);
    const char *begin = style(top, "dim");

    buf_adds(&cut, "");
    if (top->prompt != TOP_PROMPT_NONE) {
        begin = "";
        buf_adds(&line, top->prompt == TOP_PROMPT_FILTER ? "Show only: "
                        : top->prompt == TOP_PROMPT_REASON
                            ? "Reason to end the lock (for the history; Esc cancels): "
                            : top->note);
        escape_text(&line, top->typed);
        buf_adds(&line, "_");
    } else if (top->note[0] != '\0') {
        begin = style(top, "yellow");
        escape_text(&line, top->note);
    } else if (top->model.problem[0] != '\0') {
        begin = style(top, "red");
        buf_adds(&line, "out of date: ");
        escape_text(&line, top->model.problem);
    } else {
        buf_adds(&line, top->view == TOP_LIST
                            ? "Enter details  / filter  s sort  r reverse  u unlock  ? keys  q quit"
                            : "Esc back  u unlock  up/down scroll  q back");
    }
    truncate_text(&cut, line.failed ? "" : line.data, top->terminal.columns);
    buf_addf(out, "%s%s\033[K\033[0m\033[J", begin, cut.failed ? "" : cut.data);
    buf_release(&line);
    buf_release(&cut);
}

void top_draw(struct top *top)
{
    struct buf out = BUF_INIT((size_t)1 << 22);

    buf_adds(&out, "\033[H");
    if (top->view == TOP_LIST) {
        draw_list(top, &out);
    } else if (top->view == TOP_DETAIL) {
        draw_detail(top, &out);
    } else {
        draw_help(top, &out);
    }
    draw_foot(top, &out);
    top_terminal_write(&out);
    buf_release(&out);
}
