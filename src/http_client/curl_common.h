/* Settings that every request over libcurl needs. */
#ifndef HTTP_CLIENT_CURL_COMMON_H
#define HTTP_CLIENT_CURL_COMMON_H

#include <signal.h>
#include <stdbool.h>

#include <curl/curl.h>

/* Before any other call of libcurl; only the first has an effect. */
void curl_start(void);

/*
 * Resets the handle, which keeps its connections, and sets the options that all requests have in common. `message`
 * takes libcurl's error text. `open_socket` must open sockets with SOCK_CLOEXEC: libcurl's own would be inherited by
 * programs that are started meanwhile.
 */
void curl_set_common(CURL *curl, char *message, curl_opensocket_callback open_socket, void *context);

/*
 * Sets the file of trusted certificates; NULL: the system's. libcurl has the name of Debian's built in, and the
 * tarball (docs/install.md) runs on other systems, too.
 */
void curl_set_ca_file(CURL *curl, const char *ca_file);

/* OpenSSL writes with write(): between these two a closed connection does not end the program (SIGPIPE). */
struct sigpipe_guard {
    sigset_t before;
    bool was_pending;
};
void sigpipe_block(struct sigpipe_guard *guard);
void sigpipe_restore(const struct sigpipe_guard *guard);

#endif
