#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/address.h"
#include "base/buf.h"
#include "base/error.h"
#include "telemetry/sinks.h"
#include "telemetry/statsd_resolver.h"

enum { PACKET_MAX = 1400 };

/* "HOST:PORT", with "[::1]:8125" for an address that has colons itself. */
static bool split_host_port(const char *address, char host[256], char port[16])
{
    const char *colon = strrchr(address, ':');
    size_t len;

    if (colon == NULL || colon == address || colon[1] == '\0' || strlen(colon + 1) >= 16) {
        return false;
    }
    len = (size_t)(colon - address);
    if (address[0] == '[' && address[len - 1] == ']') {
        address++;
        len -= 2;
    }
    if (len == 0 || len >= 256) {
        return false;
    }
    memcpy(host, address, len);
    host[len] = '\0';
    memcpy(port, colon + 1, strlen(colon + 1) + 1);
    return true;
}

/* Connect to a numeric address; a name is left to the resolver. */
static int connect_number(const char *host, const char *port, bool *out_is_number)
{
    struct addrinfo hints = { .ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
    struct addrinfo *found = NULL;
    int fd;

    *out_is_number = getaddrinfo(host, port, &hints, &found) == 0;
    if (!*out_is_number) {
        return -1;
    }
    fd = connect_datagram(found->ai_family, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return fd;
}

enum belay_code statsd_open(struct statsd *statsd, const char *setting, const char *address,
                            struct belay_error *err)
{
    char host[256];
    char port[16];
    unsigned number;
    bool is_number;

    *statsd = (struct statsd){ .fd = -1 };
    if (!split_host_port(address, host, port) || !address_parse_port(port, &number) || number == 0) {
        return error_set(err, BELAY_CONFIG, "%s: '%s' is not HOST:PORT, such as 127.0.0.1:8125", setting,
                         address);
    }
    statsd->fd = connect_number(host, port, &is_number);
    if (is_number && statsd->fd < 0) {
        return error_set(err, BELAY_CONFIG, "%s: '%s': %s", setting, address, strerror(errno));
    }
    if (!is_number) {
        statsd->resolver = statsd_resolver_new(host, port);
        return statsd->resolver == NULL ? error_no_memory(err) : BELAY_OK;
    }
    return BELAY_OK;
}

bool statsd_is_open(const struct statsd *statsd)
{
    return statsd->fd >= 0 || statsd->resolver != NULL;
}

static void send_packet(const struct statsd *statsd, const struct buf *packet)
{
    if (statsd->resolver != NULL) {
        statsd_resolver_send(statsd->resolver, packet->data, packet->len);
    } else {
        (void)send(statsd->fd, packet->data, packet->len, MSG_NOSIGNAL); /* no receiver is required */
    }
}

/* Replace characters that would end a tag, a name or a line. */
static void add_tag(struct buf *packet, const char *name, const char *value)
{
    size_t at;

    if (*value == '\0') {
        return;
    }
    buf_addf(packet, "%s%s:", packet->data[packet->len - 1] == '#' ? "" : ",", name);
    at = packet->len;
    buf_adds(packet, value);
    for (; !packet->failed && at < packet->len; at++) {
        unsigned char c = (unsigned char)packet->data[at];

        if (c <= ' ' || c == '|' || c == ',' || c == '#' || c == 0x7f) {
            packet->data[at] = '_';
        }
    }
}

static void add_tags(struct buf *packet, const struct belay_config *config, const struct belay_event *event)
{
    struct belay_parsed_key form;

    if (event_is_of_database(event)) {
        add_tag(packet, "db_identifier", event_database(event));
        return;
    }
    belay_key_parse(config, event->key, &form);
    add_tag(packet, "level", form.level);
    add_tag(packet, "profile", form.profile);
    add_tag(packet, "stack", form.stack);
    add_tag(packet, "environment", form.environment);
}

/* False if the metrics do not fit into one packet. */
static bool send_metrics(const struct statsd *statsd, const struct belay_config *config,
                         const struct belay_event *event, const struct metric *metrics, size_t n)
{
    struct buf packet = BUF_INIT(PACKET_MAX);
    bool fits;

    for (size_t i = 0; i < n; i++) {
        bool is_seconds = strcmp(metrics[i].unit, "Seconds") == 0;

        buf_addf(&packet, "%sbelay.%s:%.0f|%s|#", i == 0 ? "" : "\n", metrics[i].name,
                 is_seconds ? metrics[i].value * 1000 : metrics[i].value,
                 metrics[i].statsd == 'c'   ? "c"
                 : metrics[i].statsd == 'g' ? "g"
                                            : "ms");
        if (!packet.failed) {
            add_tags(&packet, config, event);
        }
    }
    fits = !packet.failed;
    if (fits) {
        send_packet(statsd, &packet);
    }
    buf_release(&packet);
    return fits;
}

void statsd_send(struct statsd *statsd, const struct belay_config *config, const struct belay_event *event)
{
    struct metric metrics[METRICS_MAX];
    size_t n = metric_map_event(event, metrics);

    if (n == 0 || send_metrics(statsd, config, event, metrics, n)) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        (void)send_metrics(statsd, config, event, &metrics[i], 1);
    }
}

bool statsd_problem(const struct statsd *statsd, char *out, size_t size)
{
    return statsd->resolver != NULL && statsd_resolver_problem(statsd->resolver, out, size);
}

void statsd_finish(const struct statsd *statsd)
{
    if (statsd->resolver != NULL) {
        statsd_resolver_wait(statsd->resolver);
    }
}

void statsd_close(struct statsd *statsd)
{
    if (statsd->fd >= 0) {
        (void)close(statsd->fd);
    }
    statsd_resolver_free(statsd->resolver);
    *statsd = (struct statsd){ .fd = -1 };
}
