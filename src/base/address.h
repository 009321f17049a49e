/* Addresses: IP and ranges of it, which of them are public, and unix sockets. */
#ifndef BASE_ADDRESS_H
#define BASE_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { ADDRESS_BYTES = 16 };

/* IPv6, or IPv4 as ::ffff:a.b.c.d: then one comparison serves both, and neither can pass for the other. */
struct address {
    unsigned char bytes[ADDRESS_BYTES];
};

struct address_range {
    struct address first;
    unsigned bits; /* how many of them count */
};

/* "192.0.2.7" or "2001:db8::1", without brackets; also the short forms that inet_aton() takes, such as "127.1". */
bool address_parse(const char *text, struct address *out);
/* An address, or "10.0.0.0/8"; bits behind the prefix must be 0. */
bool address_range_parse(const char *text, struct address_range *out);
/* False for what is neither IPv4 nor IPv6. */
bool address_of_socket(const struct sockaddr *from, struct address *out);

bool address_is_within(const struct address *address, const struct address_range *ranges, size_t n);

/*
 * Whether it is somebody's on the internet: not this machine, a private or
 * link-local network (clouds answer with credentials there), multicast, or
 * anything else that is set apart.
 */
bool address_is_public(const struct address *address);

enum { ADDRESS_TEXT_SIZE = 46 };
void address_text(const struct address *address, char out[ADDRESS_TEXT_SIZE]);

/*
 * An address has room for 107 bytes of path. What is longer is named through
 * its folder's descriptor, /proc/self/fd/N/NAME: *out_folder is then to be
 * closed after bind() or connect(); else it is -1. False with errno set.
 */
bool unix_address(const char *path, struct sockaddr_un *out, int *out_folder);

#endif
