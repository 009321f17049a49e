#include "net/module.h"

#include "net/aws.h"
#include "version.h"

const struct net_module belay_net_entry = {
    .abi = NET_MODULE_ABI,
    .version = BELAY_VERSION,
    .aws_open = aws_open,
    .aws_close = aws_close,
};
