#include "cli/run/terminal.h"

#include <fcntl.h>
#include <unistd.h>

#include "cli/run/descriptor.h"

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
    out_mode->known = tty >= 0 && tcgetattr(tty, &out_mode->attributes) == 0;
}

void terminal_restore(int tty, const struct terminal_mode *mode)
{
    if (mode->known) {
        (void)tcsetattr(tty, TCSANOW, &mode->attributes);
    }
}
