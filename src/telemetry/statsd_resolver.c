#include "telemetry/statsd_resolver.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PACKETS_MAX = 256, RETRY_MS = 10000, WAIT_MS = 1000 };

struct packet {
    struct packet *next;
    size_t len;
    char data[];
};

/* The owner's and the thread's: who lets go of it last frees it. */
struct statsd_search {
    char *host;
    char *port;
    pthread_mutex_t mutex; /* guards the rest */
    pthread_cond_t changed;
    int refs;
    bool is_closing;
    int fd; /* -1: not known yet */
    struct packet *first;
    struct packet **end;
    size_t n;
    char problem[160]; /* "": none */
    bool is_said;
};

/* With the mutex, which is gone with the search if this was the last. */
static void let_go(struct statsd_search *search)
{
    bool is_last = --search->refs == 0;

    (void)pthread_cond_broadcast(&search->changed);
    (void)pthread_mutex_unlock(&search->mutex);
    if (!is_last) {
        return;
    }
    while (search->first != NULL) {
        struct packet *packet = search->first;

        search->first = packet->next;
        free(packet);
    }
    if (search->fd >= 0) {
        (void)close(search->fd);
    }
    (void)pthread_cond_destroy(&search->changed);
    (void)pthread_mutex_destroy(&search->mutex);
    free(search->host);
    free(search->port);
    free(search);
}

/* With the mutex, which is let go of meanwhile. */
static void wait_ms(struct statsd_search *search, long ms)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    (void)pthread_cond_timedwait(&search->changed, &search->mutex, &until);
}

int statsd_connect(int family, const void *address, size_t len)
{
    int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && connect(fd, address, (socklen_t)len) != 0) {
        int saved = errno;

        (void)close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

/* Without the mutex: this is what takes its time. */
static int look_up(const struct statsd_search *search, const char **out_why)
{
    struct addrinfo hints = { .ai_socktype = SOCK_DGRAM };
    struct addrinfo *found = NULL;
    int problem = getaddrinfo(search->host, search->port, &hints, &found);
    int fd = -1;

    if (problem != 0) {
        *out_why = gai_strerror(problem);
        return -1;
    }
    for (const struct addrinfo *at = found; at != NULL && fd < 0; at = at->ai_next) {
        fd = statsd_connect(at->ai_family, at->ai_addr, at->ai_addrlen);
    }
    *out_why = fd < 0 ? strerror(errno) : NULL;
    freeaddrinfo(found);
    return fd;
}

/* With the mutex. Nobody need listen: what a receiver does not take is not our concern. */
static void send_kept(struct statsd_search *search)
{
    while (search->first != NULL) {
        struct packet *packet = search->first;

        (void)send(search->fd, packet->data, packet->len, MSG_NOSIGNAL);
        search->first = packet->next;
        free(packet);
    }
    search->end = &search->first;
    search->n = 0;
}

static void *run(void *context)
{
    struct statsd_search *search = context;

    (void)pthread_mutex_lock(&search->mutex);
    while (!search->is_closing && search->fd < 0) {
        const char *why = NULL;
        int fd;

        (void)pthread_mutex_unlock(&search->mutex);
        fd = look_up(search, &why);
        (void)pthread_mutex_lock(&search->mutex);
        search->fd = fd;
        if (fd >= 0) {
            send_kept(search);
            break;
        }
        (void)snprintf(search->problem, sizeof search->problem, "'%.60s': %.80s", search->host, why);
        (void)pthread_cond_broadcast(&search->changed);
        if (!search->is_closing) {
            wait_ms(search, RETRY_MS);
        }
    }
    let_go(search);
    return NULL;
}

static bool start(struct statsd_search *search)
{
    pthread_t thread;
    sigset_t all;
    sigset_t before;
    bool done;

    (void)sigfillset(&all); /* signals belong to the threads that were there before */
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    done = pthread_create(&thread, NULL, run, search) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (done) {
        (void)pthread_detach(thread);
    }
    return done;
}

struct statsd_search *statsd_search_new(const char *host, const char *port)
{
    struct statsd_search *search = calloc(1, sizeof *search);
    pthread_condattr_t attributes;

    if (search == NULL) {
        return NULL;
    }
    (void)pthread_mutex_init(&search->mutex, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&search->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    search->fd = -1;
    search->end = &search->first;
    search->host = strdup(host);
    search->port = strdup(port);
    search->refs = 2;
    if (search->host == NULL || search->port == NULL || !start(search)) {
        search->refs = 1;
        statsd_search_free(search);
        return NULL;
    }
    return search;
}

void statsd_search_send(struct statsd_search *search, const char *data, size_t len)
{
    struct packet *packet;

    (void)pthread_mutex_lock(&search->mutex);
    if (search->fd >= 0) {
        (void)send(search->fd, data, len, MSG_NOSIGNAL);
    } else if (search->n < PACKETS_MAX && (packet = malloc(sizeof *packet + len)) != NULL) {
        packet->next = NULL;
        packet->len = len;
        memcpy(packet->data, data, len);
        *search->end = packet;
        search->end = &packet->next;
        search->n++;
    }
    (void)pthread_mutex_unlock(&search->mutex);
}

bool statsd_search_problem(struct statsd_search *search, char *out, size_t size)
{
    bool is_new;

    (void)pthread_mutex_lock(&search->mutex);
    is_new = search->problem[0] != '\0' && !search->is_said;
    if (is_new) {
        search->is_said = true;
        (void)snprintf(out, size, "%s", search->problem);
    }
    (void)pthread_mutex_unlock(&search->mutex);
    return is_new;
}

void statsd_search_wait(struct statsd_search *search)
{
    (void)pthread_mutex_lock(&search->mutex);
    if (search->n > 0 && search->fd < 0 && search->problem[0] == '\0') {
        wait_ms(search, WAIT_MS);
        if (search->fd < 0 && search->problem[0] == '\0') {
            (void)snprintf(search->problem, sizeof search->problem, "'%.60s': no answer from the resolver",
                           search->host);
        }
    }
    (void)pthread_mutex_unlock(&search->mutex);
}

void statsd_search_free(struct statsd_search *search)
{
    if (search != NULL) {
        (void)pthread_mutex_lock(&search->mutex);
        search->is_closing = true;
        let_go(search);
    }
}
