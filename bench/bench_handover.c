/*
 * Hand-over of a lock to a waiting process or thread.
 *
 *     bench_handover STORE_URL WAITERS HANDOVERS [PROCESSES [STORE_URL]]
 *
 * WAITERS + 1 processes take the lock in turn, so that while one has it, the
 * others wait; with PROCESSES, so many processes with WAITERS + 1 threads among
 * them. Every second process uses the second URL. Each notes the moment before it asks for the release, in
 * memory they share; the next holder subtracts that from the moment its
 * acquire returned. The release's own commit is inside what is measured.
 * Prints p50, p99 and the greatest, in microseconds.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "belay.h"

enum { WARM_UP = 50, HOLD_NS = 2000000, THREADS_MAX = 64 };

struct shared {
    atomic_long n;
    atomic_long failed;
    int64_t released_ns; /* written and read under the lock */
    int64_t took_ns[];
};

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

/* Take the lock, note how long it took to come over, keep it for a moment, give it on. */
static enum belay_code one_turn(struct belay_client *client, struct shared *shared, long most,
                                struct belay_error *err)
{
    const struct timespec hold = { 0, HOLD_NS };
    struct belay_lock_options options = BELAY_LOCK_OPTIONS_INIT;
    struct belay_lock *lock = NULL;
    enum belay_code code;
    int64_t acquired;
    long n;

    options.ttl_ms = 60000;
    options.wait_ms = 60000;
    code = belay_lock_acquire(client, "bench-handover", &options, &lock, err);
    if (code != BELAY_OK) {
        return code;
    }
    acquired = now_ns();
    n = atomic_fetch_add(&shared->n, 1);
    if (n < most && shared->released_ns != 0) {
        shared->took_ns[n] = acquired - shared->released_ns;
    }
    (void)nanosleep(&hold, NULL);
    shared->released_ns = now_ns();
    code = belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, err);
    belay_lock_free(lock);
    return code;
}

/* One process: its client, for all its threads. */
struct party {
    struct belay_client *client;
    struct shared *shared;
    long most;
};

static void *take_turns(void *context)
{
    const struct party *party = context;
    struct belay_error err = BELAY_ERROR_INIT;
    enum belay_code code = BELAY_OK;

    while (code == BELAY_OK && atomic_load(&party->shared->n) < party->most) {
        code = one_turn(party->client, party->shared, party->most, &err);
    }
    if (code != BELAY_OK) {
        (void)fprintf(stderr, "bench_handover: %s\n", err.text);
        atomic_fetch_add(&party->shared->failed, 1);
    }
    belay_error_release(&err);
    return NULL;
}

static int run_process(const char *url, struct shared *shared, long most, long n_threads)
{
    struct belay_client_options options = BELAY_CLIENT_OPTIONS_INIT;
    struct party party = { .shared = shared, .most = most };
    struct belay_error err = BELAY_ERROR_INIT;
    pthread_t threads[THREADS_MAX];
    long n = 1;

    options.store_url = url;
    if (belay_client_open(&options, &party.client, &err) != BELAY_OK) {
        (void)fprintf(stderr, "bench_handover: %s\n", err.text);
        belay_error_release(&err);
        atomic_fetch_add(&shared->failed, 1);
        return 1;
    }
    while (n < n_threads && pthread_create(&threads[n], NULL, take_turns, &party) == 0) {
        n++;
    }
    (void)take_turns(&party);
    while (n > 1) {
        (void)pthread_join(threads[--n], NULL);
    }
    belay_client_close(party.client);
    return 0;
}

static void report(struct shared *shared, long most)
{
    int64_t *took = shared->took_ns + WARM_UP;
    size_t n = (size_t)(most - WARM_UP);

    qsort(took, n, sizeof *took, by_value);
    (void)printf("%" PRId64 " %" PRId64 " %" PRId64 "\n", took[n / 2] / 1000, took[n * 99 / 100] / 1000,
                 took[n - 1] / 1000);
}

/* Starts the processes and waits for them. */
static void run(char **urls, long n_processes, long n_takers, struct shared *shared, long most)
{
    for (long i = 0; i < n_processes; i++) {
        long n_threads = n_takers / n_processes + (i < n_takers % n_processes ? 1 : 0);
        pid_t child = fork();

        if (child == 0) {
            _exit(run_process(urls[i % 2], shared, most, n_threads));
        }
        if (child < 0) {
            atomic_fetch_add(&shared->failed, 1);
        }
    }
    while (wait(NULL) > 0) {
    }
}

int main(int argc, char **argv)
{
    struct shared *shared;
    long takers, most, processes;
    size_t size;

    if (argc < 4 || argc > 6) {
        (void)fprintf(stderr, "usage: bench_handover STORE_URL WAITERS HANDOVERS [PROCESSES [STORE_URL]]\n");
        return 64;
    }
    takers = strtol(argv[2], NULL, 10) + 1;
    most = strtol(argv[3], NULL, 10) + WARM_UP;
    processes = argc > 4 ? strtol(argv[4], NULL, 10) : takers;
    if (processes < 1 || processes > takers || (takers - 1) / processes + 1 > THREADS_MAX) {
        (void)fprintf(stderr, "bench_handover: at most %d threads a process, and one at least\n",
                      THREADS_MAX);
        return 64;
    }
    size = sizeof *shared + (size_t)most * sizeof shared->took_ns[0];
    shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("bench_handover");
        return 1;
    }
    run((char *[]){ argv[1], argc > 5 ? argv[5] : argv[1] }, processes, takers, shared, most);
    if (atomic_load(&shared->failed) != 0) {
        return 1;
    }
    report(shared, most);
    return 0;
}
