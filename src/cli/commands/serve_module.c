#include "cli/commands/serve_module.h"

#include <dlfcn.h>
#include <string.h>

#include "base/error.h"
#include "base/module_path.h"

#define MODULE "belay-serve.so"

/* A function from a pointer to data, which ISO C does not convert. */
static bool find(void *module, const char *name, void *out, size_t size)
{
    void *found = dlsym(module, name);

    memcpy(out, &found, size);
    return found != NULL;
}

enum belay_code serve_module_load(struct serve_module *out, struct belay_error *err)
{
    char path[MODULE_PATH_MAX];
    void *module;

    if (!module_path(MODULE, path)) {
        return error_set(err, BELAY_CONFIG,
                         "the server's part of belay, " MODULE ", is not beside the program");
    }
    module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (module == NULL) {
        return error_set(err, BELAY_CONFIG, "%.200s cannot be loaded: %.300s", path, dlerror());
    }
    if (!find(module, "belay_serve_run", &out->run, sizeof out->run) ||
        !find(module, "belay_serve_hash", &out->hash, sizeof out->hash)) {
        return error_set(err, BELAY_CONFIG, "%.200s is not the server's part of belay %s", path,
                         belay_version());
    }
    return BELAY_OK;
}
