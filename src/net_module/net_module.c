#include "network/net_module.h"

#include "http_client/http.h"
#include "http_client/probe.h"
#include "store/dynamodb/dynamodb_store.h"
#include "store/s3/s3_blob.h"
#include "version.h"

const struct net_module belay_net_entry = {
    .abi = NET_MODULE_ABI,
    .version = BELAY_VERSION,
    .open_dynamodb = dynamodb_store_open,
    .table_create = dynamodb_table_create,
    .table_describe = dynamodb_table_describe,
    .doctor_dynamodb = dynamodb_doctor,
    .http_open = http_open,
    .send_once = http_send_once,
    .probe_all = net_probe_all,
    .ec2 = net_ec2,
    .ec2_find = net_ec2_find,
    .post = net_post,
    .open_s3 = s3_blob_open,
};
