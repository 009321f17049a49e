/*
 * aws_driver: the network code under the orders of a test. One JSON object a
 * line comes in, one goes out.
 *
 *   {"do": "open", "profile"?, "region"?, "dynamodb"?: URL, "timeout_ms"?, ...}
 *   {"do": "call", "service", "operation", "headers", "body", "retry"?, ...}
 *   {"do": "origin"}                     where the credentials come from
 *   {"do": "threads", "n", "each", ...}  the same call from several threads
 *   {"do": "wait", "ms"}                 both clocks advance, without sleeping
 *   {"do": "sign", ...}                  driver_sign.c
 *
 * Its clocks are the machine's plus what was waited: a sleep only moves them, and
 * the pauses are reported.
 */
#include "driver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aws/aws_client.h"
#include "base/clock.h"

static _Atomic int64_t waited_ms;
static _Atomic int64_t wall_offset_ms;
static _Atomic int64_t slept_ms;

static int64_t driver_unix_ms(void *context)
{
    (void)context;
    return clock_unix_ms() + atomic_load(&waited_ms) + atomic_load(&wall_offset_ms);
}

static int64_t driver_mono_ms(void *context)
{
    (void)context;
    return clock_boot_ms() + atomic_load(&waited_ms);
}

static void driver_sleep_ms(void *context, int64_t ms)
{
    (void)context;
    atomic_fetch_add(&waited_ms, ms);
    atomic_fetch_add(&slept_ms, ms);
}

static double driver_chance(void *context)
{
    (void)context;
    return 0.5;
}

static const char *driver_env(void *context, const char *name)
{
    (void)context;
    return getenv(name);
}

static const struct platform driver_platform = {
    driver_unix_ms, driver_mono_ms, driver_sleep_ms, driver_chance, driver_env, NULL,
};

const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static int64_t number_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

struct http_client_header *headers_of(const json_t *object, size_t *out_n)
{
    const json_t *list = json_object_get(object, "headers");
    size_t n = json_array_size(list);
    struct http_client_header *headers = calloc(n + SIGV4_HEADERS, sizeof *headers);

    for (size_t i = 0; headers != NULL && i < n; i++) {
        const json_t *pair = json_array_get(list, i);

        headers[i].name = json_string_value(json_array_get(pair, 0));
        headers[i].value = json_string_value(json_array_get(pair, 1));
    }
    *out_n = headers == NULL ? 0 : n;
    return headers;
}

static json_t *outcome(enum belay_code code, const struct belay_error *err)
{
    return json_pack("{s:s, s:s}", "code", belay_code_name(code), "text", err->text);
}

static struct aws_client *client;

static json_t *do_open(const json_t *command)
{
    struct aws_options options = { .profile = text_of(command, "profile"),
                                   .region = text_of(command, "region"),
                                   .max_attempts = (int)number_of(command, "max_attempts"),
                                   .connect_timeout_ms = number_of(command, "connect_timeout_ms"),
                                   .timeout_ms = number_of(command, "timeout_ms"),
                                   .platform = &driver_platform };
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_code code;
    json_t *answer;

    for (int i = 0; i < AWS_N_SERVICES; i++) {
        options.endpoints[i] = text_of(command, aws_service_name((enum aws_service)i));
    }
    aws_close(client);
    client = NULL;
    code = aws_open(&options, &client, &err);
    answer = outcome(code, &err);
    if (code == BELAY_OK) {
        const char *region = aws_region(client);

        (void)json_object_set_new(answer, "region", region == NULL ? json_null() : json_string(region));
        (void)json_object_set_new(answer, "region_origin", json_string(aws_region_origin(client)));
        for (int i = 0; i < AWS_N_SERVICES; i++) {
            const char *url = aws_endpoint(client, (enum aws_service)i);
            (void)json_object_set_new(answer, aws_service_name((enum aws_service)i),
                                      url == NULL ? json_null() : json_string(url));
        }
    }
    belay_error_release(&err);
    return answer;
}

static enum aws_service service_of(const json_t *command)
{
    const char *name = text_of(command, "service");

    for (int i = 0; name != NULL && i < AWS_N_SERVICES; i++) {
        if (strcmp(name, aws_service_name((enum aws_service)i)) == 0) {
            return (enum aws_service)i;
        }
    }
    return AWS_DYNAMODB;
}

static enum aws_retry retry_of(const json_t *command)
{
    const char *name = text_of(command, "retry");

    if (name != NULL && strcmp(name, "none") == 0) {
        return AWS_RETRY_NONE;
    }
    return name != NULL && strcmp(name, "safe") == 0 ? AWS_RETRY_SAFE : AWS_RETRY_STANDARD;
}

static struct aws_request request_of(const json_t *command, const struct http_client_header *headers,
                                     size_t n)
{
    const char *body = text_of(command, "body");
    int64_t deadline_in = number_of(command, "deadline_in_ms");

    return (struct aws_request){ .service = service_of(command),
                                 .operation = text_of(command, "operation"),
                                 .method = text_of(command, "method"),
                                 .path = text_of(command, "path"),
                                 .query = text_of(command, "query"),
                                 .headers = headers,
                                 .n_headers = n,
                                 .body = body,
                                 .body_len = body == NULL ? 0 : strlen(body),
                                 .reads_only = json_is_true(json_object_get(command, "reads_only")),
                                 .retry = retry_of(command),
                                 .max_attempts = (int)number_of(command, "max_attempts"),
                                 .timeout_ms = number_of(command, "timeout_ms"),
                                 .deadline_mono_ms =
                                     deadline_in == 0 ? 0 : driver_mono_ms(NULL) + deadline_in,
                                 .max_answer = (size_t)number_of(command, "max_answer") };
}

static json_t *do_call(const json_t *command)
{
    size_t n = 0;
    struct http_client_header *headers = headers_of(command, &n);
    struct aws_request request = request_of(command, headers, n);
    struct aws_response response;
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_code code;
    json_t *answer;

    atomic_store(&slept_ms, 0);
    code = aws_call(client, &request, &response, &err);
    answer = outcome(code, &err);
    (void)json_object_set_new(answer, "status", json_integer(response.http.status));
    (void)json_object_set_new(answer, "attempts", json_integer(response.attempts));
    (void)json_object_set_new(answer, "in_doubt", json_boolean(response.in_doubt));
    (void)json_object_set_new(answer, "slept_ms", json_integer(atomic_load(&slept_ms)));
    (void)json_object_set_new(answer, "date_unix_ms", json_integer(response.http.date_unix_ms));
    (void)json_object_set_new(answer, "skew_ms", json_integer(atomic_load(&client->skew_ms)));
    (void)json_object_set_new(answer, "error_code",
                              response.error_code == NULL ? json_null() : json_string(response.error_code));
    (void)json_object_set_new(answer, "body",
                              response.http.body == NULL ? json_null() : json_string(response.http.body));
    aws_response_release(&response);
    belay_error_release(&err);
    free(headers);
    return answer;
}

struct crew {
    const json_t *command;
    pthread_mutex_t mutex;
    json_t *counts; /* code: how often */
};

static void *work(void *context)
{
    struct crew *crew = context;
    size_t n = 0;
    struct http_client_header *headers = headers_of(crew->command, &n);
    struct aws_request request = request_of(crew->command, headers, n);

    for (int64_t i = 0; i < number_of(crew->command, "each"); i++) {
        struct aws_response response;
        enum belay_code code = aws_call(client, &request, &response, NULL);
        const char *name = belay_code_name(code);

        aws_response_release(&response);
        (void)pthread_mutex_lock(&crew->mutex);
        (void)json_object_set_new(crew->counts, name, json_integer(number_of(crew->counts, name) + 1));
        (void)pthread_mutex_unlock(&crew->mutex);
    }
    free(headers);
    return NULL;
}

static json_t *do_threads(const json_t *command)
{
    struct crew crew = { command, PTHREAD_MUTEX_INITIALIZER, json_object() };
    pthread_t threads[64];
    int64_t n = number_of(command, "n");

    for (int64_t i = 0; i < n && i < 64; i++) {
        if (pthread_create(&threads[i], NULL, work, &crew) != 0) {
            abort();
        }
    }
    for (int64_t i = 0; i < n && i < 64; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    return crew.counts;
}

static json_t *do_origin(void)
{
    struct belay_error err = BELAY_ERROR_INIT;
    char *origin = NULL;
    enum belay_code code = aws_credentials_origin(client, &origin, &err);
    json_t *answer = outcome(code, &err);

    if (code == BELAY_OK) {
        (void)json_object_set_new(answer, "origin", json_string(origin));
    }
    free(origin);
    belay_error_release(&err);
    return answer;
}

static json_t *obey(const json_t *command)
{
    const char *what = text_of(command, "do");

    if (what == NULL) {
        return NULL;
    }
    if (strcmp(what, "sign") == 0) {
        return do_sign(command);
    }
    if (strcmp(what, "open") == 0) {
        return do_open(command);
    }
    if (strcmp(what, "wait") == 0) {
        atomic_fetch_add(&waited_ms, number_of(command, "ms"));
        return json_object();
    }
    if (strcmp(what, "set_wall") == 0) {
        atomic_store(&wall_offset_ms, number_of(command, "offset_ms"));
        return json_object();
    }
    if (client == NULL) {
        return NULL;
    }
    if (strcmp(what, "call") == 0) {
        return do_call(command);
    }
    if (strcmp(what, "origin") == 0) {
        return do_origin();
    }
    return strcmp(what, "threads") == 0 ? do_threads(command) : NULL;
}

int main(void)
{
    char *line = NULL;
    size_t size = 0;
    int status = 0;

    while (status == 0 && getline(&line, &size, stdin) > 0) {
        json_t *command = json_loads(line, 0, NULL);
        json_t *answer = obey(command);

        if (answer == NULL || json_dumpf(answer, stdout, JSON_COMPACT) != 0) {
            (void)fprintf(stderr, "aws_driver: cannot obey: %s", line);
            status = 2;
        }
        (void)putchar('\n');
        (void)fflush(stdout);
        json_decref(answer);
        json_decref(command);
    }
    free(line);
    aws_close(client);
    (void)do_sign(NULL);
    return status;
}
