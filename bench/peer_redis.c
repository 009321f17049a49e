/*
 * Redis: SET NX PX, and a script that deletes the key if it is still ours. To hand
 * over, BLPOP and LPUSH of a list that has one element or none.
 */
#include <stdio.h>
#include <string.h>

#include "peers.h"

#define RELEASE_SCRIPT                                                                                       \
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"

static char sha[41];

/* The script's name, as EVALSHA wants it. */
static void prepare(struct client *client, unsigned long n_keys)
{
    char text[512];
    int n = snprintf(text, sizeof text, "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$%zu\r\n%s\r\n",
                     sizeof RELEASE_SCRIPT - 1, RELEASE_SCRIPT);

    (void)n_keys;
    client_send(client, text, (size_t)n);
    while (client_receive(client) < 47) {
    }
    if (client->in[0] != '$') {
        refuse(client, "SCRIPT LOAD");
    }
    memcpy(sha, client->in + 5, 40);
    client_drop(client, client->len);
}

static void ask(struct client *client, enum mode mode)
{
    const char *key = client->key;
    const char *id = client->id;
    bool releases = client->step == STEP_RELEASE;
    char text[512];
    int n;

    if (mode == MODE_HANDOVER) {
        n = snprintf(text, sizeof text, "*3\r\n$5\r\n%s\r\n$%zu\r\n%s\r\n$1\r\n%s\r\n",
                     releases ? "LPUSH" : "BLPOP", strlen(key), key, releases ? "1" : "0");
    } else if (releases) {
        n = snprintf(text, sizeof text,
                     "*5\r\n$7\r\nEVALSHA\r\n$%zu\r\n%s\r\n$1\r\n1\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n",
                     strlen(sha), sha, strlen(key), key, strlen(id), id);
    } else {
        n = snprintf(text, sizeof text,
                     "*6\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n30000\r\n",
                     strlen(key), key, strlen(id), id);
    }
    client_send(client, text, (size_t)n);
}

static enum answer answer(struct client *client)
{
    if (client->in[0] == '*') {
        return strstr(client->in, "\r\n$1\r\n1\r\n") != NULL ? ANSWER_DONE : ANSWER_PART;
    }
    if (client->len < 3 || client->in[client->len - 1] != '\n') {
        return ANSWER_PART;
    }
    if (client->in[0] == '-' || client->in[0] == '$' || strcmp(client->in, ":0\r\n") == 0) {
        refuse(client, "no");
    }
    return ANSWER_DONE;
}

const struct peer peer_redis = {
    .name = "redis", .can_hand_over = true, .prepare = prepare, .ask = ask, .answer = answer
};
