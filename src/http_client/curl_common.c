#include "http_client/curl_common.h"

#include <pthread.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

#include "version.h"

static void start_once(void)
{
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
}

void curl_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, start_once);
}

void curl_set_common(CURL *curl, char *message, curl_opensocket_callback open_socket, void *context)
{
    curl_easy_reset(curl);
    (void)curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    (void)curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, context);
    (void)curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, message);
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    (void)curl_easy_setopt(curl, CURLOPT_USERAGENT, "belay/" BELAY_VERSION);
}

/* The system's file if it is not where Debian has it; NULL: Debian's, which needs no setting. */
static const char *ca_file_of_system(void)
{
    static const char *const others[] = {
        "/etc/pki/tls/certs/ca-bundle.crt", /* Red Hat, Fedora, Amazon Linux */
        "/etc/ssl/ca-bundle.pem",           /* SUSE */
    };

    if (access("/etc/ssl/certs/ca-certificates.crt", R_OK) == 0) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (access(others[i], R_OK) == 0) {
            return others[i];
        }
    }
    return NULL;
}

void curl_set_ca_file(CURL *curl, const char *ca_file)
{
    const char *file = ca_file != NULL ? ca_file : ca_file_of_system();

    if (file != NULL) {
        (void)curl_easy_setopt(curl, CURLOPT_CAINFO, file);
    }
}

static bool is_pending(void)
{
    sigset_t pending;

    return sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
}

void sigpipe_block(struct sigpipe_guard *guard)
{
    sigset_t pipe_only;

    (void)sigemptyset(&pipe_only);
    (void)sigaddset(&pipe_only, SIGPIPE);
    guard->was_pending = is_pending();
    (void)pthread_sigmask(SIG_BLOCK, &pipe_only, &guard->before);
}

void sigpipe_restore(const struct sigpipe_guard *guard)
{
    const struct timespec none = { 0, 0 };
    sigset_t pipe_only;

    (void)sigemptyset(&pipe_only);
    (void)sigaddset(&pipe_only, SIGPIPE);
    if (!guard->was_pending && is_pending()) {
        (void)sigtimedwait(&pipe_only, NULL, &none);
    }
    (void)pthread_sigmask(SIG_SETMASK, &guard->before, NULL);
}
