/*
 * The same clients for a belay server and for its peers: one thread, one connection
 * for each client, one request under way on each.
 *
 *     lock_load PEER HOST PORT pairs CLIENTS SECONDS [KEYS]
 *     lock_load PEER HOST PORT handover CLIENTS SECONDS
 *     lock_load PEER HOST PORT hold CLIENTS 0 KEYS
 *     lock_load PEER HOST PORT wait CLIENTS 0 KEYS
 *     lock_load PEER HOST PORT slots CLIENTS SECONDS KEYS SLOTS
 *     lock_load PEER HOST PORT rested 1 SECONDS [KEYS]
 *
 * PEER is belay, redis, etcd, postgres or zookeeper; peer_PEER.c says what is asked of it.
 *
 * `pairs`: each client takes a key of its own and gives it back, again and again,
 * with all KEYS in turn. Prints pairs per second, and p50 and p99 of a request in ms.
 *
 * `handover`: all clients wait for one lock; the client that gets it releases it at
 * once and waits again. Prints hand-overs per second, and p50 and p99 in ms from sending the
 * release to having the lock at the next. (belay and redis)
 *
 * `hold`: takes every one of KEYS and ends; the locks stay. Prints locks per second.
 * `wait`: waits for those locks, each client for another of the first KEYS, until its
 * own standard input ends. Prints "waiting" when all have asked.
 *
 * `slots`: the clients wait for KEYS locks, as many for each, that have SLOTS slots (0: exclusive
 * locks); each releases the lock at once and waits again. Prints locks per second, and p50
 * and p99 of a request in ms. (all three belay only)
 *
 * `rested`: as `pairs`, by a client that rests before each request for as long as the holder
 * in bench_handover keeps its lock. A machine that has rested answers more slowly than one that
 * is asked again and again.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "peers.h"

enum { CLIENTS_MAX = 12000, SAMPLES_MAX = 1 << 22, BATCH = 256, REST_NS = 2000000 };

static const struct peer *const peers[] = { &peer_belay, &peer_redis, &peer_etcd, &peer_postgres,
                                            &peer_zookeeper };

static struct {
    const struct peer *peer;
    enum mode mode;
    int epoll_fd;
    unsigned long n_clients, n_keys;
    unsigned n_slots;      /* of each key; 0: exclusive */
    bool is_over;          /* no new locks, only the end of those that are held */
    unsigned long n_ended; /* clients that want nothing more */
    unsigned long done;
    double released_at;
    size_t n_samples;
    float samples[SAMPLES_MAX];
    struct client *clients; /* owned */
} load;

static double now_s(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void fail(const char *what)
{
    (void)fprintf(stderr, "lock_load: ");
    perror(what);
    exit(1);
}

void refuse(struct client *client, const char *why)
{
    (void)fprintf(stderr, "lock_load: %s: %s:\n", load.peer->name, why);
    (void)fwrite(client->in, 1, client->len, stderr);
    (void)fputc('\n', stderr);
    exit(1);
}

/* ---- connections ---- */

static int connect_to(const char *host, const char *port)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int one = 1;

    address.sin_port = htons((unsigned short)strtol(port, NULL, 10));
    if (fd < 0 || inet_pton(AF_INET, host, &address.sin_addr) != 1 ||
        connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        fail("connect");
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

void client_send(struct client *client, const void *bytes, size_t len)
{
    if (send(client->fd, bytes, len, MSG_NOSIGNAL) != (ssize_t)len) {
        fail("send");
    }
}

size_t client_receive(struct client *client)
{
    ssize_t n = recv(client->fd, client->in + client->len, sizeof client->in - 1 - client->len, 0);

    if (n <= 0) {
        fail("recv");
    }
    client->len += (size_t)n;
    client->in[client->len] = '\0';
    return client->len;
}

void client_drop(struct client *client, size_t n)
{
    client->len -= n;
    memmove(client->in, client->in + n, client->len + 1);
}

static void open_clients(const char *host, const char *port)
{
    for (unsigned long i = 0; i < load.n_clients; i++) {
        struct client *client = &load.clients[i];
        struct epoll_event event = { .events = EPOLLIN, .data.ptr = client };

        client->number = (unsigned)i;
        client->fd = connect_to(host, port);
        if (epoll_ctl(load.epoll_fd, EPOLL_CTL_ADD, client->fd, &event) != 0) {
            fail("epoll_ctl");
        }
        if (load.peer->begin != NULL) {
            load.peer->begin(client);
        }
        if (i == 0 && load.peer->prepare != NULL) {
            load.peer->prepare(client, load.n_keys);
        }
    }
}

/* ---- requests ---- */

void name_key(char key[32], unsigned long number)
{
    bool stays = load.mode == MODE_HOLD || load.mode == MODE_WAIT;

    (void)snprintf(key, 32, "%s-%08lu", stays ? "held" : "bench", number);
}

/* No two clients ever have a key in common, whoever is faster. */
static unsigned long key_number(const struct client *client)
{
    unsigned long n_mine = load.n_keys / load.n_clients;

    if (load.mode == MODE_WAIT || load.mode == MODE_SLOTS) {
        return client->number % load.n_keys;
    }
    return client->number + client->turn % (n_mine == 0 ? 1 : n_mine) * load.n_clients;
}

static void ask(struct client *client)
{
    if (load.mode == MODE_HANDOVER) {
        (void)snprintf(client->key, sizeof client->key, "line-%08lu", (unsigned long)getpid());
    } else {
        name_key(client->key, key_number(client));
    }
    client->slots = load.n_slots;
    (void)snprintf(client->id, sizeof client->id, "%08x-0000-4000-8000-%012lx",
                   client->number + (unsigned)getpid() * 65536U, client->turn);
    client->sent_at = now_s();
    if (client->step == STEP_RELEASE) {
        load.released_at = client->sent_at;
    }
    load.peer->ask(client, load.mode);
}

static void note(double seconds)
{
    if (load.n_samples < SAMPLES_MAX) {
        load.samples[load.n_samples++] = (float)seconds;
    }
}

/* A lock more, or one less: what comes next. */
static void go_on(struct client *client)
{
    bool counts = client->step == STEP_RELEASE || load.mode == MODE_HOLD;
    bool ends = load.is_over;

    load.done += counts;
    client->turn += counts;
    client->step = counts ? STEP_ACQUIRE : STEP_RELEASE;
    if (load.mode == MODE_HOLD) {
        ends = client->turn == load.n_keys / load.n_clients;
    }
    if (ends && counts && load.mode != MODE_HANDOVER) {
        load.n_ended++;
        return;
    }
    if (load.mode == MODE_RESTED) {
        (void)nanosleep(&(struct timespec){ 0, REST_NS }, NULL);
    }
    ask(client);
}

static void serve(struct client *client)
{
    enum answer answer;

    (void)client_receive(client);
    answer = load.peer->answer(client);
    if (answer == ANSWER_PART) {
        return;
    }
    if (load.mode != MODE_HANDOVER) {
        note(now_s() - client->sent_at);
    } else if (client->step != STEP_RELEASE && load.released_at > 0) {
        note(now_s() - load.released_at);
    }
    client->len = 0;
    if (answer == ANSWER_AGAIN) {
        client->step = STEP_CONFIRM;
        ask(client);
    } else {
        go_on(client);
    }
}

static void turn(void)
{
    struct epoll_event events[BATCH];
    int n = epoll_wait(load.epoll_fd, events, BATCH, 1000);

    for (int i = 0; i < n; i++) {
        serve(events[i].data.ptr);
    }
}

/* ---- what is printed ---- */

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a;
    float y = *(const float *)b;

    return (x > y) - (x < y);
}

static double percentile_ms(size_t percent)
{
    return load.n_samples == 0 ? 0 : (double)load.samples[load.n_samples * percent / 100] * 1e3;
}

static void measure(double seconds)
{
    double began = now_s();
    unsigned long done;

    while (load.mode == MODE_HOLD ? load.n_ended < load.n_clients : now_s() - began < seconds) {
        turn();
    }
    seconds = now_s() - began;
    done = load.done;
    load.is_over = true;
    while ((load.mode == MODE_PAIRS || load.mode == MODE_SLOTS || load.mode == MODE_RESTED) &&
           load.n_ended < load.n_clients) {
        turn(); /* leaving nothing behind for the next who measures */
    }
    qsort(load.samples, load.n_samples, sizeof *load.samples, by_value);
    (void)printf("%.0f %.4f %.4f\n", (double)done / seconds, percentile_ms(50), percentile_ms(99));
}

static void wait_for_input(void)
{
    char byte;

    (void)printf("waiting\n");
    (void)fflush(stdout);
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
}

/* ---- the program ---- */

static bool choose(int argc, char **argv)
{
    static const char *const modes[] = { "pairs", "handover", "hold", "wait", "slots", "rested" };
    bool has_mode = false;
    bool is_pairs;

    for (size_t i = 0; argc > 6 && i < sizeof peers / sizeof peers[0]; i++) {
        load.peer = strcmp(argv[1], peers[i]->name) == 0 ? peers[i] : load.peer;
    }
    for (size_t i = 0; argc > 6 && i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(argv[4], modes[i]) == 0) {
            load.mode = (enum mode)i;
            has_mode = true;
        }
    }
    is_pairs = load.mode == MODE_PAIRS || load.mode == MODE_RESTED;
    if (load.peer == NULL || !has_mode || (!is_pairs && !load.peer->can_hand_over) ||
        (!is_pairs && load.mode > MODE_HANDOVER && load.peer != &peer_belay)) {
        (void)fprintf(stderr,
                      "usage: lock_load belay|redis|etcd|postgres|zookeeper HOST PORT pairs|handover|rested "
                      "CLIENTS SECONDS [KEYS]\n       lock_load belay HOST PORT hold|wait CLIENTS 0 "
                      "KEYS\n       lock_load belay HOST PORT slots CLIENTS SECONDS KEYS SLOTS\n");
        return false;
    }
    load.n_clients = strtoul(argv[5], NULL, 10);
    load.n_keys = argc > 7 ? strtoul(argv[7], NULL, 10) : 1024;
    load.n_slots = argc > 8 ? (unsigned)strtoul(argv[8], NULL, 10) : 0;
    if (load.n_clients == 0 || load.n_clients > CLIENTS_MAX || load.n_keys == 0 ||
        (load.mode < MODE_WAIT && load.mode != MODE_HANDOVER && load.n_keys < load.n_clients)) {
        (void)fprintf(stderr, "lock_load: 1 to %d clients, and a key for each\n", CLIENTS_MAX);
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct rlimit limit;

    if (!choose(argc, argv)) {
        return 64;
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    load.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    load.clients = calloc(load.n_clients, sizeof *load.clients);
    if (load.epoll_fd < 0 || load.clients == NULL) {
        fail("start");
    }
    open_clients(argv[2], argv[3]);
    /* In Redis the list must contain the lock first. */
    if (load.mode == MODE_HANDOVER && load.peer == &peer_redis) {
        load.clients[0].step = STEP_RELEASE;
    }
    for (unsigned long i = 0; i < load.n_clients; i++) {
        ask(&load.clients[i]);
    }
    load.released_at = 0;
    if (load.mode == MODE_WAIT) {
        wait_for_input();
    } else {
        measure(strtod(argv[6], NULL));
    }
    free(load.clients);
    return 0;
}
