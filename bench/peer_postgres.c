/*
 * PostgreSQL, one row per lock, prepared statements, each its own transaction. A row
 * stays when its lock is released: nothing that changes is indexed, so that
 * PostgreSQL can write the new version beside the old one (HOT), which suits it best.
 */
#include <string.h>

#include "peers.h"

#define TABLE                                                                                                \
    "create table if not exists locks (key text primary key, holder text not null, "                         \
    "token bigint not null, expires timestamptz not null) with (fillfactor = 50)"
#define ACQUIRE                                                                                              \
    "insert into locks as l values ($1, $2, 1, now() + interval '30 s') on conflict (key) do update "        \
    "set holder = excluded.holder, token = l.token + 1, expires = excluded.expires "                         \
    "where l.expires < now() returning token"
#define RELEASE "update locks set expires = '-infinity' where key = $1 and holder = $2"

/* A message: its type, its length with itself, and what is in it. */
static unsigned char *put_message(unsigned char *at, char type, const void *body, size_t len)
{
    *at++ = (unsigned char)type;
    at = put32(at, (uint32_t)len + 4);
    if (len > 0) {
        memcpy(at, body, len);
    }
    return at + len;
}

/* All up to the server's being ready: whether that is there, and whether it changed one row. */
static enum answer answer(struct client *client)
{
    size_t at = 0;

    while (client->len >= at + 5) {
        size_t size = 1 + get32(client->in + at + 1);

        if (client->len < at + size) {
            break;
        }
        if (client->in[at] == 'E') {
            refuse(client, "an error");
        }
        if (client->in[at] == 'C' && client->step != STEP_CONFIRM &&
            client->in[at + size - 2] != '1') { /* "INSERT 0 1", "UPDATE 1" */
            refuse(client, "no row");
        }
        if (client->in[at] == 'Z') {
            return ANSWER_DONE;
        }
        at += size;
    }
    return ANSWER_PART;
}

static void exchange(struct client *client, const void *bytes, size_t len)
{
    enum step step = client->step;

    client->step = STEP_CONFIRM; /* how many rows does not matter */
    client_send(client, bytes, len);
    do {
        (void)client_receive(client);
    } while (answer(client) != ANSWER_DONE);
    client_drop(client, client->len);
    client->step = step;
}

static void begin(struct client *client)
{
    static const char words[] = "user\0postgres\0database\0postgres\0";
    static const char parse[] = "a\0" ACQUIRE "\0\0"; /* no types: one zero more from the array's end */
    static const char parse_release[] = "r\0" RELEASE "\0\0";
    static const char table[] = TABLE;
    unsigned char out[2048];
    unsigned char *at = put32(put32(out, 8 + sizeof words), 196608);

    memcpy(at, words, sizeof words);
    exchange(client, out, 8 + sizeof words);
    if (client->number == 0) {
        at = put_message(out, 'Q', table, sizeof table);
        exchange(client, out, (size_t)(at - out));
    }
    at = put_message(out, 'P', parse, sizeof parse);
    at = put_message(at, 'P', parse_release, sizeof parse_release);
    at = put_message(at, 'S', NULL, 0);
    exchange(client, out, (size_t)(at - out));
}

static unsigned char *put_text(unsigned char *at, const char *text)
{
    size_t len = strlen(text);

    at = put32(at, (uint32_t)len);
    memcpy(at, text, len);
    return at + len;
}

/* Bind the two parameters as text, execute, and say that this is all. */
static void ask(struct client *client, enum mode mode)
{
    static const unsigned char execute[] = { 0, 0, 0, 0, 0 };
    unsigned char body[256] = { 0 };
    unsigned char out[512];
    unsigned char *at = body + 1; /* the portal without a name */

    (void)mode;
    *at++ = client->step == STEP_RELEASE ? 'r' : 'a';
    *at++ = '\0';
    at += 3; /* no formats */
    *at++ = 2;
    at = put_text(put_text(at, client->key), client->id);
    at += 2; /* no formats of results */
    at = put_message(out, 'B', body, (size_t)(at - body));
    at = put_message(at, 'E', execute, sizeof execute);
    at = put_message(at, 'S', NULL, 0);
    client_send(client, out, (size_t)(at - out));
}

const struct peer peer_postgres = { .name = "postgres", .begin = begin, .ask = ask, .answer = answer };
