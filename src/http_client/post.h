/* What include/belay.h says of belay_http_post(). */
#ifndef HTTP_CLIENT_POST_H
#define HTTP_CLIENT_POST_H

#include "belay.h"

enum belay_code net_post(const struct belay_http_post *post, int *out_status, struct belay_error *err);

#endif
