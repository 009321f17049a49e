/*
 * How long commands take from start to end, in turn, so that what slows the
 * machine down slows them all.
 *
 *     bench_spawn ROUNDS COMMAND [ARG...] [-- COMMAND [ARG...]]...
 *
 * with `---` for a `--` of a command's own. Prints one line a command: the
 * median, the 10th and the 90th percentile, in microseconds.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { COMMANDS_MAX = 8 };

static int64_t now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* Nanoseconds, or -1 if it could not be started or did not exit with 0. */
static int64_t time_once(char **command, const posix_spawn_file_actions_t *quiet)
{
    int64_t began = now_ns();
    pid_t child;
    int status = -1;

    if (command[0] == NULL || posix_spawnp(&child, command[0], quiet, NULL, command, environ) != 0) {
        return -1;
    }
    if (waitpid(child, &status, 0) != child || status != 0) {
        return -1;
    }
    return now_ns() - began;
}

/* Cuts argv at each `--`. Returns how many commands there are. */
static int split(int argc, char **argv, char **commands[COMMANDS_MAX])
{
    int n = 0;

    commands[n++] = argv;
    for (int i = 0; i < argc && argv[i] != NULL; i++) {
        if (strcmp(argv[i], "--") == 0 && n < COMMANDS_MAX) {
            argv[i] = NULL;
            commands[n++] = argv + i + 1;
        } else if (strcmp(argv[i], "---") == 0) {
            argv[i][2] = '\0';
        }
    }
    return n;
}

int main(int argc, char **argv)
{
    char **commands[COMMANDS_MAX];
    posix_spawn_file_actions_t quiet;
    size_t rounds = argc > 2 ? strtoul(argv[1], NULL, 10) : 0;
    int n = argc > 2 ? split(argc - 2, argv + 2, commands) : 0;
    int64_t *took = n > 0 && rounds > 0 ? calloc((size_t)n * rounds, sizeof *took) : NULL;

    if (took == NULL || posix_spawn_file_actions_init(&quiet) != 0 ||
        posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0) != 0) {
        (void)fprintf(stderr, "usage: bench_spawn ROUNDS COMMAND [ARG...] [-- COMMAND [ARG...]]...\n");
        free(took);
        return 64;
    }
    for (size_t round = 0; round < rounds; round++) {
        for (int i = 0; i < n; i++) {
            int64_t ns = time_once(commands[i], &quiet);

            if (ns < 0) {
                (void)fprintf(stderr, "bench_spawn: '%s' failed\n", commands[i][0]);
                free(took);
                return 1;
            }
            took[(size_t)i * rounds + round] = ns;
        }
    }
    for (int i = 0; i < n; i++) {
        int64_t *mine = took + (size_t)i * rounds;

        qsort(mine, rounds, sizeof *mine, by_value);
        (void)printf("%" PRId64 " %" PRId64 " %" PRId64 "\n", mine[rounds / 2] / 1000,
                     mine[rounds / 10] / 1000, mine[rounds * 9 / 10] / 1000);
    }
    (void)posix_spawn_file_actions_destroy(&quiet);
    free(took);
    return 0;
}
