/*
 * `belay top`: the locks of any store as a live table.
 *
 *   top_terminal.c  the terminal: raw mode, keys, size, restored at the end
 *   top_model.c     the locks: one thread lists them, another watches for events
 *   top_job.c       requests to the store that a key starts, each in a thread: a store that hangs blocks no key
 *   top_detail.c    all fields of one lock and its history, as lines
 *   top_draw.c      drawing the screen
 *   cmd_top.c       the loop and the actions of the keys
 */
#ifndef CLI_TOP_TOP_H
#define CLI_TOP_TOP_H

#include <pthread.h>
#include <signal.h>
#include <termios.h>

#include "base/buf.h"
#include "cli/core/cli.h"

/* ---- the terminal ---- */

struct top_terminal {
    struct termios before;
    sigset_t while_waiting; /* the signal mask while the loop waits */
    bool is_open;
    bool color;
    size_t rows;
    size_t columns;
};

bool top_terminal_open(struct top_terminal *terminal, bool color);
void top_terminal_close(struct top_terminal *terminal);
/* Read the size again. */
void top_terminal_resize(struct top_terminal *terminal);
/* Write everything at once. */
void top_terminal_write(const struct buf *out);

enum top_key {
    TOP_NONE = 0, /* other values are characters */
    TOP_ENTER = 1000,
    TOP_ESCAPE,
    TOP_UP,
    TOP_DOWN,
    TOP_PAGE_UP,
    TOP_PAGE_DOWN,
    TOP_HOME,
    TOP_END,
    TOP_BACKSPACE
};
/* Decode the keys in `bytes`; returns how many. */
size_t top_keys(const char *bytes, size_t n, int *out_keys, size_t max);

/* ---- the locks ---- */

enum top_sort {
    TOP_BY_ATTENTION, /* stale, expired, the longest queue */
    TOP_BY_KEY,
    TOP_BY_HOLDER,
    TOP_BY_AGE,
    TOP_BY_LEFT,
    TOP_BY_STATUS,
    TOP_BY_QUEUE,
    TOP_SORTS
};

struct top_row {
    char *key;    /* owned */
    char *shown;  /* owned; the key, escaped */
    char *holder; /* owned; escaped */
    enum belay_status status;
    bool is_stale;
    int64_t locked_at_unix_ms;
    int64_t ends_boot_ms; /* when the lease expires, on this machine's clock */
    size_t n_waiters;
};

struct top_model {
    struct belay_client *client; /* borrowed */
    const char *prefix;          /* borrowed; NULL: all */
    struct top_row *rows;        /* owned */
    size_t n;
    enum top_sort sort;
    bool is_reversed;
    char filter[128];
    char problem[700];      /* why the list is out of date; "" if it is not */
    int64_t listed_boot_ms; /* when the list was read or requested */
    bool is_listed;         /* a list was read */
    bool is_pending;        /* a list is requested and not collected yet */
    /* A thread reads the lists, so that a slow store does not block the keyboard. */
    pthread_t reader;
    bool has_reader;
    pthread_mutex_t mutex; /* guards the fields down to `wanted_filter` */
    pthread_cond_t changed;
    struct top_result *result; /* owned; NULL: none, or collected */
    bool is_wanted;
    bool is_reading;
    bool is_closing;
    char wanted_filter[128];
    /* A second thread watches for events. */
    pthread_t watcher;
    bool has_watcher;
    struct belay_cancel *cancel; /* owned */
    int pipe[2];                 /* to the main loop: TOP_WAKE_* */
    bool has_events;             /* false: the store keeps no events; poll it */
};

enum { TOP_WAKE_EVENT = 'e', TOP_WAKE_LIST = 'l', TOP_WAKE_NO_EVENTS = 'n', TOP_WAKE_JOB = 'j' };

bool top_model_open(struct top_model *model);
/* False: a thread is still blocked in the store, so the client must not be closed. */
bool top_model_close(struct top_model *model);
/* Request a new list; returns at once. */
void top_model_request(struct top_model *model);
/* Take over a list that was read. True if there is one; after a failure the old list stays and model->problem is set. */
bool top_model_collect(struct top_model *model);
void top_model_sort(struct top_model *model);
/* The time until the next request is due. */
int64_t top_model_due_ms(const struct top_model *model, bool is_changed);
int64_t top_row_left_ms(const struct top_row *row);
enum belay_status top_row_status(const struct top_row *row);

/* ---- one lock ---- */

struct top_lines {
    char **texts; /* owned, and so is each */
    size_t n;
};

/* Read a lock and its history. `columns`: of the terminal. */
void top_read_detail(struct belay_client *client, const char *key, size_t columns, struct top_lines *out);
void top_lines_free(struct top_lines *lines);

/* ---- jobs ---- */

enum top_task {
    TOP_READ_DETAIL,
    TOP_FIND_HOLDER, /* whose lock is to be ended */
    TOP_UNLOCK
};

struct top_job {
    enum top_task task;
    char *key;            /* owned */
    char *lock_id;        /* owned; NULL but for TOP_UNLOCK */
    char reason[256];     /* of TOP_UNLOCK */
    size_t columns;       /* of TOP_READ_DETAIL */
    enum belay_code code; /* how it ended */
    struct belay_error err;
    struct belay_info *info; /* owned; of TOP_FIND_HOLDER */
    struct top_lines lines;  /* of TOP_READ_DETAIL */
    struct top_jobs *jobs;
    bool is_done;
    bool is_abandoned; /* its result is not needed: its thread frees it */
};

struct top_jobs {
    struct belay_client *client; /* borrowed */
    int wake_fd;                 /* borrowed; gets TOP_WAKE_JOB */
    struct top_job *current;     /* owned; NULL: none */
    pthread_mutex_t mutex;       /* guards `n_running`, and `is_done` and `is_abandoned` of every job */
    pthread_cond_t changed;
    size_t n_running;
};

void top_jobs_open(struct top_jobs *jobs, struct belay_client *client, int wake_fd);
/* False: a thread is still blocked in the store, so the client must not be closed. */
bool top_jobs_close(struct top_jobs *jobs);
/* Start one in place of the current one, which is abandoned. False: too many hang in the store, or no memory. */
bool top_job_start(struct top_jobs *jobs, enum top_task task, const char *key, const char *lock_id,
                   const char *reason, size_t columns);
/* The current job if it has ended; the caller frees it. NULL: none has. */
struct top_job *top_job_collect(struct top_jobs *jobs);
/* Whether the current job is that one. */
bool top_job_is(const struct top_jobs *jobs, enum top_task task);
void top_job_abandon(struct top_jobs *jobs);
void top_job_free(struct top_job *job);

/* ---- the screen ---- */

enum top_view { TOP_LIST, TOP_DETAIL, TOP_HELP };
enum top_prompt { TOP_PROMPT_NONE, TOP_PROMPT_FILTER, TOP_PROMPT_REASON, TOP_PROMPT_CONFIRM };

struct top {
    struct top_terminal terminal;
    struct top_model model;
    struct top_jobs jobs;
    enum top_view view;
    enum top_prompt prompt;
    char typed[256];
    char reason[256];
    char note[700];            /* shown on the last line until the next key */
    char *selected;            /* owned; a key */
    size_t first;              /* the first row on the screen */
    struct belay_info *target; /* owned; the lock to end */
    struct top_lines lines;    /* of the detail view */
    size_t first_line;
    bool is_over;
};

size_t top_selected(const struct top *top); /* the index of the selected row; 0 if it is gone */
size_t top_page(const struct top *top);     /* how many rows fit on the screen */
void top_draw(struct top *top);

#endif
