/*
 * Loading over HTTP: the same document from two servers in turn, over one connection
 * to each, read and thrown away.
 *
 *     bench_load ROUNDS PORT PATH PORT PATH
 *
 * Prints two numbers a round: milliseconds from the request to the last byte.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ROOM = 1 << 20, SERVERS = 2 };

static void fail(const char *what)
{
    (void)fprintf(stderr, "bench_load: %s\n", what);
    exit(1);
}

static double now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int open_connection(int port)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&to, sizeof to) != 0) {
        fail("cannot connect");
    }
    return fd;
}

/* Read the head into `room`; how many bytes of the body came with it. */
static size_t read_head(int fd, char *room, size_t *out_body_len)
{
    size_t n = 0;
    char *end = NULL;
    const char *length;

    while (end == NULL) {
        ssize_t got = recv(fd, room + n, ROOM - n, 0);

        if (got <= 0) {
            fail("no answer");
        }
        n += (size_t)got;
        room[n] = '\0';
        end = strstr(room, "\r\n\r\n");
    }
    *end = '\0';
    if (strncmp(room, "HTTP/1.1 200", 12) != 0) {
        fail(room);
    }
    length = strcasestr(room, "\r\nContent-Length:");
    if (length == NULL) {
        fail("an answer without a length");
    }
    *out_body_len = strtoul(length + 17, NULL, 10);
    return n - (size_t)(end + 4 - room);
}

static double load(int fd, int port, const char *path, char *room, size_t *out_len)
{
    char request[512];
    double began = now_ms();
    int n = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n", path, port);
    size_t done;

    if (send(fd, request, (size_t)n, 0) != n) {
        fail("cannot send");
    }
    done = read_head(fd, room, out_len);
    while (done < *out_len) {
        ssize_t got = recv(fd, room, ROOM, 0);

        if (got <= 0) {
            fail("the answer ended early");
        }
        done += (size_t)got;
    }
    return now_ms() - began;
}

int main(int argc, char **argv)
{
    static char room[ROOM + 1];
    int fds[SERVERS];
    size_t len[SERVERS];

    if (argc != 2 + 2 * SERVERS) {
        (void)fprintf(stderr, "usage: bench_load ROUNDS PORT PATH PORT PATH\n");
        return 64;
    }
    for (int i = 0; i < SERVERS; i++) {
        fds[i] = open_connection(atoi(argv[2 + 2 * i]));
    }
    for (int round = 0; round < atoi(argv[1]); round++) {
        double took[SERVERS];

        for (int i = 0; i < SERVERS; i++) {
            took[i] = load(fds[i], atoi(argv[2 + 2 * i]), argv[3 + 2 * i], room, &len[i]);
        }
        if (len[0] != len[1]) {
            fail("the two have different lengths");
        }
        (void)printf("%.3f %.3f\n", took[0], took[1]);
    }
    for (int i = 0; i < SERVERS; i++) {
        (void)close(fds[i]);
    }
    return 0;
}
