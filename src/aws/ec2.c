/* EC2's Query API, as far as needed to stop and start one instance. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aws/aws.h"
#include "aws/text/xml.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "http_client/probe.h"
#include "http_client/uri.h"

enum { BODY_MAX = 2048, NAME_SIZE = 260, NAMES_MAX = 1000 };
#define EC2_VERSION "2016-11-15"

/* The state of the first instance, in each of the three answers. */
static const char *find_state(const struct xml *root)
{
    const char *state = xml_text(root, "instancesSet/item/currentState/name");

    return state != NULL ? state : xml_text(root, "reservationSet/item/instancesSet/item/instanceState/name");
}

/* One call; *out_root is the answer, or NULL if it is no XML. */
static enum belay_code ec2_call(const char *operation, const struct buf *body, int64_t timeout_ms,
                                struct xml **out_root, struct belay_error *err)
{
    struct aws_options options = { .timeout_ms = timeout_ms };
    struct aws_client *client = NULL;
    struct http_client_header type = { "content-type", "application/x-www-form-urlencoded; charset=utf-8" };
    struct aws_request request = { .service = AWS_EC2,
                                   .operation = operation,
                                   .headers = &type,
                                   .n_headers = 1,
                                   .body = body->data,
                                   .body_len = body->len,
                                   .reads_only = strcmp(operation, "DescribeInstances") == 0,
                                   .retry = AWS_RETRY_STANDARD, /* stopping is idempotent */
                                   .deadline_mono_ms = 0,
                                   .timeout_ms = timeout_ms };
    struct aws_response response;
    enum belay_code code = body->failed ? error_no_memory(err) : aws_open(&options, &client, err);

    if (code == BELAY_OK) {
        code = aws_call(client, &request, &response, err);
        if (code == BELAY_OK) {
            *out_root = xml_parse(response.http.body, response.http.body_len);
        }
        aws_response_release(&response);
    }
    aws_close(client);
    return code;
}

static void begin_query(struct buf *body, const char *operation)
{
    uri_add_query(body, "Action", operation);
    uri_add_query(body, "Version", EC2_VERSION);
}

enum belay_code net_ec2(const char *operation, const char *instance, int64_t timeout_ms,
                        char out_state[EC2_STATE_SIZE], struct belay_error *err)
{
    struct buf body = BUF_INIT(BODY_MAX);
    struct xml *root = NULL;
    enum belay_code code;

    begin_query(&body, operation);
    uri_add_query(&body, "InstanceId.1", instance);
    code = ec2_call(operation, &body, timeout_ms, &root, err);
    if (code == BELAY_OK) {
        (void)snprintf(out_state, EC2_STATE_SIZE, "%s", text_or_empty(find_state(root)));
    } else {
        (void)error_wrap(err, "EC2 %s '%.60s'", operation, instance);
    }
    xml_free(root);
    buf_release(&body);
    return code;
}

/* ---- finding one ---- */

/* All instances of the answer; *out_first is the first of them. */
static size_t count_instances(const struct xml *root, const struct xml **out_first)
{
    const struct xml *set = xml_find(root, "reservationSet");
    size_t n = 0;

    for (size_t i = 0; set != NULL && i < set->n_children; i++) {
        const struct xml *instances = xml_find(set->children[i], "instancesSet");

        for (size_t k = 0; instances != NULL && k < instances->n_children; k++) {
            *out_first = n == 0 ? instances->children[k] : *out_first;
            n++;
        }
    }
    return n;
}

static bool is_name_of_host(const char *element)
{
    static const char *const names[] = { "privateIpAddress", "ipAddress", "publicIp",      "ipv6Address",
                                         "privateDnsName",   "dnsName",   "publicDnsName", "ipv6" };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(element, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* As in identifiers: lower case, an IPv6 address in its shortest form and in brackets. */
static bool found_add_name(struct net_ec2_found *found, const char *text)
{
    char shortest[INET6_ADDRSTRLEN];
    struct in6_addr address;
    bool is_v6 = inet_pton(AF_INET6, text, &address) == 1 &&
                 inet_ntop(AF_INET6, &address, shortest, sizeof shortest) != NULL;
    char **grown = realloc(found->names, (found->n_names + 1) * sizeof *grown);
    char name[NAME_SIZE];

    if (grown == NULL) {
        return false;
    }
    found->names = grown;
    (void)snprintf(name, sizeof name, "%s%.250s%s", is_v6 ? "[" : "", is_v6 ? shortest : text,
                   is_v6 ? "]" : "");
    text_lower(name);
    grown[found->n_names] = strdup(name);
    if (grown[found->n_names] == NULL) {
        return false;
    }
    found->n_names++;
    return true;
}

/* All addresses and names of the instance, of its interfaces and of their secondary addresses. */
static bool found_add_names(const struct xml *node, struct net_ec2_found *found)
{
    bool ok = true;

    for (size_t i = 0; ok && i < node->n_children; i++) {
        const struct xml *child = node->children[i];

        if (child->n_children == 0 && *child->text != '\0' && is_name_of_host(child->name)) {
            ok = found->n_names < NAMES_MAX && found_add_name(found, child->text);
        } else {
            ok = found_add_names(child, found);
        }
    }
    return ok;
}

static enum belay_code take_found(const struct xml *root, const char *what, struct net_ec2_found *out_found,
                                  struct belay_error *err)
{
    const struct xml *instance = NULL;
    size_t n = root == NULL ? 0 : count_instances(root, &instance);
    const char *id = instance == NULL ? NULL : xml_text(instance, "instanceId");
    struct net_ec2_found found = { 0 };

    if (root == NULL || (n > 0 && id == NULL)) {
        return error_set(err, BELAY_BAD_CONTENT, "the answer cannot be read");
    }
    if (n == 0) {
        return error_set(err, BELAY_NOT_FOUND, "there is no instance with %s", what);
    }
    if (n > 1 || xml_text(root, "nextToken") != NULL) {
        return error_set(err, BELAY_BAD_CONTENT, "more than one instance has %s", what);
    }
    (void)snprintf(found.instance, sizeof found.instance, "%s", id);
    if (!found_add_names(instance, &found)) {
        net_ec2_found_release(&found);
        return error_set(err, BELAY_BAD_CONTENT, "the names of instance '%.60s' are too many", id);
    }
    *out_found = found;
    return BELAY_OK;
}

static const char *filter_of(const char *host)
{
    unsigned char address[16];

    return inet_pton(AF_INET, host, address) == 1    ? "private-ip-address"
           : inet_pton(AF_INET6, host, address) == 1 ? "network-interface.ipv6-addresses.ipv6-address"
                                                     : "private-dns-name";
}

/* A terminated instance may be listed for an hour under its old name. */
static void add_filters(struct buf *body, const char *host)
{
    uri_add_query(body, "Filter.1.Name", filter_of(host));
    uri_add_query(body, "Filter.1.Value.1", host);
    uri_add_query(body, "Filter.2.Name", "instance-state-name");
    uri_add_query(body, "Filter.2.Value.1", "pending");
    uri_add_query(body, "Filter.2.Value.2", "running");
    uri_add_query(body, "Filter.2.Value.3", "stopping");
    uri_add_query(body, "Filter.2.Value.4", "stopped");
}

enum belay_code net_ec2_find(const char *instance, const char *host, int64_t timeout_ms,
                             struct net_ec2_found *out_found, struct belay_error *err)
{
    struct buf body = BUF_INIT(BODY_MAX);
    struct xml *root = NULL;
    char what[NAME_SIZE + 64];
    enum belay_code code;

    begin_query(&body, "DescribeInstances");
    if (instance != NULL) {
        uri_add_query(&body, "InstanceId.1", instance);
        (void)snprintf(what, sizeof what, "the id '%.60s'", instance);
    } else {
        add_filters(&body, host);
        (void)snprintf(what, sizeof what, "%s '%.250s'", filter_of(host), host);
    }
    code = ec2_call("DescribeInstances", &body, timeout_ms, &root, err);
    if (code == BELAY_OK) {
        code = take_found(root, what, out_found, err);
    }
    if (code != BELAY_OK) {
        (void)error_wrap(err, "EC2 DescribeInstances");
    }
    xml_free(root);
    buf_release(&body);
    return code;
}
