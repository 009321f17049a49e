/* belay-otlp.so: sends spans, with libcurl. Loaded only where a receiver is named. */
#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

#include "belay.h"
#include "telemetry/otlp_module.h"

BELAY_API int belay_otlp_post(const char *url, const char *headers, const char *body, size_t len,
                              long timeout_ms);

/* The value is percent-encoded, as the environment's OTEL_EXPORTER_OTLP_HEADERS has it. */
static struct curl_slist *add_header(CURL *curl, struct curl_slist *list, const char *pair, size_t len)
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

    list = add_header(curl, list, "Expect=", 7);
    while (*headers != '\0') {
        size_t len = strcspn(headers, ",");

        list = add_header(curl, list, headers, len);
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

int belay_otlp_post(const char *url, const char *headers, const char *body, size_t len, long timeout_ms)
{
    CURL *curl = curl_easy_init();
    struct curl_slist *list;
    long status = 0;

    if (curl == NULL) {
        return 0;
    }
    list = header_list(curl, headers);
    (void)curl_easy_setopt(curl, CURLOPT_URL, url);
    (void)curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, list);
    (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)len);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, ignore);
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, timeout_ms);
    if (curl_easy_perform(curl) == CURLE_OK) {
        (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    }
    curl_slist_free_all(list);
    curl_easy_cleanup(curl);
    return (int)status;
}
