#include "base/paths.h"

#include <errno.h>
#include <libgen.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/text.h"

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

/* The home directory from the password database, for a service without HOME. */
static char *home_by_uid(void)
{
    char space[4096];
    struct passwd entry;
    struct passwd *found = NULL;

    if (getpwuid_r(getuid(), &entry, space, sizeof space, &found) != 0 || found == NULL ||
        found->pw_dir == NULL || found->pw_dir[0] != '/') {
        return NULL;
    }
    return strdup(found->pw_dir);
}

char *home_path(const char *xdg_name, const char *fallback, const char *rest)
{
    struct buf path = BUF_INIT(PATH_MAX);
    const char *xdg = env_text(xdg_name);
    const char *home = env_text("HOME");
    bool is_xdg = xdg != NULL && xdg[0] == '/';
    char *by_uid = is_xdg || (home != NULL && home[0] == '/') ? NULL : home_by_uid();
    const char *folder = is_xdg ? xdg : by_uid != NULL ? by_uid : home;
    char *text = NULL;

    if (folder != NULL && folder[0] == '/') {
        size_t n = strlen(folder);

        while (n > 0 && folder[n - 1] == '/') {
            n--; /* "//x" would begin a host in a URL */
        }
        buf_add(&path, folder, n);
        buf_addf(&path, "/%s%s%s", is_xdg ? "" : fallback, is_xdg ? "" : "/", rest);
        text = buf_take(&path);
    }
    buf_release(&path);
    free(by_uid);
    return text;
}

void existing_parent(const char *path, char out[PATH_MAX])
{
    char rest[PATH_MAX];

    (void)snprintf(rest, sizeof rest, "%s", path);
    do {
        (void)snprintf(out, PATH_MAX, "%s", dirname(rest));
        (void)snprintf(rest, sizeof rest, "%s", out);
    } while (access(out, F_OK) != 0 && errno == ENOENT && strcmp(out, "/") != 0 && strcmp(out, ".") != 0);
}
