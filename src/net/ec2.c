/* EC2's Query API, as far as stopping and starting one instance needs it. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "net/aws.h"
#include "net/probe.h"
#include "net/uri.h"
#include "net/xml.h"

enum { BODY_MAX = 2048 };
#define EC2_VERSION "2016-11-15"

/* Where the state of the first instance is, in the three answers. */
static const char *find_state(const struct xml *root)
{
    static const char *const paths[] = { "instancesSet/item/currentState/name",
                                         "reservationSet/item/instancesSet/item/instanceState/name" };
    const char *state = NULL;

    for (size_t i = 0; state == NULL && i < 2; i++) {
        state = xml_text(root, paths[i]);
    }
    return state;
}

static enum belay_code ask(struct aws_client *client, const char *operation, const struct buf *body,
                           int64_t timeout_ms, char out_state[EC2_STATE_SIZE], struct belay_error *err)
{
    struct http_header type = { "content-type", "application/x-www-form-urlencoded; charset=utf-8" };
    struct aws_request request = { .service = AWS_EC2,
                                   .operation = operation,
                                   .headers = &type,
                                   .n_headers = 1,
                                   .body = body->data,
                                   .body_len = body->len,
                                   .reads_only = strcmp(operation, "DescribeInstances") == 0,
                                   .retry = AWS_RETRY_STANDARD, /* stopping twice is stopping once */
                                   .deadline_mono_ms = 0,
                                   .timeout_ms = timeout_ms };
    struct aws_response response;
    struct xml *root = NULL;
    const char *state;
    enum belay_code code = aws_call(client, &request, &response, err);

    if (code == BELAY_OK) {
        root = xml_parse(response.http.body, response.http.body_len);
        state = root == NULL ? NULL : find_state(root);
        (void)snprintf(out_state, EC2_STATE_SIZE, "%s", state == NULL ? "" : state);
        xml_free(root);
    }
    aws_response_release(&response);
    return code;
}

enum belay_code net_ec2(const char *operation, const char *instance, int64_t timeout_ms,
                        char out_state[EC2_STATE_SIZE], struct belay_error *err)
{
    struct aws_options options = { .timeout_ms = timeout_ms };
    struct aws_client *client = NULL;
    struct buf body = BUF_INIT(BODY_MAX);
    enum belay_code code = aws_open(&options, &client, err);

    uri_add_query(&body, "Action", operation);
    uri_add_query(&body, "Version", EC2_VERSION);
    uri_add_query(&body, "InstanceId.1", instance);
    if (code == BELAY_OK && body.failed) {
        code = error_no_memory(err);
    }
    if (code == BELAY_OK) {
        code = ask(client, operation, &body, timeout_ms, out_state, err);
    }
    if (code != BELAY_OK) {
        (void)error_wrap(err, "EC2 %s '%.60s'", operation, instance);
    }
    aws_close(client);
    buf_release(&body);
    return code;
}
