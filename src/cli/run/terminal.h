/*
 * Who has the terminal. One process group of a session is in the foreground: it
 * may read, and gets what Ctrl-C and Ctrl-Z mean. `tty` may be -1: no terminal.
 *
 * Callers block SIGTTOU, which a group in the background gets for giving the
 * terminal away.
 */
#ifndef CLI_RUN_TERMINAL_H
#define CLI_RUN_TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>
#include <termios.h>

/* The controlling terminal, wherever standard input comes from; -1 if there is none. */
int terminal_open(void);

bool terminal_has_group(int tty, pid_t group);

/* Pass the terminal on, unless `from` does not have it. */
void terminal_hand_over(int tty, pid_t from, pid_t to);

/* How it behaves (echo, line by line), to be put back after a command that was killed. */
struct terminal_mode {
    bool known;
    struct termios attributes;
};
void terminal_save(int tty, struct terminal_mode *out_mode);
void terminal_restore(int tty, const struct terminal_mode *mode);

#endif
