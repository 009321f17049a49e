/*
 * What servers answer: a belay server, DynamoDB, S3 and AWS's other services.
 *
 * A client of each is given an HTTP transport whose every answer is the input: its
 * first byte chooses the operation, the second the status, the rest is the body.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "aws/aws_client.h"
#include "aws/credentials_source.h"
#include "aws/text/xml.h"
#include "base/clock.h"
#include "base/error.h"
#include "fuzz_parsers.h"
#include "remote/remote_internal.h"
#include "store/dynamodb/dynamodb_internal.h"
#include "store/s3/s3_internal.h"

enum { ANSWERS_MAX = 6, CONTROL_BYTES = 2, PIECE = 7 };

/* ---- the transport ---- */

struct fake {
    struct http http; /* first */
    const uint8_t *body;
    size_t len;
    int status;
    int answers; /* so many more; then nothing can be reached */
};

static enum belay_code fake_send(struct http *http, const struct http_client_request *request,
                                 struct http_response *out, struct belay_error *err)
{
    struct fake *fake = (struct fake *)http;
    bool go_on = true;

    if (fake->answers-- <= 0) {
        return error_set(err, BELAY_UNREACHABLE, "no more answers");
    }
    memset(out, 0, sizeof *out);
    out->status = fake->status;
    out->date_unix_ms = clock_unix_ms();
    out->body = malloc(fake->len + 1);
    fuzz_must(out->body != NULL, "no memory");
    memcpy(out->body, fake->body, fake->len);
    out->body[fake->len] = '\0';
    out->body_len = fake->len;
    for (size_t at = 0; request->on_data != NULL && fake->status == 200 && go_on && at < fake->len;
         at += PIECE) {
        go_on = request->on_data(request->context, (const char *)fake->body + at,
                                 fake->len - at < PIECE ? fake->len - at : PIECE);
    }
    return BELAY_OK;
}

static void fake_close(struct http *http)
{
    (void)http;
}

static struct fake fake;

static void fake_answer(const uint8_t *data, size_t len)
{
    /* No 5xx: a client would sleep before it tries again. */
    static const int statuses[] = { 200, 200, 200, 400, 401, 403, 404, 409, 413, 423 };
    static const struct http_ops ops = { fake_send, fake_close };

    fake.http.ops = &ops;
    fake.status = statuses[data[1] % (sizeof statuses / sizeof *statuses)];
    fake.body = data + CONTROL_BYTES;
    fake.len = len - CONTROL_BYTES;
    fake.answers = ANSWERS_MAX;
}

/* ---- a machine on which time passes only while a client sleeps ---- */

static int64_t slept_ms;

int64_t __real_clock_boot_ms(void);
int64_t __wrap_clock_boot_ms(void);
int __wrap_nanosleep(const struct timespec *span, struct timespec *rest);

int64_t __wrap_clock_boot_ms(void)
{
    return __real_clock_boot_ms() + slept_ms;
}

int __wrap_nanosleep(const struct timespec *span, struct timespec *rest)
{
    (void)rest;
    slept_ms += (int64_t)span->tv_sec * 1000 + span->tv_nsec / 1000000 + 1;
    return 0;
}

static int64_t platform_now_ms(void *context)
{
    (void)context;
    return clock_unix_ms() + slept_ms;
}

static void port_sleep(void *context, int64_t ms)
{
    (void)context;
    slept_ms += ms;
}

static double port_half(void *context)
{
    (void)context;
    return 0.5;
}

static const char *port_variable(void *context, const char *name)
{
    static const char *const variables[][2] = { { "AWS_ACCESS_KEY_ID", "id" },
                                                { "AWS_SECRET_ACCESS_KEY", "secret" },
                                                { "AWS_REGION", "us-east-1" },
                                                { "HOME", "/nonexistent" } };

    (void)context;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        if (strcmp(variables[i][0], name) == 0) {
            return variables[i][1];
        }
    }
    return NULL;
}

static const struct platform platform = { platform_now_ms, platform_now_ms, port_sleep,
                                          port_half,       port_variable,   NULL };

static struct aws_client *open_aws(void)
{
    struct aws_options options = {
        .platform = &platform, .http = &fake.http, .region = "us-east-1", .max_attempts = 1
    };
    struct belay_error err = BELAY_ERROR_INIT;
    struct aws_client *aws = NULL;

    for (int i = 0; i < AWS_N_SERVICES; i++) {
        options.endpoints[i] = "http://127.0.0.1:1";
    }
    fuzz_must(aws_open(&options, &aws, &err) == BELAY_OK, err.text);
    return aws;
}

/* ---- a belay server ---- */

static struct remote *the_remote;

static struct remote *remote_for(const uint8_t *data, size_t len)
{
    struct remote_options options = { 0 };
    struct belay_error err = BELAY_ERROR_INIT;
    struct backend *base = NULL;
    char *url = NULL;

    if (the_remote == NULL) {
        fuzz_must(remote_open("http://127.0.0.1:1", &options, &base, &url, &err) == BELAY_OK, err.text);
        free(url);
        the_remote = (struct remote *)base;
        http_close(the_remote->fronts[0].http);
        the_remote->fronts[0].http = &fake.http;
    }
    fake_answer(data, len);
    return the_remote;
}

static bool on_info(void *context, const struct belay_info *info)
{
    (void)context;
    fuzz_must(info->key != NULL && info->locked_by != NULL, "a lock lacks a text");
    return true;
}

static bool on_event(void *context, const struct belay_event *event)
{
    (void)context;
    fuzz_must(event->type != NULL && event->key != NULL, "an event lacks a text");
    return true;
}

static bool on_item(void *context, const struct belay_item *item)
{
    (void)context;
    fuzz_must(item->name != NULL, "an item without a name");
    return true;
}

static void run_op(struct remote *remote, unsigned which)
{
    struct op_request request = { .kind = (enum op_kind)(which % (OP_FORCE + 1)),
                                  .key = "k",
                                  .lock_id = "id-1",
                                  .old_id = "id-0",
                                  .owner = "me",
                                  .owner_name = "me",
                                  .ttl_ms = 60000,
                                  .by = "me" };
    struct op_result result = { 0 };

    if (remote_run(&remote->base, &request, NULL, &result, NULL) == BELAY_OK) {
        fuzz_must(result.info != NULL && result.info->lock_id != NULL, "a result without a lock");
    }
    belay_info_free(result.info);
}

static void read_remote(struct remote *remote, unsigned which, struct belay_error *err)
{
    struct belay_query query = BELAY_QUERY_INIT;
    struct belay_item item = { 0 };
    struct belay_info *info = NULL;
    bool more = false;

    switch (which % 6) {
    case 0:
        if (remote_get(&remote->base, "k", &info, err) == BELAY_OK) {
            (void)on_info(NULL, info);
            belay_info_free(info);
        }
        break;
    case 1:
        (void)remote_list(&remote->base, &query, on_info, NULL, &more, err);
        break;
    case 2:
        (void)remote_events(&remote->base, &(struct belay_events_query){ .key = "k", .last = 10 }, on_event,
                            NULL, err);
        break;
    case 3:
        (void)remote_check_free(&remote->base, &(struct op_request){ .key = "k" }, NULL, NULL, NULL, err);
        break;
    case 4:
        if (remote_item_get(&remote->base, "app", "shop", &item, err) == BELAY_OK) {
            belay_item_release(&item);
        }
        break;
    default:
        (void)remote_item_list(&remote->base, "app", on_item, NULL, &more, err);
        break;
    }
}

void fuzz_remote(const uint8_t *data, size_t len)
{
    struct belay_error err = BELAY_ERROR_INIT;

    if (len < CONTROL_BYTES) {
        return;
    }
    if (data[0] % 2 == 0) {
        run_op(remote_for(data, len), data[0] / 2);
    } else {
        read_remote(remote_for(data, len), data[0] / 2, &err);
    }
    belay_error_release(&err);
}

static bool on_event_then_stop(void *context, const struct belay_event *event)
{
    struct belay_cancel *cancel = context;

    (void)on_event(NULL, event);
    belay_cancel_request(cancel);
    return true;
}

/* One connection: the stream is the input, and what follows it is the end. */
void fuzz_sse(const uint8_t *data, size_t len)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_cancel *cancel = belay_cancel_new();
    struct remote *remote;
    uint64_t after = 0;

    if (len >= CONTROL_BYTES && cancel != NULL) {
        uint8_t *ended = malloc(len + 128);
        static const char end[] = "\n\ndata: {\"id\":1,\"event\":\"lock.acquired\",\"lock_key\":\"k\","
                                  "\"timestamp\":\"2026-01-01T00:00:00.000Z\"}\n\n";

        fuzz_must(ended != NULL, "no memory");
        memcpy(ended, data, len);
        memcpy(ended + len, end, sizeof end - 1);
        remote = remote_for(ended, len + sizeof end - 1);
        fake.status = 200;
        fake.answers = 1;
        (void)remote_watch(&remote->base, NULL, &after, on_event_then_stop, cancel, cancel, &err);
        free(ended);
    }
    belay_cancel_free(cancel);
    belay_error_release(&err);
}

/* ---- the plain HTTP client: the input is the whole answer, its head included ---- */

struct answering {
    int fd;
    const uint8_t *data;
    size_t len;
};

static void *answer_once(void *context)
{
    const struct answering *answering = context;
    int fd = accept(answering->fd, NULL, NULL);
    char request[1024];

    if (fd >= 0) {
        (void)recv(fd, request, sizeof request, 0);
        (void)send(fd, answering->data, answering->len, MSG_NOSIGNAL);
        (void)close(fd);
    }
    return NULL;
}

void fuzz_plain(const uint8_t *data, size_t len)
{
    static struct sockaddr_un address = { .sun_family = AF_UNIX };
    static struct http *http;
    static int listener = -1;
    struct http_client_request request = { .method = "GET", .url = "http://127.0.0.1:1/x" };
    struct answering answering = { .data = data, .len = len };
    struct belay_error err = BELAY_ERROR_INIT;
    struct http_response response = { 0 };
    pthread_t thread;

    if (http == NULL) {
        struct http_client_options options = { .timeout_ms = 2000 };
        const char *path = fuzz_file("socket", "", 0);

        memcpy(address.sun_path, path, strlen(path) + 1);
        (void)unlink(path);
        listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        fuzz_must(bind(listener, (struct sockaddr *)&address, sizeof address) == 0 &&
                      listen(listener, 8) == 0,
                  "no socket");
        fuzz_must(http_plain_open("http://127.0.0.1:1", address.sun_path, &options, &http, &err) == BELAY_OK,
                  err.text);
    }
    answering.fd = listener;
    fuzz_must(pthread_create(&thread, NULL, answer_once, &answering) == 0, "no thread");
    if (http_send(http, &request, &response, &err) == BELAY_OK) {
        fuzz_must(response.status >= 100 && response.status <= 999 && response.body != NULL &&
                      response.body[response.body_len] == '\0',
                  "an answer without a status or a body");
        http_response_release(&response);
    }
    (void)pthread_join(thread, NULL);
    belay_error_release(&err);
}

/* ---- DynamoDB ---- */

enum { LAYOUTS = 6 };
static struct belay_store *dynamodb[LAYOUTS];

static struct belay_store *dynamodb_for(unsigned which)
{
    static const char *const names[LAYOUTS] = { "locks,layout=belay",       "locks,layout=chatops",
                                                "locks,layout=resource",    "locks,layout=runvoy",
                                                "locks,layout=appregistry", "locks,layout=deployer" };
    struct belay_error err = BELAY_ERROR_INIT;
    char *url = NULL;
    char text[200];

    which %= LAYOUTS;
    if (dynamodb[which] == NULL) {
        struct ddb_store *store;

        (void)snprintf(text, sizeof text, "%s,region=us-east-1,endpoint=http://127.0.0.1:1", names[which]);
        fuzz_must(dynamodb_store_open(text, NULL, &dynamodb[which], &url, &err) == BELAY_OK, err.text);
        free(url);
        store = (struct ddb_store *)dynamodb[which];
        aws_close(store->aws);
        store->aws = open_aws();
    }
    return dynamodb[which];
}

static bool on_record(void *context, const struct belay_record *record, int64_t now_ms)
{
    (void)context;
    (void)now_ms;
    fuzz_must(record->key != NULL && record->lock_id != NULL && record->owner != NULL,
              "a record lacks a text");
    return true;
}

static void commit_take(struct belay_store *store, struct belay_error *err)
{
    char id[] = "id-1";
    char owner[] = "me";
    struct belay_record values = { .lock_id = id, .owner = owner, .owner_name = owner, .ttl_ms = 60000 };
    struct belay_meta user = { "user_email", "me@example.org" };
    struct belay_write write = {
        .key = "k", .condition = BELAY_IF_FREE, .set = BELAY_SET_HOLDER, .values = &values
    };
    struct belay_batch batch = { .writes = &write, .n_writes = 1 };
    struct belay_commit done = { 0 };
    enum belay_code code;

    values.metadata = &user;
    values.n_metadata = 1;
    code = store->ops->commit(store, &batch, &done, err);
    if (code == BELAY_OK || code == BELAY_REFUSED) {
        belay_commit_release(&done);
    }
}

void fuzz_dynamodb(const uint8_t *data, size_t len)
{
    const char *keys[2] = { "k", "k2" };
    struct belay_record records[2] = { { 0 }, { 0 } };
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_scan scan = { .held_only = false };
    struct belay_item item = { 0 };
    struct belay_store *store;
    int64_t now_ms = 0;

    if (len < CONTROL_BYTES) {
        return;
    }
    fake_answer(data, len);
    store = dynamodb_for(data[0] / 8);
    switch (data[0] % 5) {
    case 0:
        if (store->ops->get(store, keys, 1 + data[0] / 128, records, &now_ms, &err) == BELAY_OK) {
            belay_record_release(&records[0]);
            belay_record_release(&records[1]);
        }
        break;
    case 1:
        (void)store->ops->scan(store, &scan, on_record, NULL, &err);
        break;
    case 2:
        if (store->ops->item_get != NULL &&
            store->ops->item_get(store, BELAY_SPACE_APPS, "shop", &item, &err) == BELAY_OK) {
            belay_item_release(&item);
        }
        break;
    case 3:
        if (store->ops->item_list != NULL) {
            (void)store->ops->item_list(store, BELAY_SPACE_APPS, on_item, NULL, &err);
        }
        break;
    default:
        commit_take(store, &err);
        break;
    }
    belay_error_release(&err);
}

/* ---- S3 ---- */

static struct belay_blob_store *s3;

static bool on_blob(void *context, const struct belay_blob_entry *entry)
{
    (void)context;
    fuzz_must(entry->name != NULL && entry->name[0] != '\0', "a blob without a name");
    return true;
}

void fuzz_s3(const uint8_t *data, size_t len)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_blob blob = { 0 };
    struct belay_blob_tag tag;
    char *url = NULL;

    if (len < CONTROL_BYTES) {
        return;
    }
    fake_answer(data, len);
    if (s3 == NULL) {
        struct s3_store *store;

        fuzz_must(s3_blob_open("bucket/p?region=us-east-1&endpoint=http://127.0.0.1:1", &s3, &url, &err) ==
                      BELAY_OK,
                  err.text);
        free(url);
        store = (struct s3_store *)s3;
        aws_close(store->aws);
        store->aws = open_aws();
        store->is_probed = true;
    }
    switch (data[0] % 4) {
    case 0:
        (void)s3->ops->list(s3, "a/", data[0] > 127, on_blob, NULL, &err);
        break;
    case 1:
        if (s3->ops->get(s3, "a", &blob, &err) == BELAY_OK) {
            belay_blob_release(&blob);
        }
        break;
    case 2:
        (void)s3->ops->put_if(s3, "a", "x", 1, NULL, &tag, &err);
        break;
    default:
        (void)s3->ops->remove(s3, "a", &err);
        break;
    }
    belay_error_release(&err);
}

/* ---- credentials, and the errors of every service ---- */

static struct aws_client *the_aws;

static void parse_error(const uint8_t *data, size_t len)
{
    struct http_response response = { .status = fake.status };
    char *code = NULL;
    char *message = NULL;

    response.body = malloc(len + 1);
    fuzz_must(response.body != NULL, "no memory");
    memcpy(response.body, data, len);
    response.body[len] = '\0';
    response.body_len = len;
    for (int i = 0; i < AWS_N_SERVICES; i++) {
        if (aws_error_parse((enum aws_service)i, &response, &code, &message)) {
            (void)aws_error_judge((enum aws_service)i, response.status, code);
            free(code);
            free(message);
        }
    }
    http_response_release(&response);
}

void fuzz_aws(const uint8_t *data, size_t len)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct profiles profiles = { 0 };
    struct credentials found = { 0 };
    struct sts_role role = { .role_arn = "arn:aws:iam::1:role/r", .session_name = "s" };
    enum belay_code code = BELAY_CONFIG;
    struct xml *xml;

    if (len < CONTROL_BYTES) {
        return;
    }
    fake_answer(data, len);
    parse_error(fake.body, fake.len);
    xml = xml_parse((const char *)fake.body, fake.len);
    if (xml != NULL) {
        (void)xml_text(xml, "Error/Code");
        xml_free(xml);
    }
    if (the_aws == NULL) {
        the_aws = open_aws();
    }
    switch (data[0] % 3) {
    case 0:
        code = credentials_from_json((const char *)fake.body, fake.len, "Token", "the answer", &found, &err);
        break;
    case 1:
        code = credentials_from_imds(&platform, &fake.http, &profiles, "default", &found, &err);
        break;
    default: {
        struct credentials base = { 0 };

        fuzz_must(credentials_init(&base, "id", "secret", NULL), "no memory");
        code = credentials_assume_role(the_aws, &role, &base, &found, &err);
        credentials_release(&base);
        break;
    }
    }
    if (code == BELAY_OK) {
        fuzz_must(found.access_key_id != NULL && found.secret_access_key != NULL,
                  "credentials without a key");
        credentials_release(&found);
    }
    belay_error_release(&err);
}

void fuzz_answers_tear_down(void)
{
    for (size_t i = 0; i < LAYOUTS; i++) {
        if (dynamodb[i] != NULL) {
            dynamodb[i]->ops->close(dynamodb[i]);
            dynamodb[i] = NULL;
        }
    }
    if (s3 != NULL) {
        s3->ops->close(s3);
        s3 = NULL;
    }
    if (the_remote != NULL) {
        the_remote->base.ops->close(&the_remote->base);
        the_remote = NULL;
    }
    aws_close(the_aws);
    the_aws = NULL;
}
