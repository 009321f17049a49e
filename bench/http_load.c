/*
 * Send small HTTP requests over keep-alive connections and count the answers.
 *
 *     http_load HOST PORT [CONNECTIONS [SECONDS [DEPTH [PATH]]]]
 *
 * DEPTH requests are under way on each connection at a time. Ends after SECONDS
 * (at most 60) or 20 million answers. Answers are counted by their status line, so the
 * server must send bodies without "HTTP/1.1 " in them.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_CONNECTIONS = 16000,
    MAX_SECONDS = 60,
    MAX_DEPTH = 64,
    MAX_ANSWERS = 20000000,
    MAX_REQUEST = 512,
    MAX_SAMPLES = 1 << 20,
    BATCH = 256,
};

#define STATUS_LINE "HTTP/1.1 "

struct client {
    int fd;
    unsigned matched; /* bytes of STATUS_LINE that the last read ended with */
    double sent_at;
};

static struct client clients[MAX_CONNECTIONS];
static float samples[MAX_SAMPLES];
static size_t n_samples;
static char requests[MAX_DEPTH * MAX_REQUEST];
static size_t request_len;

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static long number(int argc, char **argv, int index, long fallback, long max)
{
    long value = argc > index ? strtol(argv[index], NULL, 10) : fallback;

    return value < 1 ? 1 : (value > max ? max : value);
}

static int connect_to(const char *host, int port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((unsigned short)port) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int one = 1;

    if (fd < 0 || inet_pton(AF_INET, host, &address.sin_addr) != 1 ||
        connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        perror("http_load: connect");
        exit(1);
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void send_requests(struct client *client, size_t count)
{
    client->sent_at = now_s();
    if (send(client->fd, requests, count * request_len, MSG_NOSIGNAL) != (ssize_t)(count * request_len)) {
        perror("http_load: send");
        exit(1);
    }
}

static unsigned count_answers(struct client *client, const char *data, size_t len)
{
    unsigned found = 0;

    for (size_t i = 0; i < len; i++) {
        if (data[i] == STATUS_LINE[client->matched]) {
            client->matched++;
        } else {
            client->matched = data[i] == STATUS_LINE[0] ? 1 : 0;
        }
        if (client->matched == sizeof STATUS_LINE - 1) {
            client->matched = 0;
            found++;
        }
    }
    return found;
}

/* The answers that came. Each makes room for a request. */
static unsigned serve(struct client *client)
{
    char data[16384];
    ssize_t n = recv(client->fd, data, sizeof data, 0);
    unsigned found;

    if (n <= 0) {
        (void)fprintf(stderr, "http_load: the server closed a connection\n");
        exit(1);
    }
    found = count_answers(client, data, (size_t)n);
    if (found > 0) {
        if (n_samples < MAX_SAMPLES) {
            samples[n_samples++] = (float)(now_s() - client->sent_at);
        }
        send_requests(client, found > MAX_DEPTH ? MAX_DEPTH : found);
    }
    return found;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a;
    float y = *(const float *)b;

    return (x > y) - (x < y);
}

static void report(long connections, unsigned long answers, double seconds)
{
    qsort(samples, n_samples, sizeof *samples, by_value);
    printf("%ld connections: %lu answers in %.2f s, %.0f/s, p50 %.3f ms, p99 %.3f ms\n", connections, answers,
           seconds, (double)answers / seconds, n_samples > 0 ? samples[n_samples / 2] * 1e3F : 0,
           n_samples > 0 ? samples[n_samples * 99 / 100] * 1e3F : 0);
}

int main(int argc, char **argv)
{
    long connections = number(argc, argv, 3, 64, MAX_CONNECTIONS);
    long seconds = number(argc, argv, 4, 3, MAX_SECONDS);
    size_t depth = (size_t)number(argc, argv, 5, 1, MAX_DEPTH);
    struct epoll_event events[BATCH];
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    unsigned long answers = 0;
    double began;

    if (argc < 3 || epoll_fd < 0) {
        (void)fprintf(stderr, "usage: http_load HOST PORT [CONNECTIONS [SECONDS [DEPTH [PATH]]]]\n");
        return 64;
    }
    request_len = (size_t)snprintf(requests, MAX_REQUEST, "GET %.200s HTTP/1.1\r\nHost: %.100s\r\n\r\n",
                                   argc > 6 ? argv[6] : "/", argv[1]);
    for (size_t i = 1; i < depth; i++) {
        memcpy(requests + i * request_len, requests, request_len);
    }
    for (long i = 0; i < connections; i++) {
        struct epoll_event event = { .events = EPOLLIN, .data.ptr = &clients[i] };
        clients[i].fd = connect_to(argv[1], (int)number(argc, argv, 2, 0, 65535));
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, clients[i].fd, &event) != 0) {
            perror("http_load: epoll_ctl");
            return 1;
        }
    }
    began = now_s();
    for (long i = 0; i < connections; i++) {
        send_requests(&clients[i], depth);
    }
    while (now_s() - began < (double)seconds && answers < MAX_ANSWERS) {
        int n = epoll_wait(epoll_fd, events, BATCH, 1000);
        for (int i = 0; i < n; i++) {
            answers += serve(events[i].data.ptr);
        }
    }
    report(connections, answers, now_s() - began);
    return answers > 0 ? 0 : 1;
}
