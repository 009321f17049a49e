/* The region and the endpoint URL of a service. */
#ifndef AWS_ENDPOINT_H
#define AWS_ENDPOINT_H

#include "aws/aws.h"
#include "aws/aws_profile.h"
#include "http_client/uri.h"

struct endpoint {
    char *url;      /* owned; NULL: no region to make one from */
    struct uri uri; /* owned */
    bool is_set;    /* configured, not made from the region */
};

/*
 * The region, and in *out_origin (a literal) its source; *out_region is NULL if there is none.
 * A region that cannot be part of a host name is refused.
 */
enum belay_code region_find(const struct platform *platform, const struct profiles *profiles,
                            const char *profile, const char *wanted, char **out_region,
                            const char **out_origin, struct belay_error *err);

enum belay_code endpoint_find(const struct platform *platform, const struct profiles *profiles,
                              const char *profile, enum aws_service service, const char *wanted,
                              const char *region, struct endpoint *out, struct belay_error *err);
void endpoint_release(struct endpoint *endpoint);

#endif
