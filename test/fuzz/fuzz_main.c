/*
 * Run fuzz_http() without libFuzzer: the seeds first, then mutations of them.
 *
 *     fuzz_http [--seconds N] [--count N] [--seed S] [--first N]
 *     fuzz_http FILE…                                 replay what libFuzzer found
 *     fuzz_http --write DIRECTORY                     the seeds as files, for libFuzzer
 *
 * An input depends only on the seed and its number, so a finding is repeated with
 * --seed S --first N --count 1. Ends on the line `N passed, 0 failed`.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fuzz_http.h"

#define HOST "Host: x\r\n"
#define SEED(flags, text)                                                                                    \
    {                                                                                                        \
        flags text, sizeof(flags text) - 1                                                                   \
    }

#define API(line, len)                                                                                       \
    line " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin\r\nContent-Length: " #len "\r\n\r\n"

struct seed {
    const char *data;
    size_t len;
};

/* The first two bytes: flags, and where to cut (fuzz_http.c). */
static const struct seed seeds[] = {
    SEED("\0\7", "GET / HTTP/1.1\r\n" HOST "\r\n"),
    SEED("\1\7",
         "GET /a%2Fb?name=v&x HTTP/1.1\r\n" HOST "Accept: */*\r\n\r\nGET /2 HTTP/1.1\r\n" HOST "\r\n"),
    SEED("\0\3",
         "POST /v1/locks/k/acquire HTTP/1.1\r\n" HOST "Content-Length: 17\r\n\r\n{\"ttl_ms\":\"1000\"}"),
    SEED("\1\5", "PUT /x HTTP/1.1\r\n" HOST
                 "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3;e=1\r\nabc\r\n0\r\nT: v\r\n\r\n"),
    SEED("\0\11", "LOCK /later HTTP/1.1\r\n" HOST "\r\nUNLOCK /later HTTP/1.1\r\n" HOST
                  "\r\nGET /later HTTP/1.1\r\n" HOST "\r\nGET /later HTTP/1.1\r\n" HOST "\r\n"),
    SEED("\2\11", "GET /later HTTP/1.1\r\n" HOST "\r\nGET /stream HTTP/1.1\r\n" HOST "\r\n"),
    SEED("\1\1", "GET /stream HTTP/1.1\r\n" HOST "\r\nHEAD /stream HTTP/1.1\r\n" HOST
                 "\r\nHEAD /h HTTP/1.1\r\n" HOST "\r\nDELETE /d HTTP/1.1\r\n" HOST "\r\n"),
    SEED("\0\15", "POST /x HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello"),
    SEED("\0\1", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /stream HTTP/1.0\r\n\r\n"),
    SEED("\1\1", "GET http://h/p?q HTTP/1.1\r\n" HOST "Upgrade: h2c\r\nConnection: upgrade\r\n\r\n"),
    SEED("\0\1",
         "POST /x HTTP/1.1\r\n" HOST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    SEED("\0\1", "\r\nGET / HTTP/1.1\n" HOST "X : y\r\n z\r\n\r\n"),
    SEED("\0\1", API("POST /v1/locks/a%2Fb/acquire",
                     91) "{\"locked_by\":\"me\",\"ttl_ms\":60000,\"wait_ms\":5,"
                         "\"metadata\":{\"a\":\"b\"},\"lock_id\":\"i\",\"reentrant\":true}"),
    SEED("\0\1", API("POST /v1/acquire",
                     89) "{\"key\":\"k\",\"locked_by\":\"x\",\"wait_ms\":9,\"webhook\":{\"url\":\"http://"
                         "[::ffff:10.0.0.1]:80/x\"}}"),
    SEED("\0\1", API("POST /v1/renew", 39) "{\"key\":\"k\",\"lock_id\":\"i\",\"ttl_ms\":500}" API(
                     "POST /v1/release", 44) "{\"key\":\"k\",\"lock_id\":\"i\",\"outcome\":\"failed\"}"),
    SEED("\0\1", API("GET /v1/locks?prefix=a%20&status=all&stale=1&limit=5&cursor=k", 0)
                     API("GET /v1/locks/k/history?limit=2", 0) API("GET /v1/locks/k/queue", 0)
                         API("GET /v1/locks/k/free", 0)),
    SEED("\0\1",
         API("DELETE /v1/locks/k?reason=a+b&lock_id=i", 0) API("DELETE /v1/locks/k/queue?lock_id=i", 0)
             API("GET /v1/events?last_event_id=3&prefix=k", 0)),
    SEED("\0\1", "GET /v1/locks HTTP/1.1\r\n" HOST
                 "Authorization: Basic YTphZG1pbg==\r\nX-Request-Id: a.b-c\r\n\r\n"),
    SEED("\0\1", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    SEED("\0\1", "\26\3\1\2\0\1\0\1\374\3\3"),
    SEED("\1\1",
         "OPTIONS * HTTP/1.1\r\n" HOST "Connection: close\r\n\r\nGET /never HTTP/1.1\r\n" HOST "\r\n"),
};

static const struct seed words[] = {
    SEED("", "\r\n"),
    SEED("", "\n"),
    SEED("", "\r"),
    SEED("", " "),
    SEED("", "\t"),
    SEED("", ":"),
    SEED("", ";"),
    SEED("", "\0"),
    SEED("", "0\r\n\r\n"),
    SEED("", "\r\n\r\n"),
    SEED("", "Content-Length: 5\r\n"),
    SEED("", "Content-Length: 0\r\n"),
    SEED("", "Content-Length: 18446744073709551616\r\n"),
    SEED("", "Transfer-Encoding: chunked\r\n"),
    SEED("", "Transfer-Encoding: identity\r\n"),
    SEED("", "Connection: close\r\n"),
    SEED("", "Connection: keep-alive\r\n"),
    SEED("", "Expect: 100-continue\r\n"),
    SEED("", "HTTP/1.1"),
    SEED("", "HTTP/1.0"),
    SEED("", "HTTP/0.9"),
    SEED("", "/later"),
    SEED("", "/stream"),
    SEED("", "ffffffff"),
    SEED("", "%2F"),
    SEED("", "%00"),
    SEED("", "HEAD"),
    SEED("", "Authorization: Bearer locker\r\n"),
    SEED("", "Authorization: Basic YTpyZWFkZXI=\r\n"),
    SEED("", "/v1/locks/k/acquire"),
    SEED("", "{\"locked_by\":\"x\"}"),
    SEED("", "\"wait_ms\":1"),
    SEED("", "\"metadata\":{}"),
    SEED("", "\\ud800"),
    SEED("", "[[[["),
    SEED("", "99999999999999999999"),
    SEED("", "null"),
    SEED("", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
};

enum { N_SEEDS = sizeof seeds / sizeof *seeds, N_WORDS = sizeof words / sizeof *words };

static uint64_t random_state;
static char current[120]; /* what to say if this input aborts */

static uint64_t roll(uint64_t below)
{
    /* splitmix64 */
    uint64_t z = (random_state += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return (z ^ (z >> 31)) % below;
}

struct input {
    uint8_t data[FUZZ_MAX_INPUT];
    size_t len;
};

static void insert(struct input *input, size_t at, const void *data, size_t len)
{
    if (len > sizeof input->data - input->len) {
        return;
    }
    memmove(input->data + at + len, input->data + at, input->len - at);
    memcpy(input->data + at, data, len);
    input->len += len;
}

static void remove_some(struct input *input, size_t at)
{
    size_t len = 1 + roll(8);

    len = len > input->len - at ? input->len - at : len;
    memmove(input->data + at, input->data + at + len, input->len - at - len);
    input->len -= len;
}

/* A piece of the input itself once more, somewhere else. */
static void repeat_some(struct input *input, size_t at)
{
    uint8_t piece[64];
    size_t from = roll(input->len + 1);
    size_t len = roll(sizeof piece + 1);

    len = len > input->len - from ? input->len - from : len;
    memcpy(piece, input->data + from, len);
    insert(input, at, piece, len);
}

static void mutate(struct input *input)
{
    size_t at = roll(input->len + 1);
    const struct seed *word = &words[roll(N_WORDS)];
    const struct seed *other = &seeds[roll(N_SEEDS)];
    uint8_t byte = (uint8_t)roll(256);

    switch (roll(7)) {
    case 0:
        insert(input, at, word->data, word->len);
        break;
    case 1:
        insert(input, at, &byte, 1);
        break;
    case 2:
        remove_some(input, at);
        break;
    case 3:
        repeat_some(input, at);
        break;
    case 4:
        insert(input, input->len, other->data + 2, other->len - 2);
        break;
    case 5:
        if (at < input->len) {
            input->data[at] ^= (uint8_t)(1U << roll(8));
        }
        break;
    default:
        if (at < input->len) {
            input->data[at] = byte;
        }
        break;
    }
}

static void make_input(struct input *input, unsigned long seed, unsigned long number)
{
    const struct seed *from;

    random_state = seed * 1000003 + number;
    from = number < N_SEEDS ? &seeds[number] : &seeds[roll(N_SEEDS)];
    memcpy(input->data, from->data, from->len);
    input->len = from->len;
    if (number < N_SEEDS) {
        return;
    }
    for (uint64_t i = roll(6); i != UINT64_MAX; i--) {
        mutate(input);
    }
}

static void on_abort(int number)
{
    (void)number;
    if (write(STDERR_FILENO, current, strlen(current)) < 0) {
        return; /* and then the signal's own effect */
    }
}

static int replay(int count, char **files)
{
    for (int i = 0; i < count; i++) {
        struct input input;
        FILE *file = fopen(files[i], "rb");
        if (file == NULL) {
            perror(files[i]);
            return 1;
        }
        input.len = fread(input.data, 1, sizeof input.data, file);
        (void)fclose(file);
        fuzz_http(input.data, input.len);
    }
    fuzz_tear_down();
    printf("%d passed, 0 failed\n", count);
    return 0;
}

static int write_seeds(const char *directory)
{
    for (size_t i = 0; i < N_SEEDS; i++) {
        char path[4096];
        FILE *file;
        (void)snprintf(path, sizeof path, "%s/seed-%zu", directory, i);
        file = fopen(path, "wb");
        if (file == NULL || fwrite(seeds[i].data, 1, seeds[i].len, file) != seeds[i].len ||
            fclose(file) != 0) {
            perror(path);
            return 1;
        }
    }
    return 0;
}

static unsigned long option(int argc, char **argv, const char *name, unsigned long fallback)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            return strtoul(argv[i + 1], NULL, 10);
        }
    }
    return fallback;
}

int main(int argc, char **argv)
{
    unsigned long first = option(argc, argv, "--first", 0);
    unsigned long count = option(argc, argv, "--count", 1UL << 40);
    time_t until = time(NULL) + (time_t)option(argc, argv, "--seconds", 5);
    unsigned long done = 0;
    unsigned long seed;
    struct input input;

    if (argc == 3 && strcmp(argv[1], "--write") == 0) {
        return write_seeds(argv[2]);
    }
    if (argc > 1 && strncmp(argv[1], "--", 2) != 0) {
        return replay(argc - 1, argv + 1);
    }
    seed = option(argc, argv, "--seed", 1);
    (void)signal(SIGABRT, on_abort);
    for (; done < count && (done < N_SEEDS || time(NULL) <= until); done++) {
        (void)snprintf(current, sizeof current, "fuzz_http: again with --seed %lu --first %lu --count 1\n",
                       seed, first + done);
        make_input(&input, seed, first + done);
        if (count == 1) {
            (void)fwrite(input.data, 1, input.len, stderr); /* for whoever looks into a finding */
        }
        fuzz_http(input.data, input.len);
    }
    fuzz_tear_down();
    printf("%lu passed, 0 failed\n", done);
    return 0;
}
