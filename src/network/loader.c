#include "network/loader.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "version.h"

/* Defined if the code is linked into the program; the weak references do not pull it in. */
#pragma weak belay_net_entry
#pragma weak belay_pg_entry

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const void *loaded_net; /* under the mutex; NULL: not yet */
static const void *loaded_pg;  /* the same */

/* A module: its file, its one symbol, which begins with the two fields of struct head, and what needs it. */
struct module {
    const char *file;
    const char *symbol;
    uint32_t abi;
    const char *needed_by;
    const char *advice;
};

struct head {
    uint32_t abi;
    const char *version;
};

static const char loader_mark[] = "belay";

/*
 * The file that contains this code, from the kernel: the linker may have a relative name,
 * which would be resolved from the working directory.
 */
static bool find_self(char path[PATH_MAX])
{
    FILE *maps = fopen("/proc/self/maps", "re");
    /* A constant: zero-initialised data may be in memory that is not mapped from the file. */
    unsigned long self = (unsigned long)(uintptr_t)&loader_mark;
    char line[PATH_MAX + 128];
    bool found = false;

    while (maps != NULL && !found && fgets(line, sizeof line, maps) != NULL) {
        unsigned long from, to;
        int at = 0;

        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %n", &from, &to, &at) == 2 && at > 0 && self >= from &&
            self < to && line[at] == '/') {
            (void)snprintf(path, PATH_MAX, "%s", line + at);
            found = true;
        }
    }
    if (maps != NULL) {
        (void)fclose(maps);
    }
    return found;
}

static enum belay_code check_module(const struct module *module, const struct head *entry, const char *path,
                                    struct belay_error *err)
{
    if (entry == NULL) {
        return error_set(err, BELAY_CONFIG, "%.400s is not belay's module: %.200s", path, dlerror());
    }
    if (entry->abi != module->abi || strcmp(entry->version, BELAY_VERSION) != 0) {
        return error_set(err, BELAY_CONFIG,
                         "%.400s is of version %.40s, this is belay " BELAY_VERSION
                         ": install both from one package",
                         path, entry->version);
    }
    return BELAY_OK;
}

static enum belay_code open_module(const struct module *module, const void **out_entry,
                                   struct belay_error *err)
{
    /* Beside this file, as in a build tree; in libbelay.so's own folder; in that of the program in bin. */
    static const char *const places[] = { "", "belay/", "../lib/belay/" };
    char self[PATH_MAX], path[PATH_MAX + 128];
    void *handle = NULL;
    const void *entry;
    enum belay_code code;

    if (!find_self(self)) {
        return error_set(err, BELAY_CONFIG, "cannot find belay's own file, to load %s", module->file);
    }
    (void)dirname(self);
    for (size_t i = 0; handle == NULL && i < sizeof places / sizeof places[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s%s", self, places[i], module->file);
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    if (handle == NULL) {
        return error_set(err, BELAY_CONFIG, "%s need %s, which cannot be loaded: %.300s%s", module->needed_by,
                         module->file, dlerror(), module->advice);
    }
    entry = dlsym(handle, module->symbol);
    code = check_module(module, entry, path, err);
    if (code == BELAY_OK) {
        *out_entry = entry;
    }
    return code;
}

/* `linked` is the module's table if its code is linked into the program, else NULL. */
static enum belay_code find_module(const struct module *module, const void *linked, const void **loaded,
                                   const void **out_entry, struct belay_error *err)
{
    enum belay_code code = BELAY_OK;

    (void)pthread_mutex_lock(&mutex);
    if (*loaded == NULL) {
        *loaded = linked;
    }
    if (*loaded == NULL) {
        code = open_module(module, loaded, err);
    }
    if (code == BELAY_OK) {
        *out_entry = *loaded;
    }
    (void)pthread_mutex_unlock(&mutex);
    return code;
}

enum belay_code loader_net(const struct net_module **out_module, struct belay_error *err)
{
    static const struct module module = { NET_MODULE_FILE, NET_MODULE_SYMBOL, NET_MODULE_ABI,
                                          "stores on the network", "" };
    const void *entry = NULL;
    enum belay_code code = find_module(&module, &belay_net_entry, &loaded_net, &entry, err);

    if (code == BELAY_OK) {
        *out_module = entry;
    }
    return code;
}

enum belay_code loader_pg(const struct pg_module **out_module, struct belay_error *err)
{
    static const struct module module = { PG_MODULE_FILE, PG_MODULE_SYMBOL, PG_MODULE_ABI,
                                          "stores on PostgreSQL",
                                          " (Debian: install belay-postgresql; else libpq)" };
    const void *entry = NULL;
    enum belay_code code = find_module(&module, &belay_pg_entry, &loaded_pg, &entry, err);

    if (code == BELAY_OK) {
        *out_module = entry;
    }
    return code;
}

/*
 * In this file, because a program links only the objects of an archive that it refers to, and
 * belay-serve.so calls this function in the program.
 */
enum belay_code belay_http_post(const struct belay_http_post *post, int *out_status, struct belay_error *err)
{
    const struct net_module *net;
    enum belay_code code = loader_net(&net, err);

    return code == BELAY_OK ? net->post(post, out_status, err) : code;
}
