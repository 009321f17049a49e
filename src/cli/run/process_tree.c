#include "cli/run/process_tree.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Each level holds two descriptors open; what lies deeper is met when its parents are gone. */
enum { DEPTH_MAX = 100 };

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
        return; /* it has just ended, and its children are somebody else's */
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
        /* The kernel does this in one step: a process that forks meanwhile does not slip through. */
        (void)kill(-group, number);
    }
    signal_below(getpid(), group, number, 0);
}
