/*
 * The HTTP client over libcurl.
 * Each easy handle has its own connections and is used by one thread at a time. Idle handles
 * are on a stack, so that the one whose connection was used last is used next. (libcurl does
 * not support a connection cache shared by threads.)
 * http_exchange.c knows whether a failed request was sent.
 */
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <curl/curl.h>

#include "base/error.h"
#include "http_client/curl_common.h"
#include "http_client/http_exchange.h"

enum { MAX_IDLE = 16 };

/* An easy handle, and the multi handle that owns its connections and can wait for other descriptors, too. */
struct handle {
    CURL *curl;   /* owned */
    CURLM *multi; /* owned */
};

struct http_curl {
    struct http base;
    pthread_mutex_t mutex;
    struct handle idle[MAX_IDLE]; /* owned; a stack, guarded by mutex */
    size_t n_idle;
    struct http_client_options options; /* complete */
    char *ca_bundle;                    /* owned; or NULL */
};

static long pick_ms(int64_t wanted, int64_t otherwise)
{
    int64_t ms = wanted > 0 ? wanted : otherwise;

    return ms > 86400000 ? 86400000L : (long)ms;
}

static curl_socket_t open_checked_socket(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct curl_exchange *exchange = context;
    const struct http_client_request *request = exchange->request;

    (void)purpose;
    if (request->may_connect != NULL) {
        exchange->forbidden = !request->may_connect(request->context, &address->addr);
        if (exchange->forbidden) {
            return CURL_SOCKET_BAD;
        }
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static CURLcode set_up_request(struct http_curl *client, CURL *curl, struct curl_exchange *exchange,
                               struct curl_slist *headers, char *message)
{
    const struct http_client_request *request = exchange->request;

    curl_set_common(curl, message, open_checked_socket, exchange);
    curl_set_ca_file(curl, client->ca_bundle);
    (void)curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L); /* the path is signed as it is */
    (void)curl_easy_setopt(curl, CURLOPT_TCP_NODELAY, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_MAXAGE_CONN, 50L);
    (void)curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS,
                           pick_ms(request->connect_timeout_ms, client->options.connect_timeout_ms));
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS,
                           pick_ms(request->timeout_ms, client->options.timeout_ms));
    (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    if (request->direct) {
        (void)curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    }
    if (request->endless) {
        (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, 0L);
        (void)curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
        (void)curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, 60L);
    }
    exchange_attach(exchange, curl);
    return curl_easy_setopt(curl, CURLOPT_URL, request->url);
}

static CURLcode curl_result(CURLM *multi, CURL *curl)
{
    CURLcode result = CURLE_OUT_OF_MEMORY;
    const CURLMsg *message;
    int left;

    while ((message = curl_multi_info_read(multi, &left)) != NULL) {
        if (message->msg == CURLMSG_DONE && message->easy_handle == curl) {
            result = message->data.result;
        }
    }
    return result;
}

/* As curl_easy_perform(), but wake_fd interrupts the wait: then the request is asked whether it should stop. */
static CURLcode drive(const struct handle *handle, int wake_fd)
{
    struct curl_waitfd wake = { .fd = wake_fd, .events = CURL_WAIT_POLLIN };
    CURLMcode mc = curl_multi_add_handle(handle->multi, handle->curl);
    CURLcode result;
    int running = mc == CURLM_OK ? 1 : 0;

    while (running > 0 && mc == CURLM_OK) {
        mc = curl_multi_perform(handle->multi, &running);
        if (mc == CURLM_OK && running > 0) {
            mc = curl_multi_poll(handle->multi, &wake, wake_fd > 0 ? 1 : 0, 1000, NULL);
        }
    }
    result = mc == CURLM_OK ? curl_result(handle->multi, handle->curl) : CURLE_OUT_OF_MEMORY;
    (void)curl_multi_remove_handle(handle->multi, handle->curl);
    return result;
}

/* The part of a URL that may be displayed: no path, no query, no password. */
static void url_for_people(const char *url, char *out, size_t size)
{
    const char *host = strstr(url, "://");
    const char *at;
    size_t len;

    host = host == NULL ? url : host + 3;
    len = strcspn(host, "/?#");
    at = memchr(host, '@', len);
    if (at != NULL) {
        len -= (size_t)(at + 1 - host);
        host = at + 1;
    }
    if (len >= size) {
        len = size - 1;
    }
    memcpy(out, host, len);
    out[len] = '\0';
}

static bool is_misuse(CURLcode rc)
{
    return rc == CURLE_URL_MALFORMAT || rc == CURLE_UNSUPPORTED_PROTOCOL || rc == CURLE_SSL_CACERT_BADFILE ||
           rc == CURLE_BAD_FUNCTION_ARGUMENT || rc == CURLE_UNKNOWN_OPTION;
}

static enum belay_code explain_curl_error(CURL *curl, CURLcode rc, const struct curl_exchange *exchange,
                                          const char *message, struct belay_error *err)
{
    curl_off_t sent_bytes = 0;
    long request_size = 0;
    char host[256];
    bool sent;
    const char *why = message[0] != '\0' ? message : curl_easy_strerror(rc);

    (void)curl_easy_getinfo(curl, CURLINFO_REQUEST_SIZE, &request_size);
    (void)curl_easy_getinfo(curl, CURLINFO_SIZE_UPLOAD_T, &sent_bytes);
    url_for_people(exchange->request->url, host, sizeof host);
    if (exchange->stopped) {
        return error_set(err, BELAY_CANCELLED, "the request to %s was cancelled", host);
    }
    if (exchange->forbidden && exchange->begun == 0) {
        return error_set(err, BELAY_NOT_PERMITTED, "%s must not be called", host);
    }
    sent = exchange->begun > 0 && (request_size > 0 || sent_bytes > 0);
    if (exchange->no_memory || rc == CURLE_OUT_OF_MEMORY) {
        why = "out of memory";
    } else if (exchange->too_large) {
        why = "the answer is too large";
    } else if (exchange->not_resent) {
        why = "the connection was closed before an answer came";
    }
    if (sent) {
        return error_set(err, BELAY_UNKNOWN, "no answer from %s to a request that was sent: %s", host, why);
    }
    if (exchange->no_memory || rc == CURLE_OUT_OF_MEMORY) {
        return error_no_memory(err);
    }
    return error_set(err, is_misuse(rc) ? BELAY_CONFIG : BELAY_UNREACHABLE, "cannot reach %s: %s%s", host,
                     why,
                     rc == CURLE_SSL_CONNECT_ERROR && strstr(why, "wrong version number") != NULL
                         ? "; it answers without TLS: write http:// if that is right"
                         : "");
}

static void close_handle(struct handle handle)
{
    curl_easy_cleanup(handle.curl);
    if (handle.multi != NULL) {
        (void)curl_multi_cleanup(handle.multi);
    }
}

/* Both NULL without memory. */
static struct handle take_handle(struct http_curl *client)
{
    struct handle handle = { NULL, NULL };

    (void)pthread_mutex_lock(&client->mutex);
    if (client->n_idle > 0) {
        handle = client->idle[--client->n_idle];
    }
    (void)pthread_mutex_unlock(&client->mutex);
    if (handle.curl == NULL) {
        handle = (struct handle){ curl_easy_init(), curl_multi_init() };
        if (handle.curl == NULL || handle.multi == NULL) {
            close_handle(handle);
            handle = (struct handle){ NULL, NULL };
        }
    }
    return handle;
}

static void give_back_handle(struct http_curl *client, struct handle handle)
{
    (void)pthread_mutex_lock(&client->mutex);
    assert(client->n_idle <= MAX_IDLE && handle.curl != NULL);
    if (client->n_idle < MAX_IDLE) {
        client->idle[client->n_idle++] = handle;
        handle = (struct handle){ NULL, NULL };
    }
    (void)pthread_mutex_unlock(&client->mutex);
    close_handle(handle);
}

int64_t http_parse_date(const char *text)
{
    static const int64_t max_seconds = INT64_C(253402300799); /* 9999-12-31 */
    int64_t seconds = text == NULL ? -1 : (int64_t)curl_getdate(text, NULL);

    return seconds <= 0 || seconds > max_seconds ? 0 : seconds * 1000;
}

static enum belay_code take_response(CURL *curl, struct curl_exchange *exchange,
                                     struct http_response *out_response, struct belay_error *err)
{
    long status = 0;

    (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    exchange->response.body_len = exchange->body.len;
    exchange->response.body = buf_take(&exchange->body);
    if (exchange->response.body == NULL) {
        /* The request was answered; an answer that cannot be kept does not revert it. */
        return error_set(err, BELAY_UNKNOWN, "out of memory for an answer");
    }
    exchange->response.status = (int)status;
    exchange->response.date_unix_ms = http_parse_date(http_response_header(&exchange->response, "date"));
    *out_response = exchange->response;
    memset(&exchange->response, 0, sizeof exchange->response);
    return BELAY_OK;
}

static enum belay_code http_curl_send(struct http *http, const struct http_client_request *request,
                                      struct http_response *out_response, struct belay_error *err)
{
    struct http_curl *client = (struct http_curl *)http;
    struct curl_exchange exchange = {
        .request = request,
        .body = BUF_INIT(request->max_answer > 0 ? request->max_answer : client->options.max_answer)
    };
    char message[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers = NULL;
    enum belay_code code;
    bool failed;
    CURLcode rc;
    struct handle handle = take_handle(client);
    CURL *curl = handle.curl;

    headers = exchange_headers(request, &failed);
    if (curl == NULL || failed) {
        code = error_no_memory(err);
        goto done;
    }
    rc = set_up_request(client, curl, &exchange, headers, message);
    if (rc == CURLE_OK) {
        struct sigpipe_guard guard;

        sigpipe_block(&guard);
        rc = drive(&handle, request->wake_fd);
        sigpipe_restore(&guard);
    }
    code = rc == CURLE_OK ? take_response(curl, &exchange, out_response, err)
                          : explain_curl_error(curl, rc, &exchange, message, err);
    (void)curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, NULL);
    (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, NULL);

done:
    curl_slist_free_all(headers);
    http_response_release(&exchange.response);
    buf_release(&exchange.body);
    if (curl != NULL) {
        give_back_handle(client, handle);
    }
    return code;
}

static void http_curl_close(struct http *http)
{
    struct http_curl *client = (struct http_curl *)http;

    for (size_t i = 0; i < client->n_idle; i++) {
        close_handle(client->idle[i]);
    }
    (void)pthread_mutex_destroy(&client->mutex);
    free(client->ca_bundle);
    free(client);
}

static const struct http_ops http_curl_ops = { http_curl_send, http_curl_close };

enum belay_code http_open(const struct http_client_options *options, struct http **out_http,
                          struct belay_error *err)
{
    struct http_client_options complete = http_options_complete(options);
    struct http_curl *client = calloc(1, sizeof *client);

    if (client == NULL) {
        return error_no_memory(err);
    }
    curl_start();
    client->base.ops = &http_curl_ops;
    (void)pthread_mutex_init(&client->mutex, NULL);
    client->ca_bundle = complete.ca_bundle == NULL ? NULL : strdup(complete.ca_bundle);
    client->options = complete;
    client->options.ca_bundle = client->ca_bundle;
    if (complete.ca_bundle != NULL && client->ca_bundle == NULL) {
        http_curl_close(&client->base);
        return error_no_memory(err);
    }
    *out_http = &client->base;
    return BELAY_OK;
}

enum belay_code http_send_once(const struct http_client_options *options,
                               const struct http_client_request *request, int *out_status,
                               struct belay_error *err)
{
    struct http_response response = { 0 };
    struct http *http = NULL;
    enum belay_code code = http_open(options, &http, err);

    if (code == BELAY_OK) {
        code = http_send(http, request, &response, err);
    }
    if (code == BELAY_OK) {
        *out_status = response.status;
    }
    http_response_release(&response);
    http_close(http);
    return code;
}
