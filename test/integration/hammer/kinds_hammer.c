/*
 * Many processes on one store: exclusive, shared and counting locks, on one key and on
 * several, while some of the processes are killed with -9 and others are stopped for longer
 * than their lease (L1, L2, L4).
 *
 *     kinds_hammer STORE_URL SECONDS SEED TTL_MS PROCESSES
 *
 * At the end prints what was done, and each fault. Exit 1: a fault was found, or too little
 * was done. hammer_board.h says how faults are found.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "belay.h"
#include "hammer_board.h"
#include "hammer_worker.h"

enum { TICK_MS = 5, SETTLE_MS = 3000, ALONE_MS = 30000 };

enum deed { DEED_KILL, DEED_KILL_HOLDER, DEED_STOP, DEED_STOP_HOLDER, N_DEEDS };
static const char *const deed_names[N_DEEDS] = { "kill", "kill a holder", "stop", "stop a holder" };

struct child {
    pid_t pid; /* 0: to be started */
    struct claim *claim;
    int64_t continue_at_ms; /* 0: not stopped */
};

enum { MORE_TIME = 6 }; /* times the duration, for a slow machine to do everything once */

static struct {
    const char *store_url;
    struct board *board;
    struct child children[N_WORKERS_MAX];
    bool was_harmed[N_WORKERS_MAX];
    int n_workers;
    unsigned long n_deeds[N_DEEDS];
} hammer;

static void sleep_ms(long ms)
{
    struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L };

    (void)nanosleep(&time, NULL);
}

static int64_t between(int64_t least, int64_t most)
{
    return least + random() % (most - least + 1);
}

/* ---- processes ---- */

/* One that no process has, and whose last claim is over. */
static struct claim *free_claim(void)
{
    for (size_t i = 0; i < N_CLAIMS; i++) {
        struct claim *claim = &hammer.board->claims[i];

        if (atomic_load(&claim->pid) == 0 && atomic_load(&claim->until_boot_ms) < belay_now_boot_ms()) {
            return claim;
        }
    }
    return NULL;
}

static void start(int number)
{
    struct child *child = &hammer.children[number];
    struct worker worker = { hammer.board, free_claim(), hammer.store_url, number, (unsigned)random() };
    pid_t parent = getpid();
    pid_t pid;

    if (worker.claim == NULL) {
        return;
    }
    atomic_store(&worker.claim->pid, 1);
    pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(getppid() == parent ? worker_run(&worker) : 1);
    }
    if (pid < 0) {
        perror("kinds_hammer: fork");
        exit(1);
    }
    *child = (struct child){ .pid = pid, .claim = worker.claim };
}

/* A process that ended: its claim stands, unless it was killed while it wrote it. */
static void reap(struct child *child)
{
    int status;

    if (child->pid == 0 || waitpid(child->pid, &status, WNOHANG) != child->pid) {
        return;
    }
    if (!(WIFEXITED(status) && WEXITSTATUS(status) == 0) &&
        !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) {
        board_fault(hammer.board, "a process ended with status %d, signal %d", WEXITSTATUS(status),
                    WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
    if (atomic_load(&child->claim->version) % 2 != 0) {
        claim_withdraw(child->claim);
        atomic_fetch_add(&child->claim->version, 1);
    }
    atomic_store(&child->claim->pid, 0);
    *child = (struct child){ 0 };
}

static void tend(bool restart)
{
    for (int i = 0; i < hammer.n_workers; i++) {
        struct child *child = &hammer.children[i];

        reap(child);
        if (child->pid == 0 && restart) {
            start(i);
        } else if (child->continue_at_ms != 0 && child->continue_at_ms <= belay_now_boot_ms()) {
            child->continue_at_ms = 0;
            (void)kill(child->pid, SIGCONT);
        }
    }
}

/* ---- harm ---- */

static struct child *choose_victim(bool holder)
{
    int64_t now_ms = belay_now_boot_ms();
    int first = (int)between(0, hammer.n_workers - 1);

    for (int i = 0; i < hammer.n_workers; i++) {
        struct child *child = &hammer.children[(first + i) % hammer.n_workers];
        bool holds = child->pid != 0 && atomic_load(&child->claim->until_boot_ms) > now_ms;

        if (child->pid != 0 && child->continue_at_ms == 0 && (holds || !holder)) {
            return child;
        }
    }
    return NULL;
}

/* False: there is no such process now. */
static bool harm(enum deed deed)
{
    int64_t ttl_ms = hammer.board->ttl_ms;
    struct child *child = choose_victim(deed == DEED_KILL_HOLDER || deed == DEED_STOP_HOLDER);

    if (child == NULL) {
        return false;
    }
    hammer.n_deeds[deed]++;
    hammer.was_harmed[child - hammer.children] = true;
    if (deed == DEED_KILL || deed == DEED_KILL_HOLDER) {
        (void)kill(child->pid, SIGKILL);
        return true;
    }
    (void)kill(child->pid, SIGSTOP);
    child->continue_at_ms = belay_now_boot_ms() + between(ttl_ms * 5 / 4, ttl_ms * 9 / 4);
    return true;
}

/* It was left alone, and held nothing to the end. */
static bool is_starved(int number)
{
    return atomic_load(&hammer.board->done_by[number]) == 0 && !hammer.was_harmed[number];
}

static bool did_everything(void)
{
    bool did = atomic_load(&hammer.board->counts[COUNT_TOGETHER]) > 0;

    for (int i = 0; i < N_KINDS; i++) {
        did = did && atomic_load(&hammer.board->done[i]) > 0;
    }
    for (int i = 0; i < N_DEEDS; i++) {
        did = did && hammer.n_deeds[i] > 0;
    }
    for (int i = 0; i < hammer.n_workers; i++) {
        did = did && !is_starved(i);
    }
    return did;
}

static void run(double seconds)
{
    int64_t began_at_ms = belay_now_boot_ms();
    int64_t spent_ms = 0;
    int64_t harm_at_ms = belay_now_boot_ms() + hammer.board->ttl_ms;
    unsigned deed = 0;

    while ((double)spent_ms < seconds * 1000 ||
           ((double)spent_ms < seconds * 1000 * MORE_TIME && !did_everything())) {
        tend(true);
        if (belay_now_boot_ms() >= harm_at_ms && harm((enum deed)(deed % N_DEEDS))) {
            deed++;
            harm_at_ms = belay_now_boot_ms() + between(hammer.board->ttl_ms / 4, hammer.board->ttl_ms);
        }
        board_check(hammer.board);
        sleep_ms(TICK_MS);
        spent_ms = belay_now_boot_ms() - began_at_ms;
    }
}

/* All processes end by themselves: those that wait get their locks. */
static void finish(void)
{
    int64_t ends_at_ms = belay_now_boot_ms() + WAIT_MS + SETTLE_MS;
    bool all_ended = false;

    atomic_store(&hammer.board->is_over, true);
    while (!all_ended && belay_now_boot_ms() < ends_at_ms) {
        all_ended = true;
        tend(false);
        for (int i = 0; i < hammer.n_workers; i++) {
            all_ended = all_ended && hammer.children[i].pid == 0;
        }
        sleep_ms(TICK_MS);
    }
    for (int i = 0; i < hammer.n_workers; i++) {
        if (hammer.children[i].pid != 0) {
            board_fault(hammer.board, "process %d does not end", i);
            (void)kill(hammer.children[i].pid, SIGKILL);
            (void)waitpid(hammer.children[i].pid, NULL, 0);
        }
    }
}

/* ---- afterwards ---- */

static bool tell_held(void *context, const struct belay_info *info)
{
    (void)context;
    if (info->status == BELAY_STATUS_ACTIVE) {
        board_fault(hammer.board, "'%s' is still held by '%s' for %" PRId64 " ms, with %zu holders",
                    info->key, info->lock_id == NULL ? "" : info->lock_id, info->expires_in_ms,
                    info->n_holders);
    }
    return true;
}

/* Every key is free for one that wants it alone, whatever kind it had before. */
static void check_free(void)
{
    struct belay_client_options options = BELAY_CLIENT_OPTIONS_INIT;
    struct belay_lock_options alone = BELAY_LOCK_OPTIONS_INIT;
    struct belay_query query = BELAY_QUERY_INIT;
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_client *client = NULL;
    enum belay_code code;

    sleep_ms(hammer.board->ttl_ms + SETTLE_MS / 10);
    options.store_url = hammer.store_url;
    code = belay_client_open(&options, &client, &err);
    if (code == BELAY_OK) {
        code = belay_list(client, &query, tell_held, NULL, NULL, &err);
    }
    alone.ttl_ms = hammer.board->ttl_ms;
    alone.wait_ms = ALONE_MS; /* a killed waiter holds the queue up for a moment */
    for (int key = 0; key < N_KEYS && code == BELAY_OK; key++) {
        struct belay_lock *lock = NULL;

        code = belay_lock_acquire(client, key_names[key], &alone, &lock, &err);
        if (code == BELAY_OK) {
            code = belay_lock_release(lock, BELAY_OUTCOME_COMPLETED, &err);
            belay_lock_free(lock);
        }
    }
    if (code != BELAY_OK) {
        board_fault(hammer.board, "afterwards: %s", err.text);
    }
    belay_client_close(client);
    belay_error_release(&err);
}

/* It was a hammering, and every kind and every process got its turn. */
static void check_progress(void)
{
    for (int i = 0; i < N_KINDS; i++) {
        (void)printf("%s %llu, ", kind_names[i], atomic_load(&hammer.board->done[i]));
        if (atomic_load(&hammer.board->done[i]) == 0) {
            board_fault(hammer.board, "no lock of kind %s was held", kind_names[i]);
        }
    }
    for (int i = 0; i < hammer.n_workers; i++) {
        if (is_starved(i)) {
            board_fault(hammer.board, "process %d starved", i);
        }
    }
    for (int i = 0; i < N_DEEDS; i++) {
        (void)printf("%s %lu, ", deed_names[i], hammer.n_deeds[i]);
        if (hammer.n_deeds[i] == 0) {
            board_fault(hammer.board, "nothing was done of: %s", deed_names[i]);
        }
    }
    for (int i = 0; i < N_COUNTS; i++) {
        (void)printf("%s %llu, ", count_names[i], atomic_load(&hammer.board->counts[i]));
    }
    if (atomic_load(&hammer.board->counts[COUNT_TOGETHER]) == 0) {
        board_fault(hammer.board, "no two processes ever held one key together");
    }
    (void)printf("longest wait %" PRId64 " ms\n", atomic_load(&hammer.board->longest_wait_ms));
}

int main(int argc, char **argv)
{
    size_t n_faults;

    if (argc != 6 || atoi(argv[5]) < 1 || atoi(argv[5]) > N_WORKERS_MAX) {
        (void)fprintf(stderr, "usage: kinds_hammer STORE_URL SECONDS SEED TTL_MS PROCESSES\n");
        return 64;
    }
    hammer.store_url = argv[1];
    hammer.n_workers = atoi(argv[5]);
    hammer.board = board_new(strtoll(argv[4], NULL, 10));
    srandom((unsigned)strtoul(argv[3], NULL, 10));
    run(strtod(argv[2], NULL));
    finish();
    check_free();
    board_check_tokens(hammer.board);
    check_progress();
    n_faults = atomic_load(&hammer.board->n_faults);
    for (size_t i = 0; i < n_faults && i < N_FAULTS; i++) {
        (void)printf("fault: %s\n", hammer.board->faults[i]);
    }
    (void)printf("%zu faults\n", n_faults);
    return n_faults == 0 ? 0 : 1;
}
