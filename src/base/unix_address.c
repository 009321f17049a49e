#include "base/unix_address.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int open_folder(const char *path, const char *slash)
{
    char *folder = strndup(path, slash == path ? 1 : (size_t)(slash - path));
    int fd = folder == NULL ? -1 : open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int saved = errno;

    free(folder);
    errno = saved;
    return fd;
}

bool unix_address(const char *path, struct sockaddr_un *out, int *out_folder)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    const char *slash = strrchr(path, '/');
    int folder = -1;
    int n;

    if (*path == '\0') {
        errno = EINVAL;
        return false;
    }
    if (strlen(path) < sizeof un.sun_path) {
        n = snprintf(un.sun_path, sizeof un.sun_path, "%s", path);
    } else if (slash == NULL) {
        errno = ENAMETOOLONG;
        return false;
    } else {
        folder = open_folder(path, slash);
        if (folder < 0) {
            return false;
        }
        n = snprintf(un.sun_path, sizeof un.sun_path, "/proc/self/fd/%d/%s", folder, slash + 1);
    }
    if (n < 0 || (size_t)n >= sizeof un.sun_path) {
        (void)close(folder);
        errno = ENAMETOOLONG;
        return false;
    }
    *out = un;
    *out_folder = folder;
    return true;
}
