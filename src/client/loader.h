/* Finds belay-net.so, which a program that locks only on its own machine never loads. */
#ifndef CLIENT_LOADER_H
#define CLIENT_LOADER_H

#include "net/module.h"

/* The module, opened at the first call and never closed. */
enum belay_code loader_net(const struct net_module **out_module, struct belay_error *err);

#endif
