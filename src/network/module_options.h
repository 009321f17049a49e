/* What belay-net.so is told of the configuration: it must not bring a copy of the code that reads it. */
#ifndef NETWORK_MODULE_OPTIONS_H
#define NETWORK_MODULE_OPTIONS_H

#include "store/dynamodb/dynamodb_store.h"

static inline const char *module_setting(const void *settings, const char *name)
{
    return belay_config_get(settings, name);
}

/* `config` may be NULL. */
static inline struct dynamodb_options module_options(const struct belay_config *config)
{
    return (struct dynamodb_options){ .setting = config == NULL ? NULL : module_setting, .settings = config };
}

#endif
