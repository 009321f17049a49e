#include "cli/run/descriptor.h"

#include <fcntl.h>
#include <unistd.h>

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
