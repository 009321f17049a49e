/*
 * The same clients for a belay server and for Redis: one thread, one connection for
 * each client, one request under way on each.
 *
 *     lock_load belay|redis HOST PORT pairs CLIENTS SECONDS KEYS
 *     lock_load belay|redis HOST PORT handover WAITERS SECONDS
 *
 * `pairs`: each client takes a key of its own and gives it back, again and again,
 * with all KEYS in turn. Redis: SET NX PX, and a script that deletes the key if it is ours.
 * Prints pairs per second, and p50 and p99 of a request in ms.
 *
 * `handover`: all clients wait for one lock; who gets it gives it back at once and
 * waits again. Redis: BLPOP and LPUSH. Prints hand-overs per second, and p50 and
 * p99 in ms from sending the release to having the lock at the next.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS_MAX = 12000, SAMPLES_MAX = 1 << 22, BATCH = 256, ROOM = 4096 };

#define RELEASE_SCRIPT                                                                                       \
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"

struct client {
    int fd;
    int number;
    bool releases; /* the request under way gives the lock back */
    unsigned long turn;
    double sent_at;
    size_t len;
    char in[ROOM];
};

static struct client clients[CLIENTS_MAX];
static float samples[SAMPLES_MAX];
static size_t n_samples;
static bool is_redis;
static bool is_handover;
static bool is_over; /* no new locks, only the end of those that are held */
static unsigned long n_ended;
static unsigned long n_clients, n_keys, done;
static double released_at;
static char sha[64];

static double now_s(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static int connect_to(const char *host, const char *port)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int one = 1;

    address.sin_port = htons((unsigned short)strtol(port, NULL, 10));
    if (fd < 0 || inet_pton(AF_INET, host, &address.sin_addr) != 1 ||
        connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        fail("lock_load: connect");
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void send_text(struct client *client, const char *text, size_t len)
{
    client->len = 0;
    client->sent_at = now_s();
    if (send(client->fd, text, len, MSG_NOSIGNAL) != (ssize_t)len) {
        fail("lock_load: send");
    }
}

static void name_all(const struct client *client, char key[32], char id[48])
{
    unsigned long key_number =
        is_handover ? 0 : ((unsigned long)client->number + client->turn * n_clients) % n_keys;

    (void)snprintf(key, 32, "%s-%08lu", is_handover ? "line" : "bench",
                   is_handover ? (unsigned long)getpid() : key_number);
    (void)snprintf(id, 48, "%08x-0000-4000-8000-%012lx",
                   (unsigned)client->number + (unsigned)getpid() * 65536U, client->turn);
}

static void post(struct client *client, const char *key, const char *what, const char *body)
{
    char text[1024];
    int n = snprintf(text, sizeof text,
                     "POST /v1/locks/%s/%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s", key,
                     what, strlen(body), body);

    send_text(client, text, (size_t)n);
}

static void ask_belay(struct client *client, const char *key, const char *id)
{
    char body[256];

    if (client->releases) {
        (void)snprintf(body, sizeof body, "{\"lock_id\":\"%s\"}", id);
    } else {
        (void)snprintf(body, sizeof body,
                       "{\"locked_by\":\"client-%d\",\"ttl_ms\":%d,\"wait_ms\":%d,\"lock_id\":\"%s\"}",
                       client->number, is_handover ? 600000 : 30000, is_handover ? 200000 : 0, id);
    }
    post(client, key, client->releases ? "release" : "acquire", body);
}

static void ask_redis(struct client *client, const char *key, const char *id)
{
    char text[512];
    int n;

    if (is_handover) {
        n = snprintf(text, sizeof text, "*3\r\n$5\r\n%s\r\n$%zu\r\n%s\r\n$1\r\n%s\r\n",
                     client->releases ? "LPUSH" : "BLPOP", strlen(key), key, client->releases ? "1" : "0");
    } else if (client->releases) {
        n = snprintf(text, sizeof text,
                     "*5\r\n$7\r\nEVALSHA\r\n$%zu\r\n%s\r\n$1\r\n1\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n",
                     strlen(sha), sha, strlen(key), key, strlen(id), id);
    } else {
        n = snprintf(text, sizeof text,
                     "*6\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n30000\r\n",
                     strlen(key), key, strlen(id), id);
    }
    send_text(client, text, (size_t)n);
}

static void ask(struct client *client)
{
    char key[32], id[48];

    name_all(client, key, id);
    if (client->releases) {
        released_at = now_s();
    }
    if (is_redis) {
        ask_redis(client, key, id);
    } else {
        ask_belay(client, key, id);
    }
}

/* Whether the whole answer is there; ends the program if it is no good one. */
static bool is_answered(struct client *client)
{
    const char *body;
    const char *length;

    client->in[client->len] = '\0';
    if (is_redis) {
        if (client->in[0] == '*') {
            return strstr(client->in, "\r\n$1\r\n1\r\n") != NULL;
        }
        if (client->len < 3 || client->in[client->len - 1] != '\n') {
            return false;
        }
        if (client->in[0] == '-' || client->in[0] == '$' || strcmp(client->in, ":0\r\n") == 0) {
            (void)fprintf(stderr, "lock_load: %s", client->in);
            exit(1);
        }
        return true;
    }
    body = strstr(client->in, "\r\n\r\n");
    length = strstr(client->in, "Content-Length: ");
    if (body == NULL || length == NULL ||
        strtoul(length + 16, NULL, 10) > client->len - (size_t)(body + 4 - client->in)) {
        return false;
    }
    if (memcmp(client->in, "HTTP/1.1 200", 12) != 0) {
        (void)fprintf(stderr, "lock_load: %s\n", client->in);
        exit(1);
    }
    return true;
}

static void note(double seconds)
{
    if (n_samples < SAMPLES_MAX) {
        samples[n_samples++] = (float)seconds;
    }
}

static void serve(struct client *client)
{
    ssize_t n = recv(client->fd, client->in + client->len, sizeof client->in - 1 - client->len, 0);

    if (n <= 0) {
        fail("lock_load: recv");
    }
    client->len += (size_t)n;
    if (!is_answered(client)) {
        return;
    }
    if (!is_handover) {
        note(now_s() - client->sent_at);
    } else if (!client->releases && released_at > 0) {
        note(now_s() - released_at);
    }
    done += client->releases;
    client->turn += client->releases;
    client->releases = !client->releases;
    if (is_over && !is_handover && !client->releases) {
        n_ended++;
    } else {
        ask(client);
    }
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a;
    float y = *(const float *)b;

    return (x > y) - (x < y);
}

/* The script's name, as EVALSHA wants it. */
static void load_script(struct client *client)
{
    char text[512];
    int n = snprintf(text, sizeof text, "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$%zu\r\n%s\r\n",
                     sizeof RELEASE_SCRIPT - 1, RELEASE_SCRIPT);
    ssize_t got;

    send_text(client, text, (size_t)n);
    got = recv(client->fd, client->in, sizeof client->in - 1, 0);
    if (got < 46 || client->in[0] != '$') {
        fail("lock_load: SCRIPT LOAD");
    }
    memcpy(sha, client->in + 5, 40);
}

int main(int argc, char **argv)
{
    struct epoll_event events[BATCH];
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    double began, seconds;
    unsigned long pairs;

    if (argc < 7 || epoll_fd < 0) {
        (void)fprintf(stderr,
                      "usage: lock_load belay|redis HOST PORT pairs|handover CLIENTS SECONDS [KEYS]\n");
        return 64;
    }
    is_redis = strcmp(argv[1], "redis") == 0;
    is_handover = strcmp(argv[4], "handover") == 0;
    n_clients = strtoul(argv[5], NULL, 10);
    seconds = strtod(argv[6], NULL);
    n_keys = argc > 7 ? strtoul(argv[7], NULL, 10) : 1000;
    if (n_clients == 0 || n_clients > CLIENTS_MAX || n_keys < n_clients) {
        (void)fprintf(stderr, "lock_load: 1 to %d clients, and a key for each\n", CLIENTS_MAX);
        return 64;
    }
    for (unsigned long i = 0; i < n_clients; i++) {
        struct epoll_event event = { .events = EPOLLIN, .data.ptr = &clients[i] };

        clients[i].number = (int)i;
        clients[i].fd = connect_to(argv[2], argv[3]);
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, clients[i].fd, &event) != 0) {
            fail("lock_load: epoll_ctl");
        }
    }
    if (is_redis) {
        load_script(&clients[0]);
    }
    /* In Redis somebody has to put the lock there first. */
    clients[0].releases = is_redis && is_handover;
    for (unsigned long i = 0; i < n_clients; i++) {
        ask(&clients[i]);
    }
    released_at = 0;
    began = now_s();
    while (now_s() - began < seconds) {
        int n = epoll_wait(epoll_fd, events, BATCH, 1000);

        for (int i = 0; i < n; i++) {
            serve(events[i].data.ptr);
        }
    }
    seconds = now_s() - began;
    pairs = done;
    is_over = true;
    while (!is_handover && n_ended < n_clients) {
        int n = epoll_wait(epoll_fd, events, BATCH, 1000);

        for (int i = 0; i < n; i++) {
            serve(events[i].data.ptr);
        }
    }
    qsort(samples, n_samples, sizeof *samples, by_value);
    (void)printf("%.0f %.4f %.4f\n", (double)pairs / seconds,
                 n_samples > 0 ? (double)samples[n_samples / 2] * 1e3 : 0,
                 n_samples > 0 ? (double)samples[n_samples * 99 / 100] * 1e3 : 0);
    return 0;
}
