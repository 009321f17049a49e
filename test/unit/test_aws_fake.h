/* A fake machine and network: clocks that stand still, and answers from a list. */
#ifndef TEST_AWS_FAKE_H
#define TEST_AWS_FAKE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "aws/aws.h"
#include "base/buf.h"
#include "base/error.h"
#include "http_client/http.h"
#include "http_client/platform.h"

struct fake_answer {
    enum belay_code code; /* other than BELAY_OK: no answer */
    int status;
    const char *body;
    const char *header;
    const char *value;
    const char *date;
};

struct fake_request {
    char *method;
    char *url;
    char *headers; /* "name: value\n" each */
    char *body;
};

enum { FAKE_MAX = 1200 };

struct fake {
    struct http http; /* first */
    struct platform platform;
    int64_t unix_ms;
    int64_t mono_ms;
    double random;
    const char *env[32][2];
    size_t n_env;
    const struct fake_answer *answers;
    size_t n_answers; /* the last one is given for ever */
    struct fake_request seen[FAKE_MAX];
    size_t n_seen;
    int64_t slept[FAKE_MAX];
    size_t n_slept;
};

static inline int64_t fake_unix_ms(void *context)
{
    return ((struct fake *)context)->unix_ms;
}

static inline int64_t fake_mono_ms(void *context)
{
    return ((struct fake *)context)->mono_ms;
}

static inline void fake_sleep_ms(void *context, int64_t ms)
{
    struct fake *fake = context;

    assert_true(fake->n_slept < FAKE_MAX);
    fake->slept[fake->n_slept++] = ms;
    fake->unix_ms += ms;
    fake->mono_ms += ms;
}

static inline double fake_chance(void *context)
{
    return ((struct fake *)context)->random;
}

static inline const char *fake_env(void *context, const char *name)
{
    const struct fake *fake = context;

    for (size_t i = fake->n_env; i > 0; i--) {
        if (strcmp(fake->env[i - 1][0], name) == 0) {
            return fake->env[i - 1][1];
        }
    }
    return NULL;
}

static inline void fake_set(struct fake *fake, const char *name, const char *value)
{
    assert_true(fake->n_env < 32);
    fake->env[fake->n_env][0] = name;
    fake->env[fake->n_env++][1] = value;
}

static inline void fake_note(struct fake *fake, const struct http_client_request *request)
{
    struct fake_request *seen = &fake->seen[fake->n_seen];
    struct buf headers = BUF_INIT(65536);

    assert_true(fake->n_seen < FAKE_MAX);
    for (size_t i = 0; i < request->n_headers; i++) {
        buf_addf(&headers, "%s: %s\n", request->headers[i].name, request->headers[i].value);
    }
    seen->method = strdup(request->method);
    seen->url = strdup(request->url);
    seen->headers = buf_take(&headers);
    seen->body = request->body == NULL ? strdup("") : strndup(request->body, request->body_len);
}

static inline enum belay_code fake_send(struct http *http, const struct http_client_request *request,
                                        struct http_response *out, struct belay_error *err)
{
    struct fake *fake = (struct fake *)http;
    size_t i = fake->n_seen < fake->n_answers ? fake->n_seen : fake->n_answers - 1;
    const struct fake_answer *answer = &fake->answers[i];

    fake_note(fake, request);
    fake->n_seen++;
    assert_true(fake->n_answers > 0);
    if (answer->code != BELAY_OK) {
        return error_set(err, answer->code, "fake failure");
    }
    memset(out, 0, sizeof *out);
    out->status = answer->status;
    out->body = strdup(answer->body == NULL ? "" : answer->body);
    out->body_len = strlen(out->body);
    out->date_unix_ms = http_parse_date(answer->date);
    if (answer->header != NULL) {
        assert_true(http_response_add_header(out, answer->header, strlen(answer->header), answer->value,
                                             strlen(answer->value)));
    }
    return BELAY_OK;
}

static inline void fake_close(struct http *http)
{
    (void)http;
}

/* 2026-01-31T12:00:00Z; keys in the environment, no files, no network. */
static inline struct fake *fake_new(void)
{
    static const struct http_ops ops = { fake_send, fake_close };
    struct fake *fake = calloc(1, sizeof *fake);

    assert_non_null(fake);
    fake->http.ops = &ops;
    fake->platform =
        (struct platform){ fake_unix_ms, fake_mono_ms, fake_sleep_ms, fake_chance, fake_env, fake };
    fake->unix_ms = 1769860800000;
    fake->mono_ms = 1000000;
    fake->random = 1.0;
    fake_set(fake, "AWS_ACCESS_KEY_ID", "AKIDEXAMPLE");
    fake_set(fake, "AWS_SECRET_ACCESS_KEY", "TopSecret");
    fake_set(fake, "AWS_REGION", "eu-west-1");
    fake_set(fake, "AWS_CONFIG_FILE", "/nonexistent/config");
    fake_set(fake, "AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/credentials");
    return fake;
}

static inline void fake_forget(struct fake *fake)
{
    for (size_t i = 0; i < fake->n_seen; i++) {
        free(fake->seen[i].method);
        free(fake->seen[i].url);
        free(fake->seen[i].headers);
        free(fake->seen[i].body);
    }
    fake->n_seen = 0;
    fake->n_slept = 0;
}

static inline void fake_free(struct fake *fake)
{
    fake_forget(fake);
    free(fake);
}

static inline struct aws_client *fake_client(struct fake *fake)
{
    struct aws_options options = { .platform = &fake->platform, .http = &fake->http };
    struct aws_client *client = NULL;

    assert_int_equal(aws_open(&options, &client, NULL), BELAY_OK);
    return client;
}

#define FAKE_ANSWERS(fake, ...)                                                                              \
    do {                                                                                                     \
        static const struct fake_answer list_[] = { __VA_ARGS__ };                                           \
        (fake)->answers = list_;                                                                             \
        (fake)->n_answers = sizeof list_ / sizeof list_[0];                                                  \
    } while (0)

#endif
