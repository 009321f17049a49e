/* belay-otlp.so: sends spans with libcurl. Loaded only if a receiver is configured. */
#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

#include "belay.h"
#include "telemetry/otlp_module.h"

BELAY_API int belay_otlp_post(const struct otlp_post *post);
enum { STOP_CHECK_MS = 50 };

/* The values in OTEL_EXPORTER_OTLP_HEADERS are percent-encoded. */
static struct curl_slist *append_header(CURL *curl, struct curl_slist *list, const char *pair, size_t len)
{
    const char *equals = memchr(pair, '=', len);
    struct curl_slist *longer;
    char line[2048];
    char *value;
    int value_len = 0;

    if (equals == NULL || equals == pair) {
        return list;
    }
    value = curl_easy_unescape(curl, equals + 1, (int)(len - (size_t)(equals + 1 - pair)), &value_len);
    if (value == NULL) {
        return list;
    }
    (void)snprintf(line, sizeof line, "%.*s: %s", (int)(equals - pair), pair, value);
    curl_free(value);
    longer = strpbrk(line, "\r\n") != NULL ? NULL : curl_slist_append(list, line);
    return longer == NULL ? list : longer;
}

static struct curl_slist *header_list(CURL *curl, const char *headers)
{
    struct curl_slist *list = curl_slist_append(NULL, "Content-Type: application/json");

    list = append_header(curl, list, "Expect=", 7);
    while (*headers != '\0') {
        size_t len = strcspn(headers, ",");

        list = append_header(curl, list, headers, len);
        headers += len + (headers[len] == ',');
    }
    return list;
}

static size_t ignore(char *data, size_t size, size_t n, void *context)
{
    (void)data;
    (void)context;
    return size * n;
}

/* In steps, so that `stop` ends a transfer whose receiver does not answer. */
static bool transfer_until_stopped(CURLM *multi, const struct otlp_post *post)
{
    const CURLMsg *message;
    int running = 1;
    int left;

    while (curl_multi_perform(multi, &running) == CURLM_OK && running > 0) {
        if (atomic_load(post->stop) || curl_multi_poll(multi, NULL, 0, STOP_CHECK_MS, NULL) != CURLM_OK) {
            return false;
        }
    }
    message = curl_multi_info_read(multi, &left);
    return message != NULL && message->msg == CURLMSG_DONE && message->data.result == CURLE_OK;
}

static void set_post_options(CURL *curl, const struct otlp_post *post, struct curl_slist *headers)
{
    (void)curl_easy_setopt(curl, CURLOPT_URL, post->url);
    (void)curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, post->body);
    (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)post->len);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, ignore);
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_QUICK_EXIT, 1L); /* do not wait for a resolver thread either */
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, post->timeout_ms);
    if (post->ca_file != NULL && *post->ca_file != '\0') {
        (void)curl_easy_setopt(curl, CURLOPT_CAINFO, post->ca_file);
    }
}

int belay_otlp_post(const struct otlp_post *post)
{
    CURL *curl = curl_easy_init();
    CURLM *multi = curl_multi_init();
    struct curl_slist *headers = NULL;
    long status = 0;

    if (curl == NULL || multi == NULL) {
        goto out;
    }
    headers = header_list(curl, post->headers);
    set_post_options(curl, post, headers);
    if (curl_multi_add_handle(multi, curl) == CURLM_OK) {
        if (transfer_until_stopped(multi, post)) {
            (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
        }
        (void)curl_multi_remove_handle(multi, curl);
    }
out:
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    (void)curl_multi_cleanup(multi);
    return (int)status;
}
