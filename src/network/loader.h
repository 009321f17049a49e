/* Finds belay-net.so, which a program that locks only on its own machine never loads. */
#ifndef NETWORK_LOADER_H
#define NETWORK_LOADER_H

#include "network/net_module.h"

/* The module, opened at the first call and never closed. */
enum belay_code loader_net(const struct net_module **out_module, struct belay_error *err);

#endif
