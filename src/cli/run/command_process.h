/*
 * Processes, process groups and the terminal, for belay and the guardian.
 *
 * One process group of a session is in the foreground: it may read from the terminal and receives the signals
 * of Ctrl-C and Ctrl-Z. `tty` may be -1: no terminal. Callers block SIGTTOU, which the kernel sends to a
 * background group that changes the foreground group.
 */
#ifndef CLI_RUN_COMMAND_PROCESS_H
#define CLI_RUN_COMMAND_PROCESS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>
#include <termios.h>

/*
 * A standard stream that is closed for belay must be closed for COMMAND too, so no descriptor of ours may take
 * its number. Returns `fd`, or a close-on-exec copy of it above 2; passes -1 through.
 */
int fd_above_standard(int fd);

/* ---- the terminal --------------------------------------------------------- */

/* The controlling terminal, wherever standard input comes from; -1 if there is none. */
int terminal_open(void);

bool terminal_has_group(int tty, pid_t group);

/* Make `to` the foreground group, unless `from` is not in the foreground. */
void terminal_hand_over(int tty, pid_t from, pid_t to);

/* Echo, line mode and so on: restored after a command that was killed. */
struct terminal_mode {
    bool is_known;
    struct termios attributes;
};
void terminal_save(int tty, struct terminal_mode *out_mode);
void terminal_restore(int tty, const struct terminal_mode *mode);

/* ---- descendants --------------------------------------------------------- */

/*
 * Make this process a child subreaper: a descendant that loses its parent becomes its child, even after setsid()
 * or a double fork. So no descendant escapes, and "no child is left" means that no descendant is left.
 */
void process_adopt_orphans(void);

/*
 * Send `number` to the process group `group`, once to each process, and to every descendant outside of it.
 * `group` 0 means descendants only: the number of a group whose leader was reaped may be reused.
 */
void process_tree_signal(pid_t group, int number);

#endif
