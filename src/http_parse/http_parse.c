#include "http_parse/http_parse.h"

#include <assert.h>

static enum http_parse_result parse_result(int code)
{
    switch (code) {
#ifdef BELAY_LLHTTP
    case HPE_PAUSED_H2_UPGRADE: /* after PRI, the method with which HTTP/2 begins */
        return HTTP_PARSE_BAD_METHOD;
#else
    case HPE_INVALID_VERSION:
        return HTTP_PARSE_BAD_VERSION;
    case HPE_HEADER_OVERFLOW:
        return HTTP_PARSE_HEAD_TOO_LONG;
#endif
    case HPE_OK:
        return HTTP_PARSE_MORE;
    case HPE_PAUSED:
        return HTTP_PARSE_PAUSED;
    case HPE_INVALID_METHOD:
        return HTTP_PARSE_BAD_METHOD;
    case HPE_UNEXPECTED_CONTENT_LENGTH:
    case HPE_INVALID_CONTENT_LENGTH:
        return HTTP_PARSE_BAD_LENGTH;
    default:
        return HTTP_PARSE_BAD;
    }
}

#ifdef BELAY_LLHTTP

static void init_parser(struct http_parse *parse, llhttp_type_t type, const http_parse_callbacks *callbacks,
                        void *data)
{
    llhttp_init(&parse->state, type, callbacks);
    llhttp_set_lenient_version(&parse->state, 1); /* the caller judges the version, and says what is right */
    parse->callbacks = callbacks;
    parse->state.data = data;
}

/* Whether the version is at fault, or what follows a right one; `at` is the byte that was refused. */
static bool is_about_version(const llhttp_t *state, llhttp_errno_t code, const char *at)
{
    if (code == HPE_INVALID_VERSION) {
        return state->http_major != 1 || (at != NULL && *at >= '0' && *at <= '9'); /* HTTP/1.10 */
    }
    return code == HPE_INVALID_HEADER_TOKEN && state->type == HTTP_REQUEST && state->http_major != 1;
}

enum http_parse_result http_parse_run(struct http_parse *parse, const char *bytes, size_t len,
                                      size_t *out_taken)
{
    llhttp_errno_t code = llhttp_execute(&parse->state, bytes, len);
    const char *end = code == HPE_OK ? bytes + len : llhttp_get_error_pos(&parse->state);
    bool is_inside = end >= bytes && end < bytes + len;

    *out_taken = is_inside ? (size_t)(end - bytes) : len;
    assert(*out_taken <= len);
    return is_about_version(&parse->state, code, is_inside ? end : NULL) ? HTTP_PARSE_BAD_VERSION
                                                                         : parse_result((int)code);
}

enum http_parse_result http_parse_end(struct http_parse *parse)
{
    llhttp_errno_t code = llhttp_finish(&parse->state);

    return is_about_version(&parse->state, code, NULL) ? HTTP_PARSE_BAD_VERSION : parse_result((int)code);
}

int http_parse_pause(http_parse_state *state)
{
    (void)state;
    return HPE_PAUSED;
}

bool http_parse_keeps_alive(const http_parse_state *state)
{
    return llhttp_should_keep_alive(state) != 0;
}

const char *http_parse_method(const http_parse_state *state)
{
    return llhttp_method_name((llhttp_method_t)state->method);
}

#else

static void init_parser(struct http_parse *parse, enum http_parser_type type,
                        const http_parse_callbacks *callbacks, void *data)
{
    http_parser_init(&parse->state, type);
    parse->callbacks = callbacks;
    parse->state.data = data;
}

enum http_parse_result http_parse_run(struct http_parse *parse, const char *bytes, size_t len,
                                      size_t *out_taken)
{
    *out_taken = http_parser_execute(&parse->state, parse->callbacks, bytes, len);
    assert(*out_taken <= len);
    return parse_result((int)HTTP_PARSER_ERRNO(&parse->state));
}

enum http_parse_result http_parse_end(struct http_parse *parse)
{
    (void)http_parser_execute(&parse->state, parse->callbacks, NULL, 0);
    return parse_result((int)HTTP_PARSER_ERRNO(&parse->state));
}

int http_parse_pause(http_parse_state *state)
{
    http_parser_pause(state, 1);
    return 0;
}

bool http_parse_keeps_alive(const http_parse_state *state)
{
    return http_should_keep_alive(state) != 0;
}

const char *http_parse_method(const http_parse_state *state)
{
    return http_method_str((enum http_method)state->method);
}

#endif

void http_parse_requests(struct http_parse *parse, const http_parse_callbacks *callbacks, void *data)
{
    init_parser(parse, HTTP_REQUEST, callbacks, data);
}

void http_parse_responses(struct http_parse *parse, const http_parse_callbacks *callbacks, void *data)
{
    init_parser(parse, HTTP_RESPONSE, callbacks, data);
}
