/* The server's part of the program, which is loaded only by who needs it. */
#ifndef CLI_COMMANDS_SERVE_MODULE_H
#define CLI_COMMANDS_SERVE_MODULE_H

#include "server/core/serve.h"

struct serve_module {
    serve_run_fn *run;
    serve_hash_fn *hash;
};

/* Loads belay-serve.so from beside the program, or from where `make install` puts it. It stays loaded. */
enum belay_code serve_module_load(struct serve_module *out, struct belay_error *err);

#endif
