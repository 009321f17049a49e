#include <string.h>

#include "base/clock.h"
#include "cli/output/print.h"
#include "cli/top/top.h"

enum {
    AGE_WIDTH = 8,
    LEFT_WIDTH = 8,
    STATE_WIDTH = 8,
    QUEUE_WIDTH = 5,
    GAP = 2,
    AGE_COLUMNS = 70,    /* a narrower terminal has no room for the age */
    HOLDER_COLUMNS = 50, /* and one that is still narrower none for the holder */
    HEAD_ROWS = 2,
    FOOT_ROWS = 1
};

static const char *const sort_names[TOP_SORTS] = { "attention", "key",    "holder", "age",
                                                   "expiry",    "status", "queue" };

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
static void add_screen_line(struct top *top, struct buf *out, const char *begin, const char *text)
{
    struct buf cut = BUF_INIT(1 << 16);

    buf_adds(&cut, "");
    truncate_text(&cut, text, top->terminal.columns);
    buf_addf(out, "%s%s", begin, cut.failed ? "" : cut.data);
    buf_adds(out, *begin == '\0' ? "\033[K\r\n" : "\033[K\033[0m\r\n");
    buf_release(&cut);
}

/* Add `text` in exactly `width` columns. */
static void add_cell(struct buf *line, const char *text, size_t width, bool is_key)
{
    struct buf cut = BUF_INIT(1 << 16);
    size_t wide;

    if (width == 0) {
        return;
    }
    buf_adds(&cut, "");
    /* Keys often differ at their ends only. */
    (is_key ? truncate_middle : truncate_text)(&cut, text, width);
    if (!cut.failed) {
        wide = text_width(cut.data);
        buf_addf(line, "%s%s%*s", line->len == 0 ? "" : "  ", cut.data,
                 (int)(wide < width ? width - wide : 0), "");
    }
    buf_release(&cut);
}

/* The widths of the columns; 0: there is no room for it. */
static void find_widths(const struct top *top, size_t widths[6])
{
    size_t columns = top->terminal.columns;
    size_t age = columns < AGE_COLUMNS ? 0 : AGE_WIDTH;
    size_t fixed = LEFT_WIDTH + STATE_WIDTH + QUEUE_WIDTH + 3 * GAP + (age == 0 ? 0 : age + GAP);
    size_t rest = columns > fixed + 10 ? columns - fixed : 10;
    size_t holder = columns < HOLDER_COLUMNS ? 0 : (rest - GAP) * 2 / 5;

    widths[0] = rest - (holder == 0 ? 0 : holder + GAP);
    widths[1] = holder;
    widths[2] = age;
    widths[3] = LEFT_WIDTH;
    widths[4] = STATE_WIDTH;
    widths[5] = QUEUE_WIDTH;
}

static void add_cells(const struct top *top, struct buf *line, const char *const cells[6])
{
    size_t widths[6];

    find_widths(top, widths);
    for (size_t i = 0; i < 6; i++) {
        add_cell(line, cells[i], widths[i], i == 0);
    }
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
    add_screen_line(top, out, begin, line.failed ? "?" : line.data);
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
    add_screen_line(top, out, style(top, "bold"), line.failed ? "belay top" : line.data);
    buf_release(&line);
    add_cells(top, &line, (const char *const[]){ "KEY", "HOLDER", "AGE", "EXPIRES", "STATUS", "QUEUE" });
    add_screen_line(top, out, style(top, "dim"), line.failed ? "" : line.data);
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
    size_t selected;

    top_model_sort(&top->model); /* a lease that has ended meanwhile changes the order */
    selected = top_selected(top);
    scroll_to(top, selected);
    draw_titles(top, out);
    for (size_t i = 0; i < page; i++) {
        if (top->first + i < top->model.n) {
            draw_row(top, out, &top->model.rows[top->first + i], top->first + i == selected);
        } else if (i == 1 && top->model.n == 0) {
            add_screen_line(top, out, "",
                            !top->model.is_listed ? "  reading the locks"
                            : top->model.filter[0] != '\0'
                                ? "  no matching locks; press / and Enter to show all"
                                : "  no locks; to acquire one: belay acquire KEY");
        } else {
            buf_adds(out, "\033[K\r\n");
        }
    }
}

/* ---- one lock ---- */

static void draw_lines(struct top *top, struct buf *out, const char *title, char *const *lines, size_t n)
{
    size_t page = top_page(top);

    if (top->first_line + page > n) {
        top->first_line = n > page ? n - page : 0;
    }
    add_screen_line(top, out, style(top, "bold"), title);
    buf_adds(out, "\033[K\r\n");
    for (size_t i = 0; i < page; i++) {
        add_screen_line(top, out, "", top->first_line + i < n ? lines[top->first_line + i] : "");
    }
}

static void draw_detail(struct top *top, struct buf *out)
{
    struct buf title = BUF_INIT(4096);

    escape_text(&title, top->selected == NULL ? "" : top->selected);
    if (top->lines.n == 0) {
        draw_lines(top, out, title.failed || title.data == NULL ? "" : title.data,
                   (char *const[]){ "  reading the lock and its history" }, 1);
    } else {
        draw_lines(top, out, title.failed || title.data == NULL ? "" : title.data, top->lines.texts,
                   top->lines.n);
    }
    buf_release(&title);
}

static void draw_help(struct top *top, struct buf *out)
{
    static char *const lines[] = {
        "  up, down, j, k         select a lock",
        "  PgUp, PgDn, Home, End  scroll by pages",
        "  Enter                  all fields of it, its history",
        "  /                      only keys and holders with a text",
        "  s                      sort by the next column",
        "  r                      reverse the order",
        "  u                      end another client's lock",
        "  Esc, q                 back; q in the list quits",
    };

    draw_lines(top, out, "Keys", lines, sizeof lines / sizeof lines[0]);
}

/* ---- the last line ---- */

/* The longest that fits. */
static const char *foot_of(const struct top *top)
{
    static const char *const texts[] = {
        "Enter details  / filter  s sort  r reverse  u unlock  ? keys  q quit",
        "Enter details  / filter  s sort  u unlock  ? keys  q quit",
        "Enter details  / filter  ? keys  q quit",
        "? keys  q quit",
    };
    size_t i = 0;

    if (top->view != TOP_LIST) {
        return top->terminal.columns > 42 ? "Esc back  u unlock  up/down scroll  q back"
                                          : "Esc back  u unlock";
    }
    while (i + 1 < sizeof texts / sizeof texts[0] && strlen(texts[i]) >= top->terminal.columns) {
        i++;
    }
    return texts[i];
}

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
    } else if (top_job_is(&top->jobs, TOP_FIND_HOLDER) || top_job_is(&top->jobs, TOP_UNLOCK)) {
        begin = style(top, "yellow");
        buf_adds(&line, top_job_is(&top->jobs, TOP_UNLOCK) ? "ending lock '" : "looking for the holder of '");
        escape_text(&line, top->jobs.current->key);
        buf_adds(&line, "'…  Esc: do not wait for it");
    } else if (top->note[0] != '\0') {
        begin = style(top, "yellow");
        escape_text(&line, top->note);
    } else if (top->model.problem[0] != '\0') {
        begin = style(top, "red");
        buf_adds(&line, "out of date: ");
        escape_text(&line, top->model.problem);
    } else {
        buf_adds(&line, foot_of(top));
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
