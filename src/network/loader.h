/* Finds belay-net.so and belay-pg.so, which a program that locks only on its own machine never loads. */
#ifndef NETWORK_LOADER_H
#define NETWORK_LOADER_H

#include "network/net_module.h"
#include "network/pg_module.h"
#include "store/dynamodb/dynamodb_store.h"

/* Each module is opened at the first call and never closed. */
enum belay_code loader_net(const struct net_module **out_module, struct belay_error *err);
enum belay_code loader_pg(const struct pg_module **out_module, struct belay_error *err);

/* The settings of `config` for belay-net.so, which must not contain a copy of the code that reads them. */
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
