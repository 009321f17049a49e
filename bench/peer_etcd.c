/*
 * etcd over gRPC, with what its own clients' Mutex sends: a transaction that puts
 * our key below the lock's, with our lease, if it is not there, and asks for the
 * oldest there; to release, the key is deleted. A lease for each client, as a session has.
 *
 * Only as much of HTTP/2 as one request at a time takes. Field names are sent plain.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "peers.h"

enum {
    FRAME_DATA = 0,
    FRAME_HEADERS = 1,
    FRAME_RST = 3,
    FRAME_SETTINGS = 4,
    FRAME_PING = 6,
    FRAME_GOAWAY = 7
};
enum { FRAME_WINDOW = 8, FRAME_HEAD = 9, FLAG_ACK = 1, FLAG_END_STREAM = 1, FLAG_END_HEADERS = 4 };
enum { LEASE_S = 600, WINDOW_MORE = 0x7ff00000 };

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

/* ---- messages ---- */

struct message {
    size_t len;
    unsigned char bytes[512];
};

static void add_number(struct message *message, unsigned field, uint64_t value)
{
    message->bytes[message->len++] = (unsigned char)(field << 3);
    do {
        message->bytes[message->len++] = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        value >>= 7;
    } while (value > 0);
}

/* Shorter than 128 bytes, as everything here is. */
static void add_bytes(struct message *message, unsigned field, const void *bytes, size_t len)
{
    message->bytes[message->len++] = (unsigned char)(field << 3 | 2);
    message->bytes[message->len++] = (unsigned char)len;
    memcpy(message->bytes + message->len, bytes, len);
    message->len += len;
}

static void add_message(struct message *message, unsigned field, const struct message *inner)
{
    add_bytes(message, field, inner->bytes, inner->len);
}

/* ---- frames ---- */

static unsigned char *put_frame(unsigned char *at, size_t len, unsigned type, unsigned flags, uint32_t stream)
{
    (void)put32(at, (uint32_t)len << 8 | type);
    at[4] = (unsigned char)flags;
    return put32(at + 5, stream);
}

static unsigned char *put_field(unsigned char *at, const char *value)
{
    size_t len = strlen(value);

    *at++ = (unsigned char)len;
    memcpy(at, value, len);
    return at + len;
}

static unsigned char *put_fields(unsigned char *at, const char *path)
{
    static const unsigned char method_and_scheme[] = { 0x83, 0x86 }; /* POST, http */
    static const unsigned char content_type[] = { 0x0f, 0x10 };

    memcpy(at, method_and_scheme, 2);
    at[2] = 0x04; /* :path */
    at = put_field(at + 3, path);
    *at++ = 0x01; /* :authority */
    at = put_field(at, "localhost");
    memcpy(at, content_type, 2);
    at = put_field(at + 2, "application/grpc");
    *at++ = 0x00; /* a name that has no number */
    return put_field(put_field(at, "te"), "trailers");
}

static void call(struct client *client, const char *path, const struct message *message)
{
    uint32_t stream = 2 * client->sequence++ + 1;
    unsigned char out[1024];
    unsigned char *fields = out + FRAME_HEAD;
    unsigned char *at = put_fields(fields, path);

    (void)put_frame(out, (size_t)(at - fields), FRAME_HEADERS, FLAG_END_HEADERS, stream);
    at = put_frame(at, 5 + message->len, FRAME_DATA, FLAG_END_STREAM, stream);
    *at++ = 0; /* not compressed */
    at = put32(at, (uint32_t)message->len);
    memcpy(at, message->bytes, message->len);
    client->saw_good = false;
    client_send(client, out, (size_t)(at + message->len - out));
}

/* The second field of all answers here is a number that is not 0 if it went well. The first is the header. */
static bool is_good(const unsigned char *data, size_t len)
{
    size_t at = 5 + 2 + (len > 6 ? data[6] : 0U);

    return len > at + 1 && data[5] == (1 << 3 | 2) && data[at] == 2 << 3 && data[at + 1] != 0;
}

static void send_ack(struct client *client, unsigned type, const void *body, size_t len)
{
    unsigned char out[FRAME_HEAD + 8];

    memcpy(put_frame(out, len, type, FLAG_ACK, 0), body, len);
    client_send(client, out, FRAME_HEAD + len);
}

static enum answer take_frame(struct client *client, const unsigned char *frame, size_t len)
{
    unsigned type = frame[3];
    unsigned flags = frame[4];
    const unsigned char *body = frame + FRAME_HEAD;

    if (type == FRAME_RST || type == FRAME_GOAWAY) {
        refuse(client, "the stream is over");
    } else if (type == FRAME_SETTINGS && (flags & FLAG_ACK) == 0) {
        send_ack(client, type, body, 0);
    } else if (type == FRAME_PING && (flags & FLAG_ACK) == 0 && len == 8) {
        send_ack(client, type, body, len);
    } else if (type == FRAME_DATA) {
        client->saw_good = is_good(body, len);
    } else if (type == FRAME_HEADERS && (flags & FLAG_END_STREAM) != 0) {
        if (!client->saw_good) {
            refuse(client, "no");
        }
        return ANSWER_DONE;
    }
    return ANSWER_PART;
}

static enum answer answer(struct client *client)
{
    enum answer answer = ANSWER_PART;

    while (client->len >= FRAME_HEAD) {
        size_t len = get32(client->in) >> 8;

        if (client->len < FRAME_HEAD + len) {
            break;
        }
        if (take_frame(client, (const unsigned char *)client->in, len) == ANSWER_DONE) {
            answer = ANSWER_DONE;
        }
        client_drop(client, FRAME_HEAD + len);
    }
    return answer;
}

/* ---- locks ---- */

static uint64_t lease_of(const struct client *client)
{
    return (uint64_t)getpid() * 65536 + client->number + 1;
}

static void begin(struct client *client)
{
    unsigned char out[64] = PREFACE;
    unsigned char *at = put_frame(out + sizeof PREFACE - 1, 0, FRAME_SETTINGS, 0, 0);
    struct message grant = { 0 };

    at = put32(put_frame(at, 4, FRAME_WINDOW, 0, 0), WINDOW_MORE);
    client_send(client, out, (size_t)(at - out));
    add_number(&grant, 1, LEASE_S);
    add_number(&grant, 2, lease_of(client));
    call(client, "/etcdserverpb.Lease/LeaseGrant", &grant);
    do {
        (void)client_receive(client);
    } while (answer(client) != ANSWER_DONE);
}

static void add_operation(struct message *txn, unsigned which, const struct message *request)
{
    struct message operation = { 0 };

    add_message(&operation, which, request);
    add_message(txn, 2, &operation);
}

static void ask(struct client *client, enum mode mode)
{
    struct message compare = { 0 };
    struct message put = { 0 };
    struct message oldest = { 0 };
    struct message request = { 0 };
    char mine[64];
    char end[40];
    size_t len =
        (size_t)snprintf(mine, sizeof mine, "%s/%llx", client->key, (unsigned long long)lease_of(client));

    (void)mode;
    if (client->step == STEP_RELEASE) {
        add_bytes(&request, 1, mine, len);
        call(client, "/etcdserverpb.KV/DeleteRange", &request);
        return;
    }
    add_number(&compare, 2, 1); /* when it was created */
    add_bytes(&compare, 3, mine, len);
    add_number(&compare, 5, 0); /* never */
    add_message(&request, 1, &compare);
    add_bytes(&put, 1, mine, len);
    add_number(&put, 3, lease_of(client));
    add_operation(&request, 2, &put);
    add_bytes(&oldest, 1, mine, strlen(client->key) + 1);
    (void)snprintf(end, sizeof end, "%s0", client->key); /* '0' comes after '/' */
    add_bytes(&oldest, 2, end, strlen(end));
    add_number(&oldest, 3, 1);
    add_number(&oldest, 5, 1); /* ascending, */
    add_number(&oldest, 6, 2); /* by when they were created */
    add_operation(&request, 1, &oldest);
    call(client, "/etcdserverpb.KV/Txn", &request);
}

const struct peer peer_etcd = { .name = "etcd", .begin = begin, .ask = ask, .answer = answer };
