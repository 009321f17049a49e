#include "support/directory.h"

#include <dirent.h>
#include <unistd.h>

void directory_empty(const char *name)
{
    DIR *dir = opendir(name);
    struct dirent *entry;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.') {
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
}
