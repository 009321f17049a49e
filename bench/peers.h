/*
 * What lock_load knows of a server: how to greet it, what to send for a lock, and
 * how to read the answer. One file each. All speak their server's own protocol on a
 * socket of the one loop, so that a client costs much the same whoever is asked.
 */
#ifndef BENCH_PEERS_H
#define BENCH_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ROOM = 16384 };

enum mode {
    MODE_PAIRS,    /* a key of its own each, taken and given back */
    MODE_HANDOVER, /* all want the same */
    MODE_HOLD,     /* every key once, and kept */
    MODE_WAIT,     /* for keys that another client holds */
    MODE_SLOTS,    /* several clients for each key, in its slots */
    MODE_RESTED,   /* as MODE_PAIRS, with a rest before each request */
};

/* The request under way. */
enum step { STEP_ACQUIRE, STEP_CONFIRM, STEP_RELEASE };

enum answer {
    ANSWER_PART,  /* more is to come */
    ANSWER_AGAIN, /* whole; the lock takes another request */
    ANSWER_DONE,
};

struct client {
    int fd;
    unsigned number;
    enum step step;
    unsigned slots; /* of the lock; 0: exclusive */
    unsigned long turn;
    double sent_at;
    char key[32];
    char id[48];
    char node[96];     /* ZooKeeper's name of what we have made */
    uint32_t sequence; /* of requests, where the protocol counts them */
    bool saw_good;     /* etcd: the answer's first half was good */
    size_t len;
    char in[ROOM];
};

struct peer {
    const char *name;
    bool can_hand_over;
    /* Blocking; each may be NULL. `begin` for each connection, `prepare` once for all. */
    void (*begin)(struct client *client);
    void (*prepare)(struct client *client, unsigned long n_keys);
    void (*ask)(struct client *client, enum mode mode);
    /* Of what is in client->in; does not come back from an answer that says no. */
    enum answer (*answer)(struct client *client);
};

extern const struct peer peer_belay;
extern const struct peer peer_redis;
extern const struct peer peer_etcd;
extern const struct peer peer_postgres;
extern const struct peer peer_zookeeper;

/* ---- lock_load.c ---- */

void fail(const char *what);                         /* with errno; ends the program */
void refuse(struct client *client, const char *why); /* ends the program, showing the answer */
void client_send(struct client *client, const void *bytes, size_t len);
/* Blocking; what is there is kept in client->in. Returns how much there is now. */
size_t client_receive(struct client *client);
void client_drop(struct client *client, size_t n); /* the first of what was received */
void name_key(char key[32], unsigned long number);

/* ---- numbers, the greater end first ---- */

static inline unsigned char *put32(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (unsigned char)(value >> (24 - 8 * i));
    }
    return at + 4;
}

static inline uint32_t get32(const void *at)
{
    const unsigned char *bytes = at;

    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

#endif
