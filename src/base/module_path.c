#include "base/module_path.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool find_in(const char *folder, const char *name, char out[MODULE_PATH_MAX])
{
    char program[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    char *slash;
    int len;

    if (n <= 0) {
        return false;
    }
    program[n] = '\0';
    slash = strrchr(program, '/');
    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    len = snprintf(out, MODULE_PATH_MAX, "%s/%s%s", program, folder, name);
    return len > 0 && len < MODULE_PATH_MAX && access(out, R_OK) == 0;
}

bool module_path(const char *name, char out[MODULE_PATH_MAX])
{
    return find_in("", name, out) || find_in("../lib/belay/", name, out);
}
