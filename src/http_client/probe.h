/*
 * For src/shared_db: whether applications answer, for many URLs at once, and one call to EC2. Called through the
 * module's table (network/net_module.h).
 */
#ifndef HTTP_CLIENT_PROBE_H
#define HTTP_CLIENT_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/address.h"
#include "belay.h"

enum { PROBE_WHY_SIZE = 200, PROBE_BODY_MAX = 64 * 1024, EC2_STATE_SIZE = 32 };

struct net_probe {
    const char *url;
    bool get;         /* GET, and keep the body; else HEAD, and GET where that is refused with 405 or 501 */
    bool use_proxy;   /* else directly: a proxy's own answer would look like the application's */
    bool public_only; /* connect only to public addresses and those in `allow`, also after redirects */
    const struct address_range *allow; /* borrowed */
    size_t n_allow;
    /* The Authorization header; then redirects are not followed. NULL: none. Borrowed. */
    const char *authorization;
    /* The results. */
    bool is_refused; /* it led to another address: no request was sent, and no conclusion is possible */
    bool connected;  /* a connection was established, or it is not certain that the peer refused one */
    int status;      /* of the last answer; 0: none */
    int64_t took_ms;
    char why[PROBE_WHY_SIZE]; /* the reason why there is no answer */
    char *body;               /* owned; with `get` */
};

/*
 * Sends all probes concurrently; none takes longer than timeout_ms, with redirects and
 * repetitions. TLS is verified; ca_file NULL: with the system's certificates. BELAY_OK says
 * only that they were sent.
 */
enum belay_code net_probe_all(struct net_probe *probes, size_t n, int64_t timeout_ms, const char *ca_file,
                              struct belay_error *err);

/*
 * StopInstances, StartInstances or DescribeInstances for one instance. out_state
 * is its state, such as "stopping"; "" if the answer has none.
 */
enum belay_code net_ec2(const char *operation, const char *instance, int64_t timeout_ms,
                        char out_state[EC2_STATE_SIZE], struct belay_error *err);

/* An instance, and the addresses and names that lead to it. */
struct net_ec2_found {
    char instance[64];
    char **names; /* owned, in lower case */
    size_t n_names;
};
/*
 * DescribeInstances by id, or by the private address or name of the host. An error unless
 * exactly one instance matches that is not terminated.
 */
enum belay_code net_ec2_find(const char *instance, const char *host, int64_t timeout_ms,
                             struct net_ec2_found *out_found, struct belay_error *err);

static inline void net_ec2_found_release(struct net_ec2_found *found)
{
    for (size_t i = 0; i < found->n_names; i++) {
        free(found->names[i]);
    }
    free(found->names);
    found->names = NULL;
    found->n_names = 0;
}

#endif
