/*
 * Run the targets of a fuzz program without libFuzzer: the seeds first, then
 * mutations of them.
 *
 *     fuzz_NAME [--target T] [--seconds N] [--count N] [--seed S] [--first N]
 *     fuzz_NAME [--target T] FILE...        replay what libFuzzer found
 *
 * Without --target every target runs, each for its share of the seconds. An input
 * depends only on the seed and its number, so a finding is repeated with
 * --target T --seed S --first N --count 1. Ends on the line `N passed, 0 failed`.
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"

enum { SEEDS_MAX = 256, WORDS_MAX = 256, WORD_SIZE = 128, PATH_SIZE = 512, HEX_DIGIT_BITS = 4 };

struct input {
    uint8_t data[FUZZ_MAX_INPUT];
    size_t len;
};

struct word {
    uint8_t data[WORD_SIZE];
    size_t len;
};

static struct input *seeds;
static size_t n_seeds;
static struct word words[WORDS_MAX];
static size_t n_words;
static uint64_t random_state;
static char current[200]; /* printed if this input aborts */

/* ---- seeds and dictionary ---- */

static bool read_input(const char *path, struct input *out)
{
    FILE *file = fopen(path, "rb");

    if (file == NULL) {
        return false;
    }
    out->len = fread(out->data, 1, sizeof out->data, file);
    (void)fclose(file);
    return true;
}

static void read_seeds(const char *name)
{
    char folder[PATH_SIZE];
    char path[PATH_SIZE + 300];
    struct dirent **entries = NULL;
    int n;

    (void)snprintf(folder, sizeof folder, "%s/seeds/%s", BELAY_FUZZ_DIR, name);
    n = scandir(folder, &entries, NULL, alphasort); /* in order: an input's number means the same again */
    n_seeds = 0;
    for (int i = 0; i < n; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && n_seeds < SEEDS_MAX && read_input(path, &seeds[n_seeds])) {
            n_seeds++;
        }
        free(entries[i]);
    }
    free(entries);
    if (n_seeds == 0) {
        (void)fprintf(stderr, "fuzz: no seeds in %s\n", folder);
        exit(1);
    }
}

static unsigned hex_digit(char c)
{
    return (unsigned)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
}

/* A line of libFuzzer's dictionaries: NAME="TEXT" or "TEXT", with \\, \" and \xNN. */
static void read_word(const char *line)
{
    const char *at = strchr(line, '"');
    struct word *word = &words[n_words];

    if (line[0] == '#' || at == NULL || n_words == WORDS_MAX) {
        return;
    }
    word->len = 0;
    for (at++; *at != '\0' && *at != '"' && word->len < WORD_SIZE; at++) {
        if (at[0] == '\\' && at[1] == 'x' && at[2] != '\0' && at[3] != '\0') {
            word->data[word->len++] = (uint8_t)(hex_digit(at[2]) << HEX_DIGIT_BITS | hex_digit(at[3]));
            at += 3;
        } else {
            at += at[0] == '\\' && at[1] != '\0' ? 1 : 0;
            word->data[word->len++] = (uint8_t)*at;
        }
    }
    n_words += word->len > 0;
}

static void read_words(const char *name)
{
    char path[PATH_SIZE];
    char line[1024];
    FILE *file;

    (void)snprintf(path, sizeof path, "%s/dict/%s.dict", BELAY_FUZZ_DIR, name);
    n_words = 0;
    file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        read_word(line);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

/* ---- mutations ---- */

static uint64_t roll(uint64_t below)
{
    /* splitmix64 */
    uint64_t z = (random_state += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return (z ^ (z >> 31)) % below;
}

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

/* Insert a piece of the input once more, somewhere else. */
static void repeat_some(struct input *input, size_t at)
{
    uint8_t piece[64];
    size_t from = roll(input->len + 1);
    size_t len = roll(sizeof piece + 1);

    len = len > input->len - from ? input->len - from : len;
    memcpy(piece, input->data + from, len);
    insert(input, at, piece, len);
}

/* Replace the rest of the input by the rest of another seed. */
static void splice(struct input *input, size_t at)
{
    const struct input *other = &seeds[roll(n_seeds)];
    size_t from = roll(other->len + 1);

    input->len = at;
    insert(input, at, other->data + from, other->len - from);
}

static void change_byte(struct input *input, size_t at, uint8_t byte)
{
    if (at < input->len) {
        input->data[at] = byte;
    }
}

static void flip_bit(struct input *input, size_t at)
{
    if (at < input->len) {
        input->data[at] ^= (uint8_t)(1U << roll(8));
    }
}

static void mutate(struct input *input)
{
    size_t at = roll(input->len + 1);
    const struct word *word = n_words > 0 ? &words[roll(n_words)] : NULL;
    uint8_t byte = (uint8_t)roll(256);

    switch (roll(8)) {
    case 0:
    case 1:
        insert(input, at, word == NULL ? &byte : word->data, word == NULL ? 1 : word->len);
        break;
    case 2:
        insert(input, at, &byte, 1);
        break;
    case 3:
        remove_some(input, at);
        break;
    case 4:
        repeat_some(input, at);
        break;
    case 5:
        splice(input, at);
        break;
    case 6:
        flip_bit(input, at);
        break;
    default:
        change_byte(input, at, byte);
        break;
    }
}

static void make_input(struct input *input, unsigned long seed, unsigned long number)
{
    random_state = seed * 1000003 + number;
    *input = number < n_seeds ? seeds[number] : seeds[roll(n_seeds)];
    if (number < n_seeds) {
        return;
    }
    for (uint64_t i = roll(6); i != UINT64_MAX; i--) {
        mutate(input);
    }
}

/* ---- running ---- */

static void on_abort(int number)
{
    (void)number;
    if (write(STDERR_FILENO, current, strlen(current)) < 0) {
        return; /* and then the signal's own effect */
    }
}

struct plan {
    unsigned long first;
    unsigned long count;
    unsigned long seconds;
    unsigned long seed;
};

static void end_target(const struct fuzz_target *target)
{
    if (target->tear_down != NULL) {
        target->tear_down();
    }
}

static unsigned long run_target(const struct fuzz_target *target, const struct plan *plan)
{
    static struct input input;
    time_t until = time(NULL) + (time_t)plan->seconds;
    unsigned long done = 0;

    read_seeds(target->name);
    read_words(target->name);
    for (; done < plan->count && (done < n_seeds || time(NULL) < until); done++) {
        (void)snprintf(current, sizeof current,
                       "fuzz: again with --target %s --seed %lu --first %lu --count 1\n", target->name,
                       plan->seed, plan->first + done);
        make_input(&input, plan->seed, plan->first + done);
        if (plan->count == 1) {
            (void)fwrite(input.data, 1, input.len, stderr); /* the input that was found */
        }
        target->run(input.data, input.len);
    }
    end_target(target);
    return done;
}

static unsigned long run_all(struct plan plan)
{
    unsigned long done = 0;
    size_t n = 0;

    while (fuzz_targets[n].name != NULL) {
        n++;
    }
    plan.seconds = (plan.seconds + n - 1) / n;
    for (size_t i = 0; i < n; i++) {
        unsigned long ran = run_target(&fuzz_targets[i], &plan);

        printf("%-12s %lu inputs\n", fuzz_targets[i].name, ran);
        done += ran;
    }
    return done;
}

static unsigned long replay(const struct fuzz_target *target, int count, char **files)
{
    static struct input input;

    for (int i = 0; i < count; i++) {
        if (!read_input(files[i], &input)) {
            perror(files[i]);
            exit(1);
        }
        target->run(input.data, input.len);
    }
    end_target(target);
    return (unsigned long)count;
}

static const char *option(int argc, char **argv, const char *name)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            return argv[i + 1];
        }
    }
    return NULL;
}

static unsigned long number_option(int argc, char **argv, const char *name, unsigned long fallback)
{
    const char *text = option(argc, argv, name);

    return text == NULL ? fallback : strtoul(text, NULL, 10);
}

static const struct fuzz_target *find_target(const char *name)
{
    const struct fuzz_target *target = fuzz_targets;

    while (target->name != NULL && strcmp(target->name, name) != 0) {
        target++;
    }
    if (target->name == NULL) {
        (void)fprintf(stderr, "fuzz: no target '%s'; there are:", name);
        for (target = fuzz_targets; target->name != NULL; target++) {
            (void)fprintf(stderr, " %s", target->name);
        }
        (void)fprintf(stderr, "\n");
        exit(64);
    }
    return target;
}

int main(int argc, char **argv)
{
    const char *name = option(argc, argv, "--target");
    const struct fuzz_target *only = name == NULL ? NULL : find_target(name);
    struct plan plan = { number_option(argc, argv, "--first", 0),
                         number_option(argc, argv, "--count", 1UL << 40),
                         number_option(argc, argv, "--seconds", 5), number_option(argc, argv, "--seed", 1) };
    int skip = name == NULL ? 1 : 3;
    unsigned long done;

    seeds = calloc(SEEDS_MAX, sizeof *seeds);
    if (seeds == NULL) {
        return 1;
    }
    (void)signal(SIGABRT, on_abort);
    if (argc > skip && strncmp(argv[skip], "--", 2) != 0) {
        done = replay(only == NULL ? fuzz_targets : only, argc - skip, argv + skip);
    } else {
        done = only != NULL ? run_target(only, &plan) : run_all(plan);
    }
    free(seeds);
    printf("%lu passed, 0 failed\n", done);
    return 0;
}
