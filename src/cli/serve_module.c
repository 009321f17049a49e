#include "cli/serve_module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

#define MODULE "belay-serve.so"
#ifndef BELAY_MODULE_DIR
#define BELAY_MODULE_DIR "../lib/belay" /* of the program's folder, once installed */
#endif

/* Absolute, so that neither the working directory nor LD_LIBRARY_PATH has a say in it. */
static bool module_path(const char *folder, char *out, size_t size)
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
    len = snprintf(out, size, "%s/%s%s" MODULE, program, folder, *folder == '\0' ? "" : "/");
    return len > 0 && (size_t)len < size && access(out, R_OK) == 0;
}

/* A function from a pointer to data, which ISO C does not convert. */
static bool find(void *module, const char *name, void *out, size_t size)
{
    void *found = dlsym(module, name);

    memcpy(out, &found, size);
    return found != NULL;
}

enum belay_code serve_module_load(struct serve_module *out, struct belay_error *err)
{
    char path[PATH_MAX];
    void *module;

    if (!module_path("", path, sizeof path) && !module_path(BELAY_MODULE_DIR, path, sizeof path)) {
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
