#include "cli/run/command_process.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Each level keeps two descriptors open. Deeper processes are reached once their parents are gone. */
enum { DEPTH_MAX = 100 };

int fd_above_standard(int fd)
{
    int copy;

    if (fd < 0 || fd > STDERR_FILENO) {
        return fd;
    }
    copy = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    (void)close(fd);
    return copy;
}

/* ---- the terminal --------------------------------------------------------- */

int terminal_open(void)
{
    return fd_above_standard(open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC));
}

bool terminal_has_group(int tty, pid_t group)
{
    return tty >= 0 && tcgetpgrp(tty) == group;
}

void terminal_hand_over(int tty, pid_t from, pid_t to)
{
    if (terminal_has_group(tty, from)) {
        (void)tcsetpgrp(tty, to);
    }
}

void terminal_save(int tty, struct terminal_mode *out_mode)
{
    out_mode->is_known = tty >= 0 && tcgetattr(tty, &out_mode->attributes) == 0;
}

void terminal_restore(int tty, const struct terminal_mode *mode)
{
    if (mode->is_known) {
        (void)tcsetattr(tty, TCSANOW, &mode->attributes);
    }
}

/* ---- descendants ------------------------------------------------------------ */

void process_adopt_orphans(void)
{
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

static void signal_below(pid_t parent, pid_t but_group, int number, int depth);

static void signal_children_of(pid_t parent, const char *thread, pid_t but_group, int number, int depth)
{
    char path[64];
    FILE *file;
    pid_t child;

    (void)snprintf(path, sizeof path, "/proc/%d/task/%.20s/children", (int)parent, thread);
    file = fopen(path, "re");
    if (file == NULL) {
        return; /* the process has just ended, and its children have another parent */
    }
    while (fscanf(file, "%d", &child) == 1) {
        /* Children first: those of a parent that ends at once would be missed. */
        signal_below(child, but_group, number, depth + 1);
        if (but_group == 0 || getpgid(child) != but_group) {
            (void)kill(child, number);
        }
    }
    (void)fclose(file);
}

static void signal_below(pid_t parent, pid_t but_group, int number, int depth)
{
    char path[64];
    struct dirent *entry;
    DIR *threads;

    assert(parent > 0 && depth >= 0 && depth <= DEPTH_MAX);
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)parent);
    threads = depth < DEPTH_MAX ? opendir(path) : NULL;
    if (threads == NULL) {
        return;
    }
    while ((entry = readdir(threads)) != NULL) {
        if (entry->d_name[0] != '.') {
            signal_children_of(parent, entry->d_name, but_group, number, depth);
        }
    }
    (void)closedir(threads);
}

void process_tree_signal(pid_t group, int number)
{
    if (group > 0) {
        /* The kernel signals a group in one step: a process that forks meanwhile does not escape. */
        (void)kill(-group, number);
    }
    signal_below(getpid(), group, number, 0);
}
