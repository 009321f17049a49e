#include "network/loader.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "version.h"

/* Defined if the network code is linked into the program; the weak reference does not pull it in. */
#pragma weak belay_net_entry

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const struct net_module *loaded; /* under the mutex */

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

static enum belay_code check(const struct net_module *module, const char *path, struct belay_error *err)
{
    if (module == NULL) {
        return error_set(err, BELAY_CONFIG, "%.400s is not belay's module: %.200s", path, dlerror());
    }
    if (module->abi != NET_MODULE_ABI || strcmp(module->version, BELAY_VERSION) != 0) {
        return error_set(err, BELAY_CONFIG,
                         "%.400s is of version %.40s, this is belay " BELAY_VERSION
                         ": install both from one package",
                         path, module->version);
    }
    return BELAY_OK;
}

static enum belay_code load(const struct net_module **out_module, struct belay_error *err)
{
    /* Beside this file, as in a build tree; in libbelay.so's own folder; in that of the program in bin. */
    static const char *const places[] = { "", "belay/", "../lib/belay/" };
    char self[PATH_MAX], path[PATH_MAX + 128];
    void *handle = NULL;

    if (!find_self(self)) {
        return error_set(err, BELAY_CONFIG, "cannot find belay's own file, to load " NET_MODULE_FILE);
    }
    (void)dirname(self);
    for (size_t i = 0; handle == NULL && i < sizeof places / sizeof places[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s" NET_MODULE_FILE, self, places[i]);
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    if (handle == NULL) {
        return error_set(err, BELAY_CONFIG,
                         "stores on the network need " NET_MODULE_FILE ", which cannot be loaded: %.300s",
                         dlerror());
    }
    *out_module = dlsym(handle, NET_MODULE_SYMBOL);
    return check(*out_module, path, err);
}

enum belay_code loader_net(const struct net_module **out_module, struct belay_error *err)
{
    enum belay_code code = BELAY_OK;

    (void)pthread_mutex_lock(&mutex);
    if (loaded == NULL && &belay_net_entry != NULL) {
        loaded = &belay_net_entry;
    }
    if (loaded == NULL) {
        const struct net_module *module = NULL;

        code = load(&module, err);
        loaded = code == BELAY_OK ? module : NULL;
    }
    if (code == BELAY_OK) {
        *out_module = loaded;
    }
    (void)pthread_mutex_unlock(&mutex);
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
