/* belay serve, over HTTP as any client would. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peers.h"

enum { HOUR_MS = 3600000, MOMENT_MS = 30000 };

static void ask(struct client *client, enum mode mode)
{
    char body[256];
    char text[1024];
    char slots[32] = "";
    int n;

    if (client->step == STEP_RELEASE) {
        (void)snprintf(body, sizeof body, "{\"lock_id\":\"%s\"}", client->id);
    } else {
        bool waits = mode == MODE_HANDOVER || mode == MODE_WAIT || mode == MODE_SLOTS;

        if (client->slots > 0) {
            (void)snprintf(slots, sizeof slots, ",\"slots\":%u", client->slots);
        }
        (void)snprintf(body, sizeof body,
                       "{\"locked_by\":\"client-%u\",\"ttl_ms\":%d,\"wait_ms\":%d,\"lock_id\":\"%s\"%s}",
                       client->number,
                       mode == MODE_PAIRS || mode == MODE_RESTED || mode == MODE_SLOTS ? MOMENT_MS : HOUR_MS,
                       waits ? HOUR_MS : 0, client->id, slots);
    }
    n = snprintf(text, sizeof text,
                 "POST /v1/locks/%s/%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
                 client->key, client->step == STEP_RELEASE ? "release" : "acquire", strlen(body), body);
    client_send(client, text, (size_t)n);
}

static enum answer answer(struct client *client)
{
    const char *body = strstr(client->in, "\r\n\r\n");
    const char *length = strstr(client->in, "Content-Length: ");

    if (body == NULL || length == NULL ||
        strtoul(length + 16, NULL, 10) > client->len - (size_t)(body + 4 - client->in)) {
        return ANSWER_PART;
    }
    if (memcmp(client->in, "HTTP/1.1 200", 12) != 0) {
        refuse(client, "not 200");
    }
    return ANSWER_DONE;
}

const struct peer peer_belay = { .name = "belay", .can_hand_over = true, .ask = ask, .answer = answer };
