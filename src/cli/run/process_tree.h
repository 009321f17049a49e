/*
 * A process tree from its root: everything that descends from this process.
 *
 * The root is a "child subreaper": whoever loses its parent below it becomes
 * its child, also after setsid() or a double fork. So nothing gets away, and
 * "no child is left" means that nobody is left.
 */
#ifndef CLI_RUN_PROCESS_TREE_H
#define CLI_RUN_PROCESS_TREE_H

#include <stdbool.h>
#include <sys/types.h>

void process_adopt_orphans(void);

/*
 * Send `number` to the process group `group`, once to each process, and to
 * every descendant outside of it. `group` 0 means descendants alone: a group
 * whose leader was reaped may be somebody else's by now.
 */
void process_tree_signal(pid_t group, int number);

#endif
