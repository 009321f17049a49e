/*
 * ZooKeeper's recipe for locks: make an ephemeral, sequential child below the lock's
 * node, see that it is the lowest, delete it.
 */
#include <stdio.h>
#include <string.h>

#include "peers.h"

enum { OP_CREATE = 1, OP_DELETE = 2, OP_GET_CHILDREN = 8 };
enum { FLAGS_PERSISTENT = 0, FLAGS_EPHEMERAL_SEQUENTIAL = 3 };
enum { NODE_EXISTS = -110, TIMEOUT_MS = 30000, ALL_PERMISSIONS = 31, HEAD = 20 };

static unsigned char *put_text(unsigned char *at, const char *text)
{
    size_t len = strlen(text);

    at = put32(at, (uint32_t)len);
    memcpy(at, text, len);
    return at + len;
}

/* The length goes in front of it. */
static void send_request(struct client *client, unsigned char *out, const unsigned char *end)
{
    (void)put32(out, (uint32_t)(end - out) - 4);
    client_send(client, out, (size_t)(end - out));
}

static unsigned char *put_head(struct client *client, unsigned char *out, uint32_t operation)
{
    return put32(put32(out + 4, ++client->sequence), operation);
}

static void create(struct client *client, const char *path, uint32_t flags)
{
    unsigned char out[256];
    unsigned char *at = put_text(put_head(client, out, OP_CREATE), path);

    at = put32(put32(put32(at, 0), 1), ALL_PERMISSIONS); /* no data, one line of permissions */
    at = put32(put_text(put_text(at, "world"), "anyone"), flags);
    send_request(client, out, at);
}

/* The size of the first answer if all of it is there, else 0. */
static size_t whole(const struct client *client)
{
    size_t size = client->len < 4 ? 0 : 4 + get32(client->in);

    return client->len >= 4 && client->len >= size ? size : 0;
}

static size_t wait_whole(struct client *client)
{
    while (whole(client) == 0) {
        (void)client_receive(client);
    }
    return whole(client);
}

static void begin(struct client *client)
{
    unsigned char out[64] = { 0 };
    unsigned char *at = out + 4 + 12; /* version 0, nothing seen */

    at = put32(at, TIMEOUT_MS) + 8; /* a new session */
    at = put32(at, 16) + 16;        /* no password */
    at++;                           /* not read-only */
    send_request(client, out, at);
    client_drop(client, wait_whole(client));
}

static void prepare(struct client *client, unsigned long n_keys)
{
    char path[40] = "/";

    for (unsigned long i = 0; i < n_keys; i++) {
        int error;

        name_key(path + 1, i);
        create(client, path, FLAGS_PERSISTENT);
        (void)wait_whole(client);
        error = (int)get32(client->in + 16);
        if (error != 0 && error != NODE_EXISTS) {
            refuse(client, "create");
        }
        client_drop(client, client->len);
    }
}

static void ask(struct client *client, enum mode mode)
{
    unsigned char out[256];
    unsigned char *at;
    char path[64];

    (void)mode;
    if (client->step == STEP_ACQUIRE) {
        (void)snprintf(path, sizeof path, "/%s/lock-", client->key);
        create(client, path, FLAGS_EPHEMERAL_SEQUENTIAL);
    } else if (client->step == STEP_CONFIRM) {
        (void)snprintf(path, sizeof path, "/%s", client->key);
        at = put_text(put_head(client, out, OP_GET_CHILDREN), path);
        *at++ = 0; /* no watch */
        send_request(client, out, at);
    } else {
        at = put_text(put_head(client, out, OP_DELETE), client->node);
        send_request(client, out, put32(at, UINT32_MAX)); /* whatever version */
    }
}

static enum answer answer(struct client *client)
{
    if (whole(client) == 0) {
        return ANSWER_PART;
    }
    if (get32(client->in + 16) != 0) {
        refuse(client, "an error");
    }
    if (client->step == STEP_ACQUIRE) {
        size_t len = get32(client->in + HEAD);

        (void)snprintf(client->node, sizeof client->node, "%.*s", (int)len, client->in + HEAD + 4);
        return ANSWER_AGAIN;
    }
    if (client->step == STEP_CONFIRM && get32(client->in + HEAD) != 1) {
        refuse(client, "not alone");
    }
    return ANSWER_DONE;
}

const struct peer peer_zookeeper = {
    .name = "zookeeper", .begin = begin, .prepare = prepare, .ask = ask, .answer = answer
};
