#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/commands/commands.h"
#include "cli/core/lock_options.h"
#include "cli/output/print.h"
#include "cli/top/top.h"

/* ---- the actions of the keys ---- */

static void select_index(struct top *top, size_t index)
{
    char *key;

    if (top->model.n == 0) {
        return;
    }
    index = index < top->model.n ? index : top->model.n - 1;
    key = strdup(top->model.rows[index].key);
    if (key != NULL) {
        free(top->selected);
        top->selected = key;
    }
}

static void move_cursor(struct top *top, int key)
{
    size_t page = top_page(top);
    bool is_list = top->view == TOP_LIST;
    size_t at = is_list ? top_selected(top) : top->first_line;
    size_t step = key == TOP_PAGE_UP || key == TOP_PAGE_DOWN ? page : 1;

    switch (key) {
    case TOP_UP:
    case 'k':
    case TOP_PAGE_UP:
        at = at > step ? at - step : 0;
        break;
    case TOP_HOME:
        at = 0;
        break;
    case TOP_END:
        at = is_list ? top->model.n : top->lines.n;
        break;
    default:
        at += step;
    }
    if (is_list) {
        select_index(top, at);
    } else {
        top->first_line = at;
    }
}

/* Start a request about a lock; its answer is collected by the loop. */
static void start_job(struct top *top, enum top_task task, const char *key, const char *lock_id)
{
    if (!top_job_start(&top->jobs, task, key, lock_id, top->reason, top->terminal.columns)) {
        (void)snprintf(top->note, sizeof top->note,
                       "the store does not answer: several requests still wait for it");
    }
}

static void show_view(struct top *top, enum top_view view)
{
    top->view = view;
    top->first_line = 0;
    if (view == TOP_DETAIL) {
        select_index(top, top_selected(top));
        top_lines_free(&top->lines);
        if (top->selected != NULL) {
            start_job(top, TOP_READ_DETAIL, top->selected, NULL);
        }
    }
}

static void begin_prompt(struct top *top, enum top_prompt prompt)
{
    assert(top->prompt == TOP_PROMPT_NONE && (prompt != TOP_PROMPT_CONFIRM || top->target != NULL));
    top->prompt = prompt;
    top->typed[0] = '\0';
}

static void begin_unlock(struct top *top)
{
    if (top->model.n == 0 && top->view == TOP_LIST) {
        return;
    }
    if (top->view == TOP_LIST) {
        select_index(top, top_selected(top));
    }
    if (top->selected != NULL) {
        start_job(top, TOP_FIND_HOLDER, top->selected, NULL);
    }
}

/* Remember the holder that was found: its lock is ended, and no later one. */
static void on_holder(struct top *top, struct top_job *job)
{
    if (job->code != BELAY_OK) {
        (void)snprintf(top->note, sizeof top->note, "%s", job->err.text);
        return;
    }
    if (job->info->n_holders > 1) {
        (void)snprintf(top->note, sizeof top->note,
                       "it has %zu holders: 'belay unlock KEY --force' lets you choose",
                       job->info->n_holders);
        return;
    }
    belay_info_free(top->target);
    top->target = job->info;
    job->info = NULL;
    begin_prompt(top, TOP_PROMPT_REASON);
}

static void prompt_confirm(struct top *top)
{
    struct buf holder = BUF_INIT(1024);

    memcpy(top->reason, top->typed, sizeof top->reason);
    print_holder_short(&holder, top->target);
    (void)snprintf(top->note, sizeof top->note,
                   "End the lock of %.60s? Are you sure? (yes/no): ", holder.failed ? "?" : holder.data);
    buf_release(&holder);
    begin_prompt(top, TOP_PROMPT_CONFIRM);
}

static void unlock_target(struct top *top)
{
    if (strcasecmp(top->typed, "yes") != 0) {
        (void)snprintf(top->note, sizeof top->note, "not confirmed: nothing was changed");
    } else {
        start_job(top, TOP_UNLOCK, top->target->key, top->target->lock_id);
    }
}

static void on_unlocked(struct top *top, const struct top_job *job)
{
    if (job->code != BELAY_OK) {
        (void)snprintf(top->note, sizeof top->note, "%s", job->err.text);
    } else {
        (void)snprintf(top->note, sizeof top->note, "lock '%.200s' was ended", job->key);
        top_model_request(&top->model);
    }
}

static void end_prompt(struct top *top)
{
    enum top_prompt prompt = top->prompt;

    assert(prompt != TOP_PROMPT_NONE);
    top->prompt = TOP_PROMPT_NONE;
    top->note[0] = '\0';
    if (prompt == TOP_PROMPT_FILTER) {
        (void)snprintf(top->model.filter, sizeof top->model.filter, "%.*s", (int)sizeof top->model.filter - 1,
                       top->typed);
        top->first = 0;
        top_model_request(&top->model);
    } else if (prompt == TOP_PROMPT_REASON) {
        prompt_confirm(top);
    } else {
        unlock_target(top);
    }
}

static void cancel_prompt(struct top *top)
{
    top->note[0] = '\0';
    if (top->prompt != TOP_PROMPT_FILTER) {
        (void)snprintf(top->note, sizeof top->note, "not confirmed: nothing was changed");
    }
    top->prompt = TOP_PROMPT_NONE;
}

static void type_key(struct top *top, int key)
{
    size_t n = strlen(top->typed);

    if (key == TOP_ENTER) {
        end_prompt(top);
    } else if (key == TOP_ESCAPE) {
        cancel_prompt(top);
    } else if (key == TOP_BACKSPACE) {
        while (n > 0 && ((unsigned char)top->typed[n - 1] & 0xc0) == 0x80) {
            n--; /* the rest of a multibyte character */
        }
        top->typed[n > 0 ? n - 1 : 0] = '\0';
    } else if (key >= ' ' && key < 256 && n + 1 < sizeof top->typed) {
        top->typed[n] = (char)key;
        top->typed[n + 1] = '\0';
    }
}

static void press_in_list(struct top *top, int key)
{
    if (key == 's') {
        top->model.sort = (enum top_sort)((top->model.sort + 1) % TOP_SORTS);
    } else if (key == 'r') {
        top->model.is_reversed = !top->model.is_reversed;
    } else if (key == '/') {
        begin_prompt(top, TOP_PROMPT_FILTER);
    } else if (key == TOP_ENTER && top->model.n > 0) {
        show_view(top, TOP_DETAIL);
    }
    top_model_sort(&top->model);
}

/* Stop waiting for the answer to u or to a confirmation. */
static void leave_job(struct top *top)
{
    if (top_job_is(&top->jobs, TOP_UNLOCK)) {
        (void)snprintf(top->note, sizeof top->note,
                       "the lock '%.200s' may still be ended: the store did not answer",
                       top->jobs.current->key);
    }
    top_job_abandon(&top->jobs);
}

static void press(struct top *top, int key)
{
    if (top->prompt != TOP_PROMPT_NONE) {
        type_key(top, key);
        return;
    }
    top->note[0] = '\0';
    if (top_job_is(&top->jobs, TOP_FIND_HOLDER) || top_job_is(&top->jobs, TOP_UNLOCK)) {
        leave_job(top);
        if (key == TOP_ESCAPE) {
            return;
        }
    }
    if (key == 'q' || key == TOP_ESCAPE || key == 'h') {
        top->is_over = top->view == TOP_LIST && key == 'q';
        top->view = TOP_LIST;
    } else if (key == '?') {
        show_view(top, TOP_HELP);
    } else if (key == 'u' && top->view != TOP_HELP) {
        begin_unlock(top);
    } else if ((key >= TOP_UP && key <= TOP_END) || key == 'j' || key == 'k') {
        move_cursor(top, key);
    } else if (top->view == TOP_LIST) {
        press_in_list(top, key);
    }
}

/* ---- the loop ---- */

/* False at end of file: the terminal is gone. */
static bool press_typed_keys(struct top *top)
{
    char bytes[256];
    int keys[256];
    ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
    size_t n_keys;

    if (n <= 0) {
        return n < 0 && (errno == EINTR || errno == EAGAIN);
    }
    n_keys = top_keys(bytes, (size_t)n, keys, sizeof keys / sizeof keys[0]);
    for (size_t i = 0; i < n_keys && !top->is_over; i++) {
        press(top, keys[i]);
    }
    return true;
}

/* True if an event was seen. */
static bool read_wakeups(struct top_model *model)
{
    char bytes[256];
    bool is_changed = false;
    ssize_t n;

    while ((n = read(model->pipe[0], bytes, sizeof bytes)) > 0) {
        is_changed = is_changed || memchr(bytes, TOP_WAKE_EVENT, (size_t)n) != NULL;
        if (memchr(bytes, TOP_WAKE_NO_EVENTS, (size_t)n) != NULL) {
            model->has_events = false;
        }
    }
    return is_changed;
}

static void collect_job(struct top *top)
{
    struct top_job *job = top_job_collect(&top->jobs);

    if (job == NULL) {
        return;
    }
    switch (job->task) {
    case TOP_READ_DETAIL:
        top_lines_free(&top->lines);
        top->lines = job->lines;
        job->lines = (struct top_lines){ 0 };
        break;
    case TOP_FIND_HOLDER:
        on_holder(top, job);
        break;
    case TOP_UNLOCK:
        on_unlocked(top, job);
        break;
    }
    top_job_free(job);
}

/* The detail is read only after a list succeeded: a store that fails is not asked again. */
static void collect_list(struct top *top)
{
    if (top_model_collect(&top->model) && top->view == TOP_DETAIL && top->jobs.current == NULL) {
        start_job(top, TOP_READ_DETAIL, top->selected, NULL);
    }
}

static void top_loop(struct top *top)
{
    bool is_changed = false;

    top_model_request(&top->model);
    while (!top->is_over && cli_signal() == 0) {
        struct pollfd ends[2] = { { .fd = STDIN_FILENO, .events = POLLIN },
                                  { .fd = top->model.pipe[0], .events = POLLIN } };
        struct timespec pause;
        int64_t due_ms;

        top_terminal_resize(&top->terminal);
        top_draw(top);
        due_ms = top_model_due_ms(&top->model, is_changed);
        /* Redraw at least every second, for the countdowns. */
        due_ms = due_ms < 1000 ? due_ms : 1000;
        pause = (struct timespec){ due_ms / 1000, due_ms % 1000 * 1000000 };
        if (ppoll(ends, 2, &pause, &top->terminal.while_waiting) < 0 && errno != EINTR) {
            return;
        }
        if (ends[0].revents != 0 && !press_typed_keys(top)) {
            return;
        }
        is_changed = read_wakeups(&top->model) || is_changed;
        collect_job(top);
        collect_list(top);
        if (top_model_due_ms(&top->model, is_changed) == 0) {
            top_model_request(&top->model);
            is_changed = false;
        }
    }
}

static int top_live(struct cli_context *context, struct belay_client *client, const char *prefix)
{
    struct top top = { .view = TOP_LIST };
    int status = CLI_OK;
    bool is_idle = true;

    top.model.client = client;
    top.model.prefix = prefix;
    context->quiet = true;     /* the screen shows a store that does not answer; a warning would damage it */
    (void)cli_cancel(context); /* Ctrl-C ends the loop, so that the terminal is restored */
    if (!top_model_open(&top.model) || !top_terminal_open(&top.terminal, context->color_out)) {
        status = cli_fail(context, BELAY_UNREACHABLE, "cannot use the terminal: %s", strerror(errno));
    } else {
        top_jobs_open(&top.jobs, client, top.model.pipe[1]);
        top_loop(&top);
        is_idle = top_jobs_close(&top.jobs);
    }
    top_terminal_close(&top.terminal);
    status = status != CLI_OK || cli_signal() == 0 || cli_signal() == SIGINT ? status
                                                                             : cli_exit_code(BELAY_CANCELLED);
    if (!is_idle || !top_model_close(&top.model)) {
        _exit(status); /* a thread is blocked in a store that does not answer: do not wait for it */
    }
    top_lines_free(&top.lines);
    belay_info_free(top.target);
    free(top.selected);
    return status;
}

static int exec_top(struct cli_context *context, const struct options *options, struct belay_error *err)
{
    struct belay_query query = BELAY_QUERY_INIT;
    struct belay_client *client;

    query.prefix = options_text(options, "prefix");
    if (cli_existing_client(context, &client, err) != BELAY_OK) {
        return cli_error(context, err);
    }
    return context->json || !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)
               ? list_locks(context, client, &query, err)
               : top_live(context, client, query.prefix);
}

const struct cli_command cmd_top = {
    .name = "top",
    .synopsis = "[--prefix P]",
    .summary = "show locks in a live table",
    .about =
        "Shows the locks with holder, age, expiry, status and queue length, and updates them live. Locks "
        "that need attention come first: stale, expired, the longest queue.\n\n"
        "The arrow keys or j and k select a lock. Enter shows all its fields, its queue and its history. "
        "/ shows only locks whose key or holder contains a text. s sorts by the next column, r reverses "
        "the order. u ends the lock of another client as 'belay unlock' does: it asks for a reason and a "
        "confirmation. ? lists the keys; q or Ctrl-C quits.\n\n"
        "If the store keeps no events, as on DynamoDB, the list is read every five seconds. Without a "
        "terminal, and with --json, it prints the same as 'belay list' and exits.",
    .groups = { &prefix_group },
    .exits = { { 0, "ended with q or Ctrl-C" },
               CLI_EXIT_USAGE,
               CLI_EXIT_NO_STORE,
               CLI_EXIT_UNREACHABLE,
               CLI_EXIT_CONFIG },
    .examples = { { "belay top", "all locks" },
                  { "belay top --prefix deploy-", "locks whose keys begin with deploy-" } },
    .exec = exec_top,
};
