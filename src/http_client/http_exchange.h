/* One request in libcurl; for http_curl.c only. */
#ifndef HTTP_CLIENT_HTTP_EXCHANGE_H
#define HTTP_CLIENT_HTTP_EXCHANGE_H

#include <curl/curl.h>

#include "base/buf.h"
#include "http_client/http.h"

struct curl_exchange {
    const struct http_client_request *request;
    struct http_response response;
    struct buf body;
    bool too_large;
    bool no_memory;
    unsigned begun;  /* number of times that the request was about to be sent */
    bool not_resent; /* libcurl tried to send it a second time */
    bool stopped;    /* the caller ended it */
    bool forbidden;  /* may_connect refused the last address */
    CURL *curl;      /* borrowed, while it is attached */
};

/* The headers in libcurl's form; free them with curl_slist_free_all(), also after a failure. */
struct curl_slist *exchange_headers(const struct http_client_request *request, bool *out_failed);

/* Sets method, body and callbacks. */
void exchange_attach(struct curl_exchange *exchange, CURL *curl);

#endif
