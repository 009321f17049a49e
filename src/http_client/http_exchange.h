/* One request on its way through libcurl; for http_curl.c only. */
#ifndef HTTP_CLIENT_HTTP_EXCHANGE_H
#define HTTP_CLIENT_HTTP_EXCHANGE_H

#include <curl/curl.h>

#include "base/buf.h"
#include "http_client/http.h"

struct exchange {
    const struct http_request *request;
    struct http_response response;
    struct buf body;
    bool too_large;
    bool no_memory;
    unsigned begun;  /* how often a connection stood and the request was to be sent */
    bool not_resent; /* libcurl would have sent it a second time */
    bool stopped;    /* its caller wants no more of it */
    bool forbidden;  /* may_connect said no, the last time it was asked */
    CURL *curl;      /* borrowed, while it is attached */
};

/* Its headers as libcurl wants them; freed with curl_slist_free_all(), also after a failure. */
struct curl_slist *exchange_headers(const struct http_request *request, bool *out_failed);

/* Method, body and callbacks. */
void exchange_attach(struct exchange *exchange, CURL *curl);

#endif
