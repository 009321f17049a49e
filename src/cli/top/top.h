/*
 * `belay top`: the locks of any store as a live table.
 *
 *   top_terminal.c  the terminal: raw, keys, size, and put back as it was
 *   top_model.c     the locks, and a thread that hears when they change
 *   top_draw.c      what is on the screen
 *   cmd_top.c       what the keys do
 */
#ifndef CLI_TOP_TOP_H
#define CLI_TOP_TOP_H

#include <pthread.h>
#include <termios.h>

#include "base/buf.h"
#include "cli/core/cli.h"

/* ---- the terminal ---- */

struct top_terminal {
    struct termios before;
    bool is_open;
    bool color;
    size_t rows;
    size_t columns;
};

bool top_terminal_open(struct top_terminal *terminal, bool color);
void top_terminal_close(struct top_terminal *terminal);
/* Ask for the size; true if it has changed. */
bool top_terminal_resize(struct top_terminal *terminal);
/* All of it in one write. */
void top_terminal_write(const struct buf *out);

enum top_key {
    TOP_NONE = 0, /* others are the characters themselves */
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
/* The keys that were pressed, from what was read; returns how many. */
size_t top_keys(const char *bytes, size_t n, int *out_keys, size_t max);

/* ---- the locks ---- */

enum top_sort { TOP_BY_KEY, TOP_BY_HOLDER, TOP_BY_AGE, TOP_BY_LEFT, TOP_BY_STATUS, TOP_BY_QUEUE, TOP_SORTS };

struct top_row {
    char *key;    /* owned; as it is */
    char *shown;  /* owned; fit for a terminal */
    char *holder; /* owned; fit for a terminal */
    enum belay_status status;
    bool is_stale;
    int64_t locked_at_unix_ms;
    int64_t ends_boot_ms; /* of the lease, by this machine's clock */
    size_t n_waiters;
};

struct top_model {
    struct cli_context *context; /* borrowed */
    struct belay_client *client; /* borrowed */
    const char *prefix;          /* borrowed; NULL: all */
    struct top_row *rows;        /* owned */
    size_t n;
    size_t cap;
    enum top_sort sort;
    bool is_reversed;
    char filter[128];
    char problem[700];      /* why the list is not fresh; "" if it is */
    int64_t listed_boot_ms; /* when it was read, or asked for */
    bool is_listed;         /* it was read once */
    bool is_asked;          /* it is being read */
    /* the thread that reads: a store that does not answer must not keep keys from being heard */
    pthread_t reader;
    bool has_reader;
    pthread_mutex_t mutex; /* guards `found`, and what is asked for */
    pthread_cond_t asked;
    struct top_result *found; /* owned; NULL: not yet, or taken */
    bool is_wanted;
    bool is_reading;
    bool is_closing;
    char wanted_filter[128];
    /* the thread that listens */
    pthread_t thread;
    bool has_thread;
    struct belay_cancel *cancel; /* owned */
    int pipe[2];                 /* a byte: something has changed */
    bool hears;                  /* false: the store keeps no events, so it is asked now and then */
};

bool top_model_open(struct top_model *model);
/* False: a thread still waits for the store, so the client must not be closed. */
bool top_model_close(struct top_model *model);
/* Have the list read anew, which takes as long as the store does. */
void top_model_request(struct top_model *model);
/* True if it was; on failure the old one stays, with model->problem. */
bool top_model_collect(struct top_model *model);
void top_model_sort(struct top_model *model);
/* How long until it should be read again, given whether something has changed. */
int64_t top_model_due_ms(const struct top_model *model, bool is_changed);
int64_t top_row_left_ms(const struct top_row *row);
enum belay_status top_row_status(const struct top_row *row);

/* ---- the screen ---- */

enum top_view { TOP_LIST, TOP_DETAIL, TOP_HELP };
enum top_prompt { TOP_PROMPT_NONE, TOP_PROMPT_FILTER, TOP_PROMPT_REASON, TOP_PROMPT_CONFIRM };

struct top {
    struct cli_context *context; /* borrowed */
    struct top_terminal terminal;
    struct top_model model;
    enum top_view view;
    enum top_prompt ask;
    char typed[256];
    char reason[256];
    char note[700];            /* the last line, until the next key */
    char *selected;            /* owned; a key */
    size_t first;              /* the row at the top */
    struct belay_info *target; /* owned; whose lock is to be ended */
    char **lines;              /* owned; of the detail view */
    size_t n_lines;
    size_t first_line;
    bool is_over;
};

size_t top_selected(const struct top *top); /* its index; 0 if it has gone */
size_t top_page(const struct top *top);     /* how many rows fit */
void top_draw(struct top *top);
/* Read what the detail view shows. */
void top_read_detail(struct top *top);
void top_forget_detail(struct top *top);

#endif
