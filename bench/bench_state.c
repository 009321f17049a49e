/*
 * Saving a deployment state on files beside parsing, dumping and hashing the same
 * text with jansson and nettle, which any program that writes checksums does.
 *
 *     bench_state DIRECTORY MEGABYTES ROUNDS
 *
 * Prints two numbers a round, in milliseconds: the save, and the three alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>
#include <nettle/sha2.h>

#include "belay/state.h"

static double now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

enum { SERIAL_WIDTH = 10 };

/* Resources as a deployer has them: some 1.2 KB each, indented. */
static char *make_text(size_t size)
{
    char *text = malloc(size + 8192);
    size_t n = 0;

    if (text == NULL) {
        return NULL;
    }
    n += (size_t)sprintf(text + n, "{\n  \"metadata\": {\"serial\": %*d},\n", SERIAL_WIDTH, 0);
    n += (size_t)sprintf(text + n, "  \"format_version\": \"" BELAY_STATE_FORMAT "\",\n  \"resources\": {");
    for (int i = 0; n < size; i++) {
        n += (size_t)sprintf(text + n, "%s\n    \"service-%d/api\": {\n      \"kind\": \"MicroService\",\n",
                             i == 0 ? "" : ",", i);
        for (int k = 0; k < 20; k++) {
            n += (size_t)sprintf(text + n, "      \"attribute_%d\": \"arn:aws:ecs:eu-west-1:%d:%d\",\n", k, i,
                                 k * i);
        }
        n += (size_t)sprintf(text + n,
                             "      \"desired\": {\"cpu\": %d, \"memory\": 2048, \"ready\": true}\n    }", i);
    }
    (void)sprintf(text + n, "\n  },\n  \"outputs\": {}\n}\n");
    return text;
}

/* As if it was loaded before: `token` counts the versions. */
static double save(struct belay_states *states, char *text, size_t len, uint64_t token)
{
    char serial[SERIAL_WIDTH + 1];

    const struct belay_state_name name = { "bench", "prod" };
    struct belay_state_lock stamp = { .token = token, .store = "bench", .locked_by = "bench" };
    struct belay_deployment deployment = { .status = "success", .duration_ms = -1 };
    struct belay_state_write write = BELAY_STATE_WRITE_INIT;
    struct belay_error err = BELAY_ERROR_INIT;
    double began;

    (void)snprintf(serial, sizeof serial, "%*llu", SERIAL_WIDTH, (unsigned long long)token - 1);
    memcpy(strstr(text, "\"serial\": ") + strlen("\"serial\": "), serial, SERIAL_WIDTH);
    began = now_ms();
    write.lock = &stamp;
    write.deployment = &deployment;
    if (belay_state_save(states, &name, text, len, &write, NULL, &err) != BELAY_OK) {
        (void)fprintf(stderr, "bench_state: %s\n", err.text);
        exit(1);
    }
    return now_ms() - began;
}

static double alone(const char *text, size_t len)
{
    double began = now_ms();
    json_t *json = json_loadb(text, len, 0, NULL);
    char *dumped = json_dumps(json, JSON_INDENT(2));
    struct sha256_ctx hash;
    uint8_t digest[SHA256_DIGEST_SIZE];

    if (dumped == NULL) {
        (void)fprintf(stderr, "bench_state: jansson failed\n");
        exit(1);
    }
    sha256_init(&hash);
    sha256_update(&hash, strlen(dumped), (const uint8_t *)dumped);
    sha256_digest(&hash, sizeof digest, digest);
    free(dumped);
    json_decref(json);
    return now_ms() - began;
}

int main(int argc, char **argv)
{
    struct belay_states_options options = BELAY_STATES_OPTIONS_INIT;
    struct belay_states *states;
    struct belay_error err = BELAY_ERROR_INIT;
    char url[4096];
    char *text;

    if (argc != 4) {
        (void)fprintf(stderr, "usage: bench_state DIRECTORY MEGABYTES ROUNDS\n");
        return 64;
    }
    (void)snprintf(url, sizeof url, "file:%s", argv[1]);
    options.url = url;
    options.keep_snapshots = 2;
    text = make_text((size_t)atol(argv[2]) * 1000000);
    if (text == NULL || belay_states_open(&options, &states, &err) != BELAY_OK) {
        (void)fprintf(stderr, "bench_state: %s\n", err.text);
        return 1;
    }
    (void)save(states, text, strlen(text), 1);
    for (int i = 0; i < atoi(argv[3]); i++) {
        double saved = save(states, text, strlen(text), (uint64_t)i + 2);

        (void)printf("%.3f %.3f\n", saved, alone(text, strlen(text)));
    }
    belay_states_close(states);
    free(text);
    return 0;
}
