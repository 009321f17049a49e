/*
 * The parser of HTTP/1 messages: llhttp, or libhttp-parser (its predecessor, without a maintainer) where the system
 * has no llhttp. Both call the same callbacks with their own state, whose fields data, method, status_code,
 * http_major, http_minor and upgrade have the same names; the functions below hide what differs.
 */
#ifndef HTTP_PARSE_HTTP_PARSE_H
#define HTTP_PARSE_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>

#ifdef BELAY_LLHTTP
#include <llhttp.h>
typedef llhttp_t http_parse_state;
typedef llhttp_settings_t http_parse_callbacks;
#else
#include <http_parser.h>
typedef http_parser http_parse_state;
typedef http_parser_settings http_parse_callbacks;
#endif

enum http_parse_result {
    HTTP_PARSE_MORE,   /* all bytes are read; the message may go on */
    HTTP_PARSE_PAUSED, /* a callback returned http_parse_pause() */
    HTTP_PARSE_BAD_METHOD,
    HTTP_PARSE_BAD_VERSION,
    HTTP_PARSE_BAD_LENGTH, /* of the body */
    HTTP_PARSE_HEAD_TOO_LONG,
    HTTP_PARSE_BAD /* malformed, or a callback gave up */
};

struct http_parse {
    http_parse_state state;
    const http_parse_callbacks *callbacks; /* borrowed */
};

void http_parse_requests(struct http_parse *parse, const http_parse_callbacks *callbacks, void *data);
void http_parse_responses(struct http_parse *parse, const http_parse_callbacks *callbacks, void *data);

/* *out_taken: the bytes up to where parsing stopped. */
enum http_parse_result http_parse_run(struct http_parse *parse, const char *bytes, size_t len,
                                      size_t *out_taken);
/* The connection has ended, which completes a response without a length. */
enum http_parse_result http_parse_end(struct http_parse *parse);

/* For on_message_complete: return what this returns, and nothing more is parsed. */
int http_parse_pause(http_parse_state *state);
bool http_parse_keeps_alive(const http_parse_state *state);
const char *http_parse_method(const http_parse_state *state);

#endif
