/* Addresses: IP and ranges of it, which of them are public, and unix sockets. */
#ifndef BASE_ADDRESS_H
#define BASE_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { ADDRESS_BYTES = 16 };

/* IPv6, or IPv4 as ::ffff:a.b.c.d: one comparison serves both, and neither can be taken for the other. */
struct address {
    unsigned char bytes[ADDRESS_BYTES];
};

struct address_range {
    struct address first;
    unsigned bits; /* length of the prefix */
};

/* "192.0.2.7" or "2001:db8::1", without brackets; also short forms as for inet_aton(), such as "127.1". */
bool address_parse(const char *text, struct address *out);
/* An address, or "10.0.0.0/8"; the bits after the prefix must be 0. */
bool address_range_parse(const char *text, struct address_range *out);
/* False if it is neither IPv4 nor IPv6. */
bool address_of_socket(const struct sockaddr *from, struct address *out);

bool address_is_within(const struct address *address, const struct address_range *ranges, size_t n);

/*
 * Whether it is a public internet address: not this machine, a private or link-local network
 * (clouds serve credentials there), multicast, or reserved.
 */
bool address_is_public(const struct address *address);

/* Whether a host in a URL is this machine: "localhost", or a loopback address. A name such as 127.0.0.1.example is not. */
bool address_is_this_machine(const char *host);

enum { ADDRESS_TEXT_SIZE = 46 };
void address_text(const struct address *address, char out[ADDRESS_TEXT_SIZE]);

/* A TCP or UDP port in digits, 0 to 65535: getaddrinfo() would accept larger numbers and drop their upper bits. */
bool address_parse_port(const char *text, unsigned *out_port);

/*
 * sun_path has room for 107 bytes. A longer path is addressed through the descriptor of its
 * folder, /proc/self/fd/N/NAME: then close *out_folder after bind() or connect(); else it is
 * -1. False with errno set.
 */
bool unix_address(const char *path, struct sockaddr_un *out, int *out_folder);

#endif
