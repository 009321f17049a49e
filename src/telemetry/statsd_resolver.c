#include "telemetry/statsd_resolver.h"

#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/pool.h"
#include "telemetry/sinks.h"

enum { PACKETS_MAX = 256, RETRY_MS = 10000, WAIT_MS = 1000 };

struct packet {
    struct packet *next;
    size_t len;
    char data[];
};

/* Shared by the owner and the thread; the last reference frees it. */
struct statsd_resolver {
    char *host;
    char *port;
    pthread_mutex_t mutex; /* guards the rest */
    pthread_cond_t changed;
    int refs;
    bool is_closing;
    int fd; /* -1: not resolved yet */
    struct packet *first;
    struct packet **end;
    size_t n;
    char problem[160]; /* "": none */
    bool is_reported;
};

/* Call it with the mutex held; it is unlocked, or freed with the last reference. */
static void unref(struct statsd_resolver *resolver)
{
    bool is_last = --resolver->refs == 0;

    assert(resolver->refs >= 0);
    (void)pthread_cond_broadcast(&resolver->changed);
    (void)pthread_mutex_unlock(&resolver->mutex);
    if (!is_last) {
        return;
    }
    while (resolver->first != NULL) {
        struct packet *packet = resolver->first;

        resolver->first = packet->next;
        free(packet);
    }
    if (resolver->fd >= 0) {
        (void)close(resolver->fd);
    }
    (void)pthread_cond_destroy(&resolver->changed);
    (void)pthread_mutex_destroy(&resolver->mutex);
    free(resolver->host);
    free(resolver->port);
    free(resolver);
}

int connect_datagram(int family, const void *address, size_t len)
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

/* Call it without the mutex: DNS may be slow. */
static int resolve(const struct statsd_resolver *resolver, const char **out_why)
{
    struct addrinfo hints = { .ai_socktype = SOCK_DGRAM };
    struct addrinfo *found = NULL;
    int problem = getaddrinfo(resolver->host, resolver->port, &hints, &found);
    int fd = -1;

    if (problem != 0) {
        *out_why = gai_strerror(problem);
        return -1;
    }
    for (const struct addrinfo *at = found; at != NULL && fd < 0; at = at->ai_next) {
        fd = connect_datagram(at->ai_family, at->ai_addr, at->ai_addrlen);
    }
    *out_why = fd < 0 ? strerror(errno) : NULL;
    freeaddrinfo(found);
    return fd;
}

/* Call it with the mutex held. Delivery is not guaranteed. */
static void send_queued(struct statsd_resolver *resolver)
{
    while (resolver->first != NULL) {
        struct packet *packet = resolver->first;

        (void)send(resolver->fd, packet->data, packet->len, MSG_NOSIGNAL);
        resolver->first = packet->next;
        free(packet);
    }
    resolver->end = &resolver->first;
    resolver->n = 0;
}

static void *resolve_thread(void *context)
{
    struct statsd_resolver *resolver = context;

    (void)pthread_mutex_lock(&resolver->mutex);
    while (!resolver->is_closing && resolver->fd < 0) {
        const char *why = NULL;
        int fd;

        (void)pthread_mutex_unlock(&resolver->mutex);
        fd = resolve(resolver, &why);
        (void)pthread_mutex_lock(&resolver->mutex);
        resolver->fd = fd;
        if (fd >= 0) {
            send_queued(resolver);
            break;
        }
        (void)snprintf(resolver->problem, sizeof resolver->problem, "'%.60s': %.80s", resolver->host, why);
        (void)pthread_cond_broadcast(&resolver->changed);
        if (!resolver->is_closing) {
            cond_wait_for(&resolver->changed, &resolver->mutex, RETRY_MS);
        }
    }
    unref(resolver);
    return NULL;
}

struct statsd_resolver *statsd_resolver_new(const char *host, const char *port)
{
    struct statsd_resolver *resolver = calloc(1, sizeof *resolver);

    if (resolver == NULL) {
        return NULL;
    }
    (void)pthread_mutex_init(&resolver->mutex, NULL);
    cond_init(&resolver->changed);
    resolver->fd = -1;
    resolver->end = &resolver->first;
    resolver->host = strdup(host);
    resolver->port = strdup(port);
    resolver->refs = 2;
    if (resolver->host == NULL || resolver->port == NULL ||
        !thread_start_detached(resolve_thread, resolver)) {
        resolver->refs = 1;
        statsd_resolver_free(resolver);
        return NULL;
    }
    return resolver;
}

void statsd_resolver_send(struct statsd_resolver *resolver, const char *data, size_t len)
{
    struct packet *packet;

    (void)pthread_mutex_lock(&resolver->mutex);
    if (resolver->fd >= 0) {
        (void)send(resolver->fd, data, len, MSG_NOSIGNAL);
    } else if (resolver->n < PACKETS_MAX && (packet = malloc(sizeof *packet + len)) != NULL) {
        packet->next = NULL;
        packet->len = len;
        memcpy(packet->data, data, len);
        *resolver->end = packet;
        resolver->end = &packet->next;
        resolver->n++;
    }
    (void)pthread_mutex_unlock(&resolver->mutex);
}

bool statsd_resolver_problem(struct statsd_resolver *resolver, char *out, size_t size)
{
    bool is_new;

    (void)pthread_mutex_lock(&resolver->mutex);
    is_new = resolver->problem[0] != '\0' && !resolver->is_reported;
    if (is_new) {
        resolver->is_reported = true;
        (void)snprintf(out, size, "%s", resolver->problem);
    }
    (void)pthread_mutex_unlock(&resolver->mutex);
    return is_new;
}

void statsd_resolver_wait(struct statsd_resolver *resolver)
{
    (void)pthread_mutex_lock(&resolver->mutex);
    if (resolver->n > 0 && resolver->fd < 0 && resolver->problem[0] == '\0') {
        cond_wait_for(&resolver->changed, &resolver->mutex, WAIT_MS);
        if (resolver->fd < 0 && resolver->problem[0] == '\0') {
            (void)snprintf(resolver->problem, sizeof resolver->problem,
                           "'%.60s': no answer from the resolver", resolver->host);
        }
    }
    (void)pthread_mutex_unlock(&resolver->mutex);
}

void statsd_resolver_free(struct statsd_resolver *resolver)
{
    if (resolver != NULL) {
        (void)pthread_mutex_lock(&resolver->mutex);
        resolver->is_closing = true;
        unref(resolver);
    }
}
