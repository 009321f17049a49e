#include "http_client/probe.h"

#include <curl/curl.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "http_client/curl_common.h"
#include "http_client/http.h"

enum { AT_ONCE = 200, MAX_REDIRECTS = 5, POLL_MS = 100 };

/* A probe while it is sent. */
struct probe_transfer {
    struct net_probe *probe; /* borrowed */
    CURL *curl;              /* owned */
    struct buf body;
    int64_t began_ms;
    bool is_get;
    struct address refused;     /* if probe->is_refused */
    bool is_again;              /* the first request was answered */
    bool no_socket;             /* this process could not open one */
    bool *no_names;             /* borrowed; the resolver is known to fail: shared by all probes of a call */
    struct curl_slist *headers; /* owned */
    char message[CURL_ERROR_SIZE];
};

static size_t on_probe_body(char *data, size_t size, size_t n, void *context)
{
    struct probe_transfer *transfer = context;

    if (!transfer->probe->get) {
        return size * n; /* only the status matters */
    }
    buf_add(&transfer->body, data, size * n);
    return transfer->body.failed ? 0 : size * n;
}

/* The address that the connection would go to, whatever the name or the redirect was. */
static bool may_probe(struct probe_transfer *transfer, const struct sockaddr *to)
{
    struct net_probe *probe = transfer->probe;
    struct address address;

    if (!probe->public_only) {
        return true;
    }
    if (!address_of_socket(to, &address)) {
        return false;
    }
    if (address_is_public(&address) || address_is_within(&address, probe->allow, probe->n_allow)) {
        return true;
    }
    transfer->refused = address;
    probe->is_refused = true;
    return false;
}

static curl_socket_t open_probe_socket(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct probe_transfer *transfer = context;
    curl_socket_t fd;

    (void)purpose;
    if (!may_probe(transfer, &address->addr)) {
        return CURL_SOCKET_BAD;
    }
    fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    transfer->no_socket = transfer->no_socket || (fd < 0 && errno != EAFNOSUPPORT);
    return fd;
}

static void set_up_probe(struct probe_transfer *transfer, int64_t left_ms, const char *ca_file)
{
    CURL *curl = transfer->curl;

    curl_set_common(curl, transfer->message, open_probe_socket, transfer);
    curl_set_ca_file(curl, ca_file);
    /* A redirect must not use a connection that another probe was permitted to open. */
    (void)curl_easy_setopt(curl, CURLOPT_FORBID_REUSE, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_PRIVATE, transfer);
    (void)curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)MAX_REDIRECTS);
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)(left_ms < 1 ? 1 : left_ms));
    (void)curl_easy_setopt(curl, CURLOPT_NOBODY, transfer->is_get ? 0L : 1L);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_probe_body);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, transfer);
    /* A connection that was established before proves nothing. */
    (void)curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_URL, transfer->probe->url);
    if (transfer->is_get) {
        (void)curl_easy_setopt(curl, CURLOPT_HTTPGET, 1L);
    }
    if (transfer->probe->authorization != NULL) {
        /* The token is for this address only, not for another one that the answer names. */
        (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, transfer->headers);
        (void)curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    }
    if (!transfer->probe->use_proxy) {
        (void)curl_easy_setopt(curl, CURLOPT_PROXY, "");
    }
}

/* Not every server implements HEAD. The remaining time must suffice for the second attempt. */
static bool repeat_with_get(CURLM *multi, struct probe_transfer *transfer, long status, int64_t end_ms,
                            const char *ca_file)
{
    int64_t left_ms = end_ms - clock_boot_ms();

    if (transfer->is_get || (status != 405 && status != 501)) {
        return false;
    }
    transfer->is_get = true;
    transfer->is_again = true;
    transfer->message[0] = '\0';
    set_up_probe(transfer, left_ms, ca_file);
    return curl_multi_add_handle(multi, transfer->curl) == CURLM_OK;
}

/*
 * The resolver says that there is no such name. libcurl does not distinguish that from a
 * resolver that fails, and then the application may be up. A failing resolver is slow, so it
 * is asked only once.
 */
static bool has_no_address(const struct probe_transfer *transfer)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    struct addrinfo *found = NULL;
    CURLU *url = curl_url();
    char *host = NULL;
    int rc = EAI_AGAIN;

    if (!*transfer->no_names && url != NULL &&
        curl_url_set(url, CURLUPART_URL, transfer->probe->url, 0) == CURLUE_OK &&
        curl_url_get(url, CURLUPART_HOST, &host, 0) == CURLUE_OK) {
        rc = getaddrinfo(host, NULL, &hints, &found);
    }
    if (rc == 0) {
        freeaddrinfo(found);
    }
    *transfer->no_names = *transfer->no_names || (rc != 0 && rc != EAI_NONAME && rc != EAI_NODATA);
    curl_free(host);
    curl_url_cleanup(url);
    return rc == EAI_NONAME || rc == EAI_NODATA;
}

/*
 * No connection was established, and not for a local reason: an application that is stopped
 * looks like this, one that is slow or broken does not.
 */
static bool is_unreached(const struct probe_transfer *transfer, CURLcode rc)
{
    curl_off_t connect_us = 0, names_us = 0;
    long redirects = 0, os_errno = 0;
    bool is_failure;

    (void)curl_easy_getinfo(transfer->curl, CURLINFO_CONNECT_TIME_T, &connect_us);
    (void)curl_easy_getinfo(transfer->curl, CURLINFO_NAMELOOKUP_TIME_T, &names_us);
    (void)curl_easy_getinfo(transfer->curl, CURLINFO_REDIRECT_COUNT, &redirects);
    (void)curl_easy_getinfo(transfer->curl, CURLINFO_OS_ERRNO, &os_errno);
    is_failure = rc == CURLE_COULDNT_CONNECT || (rc == CURLE_OPERATION_TIMEDOUT && names_us > 0) ||
                 rc == CURLE_COULDNT_RESOLVE_HOST;
    return is_failure && connect_us == 0 && redirects == 0 && !transfer->is_again && !transfer->no_socket &&
           !transfer->probe->is_refused && os_errno != ENETUNREACH &&
           (rc != CURLE_COULDNT_RESOLVE_HOST || has_no_address(transfer));
}

static void note_result(struct probe_transfer *transfer, CURLcode rc, long status)
{
    struct net_probe *probe = transfer->probe;

    probe->connected = status > 0 || !is_unreached(transfer, rc);
    probe->took_ms = clock_boot_ms() - transfer->began_ms;
    /*
     * An answer with a truncated body is an answer: its status arrived. But a redirect that
     * could not be followed says nothing about the application.
     */
    if (rc == CURLE_OK || (rc == CURLE_WRITE_ERROR && status > 0)) {
        probe->is_refused = false; /* one of several addresses suffices */
        probe->status = (int)status;
        probe->body = buf_take(&transfer->body);
        if (status == 0) {
            (void)snprintf(probe->why, sizeof probe->why, "no HTTP status");
        }
        return;
    }
    if (probe->is_refused) {
        char text[ADDRESS_TEXT_SIZE];

        address_text(&transfer->refused, text);
        (void)snprintf(probe->why, sizeof probe->why,
                       "%s is not a public address: have an admin register it, or allow it "
                       "(controller.quick_status_allow)",
                       text);
        return;
    }
    (void)snprintf(probe->why, sizeof probe->why, "%.190s",
                   transfer->message[0] != '\0' ? transfer->message : curl_easy_strerror(rc));
}

static size_t take_answers(CURLM *multi, int64_t end_ms, const char *ca_file)
{
    size_t again = 0;
    CURLMsg *message;
    int left;

    while ((message = curl_multi_info_read(multi, &left)) != NULL) {
        CURL *curl = message->easy_handle;
        CURLcode rc = message->data.result;
        struct probe_transfer *transfer = NULL;
        long status = 0;

        (void)curl_easy_getinfo(curl, CURLINFO_PRIVATE, (char **)&transfer);
        (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
        (void)curl_multi_remove_handle(multi, curl);
        if (rc == CURLE_OK && repeat_with_get(multi, transfer, status, end_ms, ca_file)) {
            again++;
        } else {
            note_result(transfer, rc, status);
        }
    }
    return again;
}

static void run_probes(CURLM *multi, int64_t end_ms, const char *ca_file)
{
    int running = 1;
    size_t again = 0;

    while (running > 0 || again > 0) {
        if (curl_multi_perform(multi, &running) != CURLM_OK) {
            return;
        }
        again = take_answers(multi, end_ms, ca_file);
        if (running > 0 && again == 0) {
            (void)curl_multi_poll(multi, NULL, 0, POLL_MS, NULL);
        }
    }
}

static bool add_authorization(struct probe_transfer *transfer)
{
    struct buf line = BUF_INIT(16 * 1024);

    if (transfer->probe->authorization == NULL) {
        return true;
    }
    buf_addf(&line, "Authorization: %s", transfer->probe->authorization);
    transfer->headers = line.failed || line.data == NULL ? NULL : curl_slist_append(NULL, line.data);
    buf_release(&line);
    return transfer->headers != NULL;
}

static enum belay_code probe_batch(struct net_probe *probes, size_t n, int64_t timeout_ms,
                                   const char *ca_file, struct belay_error *err)
{
    struct probe_transfer *all = calloc(n, sizeof *all);
    CURLM *multi = curl_multi_init();
    int64_t now_ms = clock_boot_ms();
    bool ok = all != NULL && multi != NULL;
    bool no_names = false;

    for (size_t i = 0; ok && i < n; i++) {
        all[i] = (struct probe_transfer){ .probe = &probes[i], .began_ms = now_ms, .is_get = probes[i].get };
        all[i].body = (struct buf)BUF_INIT(PROBE_BODY_MAX);
        all[i].no_names = &no_names;
        all[i].curl = curl_easy_init();
        (void)snprintf(probes[i].why, sizeof probes[i].why, "not asked");
        probes[i].connected = true; /* until it is certain that none was established */
        ok = all[i].curl != NULL && add_authorization(&all[i]);
        if (ok) {
            set_up_probe(&all[i], timeout_ms, ca_file);
            ok = curl_multi_add_handle(multi, all[i].curl) == CURLM_OK;
        }
    }
    if (ok) {
        run_probes(multi, now_ms + timeout_ms, ca_file);
    }
    for (size_t i = 0; all != NULL && i < n; i++) {
        if (all[i].curl != NULL) {
            (void)curl_multi_remove_handle(multi, all[i].curl);
            curl_easy_cleanup(all[i].curl);
        }
        curl_slist_free_all(all[i].headers);
        buf_release(&all[i].body);
    }
    if (multi != NULL) {
        (void)curl_multi_cleanup(multi);
    }
    free(all);
    return ok ? BELAY_OK : error_no_memory(err);
}

enum belay_code net_probe_all(struct net_probe *probes, size_t n, int64_t timeout_ms, const char *ca_file,
                              struct belay_error *err)
{
    enum belay_code code = BELAY_OK;
    struct sigpipe_guard guard;

    curl_start();
    sigpipe_block(&guard);
    for (size_t at = 0; code == BELAY_OK && at < n; at += AT_ONCE) {
        code = probe_batch(probes + at, n - at < AT_ONCE ? n - at : AT_ONCE, timeout_ms, ca_file, err);
    }
    sigpipe_restore(&guard);
    return code;
}
